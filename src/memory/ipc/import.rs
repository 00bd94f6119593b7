//! Imports blocks that other processes share.
//!
//! The chunks under a block are mapped side by side in their original order: a *span*. Blocks in the same chunks share
//! one span. A block that is received several times is mapped once, until it is closed as often. Only memory that the
//! driver opens by its own handle is mapped once for each device that it is received for.

use super::{
    device_uuid::{device_with_uuid, no_device_here},
    exporters::Exporters,
    exports, legacy,
    message::{Chunk, Header, HoldKind, Token, Transport, contradiction, misstated},
    ready_event,
};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, Physical, codes, observer},
    error::{Context, Error, Result},
    memory::{
        arena::StreamUse,
        device_memory::{self, device},
        handles::{self, Handle},
    },
    observe,
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
    stream::{self, ordering},
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The serial numbers of a span's chunks in their process, and the device of [`Span::opened`].
type SpanKey = (Token, Vec<u64>, Option<u32>);

/// Memory of another process, mapped in this one.
struct Span {
    /// The start of its first chunk.
    address: u64,
    bytes: u64,
    device: u32,
    /// The device in whose context the driver opened the memory by its own handle. No other device can access it at
    /// this address, not even the device that owns the memory.
    opened: Option<u32>,
    /// The number of held blocks in it.
    users: usize,
}

/// A block of another process.
struct Block {
    serial: u64,
    span: SpanKey,
    bytes: u64,
    device: u32,
    hold: HoldKind,
    /// The descriptor that represents the hold, if it is not a lock of the exporter's file.
    _descriptor: Option<OwnedFd>,
    /// The number of times it was received and not closed yet.
    count: usize,
    /// The streams that use it, besides those that are current when it is closed.
    uses: Vec<StreamUse>,
    /// The number of calls that recorded a use, including repeated ones.
    recorded: u64,
}

#[derive(Default)]
struct Imports {
    exporters: Exporters,
    spans: HashMap<SpanKey, Span>,
    /// By start address.
    blocks: BTreeMap<u64, Block>,
}

static IMPORTS: Mutex<Option<Imports>> = Mutex::new(None);
/// The number of spans, for a check without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Runs `body` with the imports. `body` must not lock an arena.
fn with<T>(body: impl FnOnce(&mut Imports) -> T) -> T {
    body(IMPORTS.lock().get_or_insert_default())
}

/// A received block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The sent address, translated to this process.
    pub address: u64,
    /// The size in bytes from there to the end of the block.
    pub bytes: u64,
    /// The offset of the address from the start of the block.
    pub offset: u64,
    /// The device that owns the memory.
    pub device: u32,
}

/// The memory of a received chunk.
enum ChunkMemory {
    Descriptor(OwnedFd),
    Imported(Physical),
    /// Described by the handle in the header.
    HeaderHandle,
}

/// Receives a message part by part. The first error is returned at the end.
pub struct MessageReceiver {
    header: Header,
    hold: Option<OwnedFd>,
    /// The ordinal of a device that will access the memory, besides the device that owns it; -1 for none.
    accessor: i32,
    device: Option<&'static Device>,
    chunks: Vec<(Chunk, ChunkMemory)>,
    error: Option<Error>,
}

impl MessageReceiver {
    /// Creates a receiver for a message with this header and the descriptors that accompanied it.
    pub fn new(header: Header, hold: Result<Vec<OwnedFd>>, accessor: i32) -> Self {
        let mut receiver =
            MessageReceiver { header, hold: None, accessor, device: None, chunks: Vec::new(), error: None };
        if let Err(error) = receiver.begin(hold) {
            receiver.error = Some(error);
        }
        receiver
    }

    fn begin(&mut self, hold: Result<Vec<OwnedFd>>) -> Result<()> {
        self.hold = hold?.pop();
        if self.header.token == exports::token() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "the block belongs to this process; use it at its own address",
            ));
        }
        if self.accessor != -1 {
            runtime::ready()?.device(self.accessor)?;
        }
        self.device = Some(device_with_uuid(self.header.uuid)?);
        Ok(())
    }

    /// Adds the chunks of a part. All but the last part are imported at once, so that few descriptors are open at a
    /// time.
    pub fn add_part(&mut self, chunks: Vec<Chunk>, descriptors: Result<Vec<OwnedFd>>, last: bool) {
        if self.error.is_some() {
            return;
        }
        let outcome = descriptors.and_then(|descriptors| {
            let mut descriptors = descriptors.into_iter();
            for chunk in chunks {
                let memory = descriptors.next().map_or(ChunkMemory::HeaderHandle, ChunkMemory::Descriptor);
                self.chunks.push((chunk, memory));
            }
            if last { Ok(()) } else { self.import_chunks() }
        });
        self.error = outcome.err();
    }

    /// Imports physical memory from the descriptors.
    fn import_chunks(&mut self) -> Result<()> {
        let Some(device) = self.device else { return Ok(()) };
        let runtime = runtime::ready()?;
        device
            .with_context(&runtime.driver, |driver| {
                for (_, memory) in &mut self.chunks {
                    if let ChunkMemory::Descriptor(descriptor) = memory {
                        *memory = ChunkMemory::Imported(driver.memory_import(descriptor)?);
                    }
                }
                Ok(())
            })
            .context(|| "importing another process's memory")
    }

    /// Maps the block if all parts were received.
    pub fn finish(mut self) -> Result<Received> {
        let outcome = match self.error.take() {
            Some(error) => Err(error),
            None => self.map_block(),
        };
        // Mapped memory does not need its handle, and memory that is not mapped must be released.
        if let Some(runtime) = runtime::usable() {
            for (_, memory) in self.chunks {
                if let ChunkMemory::Imported(physical) = memory {
                    retry(|| runtime.driver.memory_release(physical));
                }
            }
        }
        outcome
    }

    fn map_block(&mut self) -> Result<Received> {
        let runtime = runtime::ready()?;
        let Some(device) = self.device else { return Err(no_device_here(self.header.uuid)) };
        let chunks: Vec<Chunk> = self.chunks.iter().map(|(chunk, _)| *chunk).collect();
        let bytes = self.header.check(&chunks)?;
        let accessor = self.find_accessor(runtime, device)?;
        if let Some(event) = self.header.event {
            ready_event::wait_for(runtime, device, event)?;
            if let Some(accessor) = accessor {
                let (waiting, awaited) =
                    (stream::current_on(runtime, accessor.ordinal)?, stream::current_on(runtime, device.ordinal)?);
                stream::make_wait(runtime, waiting, awaited)?;
            }
        }
        let user = accessor.unwrap_or(device);
        let opened = matches!(self.header.transport, Transport::Handle(_)).then_some(user.ordinal);
        let key = (self.header.token, chunks.iter().map(|chunk| chunk.serial).collect(), opened);
        let mut imports = IMPORTS.lock();
        let imports = imports.get_or_insert_default();
        if !imports.spans.contains_key(&key) {
            let span = self.map(runtime, device, user, bytes)?;
            imports.spans.insert(key.clone(), span);
            COUNT.fetch_add(1, Ordering::Release);
        }
        let outcome = match imports.spans.get(&key) {
            Some(span) if (span.bytes, span.device) == (bytes, device.ordinal) => self
                .check_memory(runtime, span, &chunks)
                .and_then(|()| self.register(runtime, device, accessor, imports, &key)),
            _ => Err(contradiction()),
        };
        if outcome.is_err() {
            // If the driver fails to unmap the span, it stays until a later import uses it, or until `collect`.
            let _ = imports.drop_span(runtime, &key);
        }
        outcome
    }

    /// Returns the device that will access the memory besides the device that owns it.
    fn find_accessor(&self, runtime: &'static Runtime, device: &Device) -> Result<Option<&'static Device>> {
        if self.accessor == -1 || self.accessor == device.ordinal as i32 {
            return Ok(None);
        }
        let accessor = runtime.device(self.accessor)?;
        if runtime.driver.can_access_peer(accessor.native, device.native)? {
            return Ok(Some(accessor));
        }
        let (accessor, owner) = (accessor.ordinal, device.ordinal);
        let what = format!("device {accessor} cannot access the memory, which is on device {owner}");
        Err(Error::new(Status::PEER_ACCESS_UNSUPPORTED, what))
    }

    /// Maps the chunks in this process.
    fn map(&mut self, runtime: &Runtime, device: &Device, user: &Device, bytes: u64) -> Result<Span> {
        if let Transport::Handle(handle) = self.header.transport {
            let address = legacy::open(runtime, user, handle)?;
            return Ok(Span { address, bytes, device: device.ordinal, opened: Some(user.ordinal), users: 0 });
        }
        self.import_chunks()?;
        let handles: Vec<Handle> = self
            .chunks
            .iter()
            .filter_map(|(chunk, memory)| match memory {
                ChunkMemory::Imported(physical) => Some((*physical, chunk.bytes)),
                _ => None,
            })
            .collect();
        device.with_context(&runtime.driver, |driver| {
            let granule = driver.memory_granularity(device.native)?;
            let address = driver
                .memory_reserve(bytes, granule)
                .context(|| format!("reserving {} of addresses for another process's memory", Bytes(bytes)))?;
            match handles::map(device, driver, address, &handles) {
                Ok(()) => Ok(Span { address, bytes, device: device.ordinal, opened: None, users: 0 }),
                Err(error) => {
                    retry(|| driver.memory_unreserve(address, bytes));
                    Err(error)
                }
            }
        })
    }

    /// Checks what the message claims about memory that was just mapped: its sender may lie.
    fn check_memory(&self, runtime: &Runtime, span: &Span, chunks: &[Chunk]) -> Result<()> {
        if span.users > 0 {
            return Ok(());
        }
        if let Some(user) = span.opened {
            // The driver maps what the handle names, whatever the message says about its size.
            let range = device(runtime, user)?.with_context(&runtime.driver, |driver| {
                driver.with_relaxed_capture(|| Ok(driver.memory_range(span.address)?))?
            });
            return match range {
                Ok((start, size)) if start + size < span.address + span.bytes => Err(misstated("size")),
                // A driver that cannot tell is no reason to refuse the memory.
                _ => Ok(()),
            };
        }
        // The driver has compared the sizes when it mapped the chunks.
        let mut address = span.address;
        for chunk in chunks {
            // A driver that cannot tell is no reason to refuse the memory.
            if let Ok(Some(owner)) = device_memory::owner(runtime, address)
                && owner != span.device
            {
                return Err(misstated("device"));
            }
            address += chunk.bytes;
        }
        Ok(())
    }

    /// Registers the block, or counts another reference to it.
    fn register(
        &mut self,
        runtime: &Runtime,
        device: &Device,
        accessor: Option<&Device>,
        imports: &mut Imports,
        key: &SpanKey,
    ) -> Result<Received> {
        let header = &self.header;
        let Some(span) = imports.spans.get(key) else { return Err(Error::new(Status::PANIC, "a new span is missing")) };
        if let Some(accessor) = accessor {
            allow_access(runtime, device, accessor, span)?;
        }
        let address = span.address + header.start;
        let received = Received {
            address: address + header.offset,
            bytes: header.bytes - header.offset,
            offset: header.offset,
            device: device.ordinal,
        };
        if let Some(block) = imports.blocks.get_mut(&address) {
            if (block.serial, block.bytes, &block.span) != (header.serial, header.bytes, key) {
                return Err(contradiction());
            }
            imports.exporters.check_hold(header, self.hold.as_ref())?;
            block.count += 1;
            return Ok(received);
        }
        let Some(hold) = self.hold.take() else {
            return Err(Error::new(Status::INVALID_VALUE, "the message has no descriptor that holds the block"));
        };
        let descriptor = imports.exporters.take_hold(header, hold)?;
        if let Some(span) = imports.spans.get_mut(key) {
            span.users += 1;
        }
        let (serial, bytes, hold) = (header.serial, header.bytes, header.hold);
        let device = device.ordinal;
        let (span, uses) = (key.clone(), Vec::new());
        let block = Block { serial, span, bytes, device, hold, _descriptor: descriptor, count: 1, uses, recorded: 0 };
        imports.blocks.insert(address, block);
        Ok(received)
    }
}

/// Gives a device access to a span.
fn allow_access(runtime: &Runtime, device: &Device, accessor: &Device, span: &Span) -> Result<()> {
    if span.opened.is_some() {
        // The span was opened for that device.
        return Ok(());
    }
    device
        .with_context(&runtime.driver, |driver| {
            Ok(driver.memory_allow(span.address, span.bytes, &[accessor.native])?)
        })
        .context(|| format!("giving device {} access to another process's memory", accessor.ordinal))
}

impl Imports {
    /// Unmaps a span without held blocks.
    fn drop_span(&mut self, runtime: &Runtime, key: &SpanKey) -> Result<()> {
        let Some(span) = self.spans.get(key).filter(|span| span.users == 0) else { return Ok(()) };
        let (address, bytes, opened) = (span.address, span.bytes, span.opened.is_some());
        device(runtime, span.opened.unwrap_or(span.device))?
            .with_context(&runtime.driver, |driver| {
                driver.with_relaxed_capture(|| unmap(driver, address, bytes, opened))?
            })
            .context(|| "unmapping another process's memory")?;
        self.spans.remove(key);
        COUNT.fetch_sub(1, Ordering::Release);
        Ok(())
    }

    /// Unmaps the spans of refused messages that the driver failed to unmap then.
    fn drop_unused_spans(&mut self, runtime: &Runtime) -> Result<()> {
        let unused: Vec<SpanKey> =
            self.spans.iter().filter(|(_, span)| span.users == 0).map(|(key, _)| key.clone()).collect();
        unused.iter().try_for_each(|key| self.drop_span(runtime, key))
    }

    /// Returns the block that contains an address, and its start.
    fn block_containing(&mut self, address: u64) -> Option<(u64, &mut Block)> {
        let (start, block) = self.blocks.range_mut(..=address).next_back()?;
        (address - start < block.bytes).then_some((*start, block))
    }

    /// Unmaps and releases a block whose uses have completed.
    fn drop_block(&mut self, runtime: &Runtime, start: u64) -> Result<()> {
        let Some(block) = self.blocks.get(&start) else { return Ok(()) };
        let key = block.span.clone();
        if let Some(span) = self.spans.get_mut(&key) {
            span.users -= 1;
        }
        if let Err(error) = self.drop_span(runtime, &key) {
            if let Some(span) = self.spans.get_mut(&key) {
                span.users += 1;
            }
            return Err(error);
        }
        // Release the lock last: from then on the exporter may reuse the block.
        let Some(block) = self.blocks.remove(&start) else { return Ok(()) };
        if let HoldKind::Byte(byte) = block.hold {
            self.exporters.unlock(key.0, byte);
        }
        Ok(())
    }
}

fn unmap(driver: &Driver, address: u64, bytes: u64, opened: bool) -> Result<()> {
    if opened {
        return Ok(driver.memory_close_ipc(address)?);
    }
    driver.memory_unmap(address, bytes)?;
    // Addresses that cannot be unreserved cost nothing.
    retry(|| driver.memory_unreserve(address, bytes));
    Ok(())
}

#[cold]
fn not_received(address: u64) -> Error {
    let what = format!(
        "{address:#x} is not in a block that was received from another process, or the block was closed already"
    );
    Error::new(Status::INVALID_POINTER, what)
}

/// Closes a received block once the streams that use it have completed.
pub fn close(address: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    if address == 0 {
        return Ok(());
    }
    let Some((mut uses, mut seen)) = with(|imports| {
        let Some((_, block)) = imports.block_containing(address) else { return Err(not_received(address)) };
        let number = block.device;
        let current = stream::current_on(runtime, number)?;
        block.record(StreamUse::new(current));
        if block.count > 1 {
            block.count -= 1;
            return Ok(None);
        }
        Ok(Some((block.uses.clone(), block.recorded)))
    })?
    else {
        return Ok(());
    };
    loop {
        for user in &uses {
            synchronize(runtime, user)?;
        }
        let later = with(|imports| {
            // Another thread may have closed the block or received it again in the meantime.
            let Some((start, block)) = imports.block_containing(address) else { return Err(not_received(address)) };
            if block.count > 1 {
                block.count -= 1;
                return Ok(None);
            }
            // Or both: then wait for its streams again, because they may have new work.
            if block.recorded != seen {
                return Ok(Some((block.uses.clone(), block.recorded)));
            }
            imports.drop_block(runtime, start).map(|()| None)
        })?;
        let Some(later) = later else { return Ok(()) };
        (uses, seen) = later;
    }
}

impl Block {
    fn record(&mut self, user: StreamUse) {
        self.recorded += 1;
        if !self.uses.contains(&user) {
            self.uses.push(user);
        }
    }
}

/// Waits for a stream to complete.
fn synchronize(runtime: &Runtime, user: &StreamUse) -> Result<()> {
    let ahead = observe::end_of_stream(stream::of_use(runtime, *user));
    let waited = runtime.driver.with_relaxed_capture(|| {
        let may_wait = || sync_debug::check("plinth_ipc_close");
        if observer::run_unobserved(|| ordering::finish_stream(runtime, *user, may_wait))? {
            return Ok(());
        }
        Err(Error::new(
            Status::CAPTURE_FORBIDS,
            "a stream that uses the block is capturing: its graph would access the block at each replay",
        ))
    })?;
    match waited {
        // Failed work has ended, too; its device keeps reporting the error.
        Err(error) if codes::is_context_lost(error.driver_code()) => Ok(()),
        other => other.context(|| "waiting for the streams that use another process's memory").map(|()| ahead.finish()),
    }
}

/// Unmaps memory of other processes that no received block uses.
pub fn collect(runtime: &Runtime) -> Result<()> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    with(|imports| imports.drop_unused_spans(runtime))
}

/// Records that a stream uses a received block. Returns whether the address is in one.
pub fn record_use(address: u64, user: StreamUse) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    with(|imports| match imports.block_containing(address) {
        Some((_, block)) => {
            block.record(user);
            true
        }
        None => false,
    })
}

/// Returns whether an address is in memory of another process.
pub fn is_imported(address: u64) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    with(|imports| imports.spans.values().any(|span| address.wrapping_sub(span.address) < span.bytes))
}

/// Calls `call` with every span of a device's memory that is mapped here. No span is unmapped meanwhile.
pub fn for_each_span(device: &Device, call: impl Fn(u64, u64) -> Result<()>) -> Result<()> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    with(|imports| {
        let mut spans = imports.spans.values().filter(|span| span.device == device.ordinal && span.opened.is_none());
        spans.try_for_each(|span| call(span.address, span.bytes))
    })
}

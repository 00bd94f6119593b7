//! Using what another process shares.
//!
//! Pieces of memory are mapped side by side as they lie in their own process: a *span*. Blocks in the same pieces have one
//! span together, and a block that is received twice is there once, until it was closed as often. Only what the driver
//! opens by a handle of its own is there once for each device that it is received for.

use super::{
    export,
    message::{Head, Holding, Piece, Token, Way},
    system, system_error,
};
use crate::{
    base::units::Bytes,
    driver::{Driver, Physical, types::CU_STREAM_PER_THREAD},
    error::{Context, Error, Result},
    memory::{
        arena::Use,
        device_memory::device,
        handles::{self, Handle},
        stream_events,
    },
    runtime::{self, Runtime, device::Device, sync_debug, thread},
    status::Status,
    stream,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The pieces of a span, by their numbers in their process, and the device that [`Span::opened`] names.
type SpanKey = (Token, Vec<u64>, Option<u32>);

/// Memory of another process's at addresses of this one.
struct Span {
    /// Where its first piece begins.
    address: u64,
    bytes: u64,
    device: u32,
    /// The device in whose context the driver opened it, where it did by a handle of its own: no other device can use it
    /// at this address, not even the memory's own.
    opened: Option<u32>,
    /// How many blocks in it are held.
    users: usize,
}

/// A block of another process's.
struct Block {
    serial: u64,
    span: SpanKey,
    bytes: u64,
    device: u32,
    holding: Holding,
    /// The descriptor that holds it, where that is its own.
    _line: Option<OwnedFd>,
    /// How often it was received and not closed.
    count: usize,
    /// The streams that use it, beside those that are current when it is closed.
    uses: Vec<Use>,
    /// How often one was noted, a stream that is there already or another.
    noted: u64,
}

/// A process that shares blocks with this one.
struct Owner {
    /// The description with the locks of its blocks.
    file: OwnedFd,
    /// Whether that was made here. Else it came with a message, and others may have it from the same.
    own: bool,
    /// The bytes that are locked, and how many blocks here stand for each: what is opened for several devices is so many.
    bytes: HashMap<u64, usize>,
}

#[derive(Default)]
struct Imports {
    owners: HashMap<Token, Owner>,
    spans: HashMap<SpanKey, Span>,
    /// By address.
    blocks: BTreeMap<u64, Block>,
}

static IMPORTS: Mutex<Option<Imports>> = Mutex::new(None);
/// How many spans there are: for those who only want to know that there is none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Runs `body` with what is imported. No arena's lock is taken in it.
fn with<T>(body: impl FnOnce(&mut Imports) -> T) -> T {
    body(IMPORTS.lock().get_or_insert_default())
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The address that was sent, as it is here.
    pub address: u64,
    /// The bytes from there to the end of the block.
    pub bytes: u64,
    /// How far it is from the beginning of the block.
    pub offset: u64,
    /// The device whose memory it is.
    pub device: u32,
}

/// What is behind a piece.
enum Behind {
    Descriptor(OwnedFd),
    Memory(Physical),
    /// The handle in the head.
    Head,
}

/// Takes a message in, part by part. The first error counts, and is told in the end.
pub struct Taker {
    head: Head,
    hold: Option<OwnedFd>,
    /// The number of a device that is to use the memory beside its own; -1 for none.
    reader: i32,
    device: Option<&'static Device>,
    pieces: Vec<(Piece, Behind)>,
    error: Option<Error>,
}

#[cold]
fn no_device_here(uuid: [u8; 16]) -> Error {
    let name: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let what = format!("the memory is of the device with the UUID {name}, which this process does not see");
    Error::new(Status::INVALID_DEVICE, what)
}

fn device_named(uuid: [u8; 16]) -> Result<&'static Device> {
    let runtime = runtime::ready()?;
    for device in runtime.devices() {
        if device.properties(&runtime.driver)?.uuid == uuid {
            return Ok(device);
        }
    }
    Err(no_device_here(uuid))
}

impl Taker {
    /// For the message that begins so, with the descriptor that came with it.
    pub fn new(head: Head, hold: Result<Vec<OwnedFd>>, reader: i32) -> Self {
        let mut taker = Taker { head, hold: None, reader, device: None, pieces: Vec::new(), error: None };
        if let Err(error) = taker.begin(hold) {
            taker.error = Some(error);
        }
        taker
    }

    fn begin(&mut self, hold: Result<Vec<OwnedFd>>) -> Result<()> {
        self.hold = hold?.pop();
        if self.head.token == export::token() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "the memory is this process's own, and can be used where it is",
            ));
        }
        if self.reader != -1 {
            runtime::ready()?.device(self.reader)?;
        }
        self.device = Some(device_named(self.head.uuid)?);
        Ok(())
    }

    /// Takes some pieces. All but the last ones are imported at once, so that few descriptors are open at a time.
    pub fn take(&mut self, pieces: Vec<Piece>, descriptors: Result<Vec<OwnedFd>>, last: bool) {
        if self.error.is_some() {
            return;
        }
        let outcome = descriptors.and_then(|descriptors| {
            let mut descriptors = descriptors.into_iter();
            for piece in pieces {
                let behind = descriptors.next().map_or(Behind::Head, Behind::Descriptor);
                self.pieces.push((piece, behind));
            }
            if last { Ok(()) } else { self.import() }
        });
        self.error = outcome.err();
    }

    /// Makes memory of the descriptors.
    fn import(&mut self) -> Result<()> {
        let Some(device) = self.device else { return Ok(()) };
        let runtime = runtime::ready()?;
        device
            .with_context(&runtime.driver, |driver| {
                for (_, behind) in &mut self.pieces {
                    if let Behind::Descriptor(descriptor) = behind {
                        *behind = Behind::Memory(driver.memory_import(descriptor)?);
                    }
                }
                Ok(())
            })
            .context(|| "importing another process's memory")
    }

    /// Maps what came, if all of it did.
    pub fn finish(mut self) -> Result<Received> {
        let outcome = match self.error.take() {
            Some(error) => Err(error),
            None => self.install(),
        };
        // Mapped memory stays without its handle, and other memory shall not stay.
        if let Some(runtime) = runtime::usable() {
            for (_, behind) in self.pieces {
                if let Behind::Memory(physical) = behind {
                    stream_events::insist(|| runtime.driver.memory_release(physical));
                }
            }
        }
        outcome
    }

    fn install(&mut self) -> Result<Received> {
        let runtime = runtime::ready()?;
        let Some(device) = self.device else { return Err(no_device_here(self.head.uuid)) };
        let pieces: Vec<Piece> = self.pieces.iter().map(|(piece, _)| *piece).collect();
        let bytes = self.head.check(&pieces)?;
        let reader = self.reader(runtime, device)?;
        if let Some(event) = self.head.event {
            export::wait_for(runtime, device, event)?;
            if let Some(reader) = reader {
                let (waiting, awaited) =
                    (stream::current_on(runtime, reader.ordinal)?, stream::current_on(runtime, device.ordinal)?);
                stream::make_wait(runtime, waiting, awaited)?;
            }
        }
        let user = reader.unwrap_or(device);
        let opened = matches!(self.head.way, Way::Handle(_)).then_some(user.ordinal);
        let key = (self.head.token, pieces.iter().map(|piece| piece.serial).collect(), opened);
        let mut imports = IMPORTS.lock();
        let imports = imports.get_or_insert_default();
        if !imports.spans.contains_key(&key) {
            let span = self.map(runtime, device, user, bytes)?;
            imports.spans.insert(key.clone(), span);
            COUNT.fetch_add(1, Ordering::Release);
        }
        let outcome = self.add(runtime, device, reader, imports, &key);
        if outcome.is_err() {
            // A span that nobody uses goes again. What the driver does not unmap stays: it is used again, if it can be.
            let _ = imports.drop_span(runtime, &key);
        }
        outcome
    }

    /// The device that is to use the memory beside its own.
    fn reader(&self, runtime: &'static Runtime, device: &Device) -> Result<Option<&'static Device>> {
        if self.reader == -1 || self.reader == device.ordinal as i32 {
            return Ok(None);
        }
        let reader = runtime.device(self.reader)?;
        if runtime.driver.can_access_peer(reader.native, device.native)? {
            return Ok(Some(reader));
        }
        let (reader, owner) = (reader.ordinal, device.ordinal);
        let what = format!("device {reader} cannot use the memory, which is of device {owner}");
        Err(Error::new(Status::PEER_ACCESS_UNSUPPORTED, what))
    }

    /// Puts the pieces at addresses of this process.
    fn map(&mut self, runtime: &Runtime, device: &Device, user: &Device, bytes: u64) -> Result<Span> {
        if let Way::Handle(handle) = self.head.way {
            let address = super::legacy::open(runtime, user, handle)?;
            return Ok(Span { address, bytes, device: device.ordinal, opened: Some(user.ordinal), users: 0 });
        }
        self.import()?;
        let handles: Vec<Handle> = self
            .pieces
            .iter()
            .filter_map(|(piece, behind)| match behind {
                Behind::Memory(physical) => Some((*physical, piece.bytes)),
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
                    stream_events::insist(|| driver.memory_unreserve(address, bytes));
                    Err(error)
                }
            }
        })
    }

    /// Lets the block be used, once or once more.
    fn add(
        &mut self,
        runtime: &Runtime,
        device: &Device,
        reader: Option<&Device>,
        imports: &mut Imports,
        key: &SpanKey,
    ) -> Result<Received> {
        let head = &self.head;
        let Some(span) = imports.spans.get(key) else { return Err(Error::new(Status::PANIC, "a new span is gone")) };
        if let Some(reader) = reader {
            allow(runtime, device, reader, span)?;
        }
        let address = span.address + head.start;
        let received = Received {
            address: address + head.offset,
            bytes: head.bytes - head.offset,
            offset: head.offset,
            device: device.ordinal,
        };
        if let Some(block) = imports.blocks.get_mut(&address) {
            if (block.serial, block.bytes, &block.span) != (head.serial, head.bytes, key) {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    "the message contradicts an earlier one of its sender's",
                ));
            }
            if let (Holding::Byte(_), Some(owner), Some(hold)) =
                (head.holding, imports.owners.get(&head.token), &self.hold)
            {
                owner.check(hold)?;
            }
            block.count += 1;
            return Ok(received);
        }
        let Some(hold) = self.hold.take() else {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "the message came without the descriptor that holds the block",
            ));
        };
        let line = imports.hold(head, hold)?;
        if let Some(span) = imports.spans.get_mut(key) {
            span.users += 1;
        }
        let (serial, bytes, holding) = (head.serial, head.bytes, head.holding);
        let device = device.ordinal;
        let (span, uses) = (key.clone(), Vec::new());
        let block = Block { serial, span, bytes, device, holding, _line: line, count: 1, uses, noted: 0 };
        imports.blocks.insert(address, block);
        Ok(received)
    }
}

/// Lets a device use a span.
fn allow(runtime: &Runtime, device: &Device, reader: &Device, span: &Span) -> Result<()> {
    if span.opened.is_some() {
        // It was opened for that device.
        return Ok(());
    }
    device
        .with_context(&runtime.driver, |driver| Ok(driver.memory_allow(span.address, span.bytes, &[reader.native])?))
        .context(|| format!("giving device {} access to another process's memory", reader.ordinal))
}

impl Owner {
    /// Whether the descriptor that came with a message is of the file that the earlier ones were of.
    fn check(&self, hold: &OwnedFd) -> Result<()> {
        if system_error(system::is_same_file(&self.file, hold), "looking at another process's file of the holders")? {
            return Ok(());
        }
        Err(Error::new(
            Status::INVALID_VALUE,
            "the message comes with another file of the holders than an earlier one of its sender's",
        ))
    }
}

impl Imports {
    /// Holds a block as its message says. Gives the descriptor back if that is what holds it.
    fn hold(&mut self, head: &Head, hold: OwnedFd) -> Result<Option<OwnedFd>> {
        let Holding::Byte(byte) = head.holding else { return Ok(Some(hold)) };
        let what = "holding another process's block";
        match self.owners.get_mut(&head.token) {
            Some(owner) => {
                owner.check(&hold)?;
                system_error(system::hold(&owner.file, byte), what)?;
                *owner.bytes.entry(byte).or_default() += 1;
            }
            None => {
                // Without /proc what came will do. It holds the block, so it stays open until the own description does.
                let (file, came) = match system::reopen(&hold) {
                    Ok(file) => (file, Some(hold)),
                    Err(_) => (hold, None),
                };
                system_error(system::hold(&file, byte), what)?;
                let own = came.is_some();
                drop(came);
                self.owners.insert(head.token, Owner { file, own, bytes: HashMap::from([(byte, 1)]) });
            }
        }
        Ok(None)
    }

    /// Unmaps a span that no block is held in.
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

    /// The block that an address lies in.
    fn around(&mut self, address: u64) -> Option<(u64, &mut Block)> {
        let (start, block) = self.blocks.range_mut(..=address).next_back()?;
        (address - start < block.bytes).then_some((*start, block))
    }

    /// Lets go of a block whose uses are over.
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
        // The lock goes last: from then on the block may be anybody's.
        let Some(block) = self.blocks.remove(&start) else { return Ok(()) };
        if let Holding::Byte(byte) = block.holding {
            self.let_go(key.0, byte);
        }
        Ok(())
    }

    /// Lets go of a byte that a block stood for, if no other does.
    fn let_go(&mut self, token: Token, byte: u64) {
        let Some(owner) = self.owners.get_mut(&token) else { return };
        if let Some(count) = owner.bytes.get_mut(&byte) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            owner.bytes.remove(&byte);
        }
        let is_last = owner.bytes.is_empty();
        // A child that was forked meanwhile has the description open, too, so that closing it is not enough.
        if owner.own || !is_last {
            // What the system does not let go now it lets go with the description.
            let _ = (0..3).any(|_| system::let_go(&owner.file, byte).is_ok());
        }
        if is_last {
            self.owners.remove(&token);
        }
    }
}

fn unmap(driver: &Driver, address: u64, bytes: u64, opened: bool) -> Result<()> {
    if opened {
        return Ok(driver.memory_close_ipc(address)?);
    }
    driver.memory_unmap(address, bytes)?;
    // Addresses that cannot be given back cost nothing.
    stream_events::insist(|| driver.memory_unreserve(address, bytes));
    Ok(())
}

#[cold]
fn not_received(address: u64) -> Error {
    let what = format!("{address:#x} is in no block that was received from another process, or it was closed already");
    Error::new(Status::INVALID_POINTER, what)
}

/// Gives a received block up, when the streams that use it are done.
pub fn close(address: u64) -> Result<()> {
    let runtime = runtime::ready()?;
    if address == 0 {
        return Ok(());
    }
    let Some((mut uses, mut seen)) = with(|imports| {
        let Some((_, block)) = imports.around(address) else { return Err(not_received(address)) };
        let number = block.device;
        let current = stream::current_on(runtime, number)?;
        let thread = if current.raw.handle() == CU_STREAM_PER_THREAD { thread::number() } else { 0 };
        block.note(Use { stream: current.raw, device: number, thread });
        if block.count > 1 {
            block.count -= 1;
            return Ok(None);
        }
        Ok(Some((block.uses.clone(), block.noted)))
    })?
    else {
        return Ok(());
    };
    loop {
        for wanted in &uses {
            finish(runtime, wanted)?;
        }
        let later = with(|imports| {
            // Another thread may have closed it, or received it again, in the meantime.
            let Some((start, block)) = imports.around(address) else { return Err(not_received(address)) };
            if block.count > 1 {
                block.count -= 1;
                return Ok(None);
            }
            // Or both: then its streams are to be waited for, the same ones once more.
            if block.noted != seen {
                return Ok(Some((block.uses.clone(), block.noted)));
            }
            imports.drop_block(runtime, start).map(|()| None)
        })?;
        let Some(later) = later else { return Ok(()) };
        (uses, seen) = later;
    }
}

impl Block {
    fn note(&mut self, wanted: Use) {
        self.noted += 1;
        if !self.uses.contains(&wanted) {
            self.uses.push(wanted);
        }
    }
}

/// Waits for a stream.
fn finish(runtime: &Runtime, wanted: &Use) -> Result<()> {
    let device = device(runtime, wanted.device)?;
    let waited = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            let may_wait = || sync_debug::check("plinth_ipc_close");
            if stream_events::finish_stream(device, driver, wanted.stand_in(), may_wait)? {
                return Ok(());
            }
            Err(Error::new(
                Status::CAPTURE_FORBIDS,
                "a stream that uses the block captures: its graph would use the block whenever it is replayed",
            ))
        })?
    });
    match waited {
        // Work that failed is over, too; its stream goes on telling so.
        Err(error) if matches!(error.status(), Status::LAUNCH_FAILED | Status::ILLEGAL_ADDRESS) => Ok(()),
        other => other.context(|| "waiting for the streams that use another process's memory"),
    }
}

/// Notes that a stream uses a received block. Whether it is one.
pub fn add_use(address: u64, wanted: Use) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    with(|imports| match imports.around(address) {
        Some((_, block)) => {
            block.note(wanted);
            true
        }
        None => false,
    })
}

/// Whether an address is in memory of another process's.
pub fn is_imported(address: u64) -> bool {
    if COUNT.load(Ordering::Acquire) == 0 {
        return false;
    }
    with(|imports| imports.spans.values().any(|span| address.wrapping_sub(span.address) < span.bytes))
}

/// Makes a call for every span of a device's memory that was mapped here, none of which goes meanwhile.
pub fn for_each_span(device: &Device, call: impl Fn(u64, u64) -> Result<()>) -> Result<()> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    with(|imports| {
        let mut spans = imports.spans.values().filter(|span| span.device == device.ordinal && span.opened.is_none());
        spans.try_for_each(|span| call(span.address, span.bytes))
    })
}

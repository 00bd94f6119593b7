//! Exports blocks of this process.

use super::{
    exports,
    message::{Chunk, Header, Transport},
    mode::{self, Mode},
};
use crate::{
    driver::observer,
    error::{Context, Error, Result},
    memory::{
        device_memory::device,
        handle_types,
        located_block::{LocatedBlock, not_allocated},
        mapped::Backing,
        pools, shareable, stream_events,
    },
    runtime::{self, Runtime, device::Device, sync_debug},
    status::Status,
    stream::{
        self, StreamUse,
        event_pool::{self, EXPORTED},
        ordering::{self, OutsideCaptures},
    },
};
use std::os::fd::OwnedFd;

/// The maximum number of events that receivers may still wait for. Above it, the sender synchronizes with the device
/// instead.
const MAX_EVENTS: usize = 1000;

/// A chunk in a message, with the memory that it stands for.
pub struct ExportedChunk {
    /// The chunk as the message describes it.
    pub chunk: Chunk,
    backing: Backing,
}

/// A block that is ready to be sent. Its memory is not reused as long as this value lives.
pub struct PreparedExport {
    runtime: &'static Runtime,
    device: &'static Device,
    header: Header,
    hold: OwnedFd,
    chunks: Vec<ExportedChunk>,
}

impl PreparedExport {
    /// Returns the header of the message.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the descriptor that accompanies the header.
    pub fn hold(&self) -> &OwnedFd {
        &self.hold
    }

    /// Returns that descriptor and drops the rest.
    pub fn into_hold(self) -> OwnedFd {
        self.hold
    }

    /// Returns the chunks that the block spans.
    pub fn chunks(&self) -> &[ExportedChunk] {
        &self.chunks
    }

    /// Exports descriptors for some of the chunks; none for chunks that are transferred by the driver's handle.
    pub fn descriptors(&self, chunks: &[ExportedChunk]) -> Result<Vec<OwnedFd>> {
        self.device
            .with_context(&self.runtime.driver, |driver| {
                let mut descriptors = Vec::with_capacity(chunks.len());
                for exported in chunks {
                    if let Backing::Handle(physical) = exported.backing {
                        descriptors.push(driver.memory_export(physical)?);
                    }
                }
                Ok(descriptors)
            })
            .context(|| "exporting the memory of a block")
    }
}

/// Prepares to send the block that contains an address, ordered after the work of the device's current stream.
pub fn prepare(address: u64) -> Result<PreparedExport> {
    let runtime = runtime::ready()?;
    let mut found = shareable::find(runtime, address)?;
    let device = device(runtime, found.arena.device)?;
    // The pool cannot be suspended meanwhile: suspending it takes the same lock before it checks the records. It may have
    // been suspended before, so the handles are read under the lock.
    let growing = found.arena.growth.lock();
    let outcome = found
        .read_mapped()
        .ok_or_else(|| not_allocated(address))
        .and_then(|()| prepare_located(runtime, device, &found, address));
    drop(growing);
    if outcome.is_err() {
        exports::holder_event(found.arena.number, found.block);
    }
    outcome
}

fn prepare_located(
    runtime: &'static Runtime,
    device: &'static Device,
    found: &LocatedBlock,
    address: u64,
) -> Result<PreparedExport> {
    let uuid = device.properties(&runtime.driver)?.uuid;
    if uuid == [0; 16] {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "sharing a block: this driver does not report the UUID of the device",
        ));
    }
    let mut transport = Transport::Descriptors;
    for (start, mapped) in &found.mapped {
        match mapped.backing {
            Backing::Handle(_) if handle_types::is_shareable(device, &runtime.driver)? => {}
            Backing::Handle(_) => {
                return Err(Error::new(
                    Status::IPC_NOT_SHAREABLE,
                    "the memory was not allocated for sharing: PLINTH_IPC is 0, or the device does not support it",
                ));
            }
            Backing::Segment(_) => transport = Transport::Handle(device_handle(runtime, device, *start)?),
            Backing::External => {
                return Err(Error::new(
                    Status::IPC_NOT_SHAREABLE,
                    "the memory belongs to an allocator of the program; only that allocator could share it",
                ));
            }
            Backing::Suspended => return Err(Error::new(Status::GRAPH_ASLEEP, "the memory of the block is asleep")),
            Backing::Moved => return Err(not_allocated(address)),
        }
    }
    let Some((start, _)) = found.mapped.first().copied() else { return Err(not_allocated(address)) };
    let (serial, hold) = exports::lock().add_hold(found)?;
    if !found.is_live() {
        return Err(not_allocated(address));
    }
    let event = record_ready_event(runtime, device, serial)?;
    let exports = exports::lock();
    let chunks: Vec<ExportedChunk> = found
        .mapped
        .iter()
        .filter_map(|(_, mapped)| {
            let number = exports.chunk_number(mapped.backing)?;
            Some(ExportedChunk { chunk: Chunk { serial: number, bytes: mapped.bytes }, backing: mapped.backing })
        })
        .collect();
    let header = Header {
        token: exports::token(),
        serial,
        hold: exports.hold_kind(serial),
        uuid,
        start: found.address - start,
        bytes: found.requested,
        offset: address - found.address,
        chunks: chunks.len() as u32,
        transport,
        event,
    };
    // Bytes beyond the requested size cannot be shared.
    if header.offset >= header.bytes {
        return Err(not_allocated(address));
    }
    Ok(PreparedExport { runtime, device, header, hold, chunks })
}

fn device_handle(runtime: &Runtime, device: &Device, address: u64) -> Result<[u8; 64]> {
    device
        .with_context(&runtime.driver, |driver| Ok(driver.memory_ipc_handle(address)?))
        .context(|| "creating a handle of a segment")
}

/// Returns an event that completes when the device's current stream has written what the receiver is to see; `None` if
/// that has completed already.
fn record_ready_event(runtime: &Runtime, device: &Device, serial: u64) -> Result<Option<[u8; 64]>> {
    let current = stream::current_on(runtime, device.ordinal)?;
    let forbidden = || {
        Error::new(
            Status::CAPTURE_FORBIDS,
            "a block cannot be shared while the current stream is capturing: captured work has not written it",
        )
    };
    runtime.driver.with_relaxed_capture(|| {
        if mode::mode()? == Mode::Wait || exports::lock().event_count() >= MAX_EVENTS {
            let may_wait = || sync_debug::check("plinth_ipc_send");
            let waited =
                observer::run_unobserved(|| ordering::finish_stream(runtime, StreamUse::new(current), may_wait))?;
            return if waited { Ok(None) } else { Err(forbidden()) };
        }
        // Other threads may use the stream and begin to capture it.
        let outside = OutsideCaptures::lock(runtime);
        if !outside.contains(current)? {
            return Err(forbidden());
        }
        if outside.is_idle(current)? {
            return Ok(None);
        }
        let event = outside.record(current, EXPORTED)?;
        let handle = event_pool::ipc_handle(device, &runtime.driver, event.native())?;
        exports::lock().add_event(event, serial);
        Ok(Some(handle))
    })?
}

/// Completes the deferred frees of blocks that no other process holds any more. Closes the events of messages when no
/// block is shared any more.
pub fn collect(runtime: &Runtime) -> Result<()> {
    if !exports::is_empty() {
        collect_blocks(runtime)?;
    }
    if exports::is_empty() {
        for device in runtime.devices() {
            let destroy = || event_pool::destroy_exported(device, &runtime.driver);
            runtime.driver.with_relaxed_capture(destroy)??;
        }
    }
    Ok(())
}

fn collect_blocks(runtime: &Runtime) -> Result<()> {
    for device in runtime.devices() {
        let arenas = device.memory().arenas();
        if arenas.is_empty() {
            continue;
        }
        device.with_context(&runtime.driver, |driver| {
            Ok(driver.with_relaxed_capture(|| {
                for arena in &arenas {
                    stream_events::process_events(runtime, device, arena);
                }
            })?)
        })?;
        for arena in arenas {
            let is_done = {
                let inner = arena.lock();
                inner.space.orphaned && inner.space.counters.live() == 0 && inner.deferred_frees.is_empty()
            };
            if is_done {
                pools::release_orphaned(arena);
            }
        }
    }
    exports::lock().prune();
    Ok(())
}

//! Resumes pools: maps physical memory at their addresses, and restores the contents that were saved.

use super::{
    Part,
    backup::Piece,
    describe,
    mappings::{SuspendedMapping, adjacent, clip, intersect},
    on_each_device, stream_of, take_transfer,
    transfer::Transfer,
    transfers_of, with_transfer,
};
use crate::{
    base::{retry::retry, units::Bytes},
    error::{Context, Error, Result},
    memory::{
        arena::Arena,
        block::Zone,
        cache,
        device_memory::Method,
        handles::{self, Handle},
        peak_budget, policy,
        pool::MemoryOptions,
    },
    observe::{self, Kind, Operand},
    runtime::{Runtime, checked_stream::StreamUse, device::Device},
    status::Status,
    stream::event_pool::PooledEvent,
};
use parking_lot::Mutex;

/// The most that is created and mapped before the copies to it begin.
const MAP: u64 = 128 << 20;

/// When contents are copied to memory that is mapped again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// Those of each group of handles as soon as it is mapped, so that they are in progress while the next one is.
    Interleaved,
    /// When everything is mapped: the driver may let a thread that maps memory wait for the copies of its device, and those
    /// of other devices for it.
    AfterMapping,
}

/// A suspended mapping and its arena.
type ArenaMapping = (&'static Arena, SuspendedMapping);

/// Memory that is mapped again for a part of a pool, until the other parts are mapped too.
pub(super) struct Resumed {
    mappings: Vec<ArenaMapping>,
    created: Vec<Handle>,
    /// The event after copies that may be in progress.
    restored: Option<PooledEvent>,
}

/// Resumes the memory of a pool on every device; all or nothing. With `asynchronous`, does not wait for the copies.
pub(super) fn resume_parts(runtime: &'static Runtime, parts: &mut [Part<'_>], asynchronous: bool) -> Result<()> {
    let arenas: Vec<&'static Arena> = parts.iter().flat_map(|part| part.arenas.clone()).collect();
    let _growing: Vec<_> = arenas.iter().map(|arena| arena.growth.lock()).collect();
    let transfers = Mutex::new(transfers_of(runtime, parts)?);
    let one_device = parts.first().map(|part| part.device.ordinal) == parts.last().map(|part| part.device.ordinal);
    let copies = if one_device { Copies::Interleaved } else { Copies::AfterMapping };
    let mapped = on_each_device(parts, |parts| {
        with_transfer(runtime, parts, &transfers, &|parts, transfer| {
            parts.iter_mut().try_for_each(|part| {
                if !asynchronous {
                    part.await_restore(runtime)?;
                }
                map_part(runtime, part, transfer, copies, asynchronous)
            })
        })
    });
    for part in parts {
        let mut transfer = take_transfer(&transfers, part.device);
        if mapped.is_err() {
            retry(|| {
                part.device.with_context(&runtime.driver, |driver| {
                    driver.with_relaxed_capture(|| {
                        if let Some(resumed) = part.resumed.take() {
                            part.undo(runtime, resumed, &mut transfer);
                        }
                    })?;
                    Ok(())
                })
            });
        } else if let Some(resumed) = part.resumed.take() {
            if let Some(transfer) = transfer.as_mut().filter(|_| resumed.restored.is_some()) {
                transfer.leave_running();
            }
            part.commit(resumed);
        }
    }
    mapped
}

/// Resumes the memory of a pool on a device; all or nothing. The growth locks are held and the device's context is
/// current.
pub(super) fn resume_part(
    runtime: &'static Runtime,
    part: &mut Part<'_>,
    transfer: &mut Option<Transfer<'_>>,
) -> Result<()> {
    map_part(runtime, part, transfer, Copies::Interleaved, false)?;
    if let Some(resumed) = part.resumed.take() {
        part.commit(resumed);
    }
    Ok(())
}

/// Maps the memory of a pool on a device and restores its contents. The part has the memory until it is committed or
/// undone; after an error it has none.
fn map_part(
    runtime: &'static Runtime,
    part: &mut Part<'_>,
    transfer: &mut Option<Transfer<'_>>,
    copies: Copies,
    asynchronous: bool,
) -> Result<()> {
    let mappings = mappings_to_resume(runtime, part)?;
    let mut created = Vec::with_capacity(mappings.len());
    match map_and_restore(runtime, part, &mappings, &mut created, transfer, copies, asynchronous) {
        Ok(restored) => {
            part.resumed = Some(Resumed { mappings, created, restored });
            Ok(())
        }
        Err(error) => {
            part.undo(runtime, Resumed { mappings, created, restored: None }, transfer);
            Err(error.context(format_args!("waking {}", describe(part.id))))
        }
    }
}

/// Creates and maps handles, which are added to `created`, and copies their contents. Returns the event after copies that may
/// be in progress.
fn map_and_restore(
    runtime: &'static Runtime,
    part: &Part<'_>,
    mappings: &[ArenaMapping],
    created: &mut Vec<Handle>,
    transfer: &mut Option<Transfer<'_>>,
    copies: Copies,
    asynchronous: bool,
) -> Result<Option<PooledEvent>> {
    let pieces = part.pieces_to_restore(asynchronous);
    // After a sleep that failed, the backup may lack what is still mapped: only what is mapped here is copied.
    let mut copy = |group: &[ArenaMapping]| match (transfer.as_mut(), &part.saved.backup) {
        (Some(transfer), Some(backup)) => transfer.restore(backup, &clip(&pieces, range_of(group))),
        _ => Ok(()),
    };
    let groups = adjacent(mappings, MAP, |(_, mapping)| *mapping);
    for group in &groups {
        let handles = create_for(runtime, part, mappings, group)?;
        if let Err(error) = handles::map(part.device, &runtime.driver, group[0].1.address, &handles) {
            handles::undo(part.device, &runtime.driver, handles);
            return Err(error);
        }
        created.extend(handles);
        group.iter().for_each(|(_, mapping)| observe::on_wake(mapping.address, mapping.bytes));
        if copies == Copies::Interleaved {
            copy(group)?;
        }
    }
    if copies == Copies::AfterMapping {
        groups.into_iter().try_for_each(copy)?;
    }
    match transfer.as_mut() {
        Some(transfer) if asynchronous && !pieces.is_empty() => {
            let restored = part.record_restore(runtime)?;
            // A block that was freed since the copies began may be used again before their end.
            if intersect(&ranges_of(&pieces), &part.live_runs()).map(|(start, end)| end - start).sum::<u64>()
                < pieces.iter().map(|piece| piece.bytes).sum()
            {
                return transfer.finish().map(|()| None);
            }
            Ok(Some(restored))
        }
        Some(transfer) => transfer.finish().map(|()| None),
        None => Ok(None),
    }
}

/// Returns the addresses of mappings that are adjacent in memory.
fn range_of(group: &[ArenaMapping]) -> (u64, u64) {
    let ends = group.first().zip(group.last());
    ends.map_or((0, 0), |((_, first), (_, last))| (first.address, last.address + last.bytes))
}

fn ranges_of(pieces: &[Piece]) -> Vec<(u64, u64)> {
    pieces.iter().map(|piece| (piece.address, piece.address + piece.bytes)).collect()
}

/// Returns mappings for all suspended memory of a pool on a device, sorted by address. Large blocks get handles of the size
/// that new memory has now: the pool may have grown in smaller ones, and each takes the driver as long.
fn mappings_to_resume(runtime: &Runtime, part: &Part<'_>) -> Result<Vec<ArenaMapping>> {
    let (driver, memory) = (&runtime.driver, part.device.memory());
    let total = memory.total(part.device, driver)?;
    let limit = memory.limit(total).unwrap_or(total);
    let live = peak_budget::read(memory).live().0;
    let method = memory.method(part.device, driver)?;
    let supply = policy::supply(memory.held(), limit, memory.is_shared());
    let mut mappings: Vec<ArenaMapping> = Vec::new();
    for arena in &part.arenas {
        for (run, zone) in arena.lock().space.suspended_runs() {
            let sizes = match method {
                Method::Virtual { granule } if zone == Zone::Large => {
                    let handle = policy::handle_size(zone, run.bytes, 0, live, supply, limit, granule);
                    policy::handle_sizes(run.bytes, handle, granule)
                }
                _ => vec![run.bytes],
            };
            let mut address = run.address;
            mappings.extend(sizes.into_iter().map(|bytes| {
                let mapping = SuspendedMapping { address, bytes };
                address += bytes;
                (*arena, mapping)
            }));
        }
    }
    mappings.sort_unstable_by_key(|(_, mapping)| mapping.address);
    Ok(mappings)
}

/// Creates the handles of a group of the mappings.
fn create_for(
    runtime: &'static Runtime,
    part: &Part<'_>,
    mappings: &[ArenaMapping],
    group: &[ArenaMapping],
) -> Result<Vec<Handle>> {
    let wanted: Vec<Wanted> = group.iter().map(|(arena, mapping)| (mapping.bytes, arena.lock().memory)).collect();
    if let Some(created) = create(runtime, part.device, &wanted)? {
        return Ok(created);
    }
    // Releasing cached memory may make enough room. A failure to release is not an error here.
    let _ = cache::empty(runtime);
    create(runtime, part.device, &wanted)?.ok_or_else(|| {
        let (free, _) = part.device.memory_info(&runtime.driver).unwrap_or((0, 0));
        let needed = mappings.iter().map(|(_, mapping)| mapping.bytes).sum();
        let ordinal = part.device.ordinal;
        Error::new(
            Status::OUT_OF_MEMORY,
            format!("it needs {}, and device {ordinal} has {} free; it stays asleep", Bytes(needed), Bytes(free)),
        )
    })
}

/// The size of a handle in bytes, and what its memory is made for.
type Wanted = (u64, MemoryOptions);

/// Creates handles: all of them, or none if memory does not suffice.
fn create(runtime: &Runtime, device: &Device, wanted: &[Wanted]) -> Result<Option<Vec<Handle>>> {
    let driver = &runtime.driver;
    let total = device.memory().total(device, driver)?;
    let limit = device.memory().limit(total).unwrap_or(total);
    let mut created = Vec::with_capacity(wanted.len());
    for (bytes, options) in wanted {
        match handles::create(device, driver, *bytes, limit, *options) {
            Ok(Some(handle)) => created.push(handle),
            other => {
                handles::undo(device, driver, created);
                return other.map(|_| None);
            }
        }
    }
    Ok(Some(created))
}

impl Part<'_> {
    /// Lets the program use memory that is mapped again.
    fn commit(&mut self, resumed: Resumed) {
        let handles: Vec<_> = resumed.mappings.into_iter().zip(resumed.created).collect();
        for arena in &self.arenas {
            let own = handles.iter().filter(|((other, _), _)| other.number == arena.number);
            arena.lock().space.resume(own.map(|((_, mapping), (physical, _))| (*mapping, *physical)));
            peak_budget::ensure_budget(self.device.memory(), arena);
        }
        self.saved.pieces = None;
        // The copies of an earlier wake come before these.
        self.saved.restored = resumed.restored.or(self.saved.restored.take());
        self.saved.drop_unreserved();
    }

    /// Unmaps and releases memory that is mapped again. The device's context is current.
    fn undo(&self, runtime: &Runtime, resumed: Resumed, transfer: &mut Option<Transfer<'_>>) {
        if let Some(transfer) = transfer {
            retry(|| transfer.finish());
        }
        let driver = &runtime.driver;
        for ((_, mapping), _) in resumed.mappings.iter().zip(&resumed.created) {
            observe::on_sleep(mapping.address, mapping.bytes);
            retry(|| driver.memory_unmap(mapping.address, mapping.bytes));
        }
        handles::undo(self.device, driver, resumed.created);
    }

    /// Returns what must be copied, in the order of the addresses. A copy that continues after the wake must not write to
    /// blocks that were free then: the next request may get them.
    fn pieces_to_restore(&self, asynchronous: bool) -> Vec<Piece> {
        let pieces = self.saved.pieces.as_deref().unwrap_or_default();
        if !asynchronous {
            return pieces.to_vec();
        }
        self.live_runs().into_iter().flat_map(|run| clip(pieces, run)).collect()
    }

    /// Returns the address ranges of the live blocks, in ascending order.
    fn live_runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = self.arenas.iter().flat_map(|arena| arena.lock().space.live_runs()).collect();
        runs.sort_unstable();
        runs
    }

    /// Waits for the copies of an earlier asynchronous wake.
    fn await_restore(&mut self, runtime: &Runtime) -> Result<()> {
        if let Some(event) = &self.saved.restored {
            event.synchronize(runtime).context(|| "waiting for the copies of a backup")?;
        }
        self.saved.restored = None;
        Ok(())
    }

    /// Records an event after the copies, and their stream on the blocks that they write to, so that these are not used
    /// again before.
    fn record_restore(&self, runtime: &Runtime) -> Result<PooledEvent> {
        let stream = stream_of(runtime, self.device)?;
        let event = PooledEvent::acquire(self.device, &runtime.driver, 0)?;
        observe::operation_with(runtime, stream, "plinth_memory_wake_async", |writes| {
            for arena in &self.arenas {
                writes.extend(arena.lock().space.live_requests().map(|(start, end)| Operand {
                    start,
                    end,
                    kind: Kind::Write,
                }));
            }
        })?;
        runtime
            .driver
            .event_record(event.native(), stream.raw)
            .context(|| "recording the end of the copies of a backup")?;
        if let Some(backup) = &self.saved.backup {
            backup.record_stream(stream)?;
        }
        let stream_use = StreamUse::new(stream);
        for arena in &self.arenas {
            arena.lock().record_stream_on_live(stream_use);
        }
        Ok(event)
    }
}

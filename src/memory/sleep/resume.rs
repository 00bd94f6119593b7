//! Resumes pools: maps physical memory at their addresses, and restores the contents that were saved.

use super::{
    Part,
    backup::Piece,
    describe, in_context,
    mappings::{SuspendedMapping, adjacent, clip, intersect},
    on_each_device, stream_of,
    transfer::Transfer,
    transfer_of,
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
        peak_budget,
        policy::{self, Supply},
        pool::{self, MemoryOptions, PoolId},
    },
    observe::{self, Kind, Operand},
    runtime::{Runtime, checked_stream::StreamUse, device::Device},
    status::Status,
    stream::event_pool::PooledEvent,
};
use parking_lot::MutexGuard;
use std::slice;

/// The most that is created and mapped before the copies to it begin, unless all memory is mapped before.
const MAP: u64 = 128 << 20;

/// A suspended mapping and its arena.
type ArenaMapping = (&'static Arena, SuspendedMapping);

/// Memory that is mapped again for a part of a pool, until the other parts are mapped too.
pub(super) struct Resumed {
    mappings: Vec<ArenaMapping>,
    created: Vec<Handle>,
    /// The event after copies that may be in progress.
    restored: Option<PooledEvent>,
}

/// Resumes the memory of pools, each on its devices, in their order. Each wakes on all of its devices or not at all, and so do
/// those behind it. With `asynchronous`, does not wait for the copies.
pub(super) fn resume_pools(
    runtime: &'static Runtime,
    pools: &mut [(PoolId, Vec<Part<'_>>)],
    asynchronous: bool,
) -> Result<()> {
    let mut parts = pools.iter().flat_map(|(_, parts)| parts);
    let first = parts.next().map(|part| part.device.ordinal);
    if asynchronous || parts.any(|part| Some(part.device.ordinal) != first) {
        return map_and_then_copy(runtime, pools, asynchronous);
    }
    pools.iter_mut().try_for_each(|(id, parts)| {
        let _growing = lock_growth(parts.iter());
        each_in_context(runtime, parts, |part| {
            part.await_restore(runtime)?;
            let mut transfer = transfer_of(runtime, slice::from_ref(part))?;
            resume_part(runtime, part, &mut transfer)
        })?;
        pool::set_suspended(*id, false);
        // If memory is short for the next one, free memory of this one can be released.
        pool::end_change(*id);
        Ok(())
    })
}

/// Maps the memory of all pools before the first copy: the driver may let a thread that maps memory wait for the copies of its
/// device, and those of other devices for it.
fn map_and_then_copy(
    runtime: &'static Runtime,
    pools: &mut [(PoolId, Vec<Part<'_>>)],
    asynchronous: bool,
) -> Result<()> {
    let _growing = lock_growth(pools.iter().flat_map(|(_, parts)| parts));
    let map = |part: &mut Part<'_>| {
        if !asynchronous {
            part.await_restore(runtime)?;
        }
        map_part(runtime, part, None)
    };
    let (mut mapped, mut outcome) = (0, Ok(()));
    while let (Ok(()), Some((_, parts))) = (&outcome, pools.get_mut(mapped)) {
        outcome = on_each_device(parts, |parts| each_in_context(runtime, parts, map));
        mapped += usize::from(outcome.is_ok());
    }
    let copied = pools[..mapped].iter_mut().try_for_each(|(id, parts)| {
        let copy = |part: &mut Part<'_>| {
            copy_part(runtime, part, asynchronous).context(|| format!("waking {}", describe(part.id)))
        };
        on_each_device(parts, |parts| each_in_context(runtime, parts, copy))?;
        parts.iter_mut().for_each(Part::commit);
        pool::set_suspended(*id, false);
        Ok(())
    });
    for part in pools.iter_mut().flat_map(|(_, parts)| parts).filter(|part| part.resumed.is_some()) {
        retry(|| {
            in_context(runtime, part.device, || {
                part.undo(runtime);
                Ok(())
            })
        });
    }
    copied.and(outcome)
}

/// Resumes the memory of a pool on a device, or none of it. Copies the contents of each group of handles as soon as it is
/// mapped, so that they are in progress while the next one is. The growth locks are held and the device's context is current.
pub(super) fn resume_part(
    runtime: &'static Runtime,
    part: &mut Part<'_>,
    transfer: &mut Option<Transfer<'_>>,
) -> Result<()> {
    map_part(runtime, part, transfer.as_mut())?;
    part.commit();
    Ok(())
}

/// Maps the memory of a pool on a device, which the part has until it is committed or undone, or none of it. Copies the
/// contents if there is a transfer.
fn map_part(runtime: &'static Runtime, part: &mut Part<'_>, mut transfer: Option<&mut Transfer<'_>>) -> Result<()> {
    let mut resumed = Resumed { mappings: mappings_to_resume(runtime, part)?, created: Vec::new(), restored: None };
    let mapped = map_handles(runtime, part, &mut resumed, transfer.as_deref_mut());
    part.resumed = Some(resumed);
    mapped.map_err(|error| {
        if let Some(transfer) = transfer {
            retry(|| transfer.finish());
        }
        part.undo(runtime);
        error.context(format_args!("waking {}", describe(part.id)))
    })
}

/// Creates and maps handles, and copies their contents if there is a transfer.
fn map_handles(
    runtime: &'static Runtime,
    part: &Part<'_>,
    resumed: &mut Resumed,
    mut transfer: Option<&mut Transfer<'_>>,
) -> Result<()> {
    let pieces = part.saved.pieces.as_deref().unwrap_or_default();
    let most = if transfer.is_some() { MAP } else { u64::MAX };
    for group in adjacent(&resumed.mappings, &part.reservations(), most, |(_, mapping)| *mapping) {
        let handles = create_for(runtime, part, &resumed.mappings, group)?;
        if let Err(error) = handles::map(part.device, &runtime.driver, group[0].1.address, &handles) {
            handles::undo(part.device, &runtime.driver, handles);
            return Err(error);
        }
        resumed.created.extend(handles);
        group.iter().for_each(|(_, mapping)| observe::on_wake(mapping.address, mapping.bytes));
        if let Some(transfer) = &mut transfer {
            part.restore(transfer, pieces, group)?;
        }
    }
    transfer.map_or(Ok(()), Transfer::finish)
}

/// Copies the contents of memory that is mapped again. With `asynchronous`, the copies may be in progress afterwards. The
/// device's context is current.
fn copy_part(runtime: &'static Runtime, part: &mut Part<'_>, asynchronous: bool) -> Result<()> {
    let Some(mut transfer) = transfer_of(runtime, slice::from_ref(part))? else { return Ok(()) };
    let pieces = part.pieces_to_restore(asynchronous);
    let mappings = part.resumed.as_ref().map_or(&[][..], |resumed| &resumed.mappings);
    let groups = adjacent(mappings, &[], u64::MAX, |(_, mapping)| *mapping);
    groups.into_iter().try_for_each(|group| part.restore(&mut transfer, &pieces, group))?;
    if asynchronous && !pieces.is_empty() {
        let restored = part.record_restore(runtime)?;
        // A block that was freed since the copies began may be used again before their end.
        let live: u64 = intersect(&ranges_of(&pieces), &part.live_runs()).map(|(start, end)| end - start).sum();
        if live == pieces.iter().map(|piece| piece.bytes).sum() {
            transfer.leave_running();
            if let Some(resumed) = &mut part.resumed {
                resumed.restored = Some(restored);
            }
            return Ok(());
        }
    }
    transfer.finish()
}

/// Locks the arenas of the parts that sleep, so that they do not grow.
fn lock_growth<'a, 'b: 'a>(parts: impl Iterator<Item = &'a Part<'b>>) -> Vec<MutexGuard<'static, ()>> {
    let asleep = parts.filter(|part| part.is_any_suspended());
    asleep.flat_map(|part| &part.arenas).map(|arena| arena.growth.lock()).collect()
}

/// Calls `body` for parts of one device, in its context.
fn each_in_context<'a>(
    runtime: &Runtime,
    parts: &mut [Part<'a>],
    mut body: impl FnMut(&mut Part<'a>) -> Result<()>,
) -> Result<()> {
    parts.iter_mut().try_for_each(|part| in_context(runtime, part.device, || body(part)))
}

/// Returns the addresses of mappings that are adjacent in memory.
fn range_of(group: &[ArenaMapping]) -> (u64, u64) {
    let ends = group.first().zip(group.last());
    ends.map_or((0, 0), |((_, first), (_, last))| (first.address, last.address + last.bytes))
}

fn ranges_of(pieces: &[Piece]) -> Vec<(u64, u64)> {
    pieces.iter().map(|piece| (piece.address, piece.address + piece.bytes)).collect()
}

/// Returns mappings for all suspended memory of a pool on a device, sorted by address. The pool may have grown in small handles,
/// and the driver takes as long for each as for a large one. So large blocks get handles of the size that new memory has now,
/// or of their own size if that is larger and memory is not short.
fn mappings_to_resume(runtime: &Runtime, part: &Part<'_>) -> Result<Vec<ArenaMapping>> {
    let (driver, memory) = (&runtime.driver, part.device.memory());
    let limit = memory.max_held(part.device, driver)?;
    let live = peak_budget::read(memory).live().0;
    let method = memory.method(part.device, driver)?;
    // As it will be when the memory is awake.
    let asleep =
        |arena: &&Arena| arena.lock().space.suspended_mappings().iter().map(|mapping| mapping.bytes).sum::<u64>();
    let held = memory.held() + part.arenas.iter().map(asleep).sum::<u64>();
    let supply = policy::supply(held, limit, memory.is_shared());
    let mut mappings: Vec<ArenaMapping> = Vec::new();
    for arena in &part.arenas {
        let inner = arena.lock();
        let blocks = if supply == Supply::Plenty { inner.space.large_live_blocks() } else { Vec::new() };
        for (run, zone) in inner.space.suspended_runs() {
            let sizes = match method {
                Method::Virtual { granule } if zone == Zone::Large && !inner.memory.nccl_window => {
                    let handle = policy::handle_size_of_wake(run.bytes, live, supply, limit, granule);
                    let end = run.address + run.bytes;
                    let largest = policy::largest_handle(limit) / granule * granule;
                    policy::handle_sizes_with_blocks(run.address, end, &blocks, handle, largest.max(granule), granule)
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
    mappings.sort_by_cached_key(|(_, mapping)| mapping.address);
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
    let limit = device.memory().max_held(device, driver)?;
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
    /// Copies the contents of mappings that are adjacent in memory. After a sleep that failed, the backup may lack what is still
    /// mapped: only what has been mapped again is copied.
    fn restore(&self, transfer: &mut Transfer<'_>, pieces: &[Piece], group: &[ArenaMapping]) -> Result<()> {
        let clipped = clip(pieces, range_of(group));
        self.saved.backup.as_ref().map_or(Ok(()), |backup| transfer.restore(backup, &clipped))
    }

    /// Lets the program use memory that is mapped again.
    fn commit(&mut self) {
        let Some(resumed) = self.resumed.take() else { return };
        handles::confirm(self.device, &resumed.created);
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

    /// Unmaps and releases memory that is mapped again, after the copies to it. The device's context is current.
    fn undo(&mut self, runtime: &Runtime) {
        let Some(resumed) = self.resumed.take() else { return };
        if let Some(restored) = &resumed.restored {
            retry(|| restored.synchronize(runtime));
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

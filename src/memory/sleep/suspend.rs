//! Suspends pools: saves the contents of their live blocks, and releases their physical memory.

use super::{
    LiveBlocks, Part,
    backup::{Backup, Kind, Options, PAGE},
    describe, in_context,
    mappings::{SuspendedMapping, adjacent, pieces_in, pieces_of},
    on_each_device, resume,
    transfer::{Point, Transfer},
    transfer_of,
};
use crate::{
    base::{deadline::Deadline, log, units::Bytes},
    driver::Physical,
    error::{Context, Error, Result},
    memory::{
        arena::Arena, device_memory::Method, handles, ipc::exports, mapped::Backing, pool, pool::PoolId, registration,
        stream_events,
    },
    observe,
    runtime::{Runtime, device::Device},
    status::Status,
    stream::capture_lock,
};
use parking_lot::Mutex;
use std::{collections::BTreeMap, time::Duration};

/// The most that is unmapped at a time: the driver takes less time for one range than for its parts.
const UNMAP: u64 = 1 << 30;

/// How long a sleep waits for memory that another thread moves. A move takes longer only if the driver hangs.
const LONGEST_MOVE: Duration = Duration::from_secs(5);

/// Suspends the memory of pools, sorted by device.
pub(super) fn suspend_parts(
    runtime: &'static Runtime,
    parts: &mut [Part<'_>],
    options: &Options,
    blocks: LiveBlocks,
) -> Result<()> {
    for part in parts.iter() {
        check_can_suspend(runtime, part, blocks)?;
    }
    for parts in parts.chunk_by(|one, other| one.device.ordinal == other.device.ordinal) {
        await_device(runtime, parts[0].device, options.no_wait)?;
    }
    let arenas: Vec<&'static Arena> = parts.iter().flat_map(|part| part.arenas.clone()).collect();
    let _growing: Vec<_> = arenas.iter().map(|arena| arena.growth.lock()).collect();
    for parts in parts.chunk_by(|one, other| one.device.ordinal == other.device.ordinal) {
        end_previous_mappings(runtime, parts[0].device);
    }
    for part in parts.iter_mut() {
        prepare(runtime, part, options)?;
    }
    let transfers = transfers_of(runtime, parts)?;
    let suspended = on_each_device(parts, |parts| {
        with_transfer(runtime, parts, &transfers, |parts, transfer| suspend_on_device(runtime, parts, transfer))
    });
    if suspended.is_err() {
        // The error is that of the driver; if this fails too, the pool sleeps with its contents.
        let _ = on_each_device(parts, |parts| {
            with_transfer(runtime, parts, &transfers, |parts, transfer| {
                parts.iter_mut().filter(|part| part.is_changing && part.saved.pieces.is_some()).try_for_each(|part| {
                    // A copy whose end could not be recorded may still be writing to the buffer that is used next.
                    transfer.as_mut().map_or(Ok(()), Transfer::finish)?;
                    resume::resume_part(runtime, part, transfer)
                })
            })
        });
    }
    suspended
}

/// The copies of each device with a backup, by its number. A thread takes those of its device, and returns them.
type Transfers<'a> = Mutex<BTreeMap<u32, Transfer<'a>>>;

fn transfers_of<'a>(runtime: &'a Runtime, parts: &[Part<'a>]) -> Result<Transfers<'a>> {
    let mut transfers = BTreeMap::new();
    for parts in parts.chunk_by(|one, other| one.device.ordinal == other.device.ordinal) {
        transfers.extend(transfer_of(runtime, parts)?.map(|transfer| (parts[0].device.ordinal, transfer)));
    }
    Ok(Mutex::new(transfers))
}

/// Calls `body` with the parts of one device, in its context.
fn with_transfer<'a>(
    runtime: &Runtime,
    parts: &mut [Part<'_>],
    transfers: &Transfers<'a>,
    body: impl FnOnce(&mut [Part<'_>], &mut Option<Transfer<'a>>) -> Result<()>,
) -> Result<()> {
    let device = parts[0].device;
    let mut transfer = transfers.lock().remove(&device.ordinal);
    let done = in_context(runtime, device, || body(parts, &mut transfer));
    transfers.lock().extend(transfer.map(|transfer| (device.ordinal, transfer)));
    done
}

fn check_can_suspend(runtime: &Runtime, part: &Part<'_>, blocks: LiveBlocks) -> Result<()> {
    let Part { id, device, arenas, .. } = part;
    let refuse = |why: String| {
        Err(Error::new(Status::GRAPH_MEMORY_IN_USE, format!("cannot put {} to sleep: {why}", describe(*id))))
    };
    if device.memory().routes.leads_to(*id) {
        return refuse(format!("requests on device {} are still routed to it", device.ordinal));
    }
    let live: u64 = arenas.iter().map(|arena| arena.lock().space.counters.live()).sum();
    if blocks == LiveBlocks::Refuse && live > 0 && pool::is_used_outside_captures(*id) {
        return refuse(format!("{} of it are allocated, possibly outside of captures", Bytes(live)));
    }
    for arena in arenas {
        check_not_shared(device, arena, *id)?;
        handles_of(arena)?;
    }
    if !arenas.is_empty() && device.memory().method(device, &runtime.driver)? == Method::Segments {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            "cannot put memory to sleep with expandable_segments:False: it has fixed addresses",
        ));
    }
    Ok(())
}

fn check_not_shared(device: &Device, arena: &Arena, id: PoolId) -> Result<()> {
    let user = match registration::describe_one(arena) {
        Some(registration) => format!("{registration} holds memory of it"),
        None if exports::has_exports(arena.number) => "other processes hold memory of it".to_owned(),
        None => return Ok(()),
    };
    let what = format!("cannot put {} to sleep: {user} on device {}", describe(id), device.ordinal);
    Err(Error::new(Status::GRAPH_MEMORY_IN_USE, what))
}

/// Waits for a device, or fails if it has work.
fn await_device(runtime: &Runtime, device: &Device, no_wait: bool) -> Result<()> {
    if !no_wait {
        return capture_lock::synchronize_device(runtime, device);
    }
    let ahead = observe::end_of_device(device.ordinal);
    let event = capture_lock::record_in_device(runtime, device)?;
    if runtime.in_any_context(|driver| Ok(driver.event_query(event.native())?))? {
        ahead.finish();
        return Ok(());
    }
    Err(Error::new(
        Status::GRAPH_MEMORY_IN_USE,
        format!("cannot put memory to sleep: device {} has work that is not complete", device.ordinal),
    ))
}

/// Ends the uses of memory that was moved. The previous mappings of a handle that these pools got from another stream keep its
/// memory from the driver otherwise.
fn end_previous_mappings(runtime: &Runtime, device: &Device) {
    let process = || {
        for arena in device.memory().arenas() {
            stream_events::process_events(runtime, device, arena);
        }
        Ok(())
    };
    log::ignore(in_context(runtime, device, process), "processing the events of a device that falls asleep");
}

/// Returns every handle of an arena. Fails if the arena has other memory, which would not be released.
fn handles_of(arena: &Arena) -> Result<Vec<(SuspendedMapping, Physical)>> {
    arena.lock().space.mapped_handles().ok_or_else(|| {
        let what = "cannot put memory to sleep that the program's allocator or the driver allocated with its addresses";
        Error::new(Status::NOT_SUPPORTED, what)
    })
}

/// Finds what must be saved of a pool's memory, and allocates the backup. The growth locks are held.
fn prepare(runtime: &Runtime, part: &mut Part<'_>, options: &Options) -> Result<()> {
    let (mut pieces, mut needed) = (Vec::new(), 0);
    for arena in &part.arenas {
        check_not_shared(part.device, arena, part.id)?;
        // Another thread may be moving a free handle, which it has detached before the pool was marked as suspended.
        let no_move = |what: &str| {
            Deadline::new(LONGEST_MOVE).until(
                || what.to_owned(),
                || {
                    stream_events::process_events(runtime, part.device, arena);
                    Ok((!arena.lock().space.is_any_moving()).then_some(()))
                },
            )
        };
        in_context(runtime, part.device, || no_move("a sleep waited for memory that another thread moves"))?;
        if options.backup != Kind::None {
            pieces.extend(pieces_of(&handles_of(arena)?, &arena.lock().space.live_runs()));
        }
    }
    part.is_changing = !part.is_any_suspended();
    // What was saved of a pool that sleeps, or in part after a failure, stays in its place.
    if part.saved.pieces.is_some() || pieces.is_empty() {
        return Ok(());
    }
    pieces.sort_by_cached_key(|piece| piece.address);
    for piece in &mut pieces {
        piece.offset = needed;
        needed += piece.bytes.next_multiple_of(PAGE);
    }
    part.saved.reserve(options, needed).context(|| format!("putting {} to sleep", describe(part.id)))?;
    part.saved.pieces = Some(pieces);
    Ok(())
}

/// Handles that are being copied to a backup.
struct Copied<'a> {
    backup: &'a Backup,
    point: Point,
    handles: Vec<ArenaHandle>,
}

impl Copied<'_> {
    /// Waits for the copy and releases the handles.
    fn release(self, runtime: &Runtime, device: &Device, transfer: &mut Transfer<'_>) -> Result<()> {
        transfer.await_point(self.backup, &self.point)?;
        release(runtime, device, &self.handles)
    }
}

/// Copies the contents of pools on a device to their backups, and releases the handles: those of one range while the next
/// one is copied, also if that is of another pool. The growth locks are held and the device's context is current.
fn suspend_on_device(runtime: &Runtime, parts: &[Part<'_>], transfer: &mut Option<Transfer<'_>>) -> Result<()> {
    let mut copied: Option<Copied<'_>> = None;
    for part in parts {
        let device = part.device;
        let mut handles: Vec<ArenaHandle> = Vec::new();
        for arena in &part.arenas {
            handles.extend(handles_of(arena)?.into_iter().map(|(mapping, physical)| (*arena, mapping, physical)));
        }
        handles.sort_by_cached_key(|(_, mapping, _)| mapping.address);
        let groups = adjacent(&handles, &part.reservations(), UNMAP, |(_, mapping, _)| *mapping);
        let saved = part.saved.backup.as_ref().zip(part.saved.pieces.as_deref()).zip(transfer.as_mut());
        let Some(((backup, pieces), transfer)) = saved else {
            groups.into_iter().try_for_each(|group| release(runtime, device, group))?;
            continue;
        };
        for group in groups {
            let point = transfer
                .save(backup, pieces_in(pieces, group, |(_, mapping, _)| *mapping))
                .context(|| format!("saving {}", describe(part.id)))?;
            if let Some(previous) = copied.replace(Copied { backup, point, handles: group.to_vec() }) {
                previous.release(runtime, device, transfer)?;
            }
        }
        // The buffers of a transfer have the contents of one backup at a time.
        if let Some(last) = copied.take_if(|_| backup.kind != Kind::Pinned) {
            last.release(runtime, device, transfer)?;
        }
    }
    match (copied, transfer) {
        (Some(last), Some(transfer)) => last.release(runtime, parts[0].device, transfer),
        _ => Ok(()),
    }
}

/// A handle, its address and its arena.
type ArenaHandle = (&'static Arena, SuspendedMapping, Physical);

/// Unmaps and releases adjacent handles.
fn release(runtime: &Runtime, device: &Device, handles: &[ArenaHandle]) -> Result<()> {
    let driver = &runtime.driver;
    let bytes = handles.iter().map(|(_, mapping, _)| mapping.bytes).sum();
    let unmapped = driver.memory_unmap(handles[0].1.address, bytes);
    unmapped.context(|| format!("unmapping {} to put a pool to sleep", Bytes(bytes)))?;
    observe::on_sleep(handles[0].1.address, bytes);
    for (arena, mapping, physical) in handles {
        arena.lock().space.set_backing(*mapping, Backing::Suspended);
        if handles::release(device, driver, *physical) {
            device.memory().released.increment();
            device.memory().release_held(mapping.bytes);
        }
    }
    Ok(())
}

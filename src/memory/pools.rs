//! The entry points for pools.

use super::{
    arena::{Arena, StreamEvent, StreamUse},
    backend::{self, PoolEvent},
    cache,
    device_memory::device,
    pool::{self, Options, PoolId},
    route::{self, RouteOwner, RouteScope},
    stats_aggregation, trackers,
};
use crate::{
    base::{cancellation, deadline::Deadline, log},
    driver::{self, plugin::Plugin},
    error::{Error, Result},
    runtime::{self, Runtime, device::Device, thread},
    status::Status,
    stream::{
        Stream,
        capture_scope::{self, CaptureResource},
    },
};
use std::sync::Arc;

/// Creates a pool.
pub fn pool_create(options: Options, allocator: Option<Arc<Plugin>>) -> Result<PoolId> {
    runtime::ready()?;
    Ok(pool::create(options, allocator))
}

/// Sets the maximum number of physical bytes of a pool on each device.
pub fn pool_set_budget(id: PoolId, budget: Option<u64>) -> Result<()> {
    runtime::ready()?;
    pool::set_budget(pool::find(id).unwrap_or(id), budget)
}

/// Returns the maximum number of physical bytes of a pool on each device.
pub fn pool_budget(id: PoolId) -> Result<Option<u64>> {
    runtime::ready()?;
    pool::budget(pool::find(id).unwrap_or(id))
}

/// Releases the program's reference to a pool. Blocks allocated in it stay valid until they are freed.
pub fn pool_destroy(id: PoolId) -> Result<()> {
    let runtime = runtime::ready()?;
    let routed = pool::is_routed_by_program(id);
    let users = pool::destroy(id)?;
    if !users.is_empty() {
        log::warning(|| {
            format!(
                "pool {id} is destroyed while requests or graphs use it on devices {users:?}; it stays until they end"
            )
        });
    }
    release_everywhere(runtime, id, routed);
    Ok(())
}

/// Sets whether the default pool may use the pool's free memory when no other memory is left.
pub fn pool_set_use_on_oom(id: PoolId, use_on_oom: bool) -> Result<()> {
    runtime::ready()?;
    pool::set_use_on_oom(pool::find(id).unwrap_or(id), use_on_oom)
}

/// Sets the tag of a pool.
pub fn pool_set_tag(id: PoolId, tag: &str) -> Result<()> {
    let runtime = runtime::ready()?;
    let found = pool::find(id).unwrap_or(id);
    pool::set_tag(found, tag)?;
    if tag.is_empty() {
        // A backup that is reserved for it cannot be used or freed any more.
        let ended = runtime.devices().iter().filter(|device| !pool::in_use(found, device.ordinal));
        ended.for_each(|device| pool::notify_release(found, device.ordinal));
    }
    Ok(())
}

/// Returns the tag of a pool; an empty text if it has none.
pub fn pool_tag(id: PoolId) -> Result<Arc<str>> {
    runtime::ready()?;
    let found = pool::find(id).unwrap_or(id);
    pool::check_usable(found)?;
    Ok(pool::tag(found).unwrap_or_else(|| "".into()))
}

/// Returns the number of users of a pool on a device.
pub fn pool_use_count(id: PoolId, number: i32) -> Result<u32> {
    pool::users(pool::find(id).unwrap_or(id), runtime::ready()?.device(number)?.ordinal)
}

/// Returns the allocated and the held bytes of a pool on a device.
pub fn pool_memory(id: PoolId, number: i32) -> Result<(u64, u64)> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    Ok(stats_aggregation::pool_bytes(device.memory(), pool_with_memory(runtime, id)?))
}

/// Returns the pool that a program names for a query. A destroyed pool whose blocks are not all freed has an answer,
/// too.
pub fn pool_with_memory(runtime: &Runtime, id: PoolId) -> Result<PoolId> {
    let has_memory = |id| runtime.devices().iter().any(|device| !device.memory().arenas_of(id).is_empty());
    let foreign = PoolId { foreign: true, ..id };
    let found = pool::find(id).or_else(|| [id, foreign].into_iter().find(|id| has_memory(*id)));
    found.map_or_else(|| pool::check_usable(id).map(|()| id), Ok)
}

/// Routes requests on a device to a pool.
pub fn begin_allocate_to_pool(number: i32, scope: RouteScope, id: PoolId) -> Result<()> {
    begin_route(number, scope, id, RouteOwner::current_thread())
}

/// Routes the requests of capturing streams on a device to a pool of PyTorch.
pub fn begin_pluggable_pool(number: i32, id: PoolId) -> Result<()> {
    begin_route(number, RouteScope::Capture, id, RouteOwner::Hooks)
}

fn begin_route(number: i32, scope: RouteScope, id: PoolId, owner: RouteOwner) -> Result<()> {
    let runtime = runtime::ready()?;
    let device = runtime.device(number)?;
    if id == PoolId::DEFAULT {
        return Err(Error::new(
            Status::INVALID_VALUE,
            "routing requests to the default pool: it is used without a route",
        ));
    }
    pool::check_usable(id)?;
    check_awake(runtime, id)?;
    device.memory().routes.begin(scope, id, owner.clone(), None)?;
    // Another thread may have suspended the pool before it could see the route.
    if let Err(error) = check_not_suspended(id) {
        device.memory().routes.end(id, &owner)?;
        return Err(error);
    }
    pool::add_user(id, device.ordinal);
    pool::set_routed_by_program(id);
    if scope != RouteScope::Capture {
        pool::set_used_outside_captures(id);
    }
    backend::notify_pool_event(PoolEvent::Begun, device.ordinal, id);
    Ok(())
}

/// Fails if the pool sleeps, or if a block of it sleeps on that was left when the pool ended in its sleep.
fn check_awake(runtime: &Runtime, id: PoolId) -> Result<()> {
    // A pool in use got its first user when this was so.
    let unused = runtime.devices().iter().filter(|device| !pool::in_use(id, device.ordinal));
    let mut arenas = unused.flat_map(|device| device.memory().arenas_of(id));
    if arenas.any(|arena| arena.lock().space.is_any_suspended()) {
        return Err(asleep(id));
    }
    check_not_suspended(id)
}

fn check_not_suspended(id: PoolId) -> Result<()> {
    if pool::is_suspended(id) { Err(asleep(id)) } else { Ok(()) }
}

#[cold]
fn asleep(id: PoolId) -> Error {
    Error::new(Status::GRAPH_ASLEEP, format!("pool {id} is asleep; wake it before allocating in it"))
}

/// The routes of a capture's requests to a pool, one on every device.
struct CaptureRoutes(PoolId);

impl CaptureResource for CaptureRoutes {
    /// Removes the routes. The users of the pool remain.
    fn on_capture_end(&self, runtime: &Runtime, _capture: u64) -> bool {
        runtime.devices().iter().for_each(|device| end_capture_route(device, self.0));
        false
    }
}

/// Removes the route of a capture's requests to a pool, which exists, so that this cannot fail.
fn end_capture_route(device: &Device, id: PoolId) {
    let _ = device.memory().routes.end(id, &RouteOwner::Capture);
}

/// Routes the requests of one capture to a pool on every device until the capture ends, and adds a user of the pool on
/// each.
pub fn begin_capture_to_pool(runtime: &Runtime, id: PoolId, capture: u64) -> Result<()> {
    pool::check_usable(id)?;
    check_awake(runtime, id)?;
    let begin = |device: &Device| {
        device.memory().routes.begin(RouteScope::Capture, id, RouteOwner::Capture, Some(capture))?;
        // Another thread may have suspended the pool before it could see the route.
        check_not_suspended(id).inspect_err(|_| end_capture_route(device, id))
    };
    for (index, device) in runtime.devices().iter().enumerate() {
        if let Err(error) = begin(device) {
            runtime.devices()[..index].iter().for_each(|begun| end_capture_route(begun, id));
            return Err(error);
        }
    }
    for device in runtime.devices() {
        pool::add_user(id, device.ordinal);
    }
    capture_scope::add(capture, &Arc::new(CaptureRoutes(id)));
    Ok(())
}

/// Returns the streams after whose work the memory of a pool can be released.
pub fn streams_of_pool(runtime: &Runtime, id: PoolId) -> Vec<StreamUse> {
    let arenas = runtime.devices().iter().flat_map(|device| device.memory().arenas_of(id));
    arenas.map(Arena::stream_use).collect()
}

/// Removes a captured graph's users of a pool. Releases the pool's free memory on devices without other users.
pub fn release_captured_pool(runtime: &'static Runtime, id: PoolId) {
    let routed = pool::is_routed_by_program(id);
    let mut ended: Vec<u32> = runtime.devices().iter().map(|device| device.ordinal).collect();
    ended.retain(|ordinal| matches!(pool::remove_user(id, *ordinal), Ok(0)));
    if pool::exists(id) {
        ended.into_iter().for_each(|ordinal| release_unused(runtime, ordinal, id, routed));
    } else {
        release_everywhere(runtime, id, routed);
    }
}

/// Releases the free memory of a pool that has woken and whose users have ended in its sleep.
pub fn release_woken(runtime: &'static Runtime, id: PoolId) {
    if !pool::is_suspended(id) {
        // If the pool has been destroyed meanwhile, this is unknown.
        let routed = pool::is_routed_by_program(id);
        release_everywhere(runtime, id, routed || !pool::exists(id));
    }
}

/// Returns the allocated and the held bytes of a pool on all devices.
pub fn pool_memory_in_all(runtime: &Runtime, id: PoolId) -> (u64, u64) {
    let parts = runtime.devices().iter().map(|device| stats_aggregation::pool_bytes(device.memory(), id));
    parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
}

/// Routes the calling thread's requests on a device to a pool.
pub fn begin_allocate_current_thread_to_pool(number: i32, id: PoolId) -> Result<()> {
    begin_allocate_to_pool(number, RouteScope::Thread(thread::number()), id)
}

/// Routes the requests of one stream on a device to a pool.
pub fn begin_allocate_stream_to_pool(number: i32, stream: driver::Stream, id: PoolId) -> Result<()> {
    begin_allocate_to_pool(number, RouteScope::Stream(stream.handle()), id)
}

/// Removes the route to a pool that the calling thread began.
pub fn end_allocate_to_pool(number: i32, id: PoolId) -> Result<()> {
    end_route(number, id, &RouteOwner::current_thread())
}

/// Removes the route to a pool of PyTorch, from any thread.
pub fn end_pluggable_pool(number: i32, id: PoolId) -> Result<()> {
    end_route(number, id, &RouteOwner::Hooks)
}

fn end_route(number: i32, id: PoolId, owner: &RouteOwner) -> Result<()> {
    let device = runtime::ready()?.device(number)?;
    device.memory().routes.end(id, owner)?;
    backend::notify_pool_event(PoolEvent::Ended, device.ordinal, id);
    Ok(())
}

/// Removes a user of a pool. Releases the pool's free memory if it was the last one.
pub fn release_pool(number: i32, id: PoolId) -> Result<()> {
    let runtime = runtime::ready()?;
    let ordinal = runtime.device(number)?.ordinal;
    let routed = pool::is_routed_by_program(id);
    let left = pool::remove_user(id, ordinal)?;
    backend::notify_pool_event(PoolEvent::Released, ordinal, id);
    if !pool::exists(id) {
        // Where it slept, its memory could not be released before.
        release_everywhere(runtime, id, routed);
    } else if left == 0 {
        release_unused(runtime, ordinal, id, routed);
    }
    Ok(())
}

fn release_everywhere(runtime: &'static Runtime, id: PoolId, routed: bool) {
    runtime.devices().iter().for_each(|device| release_unused(runtime, device.ordinal, id, routed));
}

/// Releases the free memory of a pool that has no users on a device. If the driver fails to release memory, it stays
/// cached and a later request tries again; the pool is released all the same. If the program `routed` requests to the
/// pool, its own graphs may still run in any stream, so the memory waits for all present work of the device.
fn release_unused(runtime: &'static Runtime, number: u32, id: PoolId, routed: bool) {
    if pool::in_use(id, number) {
        return;
    }
    if !pool::exists(id) {
        pool::notify_release(id, number);
    }
    let Ok(device) = device(runtime, number) else { return };
    let arenas = device.memory().arenas_of(id);
    if arenas.is_empty() {
        return;
    }
    route::invalidate_arenas();
    for arena in &arenas {
        let mut inner = arena.lock();
        inner.space.orphaned = true;
        if routed {
            // Instead of an earlier event: graphs may have been launched since.
            inner.graph_work = Some(StreamEvent::PendingDevice);
        }
    }
    let _ = cache::empty_arenas(runtime, device, arenas, Deadline::new(cache::GRACE));
    trackers::deliver();
}

/// Gives the memory of a stream that is ending to the stream that waits for its work. It stays cached, and other streams
/// can take it over. Blocks in use stay where they are.
pub fn hand_over(device: &Device, ending: Stream, successor: Stream) {
    device.memory().routes.remove_stream(ending.raw.handle());
    route::invalidate_arenas();
    device.memory().hand_over(ending, successor);
}

/// Returns the arenas of streams that have ended, and that are empty by now, for use by other streams.
pub fn retire_ended(runtime: &Runtime, device: &Device) {
    let arenas: Vec<_> = device.memory().arenas().into_iter().filter(|arena| arena.key().ended != 0).collect();
    if arenas.is_empty() {
        return;
    }
    // Without the device's context, the arenas stay as they are until another stream ends.
    let _ = device.with_context(&runtime.driver, |driver| {
        arenas.iter().for_each(|arena| cache::retire(driver, device, arena));
        Ok(())
    });
}

/// Returns whether a device has memory for a stream handle.
pub fn has_memory_of(device: &Device, handle: usize) -> bool {
    device.memory().arenas().iter().any(|arena| arena.key().stream == handle)
}

/// Releases the memory of an arena whose pool was released and whose last block was freed.
#[cold]
pub fn release_orphaned(arena: &'static Arena) {
    let _uncancellable = cancellation::disable();
    if let Some(runtime) = runtime::usable() {
        release_unused(runtime, arena.device, arena.key().pool, false);
    }
}

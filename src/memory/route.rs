//! Routes: assign requests to pools.
//!
//! Requests go to the default pool unless a route applies: for the requests of a thread, of a stream, or of capturing
//! streams. The newest matching route applies. Threads cache the arena of a stream; every change of routes starts a new
//! epoch, which invalidates all cached arenas.

use super::pool::PoolId;
use crate::{
    driver::{Stream, types::CU_STREAM_LEGACY},
    error::{Error, Result},
    runtime::{
        Runtime,
        thread::{self, DroppedInCall},
    },
    status::Status,
    stream::capture_status,
};
use parking_lot::Mutex;
use std::sync::{
    Arc, Weak,
    atomic::{AtomicU32, Ordering},
};

/// The requests to which a route applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteScope {
    /// The requests of a thread, in every stream.
    Thread(u64),
    /// The requests in a stream, from every thread.
    Stream(usize),
    /// The requests in capturing streams.
    Capture,
}

/// Who began a route, and may end it.
#[derive(Debug, Clone)]
pub enum RouteOwner {
    /// A thread of the program.
    Thread(Weak<()>),
    /// The hooks of a pluggable allocator, which any thread may call.
    Hooks,
    /// A capture of the library.
    Capture,
}

thread_local! {
    /// A value that lives as long as the thread.
    static LIFE: DroppedInCall<Arc<()>> = DroppedInCall::new(Arc::default());
}

impl RouteOwner {
    /// Returns the calling thread as an owner. While a thread is being destroyed, it owns nothing.
    pub fn current_thread() -> RouteOwner {
        RouteOwner::Thread(LIFE.try_with(|life| Arc::downgrade(life)).unwrap_or_default())
    }

    /// Checks that a route of this owner may be ended by another one.
    fn check_end(&self, by: &RouteOwner, pool: PoolId) -> Result<()> {
        let what = match (self, by) {
            (RouteOwner::Hooks, RouteOwner::Hooks) | (RouteOwner::Capture, RouteOwner::Capture) => return Ok(()),
            // The routes of a thread that has exited may be ended by any thread.
            (RouteOwner::Thread(owner), RouteOwner::Thread(by)) if owner.ptr_eq(by) || owner.strong_count() == 0 => {
                return Ok(());
            }
            (RouteOwner::Thread(_), _) => "another thread began it; end it in that thread",
            (RouteOwner::Hooks, _) => "plinth_pluggable_begin_allocate_to_pool began it, so its counterpart ends it",
            (RouteOwner::Capture, _) => "the capture of a graph began it and ends it",
        };
        let message = format!("ending the routing of requests to pool {pool}: {what}");
        Err(Error::new(Status::INVALID_VALUE, message))
    }
}

#[derive(Debug, Clone)]
struct Route {
    scope: RouteScope,
    pool: PoolId,
    owner: RouteOwner,
    /// The first capture that used the route. The route then applies to that capture only.
    capture: Option<u64>,
}

/// The routes of one device.
#[derive(Debug, Default)]
pub struct Routes(Mutex<Vec<Route>>);

static EPOCH: AtomicU32 = AtomicU32::new(1);
/// The epoch in which arenas can no longer be cached: the process is exiting or is a forked child.
const NEVER: u32 = u32::MAX;

/// Returns the current epoch of cached arenas.
#[inline]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// Starts a new epoch.
pub fn invalidate_arenas() {
    // The last epoch never ends.
    let _ = EPOCH.fetch_update(Ordering::AcqRel, Ordering::Acquire, |epoch| {
        (epoch != NEVER).then(|| if epoch + 1 == NEVER { 1 } else { epoch + 1 })
    });
}

/// Disables caching of arenas permanently.
pub fn disable_arena_cache() {
    EPOCH.store(NEVER, Ordering::Release);
}

/// Returns whether an arena found in this epoch may be cached.
pub fn may_cache(epoch: u32) -> bool {
    epoch != NEVER
}

/// Returns the canonical handle of a stream: the legacy default stream has two handles.
pub fn canonical(handle: usize) -> usize {
    if handle == CU_STREAM_LEGACY { 0 } else { handle }
}

impl Routes {
    /// Adds a route. A pool can have one route at a time. `capture` restricts the route to one capture.
    pub fn begin(&self, scope: RouteScope, pool: PoolId, owner: RouteOwner, capture: Option<u64>) -> Result<()> {
        let mut routes = self.0.lock();
        if routes.iter().any(|route| route.pool == pool) {
            return Err(Error::new(Status::INVALID_VALUE, format!("already recording to mempool_id {pool}")));
        }
        routes.push(Route { scope, pool, owner, capture });
        drop(routes);
        invalidate_arenas();
        Ok(())
    }

    /// Removes the route to a pool, if `owner` may.
    pub fn end(&self, pool: PoolId, owner: &RouteOwner) -> Result<()> {
        let mut routes = self.0.lock();
        let Some(index) = routes.iter().rposition(|route| route.pool == pool) else {
            return Err(Error::new(Status::INVALID_VALUE, format!("not currently recording to mempool_id {pool}")));
        };
        routes[index].owner.check_end(owner, pool)?;
        routes.remove(index);
        drop(routes);
        invalidate_arenas();
        Ok(())
    }

    /// Removes the routes of a stream that ends: its handle may become that of another stream.
    pub fn remove_stream(&self, handle: usize) {
        self.0.lock().retain(|route| route.scope != RouteScope::Stream(handle));
    }

    /// Returns whether hooks route requests of captures that the program begins through the driver.
    pub fn has_hooks(&self) -> bool {
        self.0.lock().iter().any(|route| matches!(route.owner, RouteOwner::Hooks))
    }

    /// Returns whether any route leads to a pool.
    pub fn leads_to(&self, pool: PoolId) -> bool {
        self.0.lock().iter().any(|route| route.pool == pool)
    }

    /// Returns the pool for a request of the calling thread in a stream, and whether the result stays valid until the
    /// epoch ends. Fails if the driver cannot tell whether the stream captures: memory of another pool could be given back
    /// while the graph uses it.
    pub fn find(&self, runtime: &Runtime, stream: Stream) -> Result<(PoolId, bool)> {
        let mut routes = self.0.lock();
        if routes.is_empty() {
            return Ok((PoolId::DEFAULT, true));
        }
        let thread = thread::number();
        let mut lasting = true;
        let mut capture = None;
        for index in (0..routes.len()).rev() {
            let route = &routes[index];
            let applies = match route.scope {
                RouteScope::Thread(number) => number == thread,
                RouteScope::Stream(handle) => canonical(handle) == canonical(stream.handle()),
                RouteScope::Capture => {
                    // A stream can begin a capture without a notification.
                    lasting = false;
                    let id = match capture {
                        Some(id) => id,
                        None => capture_status::id_of(&runtime.driver, stream)?,
                    };
                    capture = Some(id);
                    match (id, route.capture) {
                        (None, _) => false,
                        (Some(id), Some(owner)) => id == owner,
                        (Some(id), None) => {
                            let elsewhere = routes.iter().any(|other| other.capture == Some(id));
                            if !elsewhere {
                                routes[index].capture = Some(id);
                            }
                            !elsewhere
                        }
                    }
                }
            };
            if applies {
                return Ok((routes[index].pool, lasting));
            }
        }
        Ok((PoolId::DEFAULT, lasting))
    }
}

//! Routes: assign requests to pools.
//!
//! Requests go to the default pool unless a route applies: for the requests of a thread, of a stream, or of capturing
//! streams. The newest matching route applies. Threads cache the arena of a stream; every change of routes starts a new
//! epoch, which invalidates all cached arenas.

use super::pool::PoolId;
use crate::{
    driver::{Stream, types::CU_STREAM_LEGACY},
    error::{Error, Result},
    runtime::{Runtime, thread},
    status::Status,
    stream::capture_status,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

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

#[derive(Debug, Clone, Copy)]
struct Route {
    scope: RouteScope,
    pool: PoolId,
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
    pub fn begin(&self, scope: RouteScope, pool: PoolId, capture: Option<u64>) -> Result<()> {
        let mut routes = self.0.lock();
        if routes.iter().any(|route| route.pool == pool) {
            return Err(Error::new(Status::INVALID_VALUE, format!("already recording to mempool_id {pool}")));
        }
        routes.push(Route { scope, pool, capture });
        drop(routes);
        invalidate_arenas();
        Ok(())
    }

    /// Removes the route to a pool.
    pub fn end(&self, pool: PoolId) -> Result<()> {
        let mut routes = self.0.lock();
        let Some(index) = routes.iter().rposition(|route| route.pool == pool) else {
            return Err(Error::new(Status::INVALID_VALUE, format!("not currently recording to mempool_id {pool}")));
        };
        routes.remove(index);
        drop(routes);
        invalidate_arenas();
        Ok(())
    }

    /// Returns whether any route leads to a pool.
    pub fn leads_to(&self, pool: PoolId) -> bool {
        self.0.lock().iter().any(|route| route.pool == pool)
    }

    /// Returns the pool for a request of the calling thread in a stream, and whether the result stays valid until the
    /// epoch ends.
    pub fn find(&self, runtime: &Runtime, stream: Stream) -> (PoolId, bool) {
        let mut routes = self.0.lock();
        if routes.is_empty() {
            return (PoolId::DEFAULT, true);
        }
        let thread = thread::number();
        let mut lasting = true;
        let mut capture = None;
        for index in (0..routes.len()).rev() {
            let route = routes[index];
            let applies = match route.scope {
                RouteScope::Thread(number) => number == thread,
                RouteScope::Stream(handle) => canonical(handle) == canonical(stream.handle()),
                RouteScope::Capture => {
                    // A stream can begin a capture without a notification.
                    lasting = false;
                    let capture =
                        *capture.get_or_insert_with(|| capture_status::id_of(&runtime.driver, stream).unwrap_or(None));
                    match (capture, route.capture) {
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
                return (route.pool, lasting);
            }
        }
        (PoolId::DEFAULT, lasting)
    }
}

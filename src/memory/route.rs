//! Which pool a request belongs to.
//!
//! Requests go to the default pool unless somebody said otherwise: for the requests of a thread, of a stream, or of
//! whichever streams capture. What was said last counts first. Threads remember the arena that they found for a stream;
//! every change here begins a new epoch, in which nothing that was remembered counts.

use super::pool::PoolId;
use crate::{
    driver::{
        Stream,
        types::{CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_LEGACY},
    },
    error::{Error, Result},
    runtime::{Runtime, thread},
    status::Status,
};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whose requests a route is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A thread's, on every stream.
    Thread(u64),
    /// A stream's, from every thread.
    Stream(usize),
    /// Those of streams that are capturing.
    Capture,
}

#[derive(Debug, Clone, Copy)]
struct Route {
    who: Who,
    pool: PoolId,
    /// The capture that took the route first, which then has it alone.
    capture: Option<u64>,
}

/// The routes of one device.
#[derive(Debug, Default)]
pub struct Routes(Mutex<Vec<Route>>);

static EPOCH: AtomicU32 = AtomicU32::new(1);
/// The epoch in which nothing may be remembered any more: the process exits, or is a child of a fork.
const NEVER: u32 = u32::MAX;

/// The epoch of what threads may remember.
#[inline]
pub fn epoch() -> u32 {
    EPOCH.load(Ordering::Acquire)
}

/// Begins a new epoch.
pub fn forget() {
    // The last epoch never ends.
    let _ = EPOCH.fetch_update(Ordering::AcqRel, Ordering::Acquire, |epoch| {
        (epoch != NEVER).then(|| if epoch + 1 == NEVER { 1 } else { epoch + 1 })
    });
}

/// Lets nobody remember anything any more.
pub fn forget_for_ever() {
    EPOCH.store(NEVER, Ordering::Release);
}

/// Whether what is found in this epoch may be remembered.
pub fn may_remember(epoch: u32) -> bool {
    epoch != NEVER
}

/// The legacy default stream has two handles.
pub fn canonical(handle: usize) -> usize {
    if handle == CU_STREAM_LEGACY { 0 } else { handle }
}

impl Routes {
    /// Adds a route. A pool has one at a time. One that is for a capture alone names it.
    pub fn begin(&self, who: Who, pool: PoolId, capture: Option<u64>) -> Result<()> {
        let mut routes = self.0.lock();
        if routes.iter().any(|route| route.pool == pool) {
            return Err(Error::new(Status::INVALID_VALUE, format!("already recording to mempool_id {pool}")));
        }
        routes.push(Route { who, pool, capture });
        drop(routes);
        forget();
        Ok(())
    }

    /// Ends the route to a pool.
    pub fn end(&self, pool: PoolId) -> Result<()> {
        let mut routes = self.0.lock();
        let Some(index) = routes.iter().rposition(|route| route.pool == pool) else {
            return Err(Error::new(Status::INVALID_VALUE, format!("not currently recording to mempool_id {pool}")));
        };
        routes.remove(index);
        drop(routes);
        forget();
        Ok(())
    }

    /// Whether any route leads to a pool.
    pub fn lead_to(&self, pool: PoolId) -> bool {
        self.0.lock().iter().any(|route| route.pool == pool)
    }

    /// The pool for a request of the calling thread in a stream, and whether the next such request will find the same
    /// until the epoch ends.
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
            let mine = match route.who {
                Who::Thread(number) => number == thread,
                Who::Stream(handle) => canonical(handle) == canonical(stream.handle()),
                Who::Capture => {
                    // A stream begins to capture without telling anybody.
                    lasting = false;
                    let capture = *capture.get_or_insert_with(|| capture_of(runtime, stream));
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
            if mine {
                return (route.pool, lasting);
            }
        }
        (PoolId::DEFAULT, lasting)
    }
}

/// The number of the capture that a stream takes part in. A driver that tells no numbers has one capture at a time for
/// all that can be known.
fn capture_of(runtime: &Runtime, stream: Stream) -> Option<u64> {
    if stream.handle() <= CU_STREAM_LEGACY {
        return None;
    }
    let driver = &runtime.driver;
    match driver.stream_capture_id(stream) {
        Ok(id) => id,
        Err(_) => match driver.stream_capture_status(stream) {
            Ok(CU_STREAM_CAPTURE_STATUS_NONE) | Err(_) => None,
            Ok(_) => Some(0),
        },
    }
}

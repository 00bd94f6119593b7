//! Capture scopes: the registry of the resources that captures use.
//!
//! A capture of this library notifies its resources when it ends. Its graph then owns those that replays need, such as
//! FFT plans. The library is not notified of the end of a capture that the program began with the driver's own calls.
//! For the resources of such a capture the driver's graph holds a ticket, a user object, which it releases when the
//! graph and everything made from it are destroyed. A resource that must outlive copies which the program makes of a
//! graph with the driver's own calls, such as pinned memory, uses the ticket in both kinds of capture.

use crate::{
    driver::{ReleaseCallback, codes},
    error::{Context, Result},
    runtime::Runtime,
    stream::Stream,
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// A resource that a capture uses.
pub trait CaptureResource: Send + Sync {
    /// Notifies the resource that a capture of this library has ended, also if the capture failed. Returns whether
    /// replays of its graph need the resource.
    fn on_capture_end(&self, _runtime: &Runtime, _capture: u64) -> bool {
        true
    }

    /// Fails if a replay of the graph would use memory that sleeps.
    fn check_awake(&self) -> Result<()> {
        Ok(())
    }

    /// Notifies the resource that the driver's graph of a capture, with its clones and executables, was destroyed.
    /// Runs on a thread of the driver, which must not call the driver. Returns whether that thread may drop the
    /// resource; otherwise the next [`drop_released`] drops it.
    fn on_graph_destroyed(&self, _capture: u64) -> bool {
        false
    }
}

/// A reference to a registered resource.
pub type Resource = Arc<dyn CaptureResource>;

/// The event that ends a scope.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopeEnd {
    /// The end of a capture of this library.
    CaptureEnd,
    /// The release of the ticket that the driver's graph holds.
    GraphDestroyed,
}

struct Scope {
    /// The ID of the capture; 0 if the driver does not report IDs.
    capture: u64,
    end: ScopeEnd,
    resources: Vec<Resource>,
}

/// The scopes that have not ended. There are few of them. No driver call is made under the lock, because the driver may
/// release tickets on a thread that holds the driver's own locks.
static SCOPES: Mutex<Vec<Scope>> = Mutex::new(Vec::new());
/// Resources whose graphs were destroyed.
static RELEASED: Mutex<Vec<Resource>> = Mutex::new(Vec::new());
static ANY_RELEASED: AtomicBool = AtomicBool::new(false);
/// The number of resources whose [`CaptureResource::check_awake`] fails.
static ASLEEP: AtomicUsize = AtomicUsize::new(0);

/// Counts a resource that falls asleep, or wakes.
pub fn count_asleep(asleep: bool) {
    if asleep {
        ASLEEP.fetch_add(1, Ordering::Relaxed)
    } else {
        ASLEEP.fetch_sub(1, Ordering::Relaxed)
    };
}

/// Returns whether any resource sleeps.
#[inline]
pub fn is_any_asleep() -> bool {
    ASLEEP.load(Ordering::Relaxed) != 0
}

impl Scope {
    fn index(scopes: &[Scope], capture: u64, end: ScopeEnd) -> Option<usize> {
        scopes.iter().position(|scope| scope.capture == capture && scope.end == end)
    }

    /// Ends a scope and returns its resources, the newest first.
    fn take(capture: u64, end: ScopeEnd) -> Vec<Resource> {
        let mut scopes = SCOPES.lock();
        let index = Scope::index(&scopes, capture, end);
        let mut resources = index.map(|index| scopes.swap_remove(index).resources).unwrap_or_default();
        resources.reverse();
        resources
    }

    fn add(&mut self, resource: Resource) {
        if !self.resources.iter().any(|known| Arc::ptr_eq(known, &resource)) {
            self.resources.push(resource);
        }
    }
}

/// Registers a capture of this library that begins.
pub fn begin(capture: u64) {
    SCOPES.lock().push(Scope { capture, end: ScopeEnd::CaptureEnd, resources: Vec::new() });
}

/// Notifies the resources of a capture that has ended, the newest first, and returns those that replays need.
pub fn end(runtime: &Runtime, capture: u64) -> Vec<Resource> {
    let mut resources = Scope::take(capture, ScopeEnd::CaptureEnd);
    resources.retain(|resource| resource.on_capture_end(runtime, capture));
    resources
}

/// Returns whether a capture is one of this library's and in progress.
pub fn is_active(capture: u64) -> bool {
    Scope::index(&SCOPES.lock(), capture, ScopeEnd::CaptureEnd).is_some()
}

/// Adds a resource to a capture of this library. Returns false if the capture is not one of this library's.
pub fn add(capture: u64, resource: &Arc<impl CaptureResource + 'static>) -> bool {
    let resource: Resource = resource.clone();
    let mut scopes = SCOPES.lock();
    let Some(index) = Scope::index(&scopes, capture, ScopeEnd::CaptureEnd) else { return false };
    scopes[index].add(resource);
    true
}

/// Makes the driver's graph of the capture that a stream is part of keep a resource. If the driver cannot report that a
/// graph was destroyed, the resource is kept forever.
pub fn add_to_driver_graph(runtime: &Runtime, stream: Stream, capture: u64, resource: Resource) -> Result<()> {
    {
        let mut scopes = SCOPES.lock();
        if let Some(index) = Scope::index(&scopes, capture, ScopeEnd::GraphDestroyed) {
            // The graph has the ticket already, or is about to get it.
            scopes[index].add(resource);
            return Ok(());
        }
        scopes.push(Scope { capture, end: ScopeEnd::GraphDestroyed, resources: vec![resource.clone()] });
    }
    attach_ticket(runtime, stream, capture).context(|| "attaching a resource to a captured graph").inspect_err(|_| {
        let mut scopes = SCOPES.lock();
        let Some(index) = Scope::index(&scopes, capture, ScopeEnd::GraphDestroyed) else { return };
        scopes[index].resources.retain(|other| !Arc::ptr_eq(other, &resource));
        // Resources that other threads have added meanwhile are kept forever.
        if scopes[index].resources.is_empty() {
            scopes.swap_remove(index);
        }
    })
}

/// The user object that a driver's graph holds. Its number is the ID of the capture.
struct GraphTicket;

impl ReleaseCallback for GraphTicket {
    fn released(capture: u64) {
        let mut resources = Scope::take(capture, ScopeEnd::GraphDestroyed);
        resources.retain(|resource| !resource.on_graph_destroyed(capture));
        if !resources.is_empty() {
            RELEASED.lock().append(&mut resources);
            ANY_RELEASED.store(true, Ordering::Release);
        }
    }
}

fn attach_ticket(runtime: &Runtime, stream: Stream, capture: u64) -> Result<()> {
    let attached = runtime.in_stream(stream, |driver, raw| {
        let Some(graph) = driver.stream_capture_info(raw)?.graph else { return Ok(()) };
        Ok(driver.graph_attach_release_callback::<GraphTicket>(graph, capture)?)
    });
    match attached {
        // The driver is too old, or the graph cannot hold user objects.
        Err(error)
            if matches!(error.driver_code(), codes::CUDA_ERROR_NOT_SUPPORTED | codes::CUDA_ERROR_INVALID_VALUE) =>
        {
            Ok(())
        }
        attached => attached,
    }
}

/// Drops the resources of graphs that were destroyed.
pub fn drop_released() {
    if ANY_RELEASED.swap(false, Ordering::AcqRel) {
        let released = std::mem::take(&mut *RELEASED.lock());
        drop(released);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number;

    impl CaptureResource for Number {
        fn on_graph_destroyed(&self, capture: u64) -> bool {
            capture == DROPPED
        }
    }

    const CAPTURE: u64 = u64::MAX - 7;
    const DROPPED: u64 = u64::MAX - 8;

    #[test]
    fn a_capture_holds_each_resource_once() {
        let resource = Arc::new(Number);
        assert!(!is_active(CAPTURE) && !add(CAPTURE, &resource));
        begin(CAPTURE);
        assert!(is_active(CAPTURE) && add(CAPTURE, &resource) && add(CAPTURE, &resource));
        assert_eq!(Arc::strong_count(&resource), 2);
        assert_eq!(Scope::take(CAPTURE, ScopeEnd::CaptureEnd).len(), 1);
        assert!(!is_active(CAPTURE) && Scope::take(CAPTURE, ScopeEnd::CaptureEnd).is_empty());
        assert_eq!(Arc::strong_count(&resource), 1);
    }

    #[test]
    fn a_ticket_drops_or_queues_its_resources() {
        let resource = Arc::new(Number);
        for capture in [CAPTURE, DROPPED] {
            let resources: Vec<Resource> = vec![resource.clone()];
            SCOPES.lock().push(Scope { capture, end: ScopeEnd::GraphDestroyed, resources });
            GraphTicket::released(capture);
            GraphTicket::released(capture);
        }
        assert_eq!(Arc::strong_count(&resource), 2);
        drop_released();
        assert_eq!(Arc::strong_count(&resource), 1);
    }
}

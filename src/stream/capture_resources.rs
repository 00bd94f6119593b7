//! Resources that a capture uses and that its graph must keep alive for replays, such as FFT plans.
//!
//! Graphs of this library own their resources directly. The library is not notified of the end of a capture that the
//! program began with the driver's own calls. For each resource of such a capture the driver's graph holds a ticket,
//! which it releases when the graph and everything made from it are destroyed. The release happens on a driver thread
//! that must not call the driver, so it only queues the resource, and a later request for scratch memory drops the
//! queue.

use crate::{
    driver::{Ticket, codes},
    error::{Context, Result},
    runtime::Runtime,
    stream::Stream,
};
use parking_lot::Mutex;
use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A reference-counted resource of any type.
pub type Resource = Arc<dyn Any + Send + Sync>;

/// The captures of this library in progress, with the resources that each has used. There are few of them.
static CAPTURES: Mutex<Vec<(u64, Vec<Resource>)>> = Mutex::new(Vec::new());

/// Registers a capture that begins.
pub fn begin(capture: u64) {
    CAPTURES.lock().push((capture, Vec::new()));
}

/// Unregisters a capture that has ended, and returns its resources to the caller.
pub fn end(capture: u64) -> Vec<Resource> {
    let mut captures = CAPTURES.lock();
    let index = captures.iter().position(|(number, _)| *number == capture);
    index.map(|index| captures.swap_remove(index).1).unwrap_or_default()
}

/// Returns whether a capture is one of this library's and in progress.
pub fn is_active(capture: u64) -> bool {
    CAPTURES.lock().iter().any(|(number, _)| *number == capture)
}

/// Adds a resource to a capture. Returns false if the capture is not one of this library's: then the library is not
/// notified when its graph is destroyed.
pub fn add(capture: u64, resource: &Resource) -> bool {
    let mut captures = CAPTURES.lock();
    let Some((_, resources)) = captures.iter_mut().find(|(number, _)| *number == capture) else { return false };
    if !resources.iter().any(|known| Arc::ptr_eq(known, resource)) {
        resources.push(resource.clone());
    }
    true
}

/// A resource for which a driver graph holds a ticket.
struct Ticketed {
    number: u64,
    /// The capture that used the resource; 0 if the driver does not report capture IDs.
    capture: u64,
    resource: Resource,
}

static TICKETED: Mutex<Vec<Ticketed>> = Mutex::new(Vec::new());
/// Resources whose graphs were destroyed.
static RELEASED: Mutex<Vec<Resource>> = Mutex::new(Vec::new());
static ANY_RELEASED: AtomicBool = AtomicBool::new(false);
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

struct GraphTicket;

impl Ticket for GraphTicket {
    fn released(number: u64) {
        if let Some(resource) = take(number) {
            RELEASED.lock().push(resource);
            ANY_RELEASED.store(true, Ordering::Release);
        }
    }
}

fn take(number: u64) -> Option<Resource> {
    let mut ticketed = TICKETED.lock();
    let index = ticketed.iter().position(|ticketed| ticketed.number == number)?;
    Some(ticketed.swap_remove(index).resource)
}

/// Attaches a resource to the graph of a capture that is not one of this library's. If the driver cannot report that
/// a graph was destroyed, the resource is kept forever.
pub fn attach_to_graph(runtime: &Runtime, stream: Stream, capture: u64, resource: Resource) -> Result<()> {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    {
        let mut ticketed = TICKETED.lock();
        if capture != 0
            && ticketed.iter().any(|ticketed| ticketed.capture == capture && Arc::ptr_eq(&ticketed.resource, &resource))
        {
            return Ok(());
        }
        ticketed.push(Ticketed { number, capture, resource });
    }
    let attached = runtime.in_stream(stream, |driver, raw| {
        let Some(graph) = driver.stream_capture_info(raw)?.graph else { return Ok(()) };
        Ok(driver.graph_keep_ticket::<GraphTicket>(graph, number)?)
    });
    match attached {
        // An old driver, or a graph that does not accept user objects.
        Err(error)
            if matches!(error.driver_code(), codes::CUDA_ERROR_NOT_SUPPORTED | codes::CUDA_ERROR_INVALID_VALUE) =>
        {
            Ok(())
        }
        attached => attached.inspect_err(|_| drop(take(number))).context(|| "attaching a resource to a captured graph"),
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

    #[test]
    fn a_capture_holds_each_resource_once() {
        const CAPTURE: u64 = u64::MAX - 7;
        let resource: Resource = Arc::new(5);
        assert!(!is_active(CAPTURE) && !add(CAPTURE, &resource));
        begin(CAPTURE);
        assert!(is_active(CAPTURE) && add(CAPTURE, &resource) && add(CAPTURE, &resource));
        assert_eq!(Arc::strong_count(&resource), 2);
        assert_eq!(end(CAPTURE).len(), 1);
        assert!(!is_active(CAPTURE) && end(CAPTURE).is_empty());
        assert_eq!(Arc::strong_count(&resource), 1);
    }
}

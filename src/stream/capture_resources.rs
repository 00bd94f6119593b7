//! What a capture uses and its graph must keep for its replays: plans of transforms, say.
//!
//! Graphs of this library's keep such things themselves. Of a capture that the program began by the driver's own calls nobody
//! hears the end, so the driver's graph holds a number for each thing, which comes back when that graph and all that was made of it
//! are gone. It comes back on a thread of the driver's, which must not call the driver; so what it stands for is laid
//! aside, and dropped when somebody next asks for memory to work with.

use crate::{
    driver::{ReleaseCallback, codes},
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

/// Something that lives for as long as somebody keeps it.
pub type Thing = Arc<dyn Any + Send + Sync>;

/// The captures of this library's that go on, and what each has used. They are few.
static CAPTURES: Mutex<Vec<(u64, Vec<Thing>)>> = Mutex::new(Vec::new());

/// Notes that a capture begins.
pub fn begin(capture: u64) {
    CAPTURES.lock().push((capture, Vec::new()));
}

/// Notes that a capture has ended. What it has used is the caller's.
pub fn end(capture: u64) -> Vec<Thing> {
    let mut captures = CAPTURES.lock();
    let index = captures.iter().position(|(number, _)| *number == capture);
    index.map(|index| captures.swap_remove(index).1).unwrap_or_default()
}

/// Whether a capture of this number is one of this library's, and goes on.
pub fn goes_on(capture: u64) -> bool {
    CAPTURES.lock().iter().any(|(number, _)| *number == capture)
}

/// Notes that a capture uses something. False if the capture is none of this library's: then nobody will say when its
/// graph is gone.
pub fn keep(capture: u64, thing: &Thing) -> bool {
    let mut captures = CAPTURES.lock();
    let Some((_, things)) = captures.iter_mut().find(|(number, _)| *number == capture) else { return false };
    if !things.iter().any(|known| Arc::ptr_eq(known, thing)) {
        things.push(thing.clone());
    }
    true
}

/// A thing that a graph of the driver's holds a number for.
struct Held {
    number: u64,
    /// The capture that used it; 0 where the driver tells no numbers.
    capture: u64,
    thing: Thing,
}

static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());
/// Things whose graphs are gone.
static RELEASED: Mutex<Vec<Thing>> = Mutex::new(Vec::new());
static ANY_RELEASED: AtomicBool = AtomicBool::new(false);
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

struct GraphTicket;

impl ReleaseCallback for GraphTicket {
    fn released(number: u64) {
        if let Some(thing) = take(number) {
            RELEASED.lock().push(thing);
            ANY_RELEASED.store(true, Ordering::Release);
        }
    }
}

fn take(number: u64) -> Option<Thing> {
    let mut held = HELD.lock();
    let index = held.iter().position(|held| held.number == number)?;
    Some(held.swap_remove(index).thing)
}

/// Lets the graph of a capture in a stream, which is none of this library's, keep something. Where the driver cannot tell when
/// a graph is gone, it is kept for ever.
pub fn keep_by_graph(runtime: &Runtime, stream: Stream, capture: u64, thing: Thing) -> Result<()> {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    {
        let mut held = HELD.lock();
        if capture != 0 && held.iter().any(|held| held.capture == capture && Arc::ptr_eq(&held.thing, &thing)) {
            return Ok(());
        }
        held.push(Held { number, capture, thing });
    }
    let kept = runtime.in_stream(stream, |driver, raw| {
        let Some(graph) = driver.stream_capture_info(raw)?.graph else { return Ok(()) };
        Ok(driver.graph_attach_release_callback::<GraphTicket>(graph, number)?)
    });
    match kept {
        // An old driver, or a graph that may hold nothing.
        Err(error)
            if matches!(error.driver_code(), codes::CUDA_ERROR_NOT_SUPPORTED | codes::CUDA_ERROR_INVALID_VALUE) =>
        {
            Ok(())
        }
        kept => kept.inspect_err(|_| drop(take(number))).context(|| "keeping for a graph what it uses"),
    }
}

/// Drops what graphs that are gone had kept.
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
    fn a_capture_keeps_what_it_uses_once() {
        const CAPTURE: u64 = u64::MAX - 7;
        let thing: Thing = Arc::new(5);
        assert!(!goes_on(CAPTURE) && !keep(CAPTURE, &thing));
        begin(CAPTURE);
        assert!(goes_on(CAPTURE) && keep(CAPTURE, &thing) && keep(CAPTURE, &thing));
        assert_eq!(Arc::strong_count(&thing), 2);
        assert_eq!(end(CAPTURE).len(), 1);
        assert!(!goes_on(CAPTURE) && end(CAPTURE).is_empty());
        assert_eq!(Arc::strong_count(&thing), 1);
    }
}

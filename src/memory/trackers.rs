//! Trackers: callbacks of the program that receive every history event as it happens.
//!
//! Events are queued under the lock of their arena, so the queue preserves their order. The thread whose call caused an
//! event empties the queue before the call returns, without a lock of the allocator.

use super::{
    callbacks::Callback,
    history::{Entry, Source},
    log::RawEntry,
    tags::Texts,
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    cell::Cell,
    collections::VecDeque,
    marker::PhantomData,
    time::{SystemTime, UNIX_EPOCH},
};

/// Notifies a tracker of an event on a device.
pub type Tracker = fn(function: usize, context: usize, device: u32, entry: &Entry);

static TRACKERS: Mutex<Vec<Callback<Tracker>>> = Mutex::new(Vec::new());
static QUEUE: Mutex<VecDeque<(u32, Entry)>> = Mutex::new(VecDeque::new());
/// Held by the thread that notifies the trackers.
static DELIVERING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread is running a tracker.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static DEFERRALS: Cell<Deferrals> = const { Cell::new(Deferrals { count: 0, is_due: false }) };
}

/// The deferrals of a thread.
#[derive(Clone, Copy)]
struct Deferrals {
    count: u32,
    /// Whether a delivery was due since the first of them.
    is_due: bool,
}

/// Makes this thread deliver events only when the last of its deferrals ends.
#[derive(Debug)]
pub struct Deferral(PhantomData<*const ()>);

/// Defers the deliveries of this thread, for a caller that is about to lock what trackers may use.
#[inline]
pub fn defer() -> Deferral {
    let Deferrals { count, is_due } = DEFERRALS.get();
    DEFERRALS.set(Deferrals { count: count + 1, is_due });
    Deferral(PhantomData)
}

impl Drop for Deferral {
    #[inline]
    fn drop(&mut self) {
        let Deferrals { count, is_due } = DEFERRALS.get();
        let is_last = count == 1;
        DEFERRALS.set(Deferrals { count: count - 1, is_due: is_due && !is_last });
        if is_due && is_last {
            deliver();
        }
    }
}

/// Returns whether there are trackers.
pub fn any() -> bool {
    !TRACKERS.lock().is_empty()
}

/// Adds a tracker.
pub(super) fn attach(callback: Callback<Tracker>) {
    TRACKERS.lock().push(callback);
}

/// Removes the tracker that was added last with this function and context.
pub(super) fn detach(function: usize, context: usize) -> Result<()> {
    let mut trackers = TRACKERS.lock();
    let found = trackers.iter().rposition(|entry| (entry.function, entry.context) == (function, context));
    let index = found.ok_or_else(|| {
        Error::new(Status::INVALID_VALUE, "no tracker was attached with this function and this context")
    })?;
    trackers.remove(index);
    Ok(())
}

/// Queues an event, unless a tracker on this thread caused it.
pub(super) fn enqueue(source: Source, raw: &RawEntry, texts: &Texts) {
    if INSIDE.with(Cell::get) {
        return;
    }
    let time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    let RawEntry { address, size, stack, thread, action, .. } = *raw;
    let Texts { tag, name } = texts.clone();
    let Source { device, stream, pool } = source;
    let entry =
        Entry { action, address, size, stream, pool, time_us, stack, metadata: tag, thread: thread.into(), name };
    QUEUE.lock().push_back((device, entry));
}

/// Notifies the trackers of queued events; later, while there is a [`Deferral`]. The caller must hold no other lock.
#[cold]
pub fn deliver() {
    struct ClearInside;
    impl Drop for ClearInside {
        fn drop(&mut self) {
            INSIDE.with(|inside| inside.set(false));
        }
    }
    if INSIDE.with(Cell::get) || QUEUE.lock().is_empty() {
        return;
    }
    let deferrals = DEFERRALS.get();
    if deferrals.count > 0 {
        DEFERRALS.set(Deferrals { is_due: true, ..deferrals });
        return;
    }
    let _delivering = DELIVERING.lock();
    INSIDE.with(|inside| inside.set(true));
    let _clear_inside = ClearInside;
    loop {
        let Some((device, entry)) = QUEUE.lock().pop_front() else { return };
        let trackers = TRACKERS.lock().clone();
        for tracker in trackers {
            (tracker.call)(tracker.function, tracker.context, device, &entry);
        }
    }
}

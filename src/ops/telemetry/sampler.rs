//! A sampler: a thread that reads a device's telemetry again and again, and keeps the last readings for whoever asks.
//!
//! It must not disturb what it watches. Some readings take NVML milliseconds of a processor's time; each is read only so often
//! that all together take less than a thousandth of one processor, and is left out of the samples between.

use super::{Reading, Telemetry, read_each};
use crate::{
    base::handle::{HandleTable, Kind},
    driver::thread_time,
    error::{Error, Result},
    runtime,
    status::Status,
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::VecDeque,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// What the sampler's thread and its readers share.
struct Shared {
    ring: Mutex<Ring>,
    ended: Condvar,
}

struct Ring {
    samples: VecDeque<Telemetry>,
    capacity: usize,
    /// How many were overwritten before anybody took them.
    lost: u64,
    stop: bool,
    /// Why the thread ended by itself, if it did.
    failure: Option<(Status, String)>,
}

/// See the module's comment.
#[derive(Default)]
pub struct Sampler(Mutex<Option<(Arc<Shared>, JoinHandle<()>)>>);

static SAMPLERS: HandleTable<Sampler> = HandleTable::new(Kind::Sampler);

/// How much longer than it takes a reading has to wait for its next turn.
const REST: u32 = 1250 * Reading::ALL.len() as u32;

/// When a reading may be read again, and what it took last of a processor's time.
#[derive(Clone, Copy)]
struct Turn {
    due: Instant,
    last: Option<Duration>,
}

impl Turn {
    fn took(&mut self, begun: Instant, took: Duration) {
        // The first time gets ready what is not needed again. Later the less of two counts, for one may have been held up.
        self.due = self.last.map_or(begun, |last| begun + took.min(last) * REST);
        self.last = Some(took);
    }
}

/// The turns of all readings.
struct Turns([Turn; Reading::ALL.len()]);

impl Turns {
    fn new() -> Turns {
        Turns([Turn { due: Instant::now(), last: None }; Reading::ALL.len()])
    }

    /// A sample of those whose turn it is.
    fn sample(&mut self, number: i32) -> Result<Telemetry> {
        read_each(number, |reading, read| {
            let turn = &mut self.0[reading as usize];
            let begun = Instant::now();
            if begun < turn.due {
                return Ok(None);
            }
            // Not by the clock: a reading that sleeps between two looks takes no processor's time.
            let before = thread_time();
            let value = read()?;
            turn.took(begun, thread_time().saturating_sub(before));
            Ok(value)
        })
    }
}

/// Adds a sample to the ring at each interval.
fn sample(shared: &Shared, number: i32, interval: Duration, mut turns: Turns, mut next: Instant) {
    loop {
        let mut ring = shared.ring.lock();
        // By the clock, not from reading to reading, so that the rate is the one that was asked for.
        next = (next + interval).max(Instant::now());
        while !ring.stop && Instant::now() < next {
            shared.ended.wait_until(&mut ring, next);
        }
        // A process that exits, or a child of a fork, has nothing to read any more.
        if ring.stop || runtime::usable().is_none() {
            return;
        }
        drop(ring);
        let read = turns.sample(number);
        let mut ring = shared.ring.lock();
        match read {
            Ok(telemetry) => {
                if ring.samples.len() == ring.capacity {
                    ring.samples.pop_front();
                    ring.lost += 1;
                }
                ring.samples.push_back(telemetry);
            }
            Err(error) => {
                ring.failure = Some((error.status(), error.message().to_owned()));
                return;
            }
        }
    }
}

/// Begins to sample a device; the new sampler's handle.
pub fn create(number: i32, interval: Duration, capacity: usize) -> Result<u64> {
    let device = runtime::ready()?.device(number)?.ordinal as i32;
    if interval < Duration::from_millis(1) || capacity == 0 {
        let what = "a sampler takes a reading every millisecond at most, and keeps one at least";
        return Err(Error::new(Status::INVALID_VALUE, what));
    }
    // The first sample is taken here: what cannot be read at all fails where somebody hears it.
    let (begun, mut turns) = (Instant::now(), Turns::new());
    let samples = VecDeque::from([turns.sample(device)?]);
    let ring = Ring { samples, capacity, lost: 0, stop: false, failure: None };
    let shared = Arc::new(Shared { ring: Mutex::new(ring), ended: Condvar::new() });
    let theirs = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("plinth sampler".into())
        .spawn(move || sample(&theirs, device, interval, turns, begun))
        .map_err(|error| Error::new(Status::SYSTEM, format!("starting a sampler's thread: {error}")))?;
    SAMPLERS.insert(|sampler| *sampler.0.lock() = Some((shared, thread)))
}

/// Takes up to `most` samples, the oldest first, and tells how many more were lost since the last time. A sampler that
/// failed gives what it had, and then its error.
pub fn take(handle: u64, most: usize) -> Result<(Vec<Telemetry>, u64)> {
    let shared = match &*SAMPLERS.get(handle)?.0.lock() {
        Some((shared, _)) => Arc::clone(shared),
        None => return Ok((Vec::new(), 0)),
    };
    let mut ring = shared.ring.lock();
    if ring.samples.is_empty()
        && let Some((status, message)) = &ring.failure
    {
        return Err(Error::new(*status, format!("the sampler ended: {message}")));
    }
    let count = most.min(ring.samples.len());
    Ok((ring.samples.drain(..count).collect(), std::mem::take(&mut ring.lost)))
}

/// Ends sampling, and waits for the thread to end.
pub fn destroy(handle: u64) -> Result<()> {
    let mut taken = None;
    // Only by the one who ends the handle: of another the slot may be another sampler's by now.
    SAMPLERS.remove(handle, |sampler| taken = sampler.0.lock().take())?;
    // In the child of a fork there is no such thread.
    if let (Some((shared, thread)), true) = (taken, runtime::usable().is_some()) {
        shared.ring.lock().stop = true;
        shared.ended.notify_all();
        // It does not panic; if it did, there would be nobody to tell.
        let _ = thread.join();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_reading_that_takes_long_is_no_measure() {
        let mut turn = Turn { due: Instant::now(), last: None };
        let begun = Instant::now();
        turn.took(begun, Duration::from_millis(50));
        assert_eq!(turn.due, begun);
        turn.took(begun, Duration::from_micros(10));
        assert_eq!(turn.due, begun + Duration::from_micros(10) * REST);
        turn.took(begun, Duration::from_millis(50));
        assert_eq!(turn.due, begun + Duration::from_micros(10) * REST);
    }

    #[test]
    fn sleep_takes_no_time_of_a_processor() {
        let before = thread_time();
        std::thread::sleep(Duration::from_millis(30));
        assert!(thread_time() - before < Duration::from_millis(10));
        while thread_time() - before < Duration::from_millis(12) {
            std::hint::spin_loop();
        }
    }
}

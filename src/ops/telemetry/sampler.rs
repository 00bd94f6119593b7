//! Samplers: threads that read a device's telemetry periodically and keep the last samples in a ring buffer.
//!
//! A sampler must not disturb what it measures. Some NVML readings take milliseconds of CPU time. Each reading is
//! rate-limited so that all together take less than a thousandth of one CPU; it is absent from the samples in between.

use super::{Reading, Telemetry, now_us, read_with};
use crate::{
    base::handle::{HandleTable, Kind},
    driver::{signals, thread_time},
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

/// State shared by the sampler's thread and its readers.
struct Shared {
    ring: Mutex<Ring>,
    ended: Condvar,
}

struct Ring {
    samples: VecDeque<Telemetry>,
    capacity: usize,
    /// The number of samples that were overwritten before they were read.
    lost: u64,
    stop: bool,
    has_ended: bool,
    /// Why the thread ended early, if it did.
    failure: Option<(Status, String)>,
}

/// A sampler; see the module's documentation.
#[derive(Default)]
pub struct Sampler(Mutex<Option<Arc<Shared>>>);

static SAMPLERS: HandleTable<Sampler> = HandleTable::new(Kind::Sampler);

/// Samplers with their threads.
type Threads = Vec<(Arc<Shared>, JoinHandle<()>)>;

/// The threads of all samplers. `None` once the process exits.
static THREADS: Mutex<Option<Threads>> = Mutex::new(Some(Vec::new()));

/// How long the exit of the process waits for a thread. It takes this long only if a reading hangs.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The factor between a reading's CPU time and the time until it may be read again.
const REST: u32 = 1250 * Reading::ALL.len() as u32;

/// The time at which a reading may be read again, and the CPU time it took last.
#[derive(Clone, Copy)]
struct Schedule {
    due: Instant,
    last: Option<Duration>,
}

impl Schedule {
    fn record(&mut self, begun: Instant, cpu_time: Duration) {
        // The first reading includes one-time initialization. Afterwards the minimum of the last two counts, because
        // one may have been delayed.
        self.due = self.last.map_or(begun, |last| begun + cpu_time.min(last) * REST);
        self.last = Some(cpu_time);
    }
}

/// What a sampler keeps between two samples: when it began, by both clocks, and the schedules of all readings.
struct Schedules {
    begun: Instant,
    begun_us: u64,
    readings: [Schedule; Reading::ALL.len()],
}

impl Schedules {
    fn new() -> Schedules {
        let begun = Instant::now();
        Schedules { begun, begun_us: now_us(), readings: [Schedule { due: begun, last: None }; Reading::ALL.len()] }
    }

    /// Returns a sample of the readings that are due. Its time is later than the one before, even if the system's time
    /// was set in between.
    fn sample(&mut self, number: i32) -> Result<Telemetry> {
        let time_us = self.begun_us + self.begun.elapsed().as_micros() as u64;
        read_with(number, time_us, |reading, read| {
            let schedule = &mut self.readings[reading as usize];
            let begun = Instant::now();
            if begun < schedule.due {
                return Ok(None);
            }
            // Measure CPU time, not elapsed time: a reading that sleeps takes no CPU time.
            let before = thread_time();
            let value = read()?;
            schedule.record(begun, thread_time().saturating_sub(before));
            Ok(value)
        })
    }
}

/// Returns the first time after `now` that is a multiple of the interval after the last sample's time. A sampler that
/// was late skips samples, because two at once would be two readings of one moment.
fn next_sample(last: Instant, interval: Duration, now: Instant) -> Instant {
    let missed = now.saturating_duration_since(last).as_nanos() / interval.as_nanos();
    last + interval * u32::try_from(missed + 1).unwrap_or(u32::MAX)
}

impl Shared {
    fn stop(&self) {
        self.ring.lock().stop = true;
        self.ended.notify_all();
    }
}

/// Adds a sample to the ring at each interval, until the sampler is stopped.
fn sample(shared: &Shared, number: i32, interval: Duration, mut schedules: Schedules, mut next: Instant) {
    loop {
        let mut ring = shared.ring.lock();
        next = next_sample(next, interval, Instant::now());
        while !ring.stop && Instant::now() < next {
            shared.ended.wait_until(&mut ring, next);
        }
        // An exiting process and the child of a fork have nothing to read.
        if ring.stop || runtime::usable().is_none() {
            return;
        }
        drop(ring);
        let read = schedules.sample(number);
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

/// Starts sampling a device and returns the new sampler's handle.
pub fn create(number: i32, interval: Duration, capacity: usize) -> Result<u64> {
    let device = runtime::ready()?.device(number)?.ordinal as i32;
    if interval < Duration::from_millis(1) || capacity == 0 {
        let what = "a sampler takes a reading every millisecond at most, and keeps one at least";
        return Err(Error::new(Status::INVALID_VALUE, what));
    }
    // Take the first sample here, so that an unsupported device fails in this call.
    let mut schedules = Schedules::new();
    let begun = schedules.begun;
    let samples = VecDeque::from([schedules.sample(device)?]);
    let ring = Ring { samples, capacity, lost: 0, stop: false, has_ended: false, failure: None };
    let shared = Arc::new(Shared { ring: Mutex::new(ring), ended: Condvar::new() });
    let thread_shared = Arc::clone(&shared);
    let body = move || {
        sample(&thread_shared, device, interval, schedules, begun);
        thread_shared.ring.lock().has_ended = true;
        thread_shared.ended.notify_all();
    };
    let mut threads = THREADS.lock();
    let Some(threads) = &mut *threads else {
        return Err(Error::new(Status::SHUTTING_DOWN, "creating a sampler: the process is exiting"));
    };
    let _blocked = signals::block();
    let thread = std::thread::Builder::new()
        .name("plinth sampler".into())
        .spawn(body)
        .map_err(|error| Error::new(Status::SYSTEM, format!("starting a sampler's thread: {error}")))?;
    threads.push((Arc::clone(&shared), thread));
    SAMPLERS.insert(|sampler| *sampler.0.lock() = Some(shared))
}

/// Removes and returns up to `most` samples, the oldest first, and the number of samples lost since the last call. A
/// sampler that failed returns its remaining samples first, then its error.
pub fn take(handle: u64, most: usize) -> Result<(Vec<Telemetry>, u64)> {
    let shared = match &*SAMPLERS.get(handle)?.0.lock() {
        Some(shared) => Arc::clone(shared),
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

/// Stops sampling and waits for the thread to end.
pub fn destroy(handle: u64) -> Result<()> {
    let mut taken = None;
    // Take it only in the call that removes the handle; afterwards the entry may belong to another sampler.
    SAMPLERS.remove(handle, |sampler| taken = sampler.0.lock().take())?;
    // The thread does not exist in the child of a fork, where another one may have held the lock.
    let (Some(shared), true) = (taken, runtime::usable().is_some()) else { return Ok(()) };
    let mut threads = THREADS.lock();
    let index = threads.iter().flatten().position(|(other, _)| Arc::ptr_eq(other, &shared));
    let found = index.and_then(|index| Some(threads.as_mut()?.swap_remove(index)));
    drop(threads);
    if let Some((_, thread)) = found {
        shared.stop();
        // The thread does not panic; if it did, there would be nowhere to report it.
        let _ = thread.join();
    }
    Ok(())
}

/// Ends all threads, when the process begins to exit.
pub fn stop() {
    let threads = THREADS.lock().take().unwrap_or_default();
    threads.iter().for_each(|(shared, _)| shared.stop());
    for (shared, thread) in threads {
        let mut ring = shared.ring.lock();
        shared.ended.wait_while_for(&mut ring, |ring| !ring.has_ended, EXIT_TIMEOUT);
        let has_ended = ring.has_ended;
        drop(ring);
        if has_ended {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_first_reading_does_not_count() {
        let mut schedule = Schedule { due: Instant::now(), last: None };
        let begun = Instant::now();
        schedule.record(begun, Duration::from_millis(50));
        assert_eq!(schedule.due, begun);
        schedule.record(begun, Duration::from_micros(10));
        assert_eq!(schedule.due, begun + Duration::from_micros(10) * REST);
        schedule.record(begun, Duration::from_millis(50));
        assert_eq!(schedule.due, begun + Duration::from_micros(10) * REST);
    }

    #[test]
    fn a_late_sampler_skips_samples_and_keeps_its_rate() {
        let (begun, interval) = (Instant::now(), Duration::from_millis(10));
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        assert_eq!(next_sample(begun, interval, begun), at(10));
        assert_eq!(next_sample(at(10), interval, at(13)), at(20));
        assert_eq!(next_sample(at(10), interval, at(20)), at(30));
        assert_eq!(next_sample(at(10), interval, at(57)), at(60));
    }

    #[test]
    fn sleep_takes_no_cpu_time() {
        let before = thread_time();
        std::thread::sleep(Duration::from_millis(30));
        assert!(thread_time() - before < Duration::from_millis(10));
        while thread_time() - before < Duration::from_millis(12) {
            std::hint::spin_loop();
        }
    }
}

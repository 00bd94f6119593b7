//! Collectives between the processes of one machine, by kernels that read and write memory which all of them share.
//!
//! The ranks meet in `rendezvous`, and map a `window` of each other's memory. From then on a collective is one launch on
//! each rank, which [`tuning`] chooses a way for; the kernels wait for each other, and the CPU for nothing. `links` between
//! the processes tell who is still there. What breaks a group stays: `call` refuses everything later.
//!
//! docs/collectives_processes.md tells how the kernels keep in step.

mod calls;
mod descriptors;
mod join;
mod links;
mod rendezvous;
mod symmetric_buffer;
pub mod tuning;

use crate::{
    driver::{
        self,
        group::{FailureReport, GroupInfo, LANES, MAX_RANKS, Reason, Report, offsets},
    },
    error::{Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use calls::Orders;
pub use calls::Transfer;
pub use join::Candidate;
pub use links::Row;
use links::{Done, Links, State};
use parking_lot::Mutex;
use rendezvous::Id;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use symmetric_buffer::Window;
use tuning::Tuning;

/// How long work waits for other ranks where nothing else was said: as long as PyTorch's.
pub const TIMEOUT: Duration = Duration::from_secs(600);
/// How long what may wait for a rank that has gone goes on: work, after that one has left a broken group; and the coming of
/// rows, before somebody looks for a reason why it takes so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// One rank's membership in a group.
///
/// It may be used from any thread; all ranks must make the same calls in the same order. A graph that has captured its work
/// must not run any more when it is dropped.
#[derive(Debug)]
pub struct Group {
    rank: u32,
    size: u32,
    device: u32,
    tuning: Tuning,
    links: Links,
    timeout: AtomicU64,
    /// Windows of all ranks, the own one included.
    windows: Vec<Window>,
    /// Taken when the group is dropped.
    report: Option<Report>,
    /// For what is said to other ranks beside the collectives.
    stream: driver::Stream,
    orders: Mutex<Orders>,
    /// When a rank was found to have left a broken group while there was work.
    left: Mutex<Option<Instant>>,
}

impl Group {
    /// A new group's name, which any process may make, to be passed to the others by any channel.
    pub fn new_id() -> Result<[u8; 128]> {
        Ok(Id::new()?.bytes())
    }

    /// Whether [`new_id`](Self::new_id) made this.
    pub fn is_id(bytes: &[u8; 128]) -> bool {
        Id::read(bytes).is_some()
    }

    /// Which rank this is.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of this rank's device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// How this rank chooses its ways.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// How long work that is launched from now on waits for other ranks; zero is for ever.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Gives every process the bytes of each, in the order of ranks, through the CPU. Collective, and blocks.
    pub fn gather_bytes(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect(&self.bring(mine)?)
    }

    /// The first half of [`gather_bytes`](Self::gather_bytes), which does not block: the order of rows is that of these calls.
    pub fn bring(&self, mine: &[u8]) -> Result<Row> {
        self.links.bring(mine)
    }

    /// The second half. A row that does not come in time breaks the group: the others may have taken this rank's, and what
    /// they make of it would lack a rank.
    pub fn collect(&self, row: &Row) -> Result<Vec<Vec<u8>>> {
        let timeout = Duration::from_nanos(self.timeout.load(Ordering::Relaxed));
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            let (peer, state) = match self.links.take(row) {
                Ok(rows) => return Ok(rows),
                Err(missing) => missing,
            };
            if start.elapsed() > PATIENCE {
                self.look_around();
            }
            if self.report.as_ref().is_some_and(|report| report.stopped().is_some()) {
                return Err(self.broken().unwrap_or_else(no_reason));
            }
            let (reason, status, what) = match state {
                State::Here if timeout.is_zero() || start.elapsed() <= timeout => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(1));
                    continue;
                }
                State::Here => {
                    (Reason::Timeout, Status::TIMED_OUT, format!("waited {:?} for, in vain", start.elapsed()))
                }
                State::Aborted => (Reason::Aborted, Status::ABORTED, "needs, gave up the group".to_owned()),
                State::Left { .. } | State::Gone => {
                    (Reason::Lost, Status::PEER_LOST, "needs, is not there any more".to_owned())
                }
            };
            self.give_up(reason.word(peer));
            return Err(Error::new(status, format!("rank {peer}, whose bytes rank {} {what}", self.rank)));
        }
    }

    /// What has broken the group, if anything has. Finds out about ranks that are gone, and ends the work that waits for
    /// them.
    pub fn error(&self) -> Option<Error> {
        self.look_around();
        self.broken()
    }

    /// Breaks the group: work of it that waits ends, here and at the other ranks, and no more is taken.
    pub fn abort(&self) {
        self.give_up(Reason::Aborted.word(self.rank));
    }

    /// Breaks the group, here and at the other ranks.
    fn give_up(&self, word: u32) {
        let Some(report) = &self.report else { return };
        if report.stopped().is_some() {
            return;
        }
        report.stop(word);
        self.links.abort();
        let Some(runtime) = runtime::usable() else { return };
        // To where the others' kernels look, and to where later launches of this rank do. A rank that this does not reach
        // hears of it through its link, or waits in vain for as long as it was told.
        let marks = self.windows.iter().enumerate().map(|(peer, window)| {
            let own = peer as u32 == self.rank;
            window.part(if own { offsets::FAILED } else { offsets::POISON + u64::from(self.rank) * 4 }, 4)
        });
        let _ = runtime.driver.with_relaxed_capture(|| {
            for mark in marks {
                let _ = runtime.in_any_context(|driver| Ok(driver.fill_32(mark, word, self.stream)?));
            }
        });
    }

    /// What breaks the group, as far as that is known here without looking.
    fn broken(&self) -> Option<Error> {
        let report = self.report.as_ref()?;
        let told = match (report.read(), report.stopped()) {
            (Some(told), _) => told,
            (None, Some(word)) => FailureReport { word, by: self.rank, own: [0; 4], other: [0; 4] },
            (None, None) => return None,
        };
        Some(calls::explain(self.rank, self.size, &told))
    }

    /// Looks whether all ranks are there.
    fn look_around(&self) {
        let Some(report) = &self.report else { return };
        let (mut missed, mut left) = (None, None);
        for (rank, state) in self.links.missing() {
            match state {
                State::Here => {}
                State::Gone => report.stop(Reason::Lost.word(rank)),
                State::Aborted => report.stop(Reason::Aborted.word(rank)),
                // A rank leaves when its own work is done, and then it has done its part of what others still do, however
                // long that takes; but not of what is more than that, which waits for ever.
                State::Left { done: Some(done) } if self.orders.lock().exceed(rank, &done) => {
                    missed = missed.or(Some(rank))
                }
                State::Left { done: Some(_) } => {}
                State::Left { done: None } => left = left.or(Some(rank)),
            }
        }
        if let Some(rank) = missed {
            report.stop(Reason::Lost.word(rank));
        }
        // One for which the group was broken is not what is missed: another one broke it, as it has told; unless that did
        // not get here.
        let mut since = self.left.lock();
        match left {
            Some(rank) if !self.orders.lock().is_idle() => {
                if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    report.stop(Reason::Lost.word(rank));
                }
            }
            _ => *since = None,
        }
    }

    /// What this rank has done for each other one, as the kernels have counted, so with all replays. None of them runs.
    fn done(&self, runtime: &Runtime) -> Option<Vec<Done>> {
        let mut counts = [0; offsets::POISON as usize];
        let window = self.windows.get(self.rank as usize)?;
        let read = runtime.driver.with_relaxed_capture(|| {
            let device = runtime.device(self.device as i32)?;
            device.with_context(&runtime.driver, |driver| {
                Ok(driver.copy_to_host(&mut counts, window.part(0, offsets::POISON), self.stream)?)
            })
        });
        read.ok()?.ok()?;
        let (words, _) = counts.as_chunks::<8>();
        let word = |at: u64| words.get(at as usize / 8).map_or(0, |word| u64::from_le_bytes(*word));
        let lane = |base: u64, peer: u64| word(base + peer * u64::from(LANES) * 8);
        let of = |peer: u64| Done {
            collectives: word(offsets::CALLS),
            sent: lane(offsets::SENT, peer),
            received: lane(offsets::RECEIVED, peer),
        };
        Some((0..u64::from(self.size)).map(of).collect())
    }

    /// What the kernels are to know.
    fn group_info(&self) -> GroupInfo {
        let mut windows = [0; MAX_RANKS];
        for (place, window) in windows.iter_mut().zip(&self.windows) {
            *place = window.address();
        }
        GroupInfo {
            windows,
            window_bytes: self.windows.first().map_or(0, Window::bytes),
            report: self.report.as_ref().map_or(0, Report::address),
            timeout: self.timeout.load(Ordering::Relaxed),
            rank: self.rank,
            size: self.size,
            slot: self.tuning.slot(self.size) as u32,
            entry: self.tuning.entry as u32,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(runtime) = runtime::usable() else { return };
        let Some(report) = self.report.take() else { return self.release(runtime) };
        self.report = Some(report);
        // What was launched ends: with the others' part, or when they are found gone, or by its own clock.
        let mut pause = Duration::from_micros(20);
        while !self.orders.lock().is_idle() {
            self.look_around();
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        let done = if self.size > 1 && self.broken().is_none() { self.done(runtime) } else { None };
        self.links.leave(|rank| done.as_ref()?.get(rank as usize).copied());
        self.release(runtime);
    }
}

impl Group {
    fn release(&mut self, runtime: &'static Runtime) {
        let driver = &runtime.driver;
        let released = driver.with_relaxed_capture(|| {
            let Ok(device) = runtime.device(self.device as i32) else { return };
            let _ = device.with_context(driver, |driver| {
                // Marks of an abort may be on their way.
                let _ = driver.stream_synchronize(self.stream);
                let _ = driver.stream_destroy(self.stream);
                for window in self.windows.drain(..) {
                    window.release(driver);
                }
                if let Some(report) = self.report.take() {
                    let _ = driver.report_free(report);
                }
                Ok(())
            });
            self.orders.get_mut().give_back(device);
        });
        // A driver that refuses this is lost, and everything with it.
        let _ = released;
    }
}

#[cold]
fn no_reason() -> Error {
    Error::new(Status::ABORTED, "the group is broken")
}

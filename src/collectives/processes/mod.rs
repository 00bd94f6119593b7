//! Collectives between the processes of one machine, by kernels that read and write shared memory.
//!
//! The ranks exchange handles in the `rendezvous`, and map each other's `symmetric_buffer`. From then on a collective
//! is one launch on each rank, whose algorithm [`tuning`] selects; the kernels wait for each other, and the CPU waits
//! for nothing. `links` between the processes detect ranks that leave or die. Errors of a group are sticky: `calls`
//! rejects every later call.
//!
//! docs/collectives_processes.md describes how the kernels synchronize.

mod calls;
mod descriptors;
mod join;
mod links;
mod rendezvous;
mod symmetric_buffer;
pub mod tuning;

use crate::{
    base::deadline::Deadline,
    driver::{
        self,
        group::{FailureReport, GroupInfo, LANES, MAX_RANKS, Reason, Report, offsets},
    },
    error::{Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use calls::LaunchOrders;
pub use calls::Transfer;
pub use join::Candidate;
pub use links::GatherRow;
use links::{CompletedWork, LinkState, Links};
use parking_lot::Mutex;
use rendezvous::Id;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use symmetric_buffer::SymmetricBuffer;
use tuning::Tuning;

/// The default timeout of waits for other ranks, the same as PyTorch's.
pub const TIMEOUT: Duration = Duration::from_secs(600);
/// The grace period for waits on a rank that may be gone: for work, after that rank has left an aborted group; for
/// rows, before their absence is investigated.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// One rank's membership in a process group.
///
/// It may be used from any thread; all ranks must make the same calls in the same order. A graph that has captured its
/// work must not run after it is dropped.
#[derive(Debug)]
pub struct ProcessGroup {
    rank: u32,
    size: u32,
    device: u32,
    tuning: Tuning,
    links: Links,
    timeout: AtomicU64,
    /// The symmetric buffers of all ranks, including this one.
    buffers: Vec<SymmetricBuffer>,
    /// `None` after the group is dropped.
    report: Option<Report>,
    /// For notifications of other ranks beside the collectives.
    stream: driver::Stream,
    orders: Mutex<LaunchOrders>,
    /// The time at which a rank was found to have left an aborted group while work was pending.
    left: Mutex<Option<Instant>>,
}

impl ProcessGroup {
    /// Creates the id of a new group. Any process may create it and pass it to the others over any channel.
    pub fn new_id() -> Result<[u8; 128]> {
        Ok(Id::new()?.bytes())
    }

    /// Returns whether the bytes were created by [`new_id`](Self::new_id).
    pub fn is_id(bytes: &[u8; 128]) -> bool {
        Id::read(bytes).is_some()
    }

    /// Returns this rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the ordinal of this rank's device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// Returns the tuning of this rank.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Sets how long later work waits for other ranks; zero means forever.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Gathers the bytes of all processes in the order of ranks, through the CPU. Collective; blocks.
    pub fn gather_bytes(&self, own_row: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect_rows(&self.send_row(own_row)?)
    }

    /// Sends this rank's row of a gather, without blocking. Rows are matched by the order of these calls.
    pub fn send_row(&self, own_row: &[u8]) -> Result<GatherRow> {
        self.links.send_row(own_row)
    }

    /// Waits for the rows of all ranks. A row that does not arrive in time aborts the group: the other ranks may have
    /// received this rank's row, and would continue without this rank.
    pub fn collect_rows(&self, row: &GatherRow) -> Result<Vec<Vec<u8>>> {
        let timeout = Duration::from_nanos(self.timeout.load(Ordering::Relaxed));
        let deadline = Deadline::optional((!timeout.is_zero()).then_some(timeout));
        let mut pause = Duration::from_micros(50);
        loop {
            let (peer, state) = match self.links.try_collect(row) {
                Ok(rows) => return Ok(rows),
                Err(missing) => missing,
            };
            if deadline.elapsed() > GRACE_PERIOD {
                self.check_peers();
            }
            if self.report.as_ref().is_some_and(|report| report.stopped().is_some()) {
                return Err(self.sticky_error().unwrap_or_else(unknown_error));
            }
            let (reason, status, what) = match state {
                LinkState::Connected if !deadline.is_expired() => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(1));
                    continue;
                }
                LinkState::Connected => {
                    (Reason::Timeout, Status::TIMED_OUT, format!("did not send them within {:?}", deadline.elapsed()))
                }
                LinkState::Aborted => (Reason::Aborted, Status::ABORTED, "aborted the group".to_owned()),
                LinkState::Left { .. } | LinkState::Gone => (Reason::Lost, Status::PEER_LOST, "is gone".to_owned()),
            };
            self.abort_with(reason.word(peer));
            return Err(Error::new(
                status,
                format!("rank {} waited for the bytes of rank {peer}, which {what}", self.rank),
            ));
        }
    }

    /// Returns the sticky error of the group, if it has one. Detects ranks that are gone, and ends the work that waits
    /// for them.
    pub fn error(&self) -> Option<Error> {
        self.check_peers();
        self.sticky_error()
    }

    /// Aborts the group: its pending work ends, here and at the other ranks, and later calls fail.
    pub fn abort(&self) {
        self.abort_with(Reason::Aborted.word(self.rank));
    }

    /// Aborts the group, here and at the other ranks.
    fn abort_with(&self, word: u32) {
        let Some(report) = &self.report else { return };
        if report.stopped().is_some() {
            return;
        }
        report.stop(word);
        self.links.abort();
        let Some(runtime) = runtime::usable() else { return };
        // Write to the words that the other ranks' kernels poll, and to the word that later launches of this rank
        // check. A rank that this does not reach is notified through its link, or waits until its timeout.
        let marks = self.buffers.iter().enumerate().map(|(peer, buffer)| {
            let own = peer as u32 == self.rank;
            buffer.part(if own { offsets::FAILED } else { offsets::POISON + u64::from(self.rank) * 4 }, 4)
        });
        let _ = runtime.driver.with_relaxed_capture(|| {
            for mark in marks {
                let _ = runtime.in_any_context(|driver| Ok(driver.fill_32(mark, word, self.stream)?));
            }
        });
    }

    /// Returns the sticky error as far as it is known without polling the links.
    fn sticky_error(&self) -> Option<Error> {
        let report = self.report.as_ref()?;
        let report_word = match (report.read(), report.stopped()) {
            (Some(report_word), _) => report_word,
            (None, Some(word)) => FailureReport { word, by: self.rank, own: [0; 4], other: [0; 4] },
            (None, None) => return None,
        };
        Some(calls::explain(self.rank, self.size, &report_word))
    }

    /// Checks that all ranks are still there.
    fn check_peers(&self) {
        let Some(report) = &self.report else { return };
        let (mut lost, mut left) = (None, None);
        for (rank, state) in self.links.missing() {
            match state {
                LinkState::Connected => {}
                LinkState::Gone => report.stop(Reason::Lost.word(rank)),
                LinkState::Aborted => report.stop(Reason::Aborted.word(rank)),
                // A rank leaves when its own work is done. It has then done its part of the others' pending work,
                // however long that takes, but not of later work, which would wait forever.
                LinkState::Left { done: Some(done) } if self.orders.lock().exceeds(rank, &done) => {
                    lost = lost.or(Some(rank))
                }
                LinkState::Left { done: Some(_) } => {}
                LinkState::Left { done: None } => left = left.or(Some(rank)),
            }
        }
        if let Some(rank) = lost {
            report.stop(Reason::Lost.word(rank));
        }
        // A rank that left an aborted group is not the cause: another rank aborted it and has notified the others,
        // unless the notification was lost.
        let mut since = self.left.lock();
        match left {
            Some(rank) if !self.orders.lock().is_idle() => {
                if since.get_or_insert_with(Instant::now).elapsed() > GRACE_PERIOD {
                    report.stop(Reason::Lost.word(rank));
                }
            }
            _ => *since = None,
        }
    }

    /// Returns the work that this rank has completed with each other rank, as the kernels have counted it, including
    /// replays. No work of this rank may be running.
    fn completed(&self, runtime: &Runtime) -> Option<Vec<CompletedWork>> {
        let mut counts = [0; offsets::POISON as usize];
        let buffer = self.buffers.get(self.rank as usize)?;
        let read = runtime.driver.with_relaxed_capture(|| {
            let device = runtime.device(self.device as i32)?;
            device.with_context(&runtime.driver, |driver| {
                Ok(driver.copy_to_host(&mut counts, buffer.part(0, offsets::POISON), self.stream)?)
            })
        });
        read.ok()?.ok()?;
        let (words, _) = counts.as_chunks::<8>();
        let word = |at: u64| words.get(at as usize / 8).map_or(0, |word| u64::from_le_bytes(*word));
        let lane = |base: u64, peer: u64| word(base + peer * u64::from(LANES) * 8);
        let of = |peer: u64| CompletedWork {
            collectives: word(offsets::CALLS),
            sent: lane(offsets::SENT, peer),
            received: lane(offsets::RECEIVED, peer),
        };
        Some((0..u64::from(self.size)).map(of).collect())
    }

    /// Returns the parameters that all kernels of the group share.
    fn group_info(&self) -> GroupInfo {
        let mut windows = [0; MAX_RANKS];
        for (address, buffer) in windows.iter_mut().zip(&self.buffers) {
            *address = buffer.address();
        }
        GroupInfo {
            windows,
            window_bytes: self.buffers.first().map_or(0, SymmetricBuffer::bytes),
            report: self.report.as_ref().map_or(0, Report::address),
            timeout: self.timeout.load(Ordering::Relaxed),
            rank: self.rank,
            size: self.size,
            slot: self.tuning.slot(self.size) as u32,
            entry: self.tuning.entry as u32,
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let Some(runtime) = runtime::usable() else { return };
        let Some(report) = self.report.take() else { return self.release(runtime) };
        self.report = Some(report);
        // Pending work ends: when the others do their part, when they are found to be gone, or at its own timeout.
        let mut pause = Duration::from_micros(20);
        while !self.orders.lock().is_idle() {
            self.check_peers();
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        let completed = if self.size > 1 && self.sticky_error().is_none() { self.completed(runtime) } else { None };
        self.links.leave(|rank| completed.as_ref()?.get(rank as usize).copied());
        self.release(runtime);
    }
}

impl ProcessGroup {
    fn release(&mut self, runtime: &'static Runtime) {
        let driver = &runtime.driver;
        let released = driver.with_relaxed_capture(|| {
            let Ok(device) = runtime.device(self.device as i32) else { return };
            let _ = device.with_context(driver, |driver| {
                // Notifications of an abort may be pending.
                let _ = driver.stream_synchronize(self.stream);
                let _ = driver.stream_destroy(self.stream);
                for buffer in self.buffers.drain(..) {
                    buffer.release(driver);
                }
                if let Some(report) = self.report.take() {
                    let _ = driver.report_free(report);
                }
                Ok(())
            });
        });
        // If the driver refuses this, its context is lost, and all resources with it.
        let _ = released;
    }
}

#[cold]
fn unknown_error() -> Error {
    Error::new(Status::ABORTED, "the group is broken")
}

//! Collectives between the processes of one machine, by kernels that read and write shared memory.
//!
//! The ranks exchange handles in the `rendezvous`, and map each other's `symmetric_buffer`. From then on a collective
//! is one launch on each rank, whose algorithm [`tuning`] selects; the kernels wait for each other, and the CPU waits
//! for nothing. `links` between the processes detect ranks that leave or die. Errors of a group are sticky: `calls`
//! rejects every later call.
//!
//! docs/collectives_processes.md describes how the kernels synchronize.

mod admission;
mod calls;
mod descriptors;
mod failure_report;
mod group_registration;
mod join;
mod launch_orders;
mod links;
mod rendezvous;
mod row_number;
mod shrink;
mod sleep;
mod symmetric_buffer;
pub mod tuning;

use crate::{
    base::{
        deadline::Deadline,
        log::{self, Level},
        retry::retry,
    },
    collectives::sleep::SleepState,
    driver::{
        self,
        group::{FailureReport, GroupInfo, LANES, MAX_RANKS, Mode, Reason, Report, offsets},
    },
    error::{Error, Result},
    runtime::{self, Runtime, sync_debug},
    status::Status,
};
pub use calls::Transfer;
use group_registration::GroupRegistration;
pub use join::Candidate;
use launch_orders::{CompletedWork, LaunchOrders, LaunchedWork};
pub use links::GatherRow;
use links::{ForeignRow, LinkState, Links};
use parking_lot::{Mutex, RwLock};
use rendezvous::Id;
use sleep::SavedContents;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use symmetric_buffer::SymmetricBuffer;
use tuning::Tuning;

/// The longest time, beside the timeout of the work itself, for which the end of a rank waits for its work.
const LONGEST_END: Duration = Duration::from_secs(60);

/// The default timeout of waits for other ranks, the same as PyTorch's.
pub const TIMEOUT: Duration = Duration::from_secs(600);
/// The grace period for waits on a rank that may be gone: for work, after that rank has left; for rows, before their
/// absence is investigated; for splits, after that rank is gone.
const GRACE_PERIOD: Duration = Duration::from_secs(1);
/// How long a rank waits for the cause of a failure after a gather, after which another rank counts as gone.
const CAUSE_LIMIT: Duration = Duration::from_secs(2);

/// A call of all ranks that gathers rows, or, for a shrink, of those that remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum GatheringCall {
    /// [`ProcessGroup::gather_bytes`].
    Gather = 1,
    /// Registers memory.
    Register,
    /// Splits a communicator.
    Split,
    /// Puts the group to sleep.
    Sleep,
    /// Wakes the group.
    Wake,
    /// Makes a communicator of some ranks, which alone make the call.
    Shrink,
}

impl GatheringCall {
    const ALL: [GatheringCall; 6] = [
        GatheringCall::Gather,
        GatheringCall::Register,
        GatheringCall::Split,
        GatheringCall::Sleep,
        GatheringCall::Wake,
        GatheringCall::Shrink,
    ];

    /// Returns the call to which a row belongs.
    fn of_row(row: &[u8]) -> Option<GatheringCall> {
        GatheringCall::ALL.into_iter().find(|call| row.first() == Some(&(*call as u8)))
    }

    fn name_of_row(row: &[u8]) -> &'static str {
        GatheringCall::of_row(row).map_or("an unknown call", GatheringCall::name)
    }

    fn name(self) -> &'static str {
        match self {
            GatheringCall::Gather => "gather_bytes",
            GatheringCall::Register => "register",
            GatheringCall::Split => "split",
            GatheringCall::Sleep => "sleep",
            GatheringCall::Wake => "wake",
            GatheringCall::Shrink => "shrink",
        }
    }
}

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
    /// Held during launches, which may wait for room in a stream: only work that ends gives it.
    orders: Mutex<LaunchOrders>,
    /// What was launched outside of captures.
    launched: LaunchedWork,
    /// Whether the other ranks were notified of the end of the group.
    has_notified: AtomicBool,
    /// The first failure that this process knows of beside its kernels' report: the encoded reason, and above it the rank that
    /// detected it.
    failure: AtomicU64,
    /// The time at which work was found to wait for a rank that has left.
    left: Mutex<Option<Instant>>,
    sleep: Arc<SleepState>,
    /// While the group sleeps, the contents of this rank's buffer that are restored. Locked while memory that may be
    /// unmapped is used outside of launches.
    contents: Mutex<Option<SavedContents>>,
    /// Held while the group falls asleep or wakes.
    changing: Mutex<()>,
    /// The memory that the ranks have registered. Locked before `orders`.
    registrations: RwLock<Vec<GroupRegistration>>,
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

    /// Returns the deadline of a wait that begins now.
    fn deadline(&self) -> Deadline<'static> {
        let timeout = Duration::from_nanos(self.timeout.load(Ordering::Relaxed));
        Deadline::optional((!timeout.is_zero()).then_some(timeout))
    }

    /// Gathers the bytes of all processes in the order of ranks, through the CPU. Collective; blocks.
    pub fn gather_bytes(&self, own_row: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect_rows(&self.send_row(GatheringCall::Gather, own_row)?)
    }

    /// Sends this rank's row of a gather, without blocking. Rows are matched by the order of these calls.
    pub fn send_row(&self, call: GatheringCall, own_row: &[u8]) -> Result<GatherRow> {
        self.links.send_row(&[&[call as u8], own_row].concat())
    }

    /// Returns the contents of rows that belong to the same call. Otherwise the group fails.
    fn of_one_call(&self, rows: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let own = &rows[self.rank as usize];
        let is_other = |row: &Vec<u8>| GatheringCall::of_row(row) != GatheringCall::of_row(own);
        match rows.iter().position(is_other) {
            Some(peer) => Err(self.mismatch(own, (peer as u32, &rows[peer]))),
            None => Ok(rows.into_iter().map(|mut row| row.split_off(1)).collect()),
        }
    }

    /// Ends the group, because another rank has sent the row of another call than this one.
    fn mismatch(&self, own: &[u8], (peer, other): (u32, &[u8])) -> Error {
        self.fail_with(Reason::Mismatch.word(peer));
        let [own, other] = [own, other].map(GatheringCall::name_of_row);
        let message =
            format!("collective mismatch: rank {} of {} calls {own}, rank {peer} calls {other}", self.rank, self.size);
        Error::new(Status::RANK_MISMATCH, message)
    }

    /// Waits for the rows of all ranks. A row that does not arrive in time aborts the group: the other ranks may have
    /// received this rank's row, and would continue without this rank.
    pub fn collect_rows(&self, row: &GatherRow) -> Result<Vec<Vec<u8>>> {
        let deadline = self.deadline();
        let mut pause = Duration::from_micros(50);
        loop {
            let (peer, state) = match self.links.try_collect(row) {
                Ok(rows) => return self.of_one_call(rows),
                Err(missing) => missing,
            };
            // A rank that has left may have learned of a failure that another one has sent before.
            if deadline.elapsed() > GRACE_PERIOD || matches!(state, LinkState::Left { .. }) {
                self.check_peers();
            }
            if let Some((word, _)) = self.known_failure() {
                self.fail_with(word);
                return Err(self.sticky_error().unwrap_or_else(unknown_error));
            }
            // What a shrink excludes is free to make other calls.
            let matters = |row: &ForeignRow| row.excluded().is_some_and(|excluded| !excluded.contains(&self.rank));
            if let Some(foreign) = self.links.foreign_row(row, matters) {
                return Err(self.mismatch(row.bytes(), (foreign.rank, &foreign.bytes)));
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
                LinkState::Failed { word, by } => {
                    if let Some(report) = &self.report {
                        self.stop(report, word, by);
                    }
                    self.fail_with(word);
                    return Err(self.sticky_error().unwrap_or_else(unknown_error));
                }
                LinkState::Left { .. } | LinkState::Gone => (Reason::Lost, Status::PEER_LOST, "is gone".to_owned()),
            };
            self.fail_with(reason.word(peer));
            return Err(Error::new(
                status,
                format!("rank {} waited for the bytes of rank {peer}, which {what}", self.rank),
            ));
        }
    }

    /// Runs what `ranks` do together after a gather. If one of them fails, all fail at once, with its error; `run` polls
    /// its parameter for such an error. `whose` describes the ranks.
    pub fn after_gather<T>(
        &self,
        row: &GatherRow,
        ranks: &[usize],
        whose: &str,
        run: impl FnOnce(&dyn Fn() -> Option<Error>) -> Result<T>,
    ) -> Result<T> {
        // A failure of the whole group ends the call. A rank that only this one has lost matters only if it is one of `ranks`.
        let is_known_elsewhere = || self.known_failure().is_some_and(|(_, by)| by != self.rank);
        let ends = |error: &Error| error.status() != Status::PEER_LOST || is_known_elsewhere();
        self.run_together(row, ranks, whose, &|| self.error().filter(ends), run)
    }

    /// The same, where `ended` returns a further reason to stop.
    fn run_together<T>(
        &self,
        row: &GatherRow,
        ranks: &[usize],
        whose: &str,
        ended: &dyn Fn() -> Option<Error>,
        run: impl FnOnce(&dyn Fn() -> Option<Error>) -> Result<T>,
    ) -> Result<T> {
        let failed = || {
            let (rank, error) = self.links.failure_after(row, ranks)?;
            Some(error.context(format_args!("rank {rank} of {whose}")))
        };
        let stop = || ended().or_else(failed);
        let done = run(&stop).map_err(|error| match error.status() {
            // The rank that closed its connection is about to send the cause.
            Status::PEER_LOST => Deadline::new(CAUSE_LIMIT).until(|| "a rank failed", || Ok(failed())).unwrap_or(error),
            _ => error,
        });
        done.inspect_err(|error| {
            // The others would wait for this rank, unless it fails because of one of them.
            if failed().is_none() {
                self.send_failure(row, error);
            }
        })
    }

    /// Notifies the other ranks that this rank failed to do what all ranks do after a gather.
    pub fn send_failure(&self, row: &GatherRow, error: &Error) {
        self.links.send_failure(row, error);
    }

    /// Returns the sticky error of the group, if it has one. Detects ranks that are gone, and ends the work that waits
    /// for them.
    pub fn error(&self) -> Option<Error> {
        self.check_peers();
        self.sticky_error()
    }

    /// Notifies the other ranks of a failure that kernels have found: they may wait for this rank on the CPU, where
    /// kernels tell them nothing.
    pub fn announce_failure(&self) {
        if let Some(failure) = self.report.as_ref().and_then(Report::read) {
            self.fail_with(failure.word);
        }
    }

    /// Aborts the group: its pending work ends, here and at the other ranks, and later calls fail.
    pub fn abort(&self) {
        self.fail_with(Reason::Aborted.word(self.rank));
    }

    /// Ends this rank's work for an encoded reason that a rank has detected, unless it has ended before.
    fn stop(&self, report: &Report, word: u32, by: u32) {
        let failure = u64::from(word) | u64::from(by) << 32;
        let known = self.failure.compare_exchange(0, failure, Ordering::AcqRel, Ordering::Acquire);
        report.stop(known.map_or_else(|known| known as u32, |_| word));
    }

    /// Returns the encoded reason of the first failure that the kernels did not find, and the rank that detected it.
    fn known_failure(&self) -> Option<(u32, u32)> {
        let known = self.failure.load(Ordering::Acquire);
        (known != 0).then_some((known as u32, (known >> 32) as u32))
    }

    /// Returns why the group has failed.
    fn cause(&self) -> Option<FailureReport> {
        match (self.report.as_ref()?.read(), self.known_failure()) {
            // The kernels report what stopped them as their own finding.
            (Some(failure), Some((word, by))) if (failure.word, failure.by) == (word, self.rank) => {
                Some(FailureReport { by, ..failure })
            }
            (Some(failure), _) => Some(failure),
            (None, Some((word, by))) => Some(FailureReport { word, by, own: [0; 4], other: [0; 4] }),
            (None, None) => None,
        }
    }

    /// Ends the group, here and at the other ranks, which may not know yet why it has failed here.
    fn fail_with(&self, word: u32) {
        let Some(report) = &self.report else { return };
        self.stop(report, word, self.rank);
        if self.has_notified.swap(true, Ordering::Relaxed) {
            return;
        }
        // What was known before is the cause, for the others, too.
        let (word, by) = self.cause().map_or((word, self.rank), |cause| (cause.word, cause.by));
        self.links.fail(word, by);
        let Some(runtime) = runtime::usable() else { return };
        let contents = self.contents.lock();
        if contents.is_some() {
            // The group sleeps: no kernel polls, and no launch follows.
            return;
        }
        // Write to the words that the other ranks' kernels poll, and to the word that later launches of this rank
        // check. A rank that this does not reach is notified through its link, or waits until its timeout.
        let marks = self.buffers.iter().enumerate().map(|(peer, buffer)| {
            let own = peer as u32 == self.rank;
            buffer.part(if own { offsets::FAILED } else { offsets::PEER_FAILED + u64::from(self.rank) * 4 }, 4)
        });
        let _ = runtime.driver.with_relaxed_capture(|| {
            for mark in marks {
                let _ = runtime.in_any_context(|driver| Ok(driver.fill_32(mark, word, self.stream)?));
            }
        });
    }

    /// Returns the sticky error as far as it is known without polling the links.
    fn sticky_error(&self) -> Option<Error> {
        Some(failure_report::explain(self.rank, self.size, &self.cause()?))
    }

    /// Checks that all ranks are still there.
    fn check_peers(&self) {
        let Some(report) = &self.report else { return };
        let (mut lost, mut left) = (None, None);
        for (rank, state) in self.links.missing() {
            match state {
                LinkState::Connected => {}
                LinkState::Gone => self.stop(report, Reason::Lost.word(rank), self.rank),
                LinkState::Failed { word, by } => self.stop(report, word, by),
                // A rank leaves when its own work is done. It has then done its part of the others' pending work,
                // however long that takes, but not of later work, which would wait forever.
                LinkState::Left { done: Some(done) } if self.launched.exceeds(rank, &done) => {
                    lost = lost.or(Some(rank))
                }
                LinkState::Left { done: Some(done) } if !self.waits_for(rank, &done) => {}
                LinkState::Left { done: None } if self.is_idle() => {}
                LinkState::Left { .. } => left = left.or(Some(rank)),
            }
        }
        if let Some(rank) = lost {
            self.stop(report, Reason::Lost.word(rank), self.rank);
        }
        // A rank that left an aborted group is not the cause: another rank aborted it and has notified the others,
        // unless the notification was lost. Work that waits for another rank may just be ending.
        let mut since = self.left.lock();
        match left {
            Some(rank) => {
                if since.get_or_insert_with(Instant::now).elapsed() > GRACE_PERIOD {
                    self.stop(report, Reason::Lost.word(rank), self.rank);
                }
            }
            _ => *since = None,
        }
    }

    /// Reads what the kernels of this rank have counted, including replays.
    fn counters(&self, runtime: &Runtime) -> Option<Counters> {
        let mut counts = [0; Counters::BYTES];
        let buffer = self.buffers.get(self.rank as usize)?;
        let contents = self.contents.lock();
        if let Some(contents) = &*contents {
            return contents.counters();
        }
        let read = runtime.driver.with_relaxed_capture(|| {
            let device = runtime.device(self.device as i32)?;
            device.with_context(&runtime.driver, |driver| {
                sync_debug::require("the check of a group's ranks", || {
                    Ok(driver.copy_to_host(&mut counts, buffer.part(0, Counters::BYTES as u64), self.stream)?)
                })
            })
        });
        read.ok()?.ok()?;
        Some(Counters(counts))
    }

    /// Returns whether this rank waits in a collective for a rank that has left, which [`LaunchedWork::exceeds`] cannot
    /// detect because of replays. The answer is meaningful only if it stays the same for a while, because the kernels
    /// count their work shortly before their events complete.
    fn waits_for(&self, peer: u32, done: &CompletedWork) -> bool {
        let Some(counters) = runtime::usable().and_then(|runtime| self.counters(runtime)) else { return false };
        // A collective that runs may be one of a replay, of which nothing else is known here.
        counters.completed_with(peer).collectives >= done.collectives
            && (counters.is_in_collective(self.rank)
                || self.orders.try_lock().is_some_and(|orders| orders.has_pending_collective()))
    }

    /// Returns whether all work launched outside of captures has completed. A launch that waits for room is not idle.
    fn is_idle(&self) -> bool {
        self.orders.try_lock().is_some_and(|orders| orders.is_idle())
    }

    /// Returns the parameters that all kernels of the group share.
    fn group_info(&self) -> GroupInfo {
        let mut buffers = [0; MAX_RANKS];
        for (address, buffer) in buffers.iter_mut().zip(&self.buffers) {
            *address = buffer.address();
        }
        GroupInfo {
            buffers,
            buffer_bytes: self.buffers.first().map_or(0, SymmetricBuffer::bytes),
            report: self.report.as_ref().map_or(0, Report::address),
            timeout: self.timeout.load(Ordering::Relaxed),
            eager_transfer: self.tuning.eager_transfer(),
            rank: self.rank,
            size: self.size,
            slot: self.tuning.slot(self.size) as u32,
            entry: self.tuning.entry as u32,
            packets: self.tuning.packets as u32,
            piece: self.tuning.piece as u32,
            lanes: self.tuning.lanes,
            broadcast: self.tuning.packets_for(Mode::Broadcast) as u32,
            short_transfer: self.tuning.short_transfer() as u32,
            short_entry: self.tuning.short_entry() as u32,
        }
    }
}

/// The start of a rank's symmetric buffer, with the counters of its kernels.
struct Counters([u8; Counters::BYTES]);

impl Counters {
    /// Everything up to the flags of the first block.
    const BYTES: usize = offsets::FLAGS as usize + MAX_RANKS * 8;

    fn word(&self, at: u64) -> u64 {
        self.0.as_chunks::<8>().0.get(at as usize / 8).map_or(0, |word| u64::from_le_bytes(*word))
    }

    /// Returns a number of which each turn has one: the newer one.
    fn count(&self, at: u64) -> u64 {
        self.word(at).max(self.word(at + offsets::TURN))
    }

    /// Returns the work that this rank has completed with another rank.
    fn completed_with(&self, peer: u32) -> CompletedWork {
        let lane = |base: u64| self.word(base + u64::from(peer) * u64::from(LANES) * 8);
        CompletedWork {
            collectives: self.count(offsets::CALLS),
            sent: lane(offsets::SENT),
            received: lane(offsets::RECEIVED),
        }
    }

    /// Returns whether a collective of this rank has begun and not ended: it publishes the number of each step before
    /// it waits, and stores the number of steps at its end.
    fn is_in_collective(&self, rank: u32) -> bool {
        self.word(offsets::FLAGS + u64::from(rank) * 8) > self.count(offsets::STEPS)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let Some(runtime) = runtime::usable() else { return };
        if self.report.is_none() {
            return self.release(runtime);
        }
        // Pending work ends: when the others do their part, when they are found to be gone, or at its own timeout.
        let mut pause = Duration::from_micros(20);
        let timeout = Duration::from_nanos(self.timeout.load(Ordering::Relaxed));
        let deadline = Deadline::new(timeout.saturating_add(LONGEST_END));
        while !self.is_idle() {
            if deadline.is_expired() {
                log::log(Level::Error, || {
                    format!("rank {} ends while its work still runs; the memory of the group stays in use", self.rank)
                });
                return self.links.leave(|_| None);
            }
            self.check_peers();
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        let counters = if self.size > 1 && self.sticky_error().is_none() { self.counters(runtime) } else { None };
        self.links.leave(|rank| Some(counters.as_ref()?.completed_with(rank)));
        self.release(runtime);
    }
}

impl ProcessGroup {
    fn release(&mut self, runtime: &'static Runtime) {
        let driver = &runtime.driver;
        self.sleep.destroy();
        let mut release = || {
            let Ok(device) = runtime.device(self.device as i32) else { return Ok(()) };
            device.with_context(driver, |driver| {
                // Notifications of an abort may be pending. Memory that they may still write is not unmapped.
                let is_done = sync_debug::require("the destruction of a group", || {
                    retry(|| driver.stream_synchronize(self.stream))
                });
                retry(|| driver.stream_destroy(self.stream));
                for registered in self.registrations.write().drain(..).filter(|_| is_done) {
                    registered.release(driver);
                }
                for buffer in self.buffers.drain(..).filter(|_| is_done) {
                    buffer.release(driver);
                }
                if let Some(report) = self.report.take() {
                    log::ignore(driver.report_free(report), "freeing a rank's report");
                }
                Ok(())
            })
        };
        // An error means that nothing was released.
        retry(|| driver.with_relaxed_capture(&mut release).map_err(Error::from).flatten());
    }
}

#[cold]
fn unknown_error() -> Error {
    Error::new(Status::ABORTED, "the group has failed")
}

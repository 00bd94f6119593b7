//! The threads that execute work.
//!
//! Each device has up to [`WORKERS_PER_DEVICE`] workers for copies, fills and kernels, which never block. Of the
//! streams that are ready, the one with the highest priority goes first, then the one that became ready first.
//! Operations that may block (host functions, other processes' events, kernels that wait for other ranks) run on
//! separate threads, as many as there are such operations at a time. Threads start when there is work and end after one
//! idle second.
//!
//! Where the system refuses a thread, the operation stays queued, and every later call, wait and idle thread tries again: a
//! stream would report an error for as long as it exists. It fails if that goes on for [`SHORTAGE_LIMIT`].

use super::{
    engine::Engine,
    ids::Id,
    state::{self, State},
    stream::Op,
};
use crate::driver::{codes, signals, table::Code};
use parking_lot::MutexGuard;
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

/// How many operations a device executes at a time.
pub const WORKERS_PER_DEVICE: usize = 4;
const IDLE: Duration = Duration::from_secs(1);
/// The stack size for the program's host functions: the usual default of a program's threads.
const STACK: usize = 8 << 20;
/// How long the system may refuse threads before the operations that wait for one fail.
const SHORTAGE_LIMIT: Duration = Duration::from_secs(10);
/// The longest time between two attempts to start a thread while any thread waits.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Whether operations wait for a thread that the system refused, for a check without the engine's lock.
static IS_SHORT: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Returns whether operations wait for a thread that the system refused.
#[inline]
pub fn is_short() -> bool {
    IS_SHORT.load(Ordering::Relaxed)
}

/// Returns the number of threads alive now.
pub fn thread_count() -> usize {
    RUNNING.load(Ordering::Acquire)
}

/// The numbers of threads that serve a queue.
pub struct Pool {
    threads: usize,
    limit: usize,
    idle: usize,
    /// Idle threads that were woken but do not yet have the lock.
    woken: usize,
    /// Requests for which the system refused a thread.
    refused: usize,
}

impl Pool {
    pub fn unlimited() -> Pool {
        Pool::limited(usize::MAX)
    }

    fn limited(limit: usize) -> Pool {
        Pool { threads: 0, limit, idle: 0, woken: 0, refused: 0 }
    }

    /// Requests a thread for one more operation. Returns false if the system refuses it.
    fn request(&mut self, wake: impl FnOnce(), start: impl FnOnce() -> bool) -> bool {
        if self.idle > self.woken {
            self.woken += 1;
            wake();
        } else if self.threads < self.limit {
            if start() {
                self.threads += 1;
            } else if !self.is_enough() {
                self.refused += 1;
                return false;
            }
        }
        true
    }

    /// Returns whether a thread becomes free at some time, whatever is queued. One that blocks may do so only after an
    /// operation that is queued.
    fn is_enough(&self) -> bool {
        self.threads > 0 && self.limit != usize::MAX
    }

    /// Starts the threads that the system refused for operations of which `queued` still wait. Returns whether there are
    /// enough now.
    fn retry(&mut self, queued: usize, start: impl Fn() -> bool) -> bool {
        self.refused = self.refused.min(queued);
        while self.refused > 0 && !self.is_enough() && start() {
            self.threads += 1;
            self.refused -= 1;
        }
        if self.is_enough() {
            self.refused = 0;
        }
        self.refused == 0
    }
}

/// The streams and ready work of one device.
pub struct DeviceQueue {
    pub streams: Vec<Id>,
    pub legacy: Option<Id>,
    /// Streams whose first operation needs a worker, by priority and then by when they became ready.
    ready: BTreeMap<(i32, u64), Id>,
    sequence: u64,
    pool: Pool,
}

impl Default for DeviceQueue {
    fn default() -> DeviceQueue {
        DeviceQueue {
            streams: Vec::new(),
            legacy: None,
            ready: BTreeMap::new(),
            sequence: 0,
            pool: Pool::limited(WORKERS_PER_DEVICE),
        }
    }
}

impl Engine {
    /// Queues a stream for its device's workers.
    pub fn request_worker(&mut self, id: Id) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (number, priority) = (stream.device, stream.priority);
        let device = &mut self.devices[number];
        device.sequence += 1;
        let key = (priority, device.sequence);
        device.ready.insert(key, id);
        let wake = || {
            if let Ok(state) = state::get() {
                state.workers[number].notify_one();
            }
        };
        if !device.pool.request(wake, || start(move |state| run_worker(state, number))) {
            self.begin_shortage();
        }
    }

    /// Requests a thread that may block, for a stream that is in `blocking_queue`.
    pub fn request_blocking_thread(&mut self) {
        let wake = || {
            if let Ok(state) = state::get() {
                state.blocking_threads.notify_one();
            }
        };
        if !self.blocking_threads.request(wake, || start(run_blocking_thread)) {
            self.begin_shortage();
        }
    }

    fn begin_shortage(&mut self) {
        self.short_since.get_or_insert_with(Instant::now);
        IS_SHORT.store(true, Ordering::Relaxed);
    }

    /// Tries again to start the threads that the system refused. Fails the operations that have waited too long for one.
    pub fn retry_threads(&mut self) {
        let Some(since) = self.short_since else { return };
        let mut over = self.blocking_threads.retry(self.blocking_queue.len(), || start(run_blocking_thread));
        for (number, device) in self.devices.iter_mut().enumerate() {
            over &= device.pool.retry(device.ready.len(), || start(move |state| run_worker(state, number)));
        }
        if !over && since.elapsed() < SHORTAGE_LIMIT {
            return;
        }
        self.short_since = None;
        IS_SHORT.store(false, Ordering::Relaxed);
        if !over {
            self.fail_queued();
        }
    }

    /// Fails the operations that wait for a thread, since the system has none.
    fn fail_queued(&mut self) {
        let mut streams: Vec<Id> = Vec::new();
        if std::mem::take(&mut self.blocking_threads.refused) > 0 {
            streams.extend(self.blocking_queue.drain(..));
        }
        for device in &mut self.devices {
            if std::mem::take(&mut device.pool.refused) > 0 {
                streams.extend(std::mem::take(&mut device.ready).into_values());
            }
        }
        for id in streams {
            self.take(id);
            self.finish(id, Err(codes::CUDA_ERROR_OPERATING_SYSTEM));
        }
    }
}

/// Starts a thread. Returns false if the system refuses it.
fn start(body: impl Fn(&'static State) + Send + 'static) -> bool {
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    RUNNING.fetch_add(1, Ordering::AcqRel);
    let run = move || {
        if let Ok(state) = state::get() {
            body(state);
        }
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    };
    let _blocked = signals::block();
    let started = thread::Builder::new().name(format!("plinth-host-{number}")).stack_size(STACK).spawn(run).is_ok();
    if !started {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
    started
}

/// How long an idle thread waits for work.
fn idle_time(engine: &mut Engine) -> Duration {
    engine.retry_threads();
    if is_short() { RETRY_INTERVAL } else { IDLE }
}

/// Runs a worker of one device.
fn run_worker(state: &'static State, device: usize) {
    let mut engine = state.engine.lock();
    loop {
        if let Some((_, id)) = engine.devices[device].ready.pop_first() {
            execute(state, &mut engine, id);
            continue;
        }
        let idle = idle_time(&mut engine);
        engine.devices[device].pool.idle += 1;
        let waited = state.workers[device].wait_for(&mut engine, idle);
        let queue = &mut engine.devices[device];
        queue.pool.idle -= 1;
        if queue.pool.woken > 0 {
            queue.pool.woken -= 1;
        } else if waited.timed_out() && idle == IDLE && queue.ready.is_empty() {
            queue.pool.threads -= 1;
            return;
        }
    }
}

/// Runs a thread for operations that may block.
fn run_blocking_thread(state: &'static State) {
    let mut engine = state.engine.lock();
    loop {
        if let Some(id) = engine.blocking_queue.pop_front() {
            execute(state, &mut engine, id);
            continue;
        }
        let idle = idle_time(&mut engine);
        engine.blocking_threads.idle += 1;
        let waited = state.blocking_threads.wait_for(&mut engine, idle);
        engine.blocking_threads.idle -= 1;
        if engine.blocking_threads.woken > 0 {
            engine.blocking_threads.woken -= 1;
        } else if waited.timed_out() && idle == IDLE && engine.blocking_queue.is_empty() {
            engine.blocking_threads.threads -= 1;
            return;
        }
    }
}

/// Executes the first operation of a stream, without the engine's lock.
fn execute(state: &'static State, engine: &mut MutexGuard<'_, Engine>, id: Id) {
    let Some((device, op)) = engine.take(id) else { return engine.finish(id, Ok(())) };
    // Other work has ended the context since the operation was queued for a thread.
    if engine.streams.get(&id).is_some_and(|stream| stream.check().is_err()) {
        return engine.finish(id, Ok(()));
    }
    let is_work = matches!(op, Op::Work(_));
    let op = match op {
        Op::Conditional(program, index) => {
            let result = engine.run_conditional(id, &program, index);
            // A thread that waits for the end of a launch may expect that nothing of it is left.
            drop(program);
            engine.finish(id, result);
            // The lock was held throughout; let other threads take it.
            return MutexGuard::bump(engine);
        }
        op => op,
    };
    let result = MutexGuard::unlocked(engine, move || {
        // A CPU kernel that panics is a failed kernel; the thread continues with other streams' work.
        catch_unwind(AssertUnwindSafe(|| run(state, device, op))).unwrap_or(Err(codes::CUDA_ERROR_LAUNCH_FAILED))
    });
    if let Err(error) = result
        && is_work
        && codes::is_context_lost(error)
    {
        engine.lose_context(device, error);
    }
    engine.finish(id, result);
}

fn run(state: &'static State, device: usize, op: Op) -> Result<(), Code> {
    match op {
        Op::Work(work) => work.run(state, device),
        Op::Free(device, number) => {
            state.memory.write().complete_free(device, number);
            Ok(())
        }
        Op::FreeGraphMemory(address) => {
            state.memory.write().release_graph_memory(address);
            Ok(())
        }
        Op::Host(function) => {
            function.run();
            Ok(())
        }
        Op::WaitShared(shared, recording) => shared.wait(recording),
        // `Engine::step` or the caller handles these, without a thread or with the engine's lock.
        Op::Signal(_) | Op::Wait(_) | Op::Fork(_) | Op::Join(_) | Op::Publish(..) => Ok(()),
        Op::ResetConditions(_) | Op::Conditional(..) | Op::Retire(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_not_left_to_a_thread_that_may_block() {
        let idle = || panic!("no thread is idle");
        let mut pool = Pool::unlimited();
        assert!(pool.request(idle, || true) && !pool.request(idle, || false));
        assert!(!pool.retry(1, || false) && pool.retry(1, || true) && pool.threads == 2);
        // Another thread has taken the operation meanwhile.
        assert!(!pool.request(idle, || false) && pool.retry(0, || false));
        let mut workers = Pool::limited(2);
        assert!(!workers.request(idle, || false) && !workers.request(idle, || false));
        assert!(!workers.retry(2, || false) && workers.retry(2, || true) && workers.threads == 1);
        assert!(workers.request(idle, || false));
    }
}

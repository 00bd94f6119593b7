//! The threads that execute work.
//!
//! Each device has up to [`WORKERS_PER_DEVICE`] workers for copies, fills and kernels, which never block. Of the
//! streams that are ready, the one with the highest priority goes first, then the one that became ready first.
//! Operations that may block (host functions, other processes' events, kernels that wait for other ranks) run on
//! separate threads, as many as there are such operations at a time. Threads start when there is work and end after one
//! idle second.

use super::{
    engine::Engine,
    ids::Id,
    state::{self, State},
    stream::Op,
};
use crate::driver::{codes, table::Code};
use parking_lot::MutexGuard;
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// How many operations a device executes at a time.
pub const WORKERS_PER_DEVICE: usize = 4;
const IDLE: Duration = Duration::from_secs(1);
/// The stack size for the program's host functions: the usual default of a program's threads.
const STACK: usize = 8 << 20;
/// How often a thread is tried to be started, and the time between two attempts.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(5);

static STARTED: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(0);

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
}

impl Pool {
    pub fn unlimited() -> Pool {
        Pool { threads: 0, limit: usize::MAX, idle: 0, woken: 0 }
    }

    fn limited(limit: usize) -> Pool {
        Pool { threads: 0, limit, idle: 0, woken: 0 }
    }

    /// Requests a thread for one more operation. Returns false if none will execute it.
    fn request(&mut self, wake: impl FnOnce(), start: impl FnOnce() -> bool) -> bool {
        if self.idle > self.woken {
            self.woken += 1;
            wake();
            return true;
        }
        if self.threads < self.limit && start() {
            self.threads += 1;
            return true;
        }
        // A thread of a limited pool becomes free at some time. One that blocks may do so only after this operation.
        self.threads > 0 && self.limit != usize::MAX
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
            device.ready.remove(&key);
            self.fail_front(id);
        }
    }

    /// Requests a thread that may block, for a stream that is in `blocking_queue`.
    pub fn request_blocking_thread(&mut self, id: Id) {
        let wake = || {
            if let Ok(state) = state::get() {
                state.blocking_threads.notify_one();
            }
        };
        if !self.blocking_threads.request(wake, || start(run_blocking_thread)) {
            self.blocking_queue.retain(|other| *other != id);
            self.fail_front(id);
        }
    }

    /// Fails a stream's first operation, since the system has no thread for it.
    fn fail_front(&mut self, id: Id) {
        self.take(id);
        self.finish(id, Err(codes::CUDA_ERROR_OPERATING_SYSTEM));
    }
}

/// Starts a thread. Returns false if the system keeps refusing: a moment without memory must not fail a stream, which
/// would report the error for as long as it exists.
fn start(body: impl Fn(&'static State) + Copy + Send + 'static) -> bool {
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    RUNNING.fetch_add(1, Ordering::AcqRel);
    let run = move || {
        block_signals();
        if let Ok(state) = state::get() {
            body(state);
        }
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    };
    let attempt = |index| {
        if index > 0 {
            thread::sleep(PAUSE);
        }
        thread::Builder::new().name(format!("plinth-host-{number}")).stack_size(STACK).spawn(run).is_ok()
    };
    let started = (0..ATTEMPTS).any(attempt);
    if !started {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
    started
}

/// Blocks the program's signals in this thread, except those that faults of this thread raise.
pub fn block_signals() {
    // SAFETY: sigfillset initialises the set before it is used, and the set outlives the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(&mut set, fault);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// Runs a worker of one device.
fn run_worker(state: &'static State, device: usize) {
    let mut engine = state.engine.lock();
    loop {
        if let Some((_, id)) = engine.devices[device].ready.pop_first() {
            execute(state, &mut engine, id);
            continue;
        }
        engine.devices[device].pool.idle += 1;
        let waited = state.workers[device].wait_for(&mut engine, IDLE);
        let queue = &mut engine.devices[device];
        queue.pool.idle -= 1;
        if queue.pool.woken > 0 {
            queue.pool.woken -= 1;
        } else if waited.timed_out() && queue.ready.is_empty() {
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
        engine.blocking_threads.idle += 1;
        let waited = state.blocking_threads.wait_for(&mut engine, IDLE);
        engine.blocking_threads.idle -= 1;
        if engine.blocking_threads.woken > 0 {
            engine.blocking_threads.woken -= 1;
        } else if waited.timed_out() && engine.blocking_queue.is_empty() {
            engine.blocking_threads.threads -= 1;
            return;
        }
    }
}

/// Executes the first operation of a stream, without the engine's lock.
fn execute(state: &'static State, engine: &mut MutexGuard<'_, Engine>, id: Id) {
    let Some((device, op)) = engine.take(id) else { return engine.finish(id, Ok(())) };
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
        let mut pool = Pool::unlimited();
        assert!(pool.request(|| panic!("no thread is idle"), || true));
        assert!(!pool.request(|| panic!("no thread is idle"), || false));
        let mut workers = Pool::limited(2);
        assert!(!workers.request(|| panic!("no worker is idle"), || false));
        assert!(workers.request(|| panic!("no worker is idle"), || true));
        assert!(workers.request(|| panic!("no worker is idle"), || false));
    }
}

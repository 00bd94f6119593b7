//! The threads that carry out work.
//!
//! Each device has up to [`SLOTS`] workers for copies, fills and kernels, which never wait for anything; among the
//! streams that are ready, the one of the highest priority goes first, then the one that was ready first. What may
//! wait (host functions, other processes' events, kernels that wait for other ranks) runs on threads of its own, as many
//! as there are such things at a time. Threads start when there is something to do and end after a second without.

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
    time::Duration,
};

/// How many pieces of work a device carries out at a time.
pub const SLOTS: usize = 4;
const IDLE: Duration = Duration::from_secs(1);
/// Room for the program's host functions, as much as its own threads usually have.
const STACK: usize = 8 << 20;

static STARTED: AtomicUsize = AtomicUsize::new(0);
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The threads alive now.
pub fn threads() -> usize {
    RUNNING.load(Ordering::Acquire)
}

/// How many threads serve a queue.
pub struct Pool {
    threads: usize,
    limit: usize,
    idle: usize,
    /// Idle threads that have been woken but have not yet got the lock.
    woken: usize,
}

impl Pool {
    pub fn unlimited() -> Pool {
        Pool { threads: 0, limit: usize::MAX, idle: 0, woken: 0 }
    }

    fn limited(limit: usize) -> Pool {
        Pool { threads: 0, limit, idle: 0, woken: 0 }
    }

    /// Gets a thread for one more piece of work; false when there is none and none can be started.
    fn want(&mut self, wake: impl FnOnce(), start: impl FnOnce() -> bool) -> bool {
        if self.idle > self.woken {
            self.woken += 1;
            wake();
        } else if self.threads < self.limit && start() {
            self.threads += 1;
        }
        self.threads > 0
    }
}

/// What one device has to do.
pub struct DeviceQueue {
    pub streams: Vec<Id>,
    pub legacy: Option<Id>,
    /// Streams whose first work waits for a worker, by priority and then by when they became ready.
    ready: BTreeMap<(i32, u64), Id>,
    turn: u64,
    pool: Pool,
}

impl Default for DeviceQueue {
    fn default() -> DeviceQueue {
        DeviceQueue { streams: Vec::new(), legacy: None, ready: BTreeMap::new(), turn: 0, pool: Pool::limited(SLOTS) }
    }
}

impl Engine {
    /// Queues a stream for its device's workers.
    pub fn want_worker(&mut self, id: Id) {
        let Some(stream) = self.streams.get(&id) else { return };
        let (number, priority) = (stream.device, stream.priority);
        let device = &mut self.devices[number];
        device.turn += 1;
        let key = (priority, device.turn);
        device.ready.insert(key, id);
        let wake = || {
            if let Ok(state) = state::get() {
                state.workers[number].notify_one();
            }
        };
        if !device.pool.want(wake, || start(move |state| work(state, number))) {
            device.ready.remove(&key);
            self.fail_front(id);
        }
    }

    /// Gets a thread that may block, for a stream that is in `calls`.
    pub fn want_caller(&mut self, id: Id) {
        let wake = || {
            if let Ok(state) = state::get() {
                state.callers.notify_one();
            }
        };
        if !self.callers.want(wake, || start(call)) {
            self.calls.retain(|other| *other != id);
            self.fail_front(id);
        }
    }

    /// Gives up on a stream's first work, since the system has no thread for it.
    fn fail_front(&mut self, id: Id) {
        self.take(id);
        self.finish(id, Err(codes::CUDA_ERROR_OPERATING_SYSTEM));
    }
}

/// Starts a thread; false when the system refuses.
fn start(body: impl FnOnce(&'static State) + Send + 'static) -> bool {
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    RUNNING.fetch_add(1, Ordering::AcqRel);
    let thread = std::thread::Builder::new().name(format!("plinth-host-{number}")).stack_size(STACK);
    let started = thread.spawn(move || {
        ignore_signals();
        if let Ok(state) = state::get() {
            body(state);
        }
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    });
    if started.is_err() {
        RUNNING.fetch_sub(1, Ordering::AcqRel);
    }
    started.is_ok()
}

/// Leaves the program's signals to the program's threads, except those that this thread's own faults raise.
fn ignore_signals() {
    // SAFETY: the set is initialised by sigfillset before it is used, and outlives the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut set);
        for own in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT] {
            libc::sigdelset(&mut set, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}

/// A worker of one device.
fn work(state: &'static State, device: usize) {
    let mut engine = state.engine.lock();
    loop {
        if let Some((_, id)) = engine.devices[device].ready.pop_first() {
            carry_out(state, &mut engine, id);
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

/// A thread for what may block.
fn call(state: &'static State) {
    let mut engine = state.engine.lock();
    loop {
        if let Some(id) = engine.calls.pop_front() {
            carry_out(state, &mut engine, id);
            continue;
        }
        engine.callers.idle += 1;
        let waited = state.callers.wait_for(&mut engine, IDLE);
        engine.callers.idle -= 1;
        if engine.callers.woken > 0 {
            engine.callers.woken -= 1;
        } else if waited.timed_out() && engine.calls.is_empty() {
            engine.callers.threads -= 1;
            return;
        }
    }
}

/// Carries out the first entry of a stream, without the engine's lock.
fn carry_out(state: &'static State, engine: &mut MutexGuard<'_, Engine>, id: Id) {
    let Some((device, op)) = engine.take(id) else { return engine.finish(id, Ok(())) };
    let op = match op {
        Op::Choose(program, place) => {
            let result = engine.choose(id, &program, place);
            // Whoever waits for the end of a launch may expect that nothing of it is left.
            drop(program);
            engine.finish(id, result);
            // This held the lock throughout; now others have a turn.
            return MutexGuard::bump(engine);
        }
        op => op,
    };
    let result = MutexGuard::unlocked(engine, move || {
        // A kernel's twin that panics is a kernel that failed; the thread goes on with other streams' work.
        catch_unwind(AssertUnwindSafe(|| run(state, device, op))).unwrap_or(Err(codes::CUDA_ERROR_LAUNCH_FAILED))
    });
    engine.finish(id, result);
}

fn run(state: &'static State, device: usize, op: Op) -> Result<(), Code> {
    match op {
        Op::Work(work) => work.run(state, device),
        Op::Free(device, number) => {
            state.memory.write().reach_free(device, number);
            Ok(())
        }
        Op::Host(function) => {
            function.run();
            Ok(())
        }
        Op::Await(shared, recording) => shared.wait(recording),
        // Done without a thread, or with the engine's lock.
        Op::Signal(_) | Op::Wait(_) | Op::Begin(_) | Op::Join(_) | Op::Publish(..) => Ok(()),
        Op::Reset(_) | Op::Choose(..) | Op::Retire(_) => Ok(()),
    }
}

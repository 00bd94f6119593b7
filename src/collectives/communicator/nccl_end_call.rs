//! Calls of NCCL that end communicators. They may wait for other processes, or for graphs, without a limit, and nothing ends them.

use crate::{
    base::deadline::Deadline,
    driver::{nccl, signals},
    error::{Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    sync::{
        Once,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// How long the exit of the process waits for calls.
const EXIT_LIMIT: Duration = Duration::from_secs(2);

/// A call in a thread of its own, which a timeout leaves behind.
pub(super) enum Call {
    Running { result: Receiver<Result<()>>, thread: JoinHandle<()> },
    Done(Result<()>),
}

impl Call {
    /// Starts a call; without a thread it is made at once.
    pub(super) fn start(call: impl FnOnce() -> Result<()> + Clone + Send + 'static) -> Call {
        let (sender, result) = mpsc::sync_channel(1);
        let own = call.clone();
        let run = move || {
            // A capture of another thread stays valid. An error means that the call was not made, and NCCL keeps everything.
            let enter = |runtime: &Runtime| runtime.driver.with_relaxed_capture(own.clone());
            let called = runtime::ready().and_then(|runtime| Ok(enter(runtime).or_else(|_| enter(runtime))?));
            // Nobody receives it after a timeout.
            let _ = sender.send(called.flatten());
        };
        let blocked = signals::block();
        let started = thread::Builder::new().name("plinth nccl end".into()).spawn(run);
        drop(blocked);
        match started {
            Ok(thread) => Call::Running { result, thread },
            Err(_) => Call::Done(call()),
        }
    }

    /// Waits for its end. Returns whether it has ended.
    pub(super) fn wait(self, limit: Duration) -> Result<bool> {
        let (result, thread) = match self {
            Call::Running { result, thread } => (result, thread),
            Call::Done(done) => return done.map(|()| true),
        };
        match result.recv_timeout(limit) {
            Ok(called) => {
                // It has nothing left to do.
                let _ = thread.join();
                called.map(|()| true)
            }
            Err(RecvTimeoutError::Timeout) => {
                leave(thread);
                Ok(false)
            }
            Err(RecvTimeoutError::Disconnected) => Err(Error::new(Status::PANIC, "the end of NCCL panicked")),
        }
    }
}

/// The threads of calls that have not returned.
static LEFT: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

fn leave(thread: JoinHandle<()>) {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        if let Ok(nccl) = nccl::get() {
            nccl.at_exit(await_left);
        }
    });
    let mut left = LEFT.lock();
    join_ended(&mut left);
    left.push(thread);
}

/// Joins the threads that have ended. Returns whether these are all.
fn join_ended(left: &mut Vec<JoinHandle<()>>) -> bool {
    for thread in left.extract_if(.., |thread| thread.is_finished()) {
        // It has nothing left to do.
        let _ = thread.join();
    }
    left.is_empty()
}

/// Waits at the exit of the process for NCCL to release what it is releasing: its exit handlers must not run meanwhile.
extern "C" fn await_left() {
    if runtime::usable().is_some() {
        let ended = || Ok(join_ended(&mut LEFT.lock()).then_some(()));
        // A thread that waits for graphs does nothing.
        let _ = Deadline::new(EXIT_LIMIT).until(|| "NCCL released memory", ended);
    }
}

//! The end of communicators of NCCL.
//!
//! A rank of NCCL that ends waits for other ranks of its machine, without a limit and, from 2.32 on, also for one that was
//! aborted; and NCCL releases nothing before the last rank of the process ends. So a rank that is destroyed waits here for the
//! last one of its process, which ends all of them, within a limit.

use super::nccl::{ABORT_GRACE, NcclRank};
use crate::{
    base::deadline::Deadline,
    driver::nccl::{Comm, ID_BYTES, Nccl, Progress},
    error::{Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    mem,
    sync::{Arc, Weak, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

/// What names a communicator: the id that its ranks share, and the splits that led to it, each by its number and its color.
#[derive(Clone, PartialEq, Eq)]
struct Name {
    id: [u8; ID_BYTES],
    splits: Vec<(u32, u32)>,
}

/// The ranks of a communicator in this process.
pub(super) struct Siblings {
    name: Name,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many have not ended.
    alive: usize,
    was_aborted: bool,
    destroyed: Vec<EndedRank>,
}

/// A rank that makes no more calls.
#[derive(Clone, Copy)]
struct EndedRank {
    device: u32,
    comm: Comm,
    is_blocking: bool,
}

static COMMUNICATORS: Mutex<Vec<Weak<Siblings>>> = Mutex::new(Vec::new());

impl Siblings {
    /// Adds a rank of the communicator that an id makes.
    pub(super) fn of_id(id: [u8; ID_BYTES]) -> Arc<Siblings> {
        Siblings::of(Name { id, splits: Vec::new() })
    }

    /// Adds a rank of the part that a color makes in a split, which is the communicator's split `number`.
    pub(super) fn of_part(&self, number: u32, color: u32) -> Arc<Siblings> {
        let mut name = self.name.clone();
        name.splits.push((number, color));
        Siblings::of(name)
    }

    fn of(name: Name) -> Arc<Siblings> {
        let mut communicators = COMMUNICATORS.lock();
        communicators.retain(|siblings| siblings.strong_count() > 0);
        let known = communicators.iter().filter_map(Weak::upgrade).find(|siblings| siblings.name == name);
        let siblings = known.unwrap_or_else(|| {
            let made = Arc::new(Siblings { name, state: Mutex::default() });
            communicators.push(Arc::downgrade(&made));
            made
        });
        siblings.state.lock().alive += 1;
        siblings
    }

    /// Removes a rank: one that was aborted, or a destroyed one that waits for the last. The last one receives those that wait.
    fn leave(&self, destroyed: Option<EndedRank>) -> Waiting {
        let mut state = self.state.lock();
        state.alive = state.alive.saturating_sub(1);
        state.was_aborted |= destroyed.is_none();
        state.destroyed.extend(destroyed);
        let ranks = if state.alive == 0 { mem::take(&mut state.destroyed) } else { Vec::new() };
        Waiting { ranks, was_aborted: state.was_aborted }
    }

    /// Removes a rank that could not join.
    pub(super) fn leave_unjoined(&self) {
        self.state.lock().alive -= 1;
    }
}

/// Destroyed ranks whose siblings have ended as well.
struct Waiting {
    ranks: Vec<EndedRank>,
    was_aborted: bool,
}

/// How long a rank may wait for others in its destruction, and what ends the wait.
type Destruction<'a> = (Duration, &'a dyn Fn() -> Result<()>);

const WAIT: &str = "NCCL waited for the other ranks to end";

impl EndedRank {
    fn call<T>(&self, runtime: &Runtime, nccl: &Nccl, call: impl Fn(&Nccl, Comm) -> Result<T>) -> Result<T> {
        runtime.device(self.device as i32)?.with_context(&runtime.driver, |_| call(nccl, self.comm))
    }
}

impl NcclRank {
    /// Aborts the communicator and its pending work.
    pub fn abort(&self, runtime: &Runtime) -> Result<()> {
        self.end(runtime, None, None)
    }

    /// Aborts the communicator after an error, so that its work ends. If a graph may have captured work of it, this is left to
    /// the program: NCCL waits in an abort for the end of those graphs.
    pub fn abort_after_error(&self, runtime: &Runtime) -> Result<()> {
        match self.captured.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.abort(runtime),
        }
    }

    /// Destroys a communicator whose work is done, when all ranks of this process have ended; the last one waits for those of
    /// other processes, while `health` does not fail. Aborts a communicator that failed, or that sleeps, whose ranks cannot end
    /// together.
    pub fn destroy(&self, runtime: &Runtime, limit: Duration, health: impl Fn() -> Result<()>) -> Result<()> {
        if self.sleep_state().get() {
            return self.abort(runtime);
        }
        let calls = self.calls_of_end();
        let healthy = calls.is_some() && matches!(self.poll(), Ok(true)) && self.deregister_all(runtime);
        self.end(runtime, calls, healthy.then_some((limit, &health)))
    }

    /// Ends the rank: destroys it within a limit, or aborts it.
    fn end(
        &self,
        runtime: &Runtime,
        calls: Option<MutexGuard<'_, ()>>,
        destruction: Option<Destruction>,
    ) -> Result<()> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let _calls = calls.or_else(|| self.calls_of_end());
        let rank =
            self.cell.comm().map(|comm| EndedRank { device: self.device(), comm, is_blocking: self.is_blocking() });
        let aborted = match (destruction, &rank) {
            (None, Some(rank)) => rank.call(runtime, self.nccl(), Nccl::abort),
            _ => Ok(()),
        };
        self.cell.mark_complete();
        if aborted.is_ok() {
            self.release_registered(runtime);
        }
        let waiting = self.siblings.leave(destruction.and(rank));
        aborted.and(waiting.end(runtime, self.nccl(), destruction))
    }
}

impl Waiting {
    fn end(self, runtime: &Runtime, nccl: &'static Nccl, destruction: Option<Destruction>) -> Result<()> {
        let Waiting { ranks, was_aborted } = self;
        if ranks.is_empty() {
            return Ok(());
        }
        let is_blocking = ranks.iter().any(|rank| rank.is_blocking);
        let (limit, finalized) = match destruction {
            // A rank that was aborted is waited for in vain, and a call of the blocking mode has no limit.
            Some((limit, health)) if !was_aborted && !is_blocking => {
                let deadline = Deadline::new(limit);
                let finalized = finalize(runtime, nccl, &ranks, deadline, health);
                (deadline.remaining().max(ABORT_GRACE), finalized)
            }
            _ if was_aborted => (ABORT_GRACE, Ok(())),
            _ => (Duration::MAX, Ok(())),
        };
        let end = if was_aborted || finalized.is_err() { Nccl::abort } else { Nccl::destroy };
        finalized.and(within(limit, move || {
            let runtime = runtime::ready()?;
            let mut ended = Ok(());
            for rank in &ranks {
                ended = ended.and(rank.call(runtime, nccl, end));
            }
            ended
        }))
    }
}

fn finalize(
    runtime: &Runtime,
    nccl: &Nccl,
    ranks: &[EndedRank],
    deadline: Deadline,
    health: &dyn Fn() -> Result<()>,
) -> Result<()> {
    for rank in ranks {
        rank.call(runtime, nccl, Nccl::finalize)?;
    }
    deadline.until(
        || WAIT,
        || {
            health()?;
            let done = |rank: &EndedRank| nccl.progress(rank.comm).map(|progress| progress == Progress::Done);
            let all_done = ranks.iter().map(done).collect::<Result<Vec<bool>>>()?.into_iter().all(|done| done);
            Ok(all_done.then_some(()))
        },
    )
}

/// Makes a call that may wait for other processes, in a thread of its own. Nothing ends such a call, so a timeout leaves the
/// thread behind.
fn within(limit: Duration, call: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let run = move || drop(sender.send(call()));
    let started = thread::Builder::new().name("plinth nccl end".into()).spawn(run);
    let thread =
        started.map_err(|error| Error::new(Status::SYSTEM, format!("starting a thread to end NCCL: {error}")))?;
    match receiver.recv_timeout(limit) {
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Deadline::new(limit).error(WAIT)),
        ended => {
            let joined = thread.join();
            ended
                .ok()
                .filter(|_| joined.is_ok())
                .unwrap_or_else(|| Err(Error::new(Status::PANIC, "the end of NCCL panicked")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_communicator_are_siblings() {
        let first = Siblings::of_id([1; ID_BYTES]);
        let second = Siblings::of_id([1; ID_BYTES]);
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &Siblings::of_id([2; ID_BYTES])));
        let part = first.of_part(0, 7);
        assert!(Arc::ptr_eq(&part, &second.of_part(0, 7)));
        assert!(!Arc::ptr_eq(&part, &second.of_part(0, 8)));
        assert!(!Arc::ptr_eq(&part, &second.of_part(1, 7)));
        assert!(!Arc::ptr_eq(&part, &part.of_part(0, 7)));
    }
}

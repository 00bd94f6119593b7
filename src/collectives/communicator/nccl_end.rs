//! The end of communicators of NCCL.
//!
//! A rank of NCCL that ends may wait for all ranks of its machine, without a limit and also for one that was aborted, and NCCL
//! releases nothing before the last rank of the process ends. So a rank that is destroyed waits here for the last one of its
//! process, which ends all of them, within a limit.

use super::nccl::{ABORT_GRACE, NcclRank};
use crate::{
    base::deadline::Deadline,
    driver::nccl::{Comm, ID_BYTES, Nccl, Progress},
    error::Result,
    runtime::Runtime,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    mem,
    sync::{Arc, Weak, atomic::Ordering},
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

    /// Removes a rank: one that was aborted, or a destroyed one that waits for the last. The last rank receives those that wait,
    /// and whether one was aborted.
    fn leave(&self, destroyed: Option<EndedRank>) -> (Vec<EndedRank>, bool) {
        let mut state = self.state.lock();
        state.alive = state.alive.saturating_sub(1);
        state.was_aborted |= destroyed.is_none();
        state.destroyed.extend(destroyed);
        let waiting = if state.alive == 0 { mem::take(&mut state.destroyed) } else { Vec::new() };
        (waiting, state.was_aborted)
    }
}

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
    /// other processes. Aborts a communicator that failed, or that sleeps, whose ranks cannot end together.
    pub fn destroy(&self, runtime: &Runtime, limit: Duration) -> Result<()> {
        if self.sleep_state().get() {
            return self.abort(runtime);
        }
        let calls = self.calls_of_end();
        let healthy = calls.is_some() && matches!(self.poll(), Ok(true)) && self.deregister_all(runtime);
        self.end(runtime, calls, healthy.then_some(limit))
    }

    /// Ends the rank: aborts it, or destroys it within a limit.
    fn end(&self, runtime: &Runtime, calls: Option<MutexGuard<'_, ()>>, limit: Option<Duration>) -> Result<()> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let _calls = calls.or_else(|| self.calls_of_end());
        let rank =
            self.cell.comm().map(|comm| EndedRank { device: self.device(), comm, is_blocking: self.is_blocking() });
        let aborted = match (limit, &rank) {
            (None, Some(rank)) => rank.call(runtime, self.nccl(), Nccl::abort),
            _ => Ok(()),
        };
        self.cell.mark_complete();
        if aborted.is_ok() {
            self.release_registered(runtime);
        }
        let (waiting, was_aborted) = self.siblings.leave(limit.and(rank));
        aborted.and(end_all(runtime, self.nccl(), &waiting, was_aborted, limit.unwrap_or(ABORT_GRACE)))
    }
}

/// Ends destroyed ranks, which are the last ones of their communicator in this process.
fn end_all(runtime: &Runtime, nccl: &Nccl, ranks: &[EndedRank], was_aborted: bool, limit: Duration) -> Result<()> {
    // A call of the blocking mode has no limit, and a rank that was aborted is waited for in vain.
    let finalized = match ranks.iter().any(|rank| rank.is_blocking) {
        true => Ok(!was_aborted),
        false => {
            finalize(runtime, nccl, ranks, if was_aborted { limit.min(ABORT_GRACE) } else { limit }).map(|()| true)
        }
    };
    let end = if matches!(finalized, Ok(true)) { Nccl::destroy } else { Nccl::abort };
    let mut ended = Ok(());
    for rank in ranks {
        ended = ended.and(rank.call(runtime, nccl, end));
    }
    match was_aborted {
        true => ended,
        false => finalized.and(ended),
    }
}

fn finalize(runtime: &Runtime, nccl: &Nccl, ranks: &[EndedRank], limit: Duration) -> Result<()> {
    for rank in ranks {
        rank.call(runtime, nccl, Nccl::finalize)?;
    }
    Deadline::new(limit).until(
        || "NCCL waited for the other ranks to end",
        || {
            let done = |rank: &EndedRank| nccl.progress(rank.comm).map(|progress| progress == Progress::Done);
            let all_done = ranks.iter().map(done).collect::<Result<Vec<bool>>>()?.into_iter().all(|done| done);
            Ok(all_done.then_some(()))
        },
    )
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

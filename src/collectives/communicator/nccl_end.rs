//! The end of communicators of NCCL.
//!
//! A rank of NCCL that ends waits for other ranks of its machine, without a limit and, from 2.32 on, also for one that was
//! aborted; and NCCL releases nothing before the last rank of the process ends. So a rank that is destroyed waits here for the
//! last one of its process, which ends all of them, within a limit.

use super::{
    nccl::{ABORT_GRACE, NcclRank},
    nccl_division::PartName,
    nccl_end_call::Call,
};
use crate::{
    base::{deadline::Deadline, log},
    driver::nccl::{Comm, ID_BYTES, Nccl, Progress},
    error::{Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    mem,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

/// What names a communicator: the id that its ranks share, and the parts that led to it.
#[derive(Clone, PartialEq, Eq)]
struct Name {
    id: [u8; ID_BYTES],
    parts: Vec<PartName>,
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
    /// Whether a graph may have captured work of it.
    was_captured: bool,
}

/// How long to wait for an abort. NCCL may wait in it for other processes.
const LONGEST_ABORT: Duration = Duration::from_secs(10);

static COMMUNICATORS: Mutex<Vec<Weak<Siblings>>> = Mutex::new(Vec::new());

impl Siblings {
    /// Adds a rank of the communicator that an id makes.
    pub(super) fn of_id(id: [u8; ID_BYTES]) -> Arc<Siblings> {
        Siblings::of(Name { id, parts: Vec::new() })
    }

    /// Adds a rank of a part of the communicator.
    pub(super) fn of_part(&self, part: PartName) -> Arc<Siblings> {
        let mut name = self.name.clone();
        name.parts.push(part);
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
    /// Returns how long to wait for an abort. NCCL waits in it for the end of graphs.
    fn abort_limit(&self) -> Duration {
        if self.was_captured { ABORT_GRACE } else { LONGEST_ABORT }
    }

    fn call<T>(&self, runtime: &Runtime, nccl: &Nccl, call: impl Fn(&Nccl, Comm) -> Result<T>) -> Result<T> {
        let mut called = None;
        let device = runtime.device(self.device as i32)?;
        let mut enter = || {
            device.with_context(&runtime.driver, |_| {
                called = Some(call(nccl, self.comm));
                Ok(())
            })
        };
        // An error means that NCCL was not called, which then keeps everything.
        enter().or_else(|_| enter())?;
        called.unwrap_or_else(|| Err(Error::new(Status::PANIC, "a context without its call")))
    }
}

impl NcclRank {
    /// Aborts the communicator and its pending work.
    pub fn abort(&self, runtime: &Runtime) -> Result<()> {
        self.begin_abort().map_or(Ok(()), |abort| abort.finish(runtime).map(drop))
    }

    fn begin_abort(&self) -> Option<Abort<'_>> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return None;
        }
        let calls = self.calls_of_end();
        let nccl = self.nccl();
        let call = self.ended_rank().map(|rank| {
            let registered = self.registered().clone();
            let abort = move || {
                let aborted = rank.call(runtime::ready()?, nccl, Nccl::abort);
                // NCCL may have used it until now, and the rank may be gone.
                drop(registered);
                aborted
            };
            (Call::start(abort), Deadline::new(rank.abort_limit()))
        });
        Some(Abort { rank: self, call, _calls: calls })
    }

    /// Ends the rank for its siblings only, because it cannot be aborted.
    pub(super) fn forsake(&self, runtime: &Runtime) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            let forsaken = Abort { rank: self, call: None, _calls: None }.finish(runtime);
            log::ignore(forsaken, "aborting a communicator of NCCL");
        }
    }

    fn ended_rank(&self) -> Option<EndedRank> {
        self.cell.comm().map(|comm| EndedRank {
            device: self.device(),
            comm,
            is_blocking: self.is_blocking(),
            was_captured: self.captured.load(Ordering::Relaxed),
        })
    }

    /// Destroys a communicator whose work is done, when all ranks of this process have ended; the last one waits for those of
    /// other processes, while `health` does not fail. Aborts a communicator that failed, or that sleeps, whose ranks cannot end
    /// together.
    pub fn destroy(&self, runtime: &Runtime, limit: Duration, health: impl Fn() -> Result<()>) -> Result<()> {
        if self.sleep_state().get() || self.is_revoked() {
            return self.abort(runtime);
        }
        let calls = self.calls_of_end();
        let healthy = calls.is_some() && matches!(self.poll(), Ok(true)) && self.deregister_all(runtime);
        let Some(rank) = self.ended_rank().filter(|_| healthy) else {
            drop(calls);
            return self.abort(runtime);
        };
        if self.ended.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.siblings.leave(Some(rank)).end(runtime, self.nccl(), Some((limit, &health)))
    }
}

/// An abort that has begun.
struct Abort<'a> {
    rank: &'a NcclRank,
    /// NCCL's call, if NCCL has made the communicator.
    call: Option<(Call, Deadline<'a>)>,
    _calls: Option<MutexGuard<'a, ()>>,
}

impl Abort<'_> {
    /// Waits for the abort. Returns whether it is complete; if not, NCCL waits for graphs or for other processes.
    fn finish(self, runtime: &Runtime) -> Result<bool> {
        let Abort { rank, call, .. } = self;
        let returned = call.map(|(call, deadline)| call.wait(deadline.remaining()));
        // Otherwise NCCL may still write the communicator, or use the registered memory.
        if matches!(returned, Some(Ok(true))) {
            rank.cell.mark_complete();
            rank.release_registered(runtime);
        }
        if !matches!(returned, Some(Ok(false))) {
            rank.abort_is_complete.store(true, Ordering::Release);
        }
        let ended = rank.siblings.leave(None).end(runtime, rank.nccl(), None);
        returned.unwrap_or(Ok(true)).and_then(|is_complete| ended.map(|()| is_complete))
    }
}

/// Aborts ranks at once: NCCL's abort of a rank may wait for its group, in which the others wait for their own ranks. Returns
/// whether all aborts are complete, also those of other threads.
pub fn abort_together<'a>(runtime: &Runtime, ranks: impl Iterator<Item = &'a NcclRank> + Clone) -> Result<bool> {
    let aborts: Vec<Abort<'_>> = ranks.clone().filter_map(NcclRank::begin_abort).collect();
    let mut ended = Ok(());
    for abort in aborts {
        ended = ended.and(abort.finish(runtime).map(drop));
    }
    ended.map(|()| ranks.into_iter().all(|rank| rank.abort_is_complete.load(Ordering::Acquire)))
}

impl Waiting {
    fn end(self, runtime: &Runtime, nccl: &'static Nccl, destruction: Option<Destruction>) -> Result<()> {
        let Waiting { ranks, was_aborted } = self;
        if ranks.is_empty() {
            return Ok(());
        }
        let abort_limit = ranks.iter().map(EndedRank::abort_limit).min().unwrap_or(LONGEST_ABORT);
        // A rank that was aborted does not arrive.
        let Some((limit, health)) = destruction.filter(|_| !was_aborted) else {
            return Call::start(move || end_each(nccl, &ranks, Nccl::abort)).wait(abort_limit).map(drop);
        };
        // A call of the blocking mode has no limit.
        if ranks.iter().any(|rank| rank.is_blocking) {
            return end_each(nccl, &ranks, Nccl::destroy);
        }
        let deadline = Deadline::new(limit);
        if let Err(error) = finalize(runtime, nccl, &ranks, deadline, health) {
            // Report the first error, not one of the abort.
            let _ = Call::start(move || end_each(nccl, &ranks, Nccl::abort)).wait(abort_limit);
            return Err(error);
        }
        let destroyed = Call::start(move || end_each(nccl, &ranks, Nccl::destroy));
        match destroyed.wait(deadline.remaining().max(ABORT_GRACE))? {
            true => Ok(()),
            false => Err(deadline.error(WAIT)),
        }
    }
}

fn end_each(nccl: &Nccl, ranks: &[EndedRank], end: fn(&Nccl, Comm) -> Result<()>) -> Result<()> {
    let runtime = runtime::ready()?;
    let mut ended = Ok(());
    for rank in ranks {
        ended = ended.and(rank.call(runtime, nccl, end));
    }
    ended
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_communicator_are_siblings() {
        let first = Siblings::of_id([1; ID_BYTES]);
        let second = Siblings::of_id([1; ID_BYTES]);
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &Siblings::of_id([2; ID_BYTES])));
        let part = first.of_part(PartName::Color(1, 7));
        assert!(Arc::ptr_eq(&part, &second.of_part(PartName::Color(1, 7))));
        assert!(!Arc::ptr_eq(&part, &second.of_part(PartName::Color(1, 8))));
        assert!(!Arc::ptr_eq(&part, &second.of_part(PartName::Color(2, 7))));
        assert!(!Arc::ptr_eq(&part, &part.of_part(PartName::Color(1, 7))));
        let without = |rank, before| PartName::Without([rank].into(), before);
        let part = first.of_part(without(0, 0));
        assert!(Arc::ptr_eq(&part, &second.of_part(without(0, 0))));
        assert!(!Arc::ptr_eq(&part, &second.of_part(without(1, 0))));
        assert!(!Arc::ptr_eq(&part, &second.of_part(without(0, 1))));
    }
}

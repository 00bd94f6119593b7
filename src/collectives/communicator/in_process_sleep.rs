//! Sleep of ranks that are devices of one process. One thread may call for all of them, so no call waits for the others:
//! NCCL's memory is released by the call of the last rank, and allocated again by that of the first.

use super::{
    in_process_group::{InProcessRank, State},
    nccl::{self, IssueError, NcclRank},
    nccl_end,
    sticky_error::StickyError,
};
use crate::{
    base::deadline::Deadline,
    driver::nccl::{Comm, Nccl, Progress},
    error::{Result, invalid},
    runtime::Runtime,
    stream::{capture_lock, capture_scope::CaptureResource},
};
use std::{sync::Arc, time::Duration};

type Issued = std::result::Result<(), IssueError>;

impl InProcessRank {
    /// Refuses the rank's calls, and releases NCCL's memory if those of all ranks are. Without NCCL there is nothing to do.
    pub fn put_to_sleep(&self, runtime: &Runtime, limit: Duration) -> Issued {
        let Some(ranks) = self.nccl_that_sleeps()? else { return Ok(()) };
        self.change(runtime, ranks, |state| {
            let own = ranks[self.rank() as usize].sleep_state();
            if own.get() {
                return Ok(());
            }
            if state.has_requests_of(self.rank()) {
                return Err(invalid("a call of the rank is in progress").into());
            }
            // Calls and replays are refused before the wait for those in progress.
            own.set(true);
            if !all_asleep(ranks) {
                return Ok(());
            }
            suspend(runtime, ranks, limit).inspect_err(|issued| own.set(matches!(issued, IssueError::Failed(_))))
        })
    }

    /// Permits the rank's calls, after allocating NCCL's memory if it was released.
    pub fn wake(&self, runtime: &Runtime) -> Issued {
        let Some(ranks) = self.nccl_that_sleeps()? else { return Ok(()) };
        self.change(runtime, ranks, |_| {
            if all_asleep(ranks) {
                resume(runtime, ranks)?;
            }
            ranks[self.rank() as usize].sleep_state().set(false);
            Ok(())
        })
    }

    /// Fails while the rank sleeps.
    pub(super) fn check_awake(&self) -> Result<()> {
        self.nccl_ranks().map_or(Ok(()), |ranks| ranks[self.rank() as usize].sleep_state().check_awake())
    }

    /// Returns NCCL's ranks, if NCCL is used and can release their memory. Fails if all operations are NCCL's and it cannot.
    fn nccl_that_sleeps(&self) -> Result<Option<&[Arc<NcclRank>]>> {
        let Some(ranks) = self.nccl_ranks() else { return Ok(None) };
        if self.uses_nccl() {
            ranks.iter().try_for_each(|rank| rank.nccl().check_sleep())?;
        }
        Ok(Some(ranks).filter(|ranks| ranks.iter().all(|rank| rank.nccl().has_sleep())))
    }

    /// Changes the state of the group. A failure aborts it; a refusal changes nothing.
    fn change(&self, runtime: &Runtime, ranks: &[Arc<NcclRank>], body: impl FnOnce(&mut State) -> Issued) -> Issued {
        let mut state = self.lock_state();
        state.check()?;
        body(&mut state).inspect_err(|issued| {
            if let IssueError::Failed(error) = issued {
                state.fail(StickyError::aborted_by(error));
                // Report the first error, not one of the abort.
                let _ = nccl_end::abort_together(runtime, ranks.iter().map(|rank| &**rank));
            }
        })
    }
}

/// Returns whether NCCL's memory is released.
fn all_asleep(ranks: &[Arc<NcclRank>]) -> bool {
    ranks.iter().all(|rank| rank.sleep_state().get())
}

/// Releases the memory of all ranks.
fn suspend(runtime: &Runtime, ranks: &[Arc<NcclRank>], limit: Duration) -> Issued {
    let deadline = Deadline::new(limit);
    let prepared = ranks.iter().try_for_each(|rank| rank.prepare_to_sleep(runtime, deadline.remaining()));
    let suspended = prepared.map_err(IssueError::Refused).and_then(|()| change_memory(runtime, ranks, Nccl::suspend));
    suspended.map_err(|issued| issued.context(|| "putting NCCL to sleep on the devices of a communicator"))
}

/// Allocates the memory of all ranks.
fn resume(runtime: &Runtime, ranks: &[Arc<NcclRank>]) -> Issued {
    ranks.iter().try_for_each(|rank| rank.check_room(runtime))?;
    let resumed = change_memory(runtime, ranks, Nccl::resume);
    resumed.map_err(|issued| issued.context(|| "waking NCCL on the devices of a communicator"))
}

/// Makes a call of NCCL for all ranks, which wait for each other in it. It is refused if a stream of a device captures.
fn change_memory(runtime: &Runtime, ranks: &[Arc<NcclRank>], call: fn(&Nccl, Comm) -> Result<Progress>) -> Issued {
    let Some(first) = ranks.first() else { return Ok(()) };
    let _calls = nccl::lock_calls(&ranks.iter().map(|rank| &**rank).collect::<Vec<_>>());
    let comms: Vec<Comm> = ranks.iter().map(|rank| rank.comm_even_asleep()).collect::<Result<_>>()?;
    let mut begun = false;
    let changed = while_none_captures(runtime, ranks, &mut || {
        begun = true;
        // The ranks are in NCCL's blocking mode.
        first.nccl().group(|| comms.iter().try_for_each(|comm| call(first.nccl(), *comm).map(drop))).map(drop)
    });
    changed.map_err(if begun { IssueError::Failed } else { IssueError::Refused })
}

/// Calls `body` while no stream of the ranks' devices captures.
fn while_none_captures(runtime: &Runtime, ranks: &[Arc<NcclRank>], body: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let Some((first, others)) = ranks.split_first() else { return body() };
    let device = runtime.device(first.device() as i32)?;
    capture_lock::while_none_captures(runtime, device, |_| while_none_captures(runtime, others, body))
}

/// Ends ranks that sleep, which cannot end one after the other.
pub(super) fn end(runtime: &Runtime, ranks: &[Arc<NcclRank>]) -> Result<()> {
    if ranks.iter().any(|rank| rank.sleep_state().get()) {
        nccl_end::abort_together(runtime, ranks.iter().map(|rank| &**rank))?;
    }
    Ok(())
}

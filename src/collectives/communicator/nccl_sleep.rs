//! Sleep of a communicator of NCCL: all ranks release its memory and keep the addresses, so that captured graphs stay valid.
//!
//! In both directions NCCL's ranks wait for each other. Before a sleep they can tell each other what forbids it; a
//! communicator that sleeps cannot, so one rank's error in a wake is a timeout of the others.

use super::{
    nccl::{IssueError, NcclRank},
    nccl_exchange::exchange_outcomes,
};
use crate::{
    base::{deadline::Deadline, units::Bytes},
    collectives::sleep,
    driver::nccl::{Comm, Nccl, Progress},
    error::{Context, Error, Result, invalid},
    runtime::Runtime,
    status::Status,
    stream::capture_lock,
};
use std::{sync::Arc, time::Duration};

type Issued = std::result::Result<(), IssueError>;

impl NcclRank {
    /// Releases the memory of all ranks. Each rank makes the call. What forbids it on one rank is an error of all of them, and
    /// then the communicator stays awake.
    pub fn put_to_sleep(self: &Arc<Self>, runtime: &Runtime, limit: Duration) -> Issued {
        let what = || format!("putting rank {} of {} of a communicator of NCCL to sleep", self.rank(), self.size());
        self.nccl().check_sleep().context(what)?;
        self.comm_even_asleep().context(what)?;
        if self.sleep_state().get() {
            return Ok(());
        }
        let ready = self.prepare_to_sleep(runtime, limit);
        let own = ready.as_ref().map(|()| [0; 2]);
        let outcomes = exchange_outcomes(runtime, self, own, limit).context(what).map_err(IssueError::Failed)?;
        ready.context(what)?;
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop)).context(what)?;
        self.suspend(runtime, limit)
    }

    /// Waits for the work of the device. Fails if memory is registered, which NCCL would not map again.
    fn prepare_to_sleep(&self, runtime: &Runtime, limit: Duration) -> Result<()> {
        if !self.registered().lock().is_empty() {
            return Err(invalid("memory is registered with the communicator; call plinth_communicator_deregister"));
        }
        let device = runtime.device(self.device() as i32)?;
        sleep::await_device(runtime, device, Deadline::new(limit), || self.check_health())
    }

    /// Releases the memory, if this version of NCCL can. In any case the communicator counts as asleep. Each rank makes the
    /// call, without work on its device.
    pub(super) fn suspend(&self, runtime: &Runtime, limit: Duration) -> Issued {
        let state = self.sleep_state();
        if state.get() {
            return Ok(());
        }
        // No call comes after this.
        let calls = self.calls();
        state.set(true);
        drop(calls);
        self.change_memory(runtime, limit, "NCCL released its memory", Nccl::suspend).map_err(|issued| {
            if let IssueError::Refused(_) = issued {
                state.set(false);
            }
            // The other ranks release theirs.
            IssueError::Failed(issued.into_error())
        })
    }

    /// Allocates the memory of all ranks again. Each rank makes the call.
    pub fn wake(&self, runtime: &Runtime, limit: Duration) -> Issued {
        let what = || format!("waking rank {} of {} of a communicator of NCCL", self.rank(), self.size());
        self.nccl().check_sleep().context(what)?;
        self.check_room(runtime).context(what)?;
        self.resume(runtime, limit)
    }

    /// Fails if the device has no room for the memory that was released: NCCL's own error would end the communicator.
    pub(super) fn check_room(&self, runtime: &Runtime) -> Result<()> {
        if !self.sleep_state().get() || self.nccl().check_sleep().is_err() {
            return Ok(());
        }
        let device = runtime.device(self.device() as i32)?;
        let needed = self.nccl().suspended_bytes(self.comm_even_asleep()?)?;
        let (free, _) = device.memory_info(&runtime.driver)?;
        if free >= needed {
            return Ok(());
        }
        Err(Error::new(
            Status::OUT_OF_MEMORY,
            format!(
                "NCCL needs {}, and device {} has {} free; free memory there, as by plinth_empty_cache, and wake the \
                 communicator again",
                Bytes(needed),
                device.ordinal,
                Bytes(free)
            ),
        ))
    }

    /// The opposite of [`suspend`](Self::suspend).
    pub(super) fn resume(&self, runtime: &Runtime, limit: Duration) -> Issued {
        if self.sleep_state().get() {
            self.change_memory(runtime, limit, "NCCL allocated its memory", Nccl::resume)?;
            self.sleep_state().set(false);
        }
        Ok(())
    }

    /// Makes a call of NCCL that waits for the device and for the other ranks. It is refused if a stream of the device captures.
    fn change_memory(
        &self,
        runtime: &Runtime,
        limit: Duration,
        what: &str,
        call: fn(&Nccl, Comm) -> Result<Progress>,
    ) -> Issued {
        if self.nccl().check_sleep().is_err() {
            return Ok(());
        }
        let _calls = self.calls();
        let comm = self.comm_even_asleep()?;
        let device = runtime.device(self.device() as i32)?;
        let mut begun = false;
        let changed = capture_lock::while_none_captures(runtime, device, |_| {
            begun = true;
            call(self.nccl(), comm)?;
            self.wait_until_settled(Deadline::new(limit), || what)
        });
        changed.map_err(if begun { IssueError::Failed } else { IssueError::Refused })
    }
}

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
        let what = || self.describe("putting to sleep");
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
        self.suspend(runtime, limit, || Ok(()))
    }

    fn describe(&self, what: &str) -> String {
        format!("{what} rank {} of {} of a communicator of NCCL", self.rank(), self.size())
    }

    /// Waits for the work of the device. Fails if the communicator has what cannot sleep.
    pub(super) fn prepare_to_sleep(&self, runtime: &Runtime, limit: Duration) -> Result<()> {
        if !self.registered().lock().is_empty() {
            return Err(invalid("memory is registered with the communicator; call plinth_communicator_deregister"));
        }
        // NCCL fails here if a variable keeps it from releasing memory.
        self.suspended_bytes()?;
        let device = runtime.device(self.device() as i32)?;
        sleep::await_device(runtime, device, Deadline::new(limit), || self.check_health())
    }

    /// Releases the memory. Each rank makes the call, without work on its device; `health` fails if another rank cannot.
    pub(super) fn suspend(&self, runtime: &Runtime, limit: Duration, health: impl Fn() -> Result<()>) -> Issued {
        let state = self.sleep_state();
        if state.get() {
            return Ok(());
        }
        // A call in progress ends first, and later ones are refused.
        let calls = self.calls();
        state.set(true);
        drop(calls);
        let what = "NCCL waited for the other ranks to release their memory";
        let released = self.change_memory(runtime, limit, what, Nccl::suspend, health).map_err(|issued| {
            if let IssueError::Refused(_) = issued {
                state.set(false);
            }
            // Also a refusal: the other ranks are in NCCL's call, and would wait for this one.
            issued.into_error().context(self.describe("putting to sleep"))
        });
        released.map_err(IssueError::Failed)
    }

    /// Allocates the memory of all ranks again. Each rank makes the call.
    pub fn wake(&self, runtime: &Runtime, limit: Duration) -> Issued {
        self.nccl().check_sleep().context(|| self.describe("waking"))?;
        self.check_room(runtime)?;
        self.resume(runtime, limit, || Ok(()))
    }

    /// Fails if the device has no room for the memory that was released: NCCL's own error would end the communicator.
    pub(super) fn check_room(&self, runtime: &Runtime) -> Result<()> {
        if !self.sleep_state().get() {
            return Ok(());
        }
        let device = runtime.device(self.device() as i32)?;
        let needed = self.suspended_bytes().context(|| self.describe("waking"))?;
        let (free, _) = device.memory_info(&runtime.driver)?;
        if free >= needed {
            return Ok(());
        }
        Err(Error::new(
            Status::OUT_OF_MEMORY,
            format!(
                "{}: NCCL needs {}, and device {} has {} free; free memory there, as by plinth_empty_cache, and wake the \
                 communicator again",
                self.describe("waking"),
                Bytes(needed),
                device.ordinal,
                Bytes(free)
            ),
        ))
    }

    fn suspended_bytes(&self) -> Result<u64> {
        let _calls = self.calls();
        self.nccl().suspended_bytes(self.comm_even_asleep()?)
    }

    /// Allocates the memory that [`suspend`](Self::suspend) has released. A refusal leaves the communicator asleep: the call can be
    /// repeated, while the other ranks wait.
    pub(super) fn resume(&self, runtime: &Runtime, limit: Duration, health: impl Fn() -> Result<()>) -> Issued {
        if self.sleep_state().get() {
            let what = "NCCL waited for the other ranks to allocate their memory";
            self.change_memory(runtime, limit, what, Nccl::resume, health)
                .map_err(|issued| issued.context(|| self.describe("waking")))?;
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
        health: impl Fn() -> Result<()>,
    ) -> Issued {
        let _calls = self.calls();
        let comm = self.comm_even_asleep()?;
        let device = runtime.device(self.device() as i32)?;
        let mut begun = false;
        let changed = capture_lock::while_none_captures(runtime, device, |_| {
            begun = true;
            call(self.nccl(), comm)?;
            self.wait_until_settled_while(Deadline::new(limit), || what, health)
        });
        changed.map_err(if begun { IssueError::Failed } else { IssueError::Refused })
    }
}

//! Memory that is registered with a communicator of NCCL: NCCL's collectives read and write it where it is.
//!
//! The memory becomes a window, which the ranks share, if that of all ranks can: it is one physical allocation, and NCCL has
//! windows. Otherwise it becomes a buffer of each rank. In both cases the rank has a registration with the allocator that keeps
//! the memory in place.

use super::{
    nccl::{ABORT_GRACE, IssueError, NcclRank},
    nccl_exchange::exchange_outcomes,
    watchdog,
};
use crate::{
    base::{deadline::Deadline, log, units::Bytes},
    collectives::sleep::{self, SleepState},
    driver::{Span, nccl::Registered},
    error::{Context, Error, Result, invalid},
    memory::{
        pool::WINDOW_ALIGNMENT,
        registration::{self, OwnedRegistration, uses},
    },
    runtime::{Runtime, sync_debug},
    status::Status,
    stream::capture_scope,
};
use std::{sync::Arc, time::Duration};

/// Memory of a rank, which stays in place until this is dropped.
pub(super) struct RegisteredMemory {
    memory: Span,
    /// `None` if the registration failed in NCCL, which may still use the memory until the communicator ends.
    registered: Option<Registered>,
    _registration: OwnedRegistration,
    /// For the graphs that have captured calls with it.
    state: Arc<SleepState>,
}

fn end(span: Span) -> u64 {
    span.address().saturating_add(span.bytes() as u64)
}

impl RegisteredMemory {
    fn contains(&self, memory: Span) -> bool {
        self.memory.address() <= memory.address() && end(memory) <= end(self.memory)
    }

    fn overlaps(&self, memory: Span) -> bool {
        self.memory.address() < end(memory) && memory.address() < end(self.memory)
    }
}

impl NcclRank {
    /// Registers memory of the rank's device. All ranks make the call, with as many bytes. An error of one is returned by all.
    pub fn register(
        self: &Arc<Self>,
        runtime: &Runtime,
        memory: Span,
        limit: Duration,
    ) -> std::result::Result<(), IssueError> {
        let what =
            || format!("registering {} as rank {} of {}", Bytes(memory.bytes() as u64), self.rank(), self.size());
        self.comm().context(what)?;
        let held = self.register_with_allocator(memory);
        let bytes = memory.bytes() as u64;
        let own = held.as_ref().map(|(_, can_be_window)| [bytes, (*can_be_window).into()]);
        let others = exchange_outcomes(runtime, self, own, limit).context(what).map_err(IssueError::Failed)?;
        let (registration, mut can_be_window) = held.context(what)?;
        for (rank, other) in others.into_iter().enumerate() {
            let [other_bytes, other_can] = other.context(what)?;
            if other_bytes != bytes {
                let what = format!("{}: rank {rank} registers {other_bytes} bytes", what());
                return Err(Error::new(Status::RANK_MISMATCH, what).into());
            }
            can_be_window &= other_can != 0;
        }
        let _calls = self.calls();
        let window = if can_be_window { self.register_window(runtime, memory, limit) } else { Ok(None) };
        let registered = match window {
            Ok(Some(window)) => Ok(window),
            Ok(None) => self.register_buffer(runtime, memory).context(what).map_err(IssueError::Refused),
            Err(error) => Err(IssueError::Failed(error.context(what()))),
        };
        if let Ok(_) | Err(IssueError::Failed(_)) = registered {
            let registered = registered.as_ref().ok().copied();
            let state = Arc::new(SleepState::of_memory());
            self.registered().lock().push(RegisteredMemory { memory, registered, _registration: registration, state });
        }
        registered.map(drop)
    }

    /// Keeps memory in place that this rank can register. Returns whether it can become a window: NCCL maps only the physical
    /// allocation in which a window begins.
    fn register_with_allocator(&self, memory: Span) -> Result<(OwnedRegistration, bool)> {
        self.nccl().check_registration()?;
        if self.registered().lock().iter().any(|other| other.overlaps(memory)) {
            return Err(invalid("the memory overlaps memory that is registered with this communicator already"));
        }
        let name = format!("rank {} of a communicator of {}", self.rank(), self.size());
        let registration = OwnedRegistration::new(memory.address(), memory.bytes() as u64, &name)?;
        let block = uses::of_block(memory.address())?;
        if block.device != self.device() {
            let what = format!("the memory is of device {}, the rank of device {}", block.device, self.device());
            return Err(Error::new(Status::DEVICE_MISMATCH, what));
        }
        let can_be_window = self.nccl().has_windows()
            && block.uses.ipc.is_none()
            && !block.uses.is_segment
            && memory.address().is_multiple_of(WINDOW_ALIGNMENT)
            && registration::parts(registration.handle())?.len() == 1;
        Ok((registration, can_be_window))
    }

    /// Fails if memory is registered in part: NCCL looks for the window in which it begins, and accesses what is behind its end.
    pub(super) fn check_registered_whole(&self, memory: [Span; 2]) -> Result<()> {
        let registered = self.registered().lock();
        for memory in memory {
            let partly = |other: &&RegisteredMemory| other.overlaps(memory) && !other.contains(memory);
            if let Some(other) = registered.iter().find(partly) {
                return Err(invalid(format!(
                    "{} at {:#x} are in part in the {} at {:#x} that are registered; register all of them, or none",
                    Bytes(memory.bytes() as u64),
                    memory.address(),
                    Bytes(other.memory.bytes() as u64),
                    other.memory.address()
                )));
            }
        }
        Ok(())
    }

    /// Adds the registered memory that an operation uses to a capture.
    pub(super) fn add_registered_to(&self, capture: u64, used: [Span; 2]) {
        for registered in self.registered().lock().iter() {
            if used.iter().any(|used| registered.overlaps(*used)) {
                capture_scope::add(capture, &registered.state);
            }
        }
    }

    /// Registers a window with all ranks. `None` if they cannot access each other's memory.
    fn register_window(&self, runtime: &Runtime, memory: Span, limit: Duration) -> Result<Option<Registered>> {
        let (nccl, comm) = (self.nccl(), self.comm()?);
        let device = runtime.device(self.device() as i32)?;
        let (window, _) = device.with_context(&runtime.driver, |_| nccl.register_window(comm, memory))?;
        self.wait_until_settled(Deadline::new(limit), || "NCCL waited for the memory of the other ranks")?;
        window.mark_complete();
        Ok(window.window())
    }

    fn register_buffer(&self, runtime: &Runtime, memory: Span) -> Result<Registered> {
        let (nccl, comm) = (self.nccl(), self.comm()?);
        let device = runtime.device(self.device() as i32)?;
        device.with_context(&runtime.driver, |_| nccl.register_buffer(comm, memory))
    }

    /// Ends the registration of the memory at an address, after this rank's work.
    pub fn deregister(&self, runtime: &Runtime, address: u64, limit: Duration) -> Result<()> {
        sync_debug::check("plinth_communicator_deregister")?;
        self.check_not_ended()?;
        let memory = {
            let mut registered = self.registered().lock();
            let found = registered.iter().position(|other| other.memory.address() == address);
            let unknown = || {
                invalid(format!("{address:#x} is not the address of memory that is registered with the communicator"))
            };
            registered.swap_remove(found.ok_or_else(unknown)?)
        };
        let ended = self.wait_until_idle(runtime, limit).and_then(|()| {
            let _calls = self.calls();
            self.deregister_idle(runtime, &memory)
        });
        match ended {
            Ok(()) => memory.state.destroy(),
            Err(_) => self.registered().lock().push(memory),
        }
        ended
    }

    /// Waits until this rank's work outside of captures has ended.
    fn wait_until_idle(&self, runtime: &Runtime, limit: Duration) -> Result<()> {
        let is_watched = !self.is_blocking() && watchdog::is_idle(runtime, self).is_some();
        if !is_watched {
            let device = runtime.device(self.device() as i32)?;
            return sleep::await_device(runtime, device, Deadline::new(limit), || Ok(()));
        }
        Deadline::new(limit).until(
            || format!("rank {} of {} waited for its work, to deregister memory", self.rank(), self.size()),
            || Ok(watchdog::is_idle(runtime, self).filter(|is_idle| *is_idle).map(drop)),
        )
    }

    fn deregister_idle(&self, runtime: &Runtime, memory: &RegisteredMemory) -> Result<()> {
        let Some(registered) = memory.registered else { return Ok(()) };
        let comm = self.comm()?;
        let device = runtime.device(self.device() as i32)?;
        device.with_context(&runtime.driver, |_| self.nccl().deregister(comm, registered))
    }

    /// Deregisters all memory of a communicator that is about to be destroyed. Returns whether its work has ended.
    pub(super) fn deregister_all(&self, runtime: &Runtime) -> bool {
        let registered = self.registered().lock();
        // The blocking mode has no limits.
        let limit = if self.is_blocking() { Duration::MAX } else { ABORT_GRACE };
        if !registered.is_empty() && self.wait_until_idle(runtime, limit).is_err() {
            return false;
        }
        for memory in registered.iter() {
            log::ignore(self.deregister_idle(runtime, memory), "deregistering memory of a communicator");
        }
        true
    }

    /// Ends the registrations with the allocator after the end of the communicator, unless its work does not end: then the memory
    /// stays in place until the rank is destroyed.
    pub(super) fn release_registered(&self, runtime: &Runtime) {
        let mut registered = self.registered().lock();
        if !registered.is_empty() && self.wait_until_idle(runtime, ABORT_GRACE).is_ok() {
            registered.clear();
        }
    }
}

//! Memory that is registered with a communicator of NCCL: NCCL's collectives read and write it where it is.
//!
//! A window, since NCCL 2.27, is over the memory of all ranks; before, and where the ranks cannot access each other, a buffer is
//! of one rank. Either way a registration of the library's own keeps the memory in place.

use super::{
    nccl::{IssueError, NcclRank},
    watchdog,
};
use crate::{
    base::{deadline::Deadline, log, units::Bytes},
    driver::{Span, nccl::Registered},
    error::{Context, Error, Result, invalid},
    memory::registration::{self, OwnedRegistration},
    runtime::{Runtime, sync_debug},
    status::Status,
    stream::capture_lock,
};
use std::time::Duration;

/// Memory of a rank, which stays in place until this is dropped.
pub(super) struct RegisteredMemory {
    memory: Span,
    registered: Registered,
    _registration: OwnedRegistration,
}

impl RegisteredMemory {
    fn overlaps(&self, memory: Span) -> bool {
        let end = |span: Span| span.address() + span.bytes() as u64;
        self.memory.address() < end(memory) && memory.address() < end(self.memory)
    }
}

impl NcclRank {
    /// Registers memory of the rank's device. All ranks make the call, with as many bytes.
    pub fn register(&self, runtime: &Runtime, memory: Span, limit: Duration) -> std::result::Result<(), IssueError> {
        let what =
            || format!("registering {} as rank {} of {}", Bytes(memory.bytes() as u64), self.rank(), self.size());
        let registration = self.hold(memory).context(what)?;
        let _calls = self.calls();
        let registered = self.register_held(runtime, memory, limit).context(what).map_err(IssueError::Failed)?;
        self.registered().lock().push(RegisteredMemory { memory, registered, _registration: registration });
        Ok(())
    }

    /// Keeps memory in place that can be registered.
    fn hold(&self, memory: Span) -> Result<OwnedRegistration> {
        self.comm()?;
        if self.registered().lock().iter().any(|other| other.overlaps(memory)) {
            return Err(invalid("the memory overlaps memory that is registered with this communicator already"));
        }
        let name = format!("rank {} of a communicator of {}", self.rank(), self.size());
        let registration = OwnedRegistration::new(memory.address(), memory.bytes() as u64, &name)?;
        let device = registration::info(registration.handle())?.device;
        if device != self.device() {
            let what = format!("the memory is of device {device}, the rank of device {}", self.device());
            return Err(Error::new(Status::DEVICE_MISMATCH, what));
        }
        Ok(registration)
    }

    fn register_held(&self, runtime: &Runtime, memory: Span, limit: Duration) -> Result<Registered> {
        let (nccl, comm) = (self.nccl(), self.comm()?);
        let device = runtime.device(self.device() as i32)?;
        if nccl.has_windows() {
            let (window, _) = device.with_context(&runtime.driver, |_| nccl.register_window(comm, memory))?;
            self.wait_until_settled(Deadline::new(limit), || "NCCL waited for the memory of the other ranks")?;
            window.mark_complete();
            if let Some(window) = window.window() {
                return Ok(window);
            }
        }
        device.with_context(&runtime.driver, |_| nccl.register_buffer(comm, memory))
    }

    /// Ends the registration of the memory at an address, after this rank's work.
    pub fn deregister(&self, runtime: &Runtime, address: u64, limit: Duration) -> Result<()> {
        sync_debug::check("plinth_communicator_deregister")?;
        let memory = {
            let mut registered = self.registered().lock();
            let found = registered.iter().position(|other| other.memory.address() == address);
            let unknown = || {
                invalid(format!("{address:#x} is not the address of memory that is registered with the communicator"))
            };
            registered.swap_remove(found.ok_or_else(unknown)?)
        };
        if let Err(error) = self.wait_until_idle(runtime, limit) {
            self.registered().lock().push(memory);
            return Err(error);
        }
        let _calls = self.calls();
        self.deregister_idle(runtime, &memory)
    }

    /// Waits until this rank's work outside of captures has ended.
    fn wait_until_idle(&self, runtime: &Runtime, limit: Duration) -> Result<()> {
        if self.is_blocking() {
            // Its work is not watched, and it has no limit.
            return capture_lock::synchronize_device(runtime, runtime.device(self.device() as i32)?);
        }
        Deadline::new(limit).until(
            || format!("rank {} of {} waited for its work, to deregister memory", self.rank(), self.size()),
            || Ok(watchdog::is_idle(runtime, self).then_some(())),
        )
    }

    fn deregister_idle(&self, runtime: &Runtime, memory: &RegisteredMemory) -> Result<()> {
        let comm = self.comm()?;
        let device = runtime.device(self.device() as i32)?;
        device.with_context(&runtime.driver, |_| self.nccl().deregister(comm, memory.registered))
    }

    /// Deregisters all memory of a communicator that is about to be destroyed.
    pub(super) fn deregister_all(&self, runtime: &Runtime) {
        for memory in self.registered().lock().iter() {
            log::ignore(self.deregister_idle(runtime, memory), "deregistering memory of a communicator");
        }
    }
}

//! Joining a group: first the resources of the rank itself, then those of the other ranks.

use super::{
    ProcessGroup, TIMEOUT,
    launch_orders::{LaunchOrders, LaunchedWork},
    links::Links,
    rendezvous::{self, Id, RankInfo},
    symmetric_buffer::{SymmetricBuffer, import_part},
    tuning::Tuning,
};
use crate::{
    base::{deadline::Deadline, retry::retry},
    driver::{Kind, group::MAX_RANKS},
    error::{Context, Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use parking_lot::{Mutex, RwLock};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

/// A rank that has its own resources, but has not connected to the others. Dropping it does not affect other ranks.
#[derive(Debug)]
pub struct Candidate {
    group: ProcessGroup,
    /// The descriptor of the symmetric buffer.
    descriptor: OwnedFd,
}

impl ProcessGroup {
    /// Joins a group of `size` ranks as rank `rank`, on a device. Returns when all ranks have joined, or one has
    /// failed.
    pub fn join(id: &[u8; 128], rank: u32, size: u32, device: u32, timeout: Option<Duration>) -> Result<ProcessGroup> {
        check_id(id)?;
        Candidate::new(rank, size, device)?.join(id, timeout, &|| None)
    }

    /// Allocates the resources of a rank that do not depend on others.
    fn allocate(runtime: &'static Runtime, rank: u32, size: u32, ordinal: u32) -> Result<Candidate> {
        let (driver, device) = (&runtime.driver, runtime.device(ordinal as i32)?);
        let tuning = Tuning::of(size, device.properties(driver)?.multi_processor_count as u32)?;
        let links = Links::new(Vec::new()).map_err(no_links)?;
        let stream = device.with_context(driver, |driver| Ok(driver.stream_create(0)?))?;
        let (bytes, zeroed) = (tuning.buffer_bytes(size), tuning.zeroed(size));
        let (own, descriptor) = SymmetricBuffer::create(runtime, device, bytes, &zeroed, stream).inspect_err(|_| {
            // Return the first error; the stream is unused.
            retry(|| driver.stream_destroy(stream));
        })?;
        let mut group = ProcessGroup {
            rank,
            size,
            device: ordinal,
            tuning,
            links,
            timeout: AtomicU64::new(TIMEOUT.as_nanos() as u64),
            buffers: vec![own],
            report: None,
            stream,
            orders: Mutex::new(LaunchOrders::default()),
            launched: LaunchedWork::default(),
            has_notified: AtomicBool::new(false),
            failure: AtomicU64::new(0),
            registrations: RwLock::default(),
            left: Mutex::new(None),
            sleep: Arc::default(),
            contents: Mutex::new(None),
            changing: Mutex::new(()),
        };
        group.report = Some(device.with_context(driver, |driver| Ok(driver.report_alloc()?))?);
        Ok(Candidate { group, descriptor })
    }

    /// Returns what the other ranks must know of this one.
    pub(super) fn info(&self, runtime: &Runtime) -> Result<RankInfo> {
        let (driver, device) = (&runtime.driver, runtime.device(self.device as i32)?);
        let uuid = driver.device_uuid(device.native)?;
        let [upper, lower] = [0, 8].map(|at| std::array::from_fn(|index| uuid[at + index]));
        let version = version_digest(driver.kind());
        Ok(RankInfo([
            u64::from(self.rank),
            u64::from(std::process::id()),
            u64::from_le_bytes(upper),
            u64::from_le_bytes(lower),
            u64::from(self.size),
            version,
            self.tuning.digest(),
            self.buffers.first().map_or(0, SymmetricBuffer::bytes),
            0,
            0,
            0,
            0,
        ]))
    }

    fn meet(
        mut self,
        runtime: &'static Runtime,
        id: &Id,
        descriptor: OwnedFd,
        deadline: Deadline,
        stop: &dyn Fn() -> Option<Error>,
    ) -> Result<ProcessGroup> {
        let (driver, device) = (&runtime.driver, runtime.device(self.device as i32)?);
        let bytes = self.buffers.first().map_or(0, SymmetricBuffer::bytes);
        let info = self.info(runtime)?;
        let mut rendezvous = rendezvous::meet(id, info, self.size, &descriptor, deadline, stop)?;
        drop(descriptor);
        let mut map = || -> Result<()> {
            if driver.kind() != Kind::Host && !self.tuning.shared_gpu {
                check_devices(&rendezvous.infos)?;
            }
            self.links = Links::new(std::mem::take(&mut rendezvous.links)).map_err(no_links)?;
            for (other, descriptor) in rendezvous.buffers.iter().enumerate() {
                if let Some(descriptor) = descriptor {
                    let part = import_part(driver, other, descriptor, bytes)?;
                    let buffer = SymmetricBuffer::import(driver, device, other as u32, vec![part])?;
                    self.buffers.insert(other.min(self.buffers.len()), buffer);
                }
            }
            Ok(())
        };
        let mapped = map();
        rendezvous.buffers.clear();
        rendezvous.conclude(mapped)?;
        Ok(self)
    }
}

impl Candidate {
    /// Allocates all resources of a rank that do not depend on others, so that a failure occurs before any rank waits.
    pub fn new(rank: u32, size: u32, device: u32) -> Result<Candidate> {
        if size == 0 || size as usize > MAX_RANKS || rank >= size {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("there is no rank {rank} of {size}; a group has 1 to {MAX_RANKS} ranks"),
            ));
        }
        let runtime = runtime::ready()?;
        // A concurrent capture in this process must not be invalidated by the allocation.
        runtime
            .driver
            .with_relaxed_capture(|| ProcessGroup::allocate(runtime, rank, size, device))
            .map_err(Error::from)
            .flatten()
            .context(|| format!("preparing rank {rank} of {size} of a group on device {device}"))
    }

    /// Joins the other ranks. `stop` is polled for a reason to end the wait early, which becomes the error.
    pub fn join(
        self,
        id: &[u8; 128],
        timeout: Option<Duration>,
        stop: &dyn Fn() -> Option<Error>,
    ) -> Result<ProcessGroup> {
        let id = check_id(id)?;
        let runtime = runtime::ready()?;
        let Candidate { group, descriptor } = self;
        let (rank, size, device) = (group.rank, group.size, group.device);
        let stops = || stop().is_some();
        let deadline = Deadline::optional(timeout).unless(&stops);
        runtime
            .driver
            .with_relaxed_capture(|| group.meet(runtime, &id, descriptor, deadline, stop))
            .map_err(Error::from)
            .flatten()
            .map_err(|error| stop().unwrap_or(error))
            .context(|| format!("joining a group as rank {rank} of {size} on device {device}"))
    }
}

fn check_id(id: &[u8; 128]) -> Result<Id> {
    Id::read(id).ok_or_else(|| Error::new(Status::INVALID_VALUE, "this is not the id of a group"))
}

/// Returns a digest that differs between builds of the library and between kinds of devices.
fn version_digest(kind: Kind) -> u64 {
    let version = concat!(env!("CARGO_PKG_VERSION"), " 10");
    let start = if kind == Kind::Host { 1 } else { 2 };
    version.bytes().fold(start, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Refuses two ranks on one GPU: kernels that wait for each other should run at the same time, and there those of two processes
/// run by turns.
fn check_devices(infos: &[RankInfo]) -> Result<()> {
    for (index, info) in infos.iter().enumerate() {
        if let Some(other) = infos[..index].iter().find(|other| other.device() == info.device()) {
            let (first, second) = (other.rank(), info.rank());
            let message = format!(
                "ranks {first} and {second} are on the same GPU; give each rank its own, or set PLINTH_GROUP_TUNING=shared_gpu=1 \
                 for tests, in which each call may take milliseconds"
            );
            return Err(Error::new(Status::NOT_SUPPORTED, message));
        }
    }
    Ok(())
}

#[cold]
fn no_links(error: std::io::Error) -> Error {
    Error::new(Status::SYSTEM, format!("linking the processes of a group: {error}"))
}

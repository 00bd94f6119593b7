//! How a rank becomes one of a group: what it needs of its own, and then what it needs of the others.

use super::{
    Group, TIMEOUT,
    calls::Orders,
    links::Links,
    rendezvous::{self, Card, Id},
    symmetric_buffer::Window,
    tuning::Tuning,
};
use crate::{
    driver::{Kind, group::MAX_RANKS},
    error::{Context, Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use parking_lot::Mutex;
use std::{os::fd::OwnedFd, sync::atomic::AtomicU64, time::Duration};

/// A rank that has all that it needs of its own, but has not met the others. Where it is made for nothing, it goes without a
/// word.
#[derive(Debug)]
pub struct Candidate {
    group: Group,
    /// Of the window.
    descriptor: OwnedFd,
}

impl Group {
    /// Joins a group of `size` ranks as number `rank`, on a device. Returns when all have joined, or one could not.
    pub fn join(id: &[u8; 128], rank: u32, size: u32, device: u32, timeout: Option<Duration>) -> Result<Group> {
        check_id(id)?;
        Candidate::new(rank, size, device)?.join(id, timeout, &|| None)
    }

    /// A rank that may join a group: what could go wrong without the others has gone well.
    fn alone(runtime: &'static Runtime, rank: u32, size: u32, ordinal: u32) -> Result<Candidate> {
        let (driver, device) = (&runtime.driver, runtime.device(ordinal as i32)?);
        let tuning = Tuning::of(size)?;
        let stream = device.with_context(driver, |driver| Ok(driver.stream_create(0)?))?;
        let (own, descriptor) = Window::create(runtime, device, tuning.window(size)).inspect_err(|_| {
            // It is unused, and the error is another's.
            let _ = driver.stream_destroy(stream);
        })?;
        let mut group = Group {
            rank,
            size,
            device: ordinal,
            tuning,
            links: Links::new(Vec::new()).map_err(no_links)?,
            timeout: AtomicU64::new(TIMEOUT.as_nanos() as u64),
            windows: vec![own],
            report: None,
            stream,
            orders: Mutex::new(Orders::default()),
            left: Mutex::new(None),
        };
        group.report = Some(device.with_context(driver, |driver| Ok(driver.report_alloc()?))?);
        Ok(Candidate { group, descriptor })
    }

    fn meet(
        mut self,
        runtime: &'static Runtime,
        id: &Id,
        descriptor: OwnedFd,
        timeout: Option<Duration>,
        stops: &dyn Fn() -> bool,
    ) -> Result<Group> {
        let (driver, device) = (&runtime.driver, runtime.device(self.device as i32)?);
        let bytes = self.windows.first().map_or(0, Window::bytes);
        let uuid = driver.device_uuid(device.native)?;
        let [upper, lower] = [0, 8].map(|at| std::array::from_fn(|index| uuid[at + index]));
        let version = version_digest(driver.kind());
        let card = Card([
            u64::from(self.rank),
            u64::from(std::process::id()),
            u64::from_le_bytes(upper),
            u64::from_le_bytes(lower),
            u64::from(self.size),
            version,
            self.tuning.digest(),
            bytes,
            0,
            0,
            0,
            0,
        ]);
        let mut meeting = rendezvous::meet(id, card, self.size, &descriptor, timeout, stops)?;
        drop(descriptor);
        let mut map = || -> Result<()> {
            check_devices(driver.kind(), &meeting.cards)?;
            self.links = Links::new(std::mem::take(&mut meeting.links)).map_err(no_links)?;
            for (other, descriptor) in meeting.windows.iter().enumerate() {
                if let Some(descriptor) = descriptor {
                    let window = Window::import(driver, device, other as u32, descriptor, bytes)?;
                    self.windows.insert(other.min(self.windows.len()), window);
                }
            }
            Ok(())
        };
        let mapped = map();
        meeting.windows.clear();
        meeting.conclude(mapped)?;
        Ok(self)
    }
}

impl Candidate {
    /// Makes all that a rank needs of its own, so that what cannot be fails before anybody is waited for.
    pub fn new(rank: u32, size: u32, device: u32) -> Result<Candidate> {
        if size == 0 || size as usize > MAX_RANKS || rank >= size {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("there is no rank {rank} of {size}; a group has 1 to {MAX_RANKS} ranks"),
            ));
        }
        let runtime = runtime::ready()?;
        // A capture elsewhere in the process must not mind that memory is made.
        runtime
            .driver
            .with_relaxed_capture(|| Group::alone(runtime, rank, size, device))
            .map_err(Error::from)
            .flatten()
            .context(|| format!("preparing rank {rank} of {size} of a group on device {device}"))
    }

    /// Joins the others. `stop` is asked now and then whether there is a reason to wait no more, which is the error then.
    pub fn join(self, id: &[u8; 128], timeout: Option<Duration>, stop: &dyn Fn() -> Option<Error>) -> Result<Group> {
        let id = check_id(id)?;
        let runtime = runtime::ready()?;
        let Candidate { group, descriptor } = self;
        let (rank, size, device) = (group.rank, group.size, group.device);
        runtime
            .driver
            .with_relaxed_capture(|| group.meet(runtime, &id, descriptor, timeout, &|| stop().is_some()))
            .map_err(Error::from)
            .flatten()
            .map_err(|error| stop().unwrap_or(error))
            .context(|| format!("joining a group as rank {rank} of {size} on device {device}"))
    }
}

fn check_id(id: &[u8; 128]) -> Result<Id> {
    Id::read(id).ok_or_else(|| Error::new(Status::INVALID_VALUE, "this is not the id of a group"))
}

/// What tells builds of the library, and kinds of devices, apart.
fn version_digest(kind: Kind) -> u64 {
    let version = concat!(env!("CARGO_PKG_VERSION"), " 3");
    let start = if kind == Kind::Host { 1 } else { 2 };
    version.bytes().fold(start, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Kernels that wait for each other must run at the same time, which those of two processes on one GPU do not.
fn check_devices(kind: Kind, cards: &[Card]) -> Result<()> {
    if kind == Kind::Host {
        return Ok(());
    }
    for (index, card) in cards.iter().enumerate() {
        if let Some(other) = cards[..index].iter().find(|other| other.device() == card.device()) {
            let message = format!("ranks {} and {} are on the same GPU", other.rank(), card.rank());
            return Err(Error::new(Status::NOT_SUPPORTED, message));
        }
    }
    Ok(())
}

#[cold]
fn no_links(error: std::io::Error) -> Error {
    Error::new(Status::SYSTEM, format!("linking the processes of a group: {error}"))
}

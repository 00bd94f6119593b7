//! Collectives between the processes of one machine, by kernels that read and write memory which all of them share.
//!
//! The ranks meet in `rendezvous`, and map a `window` of each other's memory. From then on a collective is one launch on
//! each rank, which [`tuning`] chooses a way for; the kernels wait for each other, and the CPU for nothing. `links` between
//! the processes tell who is still there. What breaks a group stays: `call` refuses everything later.
//!
//! docs/collectives_processes.md tells how the kernels keep in step.

mod call;
mod descriptors;
mod links;
mod rendezvous;
pub mod tuning;
mod window;

use crate::{
    driver::{
        self, Kind,
        group::{Circle, MAX_RANKS, Reason, Report, Told, place},
    },
    error::{Context, Error, Result},
    runtime::{self, Runtime},
    status::Status,
};
use call::Orders;
pub use call::Transfer;
use links::{Links, State};
use parking_lot::Mutex;
use rendezvous::{Card, Id};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};
use tuning::Tuning;
use window::Window;

/// How long work waits for other ranks where nothing else was said: as long as PyTorch's.
pub const TIMEOUT: Duration = Duration::from_secs(600);
/// How long work may go on that waits for a rank which has left.
const PATIENCE: Duration = Duration::from_secs(1);

/// One rank's membership in a group.
///
/// It may be used from any thread; all ranks must make the same calls in the same order. A graph that has captured its work
/// must not run any more when it is dropped.
#[derive(Debug)]
pub struct Group {
    rank: u32,
    size: u32,
    device: u32,
    tuning: Tuning,
    links: Links,
    timeout: AtomicU64,
    /// Windows of all ranks, the own one included.
    windows: Vec<Window>,
    /// Taken when the group is dropped.
    report: Option<Report>,
    /// For what is said to other ranks beside the collectives.
    stream: driver::Stream,
    orders: Mutex<Orders>,
    /// When a rank was found to have left while there was work.
    left: Mutex<Option<Instant>>,
}

impl Group {
    /// A new group's name, which any process may make, to be passed to the others by any channel.
    pub fn new_id() -> Result<[u8; 128]> {
        Ok(Id::new()?.bytes())
    }

    /// Whether [`new_id`](Self::new_id) made this.
    pub fn is_id(bytes: &[u8; 128]) -> bool {
        Id::read(bytes).is_some()
    }

    /// Joins a group of `size` ranks as number `rank`, on a device. Returns when all have joined, or one could not.
    pub fn join(id: &[u8; 128], rank: u32, size: u32, device: u32, timeout: Option<Duration>) -> Result<Group> {
        let id = Id::read(id).ok_or_else(|| Error::new(Status::INVALID_VALUE, "this is not the id of a group"))?;
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
            .with_relaxed_capture(|| Group::meet(runtime, &id, rank, size, device, timeout))
            .map_err(Error::from)
            .flatten()
            .context(|| format!("joining a group as rank {rank} of {size} on device {device}"))
    }

    fn meet(
        runtime: &'static Runtime,
        id: &Id,
        rank: u32,
        size: u32,
        ordinal: u32,
        timeout: Option<Duration>,
    ) -> Result<Group> {
        let (driver, device) = (&runtime.driver, runtime.device(ordinal as i32)?);
        let tuning = Tuning::of(size)?;
        // Before anything is waited for, so that what cannot be fails at once.
        let stream = device.with_context(driver, |driver| Ok(driver.stream_create(0)?))?;
        let (own, descriptor) = Window::create(runtime, device, tuning.window(size)).inspect_err(|_| {
            // It is unused, and the error is another's.
            let _ = driver.stream_destroy(stream);
        })?;
        let bytes = own.bytes();
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
        let uuid = driver.device_uuid(device.native)?;
        let [upper, lower] = [0, 8].map(|at| std::array::from_fn(|index| uuid[at + index]));
        let version = version_digest(driver.kind());
        let card = Card([
            u64::from(rank),
            u64::from(std::process::id()),
            u64::from_le_bytes(upper),
            u64::from_le_bytes(lower),
            u64::from(size),
            version,
            tuning.digest(),
            bytes,
            0,
            0,
            0,
            0,
        ]);
        let mut meeting = rendezvous::meet(id, card, size, &descriptor, timeout)?;
        drop(descriptor);
        let mut map = || -> Result<()> {
            check_devices(driver.kind(), &meeting.cards)?;
            group.links = Links::new(std::mem::take(&mut meeting.links)).map_err(no_links)?;
            for (other, descriptor) in meeting.windows.iter().enumerate() {
                if let Some(descriptor) = descriptor {
                    let window = Window::import(driver, device, other as u32, descriptor, bytes)?;
                    group.windows.insert(other.min(group.windows.len()), window);
                }
            }
            Ok(())
        };
        let mapped = map();
        meeting.windows.clear();
        meeting.conclude(mapped)?;
        Ok(group)
    }

    /// Which rank this is.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// The number of this rank's device.
    pub fn device(&self) -> u32 {
        self.device
    }

    /// How this rank chooses its ways.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// How long work that is launched from now on waits for other ranks; zero is for ever.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.store(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Gives every process the bytes of each, in the order of ranks, through the CPU. Collective, and blocks.
    pub fn gather_bytes(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let timeout = Duration::from_nanos(self.timeout.load(Ordering::Relaxed));
        self.links.gather(self.rank, mine, Some(timeout).filter(|timeout| !timeout.is_zero()))
    }

    /// What has broken the group, if anything has. Finds out about ranks that are gone, and ends the work that waits for
    /// them.
    pub fn error(&self) -> Option<Error> {
        self.look_around();
        self.broken()
    }

    /// Breaks the group: work of it that waits ends, here and at the other ranks, and no more is taken.
    pub fn abort(&self) {
        let word = Reason::Aborted.word(self.rank);
        let Some(report) = &self.report else { return };
        if report.stopped().is_some() {
            return;
        }
        report.stop(word);
        self.links.abort();
        let Some(runtime) = runtime::usable() else { return };
        // To where the others' kernels look, and to where later launches of this rank do. A rank that this does not reach
        // hears of it through its link, or waits in vain for as long as it was told.
        let marks = self.windows.iter().enumerate().map(|(peer, window)| {
            let own = peer as u32 == self.rank;
            window.part(if own { place::FAILED } else { place::POISON + u64::from(self.rank) * 4 }, 4)
        });
        let _ = runtime.driver.with_relaxed_capture(|| {
            for mark in marks {
                let _ = runtime.in_any_context(|driver| Ok(driver.fill_32(mark, word, self.stream)?));
            }
        });
    }

    /// What breaks the group, as far as that is known here without looking.
    fn broken(&self) -> Option<Error> {
        let report = self.report.as_ref()?;
        let told = match (report.read(), report.stopped()) {
            (Some(told), _) => told,
            (None, Some(word)) => Told { word, by: self.rank, own: [0; 4], other: [0; 4] },
            (None, None) => return None,
        };
        Some(call::explain(self.rank, self.size, &told))
    }

    /// Looks whether all ranks are there.
    fn look_around(&self) {
        let Some(report) = &self.report else { return };
        let (mut left, mut left_broken) = (None, None);
        for (rank, state) in self.links.missing() {
            match state {
                State::Here => {}
                State::Gone => report.stop(Reason::Lost.word(rank)),
                State::Aborted => report.stop(Reason::Aborted.word(rank)),
                State::Left { broken: false } => left = left.or(Some(rank)),
                State::Left { broken: true } => left_broken = left_broken.or(Some(rank)),
            }
        }
        // A rank leaves when its own work is done, and then it has done its part of what others still do; but not if that
        // never ends. One for which the group was broken is not what is missed: another one broke it, as it has told.
        let mut since = self.left.lock();
        match left.or(left_broken) {
            Some(rank) if !self.orders.lock().is_idle(self.device) => {
                if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    report.stop(Reason::Lost.word(rank));
                }
            }
            _ => *since = None,
        }
    }

    /// What the kernels are to know.
    fn circle(&self) -> Circle {
        let mut windows = [0; MAX_RANKS];
        for (place, window) in windows.iter_mut().zip(&self.windows) {
            *place = window.address();
        }
        Circle {
            windows,
            window_bytes: self.windows.first().map_or(0, Window::bytes),
            report: self.report.as_ref().map_or(0, Report::address),
            timeout: self.timeout.load(Ordering::Relaxed),
            rank: self.rank,
            size: self.size,
            slot: self.tuning.slot(self.size) as u32,
            entry: self.tuning.entry as u32,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(runtime) = runtime::usable() else { return };
        let Some(report) = self.report.take() else { return self.release(runtime) };
        self.report = Some(report);
        // What was launched ends: with the others' part, or when they are found gone, or by its own clock.
        let mut pause = Duration::from_micros(20);
        while !self.orders.lock().is_idle(self.device) {
            self.look_around();
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        self.links.leave(self.broken().is_some());
        self.release(runtime);
    }
}

impl Group {
    fn release(&mut self, runtime: &'static Runtime) {
        let driver = &runtime.driver;
        let released = driver.with_relaxed_capture(|| {
            let Ok(device) = runtime.device(self.device as i32) else { return };
            let _ = device.with_context(driver, |driver| {
                // Marks of an abort may be on their way.
                let _ = driver.stream_synchronize(self.stream);
                let _ = driver.stream_destroy(self.stream);
                for window in self.windows.drain(..) {
                    window.release(driver);
                }
                if let Some(report) = self.report.take() {
                    let _ = driver.report_free(report);
                }
                Ok(())
            });
            self.orders.get_mut().give_back(device);
        });
        // A driver that refuses this is lost, and everything with it.
        let _ = released;
    }
}

/// What tells builds of the library, and kinds of devices, apart.
fn version_digest(kind: Kind) -> u64 {
    let version = concat!(env!("CARGO_PKG_VERSION"), " 2");
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

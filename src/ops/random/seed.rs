//! The generator that each device has of its own, and the seeds of all.
//!
//! A device's own generator begins with a seed that the operating system makes up, unless one was asked for: also before
//! the library was initialised. That initialises nothing, as in PyTorch, and on a machine without a GPU is no error.

use super::generator::{self, STATE_BYTES};
use crate::{
    error::{Error, Result},
    runtime::{self, Runtime, device::Device, per_device::PerDevice},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{fs::File, io::Read, sync::Arc};

/// A device's own generator.
#[derive(Default)]
pub struct DefaultGenerator(OnceCell<u64>);

/// A seeding that waits for the library to be initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seeding {
    /// Of the device that is current then.
    Current(u64),
    /// Of all devices.
    All(u64),
}

static WAITING: Mutex<Vec<Seeding>> = Mutex::new(Vec::new());

/// A seed that nobody can foretell, of 53 bits, as PyTorch makes them.
pub fn unforeseen() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Error::new(Status::SYSTEM, format!("reading a random seed from /dev/urandom: {error}")))?;
    Ok(u64::from_le_bytes(bytes) >> 11)
}

/// The handle of a device's own generator.
pub fn default_generator(device: i32) -> Result<u64> {
    let device = runtime::ready()?.device(device)?;
    let handle =
        device.default_generator().0.get_or_try_init(|| generator::create_default(device.ordinal, unforeseen()?));
    handle.copied()
}

fn default_state(device: i32) -> Result<Arc<generator::State>> {
    generator::get(default_generator(device)?)
}

fn every_device(runtime: &Runtime) -> impl Iterator<Item = i32> {
    0..runtime.devices().len() as i32
}

impl Seeding {
    fn apply(self, runtime: &Runtime) -> Result<()> {
        match self {
            Seeding::Current(seed) => default_state(-1)?.set_seed(seed),
            Seeding::All(seed) => every_device(runtime).try_for_each(|device| default_state(device)?.set_seed(seed)),
        }
    }

    /// Does it now, or when the library is initialised.
    fn request(self) -> Result<()> {
        if runtime::is_initialized() {
            return self.apply(runtime::ready()?);
        }
        // A forked child or an exiting process will never be initialised: that is an error here as anywhere.
        runtime::check_usable()?;
        let mut waiting = WAITING.lock();
        if let Seeding::All(_) = self {
            waiting.clear();
        }
        waiting.push(self);
        drop(waiting);
        // Another thread may have initialised the library meanwhile.
        if runtime::is_initialized() { apply_waiting(runtime::ready()?) } else { Ok(()) }
    }
}

/// Does what was asked for before the library was initialised.
pub fn apply_waiting(runtime: &Runtime) -> Result<()> {
    let waiting = std::mem::take(&mut *WAITING.lock());
    waiting.into_iter().try_for_each(|seeding| seeding.apply(runtime))
}

/// Seeds the current device's own generator.
pub fn manual_seed(seed: u64) -> Result<()> {
    Seeding::Current(seed).request()
}

/// Seeds the own generator of every device.
pub fn manual_seed_all(seed: u64) -> Result<()> {
    Seeding::All(seed).request()
}

/// Seeds the current device's own generator with a seed that nobody can foretell.
pub fn seed() -> Result<()> {
    Seeding::Current(unforeseen()?).request()
}

/// Seeds the own generator of every device with one such seed.
pub fn seed_all() -> Result<()> {
    Seeding::All(unforeseen()?).request()
}

/// The seed of the current device's own generator.
pub fn initial_seed() -> Result<u64> {
    Ok(default_state(-1)?.seed())
}

/// The state of a device's own generator.
pub fn state(device: i32) -> Result<[u8; STATE_BYTES]> {
    default_state(device)?.bytes()
}

/// Sets it.
pub fn set_state(device: i32, bytes: &[u8]) -> Result<()> {
    default_state(device)?.set_bytes(bytes)
}

fn check_count(count: usize, runtime: &Runtime) -> Result<()> {
    let devices = runtime.devices().len();
    if count <= devices {
        return Ok(());
    }
    Err(Error::new(Status::INVALID_VALUE, format!("states of {count} devices, where there are {devices}")))
}

/// The states of the first devices.
pub fn states(count: usize) -> Result<Vec<[u8; STATE_BYTES]>> {
    check_count(count, runtime::ready()?)?;
    (0..count as i32).map(state).collect()
}

/// Sets the states of the first devices. Nothing changes if one of them is malformed.
pub fn set_states(states: &[[u8; STATE_BYTES]]) -> Result<()> {
    check_count(states.len(), runtime::ready()?)?;
    let before = (0..states.len() as i32).map(state).collect::<Result<Vec<_>>>()?;
    for (device, bytes) in states.iter().enumerate() {
        if let Err(error) = set_state(device as i32, bytes) {
            for (done, bytes) in before.iter().enumerate().take(device) {
                set_state(done as i32, bytes)?;
            }
            return Err(error.context(format_args!("setting the state of device {device}")));
        }
    }
    Ok(())
}

impl Device {
    /// Returns the place of the device's own generator of random numbers.
    #[inline]
    pub(super) fn default_generator(&self) -> &'static DefaultGenerator {
        static VALUES: PerDevice<DefaultGenerator> = PerDevice::new();
        VALUES.of(self)
    }
}

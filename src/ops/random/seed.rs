//! The default generators of the devices, and their seeds.
//!
//! A default generator starts with a random seed from the operating system unless the program seeds it. It can be
//! seeded before the library is initialised; as in PyTorch, that does not initialise the library, and it succeeds on a
//! machine without a GPU.

use super::generator::{self, STATE_BYTES};
use crate::{
    error::{Error, Result},
    runtime::{self, Runtime, device::Device, per_device::PerDevice},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{fs::File, io::Read, sync::Arc};

/// A device's default generator.
#[derive(Default)]
pub struct DefaultGenerator(OnceCell<u64>);

/// A request to seed that is pending until the library is initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seeding {
    /// Seeds the device that is current then.
    Current(u64),
    /// Seeds all devices.
    All(u64),
}

static PENDING: Mutex<Vec<Seeding>> = Mutex::new(Vec::new());

/// Returns a random seed of 53 bits from the operating system, like PyTorch.
pub fn random_seed() -> Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| Error::new(Status::SYSTEM, format!("reading a random seed from /dev/urandom: {error}")))?;
    Ok(u64::from_le_bytes(bytes) >> 11)
}

/// Returns the handle of a device's default generator.
pub fn default_generator(device: i32) -> Result<u64> {
    let device = runtime::ready()?.device(device)?;
    let handle =
        device.default_generator().0.get_or_try_init(|| generator::create_default(device.ordinal, random_seed()?));
    handle.copied()
}

fn default_state(device: i32) -> Result<Arc<generator::GeneratorState>> {
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

    /// Applies the request now, or when the library is initialised.
    fn request(self) -> Result<()> {
        if runtime::is_initialized() {
            return self.apply(runtime::ready()?);
        }
        // A forked child or an exiting process is never initialised: report an error, as every other function does.
        runtime::check_usable()?;
        let mut pending = PENDING.lock();
        if let Seeding::All(_) = self {
            pending.clear();
        }
        pending.push(self);
        drop(pending);
        // Another thread may have initialised the library in the meantime.
        if runtime::is_initialized_or_starting() { apply_pending(runtime::ready()?) } else { Ok(()) }
    }
}

/// Applies the requests made before the library was initialised.
pub fn apply_pending(runtime: &Runtime) -> Result<()> {
    let pending = std::mem::take(&mut *PENDING.lock());
    let applied = pending.iter().try_for_each(|seeding| seeding.apply(runtime));
    if applied.is_err() {
        // The next call tries again.
        PENDING.lock().splice(0..0, pending);
    }
    applied
}

/// Seeds the current device's default generator.
pub fn manual_seed(seed: u64) -> Result<()> {
    Seeding::Current(seed).request()
}

/// Seeds the default generator of every device.
pub fn manual_seed_all(seed: u64) -> Result<()> {
    Seeding::All(seed).request()
}

/// Seeds the current device's default generator with a random seed.
pub fn seed() -> Result<()> {
    Seeding::Current(random_seed()?).request()
}

/// Seeds the default generator of every device with the same random seed.
pub fn seed_all() -> Result<()> {
    Seeding::All(random_seed()?).request()
}

/// Returns the seed of the current device's default generator.
pub fn initial_seed() -> Result<u64> {
    Ok(default_state(-1)?.seed())
}

/// Returns the state of a device's default generator.
pub fn state(device: i32) -> Result<[u8; STATE_BYTES]> {
    default_state(device)?.bytes()
}

/// Sets the state of a device's default generator.
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

/// Returns the states of the first devices.
pub fn states(count: usize) -> Result<Vec<[u8; STATE_BYTES]>> {
    check_count(count, runtime::ready()?)?;
    (0..count as i32).map(state).collect()
}

/// Sets the states of the first devices. If one of them is malformed, nothing changes.
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

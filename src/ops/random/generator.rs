//! Generators: a seed and an offset, from which fills reserve their random numbers.
//!
//! The offset counts the 32-bit numbers that have been consumed of each subsequence, and is a multiple of 4. A fill
//! advances it before the launch, so threads that share a generator get different numbers, and no lock is held during
//! the launch, which may wait for room in the stream. A fill that fails gives its numbers back, unless others have been
//! drawn after them.
//!
//! In a capture the numbers are not known yet: a graph with which a generator is registered holds the seed and the
//! offset of its replays in device memory, and its nodes have offsets relative to those.

use crate::{
    base::handle::{HandleTable, Kind},
    driver::random::PhiloxState,
    error::{Error, Result, invalid},
    runtime,
    status::Status,
    stream,
};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The default seed of a generator: PyTorch's `default_rng_seed_val`.
pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// The size in bytes of a generator's state: the seed, then the offset, both little-endian.
pub const STATE_BYTES: usize = 16;

/// The numbers of an active capture.
#[derive(Debug, Clone, Copy)]
struct Capture {
    id: u64,
    /// The addresses of the graph's seed and offset.
    seed: u64,
    offset: u64,
    /// The numbers that the graph has used so far.
    used: u64,
}

#[derive(Debug)]
struct Numbers {
    seed: u64,
    offset: u64,
    captures: Vec<Capture>,
}

/// The state of a generator. Handles and the graphs that use it share it.
#[derive(Debug)]
pub struct GeneratorState {
    /// Ordinal of its device.
    pub device: u32,
    numbers: Mutex<Numbers>,
}

/// An entry of the table of generators.
#[derive(Default)]
pub struct Generator {
    state: Mutex<Option<Arc<GeneratorState>>>,
    /// Whether it is the default generator of a device, which cannot be destroyed.
    is_default: AtomicBool,
}

static GENERATORS: HandleTable<Generator> = HandleTable::new(Kind::Generator);

/// Numbers that are reserved for a launch. If it is dropped without [`commit`](Self::commit), the generator gets them
/// back, unless others have been drawn after them.
pub struct Reservation<'a> {
    state: &'a GeneratorState,
    /// The capture that the numbers are for.
    capture: Option<u64>,
    first: PhiloxState,
    count: u64,
    is_committed: bool,
}

impl GeneratorState {
    /// Creates a state with a seed.
    pub fn new(device: u32, seed: u64) -> Arc<GeneratorState> {
        Arc::new(GeneratorState { device, numbers: Mutex::new(Numbers { seed, offset: 0, captures: Vec::new() }) })
    }

    /// Reserves `count` numbers of each subsequence, rounded up to a multiple of 4, for work in a stream. `capture` is
    /// the id of the capture that the stream takes part in, if any.
    pub fn reserve(&self, capture: Option<u64>, count: u64) -> Result<Reservation<'_>> {
        let count = round_up(count);
        let mut numbers = self.numbers.lock();
        let first = match capture {
            None => {
                let first = PhiloxState { seed: numbers.seed, offset: numbers.offset, ..PhiloxState::default() };
                numbers.offset = first.offset.wrapping_add(count);
                first
            }
            Some(id) => {
                let capture = numbers.capture(id).ok_or_else(|| {
                    Error::new(
                        Status::GENERATOR_NOT_REGISTERED,
                        "the generator is not registered with the graph that is being captured; \
                         plinth_graph_register_generator_state does that before the capture",
                    )
                })?;
                let Capture { seed, offset, used, .. } = *capture;
                capture.used = used.wrapping_add(count);
                PhiloxState { seed, offset, graph_offset: used, captured: 1, reserved: 0 }
            }
        };
        Ok(Reservation { state: self, capture, first, count, is_committed: false })
    }

    /// Makes the work of a capture use the numbers of a graph: `seed` and `offset` are the device addresses of those
    /// numbers.
    pub fn begin_capture(&self, id: u64, seed: u64, offset: u64) -> Result<()> {
        let mut numbers = self.numbers.lock();
        if numbers.captures.iter().any(|capture| capture.id == id) {
            return Err(Error::new(Status::INVALID_VALUE, "the generator is registered with this capture already"));
        }
        numbers.captures.push(Capture { id, seed, offset, used: 0 });
        Ok(())
    }

    /// Ends a capture and returns how many numbers of each subsequence the graph uses.
    pub fn end_capture(&self, id: u64) -> u64 {
        let mut numbers = self.numbers.lock();
        let index = numbers.captures.iter().position(|capture| capture.id == id);
        index.map_or(0, |index| numbers.captures.swap_remove(index).used)
    }

    /// Locks the seed and the offset. Fails if the thread's current stream captures: the work of a capture has neither yet.
    fn lock_outside_capture(&self, what: &str) -> Result<MutexGuard<'_, Numbers>> {
        let runtime = runtime::ready()?;
        let captured = stream::capture_id(runtime, stream::current_on(runtime, self.device)?)?.is_some();
        if captured {
            return Err(Error::new(
                Status::CAPTURE_FORBIDS,
                format!(
                    "the {what} of a generator cannot be read or set while the current stream is capturing; \
                     do that before the capture, or make another stream current"
                ),
            ));
        }
        Ok(self.numbers.lock())
    }

    /// Returns the seed.
    pub fn seed(&self) -> u64 {
        self.numbers.lock().seed
    }

    /// Sets the seed, and resets the offset to 0.
    pub fn set_seed(&self, seed: u64) -> Result<()> {
        let mut numbers = self.lock_outside_capture("seed")?;
        (numbers.seed, numbers.offset) = (seed, 0);
        Ok(())
    }

    /// Returns the offset.
    pub fn offset(&self) -> Result<u64> {
        Ok(self.lock_outside_capture("offset")?.offset)
    }

    /// Sets the offset.
    pub fn set_offset(&self, offset: u64) -> Result<()> {
        check_offset(offset)?;
        self.lock_outside_capture("offset")?.offset = offset;
        Ok(())
    }

    /// Returns the seed and the offset as bytes.
    pub fn bytes(&self) -> Result<[u8; STATE_BYTES]> {
        let numbers = self.lock_outside_capture("state")?;
        let mut bytes = [0; STATE_BYTES];
        bytes[..8].copy_from_slice(&numbers.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&numbers.offset.to_le_bytes());
        Ok(bytes)
    }

    /// Sets seed and offset; from 8 bytes, the seed, with an offset of 0.
    pub fn set_bytes(&self, bytes: &[u8]) -> Result<()> {
        let word = |from: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(word)
        };
        check_size(bytes.len())?;
        let (seed, offset) = (word(0), if bytes.len() == STATE_BYTES { word(8) } else { 0 });
        check_offset(offset)?;
        let mut numbers = self.lock_outside_capture("state")?;
        (numbers.seed, numbers.offset) = (seed, offset);
        Ok(())
    }

    /// Returns an independent copy of the state.
    fn copy(&self) -> Result<Arc<GeneratorState>> {
        let (seed, offset) = {
            let numbers = self.lock_outside_capture("state")?;
            (numbers.seed, numbers.offset)
        };
        let copy = GeneratorState::new(self.device, seed);
        copy.numbers.lock().offset = offset;
        Ok(copy)
    }
}

/// Checks the size of a state: 16 bytes, or 8 for the seed alone.
pub fn check_size(bytes: usize) -> Result<()> {
    if matches!(bytes, 8 | STATE_BYTES) {
        return Ok(());
    }
    Err(Error::new(
        Status::INVALID_VALUE,
        format!("RNG state is wrong size: {bytes} bytes, where 16 are wanted, or 8 for a seed alone"),
    ))
}

fn check_offset(offset: u64) -> Result<()> {
    if offset.is_multiple_of(4) {
        return Ok(());
    }
    Err(Error::new(Status::INVALID_VALUE, format!("offset must be a multiple of 4, and {offset} is none")))
}

/// Returns a count of numbers rounded up to a multiple of 4.
fn round_up(count: u64) -> u64 {
    count.wrapping_add(3) & !3
}

impl Numbers {
    fn capture(&mut self, id: u64) -> Option<&mut Capture> {
        self.captures.iter_mut().find(|capture| capture.id == id)
    }
}

impl Reservation<'_> {
    /// Returns the state of the generator after `used` of the reserved numbers; a multiple of 4.
    pub fn after(&self, used: u64) -> PhiloxState {
        let mut state = self.first;
        let offset = if self.capture.is_some() { &mut state.graph_offset } else { &mut state.offset };
        *offset = offset.wrapping_add(used);
        state
    }

    /// Consumes the reserved numbers.
    pub fn commit(mut self) {
        self.is_committed = true;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        let (first, after) = (self.first, self.after(self.count));
        let mut numbers = self.state.numbers.lock();
        match self.capture {
            None if (numbers.seed, numbers.offset) == (after.seed, after.offset) => numbers.offset = first.offset,
            None => {}
            Some(id) => {
                if let Some(capture) = numbers.capture(id).filter(|capture| capture.used == after.graph_offset) {
                    capture.used = first.graph_offset;
                }
            }
        }
    }
}

fn state_of(generator: &Generator) -> Result<Arc<GeneratorState>> {
    let state = generator.state.lock().clone();
    state.ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the generator is destroyed"))
}

/// Returns the state of a handle.
pub fn get(handle: u64) -> Result<Arc<GeneratorState>> {
    state_of(GENERATORS.get(handle)?)
}

fn insert(state: Arc<GeneratorState>, is_default: bool) -> Result<u64> {
    GENERATORS.insert(|generator| {
        *generator.state.lock() = Some(state);
        generator.is_default.store(is_default, Ordering::Relaxed);
    })
}

/// Creates the default generator of a device and returns its handle.
pub fn create_default(device: u32, seed: u64) -> Result<u64> {
    insert(GeneratorState::new(device, seed), true)
}

/// Creates a generator for a device, with PyTorch's default seed, and returns its handle.
pub fn create(device: i32) -> Result<u64> {
    let device = runtime::ready()?.device(device)?.ordinal;
    insert(GeneratorState::new(device, DEFAULT_SEED), false)
}

/// Creates an independent generator with the same state as another.
pub fn copy(handle: u64) -> Result<u64> {
    insert(get(handle)?.copy()?, false)
}

/// Creates a generator that shares another's state: each number is consumed by one of them only.
pub fn share(handle: u64) -> Result<u64> {
    insert(get(handle)?, false)
}

/// Makes a generator share another's state: PyTorch's `graphsafe_set_state`, which is allowed during a capture.
pub fn adopt(handle: u64, other: u64) -> Result<()> {
    let (generator, shared) = (GENERATORS.get(handle)?, get(other)?);
    let own = state_of(generator)?;
    if own.device != shared.device {
        return Err(device_mismatch(shared.device, own.device));
    }
    *generator.state.lock() = Some(shared);
    Ok(())
}

/// Destroys a generator. Graphs that use it remain valid.
pub fn destroy(handle: u64) -> Result<()> {
    if GENERATORS.get(handle)?.is_default.load(Ordering::Relaxed) {
        return Err(Error::new(Status::INVALID_VALUE, "a device's default generator cannot be destroyed"));
    }
    GENERATORS.remove(handle, |generator| *generator.state.lock() = None)
}

#[cold]
fn device_mismatch(actual: u32, wanted: u32) -> Error {
    Error::new(
        Status::DEVICE_MISMATCH,
        format!("expected a generator of device {wanted}, but found one of device {actual}"),
    )
}

/// Returns the state from which a fill on a device reserves its numbers: that of a generator, or of the device's
/// default generator if the handle is 0.
pub fn on_device(handle: u64, device: u32) -> Result<Arc<GeneratorState>> {
    let handle = if handle == 0 { super::seed::default_generator(device as i32)? } else { handle };
    let state = get(handle)?;
    if state.device == device { Ok(state) } else { Err(device_mismatch(state.device, device)) }
}

/// The most 32-bit values that a kernel of the caller may reserve: a quarter of all that an offset counts.
const MAX_INCREMENT: u64 = 1 << 62;

/// Reserves and consumes numbers for a kernel of the caller in the current stream of the generator's device.
pub fn philox_state(handle: u64, increment: u64) -> Result<PhiloxState> {
    if increment > MAX_INCREMENT {
        return Err(invalid(format!("the increment {increment} is larger than {MAX_INCREMENT}")));
    }
    let runtime = runtime::ready()?;
    let handle = if handle == 0 { super::seed::default_generator(-1)? } else { handle };
    let state = get(handle)?;
    let capture = stream::capture_id(runtime, stream::current_on(runtime, state.device)?)?;
    let reservation = state.reserve(capture, increment)?;
    let philox = reservation.after(0);
    reservation.commit();
    Ok(philox)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncommitted_numbers_are_not_consumed() {
        let state = GeneratorState::new(0, 7);
        let reservation = state.reserve(None, 17).unwrap();
        assert_eq!((reservation.after(0).offset, reservation.after(12).offset), (0, 12));
        assert_eq!(state.numbers.lock().offset, 20);
        drop(reservation);
        assert_eq!(state.numbers.lock().offset, 0);
        state.reserve(None, 10).unwrap().commit();
        assert_eq!(state.numbers.lock().offset, 12);
    }

    #[test]
    fn numbers_are_given_back_unless_others_were_drawn_after_them() {
        let state = GeneratorState::new(0, 7);
        let failed = state.reserve(None, 4).unwrap();
        state.reserve(None, 8).unwrap().commit();
        drop(failed);
        assert_eq!(state.numbers.lock().offset, 12);
        let failed = state.reserve(None, 4).unwrap();
        state.numbers.lock().seed = 8;
        drop(failed);
        assert_eq!(state.numbers.lock().offset, 16);
    }

    #[test]
    fn a_capture_has_its_own_numbers() {
        let state = GeneratorState::new(0, 7);
        state.begin_capture(5, 0x100, 0x108).unwrap();
        assert!(state.begin_capture(5, 0x200, 0x208).is_err());
        assert_eq!(state.reserve(Some(6), 4).err().unwrap().status(), Status::GENERATOR_NOT_REGISTERED);
        for (used, counts) in [(0, true), (12, false), (12, true)] {
            let reservation = state.reserve(Some(5), 9).unwrap();
            let philox = reservation.after(4);
            assert_eq!((philox.seed, philox.offset, philox.graph_offset, philox.captured), (0x100, 0x108, used + 4, 1));
            if counts {
                reservation.commit();
            }
        }
        assert_eq!((state.end_capture(5), state.end_capture(5)), (24, 0));
        assert_eq!(state.numbers.lock().offset, 0);
    }
}

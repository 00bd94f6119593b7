//! Generators: a seed and an offset, from which fills take their numbers.
//!
//! The offset counts the 32-bit numbers that each subsequence has given, and is a multiple of 4. A fill locks the generator
//! while it launches, and the offset moves on only when it has: what fails takes no numbers, and threads that share a
//! generator get numbers of their own.
//!
//! In a capture the numbers are not known yet: a graph that a generator is registered with has the seed and the offset of
//! its replays in device memory, and its nodes have their place within the graph.

use crate::{
    base::handle::{HandleTable, Kind},
    driver::random::PhiloxState,
    error::{Error, Result},
    runtime,
    status::Status,
    stream::{self, Stream},
};
use parking_lot::{Mutex, MutexGuard};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The seed of a generator that was given none: PyTorch's `default_rng_seed_val`.
pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// The bytes of a generator's state: the seed, then the offset, both little-endian.
pub const STATE_BYTES: usize = 16;

/// Where the numbers of a capture are, while it goes on.
#[derive(Debug, Clone, Copy)]
struct Capture {
    id: u64,
    /// The addresses of the graph's seed and offset.
    seed: u64,
    offset: u64,
    /// What the graph has used so far.
    used: u64,
}

#[derive(Debug)]
struct Numbers {
    seed: u64,
    offset: u64,
    captures: Vec<Capture>,
}

/// What a generator's handle leads to, and the graphs that use it hold on to.
#[derive(Debug)]
pub struct State {
    /// The number of its device.
    pub device: u32,
    numbers: Mutex<Numbers>,
}

/// A slot of the table of generators.
#[derive(Default)]
pub struct Generator {
    state: Mutex<Option<Arc<State>>>,
    /// Whether it is a device's own, which is not the caller's to destroy.
    is_default: AtomicBool,
}

static GENERATORS: HandleTable<Generator> = HandleTable::new(Kind::Generator);

/// Numbers that are being taken. Dropped without [`commit`](Self::commit), none were.
pub struct Taking<'a> {
    numbers: MutexGuard<'a, Numbers>,
    /// Which of the captures they are for.
    capture: Option<usize>,
    used: u64,
}

/// The numbers of a graph's replay that is being launched. Dropped without [`commit`](Self::commit), none were taken.
pub struct Replaying<'a> {
    numbers: MutexGuard<'a, Numbers>,
    used: u64,
}

impl State {
    /// One with a seed.
    pub fn new(device: u32, seed: u64) -> Arc<State> {
        Arc::new(State { device, numbers: Mutex::new(Numbers { seed, offset: 0, captures: Vec::new() }) })
    }

    /// Begins to take numbers for work in a stream, which takes part in the capture with this number, if in any.
    pub fn take(&self, capture: Option<u64>) -> Result<Taking<'_>> {
        let numbers = self.numbers.lock();
        let capture = match capture {
            None => None,
            Some(id) => Some(numbers.captures.iter().position(|capture| capture.id == id).ok_or_else(|| {
                Error::new(
                    Status::GENERATOR_NOT_REGISTERED,
                    "the generator is not registered with the graph that is being captured; \
                     plinth_graph_register_generator_state does that before the capture",
                )
            })?),
        };
        Ok(Taking { numbers, capture, used: 0 })
    }

    /// Lets work of a capture take its numbers from a graph's: `seed` and `offset` are the addresses of those.
    pub fn begin_capture(&self, id: u64, seed: u64, offset: u64) -> Result<()> {
        let mut numbers = self.numbers.lock();
        if numbers.captures.iter().any(|capture| capture.id == id) {
            return Err(Error::new(Status::INVALID_VALUE, "the generator is registered with this capture already"));
        }
        numbers.captures.push(Capture { id, seed, offset, used: 0 });
        Ok(())
    }

    /// Ends that, and tells how many numbers of each subsequence the graph uses.
    pub fn end_capture(&self, id: u64) -> u64 {
        let mut numbers = self.numbers.lock();
        let index = numbers.captures.iter().position(|capture| capture.id == id);
        index.map_or(0, |index| numbers.captures.swap_remove(index).used)
    }

    /// Begins to take the numbers of a graph's replay.
    pub fn begin_replay(&self, used: u64) -> Replaying<'_> {
        Replaying { numbers: self.numbers.lock(), used }
    }

    /// The seed and the offset, which a capture does not have yet.
    fn settled(&self, what: &str) -> Result<MutexGuard<'_, Numbers>> {
        let runtime = runtime::ready()?;
        let captured = capture_id(stream::current_on(runtime, self.device)?)?.is_some();
        let numbers = self.numbers.lock();
        if captured || !numbers.captures.is_empty() {
            return Err(Error::new(
                Status::CAPTURE_FORBIDS,
                format!("the {what} of a generator cannot be read or set while a graph is being captured with it"),
            ));
        }
        Ok(numbers)
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.numbers.lock().seed
    }

    /// Sets the seed, and begins its sequence anew.
    pub fn set_seed(&self, seed: u64) -> Result<()> {
        let mut numbers = self.settled("seed")?;
        (numbers.seed, numbers.offset) = (seed, 0);
        Ok(())
    }

    /// The offset.
    pub fn offset(&self) -> Result<u64> {
        Ok(self.settled("offset")?.offset)
    }

    /// Sets the offset.
    pub fn set_offset(&self, offset: u64) -> Result<()> {
        check_offset(offset)?;
        self.settled("offset")?.offset = offset;
        Ok(())
    }

    /// Seed and offset, as bytes.
    pub fn bytes(&self) -> Result<[u8; STATE_BYTES]> {
        let numbers = self.settled("state")?;
        let mut bytes = [0; STATE_BYTES];
        bytes[..8].copy_from_slice(&numbers.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&numbers.offset.to_le_bytes());
        Ok(bytes)
    }

    /// Sets both, or, from 8 bytes, the seed with an offset of 0.
    pub fn set_bytes(&self, bytes: &[u8]) -> Result<()> {
        let word = |from: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(word)
        };
        check_size(bytes.len())?;
        let (seed, offset) = (word(0), if bytes.len() == STATE_BYTES { word(8) } else { 0 });
        check_offset(offset)?;
        let mut numbers = self.settled("state")?;
        (numbers.seed, numbers.offset) = (seed, offset);
        Ok(())
    }

    /// A generator that goes on from here on its own.
    fn copy(&self) -> Result<Arc<State>> {
        let (seed, offset) = {
            let numbers = self.settled("state")?;
            (numbers.seed, numbers.offset)
        };
        let copy = State::new(self.device, seed);
        copy.numbers.lock().offset = offset;
        Ok(copy)
    }
}

/// Refuses a state of so many bytes, unless it is whole or a seed alone.
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

impl Replaying<'_> {
    /// The seed and the offset that the replay begins with.
    pub fn begins(&self) -> (u64, u64) {
        (self.numbers.seed, self.numbers.offset)
    }

    /// Makes what was taken count.
    pub fn commit(mut self) {
        self.numbers.offset = self.numbers.offset.wrapping_add(self.used);
    }
}

impl Taking<'_> {
    /// Takes the numbers of a launch that advances the offset by `increment`, rounded up to a multiple of 4.
    pub fn next(&mut self, increment: u64) -> PhiloxState {
        let used = self.used;
        self.used = used.wrapping_add(increment.wrapping_add(3) & !3);
        match self.capture.and_then(|index| self.numbers.captures.get(index)) {
            None => PhiloxState {
                seed: self.numbers.seed,
                offset: self.numbers.offset.wrapping_add(used),
                ..PhiloxState::default()
            },
            Some(capture) => PhiloxState {
                seed: capture.seed,
                offset: capture.offset,
                graph_offset: capture.used.wrapping_add(used),
                captured: 1,
                reserved: 0,
            },
        }
    }

    /// Makes what was taken count.
    pub fn commit(mut self) {
        let used = self.used;
        match self.capture.and_then(|index| self.numbers.captures.get_mut(index)) {
            None => self.numbers.offset = self.numbers.offset.wrapping_add(used),
            Some(capture) => capture.used = capture.used.wrapping_add(used),
        }
    }
}

/// The number of the capture that a stream takes part in. An invalid one is an error.
pub fn capture_id(stream: Stream) -> Result<Option<u64>> {
    if stream.raw.handle() <= crate::driver::types::CU_STREAM_LEGACY {
        return Ok(None);
    }
    runtime::ready()?.in_stream(stream, |driver, raw| Ok(driver.stream_capture_id(raw)?))
}

fn state_of(generator: &Generator) -> Result<Arc<State>> {
    let state = generator.state.lock().clone();
    state.ok_or_else(|| Error::new(Status::INVALID_HANDLE, "the generator is destroyed"))
}

/// The state behind a handle.
pub fn get(handle: u64) -> Result<Arc<State>> {
    state_of(GENERATORS.get(handle)?)
}

fn insert(state: Arc<State>, is_default: bool) -> Result<u64> {
    GENERATORS.insert(|generator| {
        *generator.state.lock() = Some(state);
        generator.is_default.store(is_default, Ordering::Relaxed);
    })
}

/// Makes a device's own generator, as a handle.
pub fn create_default(device: u32, seed: u64) -> Result<u64> {
    insert(State::new(device, seed), true)
}

/// Makes a generator for a device, with PyTorch's default seed, as a handle.
pub fn create(device: i32) -> Result<u64> {
    let device = runtime::ready()?.device(device)?.ordinal;
    insert(State::new(device, DEFAULT_SEED), false)
}

/// Makes a generator that goes on from where another is.
pub fn copy(handle: u64) -> Result<u64> {
    insert(get(handle)?.copy()?, false)
}

/// Makes a generator that shares another's state: what one takes, the other does not get.
pub fn share(handle: u64) -> Result<u64> {
    insert(get(handle)?, false)
}

/// Lets a generator share another's state in place of its own: PyTorch's `graphsafe_set_state`, which is allowed in a
/// capture.
pub fn adopt(handle: u64, other: u64) -> Result<()> {
    let (generator, adopted) = (GENERATORS.get(handle)?, get(other)?);
    let own = state_of(generator)?;
    if own.device != adopted.device {
        return Err(elsewhere(adopted.device, own.device));
    }
    *generator.state.lock() = Some(adopted);
    Ok(())
}

/// Ends a generator. Graphs that use it go on.
pub fn destroy(handle: u64) -> Result<()> {
    if GENERATORS.get(handle)?.is_default.load(Ordering::Relaxed) {
        return Err(Error::new(Status::INVALID_VALUE, "a device's default generator cannot be destroyed"));
    }
    GENERATORS.remove(handle, |generator| *generator.state.lock() = None)
}

#[cold]
fn elsewhere(actual: u32, wanted: u32) -> Error {
    Error::new(
        Status::DEVICE_MISMATCH,
        format!("expected a generator of device {wanted}, but found one of device {actual}"),
    )
}

/// The state that a fill on a device takes its numbers from: that of a generator, or for 0 the device's own.
pub fn on_device(handle: u64, device: u32) -> Result<Arc<State>> {
    let handle = if handle == 0 { super::seed::default_generator(device as i32)? } else { handle };
    let state = get(handle)?;
    if state.device == device { Ok(state) } else { Err(elsewhere(state.device, device)) }
}

/// Takes numbers for a kernel of the caller's own in the current stream of the generator's device.
pub fn philox_state(handle: u64, increment: u64) -> Result<PhiloxState> {
    let runtime = runtime::ready()?;
    let handle = if handle == 0 { super::seed::default_generator(-1)? } else { handle };
    let state = get(handle)?;
    let capture = capture_id(stream::current_on(runtime, state.device)?)?;
    let mut taking = state.take(capture)?;
    let philox = taking.next(increment);
    taking.commit();
    Ok(philox)
}

/// How many generators are live, the devices' own among them.
pub fn live() -> usize {
    GENERATORS.live()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_committed_was_not_taken() {
        let state = State::new(0, 7);
        let mut taking = state.take(None).unwrap();
        assert_eq!((taking.next(10).offset, taking.next(4).offset, taking.next(1).offset), (0, 12, 16));
        drop(taking);
        assert_eq!(state.numbers.lock().offset, 0);
        let mut taking = state.take(None).unwrap();
        taking.next(10);
        taking.commit();
        assert_eq!(state.numbers.lock().offset, 12);
    }

    #[test]
    fn a_capture_has_numbers_of_its_own() {
        let state = State::new(0, 7);
        state.begin_capture(5, 0x100, 0x108).unwrap();
        assert!(state.begin_capture(5, 0x200, 0x208).is_err());
        assert_eq!(state.take(Some(6)).err().unwrap().status(), Status::GENERATOR_NOT_REGISTERED);
        for used in [0, 12] {
            let mut taking = state.take(Some(5)).unwrap();
            let philox = taking.next(9);
            assert_eq!((philox.seed, philox.offset, philox.graph_offset, philox.captured), (0x100, 0x108, used, 1));
            taking.commit();
        }
        assert_eq!((state.end_capture(5), state.end_capture(5)), (24, 0));
        for (offset, counts) in [(0, true), (24, false), (24, true), (48, true)] {
            let replaying = state.begin_replay(24);
            assert_eq!(replaying.begins(), (7, offset));
            if counts {
                replaying.commit();
            }
        }
    }
}

//! What a graph keeps for its replays: the memory that it was captured with, and the generators whose numbers it uses.

use super::replay_order::{self, Shared};
use crate::stream::capture_resources::{self, Thing};
use crate::{
    driver::{Function, Span},
    error::{Context, Error, Result},
    memory::{self, PoolId},
    ops::{blas, random::generator::GeneratorState},
    runtime::{self, Runtime, device::Device},
    status::Status,
    stream::{Stream, kernel::Kernel},
};
use std::sync::Arc;

/// A generator of a graph, and where the graph's nodes read the seed and the offset of a replay.
#[derive(Debug)]
struct Numbers {
    state: Arc<GeneratorState>,
    place: Span,
    /// How many numbers of each subsequence a replay uses.
    used: u64,
}

/// See the module's comment. Graphs that were cloned or updated share it.
#[derive(Debug)]
pub struct Kept {
    /// The number of the device that the graph was captured on.
    pub device: u32,
    /// The pool.
    pub pool: Arc<Shared>,
    /// Whether the pool counts this as a user.
    is_user: bool,
    /// The generators; once the capture is over only those that it used, in the order of their addresses, so that threads
    /// that lock several never wait for each other in a circle.
    numbers: Vec<Numbers>,
    /// The block that the places are in; 0 if there is none.
    block: u64,
    /// The stream that the block was allocated for.
    stream: Stream,
    /// The kernel that writes the places, once the capture is over and has used any.
    set: Option<Function>,
    /// What else the graph's nodes use.
    things: Vec<Thing>,
}

/// The bytes of a place: a seed and an offset.
const PLACE: u64 = 16;

impl Kept {
    /// What a capture in a stream begins with.
    pub fn new(device: &Device, stream: Stream, pool: PoolId, mut states: Vec<Arc<GeneratorState>>) -> Result<Kept> {
        states.sort_by_key(|state| Arc::as_ptr(state).addr());
        states.dedup_by(|one, other| Arc::ptr_eq(one, other));
        if let Some(other) = states.iter().find(|state| state.device != device.ordinal) {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!(
                    "a generator of device {} is registered with a graph of device {}",
                    other.device, device.ordinal
                ),
            ));
        }
        let bytes = states.len() as u64 * PLACE;
        let block = memory::caching_alloc(bytes, device.ordinal as i32, stream.raw)
            .context(|| "allocating the places of a graph's seeds")?;
        let numbers = states.into_iter().enumerate().map(|(index, state)| {
            let place = Span::owned(block + index as u64 * PLACE, PLACE as usize);
            Numbers { state, place, used: 0 }
        });
        let numbers = numbers.collect();
        let pool = replay_order::join(pool);
        Ok(Kept { device: device.ordinal, pool, is_user: false, numbers, block, stream, set: None, things: Vec::new() })
    }

    /// Lets a capture's requests go to the pool, and its random numbers be the graph's.
    pub fn begin(&mut self, runtime: &Runtime, capture: u64) -> Result<()> {
        memory::begin_capture_to_pool(runtime, self.pool.id, capture)?;
        self.is_user = true;
        capture_resources::begin(capture);
        for numbers in &self.numbers {
            let address = numbers.place.address();
            numbers.state.begin_capture(capture, address, address + 8)?;
        }
        Ok(())
    }

    /// Ends that, as far as it was begun.
    pub fn end(&mut self, runtime: &Runtime, capture: u64) {
        self.things = capture_resources::end(capture);
        blas::capture_ended(capture);
        if self.is_user {
            memory::end_capture_to_pool(runtime, self.pool.id);
        }
        for numbers in &mut self.numbers {
            numbers.used = numbers.state.end_capture(capture);
        }
        self.pool.turn().pass_on(runtime, self.stream);
    }

    /// Makes ready what replays need, and gives back what they do not.
    pub fn settle(&mut self, runtime: &Runtime) -> Result<()> {
        self.numbers.retain(|numbers| numbers.used > 0);
        if self.numbers.is_empty() {
            // Nothing in the stream has used it yet.
            let _ = memory::caching_free(std::mem::take(&mut self.block));
            return Ok(());
        }
        let device = runtime.device(self.device as i32)?;
        self.set = Some(device.kernel(&runtime.driver, Kernel::PhiloxSet)?);
        Ok(())
    }

    /// Whether replays use random numbers.
    #[inline]
    pub fn is_random(&self) -> bool {
        self.set.is_some()
    }

    /// Launches in a stream what tells the nodes their numbers, then the graph. If anything fails, no numbers were taken.
    pub fn launch_random(&self, runtime: &Runtime, stream: Stream, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        self.launch_from(0, runtime, stream, launch)
    }

    fn launch_from(
        &self,
        index: usize,
        runtime: &Runtime,
        stream: Stream,
        launch: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let (Some(numbers), Some(set)) = (self.numbers.get(index), self.set) else { return launch() };
        let reservation = numbers.state.begin_replay(numbers.used);
        let (seed, offset) = reservation.start();
        runtime
            .in_stream(stream, |driver, raw| Ok(driver.launch_philox_set(set, numbers.place, seed, offset, raw)?))
            .context(|| "launching plinth_philox_set")?;
        self.launch_from(index + 1, runtime, stream, launch)?;
        reservation.commit();
        Ok(())
    }
}

impl Drop for Kept {
    /// Gives everything back behind the last replay.
    fn drop(&mut self) {
        // A child of a fork and an exiting process leave it to the operating system.
        let Some(runtime) = runtime::usable() else { return };
        let turn = self.pool.turn();
        if self.is_user {
            turn.let_follow(runtime, &memory::streams_of_pool(runtime, self.pool.id));
        }
        if self.block != 0 {
            if let Some(last) = turn.last_stream() {
                let _ = memory::record_stream(self.block, last.raw, last.device);
            }
            // It was allocated here and is given back once.
            let _ = memory::caching_free(self.block);
        }
        drop(turn);
        if self.is_user {
            memory::release_captured_pool(runtime, self.pool.id);
        }
    }
}

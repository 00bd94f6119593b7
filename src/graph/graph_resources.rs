//! The resources that a graph holds for its replays: the memory of its capture, and the generators that it uses.

use super::replay_order::{self, SharedPool};
use crate::{
    base::log,
    driver::Span,
    error::{Context, Error, Result},
    memory::{self, PoolId, scratch::alloc_span},
    ops::random::generator::{GeneratorState, ReplayReservation},
    runtime::{self, Runtime, device::Device},
    status::Status,
    stream::{
        Stream,
        capture_scope::{self, CaptureResource, Resource},
    },
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A generator of a graph, and the address at which the graph's nodes read the seed and the offset of a replay.
struct CapturedGenerator {
    state: Arc<GeneratorState>,
    seed_and_offset: Span,
    /// The random numbers of each subsequence that a replay consumes. Set when the capture ends.
    used: AtomicU64,
}

impl CapturedGenerator {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

/// Returns the seed and the offset of a replay, each with its place.
fn start_of((generator, reservation): (&Arc<CapturedGenerator>, &ReplayReservation)) -> [(Span, u64); 2] {
    let (seed, offset) = reservation.start();
    [(generator.seed_and_offset.part(0, 8), seed), (generator.seed_and_offset.part(8, 8), offset)]
}

impl CaptureResource for CapturedGenerator {
    fn on_capture_end(&self, _runtime: &Runtime, capture: u64) -> bool {
        self.used.store(self.state.end_capture(capture), Ordering::Relaxed);
        // The graph has its own list of generators.
        false
    }
}

/// The resources of a graph. Clones and updated graphs share them.
pub struct GraphResources {
    /// The number of the device that the graph was captured on.
    pub device: u32,
    /// The pool.
    pub pool: Arc<SharedPool>,
    /// Whether the pool counts this object as a user.
    is_user: bool,
    /// The generators. After the capture only those that it used, ordered by address, so that threads that lock
    /// several cannot deadlock.
    generators: Vec<Arc<CapturedGenerator>>,
    /// The memory block for the seeds and offsets; 0 if there is none.
    block: u64,
    /// The stream that the block was allocated for.
    stream: Stream,
    /// Other resources that the graph's nodes use.
    others: Vec<Resource>,
}

/// The bytes of a seed and an offset.
const SEED_AND_OFFSET_BYTES: u64 = 16;

impl GraphResources {
    /// Creates the resources for a capture in a stream.
    pub fn new(
        device: &Device,
        stream: Stream,
        pool: PoolId,
        mut states: Vec<Arc<GeneratorState>>,
    ) -> Result<GraphResources> {
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
        let bytes = states.len() as u64 * SEED_AND_OFFSET_BYTES;
        let memory = alloc_span(bytes, stream).context(|| "allocating the seeds and offsets of a graph")?;
        let generators = states.into_iter().enumerate().map(|(index, state)| {
            let seed_and_offset = memory.part(index * SEED_AND_OFFSET_BYTES as usize, SEED_AND_OFFSET_BYTES as usize);
            Arc::new(CapturedGenerator { state, seed_and_offset, used: AtomicU64::new(0) })
        });
        let generators = generators.collect();
        let pool = replay_order::shared_pool(pool);
        Ok(GraphResources {
            device: device.ordinal,
            pool,
            is_user: false,
            generators,
            block: memory.address(),
            stream,
            others: Vec::new(),
        })
    }

    /// Routes the capture's memory requests to the pool, and its random numbers to the graph.
    pub fn begin(&mut self, runtime: &Runtime, capture: u64) -> Result<()> {
        capture_scope::begin(capture);
        memory::begin_capture_to_pool(runtime, self.pool.id, capture)?;
        self.is_user = true;
        for generator in &self.generators {
            let address = generator.seed_and_offset.address();
            generator.state.begin_capture(capture, address, address + 8)?;
            capture_scope::add(capture, generator);
        }
        Ok(())
    }

    /// Undoes what [`begin`](Self::begin) did, also if that failed midway.
    pub fn end(&mut self, runtime: &Runtime, capture: u64) {
        self.others = capture_scope::end(runtime, capture);
        self.pool.lock_last_replay().set_after_capture(runtime, self.stream);
    }

    /// Prepares for replays after the capture, and releases unused generators.
    pub fn finish_capture(&mut self) {
        self.generators.retain(|generator| generator.used() > 0);
        if self.generators.is_empty() {
            // No work in the stream has used the block yet.
            memory::free_own(std::mem::take(&mut self.block));
        }
    }

    /// Fails if a resource of the graph sleeps.
    pub fn check_awake(&self) -> Result<()> {
        self.others.iter().try_for_each(|resource| resource.check_awake())
    }

    /// Returns whether replays use random numbers.
    #[inline]
    pub fn is_random(&self) -> bool {
        !self.generators.is_empty()
    }

    /// Writes the seeds and offsets in a stream, then launches the graph. After a failure no random numbers are consumed.
    pub fn launch_random(&self, runtime: &Runtime, stream: Stream, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let reservations: Vec<ReplayReservation> =
            self.generators.iter().map(|generator| generator.state.begin_replay(generator.used())).collect();
        let numbers: Vec<(Span, u64)> = self.generators.iter().zip(&reservations).flat_map(start_of).collect();
        runtime
            .in_stream(stream, |driver, raw| Ok(driver.write_numbers(&numbers, raw)?))
            .context(|| "writing the seed and the offset of a replay")?;
        launch()?;
        reservations.into_iter().for_each(ReplayReservation::commit);
        Ok(())
    }
}

impl Drop for GraphResources {
    /// Releases the resources, ordered after the last replay.
    fn drop(&mut self) {
        // In a forked child or an exiting process the operating system reclaims the memory.
        let Some(runtime) = runtime::usable() else { return };
        let last_replay = self.pool.lock_last_replay();
        if self.is_user {
            last_replay.make_streams_wait(runtime, &memory::streams_of_pool(runtime, self.pool.id));
        }
        if self.block != 0 {
            if let Some(last) = last_replay.last_stream(runtime) {
                log::ignore(memory::record_stream(self.block, last), "recording the stream of a graph's last replay");
            }
            memory::free_own(self.block);
        }
        drop(last_replay);
        if self.is_user {
            memory::release_captured_pool(runtime, self.pool.id);
        }
    }
}

//! The resources that a graph holds for its replays: the memory of its capture, and the generators that it uses.

use super::replay_order::{self, SharedPool};
use crate::{
    base::log,
    driver::{Span, random::ReplayState},
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
use parking_lot::Mutex;
use std::{
    mem::offset_of,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// A generator of a graph, and the place of the [`ReplayState`] where the graph's nodes read the seed and the offset of a
/// replay.
struct CapturedGenerator {
    state: Arc<GeneratorState>,
    replay_state: Span,
    /// The random numbers of each subsequence that a replay consumes. Set when the capture ends.
    used: AtomicU64,
    /// The blocks that count themselves as readers of the offset, after which it advances; 0 if not all do. Set when the
    /// capture ends.
    blocks: AtomicU32,
    /// What the place holds when the replays so far are complete, if known.
    current: Mutex<Option<Current>>,
}

/// The seed and the offset in the memory of a graph, which a sleep of that memory may lose.
#[derive(PartialEq, Eq)]
struct Current {
    start: (u64, u64),
    sleeps: u64,
}

impl CapturedGenerator {
    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Appends what has to be written before a replay with this start.
    fn prepare(&self, start: (u64, u64), writes: &mut Vec<(Span, u64)>) {
        let current = self.current.lock().take();
        if current == Some(Current { start, sleeps: memory::sleep::count() }) {
            return;
        }
        let word = |at: usize, value: u64| (self.replay_state.part(at, 8), value);
        let counts = u64::from(self.blocks.load(Ordering::Relaxed)) << 32;
        writes.extend([
            word(offset_of!(ReplayState, seed), start.0),
            word(offset_of!(ReplayState, offset), start.1),
            word(offset_of!(ReplayState, readers), counts),
            word(offset_of!(ReplayState, used), self.used()),
        ]);
    }

    /// Consumes the numbers of a replay that was launched.
    fn commit(&self, reservation: ReplayReservation) {
        let (seed, offset) = reservation.start();
        let start = (seed, offset.wrapping_add(self.used()));
        let mut current = self.current.lock();
        if self.blocks.load(Ordering::Relaxed) != 0 {
            *current = Some(Current { start, sleeps: memory::sleep::count() });
        }
        reservation.commit();
    }
}

impl CaptureResource for CapturedGenerator {
    fn on_capture_end(&self, _runtime: &Runtime, capture: u64) -> bool {
        let (used, blocks) = self.state.end_capture(capture);
        self.used.store(used, Ordering::Relaxed);
        self.blocks.store(blocks, Ordering::Relaxed);
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

const REPLAY_STATE_BYTES: usize = size_of::<ReplayState>();

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
        let bytes = (states.len() * REPLAY_STATE_BYTES) as u64;
        let memory = alloc_span(bytes, stream).context(|| "allocating the seeds and offsets of a graph")?;
        let generators = states.into_iter().enumerate().map(|(index, state)| {
            Arc::new(CapturedGenerator {
                state,
                replay_state: memory.part(index * REPLAY_STATE_BYTES, REPLAY_STATE_BYTES),
                used: AtomicU64::new(0),
                blocks: AtomicU32::new(0),
                current: Mutex::new(None),
            })
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
            let address = generator.replay_state.address();
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

    /// Makes each replay write the seeds and offsets: somebody may change the graph's nodes, or launch it, so that it is not
    /// known how many blocks count themselves.
    pub fn write_each_time(&self) {
        for generator in &self.generators {
            // Locked, so that a replay of another thread does not set it again.
            let mut current = generator.current.lock();
            generator.blocks.store(0, Ordering::Relaxed);
            *current = None;
        }
    }

    /// Writes the seeds and offsets in a stream, as far as they are not there, then launches the graph. After a failure no
    /// random numbers are consumed.
    pub fn launch_random(&self, runtime: &Runtime, stream: Stream, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let reservations: Vec<ReplayReservation> =
            self.generators.iter().map(|generator| generator.state.begin_replay(generator.used())).collect();
        let mut writes = Vec::new();
        for (generator, reservation) in self.generators.iter().zip(&reservations) {
            generator.prepare(reservation.start(), &mut writes);
        }
        if !writes.is_empty() {
            runtime
                .in_stream(stream, |driver, raw| Ok(driver.write_numbers(&writes, raw)?))
                .context(|| "writing the seed and the offset of a replay")?;
        }
        launch()?;
        for (generator, reservation) in self.generators.iter().zip(reservations) {
            generator.commit(reservation);
        }
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

//! The resources that a graph holds for its replays: the memory of its capture, and the generators that it uses.

use super::replay_order::{self, SharedPool};
use crate::{
    base::log,
    driver::{Driver, Graph, Span, observer},
    error::{Context, Error, Result},
    memory::{self, PoolId, scratch::alloc_span, trackers},
    ops::random::generator::{GeneratorState, Reservation},
    runtime::{self, Runtime, device::Device},
    status::Status,
    stream::{
        Stream,
        capture_scope::{self, CaptureResource, Resource},
        kernel::Kernel,
    },
};
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// A generator of a graph, and the place where the graph's nodes read the seed and the offset of a replay.
struct CapturedGenerator {
    state: Arc<GeneratorState>,
    seed_and_offset: Span,
    /// The random numbers of each subsequence that a replay consumes. Set when the capture ends.
    used: AtomicU64,
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
    fn prepare(&self, start: (u64, u64), advances: bool, writes: &mut Vec<(Span, u64)>) {
        let current = self.current.lock().take();
        if advances && current == Some(Current { start, sleeps: memory::sleep::count() }) {
            return;
        }
        writes.extend([(self.seed_and_offset.part(0, 8), start.0), (self.offset(), start.1)]);
    }

    /// Consumes the numbers of a replay that was launched. `advances`: whether the graph has advanced the offset in memory.
    fn commit(&self, reservation: Reservation, advances: bool) {
        let next = reservation.after(self.used());
        let start = (next.seed, next.offset);
        *self.current.lock() = advances.then(|| Current { start, sleeps: memory::sleep::count() });
        reservation.commit();
    }

    /// Returns the place of the offset.
    fn offset(&self) -> Span {
        self.seed_and_offset.part(8, 8)
    }
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
    /// The generators. After the capture only those that it used.
    generators: Vec<Arc<CapturedGenerator>>,
    /// Whether the graph advances the offsets in memory.
    advances: AtomicBool,
    /// The memory block for the seeds and offsets; 0 if there is none.
    block: u64,
    /// The stream that the block was allocated for.
    stream: Stream,
    /// Other resources that the graph's nodes use.
    others: Vec<Resource>,
}

/// The bytes of a seed and an offset.
const SEED_AND_OFFSET_BYTES: usize = 16;

impl GraphResources {
    /// Creates the resources for a capture in a stream.
    pub fn new(
        device: &Device,
        stream: Stream,
        pool: PoolId,
        mut states: Vec<Arc<GeneratorState>>,
    ) -> Result<GraphResources> {
        states.sort_by_cached_key(|state| Arc::as_ptr(state).addr() as u64);
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
        let bytes = (states.len() * SEED_AND_OFFSET_BYTES) as u64;
        let memory = alloc_span(bytes, stream).context(|| "allocating the seeds and offsets of a graph")?;
        let generators = states.into_iter().enumerate().map(|(index, state)| {
            Arc::new(CapturedGenerator {
                state,
                seed_and_offset: memory.part(index * SEED_AND_OFFSET_BYTES, SEED_AND_OFFSET_BYTES),
                used: AtomicU64::new(0),
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
            advances: AtomicBool::new(false),
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

    /// Adds the nodes to the captured graph that advance the offsets when all others are done.
    pub fn add_advances(&mut self, runtime: &Runtime, graph: Graph) -> Result<()> {
        if self.generators.is_empty() {
            return Ok(());
        }
        let device = runtime.device(self.device as i32)?;
        let function = device.kernel(&runtime.driver, Kernel::AdvanceOffset)?;
        let add = |driver: &Driver| -> Result<()> {
            let leaves = driver.graph_leaves(graph)?;
            for generator in &self.generators {
                driver.graph_add_advance(graph, &leaves, function, generator.offset(), generator.used())?;
            }
            Ok(())
        };
        // An observer knows the graph from the capture. These nodes work on memory of the library only.
        device.with_context(&runtime.driver, |driver| observer::run_unobserved(|| add(driver)))?;
        self.advances = AtomicBool::new(true);
        Ok(())
    }

    /// Makes each replay write the seeds and offsets, because the program may change or launch the graph itself.
    pub fn write_each_time(&self) {
        self.advances.store(false, Ordering::Release);
    }

    /// Writes the seeds and offsets in a stream, as far as they are not there, then launches the graph. After a failure no
    /// random numbers are consumed, unless others have been drawn meanwhile. The caller has locked the pool's last replay.
    pub fn launch_random(&self, runtime: &Runtime, stream: Stream, launch: &dyn Fn() -> Result<()>) -> Result<()> {
        let reservations = self.generators.iter().map(|generator| generator.state.reserve(None, generator.used()));
        let reservations = reservations.collect::<Result<Vec<Reservation>>>()?;
        let mut writes = Vec::new();
        for (generator, reservation) in self.generators.iter().zip(&reservations) {
            let first = reservation.after(0);
            generator.prepare((first.seed, first.offset), self.advances.load(Ordering::Acquire), &mut writes);
        }
        if !writes.is_empty() {
            runtime
                .in_stream(stream, |driver, raw| Ok(driver.write_numbers(&writes, raw)?))
                .context(|| "writing the seed and the offset of a replay")?;
        }
        launch()?;
        for (generator, reservation) in self.generators.iter().zip(reservations) {
            generator.commit(reservation, self.advances.load(Ordering::Acquire));
        }
        Ok(())
    }
}

impl Drop for GraphResources {
    /// Releases the resources, ordered after the last replay.
    fn drop(&mut self) {
        // In a forked child or an exiting process the operating system reclaims the memory.
        let Some(runtime) = runtime::usable() else { return };
        // The program's callbacks may use graphs of the pool, so they are called when it is unlocked.
        let deferral = trackers::defer();
        let last_replay = self.pool.lock_last_replay();
        let streams = if self.is_user { memory::streams_of_pool(runtime, self.pool.id) } else { Vec::new() };
        let running = last_replay.make_streams_wait(runtime, &streams);
        let last = last_replay.last_stream(runtime);
        drop(last_replay);
        drop(deferral);
        if let Some(running) = running {
            running.wait(runtime);
        }
        if self.block != 0 {
            if let Some(last) = last {
                log::ignore(memory::record_stream(self.block, last), "recording the stream of a graph's last replay");
            }
            memory::free_own(self.block);
        }
        if self.is_user {
            memory::release_captured_pool(runtime, self.pool.id);
        }
    }
}

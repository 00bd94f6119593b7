//! An arena: the memory of one stream in one pool of one device.
//!
//! An arena belongs to one stream, so a freed block is available to the next request of that stream at once, without a
//! query of the device. Threads with their own streams never share an arena. The arena's lock protects list operations
//! only and is never held across a driver call. A thread that makes driver calls for the arena holds [`Arena::growth`]
//! instead, which keeps other threads from growing the same arena but not from using it.

use super::{
    biased::{Biased, BiasedGuard},
    block::{Block, BlockId, BlockState},
    growth::{DetachedHandle, ReclaimableHandle},
    lock::Lock,
    mapped::Backing,
    mapped_totals::MappedTotals,
    pool::{self, MemoryOptions, PoolId},
    space::Space,
};
pub use crate::stream::StreamUse;
use crate::{observe, runtime::thread, stream::event_pool::PooledEvent};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::HashMap,
    mem,
    sync::{Arc, atomic::AtomicBool},
};

/// The maximum number of arenas of a process.
pub const MAX_ARENAS: usize = 1 << 16;

/// Identifies the memory of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The stream's handle.
    pub stream: usize,
    /// The thread, if the handle denotes a different stream in each thread; otherwise 0.
    pub thread: u64,
    /// The pool.
    pub pool: PoolId,
    /// The number of a stream that has ended, whose memory now belongs to the stream with the handle; otherwise 0.
    pub ended: u32,
}

/// What a freed block waits for, for one stream that was recorded on it.
#[derive(Debug)]
pub enum StreamEvent {
    /// An event recorded in the stream.
    Recorded(PooledEvent),
    /// Other processes that hold the block, by the serial number of the export.
    HeldByProcesses(u64),
    /// The registrations of the block, by arena and block.
    Registered(u32, BlockId),
    /// No event yet: the stream was capturing, and an event recorded then would become part of the graph.
    Pending(StreamUse),
    /// No event yet: it must follow all work of the device, and a stream was capturing.
    PendingDevice,
    /// A thread has taken the event to ask the driver about it.
    Taken,
}

/// A freed block that other streams may still use.
#[derive(Debug)]
pub struct DeferredFree {
    /// The block.
    pub block: BlockId,
    /// The events that must complete before the block is free.
    pub events: Vec<StreamEvent>,
}

/// Addresses whose memory was moved elsewhere, and which the device may still use.
#[derive(Debug)]
pub struct PendingUnmap {
    /// The block that covers the addresses.
    pub block: BlockId,
    /// The first address.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The handle to return to the driver after the unmap, if any.
    pub physical: Option<crate::driver::Physical>,
    /// The event that must complete first, in the stream of the arena or of the one that got the memory.
    pub event: StreamEvent,
}

/// The data that an arena's lock protects.
pub struct Inner {
    /// The address ranges and blocks.
    pub space: Space,
    /// The key of the arena.
    pub key: Key,
    /// What its memory is made for. Handles move only between arenas where this is the same.
    pub memory: MemoryOptions,
    /// The streams that were recorded on live blocks.
    pub stream_uses: HashMap<BlockId, Vec<StreamUse>>,
    /// Freed blocks that wait for stream events.
    pub deferred_frees: Vec<DeferredFree>,
    /// When a request last polled them, in nanoseconds.
    polled: i64,
    /// Addresses that the device may still use.
    pub pending_unmaps: Vec<PendingUnmap>,
    /// What the arena's free memory waits for if its pool has ended: graphs that the program launched itself, in streams
    /// that are not known, may still use it.
    pub graph_work: Option<StreamEvent>,
}

/// The memory of one stream in one pool of one device; see the module documentation.
pub struct Arena {
    /// The index in the table of arenas.
    pub number: u32,
    /// The ordinal of the device.
    pub device: u32,
    /// Whether it is in the list of arenas that have a key. Changes while that list is locked.
    pub in_use: AtomicBool,
    /// The stream. It changes when the arena gets another key.
    pub stream_use: Lock<StreamUse>,
    /// The data that every request uses.
    inner: Biased<Inner>,
    /// Held by the thread that makes driver calls for the arena. Lock order: before `inner`, never after it.
    pub growth: Mutex<()>,
    /// Held while what waits for events is taken from the arena, so that no other thread misses it. Lock order: after `growth`.
    pub events: Mutex<()>,
}

static ARENAS: [OnceCell<&'static Arena>; MAX_ARENAS] = [const { OnceCell::new() }; MAX_ARENAS];

/// Returns the arena with this number.
#[inline]
pub fn get(number: u32) -> Option<&'static Arena> {
    ARENAS.get(number as usize)?.get().copied()
}

impl Arena {
    /// Creates an arena under `number`, which must be the next unused number. Arenas are never deallocated; an arena
    /// without memory is reused under another key. Returns `None` if all numbers are used.
    pub fn new(
        number: u32,
        key: Key,
        stream_use: StreamUse,
        mapped_totals: Arc<MappedTotals>,
    ) -> Option<&'static Arena> {
        let cell = ARENAS.get(number as usize)?;
        Some(cell.get_or_init(|| {
            Box::leak(Box::new(Arena {
                number,
                device: stream_use.device,
                in_use: AtomicBool::new(false),
                stream_use: Lock::new(stream_use),
                inner: Biased::new(
                    Inner {
                        space: Space::new(number, mapped_totals),
                        key,
                        memory: MemoryOptions::default(),
                        stream_uses: HashMap::new(),
                        deferred_frees: Vec::new(),
                        polled: 0,
                        pending_unmaps: Vec::new(),
                        graph_work: None,
                    },
                    thread::number(),
                ),
                growth: Mutex::new(()),
                events: Mutex::new(()),
            }))
        }))
    }

    /// Locks the arena.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, Inner> {
        self.lock_as(thread::number())
    }

    /// Locks the arena before threads that call [`lock`](Self::lock), for a caller for which many wait.
    pub fn lock_first(&self) -> BiasedGuard<'_, Inner> {
        self.inner.lock_first(thread::number())
    }

    /// Locks the arena if that is possible without waiting for another thread.
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, Inner>> {
        self.inner.try_lock(thread::number())
    }

    /// Locks the arena, for a caller that already has its thread number.
    #[inline(always)]
    pub fn lock_as(&self, thread: u64) -> BiasedGuard<'_, Inner> {
        self.inner.lock(thread)
    }

    /// Prepares the lock for another owner, before the calling thread ends. The thread must not hold the lock.
    pub fn release_ownership(&self) {
        self.inner.release_ownership(thread::number());
    }

    /// Returns the arena's stream as a stream use.
    pub fn stream_use(&self) -> StreamUse {
        *self.stream_use.lock()
    }

    /// Returns the arena's key.
    pub fn key(&self) -> Key {
        self.lock().key
    }

    /// Returns whether the arena's pool is the default one, or has no users and does not sleep. A graph may access the memory
    /// of a private pool in use at any time.
    pub fn is_outside_graphs(&self) -> bool {
        pool::is_idle(self.key().pool, self.device)
    }

    /// Coalesces free blocks and returns the reclaimable handles and segments, and the arena's generation.
    pub fn reclaimable_handles(&self) -> (Vec<ReclaimableHandle>, u32) {
        self.coalesced(Space::reclaimable_handles)
    }

    /// Does the same without segments, which cannot move.
    pub fn movable_handles(&self) -> (Vec<ReclaimableHandle>, u32) {
        self.coalesced(|space| space.reclaimable_handles_where(|backing| matches!(backing, Backing::Handle(_))))
    }

    fn coalesced(&self, list: impl Fn(&Space) -> Vec<ReclaimableHandle>) -> (Vec<ReclaimableHandle>, u32) {
        let mut inner = self.lock();
        inner.space.coalesce_all();
        (list(&inner.space), inner.space.generation)
    }

    /// Detaches the addresses of a handle, unless the arena was reused under another key since `generation`, or its pool has got a
    /// user or sleeps.
    pub fn detach(&self, handle: &ReclaimableHandle, generation: u32) -> Option<DetachedHandle> {
        let mut inner = self.lock();
        let is_idle = pool::is_idle(inner.key.pool, self.device);
        if inner.space.generation == generation && is_idle { inner.space.detach(handle) } else { None }
    }
}

impl Inner {
    /// Records the use of all live blocks by a stream.
    pub fn record_stream_on_live(&mut self, stream_use: StreamUse) {
        let is_live = |(id, block): (BlockId, &Block)| (block.state == BlockState::Live).then_some(id);
        let live: Vec<BlockId> = self.space.blocks.iter().filter_map(is_live).collect();
        for id in live {
            let block = &mut self.space.blocks[id];
            block.used_elsewhere = true;
            let (address, bytes) = (block.address, block.requested);
            if let Some(owned) = self.space.recorder.as_ref().and_then(|recorder| recorder.owned(address, bytes)) {
                observe::on_record_stream(owned, stream_use.stream, stream_use.device);
            }
            let uses = self.stream_uses.entry(id).or_default();
            if !uses.contains(&stream_use) {
                uses.push(stream_use);
            }
        }
    }

    /// Returns whether a request should poll the deferred frees: once in each tick of the coarse clock, 1 to 10 ms.
    pub fn is_poll_due(&mut self) -> bool {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let tick = now.tv_sec * 1_000_000_000 + now.tv_nsec;
        mem::replace(&mut self.polled, tick) != tick
    }

    /// Returns whether no block is in use or waiting and nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.deferred_frees.is_empty() && self.pending_unmaps.is_empty() && self.space.is_empty()
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Arena")
            .field("number", &self.number)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

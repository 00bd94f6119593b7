//! An arena: the memory of one stream in one pool of one device.
//!
//! What an arena has is its stream's alone, so a block that is freed is free for the stream's next request at once, and
//! nobody need ask the device. Threads with streams of their own never meet in one. Its lock is held for list surgery
//! and for nothing else, never across a call of the driver; who has to make such calls holds [`Arena::growth`] instead,
//! which keeps others from growing the same arena but not from using it.

use super::{
    biased::{Biased, Held},
    block::Id,
    growth::{Lifted, Spare},
    lock::Lock,
    pool::{self, PoolId},
    space::Space,
};
use crate::{
    driver::{Event, Stream},
    runtime::thread,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The most arenas that a process can have at once.
pub const MAX_ARENAS: usize = 1 << 16;

/// Whose memory an arena has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The stream's handle.
    pub stream: usize,
    /// The thread, where the handle means another stream in each; otherwise 0.
    pub thread: u64,
    /// The pool.
    pub pool: PoolId,
}

/// A stream that was recorded as using a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// The stream.
    pub stream: Stream,
    /// Its device.
    pub device: u32,
    /// The thread, where the handle means another stream in each; otherwise 0.
    pub thread: u64,
}

impl Use {
    /// Whether the calling thread can speak of the stream: a thread's own default stream has a handle that means another
    /// stream elsewhere.
    pub fn can_be_named(&self) -> bool {
        self.thread == 0 || self.thread == thread::number()
    }

    /// The stream to name for it: itself, or the legacy default stream for another thread's own default stream, which
    /// cannot be named from here. What comes in the legacy stream comes after the work that such streams have.
    pub fn stand_in(&self) -> Stream {
        if self.can_be_named() { self.stream } else { Stream::DEFAULT }
    }
}

/// What a block that was freed waits for, for each stream that was recorded on it.
#[derive(Debug, Clone, Copy)]
pub enum Mark {
    /// An event that the stream has to pass, and its device.
    Event(Event, u32),
    /// Other processes, which hold the block under this number.
    Shared(u64),
    /// Nothing yet: the stream was capturing, and an event recorded then would be a part of the graph.
    Unmarked(Use),
}

/// A freed block that other streams may still use.
#[derive(Debug)]
pub struct Waiting {
    /// The block.
    pub block: Id,
    /// What it waits for.
    pub marks: Vec<Mark>,
}

/// Addresses whose memory was moved elsewhere, and which the device may still be using.
#[derive(Debug)]
pub struct Leaving {
    /// The block that holds the addresses.
    pub block: Id,
    /// Where.
    pub address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Whether the memory goes back to the driver once it is unmapped.
    pub physical: Option<crate::driver::Physical>,
    /// What the arena's stream has to pass first.
    pub mark: Mark,
}

/// What an arena's lock guards.
pub struct Inner {
    /// The blocks.
    pub space: Space,
    /// Whose memory this is.
    pub key: Key,
    /// The streams that were recorded on live blocks.
    pub uses: HashMap<Id, Vec<Use>>,
    /// Blocks that were freed and wait.
    pub waiting: Vec<Waiting>,
    /// Addresses that wait to be unmapped.
    pub leaving: Vec<Leaving>,
}

/// See the module's comment.
pub struct Arena {
    /// Its number.
    pub number: u32,
    /// The number of its device.
    pub device: u32,
    /// The stream, for as long as the arena has this key.
    pub stream: Lock<Stream>,
    /// What is used on the way of every request.
    inner: Biased<Inner>,
    /// Held by the thread that makes driver calls for the arena. Before `inner`, never the other way round.
    pub growth: Mutex<()>,
}

static ARENAS: [OnceCell<&'static Arena>; MAX_ARENAS] = [const { OnceCell::new() }; MAX_ARENAS];

/// The arena with this number.
#[inline]
pub fn get(number: u32) -> Option<&'static Arena> {
    ARENAS.get(number as usize)?.get().copied()
}

impl Arena {
    /// Makes an arena under the next free number, which the caller found. It stays for ever, and is used again under
    /// another key when its memory is gone. `None` once the numbers are used up.
    pub fn new(number: u32, device: u32, key: Key, stream: Stream) -> Option<&'static Arena> {
        let cell = ARENAS.get(number as usize)?;
        Some(cell.get_or_init(|| {
            Box::leak(Box::new(Arena {
                number,
                device,
                stream: Lock::new(stream),
                inner: Biased::new(
                    Inner {
                        space: Space::new(number),
                        key,
                        uses: HashMap::new(),
                        waiting: Vec::new(),
                        leaving: Vec::new(),
                    },
                    thread::number(),
                ),
                growth: Mutex::new(()),
            }))
        }))
    }

    /// Takes the arena for some list surgery.
    #[inline]
    pub fn lock(&self) -> Held<'_, Inner> {
        self.lock_as(thread::number())
    }

    /// The same, for a thread that knows its number.
    #[inline(always)]
    pub fn lock_as(&self, thread: u64) -> Held<'_, Inner> {
        self.inner.lock(thread)
    }

    /// The arena's stream, as one that uses memory.
    pub fn own_use(&self) -> Use {
        let inner = self.lock();
        Use { stream: *self.stream.lock(), device: self.device, thread: inner.key.thread }
    }

    /// Whose memory it is.
    pub fn key(&self) -> Key {
        self.lock().key
    }

    /// Whether handles may be taken from it: not from a private pool in use, whose memory a graph may touch at any time.
    pub fn may_move(&self) -> bool {
        let pool = self.key().pool;
        pool == PoolId::DEFAULT || !pool::in_use(pool, self.device)
    }

    /// What it could spare, and its generation.
    pub fn spares(&self) -> (Vec<Spare>, u32) {
        let mut inner = self.lock();
        inner.space.settle();
        (inner.space.spares(), inner.space.generation)
    }

    /// Takes the addresses of a spare out of the arena, unless it is somebody else's by now.
    pub fn lift(&self, spare: &Spare, generation: u32) -> Option<Lifted> {
        let mut inner = self.lock();
        if inner.space.generation == generation { inner.space.lift(spare) } else { None }
    }
}

impl Inner {
    /// Whether nothing is in use by anyone and nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.leaving.is_empty() && self.space.is_empty()
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

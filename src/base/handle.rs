//! Handles that are validated without being dereferenced.
//!
//! A handle, which C holds as an opaque pointer, is a number: a magic byte, the kind of the object, the generation of
//! its slot, and the slot's index. A handle that was destroyed, that is of another kind, or that is a random integer
//! fails the check. Nothing that comes from a caller is ever dereferenced.
//!
//! Slots live in chunks that are never freed or moved, so a check is a few loads and takes no lock. When a slot is
//! reused, its object is initialised in place, under the next generation.

use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

const MAGIC: u64 = 0x9D;
const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 28;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// Slots in the first chunk; each later chunk has as many as all earlier ones together.
const FIRST_CHUNK: u32 = 64;
const CHUNKS: usize = (INDEX_BITS - FIRST_CHUNK.ilog2() + 1) as usize;

/// The kinds of object that have handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An [`Event`](crate::stream::event::Event).
    Event = 1,
    /// A [`Generator`](crate::ops::random::generator::Generator).
    Generator = 2,
    /// A [`Graph`](crate::graph::Graph).
    Graph = 3,
    /// A [`GraphedCallable`](crate::graph::callable::GraphedCallable).
    GraphedCallable = 4,
    /// A [`Communicator`](crate::collectives::communicator::Communicator).
    Communicator = 5,
    /// A [`Sampler`](crate::ops::telemetry::sampler::Sampler).
    Sampler = 6,
    /// A [`Checkpoint`](crate::memory::checkpoint::Checkpoint) of a pool.
    PoolCheckpoint = 7,
    /// An allocator that the program supplies.
    Allocator = 8,
    /// A [`Jiterated`](crate::ops::jit::function::Jiterated) function.
    JitFunction = 9,
    /// A [`Kernel`](crate::ops::jit::kernel::Kernel) that was compiled from the program's source.
    CompiledKernel = 10,
    /// A [`Module`](crate::ops::jit::kernel::Module) that was loaded from an image.
    KernelModule = 11,
    /// A [`Store`](crate::collectives::store::Store).
    Store = 12,
    /// A [`Plan`](crate::ops::fft::plan::Plan) of Fourier transforms.
    FftPlan = 13,
    /// A [`GreenContext`](crate::ops::green_context::Partition).
    GreenContext = 14,
    /// A [`Registration`](crate::memory::registration::Registration) of memory.
    MemoryRegistration = 15,
}

impl Kind {
    fn describe(kind: u64) -> Option<&'static str> {
        match kind {
            1 => Some("an event"),
            2 => Some("a generator"),
            3 => Some("a graph"),
            4 => Some("a graphed callable"),
            5 => Some("a communicator"),
            6 => Some("a sampler"),
            7 => Some("a checkpoint of a pool"),
            8 => Some("an allocator"),
            9 => Some("a jiterated function"),
            10 => Some("a compiled kernel"),
            11 => Some("a kernel module"),
            12 => Some("a store"),
            13 => Some("a plan of transforms"),
            14 => Some("a green context"),
            15 => Some("a registration of memory"),
            _ => None,
        }
    }
}

struct Slot<T> {
    /// Odd while the slot is in use; a handle carries the odd value of its slot at creation.
    generation: AtomicU32,
    value: T,
}

/// The objects of one kind.
pub struct HandleTable<T> {
    kind: Kind,
    chunks: [OnceCell<Box<[Slot<T>]>>; CHUNKS],
    free: Mutex<FreeSlots>,
}

struct FreeSlots {
    indices: Vec<u32>,
    next: u32,
}

/// Returns the chunk of a slot and its offset in that chunk.
fn locate(index: u32) -> (usize, usize) {
    if index < FIRST_CHUNK {
        return (0, index as usize);
    }
    let top = index.ilog2();
    ((top - FIRST_CHUNK.ilog2() + 1) as usize, (index - (1 << top)) as usize)
}

fn chunk_length(chunk: usize) -> usize {
    if chunk == 0 { FIRST_CHUNK as usize } else { (FIRST_CHUNK as usize) << (chunk - 1) }
}

impl<T: Default> HandleTable<T> {
    /// Creates an empty table.
    pub const fn new(kind: Kind) -> Self {
        HandleTable {
            kind,
            chunks: [const { OnceCell::new() }; CHUNKS],
            free: Mutex::new(FreeSlots { indices: Vec::new(), next: 0 }),
        }
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = locate(index);
        self.chunks.get(chunk)?.get()?.get(offset)
    }

    /// Allocates a slot, initialises its object with `prepare`, and returns the new handle.
    pub fn insert(&self, prepare: impl FnOnce(&T)) -> Result<u64> {
        let mut free = self.free.lock();
        let index = match free.indices.pop() {
            Some(index) => index,
            None if free.next < 1 << INDEX_BITS => {
                let index = free.next;
                let (chunk, _) = locate(index);
                self.chunks[chunk].get_or_init(|| {
                    (0..chunk_length(chunk))
                        .map(|_| Slot { generation: AtomicU32::new(0), value: T::default() })
                        .collect()
                });
                free.next += 1;
                index
            }
            None => {
                let limit = 1u32 << INDEX_BITS;
                return Err(Error::new(Status::OUT_OF_MEMORY, format!("{limit} handles of this kind are live")));
            }
        };
        drop(free);
        let slot = self.slot(index).ok_or_else(|| Error::new(Status::PANIC, "a handle slot vanished"))?;
        prepare(&slot.value);
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1) & GENERATION_MASK;
        slot.generation.store(generation, Ordering::Release);
        Ok(MAGIC << 56 | (self.kind as u64) << 52 | u64::from(generation) << INDEX_BITS | u64::from(index))
    }

    /// Returns the object of a handle.
    #[inline]
    pub fn get(&self, handle: u64) -> Result<&T> {
        match self.find(handle) {
            Some(slot) => Ok(&slot.value),
            None => Err(self.invalid_handle(handle)),
        }
    }

    #[inline]
    fn find(&self, handle: u64) -> Option<&Slot<T>> {
        if handle >> 52 != MAGIC << 4 | self.kind as u64 {
            return None;
        }
        let slot = self.slot(handle as u32 & ((1 << INDEX_BITS) - 1))?;
        let generation = (handle >> INDEX_BITS) as u32 & GENERATION_MASK;
        (generation % 2 == 1 && slot.generation.load(Ordering::Acquire) == generation).then_some(slot)
    }

    /// Destroys a handle: clears the object with `retire` and frees its slot. If two threads destroy the same handle,
    /// one of them succeeds.
    pub fn remove(&self, handle: u64, retire: impl FnOnce(&T)) -> Result<()> {
        let slot = self.find(handle).ok_or_else(|| self.invalid_handle(handle))?;
        let generation = (handle >> INDEX_BITS) as u32 & GENERATION_MASK;
        let next = generation.wrapping_add(1) & GENERATION_MASK;
        if slot.generation.compare_exchange(generation, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Err(self.invalid_handle(handle));
        }
        retire(&slot.value);
        self.free.lock().indices.push(handle as u32 & ((1 << INDEX_BITS) - 1));
        Ok(())
    }

    /// Returns the number of live handles.
    #[cfg(test)]
    fn live(&self) -> usize {
        let free = self.free.lock();
        free.next as usize - free.indices.len()
    }

    #[cold]
    fn invalid_handle(&self, handle: u64) -> Error {
        let expected = Kind::describe(self.kind as u64).unwrap_or("an object");
        let message = match (handle >> 56 == MAGIC).then(|| Kind::describe(handle >> 52 & 0xF)).flatten() {
            Some(_) if handle >> 52 & 0xF == self.kind as u64 => {
                format!("{handle:#x} was {expected}, but is destroyed")
            }
            Some(other) => format!("{handle:#x} is {other}, not {expected}"),
            None => format!("{handle:#x} is not {expected} that plinth gave out"),
        };
        Error::new(Status::INVALID_HANDLE, message)
    }
}

/// The objects of one kind that calls may still use after another thread has destroyed the handle. `T` is a reference to
/// such an object: an `Arc` or a `&'static`.
pub struct ReferenceTable<T>(HandleTable<Mutex<Option<T>>>);

impl<T: Clone> ReferenceTable<T> {
    /// Creates an empty table.
    pub const fn new(kind: Kind) -> Self {
        ReferenceTable(HandleTable::new(kind))
    }

    /// Stores a reference and returns its new handle.
    pub fn insert(&self, reference: T) -> Result<u64> {
        self.0.insert(|slot| *slot.lock() = Some(reference))
    }

    /// Returns a copy of the reference of a handle.
    pub fn get(&self, handle: u64) -> Result<T> {
        let reference = self.0.get(handle)?.lock().clone();
        // Another thread may have destroyed the handle in the meantime, and the slot may hold another object.
        self.0.get(handle)?;
        reference.ok_or_else(|| self.0.invalid_handle(handle))
    }

    /// Destroys a handle and returns its reference.
    pub fn remove(&self, handle: u64) -> Result<Option<T>> {
        let mut reference = None;
        self.0.remove(handle, |slot| reference = slot.lock().take())?;
        Ok(reference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{
        collections::HashMap,
        sync::{Arc, atomic::AtomicU64},
    };

    fn table() -> HandleTable<AtomicU64> {
        HandleTable::new(Kind::Event)
    }

    #[test]
    fn slot_indices_fill_the_chunks_in_order() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(locate(index), expected, "{index}");
            expected.1 += 1;
            if expected.1 == chunk_length(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        let last = locate((1 << INDEX_BITS) - 1);
        assert_eq!(last, (CHUNKS - 1, chunk_length(CHUNKS - 1) - 1));
    }

    #[test]
    fn errors_distinguish_kinds_of_invalid_handle() {
        let table = table();
        let handle = table.insert(|_| {}).unwrap();
        table.remove(handle, |_| {}).unwrap();
        assert!(table.get(handle).unwrap_err().message().ends_with("was an event, but is destroyed"));
        assert!(table.remove(handle, |_| {}).is_err());
        let other = HandleTable::<AtomicU64>::new(Kind::Graph).insert(|_| {}).unwrap();
        assert!(table.get(other).unwrap_err().message().ends_with("is a graph, not an event"));
        for random in [0, 1, 2, u64::MAX, 0x7fff_ffff_e000, MAGIC << 56, MAGIC << 56 | 1 << 52] {
            assert_eq!(table.get(random).unwrap_err().status(), Status::INVALID_HANDLE);
        }
    }

    #[test]
    fn one_of_two_racing_removes_succeeds() {
        let table = table();
        for _ in 0..1000 {
            let handle = table.insert(|_| {}).unwrap();
            let won: usize = std::thread::scope(|scope| {
                let racers: Vec<_> =
                    (0..2).map(|_| scope.spawn(|| usize::from(table.remove(handle, |_| {}).is_ok()))).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).sum()
            });
            assert_eq!(won, 1);
        }
        assert_eq!(table.live(), 0);
    }

    #[test]
    fn references_outlive_their_handles() {
        let table = ReferenceTable::new(Kind::Event);
        let handle = table.insert(Arc::new(1)).unwrap();
        let first = table.get(handle).unwrap();
        assert_eq!(table.remove(handle).unwrap().as_deref(), Some(&1));
        let other = table.insert(Arc::new(2)).unwrap();
        assert!(table.get(handle).unwrap_err().message().ends_with("was an event, but is destroyed"));
        assert!(table.remove(handle).is_err());
        assert_eq!((*first, *table.get(other).unwrap()), (1, 2));
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((0u8..3, any::<prop::sample::Index>()), 1..400)) {
            let table = table();
            let mut model: HashMap<u64, u64> = HashMap::new();
            let mut ever: Vec<u64> = Vec::new();
            for (step, (action, which)) in steps.into_iter().enumerate() {
                let value = step as u64;
                if action == 0 || ever.is_empty() {
                    let handle = table.insert(|slot| slot.store(value, Ordering::Relaxed)).unwrap();
                    prop_assert!(model.insert(handle, value).is_none());
                    ever.push(handle);
                } else if action == 1 {
                    let handle = *which.get(&ever);
                    prop_assert_eq!(table.remove(handle, |_| {}).is_ok(), model.remove(&handle).is_some());
                } else {
                    let handle = *which.get(&ever);
                    let found = table.get(handle).ok().map(|slot| slot.load(Ordering::Relaxed));
                    prop_assert_eq!(found, model.get(&handle).copied());
                }
                prop_assert_eq!(table.live(), model.len());
            }
        }
    }
}

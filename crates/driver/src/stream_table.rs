//! The registry of known stream handles.
//!
//! A stream's handle is the driver's pointer, so its value cannot be validated; it is looked up here before anything
//! dereferences it. The entry of a stream that has ended stays, marked, so a lookup takes no lock: it probes a few
//! neighbouring slots of an open-addressed table, and continues in the next, larger table only if all of them are
//! occupied.

use super::{Stream, types::CU_STREAM_PER_THREAD};
use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of slots per table that a handle may occupy.
const PROBES: usize = 8;
const FIRST_TABLE: usize = 1024;
/// The number of tables after the first. Each is twice as long as the previous one.
const LATER_TABLES: usize = 11;

/// The properties of a stream, as the bits of its entry: flags, the index in a pool from bit 8, the priority from 16, the device
/// from 24, the generation from 32. One word is returned and copied in registers; a struct of smaller fields is written to the
/// stack in parts and read in others, for which the processor waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo(u64);

/// The origin of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOrigin {
    /// A default stream, which is a different stream in each context. None is registered.
    Default,
    /// A stream of plinth's pool for a priority.
    Pool {
        /// The priority; lower numbers run first.
        priority: i8,
        /// Its index in the pool.
        index: u8,
    },
    /// A stream that plinth created for one owner, which destroys it.
    Dedicated {
        /// The priority; lower numbers run first.
        priority: i8,
    },
    /// A non-blocking stream that plinth created and keeps: of a green context, or for captures.
    Kept,
    /// A stream that other code created and owns.
    External {
        /// Whether it synchronizes with the legacy default stream. `None` while that is unknown: the stream was
        /// capturing when it was registered, and the driver must not be queried then.
        blocking: Option<bool>,
    },
}

const POOL: u64 = 1;
const BLOCKING: u64 = 1 << 1;
const BLOCKING_UNKNOWN: u64 = 1 << 2;
const DEDICATED: u64 = 1 << 3;
const ENDED: u64 = 1 << 4;
const DEFAULT: u64 = 1 << 5;
const KEPT: u64 = 1 << 6;
const DEVICE: u64 = 0xFF << 24;
const GENERATION: u32 = 32;

impl StreamInfo {
    /// Describes a stream of a device, whose index is below 256.
    #[inline]
    pub fn new(device: u32, origin: StreamOrigin) -> Self {
        let origin = match origin {
            StreamOrigin::Default => DEFAULT,
            StreamOrigin::Pool { priority, index } => POOL | u64::from(index) << 8 | u64::from(priority as u8) << 16,
            StreamOrigin::Dedicated { priority } => DEDICATED | u64::from(priority as u8) << 16,
            StreamOrigin::Kept => KEPT,
            StreamOrigin::External { blocking: None } => BLOCKING_UNKNOWN,
            StreamOrigin::External { blocking: Some(blocking) } => u64::from(blocking) * BLOCKING,
        };
        StreamInfo(u64::from(device as u8) << 24 | origin)
    }

    /// Sets the number of earlier streams that had the handle and have ended, modulo 2^32.
    #[inline]
    pub fn with_generation(self, generation: u32) -> Self {
        StreamInfo(self.0 & u64::from(u32::MAX) | u64::from(generation) << GENERATION)
    }

    /// Returns the index of the stream's device.
    #[inline]
    pub fn device(self) -> u32 {
        (self.0 >> 24) as u8 as u32
    }

    /// Returns the number of earlier streams that had the handle and have ended, modulo 2^32.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> GENERATION) as u32
    }

    /// Returns whether it is a default stream.
    #[inline]
    pub fn is_default(self) -> bool {
        self.0 & DEFAULT != 0
    }

    /// Returns where the stream comes from.
    pub fn origin(self) -> StreamOrigin {
        let has = |flag| self.0 & flag != 0;
        let priority = (self.0 >> 16) as u8 as i8;
        if has(DEFAULT) {
            StreamOrigin::Default
        } else if has(POOL) {
            StreamOrigin::Pool { priority, index: (self.0 >> 8) as u8 }
        } else if has(DEDICATED) {
            StreamOrigin::Dedicated { priority }
        } else if has(KEPT) {
            StreamOrigin::Kept
        } else {
            StreamOrigin::External { blocking: (!has(BLOCKING_UNKNOWN)).then_some(has(BLOCKING)) }
        }
    }
}

struct Slot {
    handle: AtomicUsize,
    info: AtomicU64,
}

/// The registry.
pub struct StreamTable {
    first: Box<[Slot]>,
    later: [OnceCell<Box<[Slot]>>; LATER_TABLES],
    adding: Mutex<()>,
}

fn empty_table(length: usize) -> Box<[Slot]> {
    (0..length).map(|_| Slot { handle: AtomicUsize::new(0), info: AtomicU64::new(0) }).collect()
}

/// Returns the stream in a slot with its handle, unless it has ended.
#[inline]
fn stream_in(slot: &Slot, handle: usize) -> Option<(Stream, StreamInfo)> {
    let bits = slot.info.load(Ordering::Relaxed);
    // SAFETY: a handle is in the table because `add` received the stream, and that has not ended.
    (bits & ENDED == 0).then(|| (unsafe { Stream::from_handle(handle) }, StreamInfo(bits)))
}

fn first_slot(handle: usize, length: usize) -> usize {
    // Handles are addresses; the multiplication spreads their regular distances over the table.
    (handle as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> (usize::BITS - length.ilog2())
}

fn probe(table: &[Slot], handle: usize) -> impl Iterator<Item = &Slot> {
    let start = first_slot(handle, table.len());
    (0..PROBES).filter_map(move |step| table.get((start + step) & (table.len() - 1)))
}

impl StreamTable {
    /// Creates an empty registry.
    pub fn new() -> Self {
        StreamTable {
            first: empty_table(FIRST_TABLE),
            later: [const { OnceCell::new() }; LATER_TABLES],
            adding: Mutex::new(()),
        }
    }

    /// Returns the stream of a handle, if it is registered.
    #[inline]
    pub fn find(&self, handle: usize) -> Option<(Stream, StreamInfo)> {
        // Nearly every stream is in the first slot that is probed.
        let slot = self.first.get(first_slot(handle, FIRST_TABLE))?;
        if slot.handle.load(Ordering::Acquire) == handle && handle != 0 {
            stream_in(slot, handle)
        } else {
            stream_in(self.search(handle)?, handle)
        }
    }

    /// Returns the stream of a handle if it is registered for a device and is in the first slot that is probed: the
    /// fastest check, which is enough for nearly every stream.
    #[inline]
    pub fn find_on(&self, handle: usize, device: u32) -> Option<Stream> {
        let slot = self.first.get(first_slot(handle, FIRST_TABLE))?;
        if slot.handle.load(Ordering::Acquire) != handle || handle == 0 {
            return None;
        }
        let bits = slot.info.load(Ordering::Relaxed);
        // SAFETY: a handle is in the table because `add` received the stream, and that has not ended.
        (bits & (ENDED | DEVICE) == u64::from(device) << 24).then(|| unsafe { Stream::from_handle(handle) })
    }

    fn search(&self, handle: usize) -> Option<&Slot> {
        for table in self.tables() {
            for slot in probe(table, handle) {
                match slot.handle.load(Ordering::Acquire) {
                    0 => return None,
                    found if found == handle => return Some(slot),
                    _ => {}
                }
            }
        }
        None
    }

    /// Returns the allocated tables, in the order of their creation.
    fn tables(&self) -> impl Iterator<Item = &[Slot]> {
        std::iter::once(&*self.first).chain(self.later.iter().map_while(|table| table.get().map(|table| &**table)))
    }

    /// Returns the number of streams with a handle that have ended, also while none is registered.
    #[inline]
    pub fn generation(&self, handle: usize) -> u32 {
        if handle <= CU_STREAM_PER_THREAD {
            return 0;
        }
        self.search(handle).map_or(0, |slot| StreamInfo(slot.info.load(Ordering::Relaxed)).generation())
    }

    /// Ends a stream that nothing uses any longer: its handle is unknown until another stream with it is added.
    pub fn end(&self, handle: usize) {
        let _adding = self.adding.lock();
        if let Some(slot) = self.search(handle) {
            let bits = slot.info.load(Ordering::Relaxed);
            slot.info.store(bits.wrapping_add(1 << GENERATION) | ENDED, Ordering::Relaxed);
        }
    }

    /// Registers a stream, or replaces its properties: the driver can reuse an address for another stream.
    pub fn add(&self, stream: Stream, info: StreamInfo) -> Result<()> {
        let handle = stream.handle();
        let _adding = self.adding.lock();
        let later = self.later.iter().enumerate();
        let later = later.map(|(number, table)| &**table.get_or_init(|| empty_table(FIRST_TABLE << (number + 1))));
        for table in std::iter::once(&*self.first).chain(later) {
            for slot in probe(table, handle) {
                let found = slot.handle.load(Ordering::Relaxed);
                if found == handle || found == 0 {
                    let generation = StreamInfo(slot.info.load(Ordering::Relaxed)).generation();
                    slot.info.store(info.with_generation(generation).0, Ordering::Relaxed);
                    slot.handle.store(handle, Ordering::Release);
                    return Ok(());
                }
            }
        }
        Err(Error::new(Status::OUT_OF_MEMORY, "registering a stream: the table of external streams is full"))
    }
}

impl Default for StreamTable {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn stream(handle: usize) -> Stream {
        // SAFETY: the stream is stored and compared, never used.
        unsafe { Stream::from_handle(handle) }
    }

    proptest! {
        #[test]
        fn info_round_trips_through_bits(
            device in 0u32..64, priority in -8i8..=0, index in 0u8..32, kind in 0..5, generation: u32
        ) {
            let origin = match kind {
                0 => StreamOrigin::External { blocking: [None, Some(false), Some(true)][usize::from(index % 3)] },
                1 => StreamOrigin::Dedicated { priority },
                2 => StreamOrigin::Default,
                3 => StreamOrigin::Kept,
                _ => StreamOrigin::Pool { priority, index },
            };
            let info = StreamInfo::new(device, origin).with_generation(generation);
            prop_assert_eq!((info.device(), info.origin(), info.generation()), (device, origin, generation));
            prop_assert_eq!(info.is_default(), origin == StreamOrigin::Default);
        }

        #[test]
        fn lookups_match_a_map(
            handles in proptest::collection::vec((1usize..1 << 12, 0u32..64, proptest::bool::weighted(0.8)), 1..3000)
        ) {
            let table = StreamTable::new();
            // The device, while the handle is registered, and the number of streams with the handle that have ended.
            let mut model: HashMap<usize, (Option<u32>, u32)> = HashMap::new();
            for (handle, device, adds) in handles {
                let handle = handle << 4;
                let entry = model.entry(handle).or_default();
                if adds {
                    let origin = StreamOrigin::External { blocking: Some(false) };
                    table.add(stream(handle), StreamInfo::new(device, origin)).unwrap();
                    entry.0 = Some(device);
                } else if entry.0.take().is_some() {
                    table.end(handle);
                    entry.1 += 1;
                }
                prop_assert!(table.find(handle + 8).is_none());
            }
            for (handle, (device, ended)) in model {
                let found = table.find(handle).map(|(_, info)| (info.device(), info.generation()));
                prop_assert_eq!(found, device.map(|device| (device, ended)));
            }
            prop_assert!(table.find(0).is_none());
        }
    }
}

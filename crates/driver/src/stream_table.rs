//! The registry of known stream handles.
//!
//! A stream's handle is the driver's pointer, so its value cannot be validated; it is looked up here before anything
//! dereferences it. Streams are added and never removed, so a lookup takes no lock: it probes a few neighbouring slots
//! of an open-addressed table, and continues in the next, larger table only if all of them are occupied.

use super::Stream;
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

/// The registered properties of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo {
    /// The index of its device.
    pub device: u32,
    /// Its origin.
    pub origin: StreamOrigin,
}

/// The origin of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOrigin {
    /// A stream of plinth's pool for a priority.
    Pool {
        /// The priority; lower numbers run first.
        priority: i8,
        /// Its index in the pool.
        index: u8,
    },
    /// A stream that other code created and owns.
    External {
        /// Whether it synchronizes with the legacy default stream. `None` while that is unknown: the stream was
        /// capturing when it was registered, and the driver must not be queried then.
        blocking: Option<bool>,
    },
}

impl StreamInfo {
    fn pack(self) -> u64 {
        let origin = match self.origin {
            StreamOrigin::Pool { priority, index } => 1 | u64::from(index) << 8 | u64::from(priority as u8) << 16,
            StreamOrigin::External { blocking } => {
                u64::from(blocking == Some(true)) << 1 | u64::from(blocking.is_none()) << 2
            }
        };
        u64::from(self.device) << 32 | origin
    }

    fn unpack(bits: u64) -> Self {
        let origin = if bits & 1 == 1 {
            StreamOrigin::Pool { priority: (bits >> 16) as u8 as i8, index: (bits >> 8) as u8 }
        } else {
            StreamOrigin::External { blocking: (bits & 4 == 0).then_some(bits & 2 != 0) }
        };
        StreamInfo { device: (bits >> 32) as u32, origin }
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

fn stream_in(slot: &Slot, handle: usize) -> (Stream, StreamInfo) {
    // SAFETY: a handle is in the table because `add` received the stream.
    let stream = unsafe { Stream::from_handle(handle) };
    (stream, StreamInfo::unpack(slot.info.load(Ordering::Relaxed)))
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
            Some(stream_in(slot, handle))
        } else {
            self.search(handle)
        }
    }

    fn search(&self, handle: usize) -> Option<(Stream, StreamInfo)> {
        for table in self.tables() {
            for slot in probe(table, handle) {
                match slot.handle.load(Ordering::Acquire) {
                    0 => return None,
                    found if found == handle => return Some(stream_in(slot, handle)),
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
                    slot.info.store(info.pack(), Ordering::Relaxed);
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
        fn info_round_trips_through_bits(device in 0u32..64, priority in -8i8..=0, index in 0u8..32, external: bool) {
            let blocking = [None, Some(false), Some(true)][usize::from(index % 3)];
            let origin =
                if external { StreamOrigin::External { blocking } } else { StreamOrigin::Pool { priority, index } };
            let info = StreamInfo { device, origin };
            prop_assert_eq!(StreamInfo::unpack(info.pack()), info);
        }

        #[test]
        fn lookups_match_a_map(handles in proptest::collection::vec((1usize..1 << 20, 0u32..64), 1..3000)) {
            let table = StreamTable::new();
            let mut model = HashMap::new();
            for (handle, device) in handles {
                let handle = handle << 4;
                let origin = StreamOrigin::External { blocking: Some(false) };
                table.add(stream(handle), StreamInfo { device, origin }).unwrap();
                model.insert(handle, device);
                prop_assert!(table.find(handle + 8).is_none());
            }
            for (handle, device) in model {
                prop_assert_eq!(table.find(handle).map(|(_, info)| info.device), Some(device));
            }
            prop_assert!(table.find(0).is_none());
        }
    }
}

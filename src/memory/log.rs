//! The log of an arena: its most recent events in compact form.
//!
//! Entries are stored in chunks. A full chunk is immutable, so a reader shares it without copying while the arena
//! continues to write. The oldest chunk is dropped when the others hold as many entries as required.

use super::{
    history::{Action, StackId},
    tags::Texts,
};
use crate::base::{clock, stack};
use std::{collections::VecDeque, sync::Arc};

/// The number of entries of a chunk: 40 KiB.
const CHUNK: usize = 1024;
/// The number of texts in which those of a new entry are searched. Consecutive entries usually have the same.
const RECENT_TEXTS: usize = 4;

/// A stored entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawEntry {
    /// The time in clock ticks.
    pub ticks: u64,
    /// The address.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The stack of the call.
    pub stack: StackId,
    /// The system's thread id.
    pub thread: u32,
    /// The number of its texts in its chunk of a log; 0 for none.
    pub texts: u32,
    /// The kind of event.
    pub action: Action,
}

impl RawEntry {
    /// Creates an entry with the current time and the calling thread.
    #[inline]
    pub fn now(action: Action, address: u64, size: u64, with_stack: bool) -> RawEntry {
        let stack = if with_stack { stack::capture() } else { StackId::NONE };
        RawEntry { ticks: clock::ticks(), address, size, stack, thread: stack::thread_id(), texts: 0, action }
    }
}

/// Consecutive entries, with their texts.
#[derive(Debug, Clone, Default)]
struct Chunk {
    entries: Vec<RawEntry>,
    texts: Vec<Texts>,
}

impl Chunk {
    #[inline]
    fn push(&mut self, raw: RawEntry, texts: &Texts) {
        let texts = self.number(texts);
        self.entries.push(RawEntry { texts, ..raw });
    }

    /// Returns the number of texts, which are added unless one of the last entries has the same.
    #[inline]
    fn number(&mut self, texts: &Texts) -> u32 {
        if texts.tag.is_none() && texts.name.is_none() {
            return 0;
        }
        let known = self.texts.iter().rev().take(RECENT_TEXTS).position(|known| known == texts);
        if known.is_none() {
            self.texts.push(texts.clone());
        }
        (self.texts.len() - known.unwrap_or(0)) as u32
    }

    fn entries(&self) -> impl Iterator<Item = (&RawEntry, Option<&Texts>)> {
        let texts = |raw: &RawEntry| self.texts.get((raw.texts as usize).checked_sub(1)?);
        self.entries.iter().map(move |raw| (raw, texts(raw)))
    }
}

/// The log of an arena; see the module documentation.
#[derive(Debug, Clone, Default)]
pub struct Log {
    full: VecDeque<Arc<Chunk>>,
    last: Chunk,
    capacity: usize,
}

impl Log {
    /// Sets the number of entries to keep.
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        self.drop_old();
    }

    /// Appends an entry with its texts.
    #[inline]
    pub fn push(&mut self, raw: RawEntry, texts: &Texts) {
        if self.last.entries.len() == CHUNK {
            self.begin_chunk();
        }
        self.last.push(raw, texts);
    }

    #[cold]
    fn begin_chunk(&mut self) {
        let next = Chunk { entries: Vec::with_capacity(CHUNK), texts: Vec::new() };
        let full = std::mem::replace(&mut self.last, next);
        self.full.push_back(Arc::new(full));
        self.drop_old();
    }

    /// Drops chunks that are not needed, and reuses one of them if no reader shares it.
    fn drop_old(&mut self) {
        while self.full.len().saturating_sub(1) >= self.capacity.div_ceil(CHUNK) {
            let oldest = self.full.pop_front();
            if let Some(Ok(mut chunk)) = oldest.map(Arc::try_unwrap)
                && self.last.entries.is_empty()
            {
                chunk.entries.clear();
                chunk.texts.clear();
                self.last = chunk;
            }
        }
    }

    /// Iterates over the entries with their texts, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = (&RawEntry, Option<&Texts>)> {
        self.full.iter().map(|chunk| &**chunk).chain([&self.last]).flat_map(Chunk::entries)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.full.len() * CHUNK + self.last.entries.len()
    }

    /// Returns whether the log is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the time of the last entry, or 0 if there is none.
    pub fn last_ticks(&self) -> u64 {
        self.last.entries.last().or_else(|| self.full.back()?.entries.last()).map_or(0, |raw| raw.ticks)
    }

    /// Frees unused capacity, after the last write.
    pub fn close(&mut self) {
        self.last.entries.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(number: u64) -> RawEntry {
        RawEntry {
            ticks: number,
            address: number * 512,
            size: 1,
            stack: StackId::NONE,
            thread: 7,
            texts: 0,
            action: Action::Alloc,
        }
    }

    fn push(log: &mut Log, number: u64) {
        log.push(raw(number), &Texts::default());
    }

    #[test]
    fn an_entry_is_small() {
        assert_eq!(size_of::<RawEntry>(), 40);
    }

    #[test]
    fn newest_entries_are_kept() {
        for capacity in [1, 10, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK, usize::MAX] {
            let mut log = Log { capacity, ..Log::default() };
            for number in 0..20 * CHUNK as u64 + 3 {
                push(&mut log, number);
                assert!(log.len() >= capacity.min(number as usize + 1));
                assert!(log.len() <= capacity.saturating_add(2 * CHUNK));
            }
            let last = 20 * CHUNK as u64 + 2;
            assert_eq!(log.last_ticks(), last);
            let numbers: Vec<u64> = log.entries().map(|(raw, _)| raw.ticks).collect();
            let first = last + 1 - numbers.len() as u64;
            assert!(numbers.iter().copied().eq(first..=last), "{capacity}");
        }
    }

    #[test]
    fn reader_keeps_a_stable_view() {
        let mut log = Log { capacity: CHUNK, ..Log::default() };
        (0..3000).for_each(|number| push(&mut log, number));
        let read = log.clone();
        (3000..30_000).for_each(|number| push(&mut log, number));
        assert_eq!(read.last_ticks(), 2999);
        assert!(read.entries().map(|(raw, _)| raw.ticks).is_sorted());
        log.set_capacity(1);
        assert!(log.len() <= 2 * CHUNK && log.last_ticks() == 29_999);
    }

    #[test]
    fn texts_are_dropped_with_their_entries() {
        let text = |number: u64| Texts { tag: Some(number.to_string().into()), name: None };
        let mut log = Log { capacity: 1, ..Log::default() };
        push(&mut log, 0);
        for number in 1..10_000 {
            log.push(raw(number), &text(number / 3));
            assert!(log.last.texts.len() <= CHUNK.div_ceil(3) + 1);
        }
        assert!(log.full.len() <= 1);
        for (raw, texts) in log.entries() {
            assert_eq!(texts, Some(&text(raw.ticks / 3)));
        }
        push(&mut log, 10_000);
        log.push(raw(10_001), &text(3333));
        let last: Vec<_> = log.entries().map(|(_, texts)| texts.cloned()).skip(log.len() - 3).collect();
        assert_eq!(last, [Some(text(3333)), None, Some(text(3333))]);
    }
}

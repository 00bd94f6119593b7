//! Recorded allocation traces: reading, validation, and preparation for the replay.
//!
//! The format is described in the library's `memory::trace`, which writes it.

use super::super::{
    failure::{Failure, Result},
    output::Output,
};
use lzma_rust2::XzReader;
use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

/// Bytes of an event in the file.
const EVENT: usize = 16;

/// Bytes of a file that are read at a time.
const BUFFER: usize = 1 << 16;

/// Magic bytes of files that xz compressed.
const XZ: &[u8] = b"\xfd7zXZ";

/// Magic bytes of files that are not traces, with an explanation.
const OTHER_FORMATS: [(&[u8], &str); 4] = [
    (b"\x1f\x8b", "is compressed by gzip; decompress it first: gunzip -k"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd; decompress it first: unzstd"),
    (b"PK\x03\x04", "is a zip archive, not a trace"),
    (b"\x7fELF", "is a program, not a trace"),
];

/// An operation on a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Allocates the block on a stream.
    Allocate {
        /// The size in bytes.
        size: u64,
        /// The number of the stream.
        stream: u16,
        /// The number of the pool; 0 for the default pool, in which every trace is recorded.
        pool: u16,
    },
    /// Frees the block.
    Free {
        /// The size in bytes.
        size: u64,
    },
}

/// An event, prepared for the replay. Block IDs are replaced by slots, which are reused and therefore few, so that
/// the timed loop needs no lookups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The index of the block's address.
    pub slot: u32,
    /// The operation.
    pub operation: Operation,
}

/// A trace.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The events in order.
    pub events: Vec<Event>,
    /// The number of slots.
    pub slots: u32,
    /// The number of streams.
    pub streams: u16,
    /// The number of pools besides the default one.
    pub pools: u16,
    /// The maximum of bytes live at the same time.
    pub peak_live: u64,
}

impl Trace {
    /// Returns for each event whether it allocates a block that is live for less than half of the trace's events.
    pub fn transient(&self) -> Vec<bool> {
        let mut freed_at = vec![None; self.slots as usize];
        let mut transient = vec![false; self.events.len()];
        for (index, event) in self.events.iter().enumerate().rev() {
            let free = &mut freed_at[event.slot as usize];
            match event.operation {
                Operation::Free { .. } => *free = Some(index),
                Operation::Allocate { .. } => {
                    transient[index] = free.take().is_some_and(|free| 2 * (free - index) < self.events.len());
                }
            }
        }
        transient
    }
}

/// The reason why an event is invalid.
type Reason = String;

struct Reader {
    trace: Trace,
    live: HashMap<u32, (u32, u64)>,
    free_slots: Vec<u32>,
    live_bytes: u64,
}

impl Reader {
    fn allocate(&mut self, id: u32, stream: u16, size: u64) -> std::result::Result<Event, Reason> {
        let total = self.live_bytes.checked_add(size).filter(|total| *total <= i64::MAX as u64);
        let total = total.ok_or_else(|| format!("block {id} has an impossible size: {size} bytes"))?;
        if stream > self.trace.streams {
            let next = self.trace.streams;
            return Err(format!(
                "stream {stream} where the next new one is {next}; streams are numbered in order of first use"
            ));
        }
        let Entry::Vacant(entry) = self.live.entry(id) else {
            return Err(format!("block {id} is allocated again without a free in between"));
        };
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.trace.slots += 1;
            self.trace.slots - 1
        });
        entry.insert((slot, size));
        if stream == self.trace.streams {
            self.trace.streams = stream.checked_add(1).ok_or("there are more than 65535 streams")?;
        }
        self.live_bytes = total;
        self.trace.peak_live = self.trace.peak_live.max(total);
        Ok(Event { slot, operation: Operation::Allocate { size, stream, pool: 0 } })
    }

    fn free(&mut self, id: u32, size: u64) -> std::result::Result<Event, Reason> {
        let (slot, actual) =
            self.live.remove(&id).ok_or_else(|| format!("block {id} is freed, but is not allocated"))?;
        if size != 0 && size != actual {
            return Err(format!("block {id} is freed with {size} bytes, but has {actual}"));
        }
        self.live_bytes -= actual;
        self.free_slots.push(slot);
        Ok(Event { slot, operation: Operation::Free { size: actual } })
    }

    fn event(&mut self, bytes: &[u8; EVENT]) -> std::result::Result<Event, Reason> {
        let &[a, b, c, d, operation, operation_high, stream, stream_high, ref size @ ..] = bytes;
        let (id, stream) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([stream, stream_high]));
        let size = u64::from_le_bytes(*size);
        match u16::from_le_bytes([operation, operation_high]) {
            0 => self.allocate(id, stream, size),
            1 => self.free(id, size),
            other => Err(format!("operation {other} is neither 0 (allocate) nor 1 (free)")),
        }
    }
}

/// Reads a trace, compressed by xz or not, and reports the first invalid event.
pub fn read(path: &Path, output: &Output) -> Result<Trace> {
    let failed = |error: io::Error| Failure::file(path, error);
    let file = File::open(path).map_err(failed)?;
    let bar = output.progress("reading", file.metadata().map_err(failed)?.len());
    let mut reader = BufReader::with_capacity(BUFFER, bar.wrap_read(file));
    let start = reader.fill_buf().map_err(failed)?;
    if let Some((_, advice)) = OTHER_FORMATS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return Err(Failure::Invalid(format!("{} {advice}", path.display())));
    }
    let mut bytes = Vec::new();
    if start.starts_with(XZ) {
        let decompressed = XzReader::new(reader, true).read_to_end(&mut bytes);
        decompressed.map_err(|error| Failure::file(path, format!("decompressing it failed: {error}")))?;
    } else {
        reader.read_to_end(&mut bytes).map_err(failed)?;
    }
    bar.finish_and_clear();
    parse(&bytes).map_err(|reason| Failure::file(path, reason))
}

fn parse(bytes: &[u8]) -> std::result::Result<Trace, Reason> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let (events, rest) = bytes.as_chunks::<EVENT>();
    if !rest.is_empty() {
        return Err(format!("it is not a trace, or truncated: its {} bytes are not a multiple of 16", bytes.len()));
    }
    let mut reader = Reader { trace: Trace::default(), live: HashMap::new(), free_slots: Vec::new(), live_bytes: 0 };
    let mut read = Vec::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        read.push(reader.event(event).map_err(|reason| format!("event {index}: {reason}"))?);
    }
    reader.trace.events = read;
    Ok(reader.trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(events: &[(u32, u16, u16, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, operation, stream, size) in events {
            bytes.extend(id.to_le_bytes());
            bytes.extend(operation.to_le_bytes());
            bytes.extend(stream.to_le_bytes());
            bytes.extend(size.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn slots_are_reused() {
        let trace =
            parse(&bytes(&[(0, 0, 0, 512), (1, 0, 1, 1024), (0, 1, 0, 0), (2, 0, 0, 100), (1, 1, 0, 1024)])).unwrap();
        assert_eq!((trace.slots, trace.streams, trace.peak_live), (2, 2, 1536));
        assert_eq!(trace.events[2], Event { slot: 0, operation: Operation::Free { size: 512 } });
        assert_eq!(
            trace.events[3],
            Event { slot: 0, operation: Operation::Allocate { size: 100, stream: 0, pool: 0 } }
        );
    }

    #[test]
    fn invalid_traces_are_refused() {
        for (events, words) in [
            (&[(0, 0, 0, 1), (0, 0, 0, 1)][..], "event 1: block 0 is allocated again"),
            (&[(0, 1, 0, 1)], "event 0: block 0 is freed, but is not allocated"),
            (&[(0, 0, 0, 1), (0, 1, 0, 2)], "freed with 2 bytes, but has 1"),
            (&[(0, 0, 3, 1)], "stream 3 where the next new one is 0"),
            (&[(0, 7, 0, 1)], "operation 7"),
            (&[(0, 0, 0, u64::MAX)], "impossible size"),
        ] {
            let reason = parse(&bytes(events)).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
        assert!(parse(&[]).unwrap_err().contains("empty"));
        assert!(parse(&[0; 17]).unwrap_err().contains("17 bytes"));
    }
}

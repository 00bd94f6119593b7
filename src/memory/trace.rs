//! Every allocation and free of the process, written to files as they happen.
//!
//! A trace is one file a device: the path that was asked for is device 0's, and ".1", ".2" after it make the others'.
//! A file is a row of events of 16 bytes, little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | the block's number: blocks are counted from 0 in the order of their allocation |
//! | 4..6 | 0 for an allocation, 1 for a free |
//! | 6..8 | the block's stream: streams are counted from 0 in the order of their first use; 0 in a free |
//! | 8..16 | the block's bytes |
//!
//! Blocks that are live when the trace starts come first, as allocations. Files are written in whole events, so that
//! what a process that dies leaves behind can be read.

use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, hash_map::Entry},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

const EVENT: usize = 16;
/// Bytes that are collected before they are written: a whole number of events.
const BUFFER: usize = 64 << 10;
const ALLOC: u16 = 0;
const FREE: u16 = 1;

/// A block that is live when a trace starts, or becomes so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The number of its device.
    pub device: u32,
    /// Its address.
    pub address: u64,
    /// The handle of the stream that it was allocated on.
    pub stream: usize,
    /// Its bytes.
    pub size: u64,
}

/// What writes a trace, while there is one to write.
pub struct Recorder {
    on: AtomicBool,
    traces: Mutex<Option<Vec<Trace>>>,
}

/// The trace of one device.
struct Trace {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Events that are in the file, those of the buffer not among them.
    written: u64,
    next: u64,
    live: HashMap<u64, (u32, u64)>,
    streams: HashMap<usize, u16>,
    /// Why the trace broke off, if it did.
    failure: Option<Error>,
}

impl Trace {
    fn create(path: PathBuf) -> Result<Trace> {
        let file = File::create(&path).map_err(|error| {
            Error::new(Status::SYSTEM, format!("cannot write a trace to {}: {error}", path.display()))
        })?;
        Ok(Trace {
            path,
            file,
            buffer: Vec::with_capacity(BUFFER),
            written: 0,
            next: 0,
            live: HashMap::new(),
            streams: HashMap::new(),
            failure: None,
        })
    }

    #[cold]
    fn break_off(&mut self, status: Status, reason: &str) {
        let (path, events) = (self.path.display(), self.written + (self.buffer.len() / EVENT) as u64);
        self.failure = Some(Error::new(status, format!("the trace {path} ends after {events} events: {reason}")));
    }

    fn flush(&mut self) {
        if let Err(error) = self.file.write_all(&self.buffer) {
            // A part of the buffer may have been written. What cannot be cut off (the file may be a pipe) the message
            // tells, by its count of events.
            let _ = self.file.set_len(self.written * EVENT as u64);
            self.buffer.clear();
            // In place of an earlier failure, if there is one: this is where the file ends now.
            self.break_off(Status::SYSTEM, &error.to_string());
        }
        self.written += (self.buffer.len() / EVENT) as u64;
        self.buffer.clear();
    }

    fn push(&mut self, id: u32, op: u16, stream: u16, size: u64) {
        self.buffer.extend_from_slice(&id.to_le_bytes());
        self.buffer.extend_from_slice(&op.to_le_bytes());
        self.buffer.extend_from_slice(&stream.to_le_bytes());
        self.buffer.extend_from_slice(&size.to_le_bytes());
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
    }

    fn alloc(&mut self, block: Block) {
        // A block where one is live already: its free was not told. The file stays one that can be replayed.
        self.free(block.address);
        if self.failure.is_some() {
            return;
        }
        let Ok(id) = u32::try_from(self.next) else {
            return self.break_off(Status::NOT_SUPPORTED, "its format numbers no more than 2^32 blocks");
        };
        let streams = self.streams.len();
        let stream = match (self.streams.entry(block.stream), u16::try_from(streams)) {
            (Entry::Occupied(known), _) => *known.get(),
            (Entry::Vacant(new), Ok(number)) => *new.insert(number),
            (Entry::Vacant(_), Err(_)) => {
                return self.break_off(Status::NOT_SUPPORTED, "its format numbers no more than 65536 streams");
            }
        };
        self.next += 1;
        self.live.insert(block.address, (id, block.size));
        self.push(id, ALLOC, stream, block.size);
    }

    fn free(&mut self, address: u64) {
        if self.failure.is_none()
            && let Some((id, size)) = self.live.remove(&address)
        {
            self.push(id, FREE, 0, size);
        }
    }
}

/// Removes the file of a trace that is not wanted, if it is a file: the path may have named a device, a pipe or a link
/// that was there before. That it could not be removed is no failure: what stays is an empty or a short trace.
fn discard(trace: &Trace) {
    if fs::symlink_metadata(&trace.path).is_ok_and(|entry| entry.is_file()) {
        let _ = fs::remove_file(&trace.path);
    }
}

impl Recorder {
    /// A recorder that writes nothing yet.
    pub const fn new() -> Self {
        Recorder { on: AtomicBool::new(false), traces: Mutex::new(None) }
    }

    /// Whether a trace is being written.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Starts a trace of so many devices with the blocks that are live. Whoever starts it keeps blocks from being
    /// allocated and freed from when `live` was found out until this returns; `live` may not itself wait for a lock
    /// that is held while an allocation or a free is recorded.
    ///
    /// Every file is made at once, so that one that cannot be is known at once, and none of an earlier trace is taken
    /// for a part of this.
    pub fn start(&self, path: &Path, devices: usize, live: impl IntoIterator<Item = Block>) -> Result<()> {
        let mut running = self.traces.lock();
        if running.is_some() {
            return Err(Error::new(Status::INVALID_VALUE, "a trace is being written already"));
        }
        let mut traces = Vec::with_capacity(devices);
        for device in 0..devices {
            let mut path = path.as_os_str().to_os_string();
            if device > 0 {
                path.push(format!(".{device}"));
            }
            match Trace::create(path.into()) {
                Ok(trace) => traces.push(trace),
                Err(error) => {
                    traces.iter().for_each(discard);
                    return Err(error);
                }
            }
        }
        for block in live {
            if let Some(trace) = traces.get_mut(block.device as usize) {
                trace.alloc(block);
            }
        }
        if let Some(error) = traces.iter_mut().find_map(|trace| trace.failure.take()) {
            traces.iter().for_each(discard);
            return Err(error);
        }
        *running = Some(traces);
        self.on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Records an allocation, if a trace is being written. To be called before another thread can free the block.
    #[inline]
    pub fn record_alloc(&self, block: Block) {
        if self.is_on() {
            self.with(block.device, |trace| trace.alloc(block));
        }
    }

    /// Records a free, if a trace is being written. To be called before another thread can be given the same address.
    #[inline]
    pub fn record_free(&self, device: u32, address: u64) {
        if self.is_on() {
            self.with(device, |trace| trace.free(address));
        }
    }

    #[cold]
    fn with(&self, device: u32, record: impl FnOnce(&mut Trace)) {
        if let Some(trace) = self.traces.lock().as_mut().and_then(|traces| traces.get_mut(device as usize)) {
            record(trace);
        }
    }

    /// Ends the trace, and tells if a file of it broke off before. Devices on which nothing happened leave no file, but
    /// for device 0, whose file is the one that was asked for.
    pub fn stop(&self) -> Result<()> {
        let mut running = self.traces.lock();
        let Some(mut traces) = running.take() else {
            return Err(Error::new(Status::INVALID_VALUE, "no trace is being written"));
        };
        self.on.store(false, Ordering::Relaxed);
        traces.iter_mut().for_each(Trace::flush);
        for trace in traces.iter().skip(1) {
            if trace.next == 0 && trace.failure.is_none() {
                discard(trace);
            }
        }
        let mut failures = traces.into_iter().filter_map(|trace| trace.failure);
        let Some(first) = failures.next() else { return Ok(()) };
        let mut message = first.message().to_string();
        for other in failures {
            message.push_str("; ");
            message.push_str(other.message());
        }
        Err(Error::new(first.status(), message))
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// A directory of a test's own, removed when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("plinth-trace-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Scratch(path)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn block(device: u32, address: u64, stream: usize, size: u64) -> Block {
        Block { device, address, stream, size }
    }

    /// The events of a file: number, kind, stream, size.
    fn read(path: &Path) -> Vec<(u32, u16, u16, u64)> {
        let bytes = fs::read(path).unwrap();
        assert_eq!(bytes.len() % EVENT, 0);
        bytes
            .chunks_exact(EVENT)
            .map(|event| {
                (
                    u32::from_le_bytes(event[..4].try_into().unwrap()),
                    u16::from_le_bytes(event[4..6].try_into().unwrap()),
                    u16::from_le_bytes(event[6..8].try_into().unwrap()),
                    u64::from_le_bytes(event[8..].try_into().unwrap()),
                )
            })
            .collect()
    }

    #[test]
    fn a_trace_is_read_back() {
        let scratch = Scratch::new();
        let path = scratch.file("trace");
        fs::write(scratch.file("trace.2"), "an earlier trace's").unwrap();
        let recorder = Recorder::new();
        recorder.record_alloc(block(0, 1, 2, 3));
        assert!(!recorder.is_on());
        recorder.start(&path, 3, [block(0, 0x1000, 7, 100), block(1, 0x9000, 8, 5)]).unwrap();
        assert!(recorder.is_on());
        recorder.record_alloc(block(0, 0x2000, 0, 512));
        recorder.record_free(0, 0x1000);
        recorder.record_alloc(block(0, 0x1000, 7, 1 << 40));
        recorder.record_free(0, 0xbad);
        recorder.record_free(5, 0x1000);
        recorder.record_alloc(block(0, 0x1000, 7, 1));
        recorder.stop().unwrap();
        recorder.record_free(0, 0x2000);
        assert_eq!(
            read(&path),
            [
                (0, ALLOC, 0, 100),
                (1, ALLOC, 1, 512),
                (0, FREE, 0, 100),
                (2, ALLOC, 0, 1 << 40),
                (2, FREE, 0, 1 << 40),
                (3, ALLOC, 0, 1),
            ]
        );
        assert_eq!(read(&scratch.file("trace.1")), [(0, ALLOC, 0, 5)]);
        assert!(!scratch.file("trace.2").exists());
        let first = fs::read(scratch.file("trace.1")).unwrap();
        assert_eq!(first, [0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_trace_is_started_and_stopped_once() {
        let scratch = Scratch::new();
        let recorder = Recorder::new();
        assert_eq!(recorder.stop().unwrap_err().status(), Status::INVALID_VALUE);
        recorder.start(&scratch.file("one"), 1, []).unwrap();
        assert_eq!(recorder.start(&scratch.file("two"), 1, []).unwrap_err().status(), Status::INVALID_VALUE);
        assert!(!scratch.file("two").exists());
        recorder.stop().unwrap();
        assert_eq!(read(&scratch.file("one")), []);
        assert_eq!(recorder.stop().unwrap_err().status(), Status::INVALID_VALUE);
    }

    #[test]
    fn a_start_that_fails_leaves_nothing() {
        let scratch = Scratch::new();
        let recorder = Recorder::new();
        let error = recorder.start(&scratch.file("no/such/folder"), 1, []).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(error.message().contains("no/such/folder"), "{error}");
        fs::create_dir(scratch.file("trace.1")).unwrap();
        assert_eq!(recorder.start(&scratch.file("trace"), 2, []).unwrap_err().status(), Status::SYSTEM);
        assert!(!scratch.file("trace").exists() && !recorder.is_on());
    }

    #[test]
    fn files_grow_by_whole_events() {
        let scratch = Scratch::new();
        let path = scratch.file("trace");
        let recorder = Recorder::new();
        recorder.start(&path, 1, (0..5000).map(|address| block(0, address, 1, 16))).unwrap();
        assert_eq!(read(&path).len(), BUFFER / EVENT);
        for address in 0..5000 {
            recorder.record_free(0, address);
        }
        recorder.stop().unwrap();
        let events = read(&path);
        assert_eq!((events.len(), events[9999]), (10_000, (4999, FREE, 0, 16)));
    }

    #[test]
    fn too_many_streams_are_told_at_the_end() {
        let scratch = Scratch::new();
        let path = scratch.file("trace");
        let recorder = Recorder::new();
        recorder.start(&path, 1, []).unwrap();
        for stream in 0..=1 << 16 {
            recorder.record_alloc(block(0, stream as u64, stream, 1));
        }
        recorder.record_free(0, 0);
        let error = recorder.stop().unwrap_err();
        assert_eq!(error.status(), Status::NOT_SUPPORTED);
        assert!(
            error.message().ends_with("trace ends after 65536 events: its format numbers no more than 65536 streams")
        );
        let events = read(&path);
        assert_eq!((events.len(), events[65_535]), (65_536, (65_535, ALLOC, 65_535, 1)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_is_told_at_the_end() {
        let recorder = Recorder::new();
        let full = Path::new("/dev/full");
        recorder.start(full, 1, [block(0, 1, 1, 1)]).unwrap();
        for address in 0..10_000 {
            recorder.record_alloc(block(0, address, 1, 1));
        }
        let error = recorder.stop().unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(error.message().starts_with("the trace /dev/full ends after 0 events: "), "{error}");
        assert!(!recorder.is_on());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_not_a_file_is_not_removed() {
        let scratch = Scratch::new();
        let link = scratch.file("trace");
        std::os::unix::fs::symlink("/dev/full", &link).unwrap();
        let recorder = Recorder::new();
        let error = recorder.start(&link, 1, (0..5000).map(|address| block(0, address, 1, 1))).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(fs::symlink_metadata(&link).is_ok() && !recorder.is_on());
    }

    #[test]
    fn threads_record_into_one_file() {
        let scratch = Scratch::new();
        let path = scratch.file("trace");
        let recorder = Recorder::new();
        recorder.start(&path, 1, []).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for step in 0..2000 {
                        recorder.record_alloc(block(0, thread << 32 | step, thread as usize, step));
                        recorder.record_free(0, thread << 32 | step);
                    }
                });
            }
        });
        recorder.stop().unwrap();
        let mut live = HashMap::new();
        for (number, (id, op, stream, size)) in read(&path).into_iter().enumerate() {
            assert!(stream < 4, "event {number}");
            if op == ALLOC {
                assert_eq!(live.insert(id, size), None);
            } else {
                assert_eq!(live.remove(&id), Some(size));
            }
        }
        assert!(live.is_empty());
    }
}

//! Traces: binary files of all allocations and frees of the process.
//!
//! A trace has one file for each device: the requested path for device 0, and the path with ".1", ".2" and so on
//! appended for the others. A file is a sequence of events of 16 bytes, little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | the block's number: blocks are counted from 0 in the order of their allocation |
//! | 4..6 | 0 for an allocation, 1 for a free |
//! | 6..8 | the block's stream: streams are counted from 0 in the order of their first use; 0 in a free |
//! | 8..16 | the block's bytes |
//!
//! Blocks that are live when the trace starts come first, as allocations. Files are written in whole events, so that
//! the files of a process that crashes can be read. A trace that was not stopped ends when the process exits.

use super::history::Action;
use crate::{
    base::cancellation,
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, hash_map::Entry},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

const EVENT: usize = 16;
/// The buffer size in bytes: a whole number of events.
const BUFFER: usize = 64 << 10;
/// How long [`Writer::stop_at_exit`] waits for a thread that is recording an event.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
const ALLOC: u16 = 0;
const FREE: u16 = 1;

/// A live block, for the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The ordinal of the device.
    pub device: u32,
    /// The address.
    pub address: u64,
    /// The handle of the stream of the allocation.
    pub stream: usize,
    /// The size in bytes.
    pub size: u64,
}

/// Writes a trace while one is active.
pub struct Writer {
    traces: Mutex<Option<Vec<Trace>>>,
}

/// The writer of the process's trace.
pub static WRITER: Writer = Writer::new();

/// The trace of one device.
struct Trace {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// The number of events in the file, without those in the buffer.
    written: u64,
    next: u64,
    live: HashMap<u64, (u32, u64)>,
    streams: HashMap<usize, u16>,
    /// Why the trace ended early, if it did.
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
        // An allocation may flush.
        let _uncancellable = cancellation::disable();
        if let Err(error) = self.file.write_all(&self.buffer) {
            // A part of the buffer may have been written. If it cannot be truncated (the file may be a pipe), the
            // message still states the number of valid events.
            let _ = self.file.set_len(self.written * EVENT as u64);
            self.buffer.clear();
            // Replaces an earlier failure, because this is where the file ends.
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
        // A block is live at this address if its free was not recorded. Record the free, so that the file can be
        // replayed.
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

/// Removes the file of a discarded trace if it is a regular file: the path may name an existing device, pipe or link.
/// Ignores a failure, which leaves an empty or short trace.
fn discard(trace: &Trace) {
    if fs::symlink_metadata(&trace.path).is_ok_and(|entry| entry.is_file()) {
        let _ = fs::remove_file(&trace.path);
    }
}

impl Writer {
    /// Creates an inactive writer.
    pub const fn new() -> Self {
        Writer { traces: Mutex::new(None) }
    }

    /// Returns whether a trace is being written.
    pub fn is_on(&self) -> bool {
        self.traces.lock().is_some()
    }

    /// Starts a trace of `devices` devices with the live blocks. The caller must prevent allocations and frees from
    /// when `live` was determined until this returns. `live` must not wait for a lock that is held while an allocation
    /// or a free is recorded.
    ///
    /// All files are created at once, so that errors are reported now and files of an earlier trace are not mistaken
    /// for part of this one.
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
        Ok(())
    }

    /// Records an event of a block if a trace is being written. An allocation must be recorded before another thread
    /// can free the block, and a free before another thread can allocate the same address.
    pub fn record(&self, action: Action, block: Block) {
        let mut traces = self.traces.lock();
        let Some(trace) = traces.as_mut().and_then(|traces| traces.get_mut(block.device as usize)) else { return };
        match action {
            Action::Alloc => trace.alloc(block),
            Action::FreeRequested => trace.free(block.address),
            _ => {}
        }
    }

    /// Ends the trace. Returns an error if one of its files ended early. Removes the files of devices without events,
    /// except for device 0, whose file has the requested path.
    pub fn stop(&self) -> Result<()> {
        match self.traces.lock().take() {
            Some(traces) => finish(traces),
            None => Err(Error::new(Status::INVALID_VALUE, "no trace is being written")),
        }
    }

    /// Ends the trace, if there is one, when the process begins to exit. The exit must not hang: another thread may wait
    /// for a full pipe while it holds the lock, and then the files lack the events in the buffers.
    pub fn stop_at_exit(&self) {
        if let Some(mut running) = self.traces.try_lock_for(EXIT_TIMEOUT)
            && let Some(traces) = running.take()
        {
            // No call can return the error any more. The files are shortened to whole events.
            let _ = finish(traces);
        }
    }
}

/// Writes the buffers of a trace that has ended; see [`Writer::stop`].
fn finish(mut traces: Vec<Trace>) -> Result<()> {
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

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary;
    use crate::temporary::Folder;

    /// A temporary directory for one test, removed on drop.
    struct Scratch(Folder);

    impl Scratch {
        fn new() -> Scratch {
            Scratch(temporary::folder().unwrap())
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }
    }

    fn block(device: u32, address: u64, stream: usize, size: u64) -> Block {
        Block { device, address, stream, size }
    }

    /// Returns the events of a file: block number, kind, stream, size.
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
        let writer = Writer::new();
        writer.record(Action::Alloc, block(0, 1, 2, 3));
        assert!(!writer.is_on());
        writer.start(&path, 3, [block(0, 0x1000, 7, 100), block(1, 0x9000, 8, 5)]).unwrap();
        assert!(writer.is_on());
        writer.record(Action::Alloc, block(0, 0x2000, 0, 512));
        writer.record(Action::FreeRequested, block(0, 0x1000, 0, 0));
        writer.record(Action::Alloc, block(0, 0x1000, 7, 1 << 40));
        writer.record(Action::FreeRequested, block(0, 0xbad, 0, 0));
        writer.record(Action::FreeRequested, block(5, 0x1000, 0, 0));
        writer.record(Action::Alloc, block(0, 0x1000, 7, 1));
        writer.stop().unwrap();
        writer.record(Action::FreeRequested, block(0, 0x2000, 0, 0));
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
        let writer = Writer::new();
        assert_eq!(writer.stop().unwrap_err().status(), Status::INVALID_VALUE);
        writer.start(&scratch.file("one"), 1, []).unwrap();
        assert_eq!(writer.start(&scratch.file("two"), 1, []).unwrap_err().status(), Status::INVALID_VALUE);
        assert!(!scratch.file("two").exists());
        writer.stop().unwrap();
        assert_eq!(read(&scratch.file("one")), []);
        assert_eq!(writer.stop().unwrap_err().status(), Status::INVALID_VALUE);
    }

    #[test]
    fn a_start_that_fails_leaves_nothing() {
        let scratch = Scratch::new();
        let writer = Writer::new();
        let error = writer.start(&scratch.file("no/such/folder"), 1, []).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(error.message().contains("no/such/folder"), "{error}");
        fs::create_dir(scratch.file("trace.1")).unwrap();
        assert_eq!(writer.start(&scratch.file("trace"), 2, []).unwrap_err().status(), Status::SYSTEM);
        assert!(!scratch.file("trace").exists() && !writer.is_on());
    }

    #[test]
    fn files_grow_by_whole_events() {
        let scratch = Scratch::new();
        let path = scratch.file("trace");
        let writer = Writer::new();
        writer.start(&path, 1, (0..5000).map(|address| block(0, address, 1, 16))).unwrap();
        assert_eq!(read(&path).len(), BUFFER / EVENT);
        for address in 0..5000 {
            writer.record(Action::FreeRequested, block(0, address, 0, 0));
        }
        writer.stop().unwrap();
        let events = read(&path);
        assert_eq!((events.len(), events[9999]), (10_000, (4999, FREE, 0, 16)));
    }

    #[test]
    fn stop_reports_too_many_streams() {
        let scratch = Scratch::new();
        let path = scratch.file("trace");
        let writer = Writer::new();
        writer.start(&path, 1, []).unwrap();
        for stream in 0..=1 << 16 {
            writer.record(Action::Alloc, block(0, stream as u64, stream, 1));
        }
        writer.record(Action::FreeRequested, block(0, 0, 0, 0));
        let error = writer.stop().unwrap_err();
        assert_eq!(error.status(), Status::NOT_SUPPORTED);
        assert!(
            error.message().ends_with("trace ends after 65536 events: its format numbers no more than 65536 streams")
        );
        let events = read(&path);
        assert_eq!((events.len(), events[65_535]), (65_536, (65_535, ALLOC, 65_535, 1)));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn stop_reports_a_full_disk() {
        let writer = Writer::new();
        let full = Path::new("/dev/full");
        writer.start(full, 1, [block(0, 1, 1, 1)]).unwrap();
        for address in 0..10_000 {
            writer.record(Action::Alloc, block(0, address, 1, 1));
        }
        let error = writer.stop().unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(error.message().starts_with("the trace /dev/full ends after 0 events: "), "{error}");
        assert!(!writer.is_on());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_regular_files_are_removed() {
        let scratch = Scratch::new();
        let link = scratch.file("trace");
        std::os::unix::fs::symlink("/dev/full", &link).unwrap();
        let writer = Writer::new();
        let error = writer.start(&link, 1, (0..5000).map(|address| block(0, address, 1, 1))).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(fs::symlink_metadata(&link).is_ok() && !writer.is_on());
    }

    #[test]
    fn threads_record_into_one_file() {
        let scratch = Scratch::new();
        let path = scratch.file("trace");
        let writer = Writer::new();
        writer.start(&path, 1, []).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let writer = &writer;
                scope.spawn(move || {
                    for step in 0..2000 {
                        writer.record(Action::Alloc, block(0, thread << 32 | step, thread as usize, step));
                        writer.record(Action::FreeRequested, block(0, thread << 32 | step, 0, 0));
                    }
                });
            }
        });
        writer.stop().unwrap();
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

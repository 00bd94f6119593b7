//! Copies between the memory of a device and a backup.
//!
//! Devices copy to and from pinned memory directly. In front of everything else are two pinned buffers: the device copies
//! one while processors move the bytes of the other.

use super::backup::{BLOCK, Backup, PAGE, Piece, Pinned, Place, Staged};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, Event, Span, observer},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
    stream::{Stream, event_pool::PooledEvent},
};
use std::collections::VecDeque;

/// The size of a buffer.
const BUFFER: u64 = 32 << 20;

/// A part of a [`Piece`] in a window.
struct Part {
    address: u64,
    bytes: u64,
    /// The first byte in the window.
    at: u64,
}

/// Consecutive bytes of a backup, from the beginning of a page.
struct Window {
    offset: u64,
    bytes: u64,
    parts: Vec<Part>,
}

/// Divides pieces, in the order of their offsets, into windows between multiples of `size`, which is a multiple of a page.
fn windows(pieces: &[Piece], size: u64) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for piece in pieces {
        let mut done = 0;
        while done < piece.bytes {
            let offset = piece.offset + done;
            let continues =
                |last: &Window| offset - (last.offset + last.bytes) < PAGE && last.offset / size == offset / size;
            if !windows.last().is_some_and(continues) {
                windows.push(Window { offset: offset - offset % PAGE, bytes: 0, parts: Vec::new() });
            }
            let bytes = (piece.bytes - done).min(size - offset % size);
            if let Some(last) = windows.last_mut() {
                let at = offset - last.offset;
                last.parts.push(Part { address: piece.address + done, bytes, at });
                last.bytes = at + bytes;
            }
            done += bytes;
        }
    }
    windows
}

/// A buffer, and the event after its last copy.
struct Buffer {
    memory: Pinned,
    copied: PooledEvent,
    is_copying: bool,
}

/// A point in the copies to backups.
pub(super) struct Point {
    /// The event after the copies to a pinned backup.
    copied: Option<PooledEvent>,
    /// The number of windows that devices have copied to buffers.
    filled: u64,
}

/// Copies between the memory of a device and backups.
pub(super) struct Transfer<'a> {
    driver: &'a Driver,
    device: &'a Device,
    stream: Stream,
    buffers: Vec<Buffer>,
    /// The number of windows that buffers were used for.
    filled: u64,
    /// The windows whose bytes are only in buffers.
    unmoved: VecDeque<(usize, Window)>,
    /// Whether copies may be in progress.
    is_copying: bool,
}

impl<'a> Transfer<'a> {
    /// Prepares copies in a stream of the device, to or from backups.
    pub fn new<'b>(
        runtime: &'a Runtime,
        device: &'a Device,
        stream: Stream,
        backups: impl IntoIterator<Item = &'b Backup>,
    ) -> Result<Transfer<'a>> {
        let staged = backups.into_iter().filter(|backup| matches!(backup.place, Place::Staged(_)));
        let mut buffers = Vec::new();
        if let Some(largest) = staged.map(|backup| backup.bytes).max() {
            for _ in 0..2 {
                let memory = Pinned::alloc(largest.clamp(1, BUFFER).next_multiple_of(PAGE))?;
                let copied = PooledEvent::acquire(device, &runtime.driver, 0)?;
                buffers.push(Buffer { memory, copied, is_copying: false });
            }
        }
        let driver = &runtime.driver;
        Ok(Transfer { driver, device, stream, buffers, filled: 0, unmoved: VecDeque::new(), is_copying: false })
    }

    /// Begins to copy pieces to a backup, which has them after [`await_point`](Self::await_point). The device's context is
    /// current.
    pub fn save(&mut self, backup: &Backup, pieces: &[Piece]) -> Result<Point> {
        let mut copied = None;
        match &backup.place {
            Place::Pinned(blocks) => {
                for window in windows(pieces, BLOCK) {
                    let block = blocks[(window.offset / BLOCK) as usize].span();
                    self.copy(&window, block, window.offset % BLOCK, true)?;
                }
                let event = PooledEvent::acquire(self.device, self.driver, 0)?;
                self.record(event.native())?;
                copied = Some(event);
            }
            Place::Staged(staged) => {
                for window in windows(pieces, BUFFER) {
                    let index = self.next_buffer(&window)?;
                    self.copy(&window, self.buffers[index].memory.span(), 0, true)?;
                    self.record_buffer(index)?;
                    self.unmoved.push_back((index, window));
                    // While the device fills this one.
                    if self.unmoved.len() == self.buffers.len() {
                        self.move_oldest(staged)?;
                    }
                }
            }
        }
        Ok(Point { copied, filled: self.filled })
    }

    /// Waits until the backup has what was copied before a point.
    pub fn await_point(&mut self, backup: &Backup, point: &Point) -> Result<()> {
        if let Some(event) = &point.copied {
            observer::run_unobserved(|| self.driver.event_synchronize(event.native()))
                .context(|| "waiting for a copy to a backup")?;
        }
        if let Place::Staged(staged) = &backup.place {
            while self.filled - (self.unmoved.len() as u64) < point.filled {
                self.move_oldest(staged)?;
            }
        }
        Ok(())
    }

    /// Copies pieces from a backup. The copies are complete after [`finish`](Self::finish), or when the stream is.
    pub fn restore(&mut self, backup: &Backup, pieces: &[Piece]) -> Result<()> {
        match &backup.place {
            Place::Pinned(blocks) => {
                for window in windows(pieces, BLOCK) {
                    let block = blocks[(window.offset / BLOCK) as usize].span();
                    self.copy(&window, block, window.offset % BLOCK, false)?;
                }
            }
            Place::Staged(staged) => {
                for window in windows(pieces, BUFFER) {
                    let index = self.next_buffer(&window)?;
                    self.wait(index)?;
                    staged.move_bytes(&self.buffers[index].memory, window.bytes, window.offset, false)?;
                    self.copy(&window, self.buffers[index].memory.span(), 0, false)?;
                    self.record_buffer(index)?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the copies, and forgets what is only in buffers.
    pub fn finish(&mut self) -> Result<()> {
        self.unmoved.clear();
        if self.is_copying {
            let waited = observer::run_unobserved(|| self.driver.stream_synchronize(self.stream.raw));
            waited.context(|| "waiting for the copies of a backup")?;
            self.is_copying = false;
        }
        Ok(())
    }

    /// Lets the copies go on after this value is dropped, except those that need its buffers. The caller keeps the backup's
    /// memory until they are complete.
    pub fn leave_running(&mut self) {
        self.is_copying = !self.buffers.is_empty();
    }

    /// Enqueues the copies of a window, which begins at `from` in host memory.
    fn copy(&mut self, window: &Window, host: Span, from: u64, saves: bool) -> Result<()> {
        self.is_copying = true;
        for part in &window.parts {
            // SAFETY: the caller holds the locks that keep this memory mapped, until the copies are complete.
            #[allow(unsafe_code)]
            let memory = unsafe { Span::new(part.address, part.bytes as usize) };
            let host = host.part((from + part.at) as usize, part.bytes as usize);
            let (to, from) = if saves { (host, memory) } else { (memory, host) };
            let copied = observer::run_unobserved(|| self.driver.copy(to, from, self.stream.raw));
            copied.context(|| format!("copying {} of sleeping memory", Bytes(part.bytes)))?;
        }
        Ok(())
    }

    /// Returns the buffer for the next window.
    fn next_buffer(&mut self, window: &Window) -> Result<usize> {
        let index = (self.filled % 2) as usize;
        self.filled += 1;
        match self.buffers.get(index) {
            Some(buffer) if buffer.memory.span().bytes() as u64 >= window.bytes => Ok(index),
            _ => Err(Error::new(Status::PANIC, "a transfer has no buffer for its backup")),
        }
    }

    fn record(&self, event: Event) -> Result<()> {
        observer::run_unobserved(|| self.driver.event_record(event, self.stream.raw))
            .context(|| "recording the end of a backup's copy")
    }

    fn record_buffer(&mut self, index: usize) -> Result<()> {
        self.record(self.buffers[index].copied.native())?;
        self.buffers[index].is_copying = true;
        Ok(())
    }

    fn wait(&mut self, index: usize) -> Result<()> {
        let buffer = &mut self.buffers[index];
        if buffer.is_copying {
            observer::run_unobserved(|| self.driver.event_synchronize(buffer.copied.native()))
                .context(|| "waiting for a backup's copy")?;
            buffer.is_copying = false;
        }
        Ok(())
    }

    /// Moves the bytes of the oldest full buffer to their place, once the device has filled it.
    fn move_oldest(&mut self, staged: &Staged) -> Result<()> {
        let Some((index, window)) = self.unmoved.pop_front() else { return Ok(()) };
        self.wait(index)?;
        staged.move_bytes(&self.buffers[index].memory, window.bytes, window.offset, true)
    }
}

impl Drop for Transfer<'_> {
    fn drop(&mut self) {
        // The device must not access memory that is freed.
        retry(|| self.finish());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_contain_each_byte_once(
            sizes in prop::collection::vec((1u64..20_000, 0u64..3), 1..30),
            pages in 1u64..5,
            clipped in 0u64..1000,
        ) {
            let (mut address, mut offset, mut pieces) = (1 << 20, clipped, Vec::new());
            for (bytes, gap) in sizes {
                pieces.push(Piece { address, bytes, offset });
                address += bytes + 512;
                offset = (offset + bytes).next_multiple_of(PAGE) + gap * PAGE;
            }
            let mut places: Vec<(u64, u64)> = Vec::new();
            let mut end = 0;
            for window in windows(&pieces, pages * PAGE) {
                // Whole pages can be written without a change to another window.
                prop_assert!(window.offset % PAGE == 0 && window.offset >= end);
                end = (window.offset + window.bytes).next_multiple_of(PAGE);
                prop_assert_eq!(window.offset / (pages * PAGE), (end - 1) / (pages * PAGE));
                for part in &window.parts {
                    prop_assert!(part.at + part.bytes <= window.bytes);
                    places.extend((0..part.bytes).map(|byte| (part.address + byte, window.offset + part.at + byte)));
                }
            }
            let expected: Vec<(u64, u64)> = pieces
                .iter()
                .flat_map(|piece| (0..piece.bytes).map(|byte| (piece.address + byte, piece.offset + byte)))
                .collect();
            prop_assert_eq!(places, expected);
        }
    }
}

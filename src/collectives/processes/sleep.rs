//! Sleep: all ranks release the memory of their buffers and keep the addresses, so that captured graphs stay valid.
//!
//! The ranks agree after each step, through the links. A rank that fails makes the step fail on all of them. Waking is a
//! second rendezvous, because the links carry no descriptors.

use super::{
    Counters, GatheringCall, ProcessGroup,
    links::GatherRow,
    rendezvous::{self, Id},
    symmetric_buffer::{SymmetricBuffer, import_part},
};
use crate::{
    base::{deadline::Deadline, retry::retry},
    collectives::sleep,
    driver::{Driver, Span, group::offsets},
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device},
    status::Status,
    stream::capture_scope::CaptureResource,
};

/// The contents of a buffer that must outlive its memory: the counters and flags before the slots, and the chunks of
/// transfers that were sent and not received. The rest is written before it is read.
#[derive(Debug)]
pub struct SavedContents(Vec<u8>);

impl SavedContents {
    /// Returns the counters of the kernels.
    pub fn counters(&self) -> Option<Counters> {
        self.0.first_chunk().map(|start| Counters(*start))
    }

    /// Writes bytes at an offset of the buffer before its slots.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        if let Some(part) = self.0.get_mut(at as usize..).and_then(|rest| rest.get_mut(..bytes.len())) {
            part.copy_from_slice(bytes);
        }
    }
}

/// Runs a step of this rank in its device's context. Another thread may be capturing.
fn step<T>(runtime: &Runtime, device: &Device, body: impl FnOnce(&Driver) -> Result<T>) -> Result<T> {
    device.with_context(&runtime.driver, |driver| driver.with_relaxed_capture(|| body(driver))?)
}

impl ProcessGroup {
    /// Fails while the group sleeps.
    pub fn check_awake(&self) -> Result<()> {
        self.sleep.check_awake()
    }

    /// Releases the memory of all ranks. Collective. If a rank fails, all fail, and the group sleeps; it stays awake if that
    /// happens before any memory is released.
    pub fn put_to_sleep(&self) -> Result<()> {
        self.change("putting to sleep", |runtime, device| self.release_all(runtime, device))
    }

    /// Allocates the memory of all ranks and maps it at the same addresses. Each rank checks something when it has allocated its
    /// own. Collective. If a rank fails, all fail, and the group sleeps on.
    pub fn wake(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        self.change("waking", |runtime, device| {
            if self.sleep.get() {
                self.map_all(runtime, device, check).inspect_err(|_| self.unmap_all(&runtime.driver))?;
                *self.contents.lock() = None;
                self.sleep.set(false);
            }
            Ok(())
        })
    }

    fn change(&self, what: &str, body: impl FnOnce(&Runtime, &Device) -> Result<()>) -> Result<()> {
        let _changing = self.changing.lock();
        let change = || {
            self.error().map_or(Ok(()), Err)?;
            let runtime = runtime::ready()?;
            body(runtime, runtime.device(self.device as i32)?)
        };
        change().context(|| format!("{what} rank {} of {} of a communicator", self.rank, self.size))
    }

    /// Gathers the outcomes of a step of a call. Returns what the ranks send if it succeeded on all of them, and the row
    /// that they were sent in; otherwise the error of the first rank that failed.
    fn agree(&self, call: GatheringCall, outcome: Result<Vec<u8>>) -> Result<(GatherRow, Vec<Vec<u8>>)> {
        let (status, code, bytes) = match &outcome {
            Ok(bytes) => (0, 0, &bytes[..]),
            Err(error) => (error.status().0, error.driver_code(), error.message().as_bytes()),
        };
        let row = self.send_row(call, &[&status.to_le_bytes(), &code.to_le_bytes(), bytes].concat())?;
        let rows = self.collect_rows(&row)?;
        for (rank, bytes) in rows.iter().enumerate() {
            let (words, text) = bytes.as_slice().split_at_checked(8).unwrap_or_default();
            let word = |index: usize| words.as_chunks().0.get(index).map_or(0, |word| u32::from_le_bytes(*word));
            if word(0) != 0 && rank == self.rank as usize {
                break;
            }
            if word(0) != 0 {
                let message = format!("rank {rank} failed: {}", String::from_utf8_lossy(text));
                return Err(Error::new(Status(word(0) as i32), message).with_driver_code(word(1)));
            }
        }
        outcome?;
        Ok((row, rows))
    }

    fn release_all(&self, runtime: &Runtime, device: &Device) -> Result<()> {
        if self.contents.lock().is_none() {
            // No launch comes after the wait.
            let orders = self.orders.lock();
            self.sleep.set(true);
            drop(orders);
            self.save(runtime, device).inspect_err(|_| self.sleep.set(false))?;
            self.orders.lock().release_graphs();
        }
        let unmapped = step(runtime, device, |driver| {
            self.buffers.iter().map(|buffer| buffer.unmap(driver)).fold(Ok(()), Result::and)
        });
        self.agree(GatheringCall::Sleep, unmapped.map(|()| Vec::new())).map(drop)
    }

    /// Waits for the work of all ranks, and saves the contents of this one's buffer.
    fn save(&self, runtime: &Runtime, device: &Device) -> Result<()> {
        let health = || self.error().map_or(Ok(()), Err);
        let waited = sleep::await_device(runtime, device, Deadline::optional(None), health)
            .and_then(|()| self.sticky_error().map_or(Ok(()), Err));
        self.agree(GatheringCall::Sleep, waited.map(|()| Vec::new()))?;
        let mut contents = Vec::new();
        let read = step(runtime, device, |driver| {
            for part in self.saved_parts() {
                let start = contents.len();
                contents.resize(start + part.bytes(), 0);
                driver.copy_to_host(&mut contents[start..], part, self.stream)?;
            }
            Ok(Vec::new())
        });
        self.agree(GatheringCall::Sleep, read)?;
        let mut saved = self.contents.lock();
        // After an abort, fills of the buffers may be pending.
        self.sticky_error().map_or(Ok(()), Err)?;
        *saved = Some(SavedContents(contents));
        Ok(())
    }

    pub(super) fn own_buffer(&self) -> &SymmetricBuffer {
        &self.buffers[self.rank as usize]
    }

    /// Returns the parts of this rank's buffer that are saved.
    fn saved_parts(&self) -> [Span; 2] {
        let (own, rings) = (self.own_buffer(), self.tuning.rings(self.size));
        [own.part(0, offsets::STAGING), own.part(rings.start, rings.end - rings.start)]
    }

    fn unmap_all(&self, driver: &Driver) {
        for buffer in &self.buffers {
            retry(|| buffer.unmap(driver));
        }
    }

    fn map_all(&self, runtime: &Runtime, device: &Device, check: impl Fn() -> Result<()>) -> Result<()> {
        let mut descriptor = None;
        let allocated = step(runtime, device, |driver| {
            // What an earlier failure has left.
            self.unmap_all(driver);
            descriptor =
                Some(self.own_buffer().allocate(runtime, device, &self.tuning.zeroed(self.size), self.stream)?);
            // Before any other rank writes to it.
            if let Some(SavedContents(contents)) = &*self.contents.lock() {
                let mut rest = &contents[..];
                for part in self.saved_parts() {
                    driver.copy_from_host(part, rest, self.stream)?;
                    rest = rest.get(part.bytes()..).unwrap_or_default();
                }
            }
            check()?;
            Ok(ProcessGroup::new_id()?.to_vec())
        });
        let (row, rows) = self.agree(GatheringCall::Wake, allocated)?;
        let ranks: Vec<usize> = (0..self.size as usize).collect();
        let map = |driver: &Driver, stop: &dyn Fn() -> Option<Error>| {
            let id = rows.first().and_then(|row| row.get(8..)?.first_chunk());
            let (Some(id), Some(descriptor)) = (id.and_then(Id::read), &descriptor) else {
                return Err(Error::new(Status::PEER_LOST, "rank 0 sent an invalid message"));
            };
            let stops = || stop().is_some();
            let deadline = self.deadline().unless(&stops);
            let met = rendezvous::meet(&id, self.info(runtime)?, self.size, descriptor, deadline, stop)?;
            for (rank, (buffer, descriptor)) in self.buffers.iter().zip(&met.buffers).enumerate() {
                if let Some(descriptor) = descriptor {
                    let part = import_part(driver, rank, descriptor, buffer.bytes())?;
                    buffer.map_of(driver, device, rank as u32, vec![part])?;
                }
            }
            Ok(Vec::new())
        };
        let mapped = self
            .after_gather(&row, &ranks, "the communicator", |stop| step(runtime, device, |driver| map(driver, stop)));
        self.agree(GatheringCall::Wake, mapped).map(drop)
    }
}

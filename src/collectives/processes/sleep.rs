//! Sleep: all ranks release the memory of their buffers and keep the addresses, so that captured graphs stay valid.
//!
//! The ranks agree after each step, through the links. A rank that fails makes the step fail on all of them. Waking is a
//! second rendezvous, because the links carry no descriptors.

use super::{
    Counters, ProcessGroup,
    links::GatherRow,
    rendezvous::{self, Id},
    symmetric_buffer::SymmetricBuffer,
};
use crate::{
    base::{deadline::Deadline, retry::retry},
    driver::{
        Span,
        group::{ENTRIES, LANES, offsets},
    },
    error::{Context, Error, Result},
    runtime::{self, Runtime, device::Device},
    status::Status,
    stream::{
        capture_lock,
        capture_scope::{self, CaptureResource},
    },
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Whether a group sleeps. Graphs that captured its work hold it.
#[derive(Debug, Default)]
pub struct SleepState(AtomicBool);

impl SleepState {
    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, asleep: bool) {
        if self.0.swap(asleep, Ordering::Relaxed) != asleep {
            capture_scope::count_asleep(asleep);
        }
    }
}

impl CaptureResource for SleepState {
    fn check_awake(&self) -> Result<()> {
        if !self.get() {
            return Ok(());
        }
        Err(Error::new(Status::GRAPH_ASLEEP, "the communicator is asleep; call plinth_communicator_wake on all ranks"))
    }
}

impl Drop for SleepState {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// The contents of a buffer that must outlive its memory: the counters and flags before the slots, and the chunks of
/// transfers that were sent and not received. The rest is written before it is read.
#[derive(Debug)]
pub struct SavedContents {
    start: Vec<u8>,
    rings: Vec<u8>,
}

impl SavedContents {
    /// Returns the counters of the kernels.
    pub fn counters(&self) -> Option<Counters> {
        self.start.first_chunk().map(|start| Counters(*start))
    }
}

impl ProcessGroup {
    /// Fails while the group sleeps.
    pub fn check_awake(&self) -> Result<()> {
        self.sleep.check_awake()
    }

    /// Releases the memory of all ranks. Collective. If a rank fails before any memory is released, the group stays awake.
    pub fn sleep(&self) -> Result<()> {
        self.change("putting to sleep", |runtime, device| {
            if self.contents.lock().is_none() {
                // No launch comes after the wait.
                let orders = self.orders.lock();
                self.sleep.set(true);
                drop(orders);
                self.save(runtime, device).inspect_err(|_| self.sleep.set(false))?;
            }
            let unmapped = self.buffers.iter().map(|buffer| buffer.unmap(&runtime.driver));
            self.agree(unmapped.fold(Ok(()), Result::and).map(|()| Vec::new())).map(drop)
        })
    }

    /// Allocates and maps the memory of all ranks at the same addresses. Collective. If a rank fails, the group sleeps on.
    pub fn wake(&self) -> Result<()> {
        self.change("waking", |runtime, device| {
            if !self.sleep.get() {
                return Ok(());
            }
            self.map_all(runtime, device).inspect_err(|_| self.unmap_all(runtime))?;
            *self.contents.lock() = None;
            self.sleep.set(false);
            Ok(())
        })
    }

    fn change(&self, what: &str, body: impl FnOnce(&'static Runtime, &Device) -> Result<()>) -> Result<()> {
        let _changing = self.changing.lock();
        let changed = || {
            self.error().map_or(Ok(()), Err)?;
            let runtime = runtime::ready()?;
            let device = runtime.device(self.device as i32)?;
            body(runtime, device)
        };
        changed().context(|| format!("{what} rank {} of {} of a communicator", self.rank, self.size))
    }

    /// Gathers the outcomes of a step. Returns what the ranks send if it succeeded on all of them, and the row that they
    /// were sent in; otherwise the error of the first rank that failed.
    fn agree(&self, outcome: Result<Vec<u8>>) -> Result<(GatherRow, Vec<Vec<u8>>)> {
        let (status, code, bytes) = match &outcome {
            Ok(bytes) => (0, 0, &bytes[..]),
            Err(error) => (error.status().0, error.driver_code(), error.message().as_bytes()),
        };
        let row = self.send_row(&[&status.to_le_bytes(), &code.to_le_bytes(), bytes].concat())?;
        let rows = self.collect_rows(&row)?;
        for (rank, bytes) in rows.iter().enumerate() {
            let (Some(status), Some(code), Some(text)) = (number(bytes, 0), number(bytes, 4), bytes.get(8..)) else {
                continue;
            };
            if status != 0 && rank != self.rank as usize {
                let message = format!("rank {rank} failed: {}", String::from_utf8_lossy(text));
                return Err(Error::new(Status(status as i32), message).with_driver_code(code));
            }
            if status != 0 {
                break;
            }
        }
        outcome?;
        Ok((row, rows))
    }

    /// Waits for the work of all ranks, and saves the contents of this one's buffer.
    fn save(&self, runtime: &Runtime, device: &Device) -> Result<()> {
        self.agree(step(runtime, || self.await_device(runtime, device)).map(|()| Vec::new()))?;
        let save = || {
            device.with_context(&runtime.driver, |driver| {
                let read = |part: Span| {
                    let mut bytes = vec![0; part.bytes()];
                    driver.copy_to_host(&mut bytes, part, self.stream)?;
                    Ok::<_, Error>(bytes)
                };
                let [start, rings] = self.saved_parts();
                Ok(SavedContents { start: read(start)?, rings: read(rings)? })
            })
        };
        let (contents, outcome) = split(step(runtime, save), |_| Vec::new());
        self.agree(outcome)?;
        let mut saved = self.contents.lock();
        // After an abort, fills of the buffers may be pending.
        self.sticky_error().map_or(Ok(()), Err)?;
        *saved = contents;
        Ok(())
    }

    /// Waits for all work of the device, which includes replays of graphs that other code launched, and for no rank that
    /// is gone.
    fn await_device(&self, runtime: &Runtime, device: &Device) -> Result<()> {
        let Ok(event) = capture_lock::record_in_device(runtime, device) else {
            return capture_lock::synchronize_device(runtime, device);
        };
        let poll = || match runtime.in_any_context(|driver| Ok(driver.event_query(event.native())?))? {
            true => Ok(Some(())),
            false => self.error().map_or(Ok(None), Err),
        };
        Deadline::optional(None).until(|| "", poll)?;
        self.sticky_error().map_or(Ok(()), Err)
    }

    fn own_buffer(&self) -> &SymmetricBuffer {
        &self.buffers[self.rank as usize]
    }

    /// Returns the parts of this rank's buffer that are saved.
    fn saved_parts(&self) -> [Span; 2] {
        let (size, own) = (u64::from(self.size), self.own_buffer());
        let rings = offsets::STAGING + 2 * size * self.tuning.slot(self.size);
        let bytes = size * u64::from(LANES * ENTRIES) * self.tuning.entry;
        [own.part(0, offsets::STAGING), own.part(rings, bytes)]
    }

    fn unmap_all(&self, runtime: &Runtime) {
        for buffer in &self.buffers {
            retry(|| buffer.unmap(&runtime.driver));
        }
    }

    fn map_all(&self, runtime: &Runtime, device: &Device) -> Result<()> {
        let driver = &runtime.driver;
        // What an earlier failure has left.
        self.unmap_all(runtime);
        let allocate = || {
            let descriptor = self.own_buffer().allocate(runtime, device, self.stream)?;
            // Before any other rank writes to it.
            if let Some(contents) = &*self.contents.lock() {
                let [start, rings] = self.saved_parts();
                device.with_context(driver, |driver| {
                    driver.copy_from_host(start, &contents.start, self.stream)?;
                    Ok(driver.copy_from_host(rings, &contents.rings, self.stream)?)
                })?;
            }
            Ok((descriptor, ProcessGroup::new_id()?))
        };
        let (allocated, outcome) = split(step(runtime, allocate), |(_, id)| id.to_vec());
        let (row, rows) = self.agree(outcome)?;
        let others: Vec<usize> = (0..self.size as usize).collect();
        let stop = || self.error().or_else(|| Some(self.failure_after(&row, &others)?.1));
        let map = || {
            let id = rows.first().and_then(|row| row.get(8..)?.first_chunk());
            let (Some(id), Some((descriptor, _))) = (id.and_then(Id::read), &allocated) else {
                return Err(Error::new(Status::PEER_LOST, "rank 0 sent an invalid message"));
            };
            let timeout = Duration::from_nanos(self.timeout.load(Ordering::Relaxed));
            let stops = || stop().is_some();
            let deadline = Deadline::optional((!timeout.is_zero()).then_some(timeout)).unless(&stops);
            let met = rendezvous::meet(&id, self.info(runtime)?, self.size, descriptor, deadline, &stop)?;
            for (rank, (buffer, descriptor)) in self.buffers.iter().zip(&met.buffers).enumerate() {
                if let Some(descriptor) = descriptor {
                    buffer.map_of(driver, device, rank as u32, descriptor)?;
                }
            }
            Ok(Vec::new())
        };
        // The others would wait for a rank that failed.
        let mapped = step(runtime, map)
            .map_err(|error| stop().unwrap_or(error))
            .inspect_err(|error| self.send_failure(&row, error));
        self.agree(mapped).map(drop)
    }
}

/// Splits the outcome of a step into its value, and what the other ranks learn of it.
fn split<T>(outcome: Result<T>, bytes: impl Fn(&T) -> Vec<u8>) -> (Option<T>, Result<Vec<u8>>) {
    match outcome {
        Ok(value) => {
            let bytes = bytes(&value);
            (Some(value), Ok(bytes))
        }
        Err(error) => (None, Err(error)),
    }
}

/// Makes a step of this rank while another thread may capture. The ranks agree on its outcome: an error that is returned
/// without that leaves them waiting.
fn step<T>(runtime: &Runtime, body: impl FnOnce() -> Result<T>) -> Result<T> {
    runtime.driver.with_relaxed_capture(body)?
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_le_bytes(*number))
}

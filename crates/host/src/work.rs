//! The work of streams: copies, fills, kernels and host functions.

use super::{config::Copies, context, kernels::Launch, memory::check::Accessor, state::State};
use crate::driver::table::Code;
use std::{ffi::c_void, sync::Arc, thread, time::Duration};

/// Work that a device's worker executes.
#[derive(Clone)]
pub enum Work {
    Copy(CopyWork),
    /// A copy from bytes that were read from the program's memory when the copy was requested.
    Staged {
        to: u64,
        accessor: Accessor,
        bytes: Arc<[u8]>,
    },
    Fill(Fill),
    Kernel(Arc<Launch>),
}

/// A copy of rows, and whose access rights apply to each end.
#[derive(Clone, Copy)]
pub struct CopyWork {
    pub to: u64,
    pub from: u64,
    /// The size of a row.
    pub bytes: u64,
    pub rows: u64,
    /// The distances between the beginnings of two rows.
    pub to_pitch: u64,
    pub from_pitch: u64,
    pub to_accessor: Accessor,
    pub from_accessor: Accessor,
}

/// A fill with a value of 1, 2 or 4 bytes, of rows that begin `pitch` bytes apart.
#[derive(Clone, Copy)]
pub struct Fill {
    pub to: u64,
    pub value: u32,
    pub width: u64,
    /// The number of values in each row.
    pub count: u64,
    pub rows: u64,
    pub pitch: u64,
}

/// A host function of the program, and its argument.
#[derive(Clone, Copy)]
pub struct HostCall {
    pub function: unsafe extern "C" fn(*mut c_void),
    pub data: usize,
}

/// How many bytes are accessed under one acquisition of the memory's lock: enough to make locking cheap, few enough
/// that mapping and unmapping do not wait for long copies.
const CHUNK_BYTES: u64 = 256 << 10;

/// How much longer a slow copy takes.
const SLOW_COPY: Duration = Duration::from_millis(3);

impl Work {
    /// Returns whether the work may wait for other ranks.
    pub fn may_block(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.kernel.may_block())
    }

    pub fn run(&self, state: &State, device: usize) -> Result<(), Code> {
        match self {
            Work::Copy(copy) => {
                if state.config.copies != Copies::Fast {
                    thread::sleep(SLOW_COPY);
                }
                copy.run(state)
            }
            Work::Staged { to, accessor, bytes } => {
                let memory = state.memory.read();
                // SAFETY: the destination was just found to be mapped and writable, and stays so while the memory is
                // locked; the source is a buffer of this program.
                memory.check_access("a copy", *to, bytes.len() as u64, true, *accessor).map(|_| unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len());
                })
            }
            Work::Fill(fill) => fill.run(state, device),
            Work::Kernel(launch) => launch.run(),
        }
    }
}

/// Returns the number of bytes from the first to the last one of some rows, or `None` on overflow.
pub fn extent_of_rows(bytes: u64, rows: u64, pitch: u64) -> Option<u64> {
    rows.checked_sub(1)?.checked_mul(pitch)?.checked_add(bytes)
}

impl CopyWork {
    fn run(&self, state: &State) -> Result<(), Code> {
        (0..self.rows).try_for_each(|row| {
            CopyWork { to: self.to + row * self.to_pitch, from: self.from + row * self.from_pitch, ..*self }
                .run_row(state)
        })
    }

    fn run_row(&self, state: &State) -> Result<(), Code> {
        let mut done = 0;
        while done < self.bytes {
            let bytes = CHUNK_BYTES.min(self.bytes - done);
            let memory = state.memory.read();
            memory.check_access("a copy", self.from + done, bytes, false, self.from_accessor)?;
            memory.check_access("a copy", self.to + done, bytes, true, self.to_accessor)?;
            // SAFETY: device and pinned memory was just found to be mapped with the right access, and stays so while
            // the memory is locked; other memory is the program's, which guarantees its validity by requesting the
            // copy.
            unsafe {
                std::ptr::copy((self.from + done) as *const u8, (self.to + done) as *mut u8, bytes as usize);
            }
            done += bytes;
        }
        Ok(())
    }
}

impl Fill {
    /// Creates a fill of one row.
    pub fn row(to: u64, value: u32, width: u64, count: u64) -> Fill {
        Fill { to, value, width, count, rows: 1, pitch: 0 }
    }

    /// Returns the number of bytes from the first to the last one, or `None` on overflow.
    pub fn extent(&self) -> Option<u64> {
        extent_of_rows(self.count.checked_mul(self.width)?, self.rows, self.pitch)
    }

    fn run(&self, state: &State, device: usize) -> Result<(), Code> {
        (0..self.rows)
            .try_for_each(|row| Fill { to: self.to + row * self.pitch, rows: 1, ..*self }.run_row(state, device))
    }

    fn run_row(&self, state: &State, device: usize) -> Result<(), Code> {
        let total = self.count * self.width;
        let mut done = 0;
        while done < total {
            let bytes = CHUNK_BYTES.min(total - done);
            let memory = state.memory.read();
            memory.check_access("a fill", self.to + done, bytes, true, Accessor::Device(device))?;
            let to = self.to + done;
            let count = (bytes / self.width) as usize;
            // SAFETY: the chunk was just found to be mapped and writable, and stays so while the memory is locked; the
            // address was checked to be a multiple of the width when the fill was requested.
            unsafe {
                match self.width {
                    1 => std::ptr::write_bytes(to as *mut u8, self.value as u8, count),
                    2 => fill(to as *mut u16, self.value as u16, count),
                    _ => fill(to as *mut u32, self.value, count),
                }
            }
            done += bytes;
        }
        Ok(())
    }
}

/// Writes a value `count` times, by copies of what is written already: a loop over the elements takes most of the time of a
/// test without optimization.
///
/// # Safety
///
/// `to` must be aligned and valid for writes of `count` values, which is at least 1.
unsafe fn fill<T: Copy>(to: *mut T, value: T, count: usize) {
    // SAFETY: the first value, and all that is copied below, lies within the `count` values; source and destination of a
    // copy do not overlap, because no more is copied than stands before the destination.
    unsafe {
        to.write(value);
        let mut written = 1;
        while written < count {
            let more = written.min(count - written);
            std::ptr::copy_nonoverlapping(to, to.add(written), more);
            written += more;
        }
    }
}

impl HostCall {
    pub fn run(self) {
        context::run_as_host_function(|| {
            // SAFETY: the program passed this function and this argument for exactly this call.
            unsafe { (self.function)(self.data as *mut c_void) };
        });
    }
}

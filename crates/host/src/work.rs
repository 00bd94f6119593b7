//! What streams do: copies, fills, kernels and host functions.

use super::{context, kernels::Launch, memory::check::By, state::State};
use crate::driver::table::Code;
use std::{ffi::c_void, sync::Arc};

/// Work that a device's worker carries out.
#[derive(Clone)]
pub enum Work {
    Copy(Copying),
    /// A copy from bytes that were taken from the program when it was asked for.
    Staged {
        to: u64,
        by: By,
        bytes: Arc<[u8]>,
    },
    Fill(Fill),
    Kernel(Arc<Launch>),
}

/// A copy, and on whose authority each end is used.
#[derive(Clone, Copy)]
pub struct Copying {
    pub to: u64,
    pub from: u64,
    pub bytes: u64,
    pub to_by: By,
    pub from_by: By,
}

/// A fill with a value of 1, 2 or 4 bytes, of rows that begin `pitch` bytes apart.
#[derive(Clone, Copy)]
pub struct Fill {
    pub to: u64,
    pub value: u32,
    pub width: u64,
    /// How many values each row has.
    pub count: u64,
    pub rows: u64,
    pub pitch: u64,
}

/// A function of the program's.
#[derive(Clone, Copy)]
pub struct HostCall {
    pub function: unsafe extern "C" fn(*mut c_void),
    pub data: usize,
}

/// How much is touched under one hold of the memory's lock: long enough to cost nothing, short enough that mapping
/// and unmapping do not wait for long copies.
const STRETCH: u64 = 256 << 10;

impl Work {
    /// Whether it may wait for what others do.
    pub fn may_wait(&self) -> bool {
        matches!(self, Work::Kernel(launch) if launch.kernel.may_wait())
    }

    pub fn run(&self, state: &State, device: usize) -> Result<(), Code> {
        match self {
            Work::Copy(copy) => copy.run(state),
            Work::Staged { to, by, bytes } => {
                let memory = state.memory.read();
                memory.usable(*to, bytes.len() as u64, true, *by)?;
                // SAFETY: the destination was just found mapped and writable, and stays so while the memory is
                // locked; the source is a buffer of this program's own.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), *to as *mut u8, bytes.len()) };
                Ok(())
            }
            Work::Fill(fill) => fill.run(state, device),
            Work::Kernel(launch) => launch.run(),
        }
    }
}

impl Copying {
    fn run(&self, state: &State) -> Result<(), Code> {
        let mut done = 0;
        while done < self.bytes {
            let bytes = STRETCH.min(self.bytes - done);
            let memory = state.memory.read();
            memory.usable(self.from + done, bytes, false, self.from_by)?;
            memory.usable(self.to + done, bytes, true, self.to_by)?;
            // SAFETY: device and pinned memory was just found mapped with the right access, and stays so while the
            // memory is locked; other memory is the program's, which vouches for it by having asked for the copy.
            unsafe {
                std::ptr::copy((self.from + done) as *const u8, (self.to + done) as *mut u8, bytes as usize);
            }
            done += bytes;
        }
        Ok(())
    }
}

impl Fill {
    /// A fill of one row.
    pub fn row(to: u64, value: u32, width: u64, count: u64) -> Fill {
        Fill { to, value, width, count, rows: 1, pitch: 0 }
    }

    /// The bytes from the first one to the last, if there can be as many.
    pub fn extent(&self) -> Option<u64> {
        let row = self.count.checked_mul(self.width)?;
        self.rows.checked_sub(1)?.checked_mul(self.pitch)?.checked_add(row)
    }

    fn run(&self, state: &State, device: usize) -> Result<(), Code> {
        (0..self.rows)
            .try_for_each(|row| Fill { to: self.to + row * self.pitch, rows: 1, ..*self }.run_row(state, device))
    }

    fn run_row(&self, state: &State, device: usize) -> Result<(), Code> {
        let total = self.count * self.width;
        let mut done = 0;
        while done < total {
            let bytes = STRETCH.min(total - done);
            let memory = state.memory.read();
            memory.usable(self.to + done, bytes, true, By::Device(device))?;
            let to = self.to + done;
            let count = (bytes / self.width) as usize;
            // SAFETY: the stretch was just found mapped and writable, and stays so while the memory is locked; the
            // address was checked to be a multiple of the width when the fill was asked for.
            unsafe {
                match self.width {
                    1 => std::ptr::write_bytes(to as *mut u8, self.value as u8, count),
                    2 => (0..count).for_each(|index| (to as *mut u16).add(index).write(self.value as u16)),
                    _ => (0..count).for_each(|index| (to as *mut u32).add(index).write(self.value)),
                }
            }
            done += bytes;
        }
        Ok(())
    }
}

impl HostCall {
    pub fn run(self) {
        context::as_host_function(|| {
            // SAFETY: the program gave this function and this argument for exactly this call.
            unsafe { (self.function)(self.data as *mut c_void) };
        });
    }
}

//! Events shared between processes, through a page of memory that records which recordings are complete.
//!
//! Recordings are numbered across all processes. Each has a slot with its state and the process that made it, so a
//! waiter detects that the recorder is gone. The wait then ends with `CUDA_ERROR_LAUNCH_FAILED`, since the recorded
//! point will never complete. A slot is reused 64 recordings later. A waiter that still waits for the old recording
//! then waits for the new one, which the event refers to by then.

use super::memory::{
    ipc::{seal, this_process, unseal},
    os_error, sys,
};
use crate::driver::{codes, file_description, table::Code};
use rustix::thread::futex::{self, Flags, Timespec};
use std::{
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

const SLOT_COUNT: usize = 64;
const FILE_NAME: &str = "plinth-host-event";
const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"plinthEP");
const HANDLE_MAGIC: u64 = u64::from_le_bytes(*b"plinthEH");
const BYTES: u64 = 4096;
/// How long a waiter sleeps before it checks that the recorder is still alive.
const LIVENESS_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

#[repr(C)]
struct Page {
    magic: AtomicU64,
    /// The last number assigned to a recording.
    assigned: AtomicU32,
    /// The last recording whose slot is filled in: the one that waits refer to.
    recorded: AtomicU32,
    /// Incremented whenever a recording completes; the futex that waiters sleep on.
    changes: AtomicU32,
    slots: [RecordingSlot; SLOT_COUNT],
}

#[repr(C)]
struct RecordingSlot {
    finished: AtomicU32,
    process: AtomicU32,
    start: AtomicU64,
}

const _: () = assert!(size_of::<Page>() <= BYTES as usize);

/// This process's view of a shared event.
pub struct SharedEvent {
    file: OwnedFd,
    address: u64,
    process: i32,
    start: u64,
}

impl SharedEvent {
    pub fn create() -> Result<Arc<SharedEvent>, Code> {
        let file = sys::memory_file(c"plinth-host-event").map_err(os_error)?;
        sys::fix_size(&file, BYTES).map_err(os_error)?;
        let shared = SharedEvent::attach(file)?;
        shared.page().magic.store(PAGE_MAGIC, Ordering::Release);
        Ok(Arc::new(shared))
    }

    fn attach(file: OwnedFd) -> Result<SharedEvent, Code> {
        let (process, start) = this_process()?;
        let address = sys::reserve(BYTES, BYTES, 0).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Err(error) = sys::map(address, BYTES, &file, 0, sys::PROT_WRITE) {
            sys::release(address, BYTES);
            return Err(os_error(error));
        }
        Ok(SharedEvent { file, address, process, start })
    }

    /// Returns the handle by which another process opens this event.
    pub fn handle(&self) -> [u8; 64] {
        let mut handle = [0; 64];
        let sealed: [u8; 40] = seal(&[HANDLE_MAGIC, self.process as u64, self.start, self.file.as_raw_fd() as u64]);
        handle[..40].copy_from_slice(&sealed);
        handle
    }

    /// Opens another process's event.
    pub fn open(handle: &[u8; 64]) -> Result<Arc<SharedEvent>, Code> {
        let invalid = codes::CUDA_ERROR_INVALID_VALUE;
        let [_, process, start, fd] = unseal(handle, HANDLE_MAGIC).ok_or(invalid)?;
        if process == u64::from(std::process::id()) {
            return Err(codes::CUDA_ERROR_INVALID_CONTEXT);
        }
        if sys::start_time(process as i32).map_err(os_error)? != Some(start) {
            return Err(invalid);
        }
        let file = file_description::reopen(Some(process as i32), fd as RawFd).map_err(|_| invalid)?;
        if !sys::is_memory_file(file.as_raw_fd(), FILE_NAME) || !sys::has_fixed_bytes(&file, BYTES) {
            return Err(invalid);
        }
        let shared = SharedEvent::attach(file)?;
        if shared.page().magic.load(Ordering::Acquire) != PAGE_MAGIC {
            return Err(invalid);
        }
        Ok(Arc::new(shared))
    }

    fn page(&self) -> &Page {
        // SAFETY: the page is mapped for as long as `self` lives, aligned, large enough, made of atomics only, and
        // any bits are a valid value for them, whatever other processes write.
        unsafe { &*(self.address as *const Page) }
    }

    fn slot(&self, recording: u32) -> &RecordingSlot {
        &self.page().slots[recording as usize % SLOT_COUNT]
    }

    /// Assigns a number to a recording that this process makes.
    pub fn begin_recording(&self) -> u32 {
        let page = self.page();
        let recording = page.assigned.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let slot = self.slot(recording);
        slot.start.store(self.start, Ordering::Release);
        slot.process.store(self.process as u32, Ordering::Release);
        page.recorded.fetch_max(recording, Ordering::AcqRel);
        recording
    }

    /// Returns the number of the last recording by any process, or 0 if there is none.
    pub fn last_recording(&self) -> u32 {
        self.page().recorded.load(Ordering::Acquire)
    }

    pub fn is_finished(&self, recording: u32) -> bool {
        recording == 0 || self.slot(recording).finished.load(Ordering::Acquire) >= recording
    }

    /// Marks a recording as complete and wakes the waiters.
    pub fn finish_recording(&self, recording: u32) {
        self.slot(recording).finished.fetch_max(recording, Ordering::AcqRel);
        let changes = &self.page().changes;
        changes.fetch_add(1, Ordering::AcqRel);
        // Waking does not fail.
        let _ = futex::wake(changes, Flags::empty(), i32::MAX as u32);
    }

    /// Blocks until a recording is complete or its recorder is gone.
    pub fn wait(&self, recording: u32) -> Result<(), Code> {
        let changes = &self.page().changes;
        loop {
            let before = changes.load(Ordering::Acquire);
            if self.is_finished(recording) {
                return Ok(());
            }
            let slot = self.slot(recording);
            let process = slot.process.load(Ordering::Acquire) as i32;
            let start = slot.start.load(Ordering::Acquire);
            // If the system cannot tell now, the next check may.
            let gone = sys::start_time(process).is_ok_and(|found| found != Some(start));
            if gone {
                // It may have finished just before it ended.
                return if self.is_finished(recording) { Ok(()) } else { Err(codes::CUDA_ERROR_LAUNCH_FAILED) };
            }
            // Whatever ends the sleep, the loop checks again.
            let _ = futex::wait(changes, Flags::empty(), before, Some(&LIVENESS_CHECK));
        }
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        sys::release(self.address, BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{fs::ftruncate, io::Errno};

    #[test]
    fn no_process_changes_the_size_of_an_event() {
        let event = SharedEvent::create().expect("an event");
        let other = file_description::reopen(None, event.file.as_raw_fd()).expect("another description");
        for bytes in [0, BYTES - 1, BYTES + 1] {
            assert_eq!(ftruncate(&other, bytes), Err(Errno::PERM), "{bytes}");
        }
        assert_eq!(event.last_recording(), 0);
    }
}

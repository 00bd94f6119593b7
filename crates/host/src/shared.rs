//! Events shared between processes: a page of memory that says which recordings have been reached.
//!
//! Recordings are numbered across all processes. Each has a slot with its state and with who made it, so that a
//! waiter notices when the recorder is gone: then the wait ends with `CUDA_ERROR_LAUNCH_FAILED`, since what the
//! event stood for will never be reached. A slot serves again 64 recordings later; whoever still waits for the old
//! one then waits for the new one, which is what the event stands for by then.

use super::memory::{
    ipc::{seal, this_process, unseal},
    os_error, sys,
};
use crate::driver::{codes, table::Code};
use std::{
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

const SLOTS: usize = 64;
const FILE_NAME: &str = "plinth-host-event";
const PAGE_MAGIC: u64 = u64::from_le_bytes(*b"plinthEP");
const HANDLE_MAGIC: u64 = u64::from_le_bytes(*b"plinthEH");
const BYTES: u64 = 4096;
/// How long a waiter sleeps before it looks whether the recorder is still alive.
const PATIENCE_MILLISECONDS: i64 = 100;

#[repr(C)]
struct Page {
    magic: AtomicU64,
    /// The last number given to a recording.
    given: AtomicU32,
    /// The last recording whose slot is filled in: the one that waits refer to.
    recorded: AtomicU32,
    /// Changes whenever a recording is reached: what waiters sleep on.
    changes: AtomicU32,
    slots: [Slot; SLOTS],
}

#[repr(C)]
struct Slot {
    finished: AtomicU32,
    process: AtomicU32,
    start: AtomicU64,
}

const _: () = assert!(size_of::<Page>() <= BYTES as usize);

/// This process's view of a shared event.
pub struct Shared {
    file: OwnedFd,
    address: u64,
    process: i32,
    start: u64,
}

impl Shared {
    pub fn create() -> Result<Arc<Shared>, Code> {
        let file = sys::memory_file(c"plinth-host-event").map_err(os_error)?;
        sys::grow(&file, BYTES).map_err(os_error)?;
        let shared = Shared::attach(file)?;
        shared.page().magic.store(PAGE_MAGIC, Ordering::Release);
        Ok(Arc::new(shared))
    }

    fn attach(file: OwnedFd) -> Result<Shared, Code> {
        let (process, start) = this_process()?;
        let address = sys::reserve(BYTES, BYTES, 0).ok_or(codes::CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Err(error) = sys::map(address, BYTES, &file, 0, sys::PROT_WRITE) {
            sys::release(address, BYTES);
            return Err(os_error(error));
        }
        Ok(Shared { file, address, process, start })
    }

    /// What another process opens this event by.
    pub fn handle(&self) -> [u8; 64] {
        let mut handle = [0; 64];
        let sealed: [u8; 40] = seal(&[HANDLE_MAGIC, self.process as u64, self.start, self.file.as_raw_fd() as u64]);
        handle[..40].copy_from_slice(&sealed);
        handle
    }

    /// Another process's event.
    pub fn open(handle: &[u8; 64]) -> Result<Arc<Shared>, Code> {
        let invalid = codes::CUDA_ERROR_INVALID_VALUE;
        let [_, process, start, fd] = unseal(handle, HANDLE_MAGIC).ok_or(invalid)?;
        if process == u64::from(std::process::id()) {
            return Err(codes::CUDA_ERROR_INVALID_CONTEXT);
        }
        if sys::start_time(process as i32) != Some(start) {
            return Err(invalid);
        }
        let file = sys::reopen(Some(process as i32), fd as RawFd).map_err(|_| invalid)?;
        if !sys::is_memory_file(file.as_raw_fd(), FILE_NAME) {
            return Err(invalid);
        }
        let shared = Shared::attach(file)?;
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

    fn slot(&self, recording: u32) -> &Slot {
        &self.page().slots[recording as usize % SLOTS]
    }

    /// Numbers a recording that this process makes.
    pub fn begin(&self) -> u32 {
        let page = self.page();
        let recording = page.given.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        let slot = self.slot(recording);
        slot.start.store(self.start, Ordering::Release);
        slot.process.store(self.process as u32, Ordering::Release);
        page.recorded.fetch_max(recording, Ordering::AcqRel);
        recording
    }

    /// The last recording by any process; 0 when there is none.
    pub fn recorded(&self) -> u32 {
        self.page().recorded.load(Ordering::Acquire)
    }

    pub fn is_finished(&self, recording: u32) -> bool {
        recording == 0 || self.slot(recording).finished.load(Ordering::Acquire) >= recording
    }

    /// Says that a recording has been reached.
    pub fn finish(&self, recording: u32) {
        self.slot(recording).finished.fetch_max(recording, Ordering::AcqRel);
        let changes = &self.page().changes;
        changes.fetch_add(1, Ordering::AcqRel);
        // SAFETY: the address is that of a live atomic; waking touches no memory.
        unsafe { libc::syscall(libc::SYS_futex, changes.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Sleeps until a recording has been reached or its recorder is gone.
    pub fn wait(&self, recording: u32) -> Result<(), Code> {
        let changes = &self.page().changes;
        loop {
            let before = changes.load(Ordering::Acquire);
            if self.is_finished(recording) {
                return Ok(());
            }
            let slot = self.slot(recording);
            let process = slot.process.load(Ordering::Acquire) as i32;
            let alive = sys::start_time(process) == Some(slot.start.load(Ordering::Acquire));
            if !alive {
                // It may have finished just before it ended.
                return if self.is_finished(recording) { Ok(()) } else { Err(codes::CUDA_ERROR_LAUNCH_FAILED) };
            }
            let patience = libc::timespec { tv_sec: 0, tv_nsec: PATIENCE_MILLISECONDS * 1_000_000 };
            // SAFETY: the address is that of a live atomic and the time outlives the call; whatever ends the sleep,
            // the loop looks again.
            unsafe { libc::syscall(libc::SYS_futex, changes.as_ptr(), libc::FUTEX_WAIT, before, &patience) };
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        sys::release(self.address, BYTES);
    }
}

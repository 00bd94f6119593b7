//! Memory that processes share through a file, as an array of counters, and waits for changes of a counter.
//!
//! Every access is atomic, so another process can write what it wants: it cannot break more than the meaning of a number.

use rustix::{
    fs::{FallocateFlags, fallocate, fstat, ftruncate},
    io::{Errno, retry_on_intr},
    thread::futex::{self, Flags, Timespec},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    ptr,
    sync::atomic::AtomicU32,
    time::Duration,
};

/// Counters in a file, mapped into this process.
pub struct SharedPage {
    counters: &'static [AtomicU32],
}

impl SharedPage {
    /// Maps the first `count` counters of a file, which is made as long as they need. Fails if the file system is full:
    /// an access to a page that it cannot store would end the process (SIGBUS).
    pub fn map(file: impl AsFd, count: usize) -> io::Result<SharedPage> {
        let bytes = count * size_of::<AtomicU32>();
        match retry_on_intr(|| fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)) {
            // The file system cannot reserve pages.
            Err(Errno::OPNOTSUPP) if fstat(&file)?.st_size < bytes as i64 => ftruncate(&file, bytes as u64)?,
            Err(Errno::OPNOTSUPP) => {}
            reserved => reserved?,
        }
        // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing uses.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the pages are mapped until the value is dropped, which gives out no longer reference; they are aligned to
        // pages, any bits are a valid counter, and every process accesses them atomically. The file is never made shorter.
        Ok(SharedPage { counters: unsafe { std::slice::from_raw_parts(address.cast(), count) } })
    }

    /// Returns the counters.
    pub fn counters(&self) -> &[AtomicU32] {
        self.counters
    }
}

impl Drop for SharedPage {
    fn drop(&mut self) {
        let bytes = size_of_val(self.counters);
        // SAFETY: the pages were mapped by this value, and the references to them have ended.
        unsafe { libc::munmap(self.counters.as_ptr().cast_mut().cast(), bytes) };
    }
}

/// Waits until a counter differs from a value, for at most `limit`. Returns whether it differs; it may also return early.
pub fn wait(counter: &AtomicU32, value: u32, limit: Duration) -> bool {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    match futex::wait(counter, Flags::empty(), value, Some(&limit)) {
        // A signal ends the wait early, like a spurious one.
        Ok(()) | Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => counter.load(std::sync::atomic::Ordering::Acquire) != value,
    }
}

/// Wakes all that wait for a counter, in every process.
pub fn wake(counter: &AtomicU32) {
    // Nothing can be done about a failure: the others' waits have a limit.
    let _ = futex::wake(counter, Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::{sync::atomic::Ordering, thread};

    #[test]
    fn the_file_system_stores_the_counters_or_refuses_them() {
        let create = || memfd_create(c"plinth-test", MemfdFlags::ALLOW_SEALING).unwrap();
        let (file, refused) = (create(), create());
        SharedPage::map(&file, 3000).unwrap();
        let found = fstat(&file).unwrap();
        assert!(found.st_size == 12_000 && found.st_blocks * 512 >= 12_000, "{found:?}");
        fcntl_add_seals(&refused, SealFlags::GROW).unwrap();
        assert!(SharedPage::map(&refused, 3000).is_err());
    }

    #[test]
    fn a_change_in_one_mapping_wakes_the_other() {
        let file = tempfile::tempfile().unwrap();
        let (one, other) = (SharedPage::map(&file, 40).unwrap(), SharedPage::map(&file, 40).unwrap());
        assert!(!wait(&one.counters()[39], 0, Duration::from_millis(5)));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                other.counters()[39].store(1, Ordering::Release);
                wake(&other.counters()[39]);
            });
            while one.counters()[39].load(Ordering::Acquire) == 0 {
                wait(&one.counters()[39], 0, Duration::from_secs(20));
            }
        });
        assert!(wait(&one.counters()[39], 0, Duration::from_secs(20)));
    }
}

//! Anonymous pages of the process, to be registered with the driver as pinned memory.

use super::{Span, signals};
use std::{ptr, thread};

const PAGE: usize = 4096;

/// Pages that are unmapped on drop unless [`keep`](Self::keep) is called.
#[derive(Debug)]
pub struct Pages {
    span: Span,
}

impl Pages {
    /// Maps new pages; `None` if the system has none.
    pub fn map(bytes: usize) -> Option<Pages> {
        // A system that overcommits grants more than it has, and kills the process when all of it is touched.
        if bytes > physical_memory() {
            return None;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing uses.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        // SAFETY: the pages stay mapped until their owner, which hands out the span, unmaps them.
        (address != libc::MAP_FAILED).then(|| Pages { span: unsafe { Span::new(address as u64, bytes) } })
    }

    /// Takes over pages that were released by [`keep`](Self::keep) and are no longer used.
    pub fn of(span: Span) -> Pages {
        Pages { span }
    }

    /// Returns their address range.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Tells the system that the pages are a backup: large pages are faster to touch and to copy, and a forked child needs
    /// none of them.
    pub fn advise_backup(&self) {
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: the pages are this value's own, and the advice does not change their contents. A system that cannot
            // follow it reports an error, which changes nothing.
            unsafe { libc::madvise(self.span.address() as *mut _, self.span.bytes(), advice) };
        }
    }

    /// Touches every page, with `threads` threads including the calling one.
    pub fn touch(&self, threads: u32) {
        let threads = threads.max(1) as usize;
        let part = self.span.bytes().div_ceil(threads).next_multiple_of(PAGE);
        thread::scope(|scope| {
            let mut helpers = Vec::with_capacity(threads);
            let blocked = signals::block();
            for index in 1..threads {
                let mine = self.span.part(index * part, part);
                // If no thread can be created, the driver populates the pages during registration.
                helpers.extend(thread::Builder::new().spawn_scoped(scope, move || touch(mine)));
            }
            drop(blocked);
            touch(self.span.part(0, part));
            // The scope waits only for the closures. Join the threads too: a fork would copy a process in which they
            // are half-way through exiting.
            for helper in helpers {
                let _ = helper.join();
            }
        });
    }

    /// Leaves the pages mapped.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// Unmaps the pages.
    pub fn unmap(self) {}
}

/// Returns the size of the host's pages in bytes.
pub fn page_size() -> u64 {
    // SAFETY: the call takes no pointer, and returns -1 for an unknown name.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(PAGE as u64)
}

/// Returns the machine's physical memory in bytes; `usize::MAX` if the system does not report it.
fn physical_memory() -> usize {
    // SAFETY: the call takes no pointer, and returns -1 for an unknown name.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    usize::try_from(pages).map_or(usize::MAX, |pages| pages.saturating_mul(PAGE))
}

fn touch(span: Span) {
    for offset in (0..span.bytes()).step_by(PAGE) {
        // SAFETY: the byte is in pages that were just mapped for writing and whose address no other code has yet.
        unsafe { ((span.address() as usize + offset) as *mut u8).write_volatile(0) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages came from `map`, and their owner no longer uses them: they were never registered, or are
        // unregistered. A failure would mean that they are not mapped.
        unsafe { libc::munmap(self.span.address() as *mut _, self.span.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_fails_beyond_physical_memory() {
        assert!(Pages::map(physical_memory() + PAGE).is_none());
        assert!(Pages::map(1 << 46).is_none());
        assert!(Pages::map(PAGE).is_some());
    }

    #[test]
    fn touch_makes_all_pages_resident() {
        for (bytes, threads) in [(PAGE, 1), (64 * PAGE, 3), (7 * PAGE, 16), (100 * PAGE, 4)] {
            let pages = Pages::map(bytes).unwrap();
            pages.touch(threads);
            let span = pages.span();
            let mut resident = vec![0_u8; bytes / PAGE];
            // SAFETY: the range is mapped, and the vector has a byte for each page.
            assert_eq!(unsafe { libc::mincore(span.address() as *mut _, bytes, resident.as_mut_ptr()) }, 0);
            assert!(resident.iter().all(|byte| byte & 1 == 1), "{bytes} {threads}");
            pages.unmap();
            // SAFETY: the call only queries.
            assert_ne!(unsafe { libc::mincore(span.address() as *mut _, bytes, resident.as_mut_ptr()) }, 0);
        }
        assert!(Pages::map(1 << 60).is_none());
    }
}

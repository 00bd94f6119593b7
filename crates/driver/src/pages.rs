//! Pages of the process's own, for memory that is registered with the driver.

use super::Span;
use std::{ptr, thread};

const PAGE: usize = 4096;

/// Pages that are unmapped when this is dropped, unless they are kept.
#[derive(Debug)]
pub struct Pages {
    span: Span,
}

impl Pages {
    /// New pages; `None` if the system has none.
    pub fn map(bytes: usize) -> Option<Pages> {
        // A system may promise more than it has, and end who touches it all.
        if bytes > physical() {
            return None;
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: without MAP_FIXED the kernel chooses addresses that nothing uses.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        (address != libc::MAP_FAILED).then(|| Pages { span: Span::owned(address as u64, bytes) })
    }

    /// Pages that [`keep`](Self::keep) let stay, and that nothing uses any more.
    pub fn of(span: Span) -> Pages {
        Pages { span }
    }

    /// Where they are.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Brings every page in, by so many threads, this one among them.
    pub fn touch(&self, threads: u32) {
        let threads = threads.max(1) as usize;
        let part = self.span.bytes().div_ceil(threads).next_multiple_of(PAGE);
        thread::scope(|scope| {
            let mut helpers = Vec::with_capacity(threads);
            for index in 1..threads {
                let mine = self.span.part(index * part, part);
                // Where the system has no thread to give, the driver brings the pages in.
                helpers.extend(thread::Builder::new().spawn_scoped(scope, move || touch(mine)));
            }
            touch(self.span.part(0, part));
            // The scope waits for what they do only. They are to be gone: a fork would find them half-way.
            for helper in helpers {
                let _ = helper.join();
            }
        });
    }

    /// Lets the pages stay.
    pub fn keep(self) {
        std::mem::forget(self);
    }

    /// Gives the pages back to the system.
    pub fn unmap(self) {}
}

/// The bytes of memory of the machine; the largest number where it does not tell.
fn physical() -> usize {
    // SAFETY: it takes no pointer, and answers -1 to what it does not know.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    usize::try_from(pages).map_or(usize::MAX, |pages| pages.saturating_mul(PAGE))
}

fn touch(span: Span) {
    for offset in (0..span.bytes()).step_by(PAGE) {
        // SAFETY: the byte lies in pages that were just mapped for writing and that nobody else knows of yet.
        unsafe { ((span.address() as usize + offset) as *mut u8).write_volatile(0) };
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages came from `map`, and whoever had them is done with them: they were not registered, or are so
        // no more. A failure would mean that they are not mapped.
        unsafe { libc::munmap(self.span.address() as *mut _, self.span.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_there_is_is_refused() {
        assert!(Pages::map(physical() + PAGE).is_none());
        assert!(Pages::map(1 << 46).is_none());
        assert!(Pages::map(PAGE).is_some());
    }

    #[test]
    fn pages_are_touched_by_all_threads() {
        for (bytes, threads) in [(PAGE, 1), (64 * PAGE, 3), (7 * PAGE, 16), (100 * PAGE, 4)] {
            let pages = Pages::map(bytes).unwrap();
            pages.touch(threads);
            let span = pages.span();
            let mut resident = vec![0_u8; bytes / PAGE];
            // SAFETY: the range is mapped, and the vector has a byte for each page.
            assert_eq!(unsafe { libc::mincore(span.address() as *mut _, bytes, resident.as_mut_ptr()) }, 0);
            assert!(resident.iter().all(|byte| byte & 1 == 1), "{bytes} {threads}");
            pages.unmap();
            // SAFETY: only asks.
            assert_ne!(unsafe { libc::mincore(span.address() as *mut _, bytes, resident.as_mut_ptr()) }, 0);
        }
        assert!(Pages::map(1 << 60).is_none());
    }
}

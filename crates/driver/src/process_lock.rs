//! Locks of byte ranges of a file that belong to a process.
//!
//! The kernel releases them when the process ends, however it ends, and a child made by fork does not have them. It also
//! releases them when the process closes any descriptor of the file, so a process opens such a file once.

use crate::file_description::control;
use std::{
    io,
    os::fd::AsFd,
    thread::sleep,
    time::{Duration, Instant},
};

/// Locks a range exclusively. Waits for other processes that have locked it, and fails with `TimedOut` after `limit`: a
/// process may have been stopped while it held the lock.
pub fn lock(file: impl AsFd, start: u64, bytes: u64, limit: Duration) -> io::Result<()> {
    let (begin, mut pause) = (Instant::now(), Duration::from_micros(20));
    while !try_lock(&file, start, bytes)? {
        if begin.elapsed() >= limit {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("another process has had a lock for {limit:?}"),
            ));
        }
        sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(1));
    }
    Ok(())
}

/// Locks a range exclusively if no other process has locked any of it. Returns whether it did.
pub fn try_lock(file: impl AsFd, start: u64, bytes: u64) -> io::Result<bool> {
    match control(file, libc::F_SETLK, libc::F_WRLCK, start, bytes) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        locked => locked.map(|_| true),
    }
}

/// Unlocks a range.
pub fn unlock(file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    control(file, libc::F_SETLK, libc::F_UNLCK, start, bytes).map(drop)
}

/// Returns how many bytes of a range other processes have locked.
pub fn locked_by_others(file: impl AsFd, start: u64, bytes: u64) -> io::Result<u64> {
    let (mut sum, mut rest) = (0, vec![(start, start + bytes)]);
    while let Some((start, end)) = rest.pop() {
        if start == end {
            continue;
        }
        let found = control(&file, libc::F_GETLK, libc::F_WRLCK, start, end - start)?;
        if i32::from(found.l_type) == libc::F_UNLCK {
            continue;
        }
        // The kernel reports one lock, in no order, so the ranges on both sides of it remain. A length of 0 means up to
        // the end of the file.
        let first = (found.l_start as u64).max(start);
        let last = if found.l_len == 0 { end } else { (found.l_start as u64 + found.l_len as u64).min(end) };
        sum += last - first;
        rest.extend([(start, first), (last, end)]);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_description::{self, reopen};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_wait_for_a_lock_has_a_limit() {
        let file = tempfile::tempfile().unwrap();
        // The lock of a description conflicts with those of all processes, like the lock of another process.
        let other = reopen(None, file.as_raw_fd()).unwrap();
        file_description::lock_shared(&other, 0, 1).unwrap();
        let start = Instant::now();
        let error = lock(&file, 0, 1, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(50));
        lock(&file, 1, 1, Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(Duration::from_millis(50));
                file_description::unlock(&other, 0, 1).unwrap();
            });
            lock(&file, 0, 1, Duration::from_secs(20)).unwrap();
        });
    }
}

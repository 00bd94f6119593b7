//! Open file descriptions and their locks.
//!
//! A lock belongs to a description. The kernel releases it when the last descriptor of the description is closed,
//! however its holder ends. [`process_lock`](crate::process_lock) has the locks that belong to a process.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
};

/// Opens another description of the file behind a descriptor of `process` (this one if `None`), with its own position
/// and its own locks. Needs /proc. Another process may have selected the file, so the call waits for nothing, such as
/// the end of a lease.
pub fn reopen(process: Option<i32>, descriptor: RawFd) -> io::Result<OwnedFd> {
    let directory = process.map_or("self".to_owned(), |process| process.to_string());
    let path = format!("/proc/{directory}/fd/{descriptor}");
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file: File = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    Ok(file.into())
}

/// Locks a range of a file, shared, until this description is closed everywhere.
pub fn lock_shared(file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, libc::F_RDLCK, start, bytes).map(drop)
}

/// Unlocks a range of a file.
pub fn unlock(file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, libc::F_UNLCK, start, bytes).map(drop)
}

/// Returns whether any other description has a lock in a range of a file.
pub fn is_locked(file: impl AsFd, start: u64, bytes: u64) -> bool {
    let found = control(file, libc::F_OFD_GETLK, libc::F_WRLCK, start, bytes);
    // If the call fails, assume that one has.
    found.map_or(true, |found| i32::from(found.l_type) != libc::F_UNLCK)
}

/// Calls `fcntl` with a lock of the given kind, and returns what the call leaves in its place.
pub(crate) fn control(file: impl AsFd, command: i32, kind: i32, start: u64, bytes: u64) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start as libc::off_t,
        l_len: bytes as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: the lock commands take a pointer to this structure, which is a live local; the borrow of `file` keeps the
    // descriptor open.
    let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &raw mut lock) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

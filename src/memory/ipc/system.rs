//! System calls for sharing memory: memory files, pipes, and locks that the kernel releases when their holder exits.

use crate::{
    base::unix_socket::check,
    error::{Context, Error, Result},
    status::Status,
};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
};

/// Creates a file in memory with close-on-exec.
pub fn memory_file() -> io::Result<OwnedFd> {
    // SAFETY: the name is a NUL-terminated string.
    let descriptor = check(unsafe { libc::memfd_create(c"plinth-ipc".as_ptr(), libc::MFD_CLOEXEC) } as isize)?;
    // SAFETY: the call just created this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) })
}

/// Creates another open file description of a file that this process has open; locks belong to a description.
pub fn reopen(file: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(std::fs::OpenOptions::new().read(true).write(true).open(path)?.into())
}

/// Returns whether two descriptors refer to the same file, whatever their descriptions.
pub fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let name = |file: &OwnedFd| {
        // SAFETY: all zeros is a valid value of this plain C structure.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is a live local of the type that the call fills in.
        check(unsafe { libc::fstat(file.as_raw_fd(), &mut found) } as isize).map(|_| (found.st_dev, found.st_ino))
    };
    Ok(name(one)? == name(other)?)
}

/// Creates a pipe and returns its read end and its write end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

/// Returns whether any process has the write end of a pipe open.
pub fn has_writer(reader: &OwnedFd) -> bool {
    let mut entry = libc::pollfd { fd: reader.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: the entry is a live local, and the call returns at once.
    let result = unsafe { libc::poll(&mut entry, 1, 0) };
    // If the call fails, assume that a process does.
    result <= 0 || entry.revents & libc::POLLHUP == 0
}

fn region(kind: i32, byte: u64) -> libc::flock {
    // SAFETY: all zeros is a valid value of this plain C structure; l_pid must be 0 for locks of descriptions.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte as libc::off_t;
    lock.l_len = 1;
    lock
}

fn set_lock(file: &OwnedFd, kind: i32, byte: u64) -> io::Result<()> {
    let mut lock = region(kind, byte);
    // SAFETY: the structure is initialised and outlives the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &mut lock) } as isize).map(drop)
}

/// Locks a byte of a file, shared, until this file description is closed everywhere.
pub fn lock_byte(file: &OwnedFd, byte: u64) -> io::Result<()> {
    set_lock(file, libc::F_RDLCK, byte)
}

/// Unlocks a byte.
pub fn unlock_byte(file: &OwnedFd, byte: u64) -> io::Result<()> {
    set_lock(file, libc::F_UNLCK, byte)
}

/// Returns whether any other file description has a lock on a byte.
pub fn is_locked(file: &OwnedFd, byte: u64) -> bool {
    let mut lock = region(libc::F_WRLCK, byte);
    // SAFETY: the structure is initialised and outlives the call, which writes only to it.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    // If the call fails, assume that a process does.
    result < 0 || lock.l_type != libc::F_UNLCK as libc::c_short
}

/// Converts the error of a system call.
pub fn system_error<T>(outcome: std::io::Result<T>, action: &str) -> Result<T> {
    outcome.map_err(|error| Error::new(Status::SYSTEM, error.to_string())).context(|| action.to_owned())
}

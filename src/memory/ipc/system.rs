//! System calls for sharing memory: memory files, and pipes whose write ends are counted.

use crate::{
    error::{Context, Error, Result},
    status::Status,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, fstat, memfd_create},
};
use std::{io, os::fd::OwnedFd};

/// Creates a file in memory with close-on-exec.
pub fn memory_file() -> io::Result<OwnedFd> {
    Ok(memfd_create(c"plinth-ipc", MemfdFlags::CLOEXEC)?)
}

/// Returns whether two descriptors refer to the same file, whatever their descriptions.
pub fn is_same_file(one: &OwnedFd, other: &OwnedFd) -> io::Result<bool> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Creates a pipe and returns its read end and its write end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

/// Returns whether any process has the write end of a pipe open.
pub fn has_writer(reader: &OwnedFd) -> bool {
    let mut entry = [PollFd::new(reader, PollFlags::empty())];
    // If the call fails, assume that a process does.
    !matches!(poll(&mut entry, Some(&Timespec::default())), Ok(1)) || !entry[0].revents().contains(PollFlags::HUP)
}

/// Converts the error of a system call.
pub fn system_error<T>(outcome: std::io::Result<T>, action: &str) -> Result<T> {
    outcome.map_err(|error| Error::new(Status::SYSTEM, error.to_string())).context(|| action.to_owned())
}

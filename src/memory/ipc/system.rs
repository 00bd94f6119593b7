//! System calls for sharing memory: memory files, and pipes whose write ends are counted.

use crate::{
    error::{Context, Error, Result},
    status::Status,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, memfd_create},
    io::retry_on_intr,
};
use std::{io, os::fd::OwnedFd};

/// Creates an empty file in memory with close-on-exec, for locks. Its receivers cannot store data in it.
pub fn lock_file() -> io::Result<OwnedFd> {
    let file = retry_on_intr(|| memfd_create(c"plinth-ipc", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING))?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::WRITE | SealFlags::SEAL)?;
    Ok(file)
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
    !matches!(retry_on_intr(|| poll(&mut entry, Some(&Timespec::default()))), Ok(1))
        || !entry[0].revents().contains(PollFlags::HUP)
}

/// Converts the error of a system call.
pub fn system_error<T>(outcome: std::io::Result<T>, action: &str) -> Result<T> {
    outcome.map_err(|error| Error::new(Status::SYSTEM, error.to_string())).context(|| action.to_owned())
}

//! The processes that hold shared blocks, tracked by locks on the bytes of a file in memory, one byte per block.
//!
//! Each message carries a separate open file description with a lock on the block's byte. The kernel drops the lock
//! when the last descriptor of the description is closed: by the holder, by the holder's exit, or because the message
//! is never read from the socket. So no count can become wrong, and no process has to stay alive to maintain it. A
//! process that holds many blocks of one other process moves their locks to one description, so that it needs one
//! descriptor for all of them.
//!
//! A second description of an open file can only be created through /proc/self. If that is not mounted, a pipe
//! replaces the lock, at the cost of one descriptor per message in both processes.

use super::system;
use crate::driver::file_description;
use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

/// The file with the locks, and the allocation of its bytes.
pub struct HolderLocks {
    file: OwnedFd,
    /// Bytes that are free for reuse.
    free: Vec<u64>,
    next: u64,
}

/// The two ends of a new hold on a block.
pub struct Hold {
    /// The descriptor for the message. The block is held while it is open.
    pub sent: OwnedFd,
    /// The read end of the pipe, which stays in this process, if the hold is a pipe.
    pub pipe: Option<OwnedFd>,
}

impl HolderLocks {
    /// Creates the file, without locks.
    pub fn new() -> io::Result<Self> {
        Ok(HolderLocks { file: system::lock_file()?, free: Vec::new(), next: 0 })
    }

    /// Allocates a byte for a block.
    pub fn allocate_byte(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Frees a byte that no process holds.
    pub fn free_byte(&mut self, byte: u64) {
        self.free.push(byte);
    }

    /// Creates a hold on a block.
    pub fn hold(&self, byte: u64) -> io::Result<Hold> {
        match file_description::reopen(None, self.file.as_raw_fd()) {
            Ok(sent) => {
                file_description::lock_shared(&sent, byte, 1)?;
                Ok(Hold { sent, pipe: None })
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                hold_by_pipe()
            }
            Err(error) => Err(error),
        }
    }

    /// Returns whether any process holds a lock on the block's byte.
    pub fn is_held(&self, byte: u64) -> bool {
        file_description::is_locked(&self.file, byte, 1)
    }
}

fn hold_by_pipe() -> io::Result<Hold> {
    let (reader, writer) = system::pipe()?;
    Ok(Hold { sent: writer, pipe: Some(reader) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lasts_until_its_description_is_closed() {
        let mut locks = HolderLocks::new().unwrap();
        let (byte, other) = (locks.allocate_byte(), locks.allocate_byte());
        assert!(!locks.is_held(byte));
        let first = locks.hold(byte).unwrap();
        let again = first.sent.try_clone().unwrap();
        assert!(first.pipe.is_none() && locks.is_held(byte) && !locks.is_held(other));
        drop(first);
        assert!(locks.is_held(byte));
        drop(again);
        assert!(!locks.is_held(byte));
        locks.free_byte(byte);
        assert_eq!(locks.allocate_byte(), byte);
    }

    #[test]
    fn receivers_cannot_store_data() {
        let mut locks = HolderLocks::new().unwrap();
        let byte = locks.allocate_byte();
        let hold = locks.hold(byte).unwrap();
        assert_eq!(rustix::io::write(&hold.sent, b"x"), Err(rustix::io::Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&hold.sent, 1 << 30), Err(rustix::io::Errno::PERM));
        assert!(locks.is_held(byte));
    }

    #[test]
    fn moves_locks_to_one_description() {
        let mut locks = HolderLocks::new().unwrap();
        let (byte, other) = (locks.allocate_byte(), locks.allocate_byte());
        let kept_description = locks.hold(byte).unwrap().sent;
        let second = locks.hold(other).unwrap().sent;
        file_description::lock_shared(&kept_description, other, 1).unwrap();
        drop(second);
        assert!(locks.is_held(byte) && locks.is_held(other));
        file_description::unlock(&kept_description, byte, 1).unwrap();
        assert!(!locks.is_held(byte) && locks.is_held(other));
        drop(kept_description);
        assert!(!locks.is_held(other));
    }

    #[test]
    fn a_pipe_replaces_a_lock() {
        let Hold { sent, pipe } = hold_by_pipe().unwrap();
        let pipe = pipe.unwrap();
        assert!(system::has_writer(&pipe));
        drop(sent);
        assert!(!system::has_writer(&pipe));
    }
}

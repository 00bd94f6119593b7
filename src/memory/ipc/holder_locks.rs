//! Who holds what this process shares: locks on bytes of a file in memory, one byte a block.
//!
//! With each message goes an open file description of its own that has the block's byte locked. The kernel drops the lock
//! when the last descriptor of the description is closed: by the holder, by the holder's death, or because nobody ever took
//! the message out of the socket. So no count can be wrong, and nobody must be alive to keep it. A process that holds many
//! blocks of one other process moves their locks to one description, so that it needs one descriptor for all.
//!
//! Another description of one's own file can only be had through /proc/self. Where that is not mounted a pipe takes the
//! lock's place, at the price of a descriptor for each message on both sides.

use super::system;
use std::{io, os::fd::OwnedFd};

/// See the module's comment.
pub struct Ledger {
    file: OwnedFd,
    /// Bytes that no block has any more.
    free: Vec<u64>,
    next: u64,
}

/// What goes with a message, and what stays.
pub struct Hold {
    /// Whoever has this open holds the block.
    pub there: OwnedFd,
    /// The end of the pipe that stays, where it is a pipe.
    pub here: Option<OwnedFd>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> io::Result<Self> {
        Ok(Ledger { file: system::memory_file()?, free: Vec::new(), next: 0 })
    }

    /// A byte for a block.
    pub fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    /// Gives a byte back that nobody holds.
    pub fn give_back(&mut self, byte: u64) {
        self.free.push(byte);
    }

    /// Another hold on a block.
    pub fn hold(&self, byte: u64) -> io::Result<Hold> {
        match system::reopen(&self.file) {
            Ok(there) => {
                system::hold(&there, byte)?;
                Ok(Hold { there, here: None })
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                hold_by_pipe()
            }
            Err(error) => Err(error),
        }
    }

    /// Whether anybody holds a block by its lock.
    pub fn is_held(&self, byte: u64) -> bool {
        system::is_held(&self.file, byte)
    }
}

fn hold_by_pipe() -> io::Result<Hold> {
    let (here, there) = system::pipe()?;
    Ok(Hold { there, here: Some(here) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lasts_as_long_as_its_description() {
        let mut ledger = Ledger::new().unwrap();
        let (byte, other) = (ledger.take(), ledger.take());
        assert!(!ledger.is_held(byte));
        let first = ledger.hold(byte).unwrap();
        let again = first.there.try_clone().unwrap();
        assert!(first.here.is_none() && ledger.is_held(byte) && !ledger.is_held(other));
        drop(first);
        assert!(ledger.is_held(byte));
        drop(again);
        assert!(!ledger.is_held(byte));
        ledger.give_back(byte);
        assert_eq!(ledger.take(), byte);
    }

    #[test]
    fn locks_move_to_one_description() {
        let mut ledger = Ledger::new().unwrap();
        let (byte, other) = (ledger.take(), ledger.take());
        let kept = ledger.hold(byte).unwrap().there;
        let second = ledger.hold(other).unwrap().there;
        system::hold(&kept, other).unwrap();
        drop(second);
        assert!(ledger.is_held(byte) && ledger.is_held(other));
        system::let_go(&kept, byte).unwrap();
        assert!(!ledger.is_held(byte) && ledger.is_held(other));
        drop(kept);
        assert!(!ledger.is_held(other));
    }

    #[test]
    fn a_pipe_takes_the_place_of_a_lock() {
        let Hold { there, here } = hold_by_pipe().unwrap();
        let here = here.unwrap();
        assert!(system::has_writer(&here));
        drop(there);
        assert!(!system::has_writer(&here));
    }
}

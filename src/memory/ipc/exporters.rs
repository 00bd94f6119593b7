//! The processes that share blocks with this one, and the locks that hold their blocks.

use super::{
    message::{Header, HoldKind, Token},
    system::{self, system_error},
};
use crate::{
    driver::file_description,
    error::{Error, Result},
    status::Status,
};
use std::{
    collections::HashMap,
    os::fd::{AsRawFd, OwnedFd},
};

/// A process that shares blocks with this one.
struct Exporter {
    /// The file description with the locks on its blocks' bytes.
    file: OwnedFd,
    /// Whether this process opened the description. Otherwise it came with a message, and another receiver of that
    /// message may share it.
    own: bool,
    /// The locked bytes, and the number of blocks here that rely on each: one for each device that memory is opened
    /// for.
    bytes: HashMap<u64, usize>,
}

impl Exporter {
    /// Checks that the descriptor of a message refers to the same file as the earlier ones.
    fn check(&self, hold: &OwnedFd) -> Result<()> {
        if system_error(system::is_same_file(&self.file, hold), "identifying another process's file of the holders")? {
            return Ok(());
        }
        Err(Error::new(
            Status::INVALID_VALUE,
            "the message has a different file of the holders from an earlier message of the same sender",
        ))
    }
}

/// The processes that share blocks with this one.
#[derive(Default)]
pub(super) struct Exporters(HashMap<Token, Exporter>);

impl Exporters {
    /// Takes a hold on a block as its message specifies. Returns the descriptor if it represents the hold.
    pub(super) fn take_hold(&mut self, header: &Header, hold: OwnedFd) -> Result<Option<OwnedFd>> {
        let HoldKind::Byte(byte) = header.hold else { return Ok(Some(hold)) };
        let what = "locking another process's block";
        match self.0.get_mut(&header.token) {
            Some(owner) => {
                owner.check(&hold)?;
                system_error(file_description::lock_shared(&owner.file, byte, 1), what)?;
                *owner.bytes.entry(byte).or_default() += 1;
            }
            None => {
                // Without /proc, and for a file that cannot be opened at once, use the received description. It holds the
                // block, so it stays open until the new description has the lock.
                let (file, received) = match file_description::reopen(None, hold.as_raw_fd()) {
                    Ok(file) => (file, Some(hold)),
                    Err(_) => (hold, None),
                };
                system_error(file_description::lock_shared(&file, byte, 1), what)?;
                let own = received.is_some();
                drop(received);
                self.0.insert(header.token, Exporter { file, own, bytes: HashMap::from([(byte, 1)]) });
            }
        }
        Ok(None)
    }

    /// Checks the descriptor of another message about a block that is held already.
    pub(super) fn check_hold(&self, header: &Header, hold: Option<&OwnedFd>) -> Result<()> {
        match (header.hold, self.0.get(&header.token), hold) {
            (HoldKind::Byte(_), Some(owner), Some(hold)) => owner.check(hold),
            _ => Ok(()),
        }
    }

    /// Releases a block's reference to a byte, and unlocks the byte with the last one.
    pub(super) fn unlock(&mut self, token: Token, byte: u64) {
        let Some(owner) = self.0.get_mut(&token) else { return };
        if let Some(count) = owner.bytes.get_mut(&byte) {
            *count -= 1;
            if *count > 0 {
                return;
            }
            owner.bytes.remove(&byte);
        }
        let is_last = owner.bytes.is_empty();
        // A child that was forked meanwhile may also have the description open, so closing it is not enough.
        if owner.own || !is_last {
            // If unlocking fails, the lock is released when the description is closed.
            let _ = (0..3).any(|_| file_description::unlock(&owner.file, byte, 1).is_ok());
        }
        if is_last {
            self.0.remove(&token);
        }
    }
}

//! Memory amounts that processes share: processes with the same `PLINTH_HOST_MEMORY_NAME` share the amount of each
//! physical device, so what one process holds lowers the free memory of the others. The contents stay private.
//!
//! The accounts are locks, not data. A process holds a lock in a file on as many bytes as it holds granules of a device.
//! So the kernel gives the part of a process back when the process ends, however it ends, a child made by fork holds
//! nothing, and a file that an earlier run left behind is empty. The file has no content:
//!
//! | bytes | locked |
//! |---|---|
//! | 0 | while a process compares what is free with what it needs, joins, or leaves |
//! | 1 to `SLOTS` | one by each process: it owns the slot with this number |
//! | from `region(device, slot)` | by the owner of the slot, one byte per granule that it holds of the device |

use crate::{
    config::{GRANULE, MAX_DEVICES},
    driver::{
        process_lock,
        slot_file::{self, SlotFile},
        user,
    },
};
use once_cell::sync::OnceCell;
use std::{fmt::Display, io, path::PathBuf};

/// The most processes that share.
const SLOTS: u64 = 1024;
/// The bytes of a slot in a device's region: more than a device can have granules.
const SLOT_BYTES: u64 = 1 << 28;
const REGION_BYTES: u64 = SLOTS * SLOT_BYTES;
/// The longest name.
const LONGEST_NAME: usize = 64;
const _: () = assert!(MAX_DEVICES as u64 + 1 < (i64::MAX as u64) / REGION_BYTES);

/// The accounts of the processes that share a name.
pub struct SharedAmounts(SlotFile);

static JOINED: OnceCell<SharedAmounts> = OnceCell::new();

/// Returns whether a text can be a name: it becomes part of the name of a file.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(allowed)
}

/// Joins the processes that share a name; a process joins once. The error is a sentence for the user.
pub fn join(name: &str) -> Result<&'static SharedAmounts, String> {
    JOINED.get_or_try_init(|| {
        let path = path_of(name);
        let joined = SlotFile::join(path.clone(), SLOTS).map_err(|reason| describe(name, &path, &reason))?;
        Ok(SharedAmounts(joined))
    })
}

fn describe(name: &str, path: &std::path::Path, reason: &dyn Display) -> String {
    format!("sharing the memory named {name:?} by PLINTH_HOST_MEMORY_NAME: {} cannot be used: {reason}", path.display())
}

/// Gives back what this process holds, as it exits, and removes the file if no other process uses it.
pub fn leave() {
    if let Some(shared) = JOINED.get()
        && shared.0.is_own()
    {
        shared.0.leave();
    }
}

/// Returns the file of a name. Each user has files of their own.
fn path_of(name: &str) -> PathBuf {
    slot_file::path_of(&format!("plinth-host-memory-{}-{name}", user::effective()))
}

fn region(device: usize, slot: u64) -> u64 {
    (device as u64 + 1) * REGION_BYTES + slot * SLOT_BYTES
}

impl SharedAmounts {
    /// Returns the bytes of a physical device that the other processes hold.
    pub fn held_by_others(&self, device: usize) -> io::Result<u64> {
        Ok(process_lock::locked_by_others(self.0.file(), region(device, 0), REGION_BYTES)? * GRANULE)
    }

    /// Adds `bytes` to the `held` ones of this process, if no more than `total` are then in use. Returns whether it did.
    pub fn take(&self, device: usize, held: u64, bytes: u64, total: u64) -> io::Result<bool> {
        let taken = self.0.exclusively(|file| {
            if self.held_by_others(device)?.saturating_add(held + bytes) > total {
                return Ok(false);
            }
            process_lock::try_lock(file, region(device, self.0.slot()) + held / GRANULE, bytes / GRANULE)
        })?;
        Ok(taken.unwrap_or(held + bytes <= total))
    }

    /// Returns the last `bytes` of the `held` ones of this process.
    pub fn give(&self, device: usize, held: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        // It can fail only if the kernel has no memory for its list of locks. The bytes then stay counted until the
        // process ends, or until it takes and gives them again.
        self.0.unless_left(|file| {
            let start = region(device, self.0.slot()) + (held - bytes) / GRANULE;
            let _ = process_lock::unlock(file, start, bytes / GRANULE);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parts_of_file_names() {
        assert!(is_name("ci-7.job_2") && is_name(&"x".repeat(64)));
        for wrong in ["", "a/b", "a b", "\u{e9}", &"x".repeat(65)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn regions_do_not_overlap() {
        assert_eq!(region(3, SLOTS), region(4, 0));
        assert_eq!(region(0, 1) - region(0, 0), SLOT_BYTES);
        assert!(region(0, 0) > SLOTS && (1 << 46) / GRANULE < SLOT_BYTES);
    }
}

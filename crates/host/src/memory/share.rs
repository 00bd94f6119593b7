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
    driver::{process_lock, temporary, user},
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use rustix::fs::{self, Mode, OFlags};
use std::{fmt::Display, io, os::fd::OwnedFd, path::PathBuf, time::Duration};

/// The most processes that share.
const SLOTS: u64 = 1024;
/// The bytes of a slot in a device's region: more than a device can have granules.
const SLOT_BYTES: u64 = 1 << 28;
const REGION_BYTES: u64 = SLOTS * SLOT_BYTES;
/// The longest name.
const LONGEST_NAME: usize = 64;
/// How long a process waits for others that compare, join or leave, which takes them microseconds.
const LOCK_LIMIT: Duration = Duration::from_secs(10);
const LOCK_LIMIT_AT_EXIT: Duration = Duration::from_secs(1);

const _: () = assert!(MAX_DEVICES as u64 + 1 < (i64::MAX as u64) / REGION_BYTES);

/// The accounts of the processes that share a name.
pub struct SharedAmounts {
    file: OwnedFd,
    path: PathBuf,
    slot: u64,
    /// The process that joined. A child made by fork has a copy of this, but not the locks.
    process: u32,
    /// Whether the process has left. Locks belong to processes, so its threads exclude each other here.
    left: Mutex<bool>,
}

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
        SharedAmounts::open(path.clone()).map_err(|reason| describe(name, &path, &reason))
    })
}

fn describe(name: &str, path: &std::path::Path, reason: &dyn Display) -> String {
    format!("sharing the memory named {name:?} by PLINTH_HOST_MEMORY_NAME: {} cannot be used: {reason}", path.display())
}

/// Gives back what this process holds, as it exits, and removes the file if no other process uses it.
pub fn leave() {
    if let Some(shared) = JOINED.get()
        && shared.process == std::process::id()
    {
        shared.leave();
    }
}

/// Returns the file of a name. Each user has files of their own.
fn path_of(name: &str) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { temporary::root() };
    folder.join(format!("plinth-host-memory-{}-{name}", user::effective()))
}

fn region(device: usize, slot: u64) -> u64 {
    (device as u64 + 1) * REGION_BYTES + slot * SLOT_BYTES
}

impl SharedAmounts {
    fn open(path: PathBuf) -> io::Result<SharedAmounts> {
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            let owner = fs::fstat(&file)?.st_uid;
            if owner != user::effective() {
                return Err(io::Error::other(format!(
                    "it belongs to the user with number {owner}, who could lock all of it"
                )));
            }
            process_lock::lock(&file, 0, 1, LOCK_LIMIT)?;
            // The last process may have removed the file since it was opened. Closing it releases the lock.
            let (here, there) = (fs::fstat(&file)?, fs::stat(&path));
            if !there.is_ok_and(|there| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)) {
                continue;
            }
            let slot = (0..SLOTS).find_map(|slot| match process_lock::try_lock(&file, 1 + slot, 1) {
                Ok(false) => None,
                Ok(true) => Some(Ok(slot)),
                Err(error) => Some(Err(error)),
            });
            let slot = slot.unwrap_or_else(|| Err(io::Error::other(format!("{SLOTS} processes share it already"))))?;
            process_lock::unlock(&file, 0, 1)?;
            return Ok(SharedAmounts { file, path, slot, process: std::process::id(), left: Mutex::new(false) });
        }
    }

    /// Returns the bytes of a physical device that the other processes hold.
    pub fn held_by_others(&self, device: usize) -> io::Result<u64> {
        Ok(process_lock::locked_by_others(&self.file, region(device, 0), REGION_BYTES)? * GRANULE)
    }

    /// Adds `bytes` to the `held` ones of this process, if no more than `total` are then in use. Returns whether it did.
    pub fn take(&self, device: usize, held: u64, bytes: u64, total: u64) -> io::Result<bool> {
        let left = self.left.lock();
        if *left {
            return Ok(held + bytes <= total);
        }
        process_lock::lock(&self.file, 0, 1, LOCK_LIMIT)?;
        let taken = self.held_by_others(device).and_then(|others| {
            if others.saturating_add(held + bytes) > total {
                return Ok(false);
            }
            process_lock::try_lock(&self.file, region(device, self.slot) + held / GRANULE, bytes / GRANULE)
        });
        process_lock::unlock(&self.file, 0, 1)?;
        taken
    }

    /// Returns the last `bytes` of the `held` ones of this process.
    pub fn give(&self, device: usize, held: u64, bytes: u64) {
        if *self.left.lock() || bytes == 0 {
            return;
        }
        // It can fail only if the kernel has no memory for its list of locks. The bytes then stay counted until the
        // process ends, or until it takes and gives them again.
        let start = region(device, self.slot) + (held - bytes) / GRANULE;
        let _ = process_lock::unlock(&self.file, start, bytes / GRANULE);
    }

    fn leave(&self) {
        let mut left = self.left.lock();
        // A failure leaves an empty file behind, which does no harm.
        if std::mem::replace(&mut *left, true) || process_lock::lock(&self.file, 0, 1, LOCK_LIMIT_AT_EXIT).is_err() {
            return;
        }
        let everything = (MAX_DEVICES as u64 + 1) * REGION_BYTES;
        let _ = process_lock::unlock(&self.file, 1, everything);
        if process_lock::locked_by_others(&self.file, 1, SLOTS).is_ok_and(|others| others == 0) {
            let _ = fs::unlink(&self.path);
        }
        let _ = process_lock::unlock(&self.file, 0, 1);
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
    fn files_of_others_and_links_are_refused() {
        let folder = temporary::folder().unwrap();
        let path = folder.path().join("amounts");
        std::fs::write(folder.path().join("target"), "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("target"), &path).unwrap();
        assert!(SharedAmounts::open(path.clone()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            let error = SharedAmounts::open(path.clone()).err().unwrap();
            assert!(error.to_string().contains("65534"), "{error}");
            assert!(std::fs::metadata(&path).is_ok());
            std::fs::remove_file(&path).unwrap();
        }
        SharedAmounts::open(path.clone()).unwrap().leave();
        assert!(std::fs::metadata(&path).is_err());
    }

    #[test]
    fn regions_do_not_overlap() {
        assert_eq!(region(3, SLOTS), region(4, 0));
        assert_eq!(region(0, 1) - region(0, 0), SLOT_BYTES);
        assert!(region(0, 0) > SLOTS && (1 << 46) / GRANULE < SLOT_BYTES);
    }
}

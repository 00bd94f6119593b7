//! Files in which each of several processes owns a slot. The ownership is a lock, so the kernel ends it with the process,
//! however that ends, and a child made by fork owns nothing.
//!
//! | bytes | locked |
//! |---|---|
//! | 0 | while a process joins or leaves, and for the users of the file |
//! | 1 to the number of slots | one by each process: it owns the slot with this number |
//!
//! Closing any descriptor of such a file ends all locks of the process, so all uses of a file in a process share one.

use crate::{process_lock, user};
use parking_lot::Mutex;
use rustix::fs::{self, Mode, OFlags};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How long a process waits for others that join, leave or compare, which takes them microseconds.
pub const LOCK_LIMIT: Duration = Duration::from_secs(10);
const LOCK_LIMIT_AT_EXIT: Duration = Duration::from_secs(1);

/// The open files of this process, with their paths.
static OPEN: Mutex<Vec<(PathBuf, Arc<OwnedFd>)>> = Mutex::new(Vec::new());

/// Returns the descriptor of a file, which is created if necessary.
fn open(path: &Path) -> io::Result<Arc<OwnedFd>> {
    let mut open = OPEN.lock();
    let known = open.iter().find(|(known, file)| known == path && is_at(file, path));
    if let Some((_, file)) = known {
        return Ok(file.clone());
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = Arc::new(fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    open.push((path.to_owned(), file.clone()));
    Ok(file)
}

/// Returns whether a path still leads to an open file.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    let ids = fs::fstat(file).and_then(|here| fs::stat(path).map(|there| (here, there)));
    ids.is_ok_and(|(here, there)| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino))
}

/// Closes files without a user when it is dropped, while no thread opens one.
struct CloseUnused;

impl Drop for CloseUnused {
    fn drop(&mut self) {
        OPEN.lock().retain(|(_, file)| Arc::strong_count(file) > 1);
    }
}

/// A file with a slot of this process.
pub struct SlotFile {
    file: Arc<OwnedFd>,
    /// Dropped after `file`.
    _close_unused: CloseUnused,
    path: PathBuf,
    slot: u64,
    slots: u64,
    /// The process that joined. A child made by fork has a copy of this, but not the locks.
    process: u32,
    /// Whether the process has left. Locks belong to processes, so its threads exclude each other here.
    left: Mutex<bool>,
}

impl SlotFile {
    /// Opens the file, which is created if necessary, and takes a slot. Fails if the file belongs to another user, who
    /// could lock all of it, and for a symbolic link.
    pub fn join(path: PathBuf, slots: u64) -> io::Result<SlotFile> {
        loop {
            let close_unused = CloseUnused;
            let file = open(&path)?;
            let owner = fs::fstat(&file)?.st_uid;
            if owner != user::effective() {
                return Err(io::Error::other(format!(
                    "it belongs to the user with number {owner}, who could lock all of it"
                )));
            }
            process_lock::lock(&file, 0, 1, LOCK_LIMIT)?;
            // The last process may have removed the file since it was opened.
            if !is_at(&file, &path) {
                continue;
            }
            let slot = (0..slots).find_map(|slot| match process_lock::try_lock(&file, 1 + slot, 1) {
                Ok(false) => None,
                Ok(true) => Some(Ok(slot)),
                Err(error) => Some(Err(error)),
            });
            // Also without a slot: this process may have the file open for another use.
            process_lock::unlock(&file, 0, 1)?;
            let slot = slot.unwrap_or_else(|| Err(io::Error::other(format!("{slots} processes share it already"))));
            return Ok(SlotFile {
                file,
                _close_unused: close_unused,
                path,
                slot: slot?,
                slots,
                process: std::process::id(),
                left: Mutex::new(false),
            });
        }
    }

    /// Returns the file.
    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Returns the number of this process's slot.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// Returns whether this is the process that joined.
    pub fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns whether another process owns a slot.
    pub fn is_taken(&self, slot: u64) -> bool {
        process_lock::locked_by_others(&self.file, 1 + slot, 1).is_ok_and(|others| others > 0)
    }

    /// Calls `body` while no other process, and no other thread of this one, does that, joins or leaves. Returns `None` if
    /// this process has left.
    pub fn exclusively<T>(&self, body: impl FnOnce(&OwnedFd) -> io::Result<T>) -> io::Result<Option<T>> {
        let left = self.left.lock();
        if *left {
            return Ok(None);
        }
        process_lock::lock(&self.file, 0, 1, LOCK_LIMIT)?;
        let done = body(&self.file);
        process_lock::unlock(&self.file, 0, 1)?;
        done.map(Some)
    }

    /// Calls `body` while no other thread of this process is in it or in [`exclusively`](Self::exclusively), unless the
    /// process has left.
    pub fn unless_left(&self, body: impl FnOnce(&OwnedFd)) {
        let left = self.left.lock();
        if !*left {
            body(&self.file);
        }
    }

    /// Gives the slot back, and removes the file if no other process has one.
    pub fn leave(&self) {
        let mut left = self.left.lock();
        if std::mem::replace(&mut *left, true) {
            return;
        }
        let locked = process_lock::lock(&self.file, 0, 1, LOCK_LIMIT_AT_EXIT);
        // To the end of the file, whatever its users have locked there.
        let _ = process_lock::unlock(&self.file, 1, 0);
        // Without the lock, an empty file stays behind, which does no harm.
        if locked.is_err() {
            return;
        }
        if process_lock::locked_by_others(&self.file, 1, self.slots).is_ok_and(|others| others == 0) {
            let _ = fs::unlink(&self.path);
        }
        let _ = process_lock::unlock(&self.file, 0, 1);
    }
}

/// Returns a path in the folder of shared memory, or in that of temporary files where there is none.
pub fn path_of(name: &str) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { crate::temporary::root() };
    folder.join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        file_description::{control, lock_shared, reopen},
        temporary,
    };
    use std::os::fd::AsRawFd;

    #[test]
    fn files_of_others_and_links_are_refused() {
        let folder = temporary::folder().unwrap();
        let path = folder.path().join("slots");
        std::fs::write(folder.path().join("target"), "").unwrap();
        std::os::unix::fs::symlink(folder.path().join("target"), &path).unwrap();
        assert!(SlotFile::join(path.clone(), 4).is_err());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(65534), None).is_ok() {
            let error = SlotFile::join(path.clone(), 4).err().unwrap();
            assert!(error.to_string().contains("65534"), "{error}");
            assert!(std::fs::metadata(&path).is_ok());
            std::fs::remove_file(&path).unwrap();
        }
        let joined = SlotFile::join(path.clone(), 4).unwrap();
        assert!(joined.is_own() && joined.slot() == 0 && !joined.is_taken(1));
        assert_eq!(joined.exclusively(|_| Ok(7)).unwrap(), Some(7));
        joined.leave();
        assert_eq!(joined.exclusively(|_| Ok(7)).unwrap(), None);
        assert!(std::fs::metadata(&path).is_err());
    }

    /// Returns whether this process has locked a byte. Locks of open files conflict with those of their own process.
    fn is_locked(joined: &SlotFile, byte: u64) -> bool {
        let found = control(joined.file(), libc::F_OFD_GETLK, libc::F_WRLCK, byte, 1).unwrap();
        i32::from(found.l_type) == libc::F_WRLCK
    }

    fn has_locked(joined: &SlotFile) -> bool {
        is_locked(joined, 1 + joined.slot())
    }

    #[test]
    fn nothing_stays_locked_after_a_failure() {
        let folder = temporary::folder().unwrap();
        let path = folder.path().join("slots");
        let file = std::fs::File::create_new(&path).unwrap();
        // The lock of a description conflicts with those of all processes, like the lock of another process.
        let other = reopen(None, file.as_raw_fd()).unwrap();
        drop(file);
        lock_shared(&other, 1, 1).unwrap();
        let joined = SlotFile::join(path.clone(), 2).unwrap();
        assert!(has_locked(&joined));
        assert!(SlotFile::join(path, 1).is_err());
        assert!(!is_locked(&joined, 0));
        // The other process has been stopped while it joined.
        lock_shared(&other, 0, 1).unwrap();
        joined.leave();
        assert!(!has_locked(&joined));
    }

    #[test]
    fn a_file_that_was_left_keeps_the_slot_of_a_later_one() {
        let folder = temporary::folder().unwrap();
        let path = folder.path().join("slots");
        let first = SlotFile::join(path.clone(), 4).unwrap();
        assert!(has_locked(&first));
        // The path leads to the same file again, as it does if another process has a slot.
        std::fs::hard_link(&path, folder.path().join("kept")).unwrap();
        first.leave();
        assert!(!has_locked(&first));
        std::fs::rename(folder.path().join("kept"), &path).unwrap();
        let second = SlotFile::join(path.clone(), 4).unwrap();
        assert!(has_locked(&second));
        drop(first);
        assert!(has_locked(&second));
        second.leave();
        drop(second);
        assert!(OPEN.lock().iter().all(|(open, _)| *open != path));
    }
}

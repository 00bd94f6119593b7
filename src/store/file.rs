//! A store that is a folder: a file for each name. A value is written elsewhere and moved into its place, so nobody reads half
//! of one; sums are made under a lock of the system's, which ends with the process that holds it.

use super::{number, system};
use crate::{communicator::patience::Patience, error::Result};
use std::{
    fmt::Write,
    fs::{self, File, OpenOptions, TryLockError},
    hash::{DefaultHasher, Hasher},
    io::ErrorKind,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

/// The longest name that is a file's name as it is, in bytes of its own.
const PLAIN: usize = 100;

/// The folder.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens a folder, and makes it if it is not there.
    pub fn open(path: &str) -> Result<Folder> {
        fs::create_dir_all(path).map_err(|error| system("making the folder", &error))?;
        Ok(Folder { path: PathBuf::from(path) })
    }

    /// The file of a name: in hexadecimal, so that any name will do; a long one by its beginning and two sums.
    fn place(&self, name: &str) -> PathBuf {
        let mut file = String::from("value-");
        for byte in name.bytes().take(PLAIN) {
            // Writing to a string does not fail.
            let _ = write!(file, "{byte:02x}");
        }
        if name.len() > PLAIN {
            for salt in 0..2 {
                let mut hasher = DefaultHasher::new();
                hasher.write_u8(salt);
                hasher.write(name.as_bytes());
                let _ = write!(file, "-{:016x}", hasher.finish());
            }
        }
        self.path.join(file)
    }

    /// See [`Store::set`](super::Store::set).
    pub fn set(&self, name: &str, value: &[u8]) -> Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let draft = self.path.join(format!("draft-{}-{}-{number}", host.trim(), std::process::id()));
        fs::write(&draft, value)
            .and_then(|()| fs::rename(&draft, self.place(name)))
            .map_err(|error| system("writing a file", &error))
    }

    /// The value of a name, if it has one.
    pub fn find(&self, name: &str) -> Result<Option<Vec<u8>>> {
        match fs::read(self.place(name)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(system("reading a file", &error)),
        }
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&self, name: &str, amount: i64, patience: &Patience) -> Result<i64> {
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path.join("lock"))
            .map_err(|error| system("opening the lock's file", &error))?;
        take(&lock, patience)?;
        let sum = self.find(name)?.map_or(0, |bytes| number(&bytes)).wrapping_add(amount);
        self.set(name, &sum.to_le_bytes())?;
        Ok(sum)
    }
}

/// Takes the lock of a file, until that is closed.
fn take(lock: &File, patience: &Patience) -> Result<()> {
    patience.rest().until(
        || "the lock of a folder was waited for",
        || match lock.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(system("locking a file", &error)),
        },
    )
}

//! A store in a folder, with one file for each key. A value is written to a temporary file and renamed, so that no
//! process reads a partial value. Additions hold an advisory file lock, which the system releases when the process
//! ends.

use super::{MAX_VALUE, number, system};
use crate::{base::deadline::Deadline, error::Result};
use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    hash::{DefaultHasher, Hasher},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::{Builder, NamedTempFile};

/// The maximum length in bytes of a key that is the file's name as a whole.
const MAX_PLAIN: usize = 100;

/// The folder of a store.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens a folder, and creates it if it does not exist.
    pub fn open(path: &str) -> Result<Folder> {
        fs::create_dir_all(path).map_err(|error| system("making the folder", &error))?;
        Ok(Folder { path: PathBuf::from(path) })
    }

    /// Returns the file of a key: hexadecimal, so that any key is allowed; for a long key, its prefix and two hashes.
    fn path_of(&self, name: &str) -> PathBuf {
        let mut file = String::from("value-");
        for byte in name.bytes().take(MAX_PLAIN) {
            // Writing to a string does not fail.
            let _ = write!(file, "{byte:02x}");
        }
        if name.len() > MAX_PLAIN {
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
        let mut file = self.create_temporary().map_err(|error| system("making a file", &error))?;
        let written = file.write_all(value).and_then(|()| Ok(file.persist(self.path_of(name))?));
        written.map(drop).map_err(|error| system("writing a file", &error))
    }

    /// Creates a temporary file, which no other process writes to: its name is new in the folder.
    fn create_temporary(&self) -> io::Result<NamedTempFile> {
        Builder::new().prefix("draft-").permissions(Permissions::from_mode(0o666)).tempfile_in(&self.path)
    }

    /// Returns the value of a key, if it has one.
    pub fn find(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let read = || -> io::Result<Vec<u8>> {
            let mut value = Vec::new();
            let file = open_regular(OpenOptions::new().read(true), &self.path_of(name))?;
            // More than the longest value, so that a longer file is not taken for a value.
            file.take(MAX_VALUE as u64 + 1).read_to_end(&mut value)?;
            Ok(value)
        };
        match read() {
            Ok(value) if value.len() > MAX_VALUE => {
                let error = io::Error::other(format!("it has more than {MAX_VALUE} bytes, and no value has"));
                Err(system("reading a file", &error))
            }
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(system("reading a file", &error)),
        }
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&self, name: &str, amount: i64, deadline: &Deadline) -> Result<i64> {
        let lock = open_regular(OpenOptions::new().create(true).append(true), &self.path.join("lock"))
            .map_err(|error| system("opening the lock's file", &error))?;
        lock_file(&lock, deadline)?;
        let sum = self.find(name)?.map_or(0, |bytes| number(&bytes)).wrapping_add(amount);
        self.set(name, &sum.to_le_bytes())?;
        Ok(sum)
    }
}

/// Opens a regular file. Fails at once for anything else that another process may have put in its place, such as a FIFO,
/// which could block, or a link to a device without an end.
fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Locks a file until it is closed.
fn lock_file(lock: &File, deadline: &Deadline) -> Result<()> {
    deadline.until(
        || "the lock of a folder was waited for",
        || match lock.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(system("locking a file", &error)),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{status::Status, temporary};
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::{os::unix::fs::symlink, time::Duration};

    /// Other processes can write to the folder.
    #[test]
    fn only_regular_files_of_limited_size_are_values() {
        let root = temporary::folder().unwrap();
        let folder = Folder::open(root.path().to_str().unwrap()).unwrap();
        let path = |name: &str| folder.path_of(name);
        let fifo = |path: &Path| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
        fifo(&path("fifo"));
        symlink("/dev/zero", path("endless")).unwrap();
        symlink(root.path().join("nothing"), path("dangling")).unwrap();
        fs::create_dir(path("folder")).unwrap();
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        File::create(path("longer")).unwrap().set_len(MAX_VALUE as u64 + 1).unwrap();
        for name in ["fifo", "endless", "dangling", "folder", "huge", "longer"] {
            let error = folder.find(name).unwrap_err();
            assert_eq!(error.status(), Status::SYSTEM, "{name}: {error}");
            assert!(error.message().starts_with("reading a file: "), "{name}: {error}");
        }
        File::create(path("longest")).unwrap().set_len(MAX_VALUE as u64).unwrap();
        assert_eq!(folder.find("longest").unwrap().unwrap().len(), MAX_VALUE);
        fifo(&root.path().join("lock"));
        let error = folder.add("sum", 1, &Deadline::new(Duration::from_secs(20))).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM, "{error}");
    }

    #[test]
    fn temporary_files_are_exclusive() {
        let root = temporary::folder().unwrap();
        let folder = Folder::open(root.path().to_str().unwrap()).unwrap();
        let mut first = folder.create_temporary().unwrap();
        first.write_all(b"half of").unwrap();
        let second = folder.create_temporary().unwrap();
        assert_ne!(first.path(), second.path());
        first.write_all(b" a value").unwrap();
        assert_eq!(fs::read(first.path()).unwrap(), b"half of a value");
        assert_eq!(second.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn writing_leaves_no_temporary_file() {
        let root = temporary::folder().unwrap();
        let folder = Folder::open(root.path().to_str().unwrap()).unwrap();
        folder.set("value", b"1").unwrap();
        // A file cannot be renamed to a folder.
        fs::create_dir(folder.path_of("folder")).unwrap();
        assert!(folder.set("folder", b"1").is_err());
        let mut remaining_files: Vec<_> =
            fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let mut expected = vec![folder.path_of("folder"), folder.path_of("value")];
        remaining_files.sort();
        expected.sort();
        assert_eq!(remaining_files, expected);
    }
}

//! A store that is a folder: a file for each name. A value is written elsewhere and moved into its place, so nobody reads half
//! of one; sums are made under a lock of the system's, which ends with the process that holds it.

use super::{number, system};
use crate::{base::deadline::Deadline, error::Result};
use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions, TryLockError},
    hash::{DefaultHasher, Hasher},
    io::{self, ErrorKind, Read, Write as _},
    path::PathBuf,
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
        let (mut file, draft) = self.draft(random).map_err(|error| system("making a file", &error))?;
        let moved = file.write_all(value).and_then(|()| fs::rename(&draft, self.place(name)));
        if moved.is_err() {
            // It is of no use to anybody, and in nobody's way.
            let _ = fs::remove_file(&draft);
        }
        moved.map_err(|error| system("writing a file", &error))
    }

    /// A file that nobody else has, by one of these names. Neither the host's name nor the process's number tells writers
    /// apart: containers may have both in common.
    fn draft(&self, mut name: impl FnMut() -> io::Result<String>) -> io::Result<(File, PathBuf)> {
        loop {
            let path = self.path.join(format!("draft-{}", name()?));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((file, path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
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
    pub fn add(&self, name: &str, amount: i64, patience: &Deadline) -> Result<i64> {
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

/// A name that was not there before.
fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Takes the lock of a file, until that is closed.
fn take(lock: &File, patience: &Deadline) -> Result<()> {
    patience.with_reset_backoff().until(
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

    #[test]
    fn a_draft_is_never_what_another_writes() {
        let path = std::env::temp_dir().join(format!("plinth-store-draft-{}", random().unwrap()));
        let folder = Folder::open(path.to_str().unwrap()).unwrap();
        let name = |number: u32| Ok(number.to_string());
        let (mut first, taken) = folder.draft(|| name(1)).unwrap();
        first.write_all(b"half of").unwrap();
        let mut number = 0;
        let (second, other) = folder
            .draft(|| {
                number += 1;
                name(number)
            })
            .unwrap();
        assert_eq!((number, other.file_name().unwrap().to_str().unwrap()), (2, "draft-2"));
        first.write_all(b" a value").unwrap();
        assert_eq!(fs::read(&taken).unwrap(), b"half of a value");
        assert_eq!(second.metadata().unwrap().len(), 0);
        assert_ne!(random().unwrap(), random().unwrap());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn writing_leaves_no_draft() {
        let path = std::env::temp_dir().join(format!("plinth-store-tidy-{}", random().unwrap()));
        let folder = Folder::open(path.to_str().unwrap()).unwrap();
        folder.set("value", b"1").unwrap();
        // Nothing is moved onto a folder.
        fs::create_dir(folder.place("folder")).unwrap();
        assert!(folder.set("folder", b"1").is_err());
        let mut left: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
        let mut wanted = vec![folder.place("folder"), folder.place("value")];
        left.sort();
        wanted.sort();
        assert_eq!(left, wanted);
        fs::remove_dir_all(path).unwrap();
    }
}

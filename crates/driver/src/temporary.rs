//! Temporary folders: private to the user, and removed when their value is dropped.
//!
//! A process that is killed leaves its folders behind. Each folder is locked while its process lives, and the first
//! folder of a process removes those of the user that are not.

use crate::{environment::Environment, user};
use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use tempfile::{Builder, TempDir};

/// The start of the names of the folders.
const PREFIX: &str = "plinth-temporary-";

/// A temporary folder.
#[derive(Debug)]
pub struct Folder {
    directory: TempDir,
    /// `None` if the file system has no locks; then no process removes the folder of another.
    _lock: Option<File>,
}

impl Folder {
    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Returns the system's folder for temporary files: `TMPDIR` if its path is absolute, else `/tmp`.
pub fn root() -> PathBuf {
    root_of(&Environment::of_process())
}

fn root_of(environment: &Environment) -> PathBuf {
    environment.folder("TMPDIR").unwrap_or_else(|| "/tmp".into())
}

/// Creates an empty folder in the system's folder for temporary files, without access for other users.
pub fn folder() -> io::Result<Folder> {
    static REMOVED_STALE: AtomicBool = AtomicBool::new(false);
    let parent = root();
    if !REMOVED_STALE.swap(true, Ordering::Relaxed) {
        remove_stale(&parent);
    }
    folder_in(&parent)
}

fn folder_in(parent: &Path) -> io::Result<Folder> {
    loop {
        let directory = Builder::new().prefix(PREFIX).permissions(Permissions::from_mode(0o700)).tempdir_in(parent)?;
        match lock(directory.path()) {
            Ok(lock) => return Ok(Folder { directory, _lock: Some(lock) }),
            // Another process was about to remove it before it was locked.
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Err(TryLockError::Error(_)) => return Ok(Folder { directory, _lock: None }),
        }
    }
}

/// Locks a folder of this user. Fails with `NotFound` if it is not there any more.
fn lock(path: &Path) -> Result<File, TryLockError> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(TryLockError::Error)?;
    folder.try_lock()?;
    let is_same = || -> io::Result<bool> {
        let (here, there) = (folder.metadata()?, fs::symlink_metadata(path)?);
        Ok((here.dev(), here.ino()) == (there.dev(), there.ino()) && here.uid() == user::effective())
    };
    match is_same() {
        Ok(true) => Ok(folder),
        Ok(false) => Err(TryLockError::Error(io::ErrorKind::NotFound.into())),
        Err(error) => Err(TryLockError::Error(error)),
    }
}

/// Removes the folders of this user whose processes have ended. What cannot be removed does no harm.
fn remove_stale(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && let Ok(_lock) = lock(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_root_is_absolute() {
        for (value, root) in [("", "/tmp"), (".", "/tmp"), ("relative", "/tmp"), ("/scratch", "/scratch")] {
            assert_eq!(root_of(&Environment::new(false, &|_| Some(value.into()))), PathBuf::from(root));
        }
        assert_eq!(root_of(&Environment::new(true, &|_| Some("/scratch".into()))), PathBuf::from("/tmp"));
    }

    #[test]
    fn folders_are_private_and_removed_on_drop() {
        let (one, other) = (folder().unwrap(), folder().unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(one.path().join("file"), "text").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_ended_processes_are_removed() {
        let root = folder().unwrap();
        let path = |name: &str| root.path().join(name);
        let living = folder_in(root.path()).unwrap();
        // A process that is killed does not remove its folder, and the kernel drops its lock.
        let killed = folder_in(root.path()).unwrap().directory.keep();
        fs::write(killed.join("kernel.cpp"), "text").unwrap();
        fs::create_dir(path("another")).unwrap();
        symlink(path("another"), path("plinth-temporary-link")).unwrap();
        fs::write(path("plinth-temporary-file"), "text").unwrap();
        remove_stale(root.path());
        assert!(!killed.exists());
        assert!(living.path().exists() && path("another").exists());
        assert!(path("plinth-temporary-link").is_symlink() && path("plinth-temporary-file").exists());
    }
}

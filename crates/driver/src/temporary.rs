//! Temporary folders: private to the user, and removed when their value is dropped.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A folder in the system's folder for temporary files (`TMPDIR`), without access for other users.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder.
    pub fn new() -> io::Result<Folder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (root, process) = (std::env::temp_dir(), std::process::id());
        // A process with the same id may have ended without removing its folder.
        for _ in 0..1000 {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = root.join(format!("plinth-{process}-{number}"));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
            }
        }
        Err(io::Error::other(format!(
            "creating a temporary folder in {}: 1000 names are in use; remove old plinth-* folders",
            root.display()
        )))
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If the folder cannot be removed, the system's clean-up of temporary files has to do it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn folders_are_private_and_removed_on_drop() {
        let (one, other) = (Folder::new().unwrap(), Folder::new().unwrap());
        assert_ne!(one.path(), other.path());
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(one.path().join("file"), "text").unwrap();
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists());
    }
}

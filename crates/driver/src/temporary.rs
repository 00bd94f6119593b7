//! Temporary folders: private to the user, and removed when their value is dropped.

use std::{fs::Permissions, io, os::unix::fs::PermissionsExt};
use tempfile::{Builder, TempDir};

/// Creates an empty folder in the system's folder for temporary files (`TMPDIR`), without access for other users.
pub fn folder() -> io::Result<TempDir> {
    Builder::new().prefix("plinth-").permissions(Permissions::from_mode(0o700)).tempdir()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
}

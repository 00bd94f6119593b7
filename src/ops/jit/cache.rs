//! The on-disk cache of compiled kernels.
//!
//! The folder is `PLINTH_KERNEL_CACHE_PATH`, else `plinth/kernels` in `XDG_CACHE_HOME`, else `.cache/plinth/kernels` in
//! `HOME`; `PLINTH_USE_KERNEL_CACHE=0` disables the cache. The folder is created with permissions for its owner only.
//! Cached files are executed, so files that other users could have written are not trusted: folder and file must belong
//! to this user and must not be writable by others. A file contains its checksum and its key; a damaged file is ignored
//! and rewritten. A file is written under a temporary name and renamed, so that no process reads a partial file. If the
//! folder cannot be created or written, the cache is not used.

use super::digest::{Digest, hex, sha256};
use crate::driver::user;
use std::{
    env, fs,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use tempfile::Builder;

/// The start of every file; the number is the version of the layout.
const MAGIC: &[u8; 8] = b"plinthK1";
/// Magic, key, checksum, length.
const HEADER: usize = 8 + 32 + 32 + 8;
/// The maximum size of a kernel's image.
const MAX_BYTES: u64 = 1 << 30;
/// The write permissions of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// A cache on disk, or a disabled cache.
pub struct Cache {
    folder: Option<PathBuf>,
}

fn set(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the folder that the environment selects.
fn folder() -> Option<PathBuf> {
    if env::var_os("PLINTH_USE_KERNEL_CACHE").is_some_and(|value| value == "0") {
        return None;
    }
    // The XDG specification requires that relative paths are ignored.
    let in_xdg_cache = || set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let in_home = || set("HOME").map(|home| home.join(".cache"));
    set("PLINTH_KERNEL_CACHE_PATH").or_else(|| Some(in_xdg_cache().or_else(in_home)?.join("plinth/kernels")))
}

fn is_trusted(found: &fs::Metadata) -> bool {
    found.uid() == user::effective() && found.mode() & OTHERS_WRITE == 0
}

impl Cache {
    /// Returns the cache that the environment selects.
    pub fn from_environment() -> Cache {
        Cache { folder: folder() }
    }

    /// Returns the folder, if it is trusted.
    fn trusted_folder(&self) -> Option<&Path> {
        let folder = self.folder.as_deref()?;
        fs::metadata(folder).is_ok_and(|found| found.is_dir() && is_trusted(&found)).then_some(folder)
    }

    /// Returns the content of a file, if it is intact and has this key.
    pub fn read(&self, name: &str, key: &Digest) -> Option<Vec<u8>> {
        let path = self.trusted_folder()?.join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || !is_trusted(&found) || found.len() > MAX_BYTES {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (header, content) = bytes.split_at_checked(HEADER)?;
        let intact = header[..8] == *MAGIC
            && header[8..40] == *key
            && header[40..72] == sha256(content)
            && header[72..] == (content.len() as u64).to_le_bytes();
        if intact { Some(bytes.split_off(HEADER)) } else { None }
    }

    /// Writes a file. Returns whether that succeeded.
    pub fn write(&self, name: &str, key: &Digest, content: &[u8]) -> bool {
        let Some(folder) = self.folder.as_deref() else { return false };
        if fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).is_err() || self.trusted_folder().is_none()
        {
            return false;
        }
        let written = || -> std::io::Result<()> {
            // Without access for other users, which is the default.
            let mut file = Builder::new().prefix(&format!("{name}.")).suffix(".tmp").tempfile_in(folder)?;
            file.write_all(MAGIC)?;
            file.write_all(key)?;
            file.write_all(&sha256(content))?;
            file.write_all(&(content.len() as u64).to_le_bytes())?;
            file.write_all(content)?;
            file.persist(folder.join(name))?;
            Ok(())
        };
        written().is_ok()
    }
}

/// Returns the file name of a kernel.
pub fn file_name(kernel: &str, target: &str, key: &Digest) -> String {
    let plain = |text: &str, limit: usize| -> String {
        let content = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '-' });
        content.take(limit).collect()
    };
    format!("{}_{}_{}", plain(kernel, 64), plain(target, 32), hex(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary;
    use std::os::unix::fs::PermissionsExt;
    use tempfile::TempDir;

    const KEY: Digest = [7; 32];

    fn cache(folder: &TempDir) -> Cache {
        Cache { folder: Some(folder.path().join("deep/kernels")) }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn written_files_are_read() {
        let folder = temporary::folder().unwrap();
        let cache = cache(&folder);
        assert_eq!(cache.read("one", &KEY), None);
        assert!(cache.write("one", &KEY, b"kernel"));
        assert_eq!(cache.read("one", &KEY).unwrap(), b"kernel");
        assert!(cache.write("one", &KEY, b"another"));
        assert_eq!(cache.read("one", &KEY).unwrap(), b"another");
        assert_eq!(cache.read("one", &[8; 32]), None);
        let path = cache.folder.as_ref().unwrap();
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path).unwrap().count(), 1);
    }

    #[test]
    fn every_damage_is_detected() {
        let folder = temporary::folder().unwrap();
        let cache = cache(&folder);
        assert!(cache.write("one", &KEY, b"some kernel"));
        let path = cache.folder.as_ref().unwrap().join("one");
        let intact = fs::read(&path).unwrap();
        for at in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.read("one", &KEY), None, "{at}");
            fs::write(&path, &intact[..at]).unwrap();
            assert_eq!(cache.read("one", &KEY), None, "{at}");
        }
        fs::write(&path, &intact).unwrap();
        assert!(cache.read("one", &KEY).is_some());
    }

    #[test]
    fn files_writable_by_others_are_not_trusted() {
        let folder = temporary::folder().unwrap();
        let cache = cache(&folder);
        assert!(cache.write("one", &KEY, b"kernel"));
        let path = cache.folder.clone().unwrap();
        set_mode(&path.join("one"), 0o620);
        assert_eq!(cache.read("one", &KEY), None);
        set_mode(&path.join("one"), 0o600);
        set_mode(&path, 0o702);
        assert_eq!(cache.read("one", &KEY), None);
        assert!(!cache.write("two", &KEY, b"kernel"));
        set_mode(&path, 0o700);
        assert!(cache.read("one", &KEY).is_some());
        fs::rename(path.join("one"), path.join("real")).unwrap();
        std::os::unix::fs::symlink(path.join("real"), path.join("one")).unwrap();
        assert_eq!(cache.read("one", &KEY), None);
    }

    #[test]
    fn an_impossible_folder_disables_the_cache() {
        let folder = temporary::folder().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let cache = Cache { folder: Some(folder.path().join("file/kernels")) };
        assert!(!cache.write("one", &KEY, b"kernel"));
        assert_eq!(cache.read("one", &KEY), None);
        assert!(!Cache { folder: None }.write("one", &KEY, b"kernel"));
    }

    #[test]
    fn file_names_are_sanitized() {
        let name = file_name("my/kernel<int>", "sm_90", &KEY);
        assert!(name.starts_with("my-kernel-int-_sm_90_0707"), "{name}");
    }
}

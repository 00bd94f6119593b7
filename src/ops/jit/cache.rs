//! Compiled kernels on disk, from one run to the next.
//!
//! The folder is `PLINTH_KERNEL_CACHE_PATH`; else `plinth/kernels` in `XDG_CACHE_HOME`; else `.cache/plinth/kernels` in `HOME`;
//! `PLINTH_USE_KERNEL_CACHE=0` means none. It is made with rights for its user alone. What is read from it is executed, so
//! nothing is believed that others could have written: folder and file must belong to this user, and nobody else may
//! write to them. A file has its checksum and what it was made for; one that is damaged counts as none, and is
//! written anew. Files are written under another name and renamed, so that nobody sees half of one. A folder that cannot
//! be made or written to is done without.

use super::digest::{Digest, hex, sha256};
use crate::driver::user;
use std::{
    env, fs,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// How a file begins; the number is that of this layout.
const MAGIC: &[u8; 8] = b"plinthK1";
/// Magic, what it was made for, the checksum, the length.
const HEADER: usize = 8 + 32 + 32 + 8;
/// More than any kernel has.
const MOST: u64 = 1 << 30;
/// Only the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// A cache on disk, or none.
pub struct Cache {
    folder: Option<PathBuf>,
}

fn set(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The folder that the environment says.
fn folder() -> Option<PathBuf> {
    if env::var_os("PLINTH_USE_KERNEL_CACHE").is_some_and(|value| value == "0") {
        return None;
    }
    // The standard of XDG has it that a relative path is ignored.
    let by_user = || set("XDG_CACHE_HOME").filter(|path| path.is_absolute());
    let by_home = || set("HOME").map(|home| home.join(".cache"));
    set("PLINTH_KERNEL_CACHE_PATH").or_else(|| Some(by_user().or_else(by_home)?.join("plinth/kernels")))
}

fn is_ours(found: &fs::Metadata) -> bool {
    found.uid() == user::effective() && found.mode() & OTHERS_WRITE == 0
}

impl Cache {
    /// The cache that the environment asks for.
    pub fn of_environment() -> Cache {
        Cache { folder: folder() }
    }

    /// The folder, if it may be believed.
    fn believed(&self) -> Option<&Path> {
        let folder = self.folder.as_deref()?;
        fs::metadata(folder).is_ok_and(|found| found.is_dir() && is_ours(&found)).then_some(folder)
    }

    /// What was kept under a name for something, if it is whole.
    pub fn read(&self, name: &str, made_for: &Digest) -> Option<Vec<u8>> {
        let path = self.believed()?.join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || !is_ours(&found) || found.len() > MOST {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (header, kept) = bytes.split_at_checked(HEADER)?;
        let whole = header[..8] == *MAGIC
            && header[8..40] == *made_for
            && header[40..72] == sha256(kept)
            && header[72..] == (kept.len() as u64).to_le_bytes();
        if whole { Some(bytes.split_off(HEADER)) } else { None }
    }

    /// Keeps something under a name. Says whether that was possible.
    pub fn write(&self, name: &str, made_for: &Digest, kept: &[u8]) -> bool {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let Some(folder) = self.folder.as_deref() else { return false };
        if fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).is_err() || self.believed().is_none() {
            return false;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let waiting = folder.join(format!("{name}.{}.{number}.tmp", std::process::id()));
        let written = || -> std::io::Result<()> {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&waiting)?;
            file.write_all(MAGIC)?;
            file.write_all(made_for)?;
            file.write_all(&sha256(kept))?;
            file.write_all(&(kept.len() as u64).to_le_bytes())?;
            file.write_all(kept)?;
            fs::rename(&waiting, folder.join(name))
        };
        let done = written().is_ok();
        if !done {
            let _ = fs::remove_file(&waiting);
        }
        done
    }
}

/// The name of a kernel's file.
pub fn file_name(kernel: &str, target: &str, made_for: &Digest) -> String {
    let plain = |text: &str, most: usize| -> String {
        let kept = text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '-' });
        kept.take(most).collect()
    };
    format!("{}_{}_{}", plain(kernel, 64), plain(target, 32), hex(made_for))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Folder;
    use std::os::unix::fs::PermissionsExt;

    const FOR: Digest = [7; 32];

    fn cache(folder: &Folder) -> Cache {
        Cache { folder: Some(folder.path().join("deep/kernels")) }
    }

    fn rights(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_was_kept_is_read() {
        let folder = Folder::new().unwrap();
        let cache = cache(&folder);
        assert_eq!(cache.read("one", &FOR), None);
        assert!(cache.write("one", &FOR, b"kernel"));
        assert_eq!(cache.read("one", &FOR).unwrap(), b"kernel");
        assert!(cache.write("one", &FOR, b"another"));
        assert_eq!(cache.read("one", &FOR).unwrap(), b"another");
        assert_eq!(cache.read("one", &[8; 32]), None);
        let path = cache.folder.as_ref().unwrap();
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path).unwrap().count(), 1);
    }

    #[test]
    fn every_damage_is_noticed() {
        let folder = Folder::new().unwrap();
        let cache = cache(&folder);
        assert!(cache.write("one", &FOR, b"some kernel"));
        let path = cache.folder.as_ref().unwrap().join("one");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.read("one", &FOR), None, "{at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.read("one", &FOR), None, "{at}");
        }
        fs::write(&path, &whole).unwrap();
        assert!(cache.read("one", &FOR).is_some());
    }

    #[test]
    fn what_others_can_write_is_not_believed() {
        let folder = Folder::new().unwrap();
        let cache = cache(&folder);
        assert!(cache.write("one", &FOR, b"kernel"));
        let path = cache.folder.clone().unwrap();
        rights(&path.join("one"), 0o620);
        assert_eq!(cache.read("one", &FOR), None);
        rights(&path.join("one"), 0o600);
        rights(&path, 0o702);
        assert_eq!(cache.read("one", &FOR), None);
        assert!(!cache.write("two", &FOR, b"kernel"));
        rights(&path, 0o700);
        assert!(cache.read("one", &FOR).is_some());
        fs::rename(path.join("one"), path.join("real")).unwrap();
        std::os::unix::fs::symlink(path.join("real"), path.join("one")).unwrap();
        assert_eq!(cache.read("one", &FOR), None);
    }

    #[test]
    fn a_folder_that_cannot_be_is_done_without() {
        let folder = Folder::new().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let cache = Cache { folder: Some(folder.path().join("file/kernels")) };
        assert!(!cache.write("one", &FOR, b"kernel"));
        assert_eq!(cache.read("one", &FOR), None);
        assert!(!Cache { folder: None }.write("one", &FOR, b"kernel"));
    }

    #[test]
    fn names_are_plain() {
        let name = file_name("my/kernel<int>", "sm_90", &FOR);
        assert!(name.starts_with("my-kernel-int-_sm_90_0707"), "{name}");
    }
}

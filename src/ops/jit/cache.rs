//! The on-disk cache of compiled kernels.
//!
//! The folder is `PLINTH_KERNEL_CACHE_PATH`, else `plinth/kernels` in `XDG_CACHE_HOME`, else `.cache/plinth/kernels` in
//! `HOME`; `PLINTH_USE_KERNEL_CACHE=0` disables the cache. Only absolute paths are used. A process with more rights than
//! its user has no cache, because the user could write its files. The folder is created with permissions for its owner only.
//! Cached files are executed, so files that other users could have written are not trusted: folder and file must belong
//! to this user and must not be writable by others. A file contains its checksum and its key; a damaged file is ignored
//! and rewritten. A file is written under a temporary name and renamed, so that no process reads a partial file. If the
//! folder cannot be created or written, the cache is not used. The log has a warning for each of these causes, once in a
//! process.
//!
//! The files together have at most `PLINTH_KERNEL_CACHE_MAX_BYTES` bytes, 1 GiB by default: a write removes the files that
//! were not used for the longest time. A file's modification time is the time of its last use, to the hour.

use super::digest::{Digest, hex, sha256};
use crate::{
    base::log,
    driver::{
        environment::{self, Environment},
        user,
    },
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use std::{
    env, fs,
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::{Duration, SystemTime},
};
use tempfile::Builder;

const USE_VARIABLE: &str = "PLINTH_USE_KERNEL_CACHE";
/// The start of every file; the number is the version of the layout.
const MAGIC: &[u8; 8] = b"plinthK1";
/// Magic, key, checksum, length.
const HEADER: usize = 8 + 32 + 32 + 8;
/// The maximum size of a kernel's image.
const MAX_BYTES: u64 = 1 << 30;
/// The write permissions of group and others.
const OTHERS_WRITE: u32 = 0o022;

/// The default limit of the files together.
const DEFAULT_LIMIT: u64 = 1 << 30;
/// A file is marked as used at most this often.
const USE_INTERVAL: Duration = Duration::from_secs(3600);
/// The end of the names of files that are being written.
const TEMPORARY: &str = ".tmp";

/// Returns whether a name of [`file_name`] is that of a file that is being written; `None` for another name.
fn kind_of_name(name: &str) -> Option<bool> {
    let (finished, is_temporary) = match name.strip_suffix(TEMPORARY) {
        Some(rest) => (rest.rsplit_once('.')?.0, true),
        None => (name, false),
    };
    let (_, key) = finished.rsplit_once('_')?;
    let is_key = key.len() == 2 * size_of::<Digest>() && key.bytes().all(|letter| letter.is_ascii_hexdigit());
    is_key.then_some(is_temporary)
}

/// A cache on disk, or a disabled cache.
pub struct Cache {
    folder: Option<PathBuf>,
    /// The limit of the files together, in bytes.
    limit: u64,
}

/// Returns the folder that the environment selects.
fn folder(environment: &Environment) -> Result<Option<PathBuf>> {
    let named = environment.path("PLINTH_KERNEL_CACHE_PATH");
    if let Some(folder) = named.map_err(|reason| Error::new(Status::INVALID_CONFIGURATION, reason))? {
        return Ok(Some(folder));
    }
    // The XDG specification requires that relative paths are ignored.
    let home = || environment.folder("HOME").map(|home| home.join(".cache"));
    Ok(environment.folder("XDG_CACHE_HOME").or_else(home).map(|folder| folder.join("plinth/kernels")))
}

fn is_trusted(found: &fs::Metadata) -> bool {
    found.uid() == user::effective() && found.mode() & OTHERS_WRITE == 0
}

/// Parses the limit of the files together.
fn limit(text: Option<&str>) -> Result<u64> {
    let Some(text) = text else { return Ok(DEFAULT_LIMIT) };
    text.trim().parse().map_err(|_| {
        Error::new(
            Status::INVALID_CONFIGURATION,
            format!("PLINTH_KERNEL_CACHE_MAX_BYTES is {text:?}; its form is a number of bytes"),
        )
    })
}

impl Cache {
    /// Returns the process's cache, which the environment selects.
    pub fn get() -> Result<&'static Cache> {
        static CACHE: OnceCell<Cache> = OnceCell::new();
        CACHE.get_or_try_init(|| {
            let text = env::var_os("PLINTH_KERNEL_CACHE_MAX_BYTES").map(|text| text.to_string_lossy().into_owned());
            let is_used = environment::switch(USE_VARIABLE, env::var_os(USE_VARIABLE))?;
            let folder = if is_used == Some(false) { None } else { folder(&Environment::of_process())? };
            Ok(Cache { folder, limit: limit(text.as_deref())? })
        })
    }

    /// Returns whether the environment disables the cache.
    pub fn is_disabled(&self) -> bool {
        self.folder.is_none()
    }

    /// Removes the files that were not used for the longest time until the others keep the limit, and files that a
    /// process left unfinished. Other files in the folder are not the cache's.
    fn evict(&self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in entries.flatten() {
            let Ok(found) = entry.metadata() else { continue };
            let (path, used) = (entry.path(), found.modified().unwrap_or(SystemTime::UNIX_EPOCH));
            let name = entry.file_name();
            let Some(is_temporary) = name.to_str().and_then(kind_of_name).filter(|_| found.is_file()) else { continue };
            match used.elapsed() {
                Ok(age) if is_temporary && age > USE_INTERVAL => drop(fs::remove_file(path)),
                _ if is_temporary => {}
                _ => files.push((used, found.len(), path)),
            }
        }
        let mut total: u64 = files.iter().map(|file| file.1).sum();
        files.sort_unstable();
        for (_, bytes, path) in files {
            if total <= self.limit {
                return;
            }
            // Another process may have removed it.
            let _ = fs::remove_file(path);
            total -= bytes;
        }
    }

    /// Returns the folder, if it exists and is trusted.
    fn trusted_folder(&self) -> Option<&Path> {
        static IS_LOGGED: AtomicBool = AtomicBool::new(false);
        let folder = self.folder.as_deref()?;
        let found = fs::metadata(folder).ok()?;
        if found.is_dir() && is_trusted(&found) {
            return Some(folder);
        }
        log::warning_once(&IS_LOGGED, || {
            format!(
                "kernels are not cached in {}: it is not a folder that only this user can write; remove the write \
                 permission of others, or set PLINTH_KERNEL_CACHE_PATH to another folder",
                folder.display()
            )
        });
        None
    }

    /// Returns the content of a file, if it is intact and has this key.
    pub fn read(&self, name: &str, key: &Digest) -> Option<Vec<u8>> {
        static IS_FAILURE_LOGGED: AtomicBool = AtomicBool::new(false);
        static IS_DAMAGE_LOGGED: AtomicBool = AtomicBool::new(false);
        let path = self.trusted_folder()?.join(name);
        let bytes = read_trusted(&path).unwrap_or_else(|error| {
            log::warning_once(&IS_FAILURE_LOGGED, || {
                format!("the cached kernel {} is compiled again and replaced: {error}", path.display())
            });
            None
        })?;
        let content = content(bytes, key);
        if content.is_none() {
            log::warning_once(&IS_DAMAGE_LOGGED, || {
                format!("the cached kernel {} is compiled again and replaced: the file is damaged", path.display())
            });
        }
        content
    }

    /// Writes a file. Returns whether that succeeded.
    pub fn write(&self, name: &str, key: &Digest, content: &[u8]) -> bool {
        static IS_LOGGED: AtomicBool = AtomicBool::new(false);
        let Some(folder) = self.folder.as_deref() else { return false };
        let fail = |error: io::Error| {
            log::warning_once(&IS_LOGGED, || {
                format!(
                    "kernels are not cached in {}: {error}; make the folder writable, or set PLINTH_KERNEL_CACHE_PATH \
                     to another folder or PLINTH_USE_KERNEL_CACHE to 0",
                    folder.display()
                )
            });
        };
        if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder) {
            fail(error);
            return false;
        }
        if self.trusted_folder().is_none() {
            return false;
        }
        let write = || -> io::Result<()> {
            // Without access for other users, which is the default.
            let mut file = Builder::new().prefix(&format!("{name}.")).suffix(TEMPORARY).tempfile_in(folder)?;
            file.write_all(MAGIC)?;
            file.write_all(key)?;
            file.write_all(&sha256(content))?;
            file.write_all(&(content.len() as u64).to_le_bytes())?;
            file.write_all(content)?;
            file.persist(folder.join(name))?;
            Ok(())
        };
        let is_written = write().map_err(fail).is_ok();
        self.evict(folder);
        is_written
    }
}

/// Reads a file; `None` if it does not exist. A file that is not trusted is an error.
fn read_trusted(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut options = fs::OpenOptions::new();
    let mut file = match options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = file.metadata()?;
    if !found.is_file() || !is_trusted(&found) || found.len() > MAX_BYTES {
        return Err(io::Error::other("it is not a file of at most 1 GiB that only this user can write"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if found.modified().ok().and_then(|used| used.elapsed().ok()).is_some_and(|age| age > USE_INTERVAL) {
        // On a file system where that fails, the file may be removed early.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(Some(bytes))
}

/// Returns the content of a file's bytes; `None` if they are damaged or have another key.
fn content(mut bytes: Vec<u8>, key: &Digest) -> Option<Vec<u8>> {
    let (header, content) = bytes.split_at_checked(HEADER)?;
    let intact = header[..8] == *MAGIC
        && header[8..40] == *key
        && header[40..72] == sha256(content)
        && header[72..] == (content.len() as u64).to_le_bytes();
    if intact { Some(bytes.split_off(HEADER)) } else { None }
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
    use crate::temporary::Folder;
    use std::os::unix::fs::PermissionsExt;

    const KEY: Digest = [7; 32];

    fn cache(folder: &Folder) -> Cache {
        Cache { folder: Some(folder.path().join("deep/kernels")), limit: DEFAULT_LIMIT }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn the_folder_is_absolute() {
        let of = |is_secure: bool, variables: [Option<&str>; 3]| {
            let read = |name: &str| {
                let index =
                    ["PLINTH_KERNEL_CACHE_PATH", "XDG_CACHE_HOME", "HOME"].iter().position(|known| *known == name);
                variables[index?].map(Into::into)
            };
            folder(&Environment::new(is_secure, &read))
        };
        let some = |path: &str| Some(PathBuf::from(path));
        assert_eq!(of(false, [Some("/a"), Some("/b"), Some("/c")]).unwrap(), some("/a"));
        assert_eq!(of(false, [None, Some("/b"), Some("/c")]).unwrap(), some("/b/plinth/kernels"));
        assert_eq!(of(true, [Some("/a"), Some("/b"), Some("/c")]).unwrap(), None);
        for relative in ["", ".", "relative", "../relative"] {
            assert_eq!(of(false, [Some(""), Some(relative), Some("/c")]).unwrap(), some("/c/.cache/plinth/kernels"));
            assert_eq!(of(false, [None, Some(relative), Some(relative)]).unwrap(), None);
            if !relative.is_empty() {
                let error = of(false, [Some(relative), Some("/b"), Some("/c")]).unwrap_err();
                assert_eq!(error.status(), Status::INVALID_CONFIGURATION);
                assert!(error.message().contains("absolute"), "{error}");
            }
        }
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
        let cache = Cache { folder: Some(folder.path().join("file/kernels")), limit: DEFAULT_LIMIT };
        assert!(!cache.write("one", &KEY, b"kernel"));
        assert_eq!(cache.read("one", &KEY), None);
        assert!(!Cache { folder: None, limit: DEFAULT_LIMIT }.write("one", &KEY, b"kernel"));
    }

    #[test]
    fn the_least_recently_used_files_are_removed() {
        let folder = temporary::folder().unwrap();
        let limit = 3 * (HEADER as u64 + 1000);
        let cache = Cache { limit, ..cache(&folder) };
        let path = |name: &str| cache.folder.as_ref().unwrap().join(name);
        let set_age = |name: &str, hours: u64| {
            let file = fs::File::options().write(true).open(path(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(3600 * hours)).unwrap();
        };
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(|kernel| file_name(kernel, "sm_90", &KEY));
        for (age, name) in [&a, &b, &c].into_iter().enumerate() {
            assert!(cache.write(name, &KEY, &[0; 1000]));
            set_age(name, 20 - age as u64);
        }
        let [old, new] = ["old", "new"].map(|middle| format!("{a}.{middle}.tmp"));
        // Files of the user's, in a folder that is not the cache's alone.
        let others = ["notes", "notes.tmp", "kernel_0123.tmp"];
        for name in [&old, &new].into_iter().map(String::as_str).chain(others) {
            fs::write(path(name), [0; 5000]).unwrap();
        }
        for name in [&old, "notes", "notes.tmp", "kernel_0123.tmp"] {
            set_age(name, 100);
        }
        // A use, after which the second file is the oldest.
        assert!(cache.read(&a, &KEY).is_some());
        assert!(cache.write(&d, &KEY, &[0; 1000]));
        let exist = [&a, &b, &c, &d, &old, &new].map(|name| path(name).exists());
        assert_eq!(exist, [true, false, true, true, false, true]);
        assert!(others.iter().all(|name| path(name).exists()));
        // A file that exceeds the limit alone is not kept.
        assert!(cache.write(&e, &KEY, &[0; 5000]));
        assert_eq!(cache.read(&e, &KEY), None);
    }

    #[test]
    fn the_limit_is_a_number_of_bytes() {
        assert_eq!(limit(None).unwrap(), DEFAULT_LIMIT);
        assert_eq!(limit(Some(" 4096 ")).unwrap(), 4096);
        assert!(limit(Some("1 GiB")).unwrap_err().message().contains("PLINTH_KERNEL_CACHE_MAX_BYTES is \"1 GiB\""));
    }

    #[test]
    fn file_names_are_sanitized() {
        let name = file_name("my/kernel<int>", "sm_90", &KEY);
        assert!(name.starts_with("my-kernel-int-_sm_90_0707"), "{name}");
    }
}

//! Files that are there whole or not at all: written beside the target under another name, and renamed at the end.

use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufWriter, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// What is collected before it is written.
const BUFFER: usize = 256 << 10;

/// Writes a file, in place of what has its name. What is no file (a pipe, a terminal) is written to as it is, and a link
/// stays one. The permissions are those of what was there.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let failed = |error: io::Error| {
        Error::new(Status::SYSTEM, format!("cannot write a snapshot to {}: {error}", path.display()))
    };
    let is_special = fs::metadata(path).is_ok_and(|target| !target.is_file() && !target.is_dir());
    if is_special {
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        return fill(file, write).map_err(failed);
    }
    let target = behind_links(path);
    // Whoever may not read what is there may not read what comes in its place, not even while it is written.
    let mode = fs::metadata(&target).ok().map(|old| old.permissions().mode() & 0o777);
    let (file, beside) = create_beside(&target, mode).map_err(failed)?;
    let outcome = fill(file, write).and_then(|()| fs::rename(&beside, &target));
    if outcome.is_err() {
        // It is there; and if it cannot be removed, the error to tell is the first.
        let _ = fs::remove_file(&beside);
    }
    outcome.map_err(failed)
}

/// The file that is meant by a path that may be a link, whether it is there or not.
fn behind_links(path: &Path) -> PathBuf {
    /// As many as the system itself follows.
    const MOST: u32 = 40;
    if fs::metadata(path).is_ok() {
        return fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    }
    let mut target = path.to_path_buf();
    for _ in 0..MOST {
        let Ok(next) = fs::read_link(&target) else { return target };
        // An absolute one takes the place of the folder, too.
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    // A circle leads to no file: it is replaced.
    path.to_path_buf()
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(BUFFER, file);
    write(&mut buffered)?;
    buffered.flush()
}

/// Makes a file that was not there, in the folder of `target`, with the permissions `mode` if they are given.
fn create_beside(target: &Path, mode: Option<u32>) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(name) = target.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    loop {
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let beside = target.with_file_name(beside);
        match OpenOptions::new().write(true).create_new(true).mode(mode.unwrap_or(0o666)).open(&beside) {
            Ok(file) => {
                // The process's mask has taken some away. Where they cannot be given back, it has too few rather than too many.
                let _ = mode.map(|mode| file.set_permissions(Permissions::from_mode(mode)));
                return Ok((file, beside));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

//! Atomic replacement of files: the new contents are written to a temporary file next to the target, which is renamed
//! at the end.

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

/// The size of the write buffer in bytes.
const BUFFER: usize = 256 << 10;

/// Replaces a file. A target that is not a regular file (a pipe, a terminal) is written to directly, and a symbolic
/// link is preserved. The permissions of an existing file are kept.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let failed = |error: io::Error| {
        Error::new(Status::SYSTEM, format!("cannot write a snapshot to {}: {error}", path.display()))
    };
    let is_special = fs::metadata(path).is_ok_and(|target| !target.is_file() && !target.is_dir());
    if is_special {
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        return fill(file, write).map_err(failed);
    }
    let target = resolve_links(path);
    // A user who may not read the old file must not be able to read the new one, not even while it is written.
    let mode = fs::metadata(&target).ok().map(|old| old.permissions().mode() & 0o777);
    let (file, temporary) = create_temporary(&target, mode).map_err(failed)?;
    let outcome = fill(file, write).and_then(|()| fs::rename(&temporary, &target));
    if outcome.is_err() {
        // The first error is the one to return.
        let _ = fs::remove_file(&temporary);
    }
    outcome.map_err(failed)
}

/// Returns the target of a path that may be a symbolic link. The target need not exist.
fn resolve_links(path: &Path) -> PathBuf {
    /// The limit of the kernel.
    const MAX_LINKS: u32 = 40;
    if fs::metadata(path).is_ok() {
        return fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    }
    let mut target = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&target) else { return target };
        // `join` replaces the folder if the link is absolute.
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    // A cycle of links has no target: the link itself is replaced.
    path.to_path_buf()
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(BUFFER, file);
    write(&mut buffered)?;
    buffered.flush()
}

/// Creates a new file in the folder of `target`, with the permissions `mode` if given.
fn create_temporary(target: &Path, mode: Option<u32>) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(name) = target.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    loop {
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let temporary = target.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).mode(mode.unwrap_or(0o666)).open(&temporary) {
            Ok(file) => {
                // The umask has removed some permissions. If they cannot be restored, the file has too few rather than
                // too many.
                let _ = mode.map(|mode| file.set_permissions(Permissions::from_mode(mode)));
                return Ok((file, temporary));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

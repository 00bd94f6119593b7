//! Atomic replacement of files: the new contents are written to a temporary file next to the target, which is renamed
//! at the end.

use crate::{
    driver::user,
    error::{Error, Result},
    status::Status,
};
use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufWriter, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};
use tempfile::{Builder, NamedTempFile};

/// The size of the write buffer in bytes.
const BUFFER: usize = 256 << 10;

/// Replaces a file. A target that is not a regular file (a pipe, a terminal) is written to directly, and a symbolic
/// link is preserved. The permissions of an existing file are kept. In a folder in which all users may create files, such
/// as /tmp, a link or a pipe of another user is refused, as the kernel does with fs.protected_symlinks.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let failed = |error: io::Error| {
        Error::new(Status::SYSTEM, format!("cannot write a snapshot to {}: {error}", path.display()))
    };
    let target = resolve_links(path).map_err(failed)?;
    let is_special = fs::metadata(path).is_ok_and(|target| !target.is_file() && !target.is_dir());
    if is_special {
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        return fill(&file, write).map_err(failed);
    }
    // A user who may not read the old file must not be able to read the new one, not even while it is written.
    let mode = fs::metadata(&target).ok().map(|old| old.permissions().mode() & 0o777);
    let temporary = create_temporary(&target, mode).map_err(failed)?;
    fill(temporary.as_file(), write).map_err(failed)?;
    temporary.persist(&target).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Returns the target of a path that may be a symbolic link. The target need not exist.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    /// The limit of the kernel.
    const MAX_LINKS: u32 = 40;
    let mut target = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok(found) = fs::symlink_metadata(&target) else { return Ok(target) };
        let folder = target.parent().unwrap_or(Path::new(""));
        if !found.is_file() && !found.is_dir() {
            check_owner(&found, folder)?;
        }
        if !found.is_symlink() {
            return Ok(target);
        }
        // `join` replaces the folder if the link is absolute.
        target = folder.join(fs::read_link(&target)?);
    }
    // A cycle of links has no target: the link itself is replaced.
    Ok(path.to_path_buf())
}

/// Refuses a link or a special file that another user may have put in place of the file.
fn check_owner(found: &fs::Metadata, folder: &Path) -> io::Result<()> {
    const SHARED: u32 = libc::S_ISVTX | libc::S_IWOTH;
    let folder = fs::metadata(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?;
    if folder.mode() & SHARED == SHARED && found.uid() != user::effective() && found.uid() != folder.uid() {
        let what = format!("it belongs to the user with number {} in a folder that all users share", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

fn fill(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(BUFFER, file);
    write(&mut buffered)?;
    buffered.flush()
}

/// Creates a new file in the folder of `target`, with the permissions `mode` if given.
fn create_temporary(target: &Path, mode: Option<u32>) -> io::Result<NamedTempFile> {
    let Some(folder) = target.parent() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let permissions = Permissions::from_mode(mode.unwrap_or(0o666));
    let temporary =
        Builder::new().prefix(".plinth-").suffix(".part").permissions(permissions.clone()).tempfile_in(folder)?;
    if mode.is_some() {
        // The umask has removed some permissions. If they cannot be restored, the file has too few rather than too
        // many.
        let _ = temporary.as_file().set_permissions(permissions);
    }
    Ok(temporary)
}

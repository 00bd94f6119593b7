//! Files that are there whole or not at all: written beside the target under another name, and renamed at the end.

use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// What is collected before it is written.
const BUFFER: usize = 256 << 10;

/// Writes a file, in place of what has its name. What is no file (a pipe, a terminal) is written to as it is, and a link
/// stays one.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let failed = |error: io::Error| {
        Error::new(Status::SYSTEM, format!("cannot write a snapshot to {}: {error}", path.display()))
    };
    let is_special = fs::metadata(path).is_ok_and(|target| !target.is_file() && !target.is_dir());
    if is_special {
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        return fill(file, write).map_err(failed);
    }
    // What is there already may be a link to the file that is meant.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let (file, beside) = create_beside(&target).map_err(failed)?;
    let outcome = fill(file, write).and_then(|()| fs::rename(&beside, &target));
    if outcome.is_err() {
        // It is there; and if it cannot be removed, the error to tell is the first.
        let _ = fs::remove_file(&beside);
    }
    outcome.map_err(failed)
}

fn fill(file: File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut buffered = BufWriter::with_capacity(BUFFER, file);
    write(&mut buffered)?;
    buffered.flush()
}

/// Makes a file that was not there, in the folder of `target`.
fn create_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(name) = target.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    loop {
        let mut beside = std::ffi::OsString::from(".");
        beside.push(name);
        beside.push(format!(".{}.{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let beside = target.with_file_name(beside);
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

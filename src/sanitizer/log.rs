//! Reports for a file, where a program's user asks for that by the environment.

use super::{Mode, Report, session};
use crate::{
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
};

/// What switches the sanitizer on.
pub const VARIABLE: &str = "PLINTH_SANITIZER";
/// Where the texts of new reports go then.
pub const LOG_VARIABLE: &str = "PLINTH_SANITIZER_LOG";

/// Where reports go.
enum Place {
    Errors,
    File(Mutex<File>),
}

static LOG: OnceCell<Place> = OnceCell::new();

/// What the environment asks for. To be called as the library is initialised.
pub fn wanted() -> Result<Mode> {
    let asked = std::env::var_os(VARIABLE).unwrap_or_default();
    let mode = match &*asked.to_string_lossy() {
        "" | "off" => Mode::Off,
        "collect" => Mode::Collect,
        "warn" => Mode::Warn,
        "error" => Mode::Error,
        other => {
            return Err(Error::new(
                Status::INVALID_CONFIGURATION,
                format!("{VARIABLE} is {other:?}; it can be off, collect, warn or error"),
            ));
        }
    };
    let path = std::env::var_os(LOG_VARIABLE).unwrap_or_default();
    if path.is_empty() || LOG.get().is_some() {
        return Ok(mode);
    }
    let place = if path == "stderr" {
        Place::Errors
    } else {
        let opened = OpenOptions::new().append(true).create(true).open(&path);
        Place::File(Mutex::new(opened.map_err(|error| {
            let path = path.to_string_lossy();
            Error::new(Status::INVALID_CONFIGURATION, format!("{LOG_VARIABLE}: cannot write to {path}: {error}"))
        })?))
    };
    // Another thread's is the same.
    let _ = LOG.set(place);
    Ok(mode)
}

/// Switches the sanitizer on, if the environment asks for that.
pub fn begin(mode: Mode) -> Result<()> {
    if mode == Mode::Off { Ok(()) } else { session::set_mode(mode) }
}

/// Writes a report where reports go, if they go anywhere.
pub(super) fn write(report: &Report) {
    let Some(place) = LOG.get() else { return };
    let text = format!("plinth: {}\n", report.text());
    // A log that cannot be written is no reason for the program's call to fail.
    let _ = match place {
        Place::Errors => io::stderr().lock().write_all(text.as_bytes()),
        Place::File(file) => file.lock().write_all(text.as_bytes()),
    };
}

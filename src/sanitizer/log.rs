//! The sanitizer's environment variables: the initial mode, and the log of reports.

use super::{
    report::Report,
    session::{self, Mode},
};
use crate::{
    driver::environment::Environment,
    error::{Error, Result},
    status::Status,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
};

/// The variable that enables the sanitizer.
pub const VARIABLE: &str = "PLINTH_SANITIZER";
/// torch's variable that enables it.
const TORCH_VARIABLE: &str = "TORCH_CUDA_SANITIZER";
/// The variable that names the file for the texts of new reports.
pub const LOG_VARIABLE: &str = "PLINTH_SANITIZER_LOG";

/// The destination of the log.
enum Destination {
    StandardError,
    File(Mutex<File>),
}

/// What the environment selects.
struct Settings {
    mode: Mode,
    log: Option<Destination>,
}

static SETTINGS: OnceCell<Settings> = OnceCell::new();

/// Returns the mode that the environment selects. The first call reads the environment and opens the log; if that fails,
/// the next call tries again.
pub fn mode_from_environment() -> Result<Mode> {
    Ok(SETTINGS.get_or_try_init(read_environment)?.mode)
}

fn read_environment() -> Result<Settings> {
    let value = std::env::var_os(VARIABLE).unwrap_or_default();
    let mode = match &*value.to_string_lossy() {
        // As in torch, any value enables it.
        "" if std::env::var_os(TORCH_VARIABLE).is_some() => Mode::Error,
        "" | "off" => Mode::Off,
        "collect" => Mode::Collect,
        "warn" => Mode::Warn,
        "error" => Mode::Error,
        other => {
            return Err(Error::new(
                Status::INVALID_CONFIGURATION,
                format!("{VARIABLE} is {other:?}; set it to off, collect, warn or error"),
            ));
        }
    };
    let path = Environment::of_process().value(LOG_VARIABLE).unwrap_or_default();
    if path.is_empty() {
        return Ok(Settings { mode, log: None });
    }
    if path == "stderr" {
        return Ok(Settings { mode, log: Some(Destination::StandardError) });
    }
    let file = OpenOptions::new().append(true).create(true).open(&path).map_err(|error| {
        let path = path.to_string_lossy();
        Error::new(Status::INVALID_CONFIGURATION, format!("{LOG_VARIABLE}: cannot write to {path}: {error}"))
    })?;
    Ok(Settings { mode, log: Some(Destination::File(Mutex::new(file))) })
}

/// Enables the sanitizer, unless the mode is [`Mode::Off`].
pub fn enable(mode: Mode) -> Result<()> {
    if mode == Mode::Off { Ok(()) } else { session::set_mode(mode) }
}

/// Writes a report to the log, if there is one.
pub(super) fn write(report: &Report) {
    let Some(destination) = SETTINGS.get().and_then(|settings| settings.log.as_ref()) else { return };
    let text = format!("plinth: {}\n", report.text());
    // A log that cannot be written must not make the program's call fail.
    let _ = match destination {
        Destination::StandardError => io::stderr().lock().write_all(text.as_bytes()),
        Destination::File(file) => file.lock().write_all(text.as_bytes()),
    };
}

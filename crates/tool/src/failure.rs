//! How the tool ends when it does not end well.

use plinth::{error::Error, status::Status};
use std::{
    fmt::Display,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// What a subcommand gives.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why the tool ends with another status than 0.
#[derive(Debug)]
pub enum Failure {
    /// What was found is wrong, and was told already: status 1.
    Found,
    /// Arguments, settings or a file that make no sense: status 2.
    Senseless(String),
    /// Something could not be done: status 3.
    Undone(String),
    /// Nobody reads on, as in `plinth info | head`, and that is nobody's fault: status 0.
    Unread,
}

impl Failure {
    /// A file that cannot be read or makes no sense.
    pub fn file(path: &Path, reason: impl Display) -> Failure {
        Failure::Senseless(format!("{}: {reason}", path.display()))
    }

    /// Tells it on standard error, and gives the status to end with.
    pub fn tell(self) -> ExitCode {
        let (message, status) = match self {
            Failure::Found => return ExitCode::from(1),
            Failure::Unread => return ExitCode::SUCCESS,
            Failure::Senseless(message) => (message, 2),
            Failure::Undone(message) => (message, 3),
        };
        // If that cannot be written, there is nobody left to tell.
        let _ = writeln!(io::stderr(), "plinth: {message}");
        ExitCode::from(status)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.status() {
            Status::INVALID_CONFIGURATION | Status::INVALID_DEVICE => Failure::Senseless(error.message().to_owned()),
            _ => Failure::Undone(error.message().to_owned()),
        }
    }
}

/// Of writing to standard output: files are told with their paths, by [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Unread,
            _ => Failure::Undone(format!("writing the output: {error}")),
        }
    }
}

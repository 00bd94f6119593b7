//! Failures and exit statuses of the tool.

use super::output::printable;
use plinth_driver::{error::Error, status::Status};
use std::{
    fmt::Display,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// The result of a subcommand.
pub type Result<T> = std::result::Result<T, Failure>;

/// The reason for which the tool ends early or with a status other than 0.
#[derive(Debug)]
pub enum Failure {
    /// A problem was found and already reported: status 1.
    ProblemFound,
    /// The arguments, settings or a file are invalid: status 2.
    Invalid(String),
    /// The requested operation failed: status 3.
    Failed(String),
    /// The reader closed the pipe, as in `plinth info | head`, which is not an error: status 0.
    ClosedPipe,
}

impl Failure {
    /// Creates the failure of a file that is unreadable or invalid.
    pub fn file(path: &Path, reason: impl Display) -> Failure {
        Failure::Invalid(format!("{}: {reason}", path.display()))
    }

    /// Prints the message on standard error, and returns the exit status.
    pub fn report(self) -> ExitCode {
        let (message, status) = match self {
            Failure::ProblemFound => return ExitCode::from(1),
            Failure::ClosedPipe => return ExitCode::SUCCESS,
            Failure::Invalid(message) => (message, 2),
            Failure::Failed(message) => (message, 3),
        };
        // It may quote a file. If standard error cannot be written either, the message is lost.
        let message: Vec<String> = message.lines().map(printable).collect();
        let _ = writeln!(io::stderr(), "plinth: {}", message.join("\n"));
        ExitCode::from(status)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.status() {
            Status::INVALID_CONFIGURATION | Status::INVALID_DEVICE => Failure::Invalid(error.message().to_owned()),
            _ => Failure::Failed(error.message().to_owned()),
        }
    }
}

/// For writes to standard output; errors of files get their path from [`Failure::file`].
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Failed(format!("writing the output: {error}")),
        }
    }
}

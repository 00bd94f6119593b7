//! Errors: a status, a message that names the request, and the driver's code if a driver call failed.

use crate::{Failure, codes, status::Status, work_report};
use std::fmt;

/// An error of the library. It is one pointer wide, so that a successful call pays nothing for it.
pub struct Error(Box<Parts>);

struct Parts {
    status: Status,
    message: String,
    driver_code: u32,
}

/// The result of a library call.
pub type Result<T> = std::result::Result<T, Error>;

/// Creates an error about an argument.
#[cold]
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

impl Error {
    /// Creates an error that no driver call caused.
    #[cold]
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Error(Box::new(Parts { status, message: message.into(), driver_code: codes::CUDA_SUCCESS }))
    }

    /// Prepends a description of the attempted operation to the message, unless the message begins with it already:
    /// functions that describe the same operation may call each other.
    #[cold]
    pub fn context(mut self, attempt: impl fmt::Display) -> Self {
        let attempt = format!("{attempt}: ");
        if !self.0.message.starts_with(&attempt) {
            self.0.message.insert_str(0, &attempt);
        }
        self
    }

    /// Replaces the status, for callers that know the cause better than the driver's code tells.
    #[cold]
    pub fn with_status(mut self, status: Status) -> Self {
        self.0.status = status;
        self
    }

    /// Sets the code of a driver call that failed earlier.
    #[cold]
    pub fn with_driver_code(mut self, code: u32) -> Self {
        self.0.driver_code = code;
        self
    }

    /// Returns the status that callers branch on.
    pub fn status(&self) -> Status {
        self.0.status
    }

    /// Returns the message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the raw code of the failed driver call, or 0.
    pub fn driver_code(&self) -> u32 {
        self.0.driver_code
    }
}

impl Status {
    /// Returns the status for a code of the driver.
    pub(crate) fn of_driver_code(code: u32) -> Status {
        match code {
            codes::CUDA_ERROR_INVALID_VALUE | codes::CUDA_ERROR_INVALID_CLUSTER_SIZE => Status::INVALID_VALUE,
            codes::CUDA_ERROR_OUT_OF_MEMORY => Status::OUT_OF_MEMORY,
            codes::CUDA_ERROR_DEINITIALIZED => Status::SHUTTING_DOWN,
            codes::CUDA_ERROR_STUB_LIBRARY => Status::STUB_LIBRARY,
            codes::CUDA_ERROR_NO_DEVICE => Status::NO_DEVICE,
            codes::CUDA_ERROR_INVALID_DEVICE => Status::INVALID_DEVICE,
            codes::CUDA_ERROR_INVALID_HANDLE => Status::INVALID_HANDLE,
            codes::CUDA_ERROR_NOT_SUPPORTED => Status::NOT_SUPPORTED,
            codes::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED => Status::PEER_ACCESS_UNSUPPORTED,
            codes::CUDA_ERROR_ILLEGAL_ADDRESS => Status::ILLEGAL_ADDRESS,
            codes::CUDA_ERROR_LAUNCH_FAILED => Status::LAUNCH_FAILED,
            codes::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
            | codes::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
            | codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
            | codes::CUDA_ERROR_CAPTURED_EVENT => Status::CAPTURE_FORBIDS,
            codes::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED => Status::CAPTURE_INVALIDATED,
            codes::CUDA_ERROR_STREAM_CAPTURE_UNJOINED => Status::GRAPH_UNJOINED,
            codes::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD => Status::GRAPH_WRONG_THREAD,
            _ => Status::DRIVER,
        }
    }
}

impl From<Failure> for Error {
    #[cold]
    fn from(failure: Failure) -> Self {
        let symbol = failure.call.info().symbol;
        if failure.code == codes::WAIT_REFUSED {
            let message = format!("{symbol} would wait for the device, which the sync debug mode forbids");
            return Error::new(Status::WOULD_SYNCHRONIZE, message);
        }
        let status = Status::of_driver_code(failure.code);
        let text = match codes::lookup(failure.code) {
            Some((_, text)) => format!(", {}", text.trim_end_matches('\0')),
            None => String::new(),
        };
        let mut message = format!("{symbol} failed with {}{text}", codes::describe(failure.code));
        if let Some(report) = work_report::get(failure.code) {
            message = format!("{message}: {report}");
        }
        Error(Box::new(Parts { status, message, driver_code: failure.code }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}", self.0.status, self.0.message)
    }
}

impl std::error::Error for Error {}

/// Adds a description of the attempted operation to the error of a result.
pub trait Context<T> {
    /// Prepends the text that `attempt` returns to the message of an error. A success is returned unchanged.
    fn context<D: fmt::Display>(self, attempt: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context<D: fmt::Display>(self, attempt: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().context(attempt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Call;

    #[test]
    fn message_names_the_call_and_its_code() {
        let error = Error::from(Failure { call: Call::cuMemAlloc_v2, code: 2 }).context("allocating 1.00 GiB");
        assert_eq!(error.status(), Status::OUT_OF_MEMORY);
        assert_eq!(error.driver_code(), 2);
        assert_eq!(
            error.message(),
            "allocating 1.00 GiB: cuMemAlloc_v2 failed with CUDA_ERROR_OUT_OF_MEMORY (2), \
             the device has not enough free memory"
        );
    }

    #[test]
    fn an_attempt_is_described_once() {
        let error = Error::new(Status::GRAPH_CAPTURED, "replaying a graph: it is asleep").context("replaying a graph");
        assert_eq!(error.message(), "replaying a graph: it is asleep");
        assert_eq!(error.context("replaying").message(), "replaying: replaying a graph: it is asleep");
    }

    #[test]
    fn a_refused_wait_is_no_driver_error() {
        let error = Error::from(Failure { call: Call::cuEventSynchronize, code: codes::WAIT_REFUSED });
        assert_eq!((error.status(), error.driver_code()), (Status::WOULD_SYNCHRONIZE, 0));
        assert!(error.message().starts_with("cuEventSynchronize would wait for the device"), "{error}");
    }

    #[test]
    fn a_wrong_cluster_size_is_an_invalid_value() {
        let error = Error::from(Failure { call: Call::cuLaunchKernelEx, code: 912 });
        assert_eq!((error.status(), error.driver_code()), (Status::INVALID_VALUE, 912));
        assert!(error.message().contains("CUDA_ERROR_INVALID_CLUSTER_SIZE (912)"), "{error}");
    }

    #[test]
    fn unknown_code_is_preserved() {
        let error = Error::from(Failure { call: Call::cuInit, code: 54_321 });
        assert_eq!((error.status(), error.driver_code()), (Status::DRIVER, 54_321));
        assert_eq!(error.message(), "cuInit failed with CUDA error 54321");
    }
}

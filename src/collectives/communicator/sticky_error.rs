//! Errors that are reported several times: to the ranks of a group of devices, or by each group call around a failed
//! request.

use crate::{error::Error, status::Status};

/// A cloneable copy of an [`Error`].
#[derive(Debug, Clone)]
pub struct StickyError {
    status: Status,
    message: String,
    driver_code: u32,
}

impl StickyError {
    /// Creates an error of the library itself.
    #[cold]
    pub fn new(status: Status, message: impl Into<String>) -> StickyError {
        StickyError { status, message: message.into(), driver_code: 0 }
    }

    /// Returns the error of later calls on a communicator that an error has aborted.
    #[cold]
    pub fn aborted_by(error: &Error) -> StickyError {
        StickyError::new(Status::ABORTED, format!("the communicator was aborted earlier: {}", error.message()))
    }

    /// Returns the error.
    #[cold]
    pub fn error(&self) -> Error {
        Error::new(self.status, self.message.clone()).with_driver_code(self.driver_code)
    }
}

impl From<&Error> for StickyError {
    #[cold]
    fn from(error: &Error) -> StickyError {
        let (status, driver_code) = (error.status(), error.driver_code());
        StickyError { status, message: error.message().to_owned(), driver_code }
    }
}

impl From<Error> for StickyError {
    fn from(error: Error) -> StickyError {
        StickyError::from(&error)
    }
}

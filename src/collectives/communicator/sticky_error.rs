//! An error that several are told of: the ranks of a team, or each group around a call that was refused.

use crate::{error::Error, status::Status};

/// What an [`Error`] says, as often as it has to be said.
#[derive(Debug, Clone)]
pub struct Trouble {
    status: Status,
    message: String,
    driver_code: u32,
}

impl Trouble {
    /// An error of the library's own.
    #[cold]
    pub fn new(status: Status, message: impl Into<String>) -> Trouble {
        Trouble { status, message: message.into(), driver_code: 0 }
    }

    /// What comes after an error that a communicator did not survive.
    #[cold]
    pub fn end(error: &Error) -> Trouble {
        Trouble::new(Status::ABORTED, format!("the communicator came to its end earlier: {}", error.message()))
    }

    /// The error.
    #[cold]
    pub fn error(&self) -> Error {
        Error::new(self.status, self.message.clone()).with_driver_code(self.driver_code)
    }
}

impl From<&Error> for Trouble {
    #[cold]
    fn from(error: &Error) -> Trouble {
        let (status, driver_code) = (error.status(), error.driver_code());
        Trouble { status, message: error.message().to_owned(), driver_code }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::from(&error)
    }
}

//! Calls that undo others.

use super::log;
use crate::error::Error;

/// Makes a call that undoes another one, and retries it on failure. Returns whether it succeeded; if not, the log has
/// the failure of the last attempt.
pub fn retry<E: Into<Error>>(mut call: impl FnMut() -> std::result::Result<(), E>) -> bool {
    let outcome = call().or_else(|_| call()).or_else(|_| call());
    let succeeded = outcome.is_ok();
    log::ignore(outcome, "releasing a resource of the driver, which stays in use");
    succeeded
}

//! Calls that undo others.

/// Makes a call that undoes another one, and retries it on failure. Returns whether it succeeded.
pub fn retry<E>(mut call: impl FnMut() -> std::result::Result<(), E>) -> bool {
    (0..3).any(|_| call().is_ok())
}

//! The user that the process runs as.

/// Returns the effective user id.
pub fn effective() -> u32 {
    // SAFETY: the call takes no arguments, accesses no memory and cannot fail.
    unsafe { libc::geteuid() }
}

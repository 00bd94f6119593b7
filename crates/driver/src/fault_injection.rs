//! The fault injection provider: counts every driver call and makes the n-th fail with a chosen code.
//!
//! It wraps another table. An injected fault looks like a driver's: the call fails before it has any effect. Tests
//! repeat an operation, failing its first driver call, then its second, and so on, until the operation completes
//! without reaching the fault.

use super::{
    codes,
    table::{Call, Code, Table},
};
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static INNER: OnceCell<Table> = OnceCell::new();
/// The number of calls until one fails; 0 if none will.
static COUNTDOWN: AtomicU64 = AtomicU64::new(0);
static FAULT: AtomicU32 = AtomicU32::new(0);
static TRIPPED: AtomicU64 = AtomicU64::new(0);
static COUNTS: [AtomicU64; Call::ALL.len()] = [const { AtomicU64::new(0) }; Call::ALL.len()];

/// Wraps `inner`, which stays for the life of the process.
pub fn wrap(inner: Table) -> Table {
    INNER.get_or_init(|| inner);
    Table::faulty()
}

/// Makes the `nth` driver call from now (1: the next) fail with `code`, once; 0 cancels the fault.
pub fn arm(nth: u64, code: Code) {
    FAULT.store(code, Ordering::Relaxed);
    TRIPPED.store(0, Ordering::Relaxed);
    COUNTDOWN.store(nth, Ordering::Release);
}

/// Returns the call that the last armed fault hit; `None` if it has not been reached.
pub fn tripped() -> Option<Call> {
    let number = TRIPPED.load(Ordering::Acquire);
    number.checked_sub(1).and_then(|index| Call::ALL.get(index as usize).copied())
}

/// Returns how often `call` was made through the wrapped table, including failed calls.
pub fn count(call: Call) -> u64 {
    COUNTS[call as usize].load(Ordering::Relaxed)
}

/// Counts a call. Returns the table to forward it to, or the code to fail with.
pub(super) fn enter(call: Call) -> Result<&'static Table, Code> {
    COUNTS[call as usize].fetch_add(1, Ordering::Relaxed);
    if COUNTDOWN.load(Ordering::Acquire) != 0 {
        let before = COUNTDOWN.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        if before == Ok(1) {
            TRIPPED.store(call as u64 + 1, Ordering::Release);
            return Err(FAULT.load(Ordering::Relaxed));
        }
    }
    INNER.get().ok_or(codes::CUDA_ERROR_NOT_INITIALIZED)
}

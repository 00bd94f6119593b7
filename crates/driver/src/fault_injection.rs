//! The faulty provider: every driver call counted, and the n-th made to fail with a chosen code.
//!
//! It stands in front of another table, so what it does to a program is what a driver would do: the call fails
//! before it has had any effect. Tests run a piece of work again and again, failing its first driver call, then its
//! second, and so on, until the work ends without meeting the fault.

use super::{
    codes,
    table::{Call, Code, Table},
};
use once_cell::sync::OnceCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static INNER: OnceCell<Table> = OnceCell::new();
/// How many more calls pass before one fails; 0 means that none will.
static COUNTDOWN: AtomicU64 = AtomicU64::new(0);
static FAULT: AtomicU32 = AtomicU32::new(0);
static TRIPPED: AtomicU64 = AtomicU64::new(0);
static COUNTS: [AtomicU64; Call::ALL.len()] = [const { AtomicU64::new(0) }; Call::ALL.len()];

/// Puts the faulty table in front of `inner`, which is kept for the life of the process.
pub fn wrap(inner: Table) -> Table {
    INNER.get_or_init(|| inner);
    Table::faulty()
}

/// Makes the `nth` driver call from now on (1: the next) fail with `code`, once; 0 calls the fault off.
pub fn arm(nth: u64, code: Code) {
    FAULT.store(code, Ordering::Relaxed);
    TRIPPED.store(0, Ordering::Relaxed);
    COUNTDOWN.store(nth, Ordering::Release);
}

/// The call that met the last armed fault; `None` while none has.
pub fn tripped() -> Option<Call> {
    let number = TRIPPED.load(Ordering::Acquire);
    number.checked_sub(1).and_then(|index| Call::ALL.get(index as usize).copied())
}

/// How often `call` was made through the faulty table, failed calls included.
pub fn count(call: Call) -> u64 {
    COUNTS[call as usize].load(Ordering::Relaxed)
}

/// Counts a call; returns the table to pass it to, or the code that it fails with.
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

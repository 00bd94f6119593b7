//! The sync debug mode: a warning or an error for each call that makes the CPU wait for the device.
//!
//! torch's mode covers two such calls. Here every waiting call of the library checks the mode first, before it does
//! anything.

use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// The effect of the mode on a call that would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The call waits.
    Default = 0,
    /// The callback receives a warning, and the call waits.
    Warn = 1,
    /// The call fails.
    Error = 2,
}

/// A callback that receives the text of a warning.
pub type Callback = Box<dyn Fn(&str) + Send + Sync>;

static MODE: AtomicU8 = AtomicU8::new(Mode::Default as u8);
static WARNINGS: AtomicU64 = AtomicU64::new(0);
static CALLBACK: RwLock<Option<std::sync::Arc<Callback>>> = RwLock::new(None);

/// Sets the mode, for the whole process.
pub fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

/// Returns the mode.
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        1 => Mode::Warn,
        2 => Mode::Error,
        _ => Mode::Default,
    }
}

/// Sets the callback for warnings; `None` removes it.
pub fn set_callback(callback: Option<Callback>) {
    *CALLBACK.write() = callback.map(std::sync::Arc::new);
}

/// Returns the number of warnings, including those without a callback.
pub fn warnings() -> u64 {
    WARNINGS.load(Ordering::Relaxed)
}

/// Returns whether a mode other than the default is set.
#[inline]
pub fn is_on() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Default as u8
}

/// Checks the mode for a call that is about to wait; `call` is its name. Each such call must do this first.
#[inline]
pub fn check(call: &str) -> Result<()> {
    if is_on() { report(call) } else { Ok(()) }
}

#[cold]
fn report(call: &str) -> Result<()> {
    let sentence = format!("{call} called a synchronizing CUDA operation");
    match mode() {
        Mode::Default => Ok(()),
        Mode::Warn => {
            WARNINGS.fetch_add(1, Ordering::Relaxed);
            // The lock is released before the call, because the callback may set another callback.
            let callback = CALLBACK.read().clone();
            if let Some(callback) = callback {
                callback(&sentence);
            }
            Ok(())
        }
        Mode::Error => Err(Error::new(Status::WOULD_SYNCHRONIZE, sentence)),
    }
}

//! The sync debug mode: a word, or an error, for each call that makes the CPU wait for the device.
//!
//! torch's mode knows two such calls; here every call of the library that waits asks first, before it has done
//! anything.

use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::RwLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What happens when a call would wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It waits.
    Default = 0,
    /// The callback is told, and the call waits.
    Warn = 1,
    /// The call fails.
    Error = 2,
}

/// Who is told of a warning. It gets the sentence.
pub type Callback = Box<dyn Fn(&str) + Send + Sync>;

static MODE: AtomicU8 = AtomicU8::new(Mode::Default as u8);
static WARNINGS: AtomicU64 = AtomicU64::new(0);
static CALLBACK: RwLock<Option<std::sync::Arc<Callback>>> = RwLock::new(None);

/// Sets the mode, for the whole process.
pub fn set_mode(mode: Mode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

/// The mode.
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        1 => Mode::Warn,
        2 => Mode::Error,
        _ => Mode::Default,
    }
}

/// Sets who is told of warnings; `None` for nobody.
pub fn set_callback(callback: Option<Callback>) {
    *CALLBACK.write() = callback.map(std::sync::Arc::new);
}

/// How many warnings there were, told or not.
pub fn warnings() -> u64 {
    WARNINGS.load(Ordering::Relaxed)
}

/// Whether anything but the default mode is set.
#[inline]
pub fn is_on() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Default as u8
}

/// To be called, with its name, by each call that is about to wait.
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
            // The lock is let go first: the callback may set another callback.
            let callback = CALLBACK.read().clone();
            if let Some(callback) = callback {
                callback(&sentence);
            }
            Ok(())
        }
        Mode::Error => Err(Error::new(Status::WOULD_SYNCHRONIZE, sentence)),
    }
}

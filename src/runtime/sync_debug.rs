//! The sync debug mode: a warning or an error for each call that makes the CPU wait for the device.
//!
//! torch's mode covers two such calls. Here a call that always waits checks the mode first, before it does anything.
//! Waits that only some calls make, such as those of an allocator that is short of memory, are found where the driver is
//! called: the driver's wrapper of each call that blocks asks [`may_wait`]. A call is reported once, and waits of the
//! library's own threads are not.

use crate::{
    base::log,
    driver::{Call, observer},
    error::{Error, Result},
    runtime::thread,
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
    observer::gate_waits(may_wait, mode != Mode::Default);
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

/// Returns whether the thread may make a driver call that blocks.
fn may_wait(call: Call) -> bool {
    !thread::in_call() || check(call.info().symbol).is_ok()
}

/// Runs `body`, whose waits are reported but not refused: without them, memory would be reused too early.
pub fn require<T>(call: &str, body: impl FnOnce() -> T) -> T {
    thread::within_call(|| {
        // In the error mode this is an error, and the wait is made all the same.
        let _ = check(call);
        thread::mark_wait_reported();
        body()
    })
}

#[cold]
fn report(call: &str) -> Result<()> {
    if thread::is_wait_reported() {
        return Ok(());
    }
    let sentence = format!("{call} called a synchronizing CUDA operation");
    match mode() {
        Mode::Default => Ok(()),
        Mode::Warn => {
            WARNINGS.fetch_add(1, Ordering::Relaxed);
            log::warning(|| sentence.clone());
            // The lock is released before the call, because the callback may set another callback.
            let callback = CALLBACK.read().clone();
            if let Some(callback) = callback {
                callback(&sentence);
            }
            thread::mark_wait_reported();
            Ok(())
        }
        Mode::Error => Err(Error::new(Status::WOULD_SYNCHRONIZE, sentence)),
    }
}

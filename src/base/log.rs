//! The log: messages for which no call has a status, such as warnings. A callback of the program receives them; without
//! one they are not even formatted.
//!
//! A message can be logged anywhere, also while locks are held. The callback may call the library, so it runs where no
//! lock is held: when the thread's outermost call from C ends ([`leave`]). A message of a thread that is in no such
//! call, such as the library's own, waits for the end of the next call of any thread. What the callback itself causes
//! is not logged.

use crate::error::Error;
use parking_lot::{Mutex, RwLock};
use std::{
    cell::{Cell, RefCell},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

/// The importance of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Details for finding an error in the program, such as each call that fails.
    Debug = 0,
    /// What the library decided.
    Info = 1,
    /// A probable mistake of the program, or something that does not work as it was asked for.
    Warning = 2,
    /// A failure that no call reports, a finding of the sanitizer, or a defect of the library.
    Error = 3,
}

/// The function that receives the messages.
pub type Callback = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// The threshold while nothing is logged.
const OFF: u8 = u8::MAX;

/// The most messages that wait for a call. A program that makes no calls any more does not read them either.
const MAX_WAITING: usize = 1000;

/// The lowest level that is logged.
static THRESHOLD: AtomicU8 = AtomicU8::new(OFF);
static CALLBACK: RwLock<Option<Callback>> = RwLock::new(None);
/// The messages of threads that were in no call.
static WAITING: Mutex<Vec<Message>> = Mutex::new(Vec::new());
/// Whether there are any, so that a call need not lock them.
static ANY_WAITING: AtomicBool = AtomicBool::new(false);

type Message = (Level, String);

/// What a thread's calls have logged.
struct ThreadLog {
    /// The name of the innermost call that the thread is in.
    call: Cell<&'static str>,
    /// The number of nested calls: a call may call the program, which may call the library.
    depth: Cell<u32>,
    /// Whether the thread is in the callback.
    in_callback: Cell<bool>,
    /// The messages for the callback. A thread that is in no call has none.
    pending: RefCell<Vec<Message>>,
}

thread_local! {
    static THREAD: ThreadLog = const {
        ThreadLog {
            call: Cell::new(""),
            depth: Cell::new(0),
            in_callback: Cell::new(false),
            pending: RefCell::new(Vec::new()),
        }
    };
}

/// Sets the callback for messages of `level` and above; `None` for none. Returns the previous one, which the caller drops
/// without a lock, because its destructor is the program's code.
#[must_use]
pub fn set_callback(level: Level, callback: Option<Callback>) -> Option<Callback> {
    let mut slot = CALLBACK.write();
    THRESHOLD.store(if callback.is_some() { level as u8 } else { OFF }, Ordering::Release);
    mem::replace(&mut *slot, callback)
}

/// Stops logging, as the process exits and in a forked child. Takes no lock.
pub fn disable() {
    THRESHOLD.store(OFF, Ordering::Release);
    ANY_WAITING.store(false, Ordering::Release);
}

/// Logs a message. Formats it only if its level is logged.
#[inline]
pub fn log(level: Level, message: impl FnOnce() -> String) {
    if level as u8 >= THRESHOLD.load(Ordering::Relaxed) {
        add(level, message());
    }
}

/// Logs a warning.
#[inline]
pub fn warning(message: impl FnOnce() -> String) {
    log(Level::Warning, message);
}

/// Logs a warning that is logged once in the process; `is_logged` remembers it.
pub fn warning_once(is_logged: &AtomicBool, message: impl FnOnce() -> String) {
    if Level::Warning as u8 >= THRESHOLD.load(Ordering::Relaxed) && !is_logged.swap(true, Ordering::Relaxed) {
        add(Level::Warning, message());
    }
}

/// Logs the error of a result that no call returns, with what was attempted.
#[inline]
pub fn ignore<T, E: Into<Error>>(outcome: std::result::Result<T, E>, attempt: &str) {
    if let Err(error) = outcome {
        log(Level::Error, || format!("{attempt}: {}", error.into()));
    }
}

#[cold]
fn add(level: Level, message: String) {
    // While the thread exits, its state may be destroyed already.
    let _ = THREAD.try_with(|thread| {
        if thread.in_callback.get() {
            return;
        }
        if thread.depth.get() > 0 {
            thread.pending.borrow_mut().push((level, format!("{}: {message}", thread.call.get())));
            return;
        }
        let mut waiting = WAITING.lock();
        if waiting.len() < MAX_WAITING {
            waiting.push((level, message));
            ANY_WAITING.store(true, Ordering::Release);
        }
    });
}

/// Marks the beginning of a call from C. Returns the name of the call around it, for [`leave`].
pub fn enter(call: &'static str) -> &'static str {
    let entered = THREAD.try_with(|thread| {
        thread.depth.set(thread.depth.get() + 1);
        thread.call.replace(call)
    });
    entered.unwrap_or("")
}

/// Marks the end of a call from C. Delivers the messages if it is the outermost one. No lock may be held.
pub fn leave(outer: &'static str) {
    let _ = THREAD.try_with(|thread| {
        thread.call.set(outer);
        thread.depth.set(thread.depth.get() - 1);
        if thread.depth.get() == 0 && !thread.in_callback.get() {
            deliver(thread);
        }
    });
}

fn deliver(thread: &ThreadLog) {
    let mut messages = Vec::new();
    if ANY_WAITING.load(Ordering::Acquire) {
        let mut waiting = WAITING.lock();
        messages.append(&mut waiting);
        ANY_WAITING.store(false, Ordering::Release);
    }
    // The thread keeps no memory, which its end would have to free.
    messages.append(&mut thread.pending.take());
    if messages.is_empty() {
        return;
    }
    // The lock is released first, because the callback may set another callback.
    let callback = CALLBACK.read().clone();
    if let Some(callback) = callback {
        thread.in_callback.set(true);
        messages.iter().for_each(|(level, message)| callback(*level, message));
        thread.in_callback.set(false);
    }
}

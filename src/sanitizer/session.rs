//! The sanitizer of the process: whether it is on, what it knows, what it found, and who is told.
//!
//! One lock holds what it knows. It is taken last: whoever has it takes no other lock and calls neither the driver nor the
//! program. What is found is told when it has been let go.

use super::{
    Manner::{Apart, Blocking, Default},
    Report, State, Stream,
    driver_observer::{self, WATCHER},
    findings::Found,
    log,
};
use crate::{
    base::stack::{self, StackId},
    driver::{
        self, observer,
        types::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD},
    },
    error::{Error, Result},
    memory::listener,
    ops::nvtx,
    runtime::{self, thread},
    status::Status,
};
use parking_lot::{Mutex, RwLock};
use std::{
    cell::{Cell, RefCell},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

/// What the sanitizer does with what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// It is off.
    Off = 0,
    /// It keeps it.
    Collect = 1,
    /// It keeps it, and tells the callback.
    Warn = 2,
    /// The same, and the call at which it was found fails without having done anything.
    Error = 3,
}

/// What is told of a report that is new.
pub type Callback = Arc<dyn Fn(&Report) + Send + Sync>;

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);
static STATE: Mutex<Option<Box<State>>> = Mutex::new(None);
static FOUND: Mutex<Option<Found>> = Mutex::new(None);
static CALLBACK: RwLock<Option<Callback>> = RwLock::new(None);
/// Held by whoever switches the sanitizer on or off.
static SWITCHING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread is in the callback.
    static TELLING: Cell<bool> = const { Cell::new(false) };
    /// The library's call that this thread made last.
    static CALL: Cell<&'static str> = const { Cell::new("") };
    /// In how many of them it is: calls may call the program, which calls the library.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What the callback is to be told when the outermost of them ends.
    static WAITING: RefCell<Vec<Report>> = const { RefCell::new(Vec::new()) };
}

/// Whether the sanitizer is on.
#[inline]
pub fn is_on() -> bool {
    MODE.load(Ordering::Relaxed) != Mode::Off as u8
}

/// The mode.
pub fn mode() -> Mode {
    let mode = MODE.load(Ordering::Relaxed);
    [Mode::Collect, Mode::Warn, Mode::Error].into_iter().find(|known| *known as u8 == mode).unwrap_or(Mode::Off)
}

/// Switches the sanitizer on, in a mode, or off. Of what happened before it was switched on it knows the blocks that there are.
pub fn set_mode(mode: Mode) -> Result<()> {
    let runtime = runtime::ready()?;
    let _switching = SWITCHING.lock();
    let (was_on, is_on) = (self::is_on(), mode != Mode::Off);
    if is_on && !was_on {
        *STATE.lock() = Some(Box::default());
        observer::begin(&WATCHER);
    }
    MODE.store(mode as u8, Ordering::Release);
    if was_on != is_on {
        nvtx::report_names(is_on);
        for device in runtime.devices() {
            for arena in device.memory.all_arenas().iter() {
                let mut inner = arena.lock();
                listener::tune(arena.device, &mut inner);
                if is_on {
                    listener::tell_blocks(&inner);
                }
            }
        }
    }
    if was_on && !is_on {
        observer::end();
        driver_observer::forget();
        *STATE.lock() = None;
    }
    Ok(())
}

/// Sets who is told; `None` for nobody.
pub fn set_callback(callback: Option<Callback>) {
    *CALLBACK.write() = callback;
}

/// Runs `body` with what is known, if the sanitizer is on.
pub(super) fn with<T>(body: impl FnOnce(&mut State) -> T) -> Option<T> {
    STATE.lock().as_deref_mut().map(body)
}

/// The reports, in the order in which they were found.
pub fn reports() -> Vec<Report> {
    FOUND.lock().as_ref().map(|found| found.reports().to_vec()).unwrap_or_default()
}

/// How many reports there are, and how often anything was found.
pub fn counts() -> (usize, u64) {
    FOUND.lock().as_ref().map_or((0, 0), |found| (found.reports().len(), found.total()))
}

/// Forgets the reports.
pub fn clear() {
    *FOUND.lock() = None;
}

/// How the sanitizer calls a stream. `device` tells whose default stream a default stream is.
pub(super) fn named(handle: usize, device: impl FnOnce() -> u32) -> Stream {
    match handle {
        0..=CU_STREAM_LEGACY => Stream { device: device(), handle: 0, thread: 0, manner: Default },
        CU_STREAM_PER_THREAD => Stream { device: device(), handle, thread: thread::number(), manner: Blocking },
        _ => {
            let info = runtime::usable().and_then(|runtime| runtime.streams.find(handle)).map(|(_, info)| info);
            // While it is unknown whether the stream blocks, it counts as one that does: a race may be missed, but none is invented.
            let blocking = info.is_some_and(|info| {
                matches!(info.origin, driver::StreamOrigin::External { blocking: None | Some(true) })
            });
            // One that only the library itself knows has no work of its own.
            let device = info.map_or(u32::MAX, |info| info.device);
            Stream { device, handle, thread: 0, manner: if blocking { Blocking } else { Apart } }
        }
    }
}

/// The caller, for a report.
pub(super) fn caller() -> StackId {
    stack::capture()
}

/// Whether what is wrong is not to be done.
pub(super) fn refuses() -> bool {
    mode() == Mode::Error && !TELLING.get()
}

/// Keeps what was found, and tells those who want to know. The error by which the call is to fail, if it is.
pub(super) fn deliver(reports: Vec<Report>) -> Result<()> {
    if reports.is_empty() { Ok(()) } else { deliver_some(reports) }
}

#[cold]
fn deliver_some(reports: Vec<Report>) -> Result<()> {
    let mode = mode();
    let new: Vec<Report> = {
        let mut found = FOUND.lock();
        let found = found.get_or_insert_default();
        reports.iter().filter_map(|report| found.add(report.clone()).cloned()).collect()
    };
    // What the callback's own calls do is found, and kept, and that is all.
    if TELLING.get() {
        return Ok(());
    }
    new.iter().for_each(log::write);
    // Nothing is held when the call ends, so that the callback can call what it likes.
    if mode >= Mode::Warn {
        // While the thread ends there may be no place for them any more.
        let _ = WAITING.try_with(|waiting| waiting.borrow_mut().extend(new));
    }
    match reports.first() {
        Some(first) if mode == Mode::Error => {
            let (conflict, headline) = (first.conflict.name().replace('_', " "), first.headline());
            Err(Error::new(Status::RACE, format!("{conflict}: {headline}; {}", first.advice())))
        }
        _ => Ok(()),
    }
}

/// A thread is in a call of the library's now.
pub fn enter(call: &'static str) {
    CALL.set(call);
    DEPTH.set(DEPTH.get() + 1);
}

/// The call is about to return.
pub fn leave() {
    DEPTH.set(DEPTH.get() - 1);
    if DEPTH.get() == 0 && !TELLING.get() {
        let waiting = WAITING.try_with(RefCell::take).unwrap_or_default();
        if !waiting.is_empty() {
            // Nothing unwinds into C, and there is nobody to tell of a panic.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| tell(&waiting)));
        }
    }
}

/// The call that this thread is in.
pub(super) fn call_name() -> &'static str {
    CALL.get()
}

fn tell(reports: &[Report]) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            TELLING.set(false);
        }
    }
    // The lock is let go first: the callback may set another callback.
    let callback = CALLBACK.read().clone();
    if let Some(callback) = callback {
        TELLING.set(true);
        let _leave = Leave;
        reports.iter().for_each(|report| callback(report));
    }
}

//! The process-wide sanitizer: its mode, its state, its reports, and the callback.
//!
//! One lock protects the state. It is the last in the lock order: its holder takes no other lock and calls neither the
//! driver nor the program. Findings are delivered after it is released.

use super::{
    call::{
        Stream,
        StreamKind::{Blocking, Default, NonBlocking},
    },
    driver_observer::{self, OBSERVER},
    findings::Findings,
    library_observer::LIBRARY_OBSERVER,
    log,
    report::Report,
    state::State,
};
use crate::{
    base::{
        log::Level,
        stack::{self, StackId},
    },
    driver::{
        self, observer,
        types::{CU_STREAM_LEGACY, CU_STREAM_PER_THREAD},
    },
    error::{Error, Result},
    memory::recorder,
    observe,
    ops::nvtx,
    runtime::{
        self,
        names::{self, Subject},
        thread::{self, DroppedInCall},
    },
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

/// The action of the sanitizer on a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// The sanitizer is disabled.
    Off = 0,
    /// The report is kept.
    Collect = 1,
    /// The report is kept, and the callback is called.
    Warn = 2,
    /// The same, and the call with the finding fails without having any effect.
    Error = 3,
}

/// The function that is called for each new report.
pub type Callback = Arc<dyn Fn(&Report) + Send + Sync>;

static MODE: AtomicU8 = AtomicU8::new(Mode::Off as u8);
static STATE: Mutex<Option<Box<State>>> = Mutex::new(None);
static FINDINGS: Mutex<Option<Findings>> = Mutex::new(None);
static CALLBACK: RwLock<Option<Callback>> = RwLock::new(None);
/// Serializes changes of the mode.
static SWITCHING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Whether this thread is in the callback.
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
    /// The innermost library call that this thread is in.
    static CURRENT_CALL: Cell<&'static str> = const { Cell::new("") };
    /// The number of nested library calls: a call may call the program, which may call the library.
    static CALL_DEPTH: Cell<u32> = const { Cell::new(0) };
    /// The reports for the callback, which is called when the outermost call ends.
    static PENDING_REPORTS: DroppedInCall<RefCell<Vec<Report>>> = const { DroppedInCall::new(RefCell::new(Vec::new())) };
}

/// Returns the mode.
pub fn mode() -> Mode {
    let mode = MODE.load(Ordering::Relaxed);
    [Mode::Collect, Mode::Warn, Mode::Error].into_iter().find(|known| *known as u8 == mode).unwrap_or(Mode::Off)
}

/// Enables the sanitizer in a mode, or disables it. When it is enabled, it learns the existing blocks, but no earlier
/// accesses.
pub fn set_mode(mode: Mode) -> Result<()> {
    let runtime = runtime::ready()?;
    let _switching = SWITCHING.lock();
    let (was_on, is_on) = (observe::is_on(), mode != Mode::Off);
    if is_on && !was_on {
        *STATE.lock() = Some(Box::default());
        observer::enable(&OBSERVER);
    }
    MODE.store(mode as u8, Ordering::Release);
    if was_on != is_on {
        if is_on {
            observe::enable(&LIBRARY_OBSERVER)
        } else {
            observe::disable()
        }
        nvtx::report_names(is_on);
        recorder::reconfigure(runtime, |_| ());
    }
    if was_on && !is_on {
        observer::disable();
        driver_observer::forget();
        *STATE.lock() = None;
    }
    Ok(())
}

/// Sets the callback; `None` removes it.
pub fn set_callback(callback: Option<Callback>) {
    *CALLBACK.write() = callback;
}

/// Runs `body` with the state, if the sanitizer is enabled.
pub(super) fn with<T>(body: impl FnOnce(&mut State) -> T) -> Option<T> {
    STATE.lock().as_deref_mut().map(body)
}

/// Returns the reports in the order of their first finding.
pub fn reports() -> Vec<Report> {
    FINDINGS.lock().as_ref().map(|found| found.reports().to_vec()).unwrap_or_default()
}

/// Returns the number of reports, and the number of findings including repeated ones.
pub fn counts() -> (usize, u64) {
    FINDINGS.lock().as_ref().map_or((0, 0), |found| (found.reports().len(), found.total()))
}

/// Removes all reports.
pub fn clear() {
    *FINDINGS.lock() = None;
}

/// Returns the sanitizer's name of a stream. `device` returns the device of a default stream.
pub(super) fn stream_of_handle(handle: usize, device: impl FnOnce() -> u32) -> Stream {
    match handle {
        0..=CU_STREAM_LEGACY => Stream { device: device(), handle: 0, thread: 0, kind: Default },
        CU_STREAM_PER_THREAD => {
            // A thread that is already past its end keeps its tracks, which are few.
            thread::run_at_end(forget_thread);
            Stream { device: device(), handle, thread: thread::number(), kind: Blocking }
        }
        _ => {
            let info = runtime::usable().and_then(|runtime| runtime.streams.find(handle)).map(|(_, info)| info);
            // A stream that may be blocking counts as blocking: a race may be missed, but none is reported falsely.
            let blocking = info.is_some_and(|info| {
                matches!(info.origin(), driver::StreamOrigin::External { blocking: None | Some(true) })
            });
            // A stream that only the library uses has no work of its own.
            let device = info.map_or(u32::MAX, |info| info.device());
            Stream { device, handle, thread: 0, kind: if blocking { Blocking } else { NonBlocking } }
        }
    }
}

/// Removes the streams of the calling thread, which is ending.
fn forget_thread() {
    if runtime::usable().is_some() {
        with(|state| state.end_streams(|stream| stream.thread == thread::number()));
    }
}

/// Captures the caller's stack for a report.
pub(super) fn caller() -> StackId {
    stack::capture()
}

/// Returns whether a call with a finding must fail.
pub(super) fn refuses_findings() -> bool {
    mode() == Mode::Error && !IN_CALLBACK.get()
}

/// Stores findings and queues new reports for the callback. Returns the error with which the call must fail in mode
/// `Error`.
pub(super) fn deliver(reports: Vec<Report>) -> Result<()> {
    if reports.is_empty() { Ok(()) } else { deliver_some(reports) }
}

#[cold]
fn deliver_some(mut reports: Vec<Report>) -> Result<()> {
    for allocation in reports.iter_mut().filter_map(|report| report.allocation.as_mut()) {
        if allocation.freed.is_none() {
            allocation.name = names::get(Subject::Memory(allocation.address));
        }
    }
    let mode = mode();
    let new: Vec<Report> = {
        let mut found = FINDINGS.lock();
        let found = found.get_or_insert_default();
        reports.iter().filter_map(|report| found.add(report.clone()).cloned()).collect()
    };
    // Findings of calls that the callback makes are only stored.
    if IN_CALLBACK.get() {
        return Ok(());
    }
    for report in &new {
        log::write(report);
        crate::base::log::log(Level::Error, || report.text());
    }
    // The callback runs at the end of the call, when no lock is held, so that it can make any call.
    if mode >= Mode::Warn {
        // While the thread exits, the thread-local list may be destroyed already.
        let _ = PENDING_REPORTS.try_with(|pending| pending.borrow_mut().extend(new));
    }
    match reports.first() {
        Some(first) if mode == Mode::Error => Err(Error::new(Status::RACE, first.message())),
        _ => Ok(()),
    }
}

/// Marks the beginning of a library call on this thread. Returns the name of the call around it, for [`leave`].
pub fn enter(call: &'static str) -> &'static str {
    CALL_DEPTH.set(CALL_DEPTH.get() + 1);
    CURRENT_CALL.replace(call)
}

/// Marks the end of a library call, and delivers pending reports at the end of the outermost one.
pub fn leave(outer: &'static str) {
    CURRENT_CALL.set(outer);
    CALL_DEPTH.set(CALL_DEPTH.get() - 1);
    if CALL_DEPTH.get() == 0 && !IN_CALLBACK.get() {
        let pending = PENDING_REPORTS.try_with(|pending| pending.take()).unwrap_or_default();
        if !pending.is_empty() {
            // A panic must not unwind into C, and there is no caller to report it to.
            let _ = panic::catch_unwind(AssertUnwindSafe(|| call_callback(&pending)));
        }
    }
}

/// Returns the name of the call that this thread is in.
pub(super) fn call_name() -> &'static str {
    CURRENT_CALL.get()
}

fn call_callback(reports: &[Report]) {
    struct EndOfCallback;
    impl Drop for EndOfCallback {
        fn drop(&mut self) {
            IN_CALLBACK.set(false);
        }
    }
    // Release the lock first, because the callback may set another callback.
    let callback = CALLBACK.read().clone();
    if let Some(callback) = callback {
        IN_CALLBACK.set(true);
        let _end = EndOfCallback;
        reports.iter().for_each(|report| callback(report));
    }
}

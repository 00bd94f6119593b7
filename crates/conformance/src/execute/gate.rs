//! The gate: a host function that keeps a stream busy until the program opens it, and the watchdog that opens it when a
//! program does not go on.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

/// How often the gate was closed, and the last closing that was opened again.
static CLOSINGS: AtomicUsize = AtomicUsize::new(0);
static OPENED: AtomicUsize = AtomicUsize::new(0);
/// The number of the running program, plus 1.
static RUNNING: AtomicU32 = AtomicU32::new(0);

/// The last program, plus 1, for which the watchdog opened the gate.
static RESCUED: AtomicU32 = AtomicU32::new(0);

/// The exit status of a process that hung.
pub const HUNG: i32 = 97;
const OPEN_AFTER: Duration = Duration::from_secs(1);
const EXIT_AFTER: Duration = Duration::from_secs(2);

/// Closes the gate and returns the data of the host function that waits for its opening.
pub fn close() -> *mut c_void {
    ptr::without_provenance_mut(CLOSINGS.fetch_add(1, SeqCst) + 1)
}

pub fn open() {
    OPENED.store(CLOSINGS.load(SeqCst), SeqCst);
}

pub fn is_closed() -> bool {
    OPENED.load(SeqCst) < CLOSINGS.load(SeqCst)
}

/// A host function that waits until its closing of the gate is over.
pub unsafe extern "C" fn wait(closing: *mut c_void) {
    while OPENED.load(SeqCst) < closing.addr() {
        thread::sleep(Duration::from_micros(30));
    }
}

/// A host function that does nothing.
pub unsafe extern "C" fn nothing(_: *mut c_void) {}

/// Tells the watchdog which program runs.
pub fn set_running(program: u32) {
    RUNNING.store(program + 1, SeqCst);
}

/// Returns whether the watchdog opened the gate for the running program, so that its answers depend on time.
pub fn is_rescued() -> bool {
    RESCUED.load(SeqCst) == RUNNING.load(SeqCst)
}

/// Starts the watchdog. It opens the gate for a program that does not go on, and later ends the process.
pub fn start_watchdog() {
    thread::spawn(|| {
        let (mut program, mut since) = (0, Instant::now());
        loop {
            thread::sleep(Duration::from_millis(200));
            let running = RUNNING.load(SeqCst);
            if running != program {
                (program, since) = (running, Instant::now());
            } else if running != 0 && since.elapsed() > EXIT_AFTER {
                super::super::report(&format!("program {} hangs", running - 1));
                // SAFETY: ends the process at once; destructors of the driver could wait for the program that hangs.
                unsafe { libc::_exit(HUNG) };
            } else if running != 0 && since.elapsed() > OPEN_AFTER && is_closed() {
                super::super::report(&format!("program {} waits for its own gate", running - 1));
                RESCUED.store(running, SeqCst);
                open();
            }
        }
    });
}

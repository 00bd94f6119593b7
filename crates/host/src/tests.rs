//! Tests of the host device through its driver table, and their shared helpers.
//!
//! All tests of a process share its devices, so each test checks only the objects that it created itself, or runs in a
//! separate process: [`child`] runs this test binary again for one test.

mod capture;
mod conditional;
mod device;
mod event;
mod failure;
mod graph;
mod graph_capture;
mod graph_exec;
mod graph_fault;
mod graph_memory;
mod graph_update;
mod green_context;
mod ipc;
pub mod kernel;
mod memory;
mod null;
mod pool;
mod stream;
mod stress;
mod user_object;
mod virt;

use crate::driver::{table::Table, types::*};
use parking_lot::{Condvar, Mutex};
use std::{
    ffi::c_void,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

pub const MIB: usize = 1 << 20;
pub const GRANULE: usize = 2 * MIB;

/// Makes a driver call and returns its code.
macro_rules! code {
    ($table:ident.$name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: each test passes pointers to its own locals, null, or a value that the call must refuse.
        unsafe { ($table.$name)($($argument),*) }
    }};
}
/// Makes a driver call that must succeed.
macro_rules! ok {
    ($table:ident.$name:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(code!($table.$name($($argument),*)), 0, stringify!($name))
    };
}
pub(crate) use code;
pub(crate) use ok;

/// Returns the table, with a device's context current in this thread.
pub fn setup(device: i32) -> Table {
    let t = crate::table();
    ok!(t.cuInit(0));
    ok!(t.cuCtxSetCurrent(context(&t, device)));
    t
}

pub fn context(t: &Table, device: i32) -> CUcontext {
    let mut context = std::ptr::null_mut();
    ok!(t.cuDevicePrimaryCtxRetain(&mut context, device));
    context
}

pub fn new_stream(t: &Table, flags: u32) -> CUstream {
    let mut stream = std::ptr::null_mut();
    ok!(t.cuStreamCreateWithPriority(&mut stream, flags, 0));
    stream
}

pub fn new_event(t: &Table, flags: u32) -> CUevent {
    let mut event = std::ptr::null_mut();
    ok!(t.cuEventCreate(&mut event, flags));
    event
}

pub fn alloc(t: &Table, bytes: usize) -> CUdeviceptr {
    let mut pointer = 0;
    ok!(t.cuMemAlloc_v2(&mut pointer, bytes));
    pointer
}

/// Reads device memory through a temporary stream.
pub fn read(t: &Table, pointer: CUdeviceptr, bytes: usize) -> Vec<u8> {
    let stream = new_stream(t, CU_STREAM_NON_BLOCKING);
    let mut data = vec![0; bytes];
    ok!(t.cuMemcpyAsync(data.as_mut_ptr() as u64, pointer, bytes, stream));
    ok!(t.cuStreamDestroy_v2(stream));
    data
}

/// Returns the properties of physical memory of a device.
pub fn properties(device: i32, handle_type: u32) -> CUmemAllocationProp {
    use cudarc::driver::sys::*;
    // SAFETY: all zeros is a valid value of each of its fields.
    let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CUmemAllocationHandleType_enum(handle_type);
    properties.location.type_ = CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties
}

pub fn access(device: i32, flags: u32) -> CUmemAccessDesc {
    use cudarc::driver::sys::*;
    let flags = match flags {
        0 => CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_NONE,
        1 => CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READ,
        _ => CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let location = CUmemLocation { type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: device };
    CUmemAccessDesc { location, flags }
}

pub fn create(t: &Table, device: i32, bytes: usize, handle_type: u32) -> u64 {
    let mut handle = 0;
    ok!(t.cuMemCreate(&mut handle, bytes, &properties(device, handle_type), 0));
    handle
}

pub fn reserve(t: &Table, bytes: usize) -> CUdeviceptr {
    let mut pointer = 0;
    ok!(t.cuMemAddressReserve(&mut pointer, bytes, 0, 0, 0));
    pointer
}

/// Blocks a stream until it is opened.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub fn close(t: &Table, stream: CUstream) -> Gate {
        unsafe extern "C" fn wait(data: *mut c_void) {
            // SAFETY: `close` passed a reference of its own to this call.
            let gate = unsafe { Arc::from_raw(data.cast::<(Mutex<bool>, Condvar)>()) };
            let mut open = gate.0.lock();
            while !*open {
                gate.1.wait(&mut open);
            }
        }
        let gate = Gate::default();
        let data = Arc::into_raw(gate.0.clone()) as *mut c_void;
        ok!(t.cuLaunchHostFunc(stream, Some(wait), data));
        gate
    }

    pub fn open(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

/// A list that host functions in streams add to.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<usize>>>);

impl Log {
    /// Returns a host function that adds `entry`, and its argument.
    pub fn function(&self, entry: usize) -> (unsafe extern "C" fn(*mut c_void), *mut c_void) {
        unsafe extern "C" fn add(data: *mut c_void) {
            // SAFETY: `data` points to a leaked pair, since a graph may run this any number of times.
            let pair = unsafe { &*data.cast::<(Log, usize)>() };
            pair.0.0.lock().push(pair.1);
        }
        (add, std::ptr::from_mut(Box::leak(Box::new((self.clone(), entry)))).cast())
    }

    /// Submits a host function that adds `entry` to a stream.
    pub fn note(&self, t: &Table, stream: CUstream, entry: usize) {
        let (function, data) = self.function(entry);
        ok!(t.cuLaunchHostFunc(stream, Some(function), data));
    }

    pub fn entries(&self) -> Vec<usize> {
        self.0.lock().clone()
    }
}

/// Returns the role of this process, if it is a test's child.
pub fn role() -> Option<String> {
    std::env::var("PLINTH_TEST_ROLE").ok()
}

/// Starts this binary again for one test, named by its path below this module, in a role.
pub fn child(test: &str, role: &str, environment: &[(&str, String)]) -> Child {
    let program = std::env::current_exe().expect("the test binary has a path");
    Command::new(program)
        .args([&format!("tests::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env("PLINTH_TEST_ROLE", role)
        .envs(environment.iter().map(|(name, value)| (*name, value.clone())))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary can be started")
}

/// Runs one test's body in a child process, which must succeed.
pub fn in_child(test: &str, environment: &[(&str, String)], body: impl FnOnce()) {
    if role().is_some() {
        return body();
    }
    let output = child(test, "alone", environment).wait_with_output().expect("the child exits");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("1 passed"), "{test}: {stdout}{}", String::from_utf8_lossy(&output.stderr));
}

/// Waits up to 20 seconds for a condition.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

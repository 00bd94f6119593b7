//! The objects of the running program, and the calls that need none.

use super::{super::answer::Answer, super::program::Kind, super::program::Step, gate};
use plinth_driver::{Table, types::*};
use std::{
    ffi::{CStr, c_void},
    ptr,
    time::{Duration, Instant},
};

/// Makes one call of the table.
macro_rules! call {
    ($state:expr, $name:ident ( $($argument:expr),* $(,)? )) => {
        // SAFETY: programs name only objects that exist; `State` keeps their handles, and null where a program passes
        // none, which drivers refuse. Outputs are live locals of the caller or null, which drivers refuse as well.
        unsafe { ($state.table.$name)($($argument),*) }
    };
}
pub(super) use call;

/// The sizes of the memory that every program can use.
pub const ARENA_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;
const PAGES: usize = 8;

pub struct Graph {
    pub handle: usize,
    /// Whether the program must destroy it: the body of a conditional node belongs to the node.
    pub owned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    None,
    Device(u64),
    Pinned(u64),
}

#[derive(Default)]
pub struct Reservation {
    pub address: u64,
    pub bytes: usize,
    /// The mappings: address and size.
    pub maps: Vec<(u64, usize)>,
}

pub struct State {
    pub table: Table,
    pub is_gpu: bool,
    pub context: usize,
    pub pool: usize,
    pub arena: u64,
    pub pinned: u64,
    pub pageable: u64,
    /// Pages that programs register.
    pub pages: u64,
    pub streams: Vec<usize>,
    pub events: Vec<usize>,
    pub graphs: Vec<Graph>,
    pub nodes: Vec<usize>,
    pub execs: Vec<usize>,
    pub memory: Vec<Memory>,
    pub reservations: Vec<Reservation>,
    pub handles: Vec<u64>,
    pub objects: Vec<(usize, u32)>,
    pub conditions: Vec<u64>,
    /// The stream and thread of each capture that began.
    pub captures: Vec<(usize, u8)>,
    /// The graphs that captures of this program were begun into.
    pub captured_into: Vec<usize>,
    pub registered: Vec<u64>,
    pub pool_changed: bool,
    /// Whether host functions may still run that the program launched.
    pub host_functions: bool,
}

/// Stores a value under a number.
pub fn set<T>(list: &mut Vec<T>, index: u32, value: T, none: impl Fn() -> T) {
    while list.len() <= index as usize {
        list.push(none());
    }
    list[index as usize] = value;
}

/// Returns the handle that an argument names: null for 0, `None` if the object does not exist.
pub fn get(list: &[usize], argument: u32) -> Option<usize> {
    match argument.checked_sub(1) {
        None => Some(0),
        Some(index) => list.get(index as usize).copied().filter(|handle| *handle != 0),
    }
}

impl State {
    pub fn new(table: Table, is_gpu: bool) -> Result<State, String> {
        let check =
            |what: &str, code: u32| if code == 0 { Ok(()) } else { Err(format!("{what}: driver error {code}")) };
        let (mut device, mut context, mut pool) = (0, ptr::null_mut(), ptr::null_mut());
        let (mut arena, mut pinned) = (0, ptr::null_mut());
        // SAFETY: the outputs are live locals, and the driver is initialized first. The same holds below.
        check("cuInit", unsafe { (table.cuInit)(0) })?;
        // SAFETY: as above.
        check("cuDeviceGet", unsafe { (table.cuDeviceGet)(&mut device, 0) })?;
        // SAFETY: as above.
        check("cuDevicePrimaryCtxRetain", unsafe { (table.cuDevicePrimaryCtxRetain)(&mut context, device) })?;
        // SAFETY: the context is retained for the life of the process.
        check("cuCtxSetCurrent", unsafe { (table.cuCtxSetCurrent)(context) })?;
        // SAFETY: as above.
        check("cuMemAlloc", unsafe { (table.cuMemAlloc_v2)(&mut arena, ARENA_BYTES) })?;
        // SAFETY: as above.
        check("cuMemHostAlloc", unsafe { (table.cuMemHostAlloc)(&mut pinned, ARENA_BYTES, 1) })?;
        // SAFETY: as above. Without pools the handle stays null, and nothing uses it.
        unsafe { (table.cuDeviceGetDefaultMemPool)(&mut pool, device) };
        let map = |bytes| {
            // SAFETY: a new private mapping of the system's choice of address.
            let address = unsafe {
                libc::mmap(
                    ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                )
            };
            if address == libc::MAP_FAILED { Err("mmap failed".to_owned()) } else { Ok(address as u64) }
        };
        Ok(State {
            table,
            is_gpu,
            context: context as usize,
            pool: pool as usize,
            arena,
            pinned: pinned as u64,
            pageable: map(ARENA_BYTES)?,
            pages: map(PAGE * PAGES)?,
            streams: Vec::new(),
            events: Vec::new(),
            graphs: Vec::new(),
            nodes: Vec::new(),
            execs: Vec::new(),
            memory: Vec::new(),
            reservations: Vec::new(),
            handles: Vec::new(),
            objects: Vec::new(),
            conditions: Vec::new(),
            captures: Vec::new(),
            captured_into: Vec::new(),
            registered: Vec::new(),
            pool_changed: false,
            host_functions: false,
        })
    }

    /// Prepares a thread that will make calls.
    pub fn enter_thread(&self) {
        call!(self, cuCtxSetCurrent(self.context as CUcontext));
    }

    /// Returns the stream that an argument names.
    pub fn stream(&self, argument: u32) -> Option<CUstream> {
        let handle = match argument {
            0..=2 => argument as usize,
            number => self.streams.get(number as usize - 3).copied().filter(|handle| *handle != 0)?,
        };
        Some(handle as CUstream)
    }

    pub fn event(&self, argument: u32) -> Option<CUevent> {
        get(&self.events, argument).map(|handle| handle as CUevent)
    }

    /// Returns the address of a page that programs register.
    pub fn page(&self, number: u32) -> u64 {
        self.pages + (PAGE as u64) * u64::from(number)
    }

    /// Returns the code of a query that is independent of time: waits for work that is not behind the closed gate.
    /// `gated` says that the work is known to be behind it.
    pub fn poll(&self, gated: bool, mut query: impl FnMut() -> u32) -> u32 {
        const NOT_READY: u32 = 600;
        let limit = match (gate::is_closed(), gated, self.is_gpu) {
            (true, true, _) => Duration::ZERO,
            (true, false, true) => Duration::from_millis(30),
            (true, false, false) => Duration::from_millis(100),
            _ => Duration::from_secs(5),
        };
        let start = Instant::now();
        loop {
            let code = query();
            if code != NOT_READY || start.elapsed() >= limit {
                return code;
            }
            std::thread::sleep(Duration::from_micros(10));
        }
    }

    /// Makes the call of one step. `None` if an object that it names does not exist.
    pub fn step(&mut self, step: &Step, thread: u8) -> Option<Answer> {
        use Kind::*;
        let [first, second, ..] = step.arguments;
        let context = |used: u32| if used == 0 { ptr::null_mut() } else { self.context as CUcontext };
        Some(match step.kind {
            CtxSetCurrent => Answer::status(call!(self, cuCtxSetCurrent(context(first)))),
            CtxGetDevice => {
                let mut device = -1;
                let code = call!(self, cuCtxGetDevice(&mut device));
                Answer::value(code, device)
            }
            PriorityRange => {
                let (mut least, mut greatest) = (99, 99);
                let code = call!(self, cuCtxGetStreamPriorityRange(&mut least, &mut greatest));
                Answer::with(code, [least, greatest, 0])
            }
            EnablePeer => Answer::status(call!(self, cuCtxEnablePeerAccess(context(first), second))),
            DisablePeer => Answer::status(call!(self, cuCtxDisablePeerAccess(context(first)))),
            CanAccessPeer => {
                let mut can = -1;
                let code = call!(self, cuDeviceCanAccessPeer(&mut can, first as i32, second as i32));
                Answer::value(code, can)
            }
            PrimaryState => {
                let (mut flags, mut active) = (99, -1);
                let code = call!(self, cuDevicePrimaryCtxGetState(first as i32, &mut flags, &mut active));
                Answer::value(code, active)
            }
            DeviceGet => {
                let mut device = -1;
                let code = call!(self, cuDeviceGet(&mut device, first as i32));
                Answer::value(code, device)
            }
            DeviceAttribute => {
                let mut value = -1;
                let code = call!(self, cuDeviceGetAttribute(&mut value, first, second as i32));
                Answer::value(code, value)
            }
            ErrorName => {
                let mut name = ptr::null();
                let code = call!(self, cuGetErrorName(first, &mut name));
                let mut hash = 0_u32;
                if code == 0 && !name.is_null() {
                    // SAFETY: on success the driver returns a string that ends in a NUL and lives forever.
                    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
                    hash = bytes.iter().fold(7, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)));
                }
                Answer::value(code, (hash & 0xffff) as i32)
            }
            // Drivers do not check this output: a null pointer ends the process.
            // A GPU's driver writes to these addresses without a test.
            NullOutput if first == 5 || first == 11 => return None,
            NullOutput => self.null_output(first, self.stream(second)?),
            CtxSynchronize => {
                self.host_functions = false;
                Answer::status(call!(self, cuCtxSynchronize()))
            }
            OpenGate => {
                gate::open();
                Answer::status(0)
            }
            StreamCreate | StreamDestroy | StreamQuery | StreamSynchronize | StreamWait | StreamGetPriority
            | StreamGetFlags | StreamGetCtx | StreamGetId | IsCapturing | CaptureInfo | BeginCapture | EndCapture
            | BeginCaptureToGraph | ExchangeMode | EventCreate | EventDestroy | EventRecord | EventRecordWithFlags
            | EventQuery | EventSynchronize | EventElapsed | HostFunction | CloseGate | Memset8 | Memset16
            | Memset32 | Memcpy | MemcpyPeer | IpcGetEvent | IpcOpenEvent => return self.stream_step(step, thread),
            MemInfo | MemAlloc | MemFree | AddressRange | HostAlloc | HostFree | ManagedAlloc | HostRegister
            | HostUnregister | PointerAttribute | PointerAttributes | IpcGetMem | IpcOpenMem | IpcCloseMem
            | DefaultPool | PoolGet | PoolSet | PoolTrim | PoolAccess | AllocAsync | FreeAsync => {
                return self.memory_step(step);
            }
            Reserve | AddressFree | Create | Release | Map | Unmap | SetAccess | GetAccess | Granularity | Export
            | Import | RetainHandle | RangeOfVirtual | AttributeOfVirtual => return self.virtual_step(step),
            _ => return self.graph_step(step),
        })
    }

    fn null_output(&self, which: u32, stream: CUstream) -> Answer {
        let properties = super::virtual_memory::properties(0);
        Answer::status(match which {
            0 => call!(self, cuStreamCreateWithPriority(ptr::null_mut(), 0, 0)),
            1 => call!(self, cuEventCreate(ptr::null_mut(), 0)),
            2 => call!(self, cuMemAlloc_v2(ptr::null_mut(), 16)),
            3 => call!(self, cuGraphCreate(ptr::null_mut(), 0)),
            4 => call!(self, cuStreamIsCapturing(stream, ptr::null_mut())),
            6 => call!(self, cuMemHostAlloc(ptr::null_mut::<*mut c_void>(), 16, 0)),
            7 => call!(self, cuStreamGetFlags(stream, ptr::null_mut())),
            8 => call!(self, cuStreamGetPriority(stream, ptr::null_mut())),
            9 => call!(self, cuCtxGetDevice(ptr::null_mut())),
            10 => call!(self, cuMemAddressReserve(ptr::null_mut(), 2 << 20, 0, 0, 0)),
            _ => call!(self, cuMemCreate(ptr::null_mut(), 2 << 20, (&raw const properties).cast(), 0)),
        })
    }
}

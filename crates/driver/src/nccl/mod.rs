//! NCCL, loaded at run time. The interface to its calls, as [`table`](super::table) is for the driver.
//!
//! [`table`] lists the calls, [`load`] locates the library, and [`Nccl`] provides safe methods. They are safe because a
//! [`Comm`] can only be created here, the constructors of spans guarantee their memory, and a stream is a driver
//! stream. In addition, the caller must make the context of the communicator's device current.
//!
//! NCCL calls return "in progress" for a nonblocking communicator; [`Progress`] represents that.

mod communicators;
pub mod load;
pub mod table;

use super::{Span, Stream, calls::library_call};
use crate::{
    error::{Error, Result},
    status::Status,
};
use load::Version;
use once_cell::sync::OnceCell;
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};
use table::{Call, Code, ErrorString, LastError, RawComm, RawStream, Table, UniqueId};

/// The size of a unique id, with which ranks find each other.
pub const ID_BYTES: usize = 128;

/// The first NCCL version in which the ranks agree on whether memory becomes a window.
const HAS_RELIABLE_WINDOWS: c_int = 22_800;
/// The first NCCL version whose nonblocking communicators do not wait in the call that puts them to sleep. 2.29.7 has the call.
const HAS_SLEEP: c_int = 23_003;
/// The first NCCL version that reduces floats of 8 bits.
const HAS_FLOAT8: c_int = 22_400;

/// A loaded NCCL library.
pub struct Nccl {
    table: Table,
    error_string: Option<ErrorString>,
    last_error: Option<LastError>,
    version: c_int,
    on_host_device: bool,
}

/// An NCCL communicator. The caller of `destroy` or `abort` must not use it afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm(usize);

impl Comm {
    fn raw(self) -> RawComm {
        self.0 as RawComm
    }
}

/// Memory that is registered with a communicator. It must not be used after it is deregistered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registered {
    /// The memory of this rank.
    Buffer(usize),
    /// A window over the memory of all ranks.
    Window(usize),
}

/// The location to which NCCL writes a new communicator or window, immediately or when the work on it completes. The
/// allocation stays for as long as NCCL may write to it, and is leaked if completion was never observed.
pub struct OutputCell {
    output: Option<Box<AtomicPtr<c_void>>>,
    complete: AtomicBool,
}

impl OutputCell {
    #[inline(never)] // tools/lsan.supp has its name
    fn new() -> OutputCell {
        OutputCell { output: Some(Box::new(AtomicPtr::new(ptr::null_mut()))), complete: AtomicBool::new(false) }
    }

    fn as_output(&self) -> *mut *mut c_void {
        self.output.as_ref().map_or(ptr::null_mut(), |output| output.as_ptr())
    }

    fn written(&self) -> Option<usize> {
        let written = self.output.as_ref()?.load(Ordering::Acquire);
        (!written.is_null()).then_some(written as usize)
    }

    /// Returns the communicator, if NCCL has written it.
    pub fn comm(&self) -> Option<Comm> {
        self.written().map(Comm)
    }

    /// Returns the window, if NCCL has written it.
    pub fn window(&self) -> Option<Registered> {
        self.written().map(Registered::Window)
    }

    /// Records that NCCL will not write here any more: its work has completed or failed, or the communicator was
    /// aborted.
    pub fn mark_complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// Returns whether NCCL has been seen not to write here any more.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }
}

impl Drop for OutputCell {
    fn drop(&mut self) {
        if !self.is_complete()
            && let Some(output) = self.output.take()
        {
            Box::leak(output);
        }
    }
}

/// The progress of an NCCL call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The call is complete.
    Done,
    /// The call is in progress; [`Nccl::progress`] returns when it is complete.
    InProgress,
}

/// Returns the process's NCCL, and loads it on the first call.
pub fn get() -> Result<&'static Nccl> {
    static NCCL: OnceCell<Nccl> = OnceCell::new();
    NCCL.get_or_try_init(load::load)
}

/// Returns the status and the description of an NCCL error.
fn describe(code: Code) -> (Status, &'static str) {
    match code {
        table::UNHANDLED_CUDA_ERROR => (Status::NCCL, "a CUDA call failed inside NCCL"),
        table::SYSTEM_ERROR => (Status::NCCL, "a system call failed inside NCCL, or a connection was lost"),
        table::INVALID_ARGUMENT => (Status::INVALID_VALUE, "an argument is wrong"),
        table::INVALID_USAGE => (Status::NCCL, "the call is not valid in this state"),
        table::REMOTE_ERROR => (Status::PEER_LOST, "another rank failed, or the connection to it was lost"),
        table::TIMEOUT => (Status::TIMED_OUT, "the operation timed out"),
        _ => (Status::NCCL, "an internal error occurred"),
    }
}

impl Nccl {
    /// Returns the version in NCCL's encoding.
    pub fn version(&self) -> Version {
        Version(self.version)
    }

    /// Returns whether the library works on the host device, as test doubles do.
    pub fn works_on_host_device(&self) -> bool {
        self.on_host_device
    }

    /// Registers a function for the exit of the process. It runs before what NCCL and its libraries do then, which they have
    /// registered when they were loaded.
    pub fn at_exit(&self, handler: extern "C" fn()) {
        // SAFETY: the function is a part of the library, which is never unloaded. A failure leaves it unregistered.
        unsafe {
            libc::atexit(handler);
        }
    }

    fn check(&self, call: Call, code: Code) -> Result<Progress> {
        match code {
            table::SUCCESS => Ok(Progress::Done),
            table::IN_PROGRESS => Ok(Progress::InProgress),
            code => Err(self.failure(call, code)),
        }
    }

    #[cold]
    fn failure(&self, call: Call, code: Code) -> Error {
        let symbol = call.info().symbol;
        if code == table::ABSENT {
            let (has, since) = (self.version(), Version(call.info().since));
            return Error::new(
                Status::NCCL_UNAVAILABLE,
                format!("NCCL {has} has no {symbol}, which came with {since}"),
            );
        }
        let (status, sentence) = describe(code);
        let mut message = format!("{symbol} failed with {code}, {sentence}");
        // SAFETY: NCCL returns a static string for every number.
        if let Some(text) = self.error_string.map(|call| unsafe { call(code) }) {
            // SAFETY: the pointer is NULL or a static string of NCCL.
            message += &unsafe { message_suffix(text) };
        }
        // SAFETY: NCCL ignores the communicator here and accepts NULL.
        if let Some(text) = self.last_error.map(|call| unsafe { call(ptr::null_mut()) }) {
            // SAFETY: the pointer is NULL or a string that stays valid until this thread's next NCCL call.
            message += &unsafe { message_suffix(text) };
        }
        Error::new(status, message)
    }

    /// Creates a unique id for ranks to find each other. It contains the address of this process, in which NCCL listens
    /// for them.
    pub fn unique_id(&self) -> Result<[u8; ID_BYTES]> {
        let mut id = UniqueId { internal: [0; ID_BYTES] };
        // SAFETY: the output is a live local.
        unsafe { library_call!(self, ncclGetUniqueId(&mut id)) }?;
        Ok(id.internal)
    }

    /// Returns whether this version reduces floats of 8 bits.
    pub fn has_float8(&self) -> bool {
        self.version >= HAS_FLOAT8
    }

    /// Fails if memory cannot be registered at all.
    pub fn check_registration(&self) -> Result<()> {
        if self.version >= Call::ncclCommRegister.info().since {
            return Ok(());
        }
        Err(self.failure(Call::ncclCommRegister, table::ABSENT))
    }

    /// Returns whether communicators can sleep.
    pub fn has_sleep(&self) -> bool {
        self.version >= HAS_SLEEP
    }

    /// Fails if communicators cannot sleep.
    pub fn check_sleep(&self) -> Result<()> {
        if self.has_sleep() {
            return Ok(());
        }
        let (has, since) = (self.version(), Version(HAS_SLEEP));
        Err(Error::new(Status::NCCL_UNAVAILABLE, format!("NCCL {has} keeps its memory; {since} and newer release it")))
    }

    /// Returns whether memory is registered as windows: NCCL 2.27 lets one rank make a buffer while the others wait for it.
    pub fn has_windows(&self) -> bool {
        self.version >= HAS_RELIABLE_WINDOWS
    }

    /// Begins to register memory as a window. All ranks make the call, with as many bytes. NCCL writes no window if the ranks
    /// cannot access the memory of each other.
    pub fn register_window(&self, comm: Comm, memory: Span) -> Result<(OutputCell, Progress)> {
        let cell = OutputCell::new();
        let (address, bytes) = (destination(memory), memory.bytes());
        // SAFETY: the window's location stays allocated until NCCL no longer writes to it; the communicator is live, and the
        // span's constructor guarantees the memory.
        let progress = unsafe {
            let output = cell.as_output();
            library_call!(self, ncclCommWindowRegister(comm.raw(), address, bytes, output, table::WINDOW_SYMMETRIC))
        };
        let progress = progress.inspect_err(|_| cell.mark_complete())?;
        Ok((cell, progress))
    }

    /// Registers memory of this rank alone.
    pub fn register_buffer(&self, comm: Comm, memory: Span) -> Result<Registered> {
        let mut buffer = ptr::null_mut();
        // SAFETY: as in `register_window`; NCCL writes the output, a live local, during the call.
        unsafe { library_call!(self, ncclCommRegister(comm.raw(), destination(memory), memory.bytes(), &mut buffer)) }?;
        Ok(Registered::Buffer(buffer as usize))
    }

    /// Deregisters memory that no work of the communicator uses. Other ranks need not make the call.
    pub fn deregister(&self, comm: Comm, registered: Registered) -> Result<()> {
        // SAFETY: the communicator is live, and the handle is from one of the calls above and was not passed here before.
        unsafe {
            match registered {
                Registered::Buffer(buffer) => {
                    library_call!(self, ncclCommDeregister(comm.raw(), buffer as *mut c_void))
                }
                Registered::Window(window) => {
                    library_call!(self, ncclCommWindowDeregister(comm.raw(), window as *mut c_void))
                }
            }
        }
        .map(drop)
    }

    /// Begins to release the memory of a communicator without work, and keeps its addresses. All ranks make the call, and wait
    /// for each other. Until [`resume`](Self::resume) the communicator can only be aborted.
    pub fn suspend(&self, comm: Comm) -> Result<Progress> {
        // SAFETY: the communicator is live.
        unsafe { library_call!(self, ncclCommSuspend(comm.raw(), table::SUSPEND_MEMORY)) }
    }

    /// Begins to allocate the memory of a communicator again. All ranks make the call, and wait for each other.
    pub fn resume(&self, comm: Comm) -> Result<Progress> {
        // SAFETY: the communicator is live.
        unsafe { library_call!(self, ncclCommResume(comm.raw())) }
    }

    /// Returns the size of the device memory that a suspension releases, or has released.
    pub fn suspended_bytes(&self, comm: Comm) -> Result<u64> {
        let mut bytes = 0;
        // SAFETY: the communicator is live, and the output is a live local.
        unsafe { library_call!(self, ncclCommMemStats(comm.raw(), table::STATISTIC_SUSPENDED_MEMORY, &mut bytes)) }?;
        Ok(bytes)
    }

    /// Runs `body` in an NCCL group, whose calls NCCL launches together. The group is ended even if the body fails;
    /// then the body's error is returned.
    pub fn group<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<(T, Progress)> {
        // SAFETY: the call takes no arguments.
        unsafe { library_call!(self, ncclGroupStart()) }?;
        let result = body();
        // SAFETY: the call takes no arguments, and a group is open.
        let ended = unsafe { library_call!(self, ncclGroupEnd()) };
        let value = result?;
        Ok((value, ended?))
    }

    /// Reduces over all ranks; every rank receives the result.
    #[allow(clippy::too_many_arguments)]
    pub fn all_reduce(
        &self,
        from: Span,
        to: Span,
        elements: Elements,
        op: c_int,
        comm: Comm,
        stream: Stream,
    ) -> Result<Progress> {
        // SAFETY: the constructors of the spans guarantee their memory; communicator and stream are live. The same
        // holds in each call below.
        unsafe {
            let (from, to) = (source(from), destination(to));
            library_call!(self, ncclAllReduce(from, to, elements.count, elements.kind, op, comm.raw(), raw(stream)))
        }
    }

    /// Reduces over all ranks; only the root receives the result.
    #[allow(clippy::too_many_arguments)]
    pub fn reduce(
        &self,
        from: Span,
        to: Span,
        elements: Elements,
        op: c_int,
        root: u32,
        comm: Comm,
        stream: Stream,
    ) -> Result<Progress> {
        // SAFETY: see `all_reduce`.
        unsafe {
            let (from, to, root) = (source(from), destination(to), root as c_int);
            library_call!(self, ncclReduce(from, to, elements.count, elements.kind, op, root, comm.raw(), raw(stream)))
        }
    }

    /// Copies from one rank to all ranks.
    pub fn broadcast(
        &self,
        from: Span,
        to: Span,
        elements: Elements,
        root: u32,
        comm: Comm,
        stream: Stream,
    ) -> Result<Progress> {
        // SAFETY: see `all_reduce`.
        unsafe {
            let (from, to, root) = (source(from), destination(to), root as c_int);
            library_call!(self, ncclBroadcast(from, to, elements.count, elements.kind, root, comm.raw(), raw(stream)))
        }
    }

    /// Gathers from all ranks; every rank receives the result.
    pub fn all_gather(&self, from: Span, to: Span, elements: Elements, comm: Comm, stream: Stream) -> Result<Progress> {
        // SAFETY: see `all_reduce`.
        unsafe {
            library_call!(
                self,
                ncclAllGather(source(from), destination(to), elements.count, elements.kind, comm.raw(), raw(stream),)
            )
        }
    }

    /// Reduces over all ranks; each rank receives one part of the result.
    pub fn reduce_scatter(
        &self,
        from: Span,
        to: Span,
        elements: Elements,
        op: c_int,
        comm: Comm,
        stream: Stream,
    ) -> Result<Progress> {
        // SAFETY: see `all_reduce`.
        unsafe {
            let (from, to) = (source(from), destination(to));
            library_call!(self, ncclReduceScatter(from, to, elements.count, elements.kind, op, comm.raw(), raw(stream)))
        }
    }

    /// Sends to one rank.
    pub fn send(&self, from: Span, elements: Elements, peer: u32, comm: Comm, stream: Stream) -> Result<Progress> {
        // SAFETY: see `all_reduce`.
        unsafe {
            library_call!(
                self,
                ncclSend(source(from), elements.count, elements.kind, peer as c_int, comm.raw(), raw(stream))
            )
        }
    }

    /// Receives from one rank.
    pub fn receive(&self, to: Span, elements: Elements, peer: u32, comm: Comm, stream: Stream) -> Result<Progress> {
        // SAFETY: see `all_reduce`.
        unsafe {
            library_call!(
                self,
                ncclRecv(destination(to), elements.count, elements.kind, peer as c_int, comm.raw(), raw(stream),)
            )
        }
    }

    /// Sends one part to each rank, and receives one from each; `None` if this NCCL version lacks the call.
    pub fn all_to_all(
        &self,
        from: Span,
        to: Span,
        elements: Elements,
        comm: Comm,
        stream: Stream,
    ) -> Result<Option<Progress>> {
        // SAFETY: see `all_reduce`.
        let code = unsafe {
            (self.table.ncclAlltoAll)(
                source(from),
                destination(to),
                elements.count,
                elements.kind,
                comm.raw(),
                raw(stream),
            )
        };
        if code == table::ABSENT {
            return Ok(None);
        }
        self.check(Call::ncclAlltoAll, code).map(Some)
    }
}

/// A number of elements of an NCCL data type.
#[derive(Debug, Clone, Copy)]
pub struct Elements {
    /// The number of elements.
    pub count: usize,
    /// The data type, one of [`table::data_type`].
    pub kind: c_int,
}

fn source(span: Span) -> *const c_void {
    span.address() as *const c_void
}

fn destination(span: Span) -> *mut c_void {
    span.address() as *mut c_void
}

fn raw(stream: Stream) -> RawStream {
    stream.handle() as RawStream
}

/// Formats a string of NCCL to be appended to a message; empty if there is none.
///
/// # Safety
/// `text` is NULL or a NUL-terminated string.
unsafe fn message_suffix(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the pointer is not NULL, so the caller guarantees that it is a string.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim();
    if text.is_empty() { String::new() } else { format!("; {text}") }
}

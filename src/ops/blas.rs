//! cuBLAS handles: one for each thread and device, bound to the thread's current stream, with a workspace from the
//! caching allocator.
//!
//! A handle has one workspace for each stream it was requested in. Captured work must not share a workspace with work
//! that runs beside the graph's replays, so each capture has its own workspace, allocated from the graph's pool and
//! freed when the capture ends. The graph keeps the pool, and with it the memory, as long as it exists. A later capture
//! into the same pool may reuse the block, like every free block of the pool, because graphs of one pool never run
//! concurrently.
//!
//! The library is not notified of the end of a capture that the program began with the driver's own calls. Such a
//! capture also has its own workspace, which its graph keeps; the handle drops its reference when a workspace is next
//! requested in that stream.

use super::precision;
use crate::{
    driver::{
        Span,
        cublas::{self, Cublas},
        types::CU_STREAM_PER_THREAD,
    },
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    runtime::{
        self, Runtime,
        device::Device,
        handle_pool::{HandlePool, ThreadHandles, thread_ending_error},
        thread::DroppedInCall,
    },
    status::Status,
    stream::{self, Stream, StreamUse, capture_scope, lifetime},
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;

/// A workspace for work in one stream.
struct Workspace {
    stream: StreamUse,
    /// The capture that records the work, if any.
    capture: Option<u64>,
    memory: Span,
    /// The block, unless a capture of this library keeps it.
    _block: Option<Scratch>,
}

/// A cuBLAS handle and its workspaces.
struct Handle {
    native: cublas::Handle,
    workspaces: Mutex<Vec<Workspace>>,
}

static HANDLES: HandlePool<Handle> = HandlePool::new();

thread_local! {
    static THREAD_HANDLES: DroppedInCall<ThreadHandles<Handle>> =
        const { DroppedInCall::new(ThreadHandles::new(&HANDLES, drop_thread_workspaces)) };
}

/// Drops the workspaces of the per-thread default stream when a thread releases a handle, because that stream ends with
/// the thread.
fn drop_thread_workspaces(handle: &Handle) {
    handle.workspaces.lock().retain(|workspace| workspace.stream.stream.handle() != CU_STREAM_PER_THREAD);
}

/// The workspace sizes in bytes, from the environment.
struct Sizes {
    /// For cuBLAS; `None` selects the default for the device.
    blas: Option<u64>,
    /// For cuBLASLt.
    lt: u64,
}

const BLAS_VARIABLE: &str = "CUBLAS_WORKSPACE_CONFIG";
const LT_VARIABLE: &str = "CUBLASLT_WORKSPACE_SIZE";
/// 32 MiB for the compute capabilities that need it; :4096:2:16:8 for the others.
const LARGE: u64 = 32 << 20;
const SMALL: u64 = (2 * 4096 + 8 * 16) << 10;

fn sizes() -> Result<&'static Sizes> {
    static SIZES: OnceCell<Sizes> = OnceCell::new();
    SIZES.get_or_try_init(|| {
        let read = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Ok(Sizes {
            blas: read(BLAS_VARIABLE).map(|text| blas_size(&text)).transpose()?,
            lt: lt_size(read(LT_VARIABLE))?,
        })
    })
}

#[cold]
fn malformed(variable: &str, text: &str, form: &str) -> Error {
    Error::new(Status::INVALID_CONFIGURATION, format!("{variable} is {text:?}; its form is {form}"))
}

/// Returns the bytes that ":SIZE:COUNT:SIZE:COUNT" requests; the sizes are in KiB.
fn blas_size(text: &str) -> Result<u64> {
    let parse = || {
        let numbers = text.trim().strip_prefix(':')?.split(':');
        let numbers = numbers.map(|number| number.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
        let (pairs, rest) = numbers.as_chunks::<2>();
        if !rest.is_empty() {
            return None;
        }
        pairs.iter().try_fold(0_u64, |sum, [size, count]| sum.checked_add(size.checked_mul(1024)?.checked_mul(*count)?))
    };
    parse().ok_or_else(|| malformed(BLAS_VARIABLE, text, ":SIZE:COUNT, once or more, the sizes in KiB"))
}

/// Returns the bytes of a number of KiB; torch's default of 1024 KiB if there is no text.
fn lt_size(text: Option<String>) -> Result<u64> {
    let Some(text) = text else { return Ok(1 << 20) };
    let bytes = text.trim().parse::<u64>().ok().and_then(|size| size.checked_mul(1024));
    bytes.ok_or_else(|| malformed(LT_VARIABLE, &text, "a number of KiB"))
}

/// Returns the size in bytes of cuBLAS's workspaces on a device.
fn blas_bytes(device: &Device, runtime: &Runtime) -> Result<u64> {
    if let Some(bytes) = sizes()?.blas {
        return Ok(bytes);
    }
    let generation = device.properties(&runtime.driver)?.major;
    Ok(if (9..=12).contains(&generation) { LARGE } else { SMALL })
}

impl Handle {
    /// Returns the workspace for a stream, of at least `bytes` bytes.
    fn workspace(&self, runtime: &Runtime, stream: Stream, bytes: u64) -> Result<Span> {
        let (capture, user) = (stream::capture_id(runtime, stream)?, StreamUse::new(stream));
        let mut outdated = Vec::new();
        {
            let mut workspaces = self.workspaces.lock();
            let same = |workspace: &&Workspace| workspace.stream == user && workspace.capture == capture;
            if let Some(found) = workspaces.iter().find(same) {
                return Ok(found.memory);
            }
            // The stream is now in another capture, or in none.
            outdated
                .extend(workspaces.extract_if(.., |workspace| workspace.stream == user && workspace.capture.is_some()));
        }
        drop(outdated);
        // Allocate without the lock: the allocator may wait, and a thread that clears workspaces must not wait for it.
        // No other thread adds workspaces, because the handle belongs to this thread.
        let block = Scratch::alloc(bytes, stream).context(|| "the workspace of cuBLAS")?;
        let memory = block.memory();
        let kept = capture.is_some_and(|capture| block.keep_in_capture(capture));
        self.workspaces.lock().push(Workspace { stream: user, capture, memory, _block: (!kept).then_some(block) });
        Ok(memory)
    }
}

/// The operands of a call in the thread's current stream.
struct Operands<'a> {
    runtime: &'a Runtime,
    device: &'a Device,
    stream: Stream,
    handle: &'static Handle,
}

impl Operands<'_> {
    /// Returns the parts of the workspace that cuBLAS and cuBLASLt use.
    fn workspace(&self) -> Result<(Span, Span)> {
        let (blas, lt) = (blas_bytes(self.device, self.runtime)?, sizes()?.lt);
        let whole = self.handle.workspace(self.runtime, self.stream, blas.max(lt))?;
        Ok((whole.part(0, blas as usize), whole.part(0, lt as usize)))
    }
}

/// Runs `body` with the thread's handle for its current device, in that device's context.
fn with_handle<T>(body: impl FnOnce(&Cublas, Operands) -> Result<T>) -> Result<T> {
    let runtime = runtime::ready()?;
    let library = cublas::LIBRARY.get_for(&runtime.driver)?;
    let device = runtime.current_device()?;
    let stream = stream::current_on(runtime, device.ordinal)?;
    device.with_context(&runtime.driver, |driver| {
        let renew = |handle: &Handle| library.reset(handle.native);
        let make = || {
            let made = driver.with_relaxed_capture(|| library.create())?;
            let native = made.context(|| format!("making a handle of cuBLAS's for device {}", device.ordinal))?;
            Ok(Handle { native, workspaces: Mutex::default() })
        };
        let handle = THREAD_HANDLES
            .try_with(|handles| handles.get(device.ordinal, renew, make))
            .map_err(thread_ending_error)??;
        body(library, Operands { runtime, device, stream, handle })
    })
}

/// Returns the thread's handle for its current device, bound to its current stream and the workspace of that stream, with
/// the math mode of the process's precision settings.
pub fn current_handle() -> Result<usize> {
    with_handle(|library, operands| {
        let (workspace, _) = operands.workspace()?;
        library.set(operands.handle.native, precision::cublas_math_mode(), operands.stream.raw, workspace)?;
        Ok(operands.handle.native.value())
    })
}

/// Returns the same handle for cuBLASLt. No stream or workspace is set, because cuBLASLt's calls take them as
/// arguments.
pub fn current_lt_handle() -> Result<usize> {
    with_handle(|_, operands| Ok(operands.handle.native.value()))
}

/// Returns the address and the bytes of the workspace that a cuBLASLt call in the thread's current stream may use.
/// cuBLAS calls in the stream use the same memory, in stream order.
pub fn current_lt_workspace() -> Result<(u64, usize)> {
    with_handle(|_, operands| {
        let (_, workspace) = operands.workspace()?;
        Ok((workspace.address(), workspace.bytes()))
    })
}

/// Frees the workspaces of all threads, except those of captures that are still active.
pub fn clear_workspaces() -> Result<()> {
    runtime::ready()?;
    for handle in HANDLES.all() {
        let is_active = |workspace: &Workspace| workspace.capture.is_some_and(capture_scope::is_active);
        let dropped: Vec<Workspace> =
            handle.workspaces.lock().extract_if(.., |workspace| !is_active(workspace)).collect();
        drop(dropped);
    }
    capture_scope::drop_released();
    Ok(())
}

/// Frees the workspaces of streams that have ended.
pub fn drop_workspaces_of_ended(runtime: &Runtime) {
    for handle in HANDLES.all() {
        let has_ended = |workspace: &mut Workspace| lifetime::has_ended(runtime, workspace.stream);
        let dropped: Vec<Workspace> = handle.workspaces.lock().extract_if(.., has_ended).collect();
        drop(dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_torch_reads_them() {
        assert_eq!(blas_size(":4096:2:16:8").unwrap(), 8_519_680);
        assert_eq!(blas_size(":4096:2:16:8").unwrap(), SMALL);
        assert_eq!(blas_size(":4096:8").unwrap(), LARGE);
        assert_eq!(blas_size(" :16:8 ").unwrap(), 128 << 10);
        assert_eq!(blas_size(":0:0").unwrap(), 0);
        for wrong in ["", ":", "4096:2", ":4096", ":4096:2:16", ":a:1", ":-1:1", ":1::1", ":18446744073709551615:2"] {
            let error = blas_size(wrong).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_CONFIGURATION, "{wrong}");
            assert!(error.message().contains("CUBLAS_WORKSPACE_CONFIG"));
        }
        assert_eq!(lt_size(None).unwrap(), 1 << 20);
        assert_eq!(lt_size(Some("2048".into())).unwrap(), 2 << 20);
        assert!(lt_size(Some("much".into())).is_err());
    }
}

//! cuBLAS's handles: one for each thread and device, in the thread's current stream, with a workspace of the
//! allocator's.
//!
//! A handle has a workspace for each stream that it was asked for in. What is recorded in a capture must never meet
//! what runs beside its replays, so captures have workspaces of their own: one of a graph's pool, given back when the
//! capture ends. The graph keeps the pool, and with it the memory, for as long as it is replayed; what is captured
//! later into the same pool may use the block again, as it may every block of the pool that is free, because graphs of
//! one pool never run at once.
//!
//! Of a capture that the program began by the driver's own calls nobody hears the end. It has a workspace of its own, too,
//! which its graph keeps; the handle forgets it when it is next asked for one in that stream.

use crate::{
    driver::{
        self, Span,
        cublas::{self, Cublas},
        math::not_on_host_device,
        types::CU_STREAM_PER_THREAD,
    },
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    runtime::{
        self, Runtime,
        device::Device,
        handle_pool::{HandlePool, ThreadHandles, thread_ending_error},
    },
    status::Status,
    stream::{self, Stream, capture_resources},
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;

/// What the work of a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// It is done at once.
    Eager,
    /// It is recorded by a capture of this library's, of this number.
    Capture(u64),
    /// It is recorded by a capture of the program's, of this number.
    Foreign(u64),
}

struct Workspace {
    stream: usize,
    purpose: Purpose,
    memory: Scratch,
}

/// A handle of cuBLAS's, and its workspaces.
struct Handle {
    native: cublas::Handle,
    workspaces: Mutex<Vec<Workspace>>,
}

static HANDLES: HandlePool<Handle> = HandlePool::new();

thread_local! {
    static MINE: ThreadHandles<Handle> = const { ThreadHandles::new(&HANDLES, part) };
}

/// A thread ends, and with it the stream that is its own: what it was last given for that goes back.
fn part(handle: &Handle) {
    handle.workspaces.lock().retain(|workspace| workspace.stream != CU_STREAM_PER_THREAD);
}

fn library(runtime: &Runtime) -> Result<&'static Cublas> {
    let library = cublas::get()?;
    if runtime.driver.kind() == driver::Kind::Cuda || library.works_on_host_device() {
        return Ok(library);
    }
    Err(not_on_host_device("cuBLAS"))
}

/// How large workspaces are, where the environment says so.
struct Sizes {
    /// cuBLAS's.
    blas: Option<u64>,
    /// cuBLASLt's.
    lt: u64,
}

const BLAS_VARIABLE: &str = "CUBLAS_WORKSPACE_CONFIG";
const LT_VARIABLE: &str = "CUBLASLT_WORKSPACE_SIZE";
/// 32 MiB, where the generation needs it; :4096:2:16:8 elsewhere.
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
fn senseless(variable: &str, text: &str, form: &str) -> Error {
    Error::new(Status::INVALID_CONFIGURATION, format!("{variable} is {text:?}; its form is {form}"))
}

/// The bytes that ":SIZE:COUNT:SIZE:COUNT" asks for, the sizes being in KiB.
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
    parse().ok_or_else(|| senseless(BLAS_VARIABLE, text, ":SIZE:COUNT, once or more, the sizes in KiB"))
}

/// The bytes that a number of KiB asks for, torch's 1024 where there is none.
fn lt_size(text: Option<String>) -> Result<u64> {
    let Some(text) = text else { return Ok(1 << 20) };
    let bytes = text.trim().parse::<u64>().ok().and_then(|size| size.checked_mul(1024));
    bytes.ok_or_else(|| senseless(LT_VARIABLE, &text, "a number of KiB"))
}

/// The bytes of cuBLAS's workspaces on a device.
fn blas_bytes(device: &Device, runtime: &Runtime) -> Result<u64> {
    if let Some(bytes) = sizes()?.blas {
        return Ok(bytes);
    }
    let generation = device.properties(&runtime.driver)?.major;
    Ok(if (9..=12).contains(&generation) { LARGE } else { SMALL })
}

fn purpose(runtime: &Runtime, stream: Stream) -> Result<Purpose> {
    Ok(match stream::capture_id(runtime, stream)? {
        None => Purpose::Eager,
        Some(capture) if capture_resources::is_active(capture) => Purpose::Capture(capture),
        Some(capture) => Purpose::Foreign(capture),
    })
}

impl Handle {
    /// The workspace for a stream, of at least so many bytes.
    fn workspace(&self, runtime: &Runtime, stream: Stream, bytes: u64) -> Result<Span> {
        let purpose = purpose(runtime, stream)?;
        let same = |workspace: &Workspace| workspace.stream == stream.raw.handle() && workspace.purpose == purpose;
        let mut past = Vec::new();
        {
            let mut workspaces = self.workspaces.lock();
            if let Some(found) = workspaces.iter().find(|workspace| same(workspace)) {
                return Ok(found.memory.memory());
            }
            // The stream is in another capture now, or in none.
            past.extend(workspaces.extract_if(.., |workspace| {
                workspace.stream == stream.raw.handle() && matches!(workspace.purpose, Purpose::Foreign(_))
            }));
        }
        drop(past);
        // Without the lock: the allocator may wait, and who clears the workspaces need not. Nobody else adds any: the
        // handle is this thread's.
        let memory = Scratch::alloc(bytes, stream).context(|| "the workspace of cuBLAS")?;
        let span = memory.memory();
        self.workspaces.lock().push(Workspace { stream: stream.raw.handle(), purpose, memory });
        Ok(span)
    }
}

/// What a call in the thread's current stream works with.
struct Place<'a> {
    runtime: &'a Runtime,
    device: &'a Device,
    stream: Stream,
    handle: &'static Handle,
}

impl Place<'_> {
    /// The workspace, and of it as much as cuBLAS and cuBLASLt get.
    fn workspace(&self) -> Result<(Span, Span)> {
        let (blas, lt) = (blas_bytes(self.device, self.runtime)?, sizes()?.lt);
        let whole = self.handle.workspace(self.runtime, self.stream, blas.max(lt))?;
        Ok((whole.part(0, blas as usize), whole.part(0, lt as usize)))
    }
}

/// Runs `body` with the thread's handle for its current device, and that device's context.
fn with_handle<T>(body: impl FnOnce(&Cublas, Place) -> Result<T>) -> Result<T> {
    let runtime = runtime::ready()?;
    let library = library(runtime)?;
    let device = runtime.current_device()?;
    let stream = stream::current_on(runtime, device.ordinal)?;
    device.with_context(&runtime.driver, |driver| {
        let renew = |handle: &Handle| library.reset(handle.native);
        let make = || {
            let made = driver.with_relaxed_capture(|| library.create())?;
            let native = made.context(|| format!("making a handle of cuBLAS's for device {}", device.ordinal))?;
            Ok(Handle { native, workspaces: Mutex::default() })
        };
        let handle = MINE.try_with(|mine| mine.get(device.ordinal, renew, make)).map_err(thread_ending_error)??;
        body(library, Place { runtime, device, stream, handle })
    })
}

/// The thread's handle for its current device, set to its current stream and a workspace for that.
pub fn current_handle() -> Result<usize> {
    with_handle(|library, place| {
        let (workspace, _) = place.workspace()?;
        library.set(place.handle.native, place.stream.raw, workspace)?;
        Ok(place.handle.native.value())
    })
}

/// The same handle as cuBLASLt's, for which neither is set: its calls name them.
pub fn current_lt_handle() -> Result<usize> {
    with_handle(|_, place| Ok(place.handle.native.value()))
}

/// The workspace that a call of cuBLASLt's in the thread's current stream may name, and its bytes. cuBLAS's calls in
/// the stream use the same memory, before or afterwards.
pub fn current_lt_workspace() -> Result<(u64, usize)> {
    with_handle(|_, place| {
        let (_, workspace) = place.workspace()?;
        Ok((workspace.address(), workspace.bytes()))
    })
}

/// Gives back the workspaces of all threads, but for those of captures that go on.
pub fn clear_workspaces() -> Result<()> {
    runtime::ready()?;
    drop_workspaces(|workspace| !matches!(workspace.purpose, Purpose::Capture(_)));
    capture_resources::drop_released();
    Ok(())
}

/// Gives back the workspaces of a capture, which has ended.
pub fn capture_ended(capture: u64) {
    drop_workspaces(|workspace| workspace.purpose == Purpose::Capture(capture));
}

fn drop_workspaces(which: impl Fn(&Workspace) -> bool) {
    for handle in HANDLES.all() {
        let dropped: Vec<Workspace> = handle.workspaces.lock().extract_if(.., |workspace| which(workspace)).collect();
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

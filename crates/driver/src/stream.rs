//! CUDA streams.

use super::{Call, Context, Driver, DriverResult, Event, Span, call, codes, observer, types::*};
use std::{
    ffi::{c_int, c_uint, c_void},
    panic::{self, AssertUnwindSafe},
    ptr,
    sync::Arc,
};

/// The largest number of operations that the driver takes in one call.
const MAX_WRITES: usize = 256;

/// A CUDA stream: a stream that plinth created and never destroys, an external stream that the caller guarantees, or
/// one of the default streams of the current context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(usize);

impl Stream {
    /// The legacy default stream of the calling thread's context.
    pub const DEFAULT: Stream = Stream(0);

    /// Returns one of CUDA's special handles: 0 and 1 are the legacy default stream, 2 is the per-thread default
    /// stream.
    pub fn special(handle: usize) -> Option<Self> {
        (handle <= CU_STREAM_PER_THREAD).then_some(Stream(handle))
    }

    /// Wraps a stream handle.
    ///
    /// # Safety
    /// The handle is a live stream, or one of CUDA's special handles 0, 1 and 2.
    pub unsafe fn from_handle(handle: usize) -> Self {
        Stream(handle)
    }

    /// Returns the stream's handle, which any CUDA library accepts.
    pub fn handle(self) -> usize {
        self.0
    }

    pub(super) fn raw(self) -> CUstream {
        self.0 as CUstream
    }
}

/// A host function of the caller, with its argument, that a stream calls.
#[derive(Debug, Clone, Copy)]
pub struct HostFunction {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

impl HostFunction {
    /// Creates a host function.
    ///
    /// # Safety
    /// `function` may be called once with `data`, from any thread, at any time from now on, and does not unwind.
    pub unsafe fn new(function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Self {
        HostFunction { function, data }
    }

    pub(super) fn parts(self) -> (unsafe extern "C" fn(*mut c_void), *mut c_void) {
        (self.function, self.data)
    }
}

/// A function of the library followed by one of the caller.
struct Followed {
    first: Arc<dyn Fn() + Send + Sync>,
    then: HostFunction,
}

/// # Safety
/// `data` is a boxed [`Followed`], and this is the only call with it.
unsafe extern "C" fn run_followed(data: *mut c_void) {
    // SAFETY: the caller guarantees the type, and the box has no other owner.
    let Followed { first, then } = *unsafe { Box::from_raw(data.cast::<Followed>()) };
    // A panic must not unwind into the driver, and no caller can receive it.
    let _ = panic::catch_unwind(AssertUnwindSafe(|| first()));
    // SAFETY: the contract of `HostFunction::new` covers this one call.
    unsafe { (then.function)(then.data) }
}

impl Driver {
    /// Creates a non-blocking stream in the calling thread's context.
    pub fn stream_create(&self, priority: c_int) -> DriverResult<Stream> {
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: the output is a live local; a priority out of range is clamped by the driver.
        unsafe { call!(self, cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, priority)) }?;
        Ok(Stream(stream as usize))
    }

    /// Destroys a stream from [`stream_create`](Self::stream_create) that is no longer used. Its queued work still
    /// runs.
    pub fn stream_destroy(&self, stream: Stream) -> DriverResult<()> {
        // SAFETY: the stream is live until this call, and its owner does not use it afterwards.
        unsafe { call!(self, cuStreamDestroy_v2(stream.raw())) }?;
        if let Some(observer) = observer::current() {
            observer.stream_ended(stream);
        }
        Ok(())
    }

    /// Returns the stream's id, which no other stream of the process ever has. For the per-thread handle it is the id
    /// of the calling thread's stream. For a capturing stream the call fails and invalidates the capture.
    #[inline]
    pub fn stream_number(&self, stream: Stream) -> DriverResult<u64> {
        let mut number = 0;
        // SAFETY: the stream is live, and the output is a live local.
        unsafe { call!(self, cuStreamGetId(stream.raw(), &mut number)) }?;
        Ok(number)
    }

    /// Returns whether all work of a stream is complete.
    #[inline]
    pub fn stream_query(&self, stream: Stream) -> DriverResult<bool> {
        // SAFETY: the stream is live.
        match unsafe { call!(self, cuStreamQuery(stream.raw())) } {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == codes::CUDA_ERROR_NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Waits until all work of a stream is complete.
    pub fn stream_synchronize(&self, stream: Stream) -> DriverResult<()> {
        observer::observe_wait(
            Call::cuStreamSynchronize,
            |observer| observer.stream_awaited(self, stream),
            // SAFETY: the stream is live.
            || unsafe { call!(self, cuStreamSynchronize(stream.raw())) },
        )
    }

    /// Makes later work in a stream wait for an event's last recording.
    #[inline]
    pub fn stream_wait_event(&self, stream: Stream, event: Event, flags: c_uint) -> DriverResult<()> {
        // SAFETY: both are live driver objects.
        unsafe { call!(self, cuStreamWaitEvent(stream.raw(), event.raw(), flags)) }?;
        if let Some(observer) = observer::current() {
            observer.waits(self, stream, event, flags == CU_EVENT_WAIT_EXTERNAL);
        }
        Ok(())
    }

    /// Writes numbers to places in device memory, each of 8 aligned bytes, in the order of a stream. On the host this takes a
    /// third of the time of a kernel's launch; the device takes somewhat longer than for a kernel.
    pub fn write_numbers(&self, numbers: &[(Span, u64)], stream: Stream) -> DriverResult<()> {
        let write = |&(place, value): &(Span, u64)| StreamWrite {
            operation: CU_STREAM_MEM_OP_WRITE_VALUE_64,
            address: place.address(),
            value,
            flags: CU_STREAM_WRITE_VALUE_DEFAULT,
            alias: 0,
            reserved: 0,
        };
        for numbers in numbers.chunks(MAX_WRITES) {
            let mut writes: Vec<StreamWrite> = numbers.iter().map(write).collect();
            let (count, first) = (writes.len() as c_uint, writes.as_mut_ptr());
            // SAFETY: the stream is live, the list has that many entries, and the constructors of the spans guarantee
            // their memory.
            match unsafe { call!(self, cuStreamBatchMemOp_v2(stream.raw(), count, first, 0)) } {
                Err(failure) if failure.code == codes::CUDA_ERROR_NOT_SUPPORTED => {
                    let halves = |&(place, value): &(Span, u64)| {
                        self.fill_32(place.part(0, 4), value as u32, stream)?;
                        self.fill_32(place.part(4, 4), (value >> 32) as u32, stream)
                    };
                    numbers.iter().try_for_each(halves)?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Returns the priority that a stream was created with.
    pub fn stream_priority(&self, stream: Stream) -> DriverResult<i32> {
        let mut priority = 0;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamGetPriority(stream.raw(), &mut priority)) }?;
        Ok(priority)
    }

    /// Returns whether a stream synchronizes with the legacy default stream. For a capturing stream the call fails and
    /// invalidates the capture.
    pub fn stream_is_blocking(&self, stream: Stream) -> DriverResult<bool> {
        let mut flags = 0;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamGetFlags(stream.raw(), &mut flags)) }?;
        Ok(flags & CU_STREAM_NON_BLOCKING == 0)
    }

    /// Returns the context of a stream.
    pub fn stream_context(&self, stream: Stream) -> DriverResult<Context> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamGetCtx(stream.raw(), &mut context)) }?;
        Ok(Context::from_raw(context))
    }

    /// Returns the capture status of a stream: one of `CU_STREAM_CAPTURE_STATUS_...`.
    #[inline]
    pub fn stream_capture_status(&self, stream: Stream) -> DriverResult<c_uint> {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamIsCapturing(stream.raw(), &mut status)) }?;
        Ok(status)
    }

    /// Returns the id of the capture that a stream takes part in, if the capture is valid.
    pub fn stream_capture_id(&self, stream: Stream) -> DriverResult<Option<u64>> {
        let (mut status, mut id) = (CU_STREAM_CAPTURE_STATUS_NONE, 0);
        // SAFETY: the outputs are live locals, the others may be null, and the stream is live.
        unsafe {
            call!(
                self,
                cuStreamGetCaptureInfo_v2(
                    stream.raw(),
                    &mut status,
                    &mut id,
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ptr::null_mut()
                )
            )
        }?;
        Ok((status == CU_STREAM_CAPTURE_STATUS_ACTIVE).then_some(id))
    }

    /// Runs `body` with the calling thread's capture mode set to relaxed. One-time initialization needs this: a capture
    /// in progress would otherwise reject its calls and become invalid.
    pub fn with_relaxed_capture<T>(&self, body: impl FnOnce() -> T) -> DriverResult<T> {
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the mode is a live local, which receives the previous mode.
        unsafe { call!(self, cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
        let value = body();
        // SAFETY: as before, and the mode is the one that the driver returned. A failure is retried once and then
        // ignored, as when a context is restored: it must not discard the result of `body`.
        unsafe {
            if call!(self, cuThreadExchangeStreamCaptureMode(&mut mode)).is_err() {
                let _ = call!(self, cuThreadExchangeStreamCaptureMode(&mut mode));
            }
        }
        Ok(value)
    }

    /// Enqueues a host function of the caller in a stream.
    pub fn launch_host_function(&self, stream: Stream, function: HostFunction) -> DriverResult<()> {
        // SAFETY: the stream is live, and the contract of `HostFunction::new` covers the call.
        unsafe { call!(self, cuLaunchHostFunc(stream.raw(), Some(function.function), function.data)) }
    }

    /// Enqueues `first`, followed by a host function of the caller, in a stream that is not capturing.
    pub fn launch_host_function_after(
        &self,
        stream: Stream,
        first: Arc<dyn Fn() + Send + Sync>,
        then: HostFunction,
    ) -> DriverResult<()> {
        let data = Box::into_raw(Box::new(Followed { first, then })).cast::<c_void>();
        // SAFETY: the stream is live, and the function takes this boxed value, which lives until its single call.
        unsafe { call!(self, cuLaunchHostFunc(stream.raw(), Some(run_followed), data)) }.inspect_err(|_| {
            // SAFETY: the call failed, so the function will not run, and the pointer has no other owner.
            drop(unsafe { Box::from_raw(data.cast::<Followed>()) });
        })
    }
}

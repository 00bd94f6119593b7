//! The driver's streams.

use super::{Context, Driver, DriverResult, Event, call, codes, observer, types::*};
use std::{
    ffi::{c_int, c_uint, c_void},
    panic::{self, AssertUnwindSafe},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A stream of the driver's: one that plinth made and keeps for ever, one that the caller vouched for, or one of the
/// default streams of the context that is current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream(usize);

impl Stream {
    /// The legacy default stream of the calling thread's context.
    pub const DEFAULT: Stream = Stream(0);

    /// One of CUDA's special handles: 0 and 1, the legacy default stream, and 2, the calling thread's.
    pub fn special(handle: usize) -> Option<Self> {
        (handle <= CU_STREAM_PER_THREAD).then_some(Stream(handle))
    }

    /// The stream with this handle.
    ///
    /// # Safety
    /// The handle is a live stream, or one of CUDA's special handles 0, 1 and 2.
    pub unsafe fn from_handle(handle: usize) -> Self {
        Stream(handle)
    }

    /// The stream's handle, which any CUDA library takes.
    pub fn handle(self) -> usize {
        self.0
    }

    pub(super) fn raw(self) -> CUstream {
        self.0 as CUstream
    }
}

/// A place that holds a stream or none.
#[derive(Debug, Default)]
pub struct StreamCell(AtomicUsize);

impl StreamCell {
    /// The stream in it.
    pub fn get(&self) -> Option<Stream> {
        let handle = self.0.load(Ordering::Acquire);
        (handle != 0).then_some(Stream(handle))
    }

    /// Puts a stream in, in place of what was there.
    pub fn set(&self, stream: Stream) {
        self.0.store(stream.0, Ordering::Release);
    }

    /// Takes the stream out.
    pub fn take(&self) -> Option<Stream> {
        let handle = self.0.swap(0, Ordering::AcqRel);
        (handle != 0).then_some(Stream(handle))
    }
}

/// A function of the caller's to be called by a stream, with its argument.
#[derive(Debug, Clone, Copy)]
pub struct HostFunction {
    function: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

impl HostFunction {
    /// A host function.
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

/// A function of the library's, and one of the caller's that is called after it.
struct Followed {
    first: Arc<dyn Fn() + Send + Sync>,
    then: HostFunction,
}

/// # Safety
/// `data` is a [`Followed`] in a box, and this the only call with it.
unsafe extern "C" fn run_followed(data: *mut c_void) {
    // SAFETY: that is what it is, and nobody else has it.
    let Followed { first, then } = *unsafe { Box::from_raw(data.cast::<Followed>()) };
    // There is nobody to tell of a panic.
    let _ = panic::catch_unwind(AssertUnwindSafe(|| first()));
    // SAFETY: a `HostFunction` was vouched for when it was made, for one call.
    unsafe { (then.function)(then.data) }
}

impl Driver {
    /// Makes a stream that does not wait for the default stream, in the calling thread's context.
    pub fn stream_create(&self, priority: c_int) -> DriverResult<Stream> {
        let mut stream: CUstream = ptr::null_mut();
        // SAFETY: the output is a live local; a priority out of range is clamped by the driver.
        unsafe { call!(self, cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, priority)) }?;
        Ok(Stream(stream as usize))
    }

    /// Destroys a stream that [`stream_create`](Self::stream_create) gave and nobody uses any more. Its work still runs.
    pub fn stream_destroy(&self, stream: Stream) -> DriverResult<()> {
        // SAFETY: the stream is live until this call, after which its owner forgets it.
        unsafe { call!(self, cuStreamDestroy_v2(stream.raw())) }
    }

    /// The stream's number, which no other stream of the process ever has; of the calling thread's where the handle means
    /// that. A stream that is capturing answers with an error, and its capture becomes invalid.
    #[inline]
    pub fn stream_number(&self, stream: Stream) -> DriverResult<u64> {
        let mut number = 0;
        // SAFETY: the stream is live, and the output is a live local.
        unsafe { call!(self, cuStreamGetId(stream.raw(), &mut number)) }?;
        Ok(number)
    }

    /// Whether all work of a stream is done.
    #[inline]
    pub fn stream_query(&self, stream: Stream) -> DriverResult<bool> {
        // SAFETY: the stream is live.
        match unsafe { call!(self, cuStreamQuery(stream.raw())) } {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == codes::CUDA_ERROR_NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Waits until all work of a stream is done.
    pub fn stream_synchronize(&self, stream: Stream) -> DriverResult<()> {
        observer::observe_wait(
            |observer| observer.stream_awaited(self, stream),
            // SAFETY: the stream is live.
            || unsafe { call!(self, cuStreamSynchronize(stream.raw())) },
        )
    }

    /// Lets later work of a stream wait for what an event recorded.
    #[inline]
    pub fn stream_wait_event(&self, stream: Stream, event: Event, flags: c_uint) -> DriverResult<()> {
        // SAFETY: both are live objects of the driver's.
        unsafe { call!(self, cuStreamWaitEvent(stream.raw(), event.raw(), flags)) }?;
        if let Some(observer) = observer::current() {
            observer.waits(self, stream, event, flags == CU_EVENT_WAIT_EXTERNAL);
        }
        Ok(())
    }

    /// The priority with which a stream was made.
    pub fn stream_priority(&self, stream: Stream) -> DriverResult<i32> {
        let mut priority = 0;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamGetPriority(stream.raw(), &mut priority)) }?;
        Ok(priority)
    }

    /// Whether a stream and the default stream wait for each other. A stream that is capturing answers with an error, and its
    /// capture becomes invalid.
    pub fn stream_is_blocking(&self, stream: Stream) -> DriverResult<bool> {
        let mut flags = 0;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamGetFlags(stream.raw(), &mut flags)) }?;
        Ok(flags & CU_STREAM_NON_BLOCKING == 0)
    }

    /// The context of a stream.
    pub fn stream_context(&self, stream: Stream) -> DriverResult<Context> {
        let mut context: CUcontext = ptr::null_mut();
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamGetCtx(stream.raw(), &mut context)) }?;
        Ok(Context::from_raw(context))
    }

    /// Whether a stream is capturing: one of `CU_STREAM_CAPTURE_STATUS_...`.
    #[inline]
    pub fn stream_capture_status(&self, stream: Stream) -> DriverResult<c_uint> {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the output is a live local, and the stream is live.
        unsafe { call!(self, cuStreamIsCapturing(stream.raw(), &mut status)) }?;
        Ok(status)
    }

    /// The number of the capture that a stream takes part in, if it takes part in one that is still valid.
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

    /// Runs `body` with the calling thread's captures told to mind nothing, for work that has to be done at first use
    /// and that a capture under way would otherwise forbid, and be made invalid by.
    pub fn with_relaxed_capture<T>(&self, body: impl FnOnce() -> T) -> DriverResult<T> {
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the mode is a live local, which gets the mode that was.
        unsafe { call!(self, cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
        let value = body();
        // SAFETY: as before, and the mode is the one that the driver gave. A second try where the first fails, as for a
        // context that is put back: what `body` made must not be lost for this.
        unsafe {
            if call!(self, cuThreadExchangeStreamCaptureMode(&mut mode)).is_err() {
                let _ = call!(self, cuThreadExchangeStreamCaptureMode(&mut mode));
            }
        }
        Ok(value)
    }

    /// Lets a stream call a function of the caller's.
    pub fn launch_host_function(&self, stream: Stream, function: HostFunction) -> DriverResult<()> {
        // SAFETY: the stream is live, and a `HostFunction` was vouched for when it was made.
        unsafe { call!(self, cuLaunchHostFunc(stream.raw(), Some(function.function), function.data)) }
    }

    /// Lets a stream that does not capture call `first`, and then a function of the caller's.
    pub fn launch_host_function_after(
        &self,
        stream: Stream,
        first: Arc<dyn Fn() + Send + Sync>,
        then: HostFunction,
    ) -> DriverResult<()> {
        let data = Box::into_raw(Box::new(Followed { first, then })).cast::<c_void>();
        // SAFETY: the stream is live, and the function takes what it gets, which lives until it is called once.
        unsafe { call!(self, cuLaunchHostFunc(stream.raw(), Some(run_followed), data)) }.inspect_err(|_| {
            // SAFETY: the call failed, so that the function will not run, and nobody else has the pointer.
            drop(unsafe { Box::from_raw(data.cast::<Followed>()) });
        })
    }
}

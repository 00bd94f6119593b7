//! Whether a stream is capturing: the library's only query of it.
//!
//! The query has no side effect, whichever thread makes it and in whatever capture mode. Its result is that of the
//! moment: another thread may begin to capture the stream, or make it join a capture, right afterwards. That suffices
//! for the streams that a call of the program names, because the program must not do both at once. Code that uses
//! streams of other threads must hold the capture lock shared from the query to its last use of the stream;
//! [`super::ordering::OutsideCaptures`] does.

use super::{Stream, current_on, resolve};
use crate::{
    driver::{self, Driver, Failure, codes, types::*},
    error::Result,
    runtime::{self, Runtime, thread},
};

/// The part that a stream takes in a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureStatus {
    /// None.
    None,
    /// The stream is part of a valid capture.
    Active,
    /// The stream is part of a capture that was invalidated and has not ended.
    Invalidated,
    /// It is the legacy default stream, which cannot be captured, and a stream that it waits for is capturing: work in
    /// it would invalidate that capture.
    Implicit,
}

/// Returns the status of a stream. A default stream is that of the calling thread's context.
pub fn of(driver: &Driver, stream: driver::Stream) -> Result<CaptureStatus> {
    match driver.stream_capture_status(stream) {
        Ok(CU_STREAM_CAPTURE_STATUS_NONE) => Ok(CaptureStatus::None),
        Ok(CU_STREAM_CAPTURE_STATUS_ACTIVE) => Ok(CaptureStatus::Active),
        Ok(_) => Ok(CaptureStatus::Invalidated),
        Err(Failure { code: codes::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, .. }) => Ok(CaptureStatus::Implicit),
        Err(failure) => Err(failure.into()),
    }
}

/// Returns whether work in a stream may become part of a capture or disturb one, or this cannot be determined.
pub fn may_capture(driver: &Driver, stream: driver::Stream) -> bool {
    !matches!(of(driver, stream), Ok(CaptureStatus::None))
}

/// Returns whether the stream with a handle is capturing. The legacy default stream never is.
#[inline]
pub fn is_capturing(handle: usize) -> Result<bool> {
    let runtime = runtime::ready()?;
    is_validated_capturing(runtime, resolve(runtime, handle)?)
}

/// Does the same for a validated stream.
#[inline]
pub fn is_validated_capturing(runtime: &Runtime, stream: Stream) -> Result<bool> {
    if stream.raw.handle() <= CU_STREAM_LEGACY {
        return Ok(false);
    }
    runtime.in_stream(stream, |driver, raw| Ok(of(driver, raw)? != CaptureStatus::None))
}

/// Returns whether the thread's current stream is capturing. Creates no context.
#[inline]
pub fn is_current_capturing() -> Result<bool> {
    let Some(runtime) = runtime::if_initialized()? else { return Ok(false) };
    is_validated_capturing(runtime, current_on(runtime, thread::device())?)
}

/// Returns the ID of the valid capture that a stream is part of, if there is one; 0 if the driver does not report
/// IDs.
pub fn capture_id(runtime: &Runtime, stream: Stream) -> Result<Option<u64>> {
    if stream.raw.handle() <= CU_STREAM_LEGACY {
        return Ok(None);
    }
    runtime.in_stream(stream, id_of)
}

/// Does the same for a driver stream. A default stream is that of the calling thread's context.
pub fn id_of(driver: &Driver, stream: driver::Stream) -> Result<Option<u64>> {
    if stream.handle() <= CU_STREAM_LEGACY {
        return Ok(None);
    }
    match driver.stream_capture_id(stream) {
        Err(failure) if failure.code == codes::CUDA_ERROR_NOT_SUPPORTED => {
            Ok((of(driver, stream)? == CaptureStatus::Active).then_some(0))
        }
        outcome => Ok(outcome?),
    }
}

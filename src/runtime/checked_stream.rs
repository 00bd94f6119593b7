//! A stream whose handle was checked: what most functions take in place of a handle; and a stream that other threads
//! refer to later.

use super::{names, thread};
use crate::driver::{self, StreamInfo, StreamOrigin, types::CU_STREAM_LEGACY};

/// A stream whose handle was validated.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// The driver's stream.
    pub raw: driver::Stream,
    /// Its device, where it comes from, and the number of earlier streams with this handle that have ended.
    pub(crate) info: StreamInfo,
}

impl Stream {
    /// Returns the number of its device.
    #[inline]
    pub fn device(self) -> u32 {
        self.info.device()
    }

    /// Returns whether it is a default stream, which is a different stream in each context.
    #[inline]
    pub fn is_default(self) -> bool {
        self.info.is_default()
    }

    /// Returns whether it is the legacy default stream.
    pub fn is_legacy(self) -> bool {
        self.raw.handle() <= CU_STREAM_LEGACY
    }

    /// Returns whether it is the legacy default stream, or is known to synchronize with it.
    pub fn is_blocking(self) -> bool {
        self.is_default() || self.origin() == (StreamOrigin::External { blocking: Some(true) })
    }

    /// Returns where it comes from.
    pub(crate) fn origin(self) -> StreamOrigin {
        self.info.origin()
    }

    /// Describes the stream for messages.
    pub fn describe(self) -> String {
        names::describe_stream(if self.is_default() { 0 } else { self.raw.handle() }, self.device())
    }
}

/// A stream that was used, as any thread can refer to it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamUse {
    /// The stream.
    pub stream: driver::Stream,
    /// Its device.
    pub device: u32,
    /// The thread, if the handle denotes a different stream in each thread; otherwise 0.
    pub thread: u64,
    /// The number of earlier streams with this handle that had ended when it was used.
    pub generation: u32,
}

impl StreamUse {
    /// Creates the use of a stream by the calling thread.
    pub fn new(stream: Stream) -> StreamUse {
        let Stream { raw, info } = stream;
        let (device, generation) = (info.device(), info.generation());
        StreamUse { stream: raw, device, thread: thread::of_stream(raw.handle()), generation }
    }

    /// Returns whether the calling thread can use the stream's handle. The handle of a per-thread default stream
    /// denotes a different stream in another thread.
    pub fn has_usable_handle(&self) -> bool {
        self.thread == 0 || self.thread == thread::number()
    }

    /// Returns the stream to record events in: this stream, or the legacy default stream in place of another thread's
    /// per-thread default stream, which has no handle here. Work in the legacy stream runs after the work of all such
    /// streams.
    pub fn event_stream(&self) -> driver::Stream {
        if self.has_usable_handle() { self.stream } else { driver::Stream::DEFAULT }
    }
}

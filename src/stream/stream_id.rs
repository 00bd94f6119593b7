//! Which stream it is, although programs destroy streams and get their handles again for new ones.

use crate::driver::{self, Driver, types::CU_STREAM_PER_THREAD};

/// A stream and its id, which distinguishes it from a later stream with the same handle and from the per-thread default
/// streams of other threads.
#[derive(Debug, Clone, Copy)]
pub struct StreamId {
    stream: driver::Stream,
    /// `None` if the driver has no ids, and in a capture, because querying it would invalidate the capture.
    number: Option<u64>,
}

impl StreamId {
    /// Identifies a stream, which is in the capture with this id, if there is one.
    pub fn of(driver: &Driver, stream: driver::Stream, capture: Option<u64>) -> StreamId {
        let number = if capture.is_none() { driver.stream_number(stream).ok() } else { None };
        StreamId { stream, number }
    }

    /// Returns the stream.
    pub fn native(self) -> driver::Stream {
        self.stream
    }

    /// Returns whether the driver has an id of the stream: not in a capture.
    pub fn has_id(self) -> bool {
        self.number.is_some()
    }

    /// Returns whether eager work launched in both streams runs in launch order. A program may destroy a stream while
    /// its work is pending and get the same handle for a new stream.
    pub fn is_same_eager(self, other: StreamId) -> bool {
        self.number.is_some() && (self.stream, self.number) == (other.stream, other.number)
    }

    /// Returns whether both are the same stream, given that both belong to the same valid capture. Destroying a stream
    /// invalidates its capture, so the handle suffices, except for a handle that means another stream in another
    /// thread.
    pub fn is_same_captured(self, other: StreamId) -> bool {
        self.stream == other.stream && self.stream.handle() > CU_STREAM_PER_THREAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_handle_is_another_stream() {
        let stream = driver::Stream::special(2).unwrap();
        let [first, second, unknown] = [Some(7), Some(8), None].map(|number| StreamId { stream, number });
        assert!(first.is_same_eager(first) && !first.is_same_eager(second));
        assert!(!unknown.is_same_eager(unknown));
        // The per-thread default stream is another stream in each thread.
        assert!(!unknown.is_same_captured(unknown));
    }
}

//! A stream whose handle was checked: what most functions take in place of a handle.

use crate::driver::{self, StreamOrigin};

/// A stream whose handle was validated.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    /// The driver's stream.
    pub raw: driver::Stream,
    /// The number of its device.
    pub device: u32,
    /// Where it comes from; `None` for a default stream.
    pub(crate) origin: Option<StreamOrigin>,
}

impl Stream {
    /// Returns whether it is a default stream, which is a different stream in each context.
    #[inline]
    pub fn is_default(self) -> bool {
        self.origin.is_none()
    }

    /// Returns the legacy default stream of the same device.
    pub fn legacy(self) -> Stream {
        Stream { raw: driver::Stream::DEFAULT, device: self.device, origin: None }
    }

    /// Describes the stream for messages.
    pub fn describe(self) -> String {
        if self.is_default() {
            format!("the default stream of device {}", self.device)
        } else {
            format!("stream {:#x} of device {}", self.raw.handle(), self.device)
        }
    }
}

//! Memory that the library's own work needs for as long as that is in its stream.

use super::{caching_alloc, caching_free};
use crate::{
    driver::Span,
    error::{Context, Result},
    stream::Stream,
    units::Bytes,
};

/// A block of the caching allocator's for work in one stream. When this ends, work that comes later in the stream may have
/// the block.
#[derive(Debug)]
pub struct Scratch(Span);

impl Scratch {
    /// A block for a stream; in a capture, of its graph's pool.
    pub fn alloc(bytes: u64, stream: Stream) -> Result<Scratch> {
        let address = caching_alloc(bytes, stream.device as i32, stream.raw)
            .context(|| format!("allocating {} to work with", Bytes(bytes)))?;
        Ok(Scratch(Span::owned(address, bytes as usize)))
    }

    /// Its memory.
    pub fn memory(&self) -> Span {
        self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It fails for what was never given out or is freed already, and this is neither.
        let _ = caching_free(self.0.address());
    }
}

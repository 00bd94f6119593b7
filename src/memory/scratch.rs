//! Memory that the library's own work needs for as long as that is in its stream.

use crate::{
    base::units::Bytes,
    driver::Span,
    error::{Context, Result},
    memory::{caching_alloc, caching_free},
    runtime,
    stream::{self, Stream, capture_resources},
};
use std::sync::Arc;

/// A block of the caching allocator's.
#[derive(Debug)]
struct Block(Span);

/// A block of the caching allocator's for work in one stream. When this ends, work that comes later in the stream may have
/// the block.
///
/// In a capture it is of the graph's pool, and what replays use is the pool's. A capture that the program began by the driver's
/// own calls has no pool: its graph keeps the block, which is freed some time after the graph is gone.
#[derive(Debug)]
pub struct Scratch(Arc<Block>);

impl Scratch {
    /// A block for a stream.
    pub fn alloc(bytes: u64, stream: Stream) -> Result<Scratch> {
        let runtime = runtime::ready()?;
        capture_resources::drop_released();
        let address = caching_alloc(bytes, stream.device as i32, stream.raw)
            .context(|| format!("allocating {} to work with", Bytes(bytes)))?;
        let block = Arc::new(Block(Span::owned(address, bytes as usize)));
        if let Some(capture) = stream::capture_id(runtime, stream)?
            && !capture_resources::is_active(capture)
        {
            capture_resources::attach_to_graph(runtime, stream, capture, block.clone())?;
        }
        Ok(Scratch(block))
    }

    /// Its memory.
    pub fn memory(&self) -> Span {
        self.0.0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // It fails for what was never given out or is freed already, and this is neither.
        let _ = caching_free(self.0.address());
    }
}

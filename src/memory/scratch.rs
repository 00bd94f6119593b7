//! Temporary device memory for the library's own work in a stream.

use crate::{
    base::units::Bytes,
    driver::Span,
    error::{Context, Result},
    memory::{caching_alloc, free_own},
    runtime::{self, Runtime},
    stream::{
        self, Stream,
        capture_scope::{self, CaptureResource},
    },
};
use std::sync::Arc;

/// Allocates a block with the caching allocator for work in a stream. The caller passes its address to
/// [`free_own`] after it has enqueued the last work that uses it.
pub fn alloc_span(bytes: u64, stream: Stream) -> Result<Span> {
    let address = caching_alloc(bytes, stream.device() as i32, stream.raw)?;
    // SAFETY: the block has this size. Its owner frees it after the work that uses it, in stream order, so the span stays
    // valid until that work is complete.
    #[allow(unsafe_code)]
    Ok(unsafe { Span::new(address, bytes as usize) })
}

/// A block of the caching allocator, freed on drop.
#[derive(Debug)]
struct Block(Span);

/// A block of the caching allocator for work in one stream. After the drop, later work in the stream may reuse the
/// block.
///
/// In a capture, the block is from the graph's pool, which keeps the memory for replays. A capture that the program
/// began through the driver has no pool: its graph keeps the block, which is freed some time after the graph is
/// destroyed.
#[derive(Debug)]
pub struct Scratch(Arc<Block>);

impl Scratch {
    /// Allocates a block for a stream.
    pub fn alloc(bytes: u64, stream: Stream) -> Result<Scratch> {
        let runtime = runtime::ready()?;
        capture_scope::drop_released();
        let memory = alloc_span(bytes, stream).context(|| format!("allocating {} to work with", Bytes(bytes)))?;
        let block = Arc::new(Block(memory));
        if let Some(capture) = stream::capture_id(runtime, stream)?
            && !capture_scope::is_active(capture)
        {
            capture_scope::add_to_driver_graph(runtime, stream, capture, block.clone())?;
        }
        Ok(Scratch(block))
    }

    /// Makes a capture of this library keep the block until the capture ends. Returns false if it is not one.
    pub fn keep_in_capture(&self, capture: u64) -> bool {
        capture_scope::add(capture, &self.0)
    }

    /// Returns the memory of the block.
    pub fn memory(&self) -> Span {
        self.0.0
    }
}

impl CaptureResource for Block {
    fn on_capture_end(&self, _runtime: &Runtime, _capture: u64) -> bool {
        false
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        free_own(self.0.address());
    }
}

//! A capture as a block of a program: what `torch.cuda.graph` does at its begin and its end.

use super::capture::{self, Mode};
use crate::{
    error::{Context, Result},
    memory::{self, PoolId},
    runtime::{self, Runtime, sync_debug},
    stream::{self, Saved},
};
use once_cell::sync::OnceCell;

/// The stream of a device that captures go to for which none is named.
#[derive(Default)]
pub struct CaptureStream(OnceCell<usize>);

/// What the end of a block must put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The graph.
    pub graph: u64,
    /// The streams and the device that were current.
    pub saved: Saved,
}

/// Waits for the device, gives cached memory back, makes a stream current and begins to capture in it. Without a stream it is
/// one of the current device's own.
pub fn begin(graph: u64, pool: PoolId, stream: Option<usize>, mode: Mode) -> Result<Block> {
    let runtime = runtime::ready()?;
    let handle = match stream {
        Some(handle) => handle,
        None => own_stream(runtime)?,
    };
    let number = stream::resolve(runtime, handle)?.device;
    sync_debug::check("plinth_graph_begin")?;
    runtime
        .device(number as i32)?
        .with_context(&runtime.driver, |driver| Ok(driver.context_synchronize()?))
        .context(|| format!("synchronizing device {number} before a capture"))?;
    memory::empty_cache().context(|| "emptying the cache before a capture")?;
    let saved = stream::enter(handle)?;
    if let Err(error) = capture::begin(graph, pool, mode) {
        // The error that counts is why there is no capture.
        let _ = stream::exit(saved);
        return Err(error);
    }
    Ok(Block { graph, saved })
}

fn own_stream(runtime: &Runtime) -> Result<usize> {
    let device = runtime.current_device()?;
    device.capture_stream.0.get_or_try_init(|| stream::create(device.ordinal as i32, 0)).copied()
}

/// Ends the capture and puts back what [`begin`] found, whatever comes of the capture.
pub fn end(block: Block) -> Result<()> {
    let ended = capture::end(block.graph);
    let exited = stream::exit(block.saved);
    ended.and(exited)
}

/// Throws the capture away and puts back what [`begin`] found.
pub fn cancel(block: Block) -> Result<()> {
    let reset = super::reset(block.graph);
    let exited = stream::exit(block.saved);
    reset.and(exited)
}

//! A capture as a scope of a program: what `torch.cuda.graph` does on entry and exit.

use super::capture::{self, Mode};
use crate::{
    error::{Context, Result},
    memory::{self, PoolId},
    runtime::{self, Runtime, sync_debug},
    stream::{self, SavedStreams},
};
use once_cell::sync::OnceCell;

/// The stream of a device for captures that name no stream.
#[derive(Default)]
pub struct CaptureStream(OnceCell<usize>);

/// The state that the end of a capture scope restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureContext {
    /// The graph.
    pub graph: u64,
    /// The streams and the device that were current.
    pub saved: SavedStreams,
}

/// Synchronizes the device, empties the cache, makes a stream current and begins to capture in it. Without `stream`,
/// uses the current device's own capture stream.
pub fn begin(graph: u64, pool: PoolId, stream: Option<usize>, mode: Mode) -> Result<CaptureContext> {
    let runtime = runtime::ready()?;
    let handle = match stream {
        Some(handle) => handle,
        None => capture_stream(runtime)?,
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
        // The error of the capture is returned.
        let _ = stream::exit(saved);
        return Err(error);
    }
    Ok(CaptureContext { graph, saved })
}

fn capture_stream(runtime: &Runtime) -> Result<usize> {
    let device = runtime.current_device()?;
    device.capture_stream.0.get_or_try_init(|| stream::create(device.ordinal as i32, 0)).copied()
}

/// Ends the capture and restores the state before [`begin`], also if the capture fails.
pub fn end(block: CaptureContext) -> Result<()> {
    let ended = capture::end(block.graph);
    let exited = stream::exit(block.saved);
    ended.and(exited)
}

/// Discards the capture and restores the state before [`begin`].
pub fn cancel(block: CaptureContext) -> Result<()> {
    let reset = super::reset(block.graph);
    let exited = stream::exit(block.saved);
    reset.and(exited)
}

//! A capture as a scope of a program: what `torch.cuda.graph` does on entry and exit.

use super::capture::{self, Mode};
use crate::{
    base::log,
    error::{Context, Result},
    memory::{self, PoolId},
    runtime::{self, device::Device, per_device::PerDevice, sync_debug},
    status::Status,
    stream::{self, SavedStreams, capture_lock, capture_status, lifetime},
};
use parking_lot::Mutex;

/// The streams of a device for captures that name no stream: as many as threads have captured at the same time.
#[derive(Default)]
pub struct CaptureStreams(Mutex<Vec<CaptureStream>>);

struct CaptureStream {
    handle: usize,
    /// Whether a thread has chosen the stream and its capture has not begun yet.
    is_reserved: bool,
}

/// A capture stream that no other thread chooses until this is dropped.
struct ReservedStream {
    streams: &'static CaptureStreams,
    handle: usize,
}

impl Drop for ReservedStream {
    fn drop(&mut self) {
        if let Some(stream) = self.streams.0.lock().iter_mut().find(|stream| stream.handle == self.handle) {
            stream.is_reserved = false;
        }
    }
}

/// The state that the end of a capture scope restores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureContext {
    /// The graph.
    pub graph: u64,
    /// The streams and the device that were current.
    pub saved: SavedStreams,
}

/// Synchronizes the device, empties the cache, makes a stream current and begins to capture in it. While another capture
/// is in progress, which forbids both, nothing is synchronized or emptied. Without `stream`, uses a capture stream of the
/// current device.
pub fn begin(graph: u64, pool: PoolId, stream: Option<usize>, mode: Mode) -> Result<CaptureContext> {
    let runtime = runtime::ready()?;
    let device = match stream {
        Some(handle) => runtime.device(stream::resolve(runtime, handle)?.device() as i32)?,
        None => runtime.current_device()?,
    };
    sync_debug::check("plinth_graph_begin")?;
    match capture_lock::synchronize_device(runtime, device) {
        Err(error) if error.status() == Status::CAPTURE_FORBIDS && error.driver_code() == 0 => {}
        outcome => {
            outcome.and_then(|()| memory::empty_cache()).context(|| "emptying the cache before a capture")?;
        }
    }
    // Reserved until the capture has begun. No lock is held then, because it may call the program's callbacks.
    let (handle, _reserved) = match stream {
        Some(handle) => (handle, None),
        None => {
            let reserved = reserve_idle_stream(device)?;
            (reserved.handle, Some(reserved))
        }
    };
    let saved = stream::enter(handle)?;
    if let Err(error) = capture::begin(graph, pool, mode) {
        // The error of the capture is returned.
        log::ignore(stream::exit(saved), "restoring the current stream after a capture that did not begin");
        return Err(error);
    }
    Ok(CaptureContext { graph, saved })
}

/// Reserves a capture stream in which no capture is in progress. No other code of the program gets these streams.
fn reserve_idle_stream(device: &Device) -> Result<ReservedStream> {
    let streams = device.capture_streams();
    let mut all = streams.0.lock();
    for stream in all.iter_mut().filter(|stream| !stream.is_reserved) {
        if !capture_status::is_capturing(stream.handle)? {
            stream.is_reserved = true;
            return Ok(ReservedStream { streams, handle: stream.handle });
        }
    }
    let handle = lifetime::create_kept(device.ordinal as i32)?;
    all.push(CaptureStream { handle, is_reserved: true });
    Ok(ReservedStream { streams, handle })
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

impl Device {
    /// Returns the streams that graphs are captured in when none is named.
    fn capture_streams(&self) -> &'static CaptureStreams {
        static VALUES: PerDevice<CaptureStreams> = PerDevice::new();
        VALUES.of(self)
    }
}

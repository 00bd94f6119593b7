//! Segments that a pool's own (external) allocator allocated, by address.

use crate::{
    driver::{Stream, plugin::Plugin},
    runtime::thread::call_program,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

struct ExternalSegment {
    plugin: Arc<Plugin>,
    bytes: u64,
    device: u32,
    stream: Stream,
}

static SEGMENTS: Mutex<Option<HashMap<u64, ExternalSegment>>> = Mutex::new(None);

/// Allocates a segment from an allocator. Returns `None` if it has no memory.
pub fn allocate(plugin: Arc<Plugin>, bytes: u64, device: u32, stream: Stream) -> Option<u64> {
    let address = call_program(|| plugin.alloc(bytes, device, stream))?;
    SEGMENTS.lock().get_or_insert_default().insert(address, ExternalSegment { plugin, bytes, device, stream });
    Some(address)
}

/// Returns a segment to its allocator.
pub fn free(address: u64) {
    let segment = SEGMENTS.lock().as_mut().and_then(|segments| segments.remove(&address));
    if let Some(segment) = segment {
        call_program(|| segment.plugin.free(address, segment.bytes, segment.device, segment.stream));
    }
}

//! Segments that a pool's own (external) allocator allocated, by address.

use crate::driver::{Stream, plugin::Plugin};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

struct Loan {
    plugin: Arc<Plugin>,
    bytes: u64,
    device: u32,
    stream: Stream,
}

static LOANS: Mutex<Option<HashMap<u64, Loan>>> = Mutex::new(None);

/// Allocates a segment from an allocator. Returns `None` if it has no memory.
pub fn take(plugin: Arc<Plugin>, bytes: u64, device: u32, stream: Stream) -> Option<u64> {
    let address = plugin.alloc(bytes, device, stream)?;
    LOANS.lock().get_or_insert_default().insert(address, Loan { plugin, bytes, device, stream });
    Some(address)
}

/// Returns a segment to its allocator.
pub fn give_back(address: u64) {
    let loan = LOANS.lock().as_mut().and_then(|loans| loans.remove(&address));
    if let Some(loan) = loan {
        loan.plugin.free(address, loan.bytes, loan.device, loan.stream);
    }
}

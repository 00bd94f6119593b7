//! The trace of the process, started and stopped for all arenas at once.
//!
//! An arena's listener, under the arena's lock, determines whether it is traced, so that a process without a trace pays
//! nothing. Events are written under that lock, which keeps them in order: a block's allocation comes before its free,
//! and the free before the next allocation at its address.

use super::{
    block::BlockState,
    listener,
    trace::{Block, Recorder},
};
use crate::{error::Result, runtime};
use std::path::Path;

static RECORDER: Recorder = Recorder::new();

/// Returns the recorder. Call it only while a trace is being written.
pub fn recorder() -> &'static Recorder {
    &RECORDER
}

/// Starts a trace, with the live blocks first.
pub fn trace_start(path: &Path) -> Result<()> {
    let runtime = runtime::ready()?;
    // Lock order: the lists first, so that no arena is created meanwhile, then each arena.
    let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory().all_arenas()).collect();
    let mut guards: Vec<_> = lists.iter().flat_map(|list| list.iter()).map(|arena| (arena, arena.lock())).collect();
    let live: Vec<Block> = guards
        .iter()
        .flat_map(|(arena, inner)| {
            let blocks = inner.space.blocks.iter().filter(|(_, block)| block.state == BlockState::Live);
            blocks.map(|(_, block)| Block {
                device: arena.device,
                address: block.address,
                stream: inner.key.stream,
                size: block.requested,
            })
        })
        .collect();
    RECORDER.start(path, runtime.devices().len(), live)?;
    for (arena, inner) in &mut guards {
        listener::update(arena.device, inner);
    }
    Ok(())
}

/// Stops the trace.
pub fn trace_stop() -> Result<()> {
    let runtime = runtime::ready()?;
    let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory().all_arenas()).collect();
    let stopped = RECORDER.stop();
    for arena in lists.iter().flat_map(|list| list.iter()) {
        listener::update(arena.device, &mut arena.lock());
    }
    stopped
}

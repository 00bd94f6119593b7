//! The trace of the process: begun and ended for all arenas at one moment.
//!
//! An arena knows whether it is traced, under its own lock, so that a process without a trace pays nothing for the
//! possibility. While it is, events are written under that lock, which keeps them in order: a block's allocation comes
//! before its free, and that before the next owner's allocation.

use super::{
    block::State,
    listener,
    trace::{Block, Recorder},
};
use crate::{error::Result, runtime};
use std::path::Path;

static RECORDER: Recorder = Recorder::new();

/// The recorder, for those who know that there is a trace.
pub fn recorder() -> &'static Recorder {
    &RECORDER
}

/// Begins to write what is allocated and freed, with what is live already first.
pub fn trace_start(path: &Path) -> Result<()> {
    let runtime = runtime::ready()?;
    // In order: first the lists, so that no arena appears meanwhile, then each arena.
    let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory.all_arenas()).collect();
    let mut guards: Vec<_> = lists.iter().flat_map(|list| list.iter()).map(|arena| (arena, arena.lock())).collect();
    let live: Vec<Block> = guards
        .iter()
        .flat_map(|(arena, inner)| {
            let blocks = inner.space.blocks.iter().filter(|(_, block)| block.state == State::Live);
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
        listener::tune(arena.device, inner);
    }
    Ok(())
}

/// Ends that.
pub fn trace_stop() -> Result<()> {
    let runtime = runtime::ready()?;
    let lists: Vec<_> = runtime.devices().iter().map(|device| device.memory.all_arenas()).collect();
    let stopped = RECORDER.stop();
    for arena in lists.iter().flat_map(|list| list.iter()) {
        listener::tune(arena.device, &mut arena.lock());
    }
    stopped
}

//! Messages that are worth more than one launch: every device works, and no link carries a byte twice in a direction.

use super::{
    chunks::{Pieces, Reduction},
    stream_group::{Crew, Workers},
};
use crate::memory::reach::ensure_access;
use crate::{error::Result, runtime::Runtime, stream::Stream};

/// Whether all devices of these streams reach all of the places, and there are several devices.
pub fn can_share(runtime: &Runtime, streams: &[Stream], pieces: &Pieces) -> Result<bool> {
    let distinct = streams
        .iter()
        .enumerate()
        .all(|(index, stream)| streams[..index].iter().all(|other| other.device != stream.device));
    if streams.len() < 2 || !distinct {
        return Ok(false);
    }
    for stream in streams {
        if !ensure_access(runtime, stream.device, pieces.devices())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is to be done with pieces.
#[derive(Debug, Clone, Copy)]
pub enum Task {
    /// They are copied.
    Copy,
    /// They are reduced.
    Reduce(Reduction),
}

impl Task {
    /// Does it, in a stream whose device reaches them.
    pub fn launch(self, runtime: &Runtime, stream: Stream, pieces: &Pieces) -> Result<()> {
        match self {
            Task::Copy => pieces.copy(runtime, stream),
            Task::Reduce(reduction) => pieces.reduce(runtime, stream, reduction),
        }
    }

    /// Does it by the driver's copies, as far as the stream's device does not reach them.
    pub fn by_driver(self, runtime: &Runtime, stream: Stream, pieces: &Pieces) -> Result<()> {
        match self {
            Task::Copy => pieces.copy_by_driver(runtime, stream),
            Task::Reduce(reduction) => pieces.reduce_by_driver(runtime, stream, reduction),
        }
    }
}

/// Does a task in one stream: by one launch, or by copies where the devices are no peers.
pub fn alone(crew: &Crew, task: Task, pieces: &Pieces) -> Result<()> {
    if pieces.is_empty() {
        return Ok(());
    }
    let reached = ensure_access(crew.runtime, crew.work.device, pieces.devices())?;
    crew.run(Workers::One, |work| {
        if reached { task.launch(crew.runtime, work, pieces) } else { task.by_driver(crew.runtime, work, pieces) }
    })
}

/// Gives each stream its share of a task.
pub fn shared(crew: &Crew, task: Task, workers: &[Stream], pieces: &Pieces) -> Result<()> {
    crew.run(Workers::All, |_| {
        for (index, worker) in workers.iter().enumerate() {
            task.launch(crew.runtime, *worker, &pieces.share(index, workers.len()))?;
        }
        Ok(())
    })
}

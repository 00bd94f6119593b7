//! Large messages, which take more than one launch: every device works, and no link carries a byte twice in one
//! direction.

use super::{
    chunks::{Chunks, Reduction},
    stream_group::{StreamGroup, Workers},
    tuning::Threshold,
};
use crate::memory::reach::ensure_access;
use crate::{error::Result, runtime::Runtime, stream::Stream};

/// Executes a task: in several streams, each with its part, if it may be split, otherwise in the group's working stream.
pub fn execute(
    group: &StreamGroup,
    task: Task,
    threshold: Threshold,
    workers: &[Stream],
    chunks: &Chunks,
) -> Result<()> {
    if may_split(group, threshold, workers, chunks)? {
        in_all_streams(group, task, workers, chunks)
    } else {
        in_one_stream(group, task, chunks)
    }
}

/// Returns whether a task is large enough to be split among several streams, and these can.
pub fn may_split(group: &StreamGroup, threshold: Threshold, workers: &[Stream], chunks: &Chunks) -> Result<bool> {
    Ok(chunks.bytes() >= threshold.bytes()? && group.is_complete() && can_share(group.runtime, workers, chunks)?)
}

/// Returns whether there are several distinct devices, and all of them have access to all operands.
fn can_share(runtime: &Runtime, streams: &[Stream], chunks: &Chunks) -> Result<bool> {
    let distinct = streams
        .iter()
        .enumerate()
        .all(|(index, stream)| streams[..index].iter().all(|other| other.device() != stream.device()));
    if streams.len() < 2 || !distinct {
        return Ok(false);
    }
    for stream in streams {
        if !ensure_access(runtime, stream.device(), chunks.devices())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What to do with chunks.
#[derive(Debug, Clone, Copy)]
pub enum Task {
    /// Copy.
    Copy,
    /// Reduce.
    Reduce(Reduction),
}

impl Task {
    /// Launches the task in a stream whose device has access to all operands.
    pub fn launch(self, runtime: &Runtime, stream: Stream, chunks: &Chunks) -> Result<()> {
        match self {
            Task::Copy => chunks.copy(runtime, stream),
            Task::Reduce(reduction) => chunks.reduce(runtime, stream, reduction),
        }
    }

    /// Executes the task with the driver's copies for the operands to which the stream's device has no access.
    pub fn with_driver_copies(self, runtime: &Runtime, stream: Stream, chunks: &Chunks) -> Result<()> {
        match self {
            Task::Copy => chunks.copy_with_driver(runtime, stream),
            Task::Reduce(reduction) => chunks.reduce_with_driver(runtime, stream, reduction),
        }
    }
}

/// Executes a task in one stream: by one launch, or by the driver's copies if the devices are not peers.
pub fn in_one_stream(group: &StreamGroup, task: Task, chunks: &Chunks) -> Result<()> {
    if chunks.is_empty() {
        return Ok(());
    }
    let reached = ensure_access(group.runtime, group.work.device(), chunks.devices())?;
    group.run(Workers::One, |work| {
        if reached {
            task.launch(group.runtime, work, chunks)
        } else {
            task.with_driver_copies(group.runtime, work, chunks)
        }
    })
}

/// Executes a task in all streams, each with its part.
fn in_all_streams(group: &StreamGroup, task: Task, workers: &[Stream], chunks: &Chunks) -> Result<()> {
    group.run(Workers::All, |_| {
        for (index, worker) in workers.iter().enumerate() {
            task.launch(group.runtime, *worker, &chunks.part_of(index, workers.len()))?;
        }
        Ok(())
    })
}

//! Messages that are worth more than one launch: every device works, and no link carries a byte twice in a direction.

use super::{
    order::{Crew, Workers, follow},
    pieces::{Pieces, Place, Reduction},
    reach::reaches,
    tuning::Threshold,
};
use crate::{error::Result, runtime::Runtime, stream::Stream};

/// The most stages of a broadcast: each costs some launches.
const MOST_STAGES: u64 = 64;
/// The fewest, so that receivers pass on while they still receive.
const LEAST_STAGES: u64 = 4;

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
        if !reaches(runtime, stream.device, pieces.devices())? {
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
    let reached = reaches(crew.runtime, crew.work.device, pieces.devices())?;
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

/// Copies pieces of a stream's device to receivers, one for each destination in order: of every stage each receiver gets a
/// part of its own, and passes it on to the others while the next stage is on its way. So the source sends each byte
/// once, and what a receiver sends is never more than what it gets.
pub fn broadcast(crew: &Crew, source: Stream, receivers: &[Stream], pieces: &Pieces) -> Result<()> {
    let (runtime, count) = (crew.runtime, receivers.len());
    let all = pieces.bytes();
    let stages = (all / Threshold::BroadcastStage.bytes()?).clamp(LEAST_STAGES, MOST_STAGES);
    // Part `index` of a stage, between the cuts of all parts of all stages.
    let cut = |part: u64| (u128::from(all) * u128::from(part) / u128::from(stages * count as u64)) as u64;
    let range = |stage: u64, index: usize| {
        let part = stage * count as u64 + index as u64;
        (cut(part), cut(part + 1))
    };
    for receiver in receivers {
        follow(runtime, *receiver, [source])?;
    }
    let pass_on = |stage: u64| -> Result<()> {
        let mut sent = Pieces::new(1, 1);
        for index in 0..count {
            let (from, to) = range(stage, index);
            sent.append(pieces.part(from, to, (1, 1), |places| [places[0], places[1 + index]]));
        }
        sent.copy(runtime, source)?;
        follow(runtime, source, receivers.iter().copied())?;
        for (index, receiver) in receivers.iter().enumerate() {
            let (from, to) = range(stage, index);
            let passed = pieces.part(from, to, (1, count - 1), |places| -> Vec<Place> {
                let others = (0..count).filter(|other| *other != index).map(|other| places[1 + other]);
                std::iter::once(places[1 + index]).chain(others).collect()
            });
            passed.copy(runtime, *receiver)?;
        }
        Ok(())
    };
    let passed = (0..stages).try_for_each(pass_on);
    // Also where it failed: part of the work may be under way.
    let left = receivers.iter().try_for_each(|receiver| {
        let others = receivers.iter().copied().filter(|other| other.device != receiver.device);
        follow(runtime, *receiver, others.chain([source]))
    });
    passed.and(left)
}

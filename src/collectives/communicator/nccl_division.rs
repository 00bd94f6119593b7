//! Splits and shrinks of NCCL's communicators.

use super::{
    division::{Division, Shrink},
    nccl::{IssueError, NcclRank, has_begun, lock_calls},
    nccl_end::{self, Siblings},
};
use crate::{
    base::{deadline::Deadline, log},
    driver::nccl::{Comm, OutputCell},
    error::{Error, Result},
    runtime::Runtime,
    status::Status,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// Why a shrink cannot follow.
const TOO_LATE: &str = "NCCL cannot shrink a communicator that was aborted or has an error; make a new one of an id";

/// What names a part among those of one communicator, in all ranks that are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartName {
    /// The number of the split, and the color.
    Color(u32, u32),
    /// The excluded ranks, and how often the ranks that remain have excluded the same ones before.
    Without(Arc<[u32]>, usize),
}

/// The divisions of a communicator so far.
#[derive(Default)]
pub(super) struct Divisions {
    splits: u32,
    shrinks: Vec<Arc<[u32]>>,
}

impl Divisions {
    /// Counts a division, and returns the name of the rank's part.
    fn begin(&mut self, division: &Division) -> Option<PartName> {
        match division {
            Division::Split { color, .. } => {
                self.splits += 1;
                color.map(|color| PartName::Color(self.splits, color))
            }
            Division::Shrink(Shrink { excluded, .. }) => {
                let before = self.shrinks.iter().filter(|other| *other == excluded).count();
                self.shrinks.push(excluded.clone());
                Some(PartName::Without(excluded.clone(), before))
            }
        }
    }

    /// Undoes the last `begin`.
    fn withdraw(&mut self, division: &Division) {
        match division {
            Division::Split { .. } => self.splits -= 1,
            Division::Shrink(_) => drop(self.shrinks.pop()),
        }
    }
}

/// Divides communicators of this process, each by the argument of its own rank. The results are in order.
pub fn divide(
    runtime: &Runtime,
    batch: &[(&NcclRank, &Division)],
    limit: Duration,
) -> std::result::Result<Vec<Option<Arc<NcclRank>>>, IssueError> {
    let Some((first, _)) = batch.first() else { return Ok(Vec::new()) };
    let ranks: Vec<&NcclRank> = batch.iter().map(|(rank, _)| *rank).collect();
    let calls = lock_calls(&ranks);
    let comm = |(rank, division): &(&NcclRank, &Division)| {
        if !division.aborts() {
            return rank.comm();
        }
        let is_too_late = rank.ended.load(Ordering::Acquire);
        rank.comm_to_shrink().map_err(|error| if is_too_late { error.context(TOO_LATE) } else { error })
    };
    let comms = batch.iter().map(comm).collect::<Result<Vec<Comm>>>()?;
    // Before NCCL begins: a part may be destroyed in another thread before the next one is made here.
    let siblings = |(rank, division): &(&NcclRank, &Division)| {
        let name = rank.divisions().lock().begin(division)?;
        Some(rank.siblings.of_part(name))
    };
    let siblings: Vec<Option<Arc<Siblings>>> = batch.iter().map(siblings).collect();
    let is_aborting = batch.iter().any(|(_, division)| division.aborts());
    let has_called = |error: &Error| error.driver_code() == 0 && error.status() != Status::NCCL_UNAVAILABLE;
    let mut cells = Vec::new();
    let begun = first.nccl().group(|| {
        for ((rank, division), comm) in batch.iter().zip(&comms) {
            let (nccl, is_blocking) = (rank.nccl(), rank.is_blocking());
            let device = runtime.device(rank.device() as i32)?;
            let (cell, _) = device.with_context(&runtime.driver, |_| match division {
                Division::Split { color, key } => nccl.split(*comm, *color, *key, is_blocking),
                Division::Shrink(Shrink { excluded, aborts }) => nccl.shrink(*comm, excluded, *aborts, is_blocking),
            })?;
            cells.push(cell);
        }
        Ok(())
    });
    let begun = match begun {
        // NCCL aborts the work before it checks a shrink that is to abort.
        Err(error) if is_aborting && has_called(&error) => Err(error.context(TOO_LATE)),
        Err(error) if !has_begun(&error, cells.len(), batch.len()) => {
            siblings.iter().flatten().for_each(|siblings| siblings.leave_unjoined());
            batch.iter().for_each(|(rank, division)| rank.divisions().lock().withdraw(division));
            return Err(IssueError::Refused(error));
        }
        // After an error NCCL may go on to make the parts that were begun.
        begun => begun.map(drop),
    };
    let (mut parts, mut colorless) = (Vec::new(), Vec::new());
    let mut siblings = siblings.into_iter();
    for ((cell, siblings), (parent, _)) in cells.into_iter().zip(&mut siblings).zip(batch) {
        match siblings {
            Some(siblings) => {
                let (device, is_blocking) = (parent.device(), parent.is_blocking());
                parts.push(Some(NcclRank::new(parent.nccl(), cell, (0, 0), device, is_blocking, siblings)));
            }
            None => {
                colorless.push(cell);
                parts.push(None);
            }
        }
    }
    siblings.flatten().for_each(|siblings| siblings.leave_unjoined());
    let mut finish = || {
        for rank in &ranks {
            rank.wait_until_settled(Deadline::new(limit), || "NCCL divided the communicator")?;
        }
        for part in parts.iter_mut().flatten() {
            part.wait_until_ready(limit, "NCCL worked at a part of the communicator")?;
            part.read_rank_and_size()?;
        }
        Ok(())
    };
    if let Err(error) = begun.and_then(|()| finish()) {
        drop(calls);
        // NCCL makes the parts until the aborts of their parents are complete, which use what a part's abort releases.
        let parts = parts.iter().flatten();
        match nccl_end::abort_together(runtime, ranks.iter().copied()) {
            Ok(true) => log::ignore(nccl_end::abort_together(runtime, parts), "aborting the parts of a communicator"),
            _ => parts.for_each(|part| part.forsake(runtime)),
        }
        return Err(IssueError::Failed(error));
    }
    colorless.iter().for_each(OutputCell::mark_complete);
    Ok(parts.into_iter().map(|part| part.map(Arc::new)).collect())
}

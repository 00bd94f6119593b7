//! Splits and shrinks of ranks that are devices of one process. The ranks that remain after a shrink make a new group also
//! after a failure of the old one.

use super::{
    division::Shrink,
    in_process_group::{InProcessRank, Outcome, ResultSlot, State},
    sticky_error::StickyError,
};
use crate::{
    error::{Error, Result},
    runtime,
    status::Status,
};
use std::sync::Arc;

/// Makes a group for the ranks of each color, with a function that returns its ranks in order. Each request has the color and
/// the key of a rank.
pub(super) fn split(
    requests: &[(Option<u32>, i32)],
    make: impl Fn(&[u32]) -> Result<Vec<InProcessRank>>,
) -> Result<Vec<Option<InProcessRank>>> {
    let mut ranks: Vec<Option<InProcessRank>> = requests.iter().map(|_| None).collect();
    let mut colors: Vec<u32> = requests.iter().filter_map(|(color, _)| *color).collect();
    colors.sort_unstable();
    colors.dedup();
    let made = colors.into_iter().try_for_each(|color| {
        let (of_color, key) =
            (|rank: &u32| requests[*rank as usize].0 == Some(color), |rank: u32| requests[rank as usize].1);
        let mut members: Vec<u32> = (0..requests.len() as u32).filter(of_color).collect();
        members.sort_unstable_by_key(|rank| (key(*rank), *rank));
        for (rank, rank_handle) in members.iter().zip(make(&members)?) {
            ranks[*rank as usize] = Some(rank_handle);
        }
        Ok(())
    });
    if let Err(error) = made {
        // Report the first error, not one of the cleanup.
        let release = |rank_handle: InProcessRank| runtime::ready().and_then(|runtime| rank_handle.release(runtime));
        ranks.into_iter().flatten().for_each(|rank_handle| drop(release(rank_handle)));
        return Err(error);
    }
    Ok(ranks)
}

impl State {
    /// Makes the new groups whose ranks are complete, with a function that returns them in order. Fails shrinks whose ranks
    /// exclude different ones, or wait in another call.
    pub(super) fn execute_shrinks(&mut self, make: impl Fn(&[u32]) -> Result<Vec<InProcessRank>>) {
        let State { requests, shrinks, sticky_error, .. } = self;
        // After a failure of the group, the other calls are about to end.
        let in_another_call = |rank: u32| sticky_error.is_none() && !requests[rank as usize].is_empty();
        while let Some((ranks, mismatch)) = shrinks.next_answer(requests.len() as u32, in_another_call) {
            let taken: Vec<PendingShrink> = ranks.iter().filter_map(|rank| shrinks.take(*rank)).collect();
            match mismatch.map_or_else(|| make(&ranks), Err) {
                Ok(rank_handles) => {
                    for (pending, rank_handle) in taken.into_iter().zip(rank_handles) {
                        pending.result.set(Ok(Outcome::NewGroup(Some(rank_handle))));
                    }
                }
                Err(error) => {
                    let error = StickyError::from(error);
                    taken.into_iter().for_each(|pending| pending.result.set(Err(error.clone())));
                }
            }
        }
    }
}

/// The shrinks that wait for other ranks, in the order of their calls.
#[derive(Default)]
pub(super) struct PendingShrinks(Vec<PendingShrink>);

struct PendingShrink {
    rank: u32,
    shrink: Shrink,
    result: Arc<ResultSlot>,
}

impl PendingShrinks {
    pub fn push(&mut self, rank: u32, shrink: Shrink, result: Arc<ResultSlot>) {
        self.0.push(PendingShrink { rank, shrink, result });
    }

    pub fn has_one_of(&self, rank: u32) -> bool {
        self.first_of(rank).is_some()
    }

    /// Removes those of some results.
    pub fn withdraw(&mut self, is_withdrawn: impl Fn(&Arc<ResultSlot>) -> bool) {
        self.0.retain(|pending| !is_withdrawn(&pending.result));
    }

    fn first_of(&self, rank: u32) -> Option<&PendingShrink> {
        self.0.iter().find(|pending| pending.rank == rank)
    }

    /// Returns the ranks of `size` that a shrink waits for.
    pub fn awaited(&self, shrink: &Shrink, size: u32) -> Vec<u32> {
        let is_missing = |rank: &u32| self.first_of(*rank).is_none_or(|other| other.shrink.excluded != shrink.excluded);
        shrink.remaining(size).filter(is_missing).collect()
    }

    /// Returns the ranks whose first shrinks have an answer, which is the error, or else a new group of these ranks.
    fn next_answer(&self, size: u32, in_another_call: impl Fn(u32) -> bool) -> Option<(Vec<u32>, Option<Error>)> {
        let firsts: Vec<&PendingShrink> = (0..size).filter_map(|rank| self.first_of(rank)).collect();
        for PendingShrink { rank, shrink, .. } in &firsts {
            let remaining = || shrink.remaining(size);
            let (excluded, awaited) = (&shrink.excluded, self.awaited(shrink, size));
            if awaited.is_empty() {
                return Some((remaining().collect(), None));
            }
            let mismatch = |what: String| {
                Error::new(Status::RANK_MISMATCH, format!("rank {rank} shrinks and excludes {excluded:?}, {what}"))
            };
            if let Some(other) = awaited.iter().find_map(|rank| self.first_of(*rank)) {
                let what = format!("rank {} excludes {:?}", other.rank, other.shrink.excluded);
                return Some((vec![*rank, other.rank], Some(mismatch(what))));
            }
            // Each waits for the other, unless this rank is in that call as well.
            if let Some(other) = awaited.iter().find(|rank| in_another_call(**rank))
                && !in_another_call(*rank)
            {
                return Some((vec![*rank], Some(mismatch(format!("rank {other} makes another call")))));
            }
        }
        None
    }

    /// Takes the first of a rank.
    fn take(&mut self, rank: u32) -> Option<PendingShrink> {
        let found = self.0.iter().position(|pending| pending.rank == rank)?;
        Some(self.0.remove(found))
    }
}

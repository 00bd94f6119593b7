//! Splits and shrinks of ranks that are devices of one process. The ranks that remain after a shrink make a new group also
//! after a failure of the old one.

use super::{
    division::Shrink,
    in_process_group::{InProcessRank, Outcome, PendingRequest, ResultSlot, State},
};
use crate::{
    error::{Error, Result},
    runtime,
    status::Status,
};
use std::{collections::VecDeque, sync::Arc};

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
        let of_color = requests.iter().enumerate().filter(|(_, request)| request.0 == Some(color));
        let mut members: Vec<(i32, u32)> = of_color.map(|(rank, (_, key))| (*key, rank as u32)).collect();
        members.sort_unstable();
        let members: Vec<u32> = members.into_iter().map(|(_, rank)| rank).collect();
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
    /// Makes the new groups whose ranks are complete, with a function that returns them in order. Fails shrinks that cannot
    /// become complete.
    pub(super) fn execute_shrinks(&mut self, make: impl Fn(&[u32]) -> Result<Vec<InProcessRank>>) {
        while let Some((ranks, mismatch)) = self.next_answer() {
            let taken: Vec<PendingShrink> = ranks.iter().filter_map(|rank| self.shrinks.take(*rank)).collect();
            match mismatch.map_or_else(|| make(&ranks), Err) {
                Ok(rank_handles) => {
                    for (pending, rank_handle) in taken.into_iter().zip(rank_handles) {
                        pending.result.set(Ok(Outcome::NewGroup(Some(rank_handle))));
                    }
                }
                Err(error) => self.shrinks.fail(taken, &error),
            }
        }
    }

    /// Returns the ranks whose first shrinks have an answer, which is the error, or else a new group of these ranks.
    fn next_answer(&self) -> Option<(Vec<u32>, Option<Error>)> {
        let (shrinks, size) = (&self.shrinks, self.requests.len() as u32);
        for PendingShrink { rank, shrink, .. } in (0..size).filter_map(|rank| shrinks.first_of(rank)) {
            let awaited = shrinks.awaited(shrink, size);
            if awaited.is_empty() {
                return Some((shrink.remaining(size).collect(), None));
            }
            let mismatch = |what: String| {
                let own = format!("rank {rank} shrinks and excludes {:?}", shrink.excluded);
                Some(Error::new(Status::RANK_MISMATCH, format!("{own}, {what}")))
            };
            let excludes = |peer: u32, other: &Shrink| mismatch(format!("rank {peer} excludes {:?}", other.excluded));
            let firsts = awaited.iter().filter_map(|rank| shrinks.first_of(*rank));
            if let Some(other) = firsts.into_iter().find(|other| !other.shrink.excludes(*rank)) {
                let ranks = [shrinks.ranks_of(shrink), shrinks.ranks_of(&other.shrink)].concat();
                return Some((ranks, excludes(other.rank, &other.shrink)));
            }
            // A rank that aborts the group without this one does not come back to it.
            let is_without = |(peer, other): &&(u32, Shrink)| awaited.contains(peer) && other.excludes(*rank);
            if let Some((peer, other)) = shrinks.last.iter().find(is_without).filter(|_| shrink.aborts) {
                return Some((vec![*rank], excludes(*peer, other)));
            }
            if let Some(peer) = awaited.iter().find(|peer| self.waits_in_another_call(**peer, *rank)) {
                return Some((shrinks.ranks_of(shrink), mismatch(format!("rank {peer} makes another call"))));
            }
        }
        None
    }

    /// Returns whether another call of a rank waits for `other`, which only shrinks. After a failure of the group it is about to
    /// end.
    fn waits_in_another_call(&self, rank: u32, other: u32) -> bool {
        let is_waiting = |calls: Option<&VecDeque<PendingRequest>>| calls.is_some_and(|calls| !calls.is_empty());
        let [own, others] = [rank, other].map(|rank| is_waiting(self.requests.get(rank as usize)));
        let message = is_waiting(self.sends.get(&(rank, other))) || is_waiting(self.receives.get(&(other, rank)));
        self.sticky_error.is_none() && (own && !others || message)
    }

    /// Fails a shrink for all ranks that have called it.
    pub(super) fn fail_shrink(&mut self, shrink: &Shrink, error: &Error) {
        let ranks = self.shrinks.ranks_of(shrink);
        let taken = ranks.iter().filter_map(|rank| self.shrinks.take(*rank)).collect();
        self.shrinks.fail(taken, error);
    }
}

/// The shrinks that wait for other ranks, in the order of their calls.
#[derive(Default)]
pub(super) struct PendingShrinks {
    pending: Vec<PendingShrink>,
    /// The last shrink of each rank that has aborted the group, and has not failed.
    last: Vec<(u32, Shrink)>,
}

struct PendingShrink {
    rank: u32,
    shrink: Shrink,
    result: Arc<ResultSlot>,
}

impl PendingShrinks {
    pub fn push(&mut self, rank: u32, shrink: Shrink, result: Arc<ResultSlot>) {
        if shrink.aborts {
            self.last.retain(|(other, _)| *other != rank);
            self.last.push((rank, shrink.clone()));
        }
        self.pending.push(PendingShrink { rank, shrink, result });
    }

    pub fn has_one_of(&self, rank: u32) -> bool {
        self.first_of(rank).is_some()
    }

    /// Removes those of some results.
    pub fn withdraw(&mut self, is_withdrawn: impl Fn(&Arc<ResultSlot>) -> bool) {
        let withdrawn = self.pending.extract_if(.., |pending| is_withdrawn(&pending.result));
        for pending in withdrawn {
            self.last.retain(|(rank, _)| *rank != pending.rank);
        }
    }

    /// Returns the ranks of `size` that a shrink waits for.
    pub fn awaited(&self, shrink: &Shrink, size: u32) -> Vec<u32> {
        let has_called = self.ranks_of(shrink);
        shrink.remaining(size).filter(|rank| !has_called.contains(rank)).collect()
    }

    /// Returns the ranks whose first shrink excludes the same ranks.
    fn ranks_of(&self, shrink: &Shrink) -> Vec<u32> {
        let is_same = |pending: &&PendingShrink| pending.shrink.excluded == shrink.excluded && self.is_first(pending);
        self.pending.iter().filter(is_same).map(|pending| pending.rank).collect()
    }

    fn is_first(&self, pending: &PendingShrink) -> bool {
        self.first_of(pending.rank).is_some_and(|first| Arc::ptr_eq(&first.result, &pending.result))
    }

    fn first_of(&self, rank: u32) -> Option<&PendingShrink> {
        self.pending.iter().find(|pending| pending.rank == rank)
    }

    fn fail(&mut self, taken: Vec<PendingShrink>, error: &Error) {
        for PendingShrink { rank, result, .. } in taken {
            self.last.retain(|(other, _)| *other != rank);
            result.set(Err(error.into()));
        }
    }

    /// Takes the first of a rank.
    fn take(&mut self, rank: u32) -> Option<PendingShrink> {
        let found = self.pending.iter().position(|pending| pending.rank == rank)?;
        Some(self.pending.remove(found))
    }
}

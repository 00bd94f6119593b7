//! The shrink of a group: the ranks that remain make a new group, also after a failure of this one.
//!
//! The links still carry bytes then. The excluded ranks make no call, so the rows have numbers of their own.

use super::{
    GatheringCall, ProcessGroup,
    links::{GatherRow, LinkState},
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::cell::Cell;

impl ProcessGroup {
    /// Sends this rank's row of a shrink, without blocking. A shrink may abort the group.
    pub fn send_shrink_row(&self, excluded: &[u32], aborts: bool, own_row: &[u8]) -> Result<GatherRow> {
        let head = [GatheringCall::Shrink as u8, u8::from(aborts)];
        self.links.send_shrink_row(excluded, &[&head, own_row].concat())
    }

    /// Waits for the rows of the ranks that remain, and runs what they do together, with the rows in the order of ranks. If
    /// one of them fails, all fail, and may shrink again. A failure of the group ends a shrink that does not abort it.
    pub fn after_shrink<T>(
        &self,
        row: &GatherRow,
        aborts: bool,
        run: impl FnOnce(Vec<Vec<u8>>, &dyn Fn() -> Option<Error>) -> Result<T>,
    ) -> Result<T> {
        let missing = Cell::new(self.rank);
        let rows = self.deadline().until(
            || format!("rank {} of {} waited for rank {} to shrink the group", self.rank, self.size, missing.get()),
            || self.try_collect_shrink(row, aborts, &missing),
        );
        let rows = rows.inspect_err(|error| self.send_failure(row, error))?;
        self.run_together(row, row.ranks(), "the parent communicator", &|| None, |stop| run(rows, stop))
    }

    fn try_collect_shrink(&self, row: &GatherRow, aborts: bool, missing: &Cell<u32>) -> Result<Option<Vec<Vec<u8>>>> {
        let (peer, state) = match self.links.try_collect(row) {
            Ok(rows) => return Ok(Some(rows.into_iter().map(|mut row| row.split_off(2)).collect())),
            Err(missing) => missing,
        };
        missing.set(peer);
        if let Some((rank, error)) = self.links.failure_after(row, row.ranks()) {
            return Err(error.context(format_args!("rank {rank} of {}", self.size)));
        }
        // A rank that aborts the group without this one does not come back to it.
        let is_final = |row: &[u8]| aborts && row.get(1) == Some(&1);
        if let Some(foreign) = self.links.take_foreign_row(row, self.rank, is_final) {
            let other = match &foreign.excluded[..] {
                [] => format!("calls {}", GatheringCall::name_of_row(&foreign.bytes)),
                excluded => format!("excludes {excluded:?}"),
            };
            let (rank, size, own, other_rank) = (self.rank, self.size, row.excluded(), foreign.rank);
            let message = format!("rank {rank} of {size} shrinks and excludes {own:?}, rank {other_rank} {other}");
            return Err(Error::new(Status::RANK_MISMATCH, message));
        }
        match state {
            LinkState::Left { .. } | LinkState::Gone => {
                let message = format!("rank {peer} of {} is gone; exclude it as well", self.size);
                Err(Error::new(Status::PEER_LOST, message))
            }
            LinkState::Failed { .. } if !aborts => Err(self.error().unwrap_or_else(super::unknown_error)),
            LinkState::Connected | LinkState::Failed { .. } => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::processes::links::{ForeignRow, Links};
    use std::os::unix::net::UnixStream;

    fn pair() -> [Links; 2] {
        let (near, far) = UnixStream::pair().unwrap();
        // Rank 2 has no link: it is gone before anything happens.
        let sockets = [vec![None, Some(near), None], vec![Some(far), None, None]];
        sockets.map(|sockets| Links::new(sockets).unwrap())
    }

    fn foreign(links: &Links, row: &GatherRow, rank: u32) -> Option<ForeignRow> {
        assert!(links.try_collect(row).is_err());
        links.take_foreign_row(row, rank, |_| false)
    }

    #[test]
    fn rows_of_a_shrink_are_those_of_the_same_excluded_ranks() {
        let links = pair();
        let rows = [0, 1].map(|rank| links[rank].send_shrink_row(&[2], &[rank as u8]).unwrap());
        assert_eq!((rows[0].ranks(), rows[0].excluded()), (&[0, 1][..], vec![2]));
        for (links, row) in links.iter().zip(&rows) {
            assert_eq!(links.try_collect(row).unwrap(), [[0], [1]]);
        }
        // The excluded rank has no part in it, and other calls keep their numbers.
        let alone = links[0].send_shrink_row(&[1, 2], b"x").unwrap();
        assert_eq!(links[0].try_collect(&alone).unwrap(), [b"x"]);
        let others = [0, 1].map(|rank| links[rank].send_row(&[rank as u8]).unwrap());
        assert!(links[1].take_foreign_row(&others[1], 1, |_| false).is_none());
        assert_eq!(links[1].try_collect(&rows[1]), Err((0, LinkState::Connected)));
    }

    #[test]
    fn a_rank_that_excludes_others_is_found_once() {
        let links = pair();
        let one = links[0].send_shrink_row(&[2], b"a").unwrap();
        let other = links[1].send_shrink_row(&[], b"b").unwrap();
        assert_eq!(foreign(&links[0], &one, 0).unwrap().excluded, []);
        assert_eq!(foreign(&links[1], &other, 1).unwrap().excluded, [2]);
        let error = Error::new(Status::RANK_MISMATCH, "");
        links[0].send_failure(&one, &error);
        // What rank 0 gave up is not what rank 1 begins.
        let [one, other] = [0, 1].map(|rank| links[rank].send_shrink_row(&[2], &[rank as u8]).unwrap());
        assert_eq!(one.number(), other.number());
        for (links, row) in links.iter().zip([&one, &other]) {
            assert_eq!(links.try_collect(row).unwrap(), [[0], [1]]);
        }
    }

    #[test]
    fn a_failed_attempt_fails_at_a_rank_that_comes_later() {
        let links = pair();
        let first = links[0].send_shrink_row(&[2], b"a").unwrap();
        links[0].send_failure(&first, &Error::new(Status::TIMED_OUT, "too late"));
        let late = links[1].send_shrink_row(&[2], b"b").unwrap();
        let (rank, error) = links[1].failure_after(&late, late.ranks()).unwrap();
        assert_eq!((rank, error.status(), error.message()), (0, Status::TIMED_OUT, "too late"));
        let again = [1, 0].map(|rank| links[rank].send_shrink_row(&[2], &[rank as u8]).unwrap());
        assert!(links[1].failure_after(&again[0], again[0].ranks()).is_none());
        assert_eq!(links[1].try_collect(&again[0]).unwrap(), [[0], [1]]);
    }
}

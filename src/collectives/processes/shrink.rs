//! The shrink of a group: the ranks that remain make a new group, also after a failure of this one.
//!
//! The links still carry bytes then. The excluded ranks make no call, so the rows have numbers of their own.

use super::{
    GatheringCall, ProcessGroup,
    links::{ForeignRow, GatherRow, LinkState},
};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::cell::Cell;

impl ProcessGroup {
    /// Begins a shrink, which may abort the group: sends this rank's row, without blocking. If it cannot take part because the
    /// group has failed or sleeps, it fails at all ranks that remain.
    pub fn begin_shrink(&self, excluded: &[u32], aborts: bool, own_row: &[u8]) -> Result<GatherRow> {
        let head = [GatheringCall::Shrink as u8, u8::from(aborts)];
        let row = self.links.send_shrink_row(excluded, &[&head, own_row].concat())?;
        let usable = if aborts { Ok(()) } else { self.error().map_or(Ok(()), Err).and_then(|()| self.check_awake()) };
        usable.inspect_err(|error| self.send_failure(&row, error)).map(|()| row)
    }

    /// Waits for the rows of the ranks that remain, and runs what they do together, with the rows in the order of ranks. If
    /// one of them fails, all fail, and may shrink again.
    pub fn after_shrink<T>(
        &self,
        row: &GatherRow,
        run: impl FnOnce(Vec<Vec<u8>>, &dyn Fn() -> Option<Error>) -> Result<T>,
    ) -> Result<T> {
        let missing = Cell::new(self.rank);
        let rows = self.deadline().until(
            || format!("rank {} of {} waited for rank {} to shrink the group", self.rank, self.size, missing.get()),
            || self.try_collect_shrink(row, &missing),
        );
        let rows = rows.inspect_err(|error| self.send_failure(row, error))?;
        self.run_together(row, row.ranks(), "the parent communicator", &|| None, |stop| run(rows, stop))
    }

    fn try_collect_shrink(&self, row: &GatherRow, missing: &Cell<u32>) -> Result<Option<Vec<Vec<u8>>>> {
        let (peer, state) = match self.links.try_collect(row) {
            Ok(rows) => return Ok(Some(rows.into_iter().map(|row| row.into_iter().skip(2).collect()).collect())),
            Err(missing) => missing,
        };
        missing.set(peer);
        if let Some(error) = self.links.failure(row) {
            return Err(error);
        }
        if let Some(foreign) = self.links.foreign_row(row, |foreign| self.contradicts(row.bytes(), foreign)) {
            let Some(excluded) = foreign.excluded() else {
                return Err(self.mismatch(row.bytes(), (foreign.rank, &foreign.bytes)));
            };
            let (rank, size, own, other_rank) = (self.rank, self.size, row.excluded(), foreign.rank);
            let message =
                format!("rank {rank} of {size} shrinks and excludes {own:?}, rank {other_rank} excludes {excluded:?}");
            let error = Error::new(Status::RANK_MISMATCH, message);
            if !excluded.contains(&rank) {
                self.links.refuse_foreign(&foreign, &error);
            }
            return Err(error);
        }
        if state == LinkState::Connected {
            return Ok(None);
        }
        let message = format!("rank {peer} of {} is gone; exclude it as well", self.size);
        Err(Error::new(Status::PEER_LOST, message))
    }

    /// Returns whether the rank that has sent a row does not come to this rank's shrink.
    fn contradicts(&self, own_row: &[u8], foreign: &ForeignRow) -> bool {
        let [own_aborts, aborts] = [own_row, &foreign.bytes].map(|row| row.get(1) == Some(&1));
        match foreign.excluded() {
            // An abort ends the other calls of the group.
            None => !own_aborts,
            // A rank that aborts the group without this one does not come back to it.
            Some(excluded) => !excluded.contains(&self.rank) || own_aborts && aborts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::processes::links::Links;
    use std::os::unix::net::UnixStream;

    fn pair() -> [Links; 2] {
        let (near, far) = UnixStream::pair().unwrap();
        // Rank 2 has no link: it is gone before anything happens.
        let sockets = [vec![None, Some(near), None], vec![Some(far), None, None]];
        sockets.map(|sockets| Links::new(sockets).unwrap())
    }

    fn foreign(links: &Links, row: &GatherRow) -> Option<ForeignRow> {
        assert!(links.try_collect(row).is_err());
        links.foreign_row(row, |_| true)
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
        assert!(links[1].foreign_row(&others[1], |_| true).is_none());
        assert_eq!(links[1].try_collect(&rows[1]), Err((0, LinkState::Connected)));
    }

    #[test]
    fn ranks_that_exclude_others_fail_each_other_and_may_try_again() {
        let links = pair();
        let one = links[0].send_shrink_row(&[2], b"a").unwrap();
        let other = links[1].send_shrink_row(&[], b"b").unwrap();
        let found = foreign(&links[0], &one).unwrap();
        assert_eq!((found.rank, found.excluded(), &found.bytes[..]), (1, Some(vec![]), &b"b"[..]));
        let error = Error::new(Status::RANK_MISMATCH, "different ranks");
        links[0].refuse_foreign(&found, &error);
        links[0].send_failure(&one, &error);
        // Rank 1 learns it from the failure, and keeps nothing of the row.
        assert_eq!(links[1].failure_after(&other, other.ranks()).unwrap().1.message(), "different ranks");
        assert!(foreign(&links[1], &other).is_none());
        for excluded in [&[2][..], &[]] {
            let rows = [0, 1].map(|rank| links[rank].send_shrink_row(excluded, &[rank as u8]).unwrap());
            assert_eq!(rows[0].number(), rows[1].number());
            for (links, row) in links.iter().zip(&rows) {
                assert!(links.failure_after(row, row.ranks()).is_none());
                assert_eq!(links.try_collect(row).unwrap()[..2], [[0], [1]]);
            }
        }
    }

    #[test]
    fn rows_of_a_shrink_that_is_over_are_forgotten() {
        let links = pair();
        let over = links[0].send_shrink_row(&[2], b"a").unwrap();
        links[0].send_failure(&over, &Error::new(Status::TIMED_OUT, "too late"));
        let row = links[1].send_row(b"b").unwrap();
        assert!(foreign(&links[1], &row).is_none());
        // An excluded rank keeps the last of several.
        for _ in 0..3 {
            links[0].send_shrink_row(&[1], b"c").unwrap();
        }
        assert!(foreign(&links[1], &row).is_some());
        assert_eq!(links[1].unread_rows(), 1);
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

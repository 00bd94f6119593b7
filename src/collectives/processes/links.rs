//! Sockets between the processes of a group: they detect ranks that are gone, and carry bytes between CPUs.
//!
//! The kernel closes a socket when its process ends for any reason, so nothing has to be polled while all is well, and
//! no thread waits.

use super::{GRACE_PERIOD, launch_orders::CompletedWork, row_number::RowNumber};
use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use rustix::{
    io::{Errno, retry_on_intr},
    net::{self, SendFlags},
};
use std::{os::unix::net::UnixStream, time::Instant};

/// The known state of another rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// It takes part.
    Connected,
    /// It has ended the group.
    Failed {
        /// The encoded reason.
        word: u32,
        /// The rank that detected it.
        by: u32,
    },
    /// It has left the group after completing its own work.
    Left {
        /// The work it completed; `None` if the group had a sticky error for it, which its kernels have reported to the
        /// others.
        done: Option<CompletedWork>,
    },
    /// Its process has ended.
    Gone,
}

const DATA: u8 = 0;
const FAIL: u8 = 1;
const LEAVE: u8 = 2;
const FAILURE: u8 = 3;
/// The maximum bytes of a row.
const MAX_ROW_BYTES: usize = 1 << 24;
/// The maximum bytes of a message: a row and its number.
const MAX_MESSAGE_BYTES: usize = MAX_ROW_BYTES + 8;

#[derive(Debug)]
struct Link {
    socket: UnixStream,
    state: LinkState,
    /// Whether the other rank has left or ended, which a failure before that hides in the state.
    is_closed: bool,
    /// The received part of an incomplete message.
    incomplete: Vec<u8>,
    /// The bytes that are still to be sent, so that messages are never interleaved.
    unsent: Vec<u8>,
    /// Rows that have arrived and were not collected yet, by their numbers.
    rows: Vec<(RowNumber, Vec<u8>)>,
    /// The last row after which the other rank failed, and its error.
    failure: Option<(RowNumber, Status, String)>,
    /// The same for each shrink.
    failed_shrinks: Vec<(RowNumber, Status, String)>,
    /// The time at which the other rank was found to have left or ended.
    ended: Option<Instant>,
}

#[derive(Debug)]
struct LinkTable {
    links: Vec<Option<Link>>,
    /// The number of rows that this rank has sent.
    sent_rows: u64,
    /// The last row of each shrink that this rank has sent.
    sent_shrinks: Vec<RowNumber>,
}

/// The links to the other ranks.
#[derive(Debug)]
pub struct Links(Mutex<LinkTable>);

/// A row that this rank has sent. The other ranks' rows of the same number belong to it, so a row that arrives too late
/// is never taken for another.
#[derive(Debug)]
pub struct GatherRow {
    number: RowNumber,
    bytes: Vec<u8>,
    /// The ranks whose rows are gathered.
    ranks: Vec<usize>,
}

impl GatherRow {
    /// Returns its number, which is the same for all ranks.
    pub fn number(&self) -> u64 {
        self.number.0
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the ranks whose rows are gathered.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Returns the ranks that a shrink excludes; none for other calls.
    pub fn excluded(&self) -> Vec<u32> {
        self.number.excluded()
    }
}

/// A row of a call that this rank has not made, from a rank whose row of this rank's call is missing.
pub struct ForeignRow {
    /// The rank that has sent it.
    pub rank: u32,
    number: RowNumber,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl ForeignRow {
    /// Returns the ranks that it excludes; `None` if it is not one of a shrink.
    pub fn excluded(&self) -> Option<Vec<u32>> {
        self.number.is_of_shrink().then(|| self.number.excluded())
    }
}

impl LinkTable {
    /// Returns whether this rank has sent a row of a number.
    fn has_sent(&self, number: RowNumber) -> bool {
        match number.is_of_shrink() {
            false => number.0 <= self.sent_rows,
            true => self.sent_shrinks.iter().any(|sent| sent.is_of_same_shrink(number) && number <= *sent),
        }
    }

    /// Returns the number of the next attempt of a shrink. One that a rank has failed is yet to fail here, unless ranks had called
    /// different shrinks: that fails all of them.
    fn next_attempt(&mut self, excluded: &[u32]) -> RowNumber {
        let first = RowNumber::first_without(excluded);
        let mut last = self.sent_shrinks.iter().copied().filter(|sent| sent.is_of_same_shrink(first)).max();
        for link in self.links.iter_mut().flatten() {
            link.poll();
            let mismatches = link.failed_shrinks.iter().filter(|(_, status, _)| *status == Status::RANK_MISMATCH);
            let mismatched = mismatches.map(|(number, ..)| *number).filter(|number| number.is_of_same_shrink(first));
            last = last.max(mismatched.max());
        }
        let next = last.map_or(first, RowNumber::next_attempt);
        self.sent_shrinks.retain(|sent| !sent.is_of_same_shrink(next));
        self.sent_shrinks.push(next);
        next
    }

    fn send_row(&mut self, number: RowNumber, bytes: &[u8], ranks: Vec<usize>) -> Result<GatherRow> {
        if bytes.len() > MAX_ROW_BYTES {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("at most {MAX_ROW_BYTES} bytes, not {}", bytes.len()),
            ));
        }
        for link in self.links.iter_mut().flatten() {
            link.push(DATA, &[&number.0.to_le_bytes(), bytes]);
        }
        Ok(GatherRow { number, bytes: bytes.to_vec(), ranks })
    }

    fn send_failure(&mut self, number: RowNumber, error: &Error) {
        let (number, status) = (number.0.to_le_bytes(), error.status().0.to_le_bytes());
        for link in self.links.iter_mut().flatten() {
            link.push(FAILURE, &[&number, &status, error.message().as_bytes()]);
        }
    }
}

/// Returns the two numbers in the body of a message.
fn unpack(bytes: [u8; 8]) -> [u32; 2] {
    let number = u64::from_le_bytes(bytes);
    [number as u32, (number >> 32) as u32]
}

impl Link {
    /// Sends pending bytes, and receives what has arrived.
    fn poll(&mut self) {
        self.flush();
        let mut bytes = [0; 4096];
        loop {
            match retry_on_intr(|| rustix::io::read(&self.socket, &mut bytes)) {
                Ok(0) => break self.end(),
                Ok(count) => self.incomplete.extend_from_slice(&bytes[..count]),
                Err(Errno::WOULDBLOCK) => break,
                Err(_) => break self.end(),
            }
        }
        while let Some((head, rest)) = self.incomplete.split_first_chunk::<5>() {
            let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if length > MAX_MESSAGE_BYTES {
                // The other rank does not follow the protocol, and could use up the memory of this one.
                self.incomplete.clear();
                return self.end();
            }
            if rest.len() < length {
                return;
            }
            let body = &rest[..length];
            match (head[0], body.split_first_chunk()) {
                (DATA, Some((number, row))) => {
                    let number = RowNumber(u64::from_le_bytes(*number));
                    // The other rank has ended its earlier attempts; an excluded rank takes none of them.
                    self.rows.retain(|(other, _)| !other.is_of_same_shrink(number));
                    self.rows.push((number, row.to_vec()));
                }
                (FAILURE, Some((number, error))) => {
                    if let Some((status, text)) = error.split_first_chunk() {
                        let number = RowNumber(u64::from_le_bytes(*number));
                        let text = String::from_utf8_lossy(text).into_owned();
                        self.note_failure(number, Status(i32::from_le_bytes(*status)), text);
                    }
                }
                (FAIL, Some((reason, _))) => {
                    let [word, by] = unpack(*reason);
                    self.state = LinkState::Failed { word, by };
                }
                (LEAVE, _) if !matches!(self.state, LinkState::Failed { .. }) => {
                    self.state = LinkState::Left { done: CompletedWork::read(body) }
                }
                (LEAVE, _) => self.is_closed = true,
                _ => {}
            }
            self.incomplete.drain(..5 + length);
        }
    }

    fn end(&mut self) {
        self.is_closed = true;
        if self.state == LinkState::Connected {
            // A message before the end of the stream, which is read next, may still set another state.
            self.state = LinkState::Gone;
        }
    }

    /// Returns whether the other rank takes no part in anything any more. One whose group has failed still shrinks it.
    fn is_gone(&self) -> bool {
        match self.state {
            LinkState::Connected => false,
            LinkState::Failed { .. } => self.is_closed,
            LinkState::Left { .. } | LinkState::Gone => true,
        }
    }

    /// Returns the state as far as it matters to a row. A failure of the group does not end a shrink, but the end of a rank does.
    fn state_for(&self, row: &GatherRow) -> LinkState {
        match row.number.is_of_shrink() {
            false => self.state,
            true if self.is_gone() => LinkState::Gone,
            true => LinkState::Connected,
        }
    }

    /// Notes that the other rank has failed to do what follows a row.
    fn note_failure(&mut self, number: RowNumber, status: Status, text: String) {
        if number.is_of_shrink() {
            self.rows.retain(|(row, _)| !row.is_of_same_shrink(number) || *row > number);
            self.failed_shrinks.retain(|(known, ..)| !known.is_of_same_shrink(number));
            self.failed_shrinks.push((number, status, text));
        } else {
            self.failure = Some((number, status, text));
        }
    }

    /// Returns why the other rank cannot do what follows a row, if it has failed to.
    fn failure_of(&self, row: &GatherRow) -> Option<Error> {
        let is_same = |number: RowNumber| number.is_of_same_shrink(row.number) && number >= row.number;
        let shrink = self.failed_shrinks.iter().find(|(number, ..)| is_same(*number));
        let (_, status, text) = shrink.or(self.failure.as_ref().filter(|(number, ..)| *number == row.number))?;
        Some(Error::new(*status, text.as_str()))
    }

    fn push(&mut self, kind: u8, bytes: &[&[u8]]) {
        let length: usize = bytes.iter().map(|part| part.len()).sum();
        self.unsent.push(kind);
        self.unsent.extend_from_slice(&(length as u32).to_le_bytes());
        bytes.iter().for_each(|part| self.unsent.extend_from_slice(part));
        self.flush();
    }

    fn flush(&mut self) {
        let mut sent = 0;
        while sent < self.unsent.len() {
            match retry_on_intr(|| net::send(&self.socket, &self.unsent[sent..], SendFlags::NOSIGNAL)) {
                Ok(count) => sent += count,
                Err(Errno::WOULDBLOCK) => break,
                // The other process is gone, which the next read detects.
                Err(_) => sent = self.unsent.len(),
            }
        }
        self.unsent.drain(..sent);
    }
}

impl Links {
    /// Creates links over sockets.
    pub fn new(sockets: Vec<Option<UnixStream>>) -> std::io::Result<Links> {
        let link = |socket: UnixStream| {
            socket.set_nonblocking(true)?;
            Ok(Link {
                socket,
                state: LinkState::Connected,
                is_closed: false,
                incomplete: Vec::new(),
                unsent: Vec::new(),
                rows: Vec::new(),
                failure: None,
                failed_shrinks: Vec::new(),
                ended: None,
            })
        };
        let links = sockets.into_iter().map(|socket| socket.map(link).transpose());
        Ok(Links(Mutex::new(LinkTable {
            links: links.collect::<std::io::Result<_>>()?,
            sent_rows: 0,
            sent_shrinks: Vec::new(),
        })))
    }

    /// Returns the ranks that are gone, with their states.
    pub fn missing(&self) -> Vec<(u32, LinkState)> {
        let mut all = self.0.lock();
        let each = all.links.iter_mut().enumerate();
        each.filter_map(|(rank, link)| {
            let link = link.as_mut()?;
            link.poll();
            (link.state != LinkState::Connected).then_some((rank as u32, link.state))
        })
        .collect()
    }

    /// Notifies the others that the group has ended at this rank, with the encoded reason and the rank that detected it.
    pub fn fail(&self, word: u32, by: u32) {
        for link in self.0.lock().links.iter_mut().flatten() {
            link.push(FAIL, &[&word.to_le_bytes(), &by.to_le_bytes()]);
        }
    }

    /// Notifies the others that this rank has completed its work, and which work; `None` if the group has a sticky
    /// error.
    pub fn leave(&self, done: impl Fn(u32) -> Option<CompletedWork>) {
        for (rank, link) in self.0.lock().links.iter_mut().enumerate() {
            if let Some(link) = link {
                link.push(LEAVE, &[&done(rank as u32).map_or_else(Vec::new, |done| done.bytes())]);
            }
        }
    }

    /// Sends a row to all ranks.
    pub fn send_row(&self, bytes: &[u8]) -> Result<GatherRow> {
        let mut table = self.0.lock();
        let (number, ranks) = (table.sent_rows + 1, (0..table.links.len()).collect());
        let row = table.send_row(RowNumber(number), bytes, ranks)?;
        table.sent_rows = number;
        Ok(row)
    }

    /// Sends a row of a shrink to all ranks, also to the excluded ones, which may expect to remain.
    pub fn send_shrink_row(&self, excluded: &[u32], bytes: &[u8]) -> Result<GatherRow> {
        let mut table = self.0.lock();
        let remain = (0..table.links.len()).filter(|rank| !excluded.contains(&(*rank as u32))).collect();
        let number = table.next_attempt(excluded);
        table.send_row(number, bytes, remain)
    }

    /// Notifies the others that this rank failed to do what all ranks do after a gather.
    pub fn send_failure(&self, row: &GatherRow, error: &Error) {
        self.0.lock().send_failure(row.number, error);
    }

    /// Notifies the others that a shrink cannot succeed, which another rank has called instead of this rank's.
    pub fn refuse_foreign(&self, row: &ForeignRow, error: &Error) {
        let mut table = self.0.lock();
        table.send_failure(row.number, error);
        if let Some(Some(link)) = table.links.get_mut(row.rank as usize) {
            link.note_failure(row.number, error.status(), error.message().to_owned());
        }
    }

    /// Returns why a rank of a gather has failed to do what follows it, if it has said so.
    pub fn failure(&self, row: &GatherRow) -> Option<Error> {
        let table = self.0.lock();
        row.ranks.iter().find_map(|rank| table.links.get(*rank)?.as_ref()?.failure_of(row))
    }

    /// Returns which of `ranks` cannot do what all ranks do after a gather, and why: it failed, or is gone. A rank that is
    /// gone may have done it before, which this rank needs a moment to learn.
    pub fn failure_after(&self, row: &GatherRow, ranks: &[usize]) -> Option<(usize, Error)> {
        let mut all = self.0.lock();
        let mut failure = None;
        for rank in ranks {
            let Some(Some(link)) = all.links.get_mut(*rank) else { continue };
            link.poll();
            if let Some(error) = link.failure_of(row) {
                return Some((*rank, error));
            }
            if link.is_gone() && link.ended.get_or_insert_with(Instant::now).elapsed() > GRACE_PERIOD {
                failure =
                    Some((*rank, Error::new(Status::PEER_LOST, "it has left the group, or its process has ended")));
            }
        }
        failure
    }

    /// Returns the rows that belong to this one, in the order of the ranks that it is gathered from. Otherwise returns a rank
    /// whose row has not arrived, or which has not received this one, and its state; ranks that are gone take precedence. A
    /// failure of the group does not end a shrink.
    pub fn try_collect(&self, row: &GatherRow) -> std::result::Result<Vec<Vec<u8>>, (u32, LinkState)> {
        let mut table = self.0.lock();
        let mut waits_for = None;
        for rank in &row.ranks {
            let Some(Some(link)) = table.links.get_mut(*rank) else { continue };
            link.poll();
            if link.rows.iter().any(|(number, _)| *number == row.number) && link.unsent.is_empty() {
                continue;
            }
            match link.state_for(row) {
                LinkState::Connected => waits_for = Some(*rank as u32),
                gone => return Err((*rank as u32, gone)),
            }
        }
        if let Some(rank) = waits_for {
            return Err((rank, LinkState::Connected));
        }
        let taken = row.ranks.iter().map(|rank| {
            let Some(Some(link)) = table.links.get_mut(*rank) else { return row.bytes.clone() };
            let found = link.rows.iter().position(|(number, _)| *number == row.number);
            found.map_or_else(Vec::new, |found| link.rows.swap_remove(found).1)
        });
        Ok(taken.collect())
    }

    /// Returns a row of a call that this rank has not made, from a rank of a gather whose own row is missing, if it `matters`.
    pub fn foreign_row(&self, row: &GatherRow, matters: impl Fn(&ForeignRow) -> bool) -> Option<ForeignRow> {
        let table = self.0.lock();
        row.ranks.iter().find_map(|rank| {
            let rows = &table.links.get(*rank)?.as_ref()?.rows;
            let is_missing = rows.iter().all(|(number, _)| *number != row.number);
            let foreign = rows.iter().filter(|(number, _)| is_missing && !table.has_sent(*number));
            let rank = *rank as u32;
            foreign
                .map(|(number, bytes)| ForeignRow { rank, number: *number, bytes: bytes.clone() })
                .find(|foreign| matters(foreign))
        })
    }
}

#[cfg(test)]
impl Links {
    pub fn unread_rows(&self) -> usize {
        self.0.lock().links.iter().flatten().map(|link| link.rows.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn three() -> Vec<Links> {
        let mut sockets: Vec<Vec<Option<UnixStream>>> = (0..3).map(|_| vec![None, None, None]).collect();
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let (near, far) = UnixStream::pair().unwrap();
            (sockets[one][other], sockets[other][one]) = (Some(near), Some(far));
        }
        sockets.into_iter().map(|sockets| Links::new(sockets).unwrap()).collect()
    }

    /// Polls for rows until they have arrived, or a rank is gone.
    fn all_of(links: &Links, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, (u32, LinkState)> {
        let row = links.send_row(bytes).unwrap();
        let start = Instant::now();
        loop {
            match links.try_collect(&row) {
                Err((_, LinkState::Connected)) if start.elapsed() < Duration::from_secs(20) => std::thread::yield_now(),
                taken => return taken,
            }
        }
    }

    #[test]
    fn all_ranks_receive_all_rows_in_order() {
        let links = three();
        // More than a socket buffers, so that all must send and receive concurrently.
        let of = |rank: usize, round: usize| vec![(rank * 10 + round) as u8; 300_000 + rank];
        std::thread::scope(|scope| {
            for (rank, links) in links.iter().enumerate() {
                scope.spawn(move || {
                    for round in 0..3 {
                        let all = all_of(links, &of(rank, round)).unwrap();
                        assert_eq!(all, [of(0, round), of(1, round), of(2, round)]);
                    }
                });
            }
        });
    }

    #[test]
    fn rows_are_matched_by_number() {
        let links = three();
        let send_row = |bytes: &[u8; 1]| links.iter().map(|link| link.send_row(bytes).unwrap()).collect::<Vec<_>>();
        let (first, second) = (send_row(b"1"), send_row(b"2"));
        for (link, (first, second)) in links.iter().zip(first.iter().zip(&second)) {
            assert_eq!(link.try_collect(second).unwrap(), [b"2", b"2", b"2"]);
            assert_eq!(link.try_collect(first).unwrap(), [b"1", b"1", b"1"]);
        }
        // A row that arrives after rank 0 has stopped waiting keeps its number.
        let given_up = links[0].send_row(b"3").unwrap();
        assert_eq!(links[0].try_collect(&given_up), Err((2, LinkState::Connected)));
        let late: Vec<GatherRow> = links[1..].iter().map(|link| link.send_row(b"3").unwrap()).collect();
        assert_eq!(links[1].try_collect(&late[0]).unwrap(), [b"3", b"3", b"3"]);
        let next = send_row(b"4");
        assert_eq!(links[0].try_collect(&next[0]).unwrap(), [b"4", b"4", b"4"]);
    }

    #[test]
    fn messages_after_an_uncollected_row_are_complete() {
        let links = three();
        let row = links[0].send_row(&[7; 4_000_000]).unwrap();
        links[0].fail(7, 2);
        assert_eq!(
            links[1].send_row(b"x").map(|row| links[1].try_collect(&row)).unwrap(),
            Err((2, LinkState::Connected))
        );
        // Rank 0 continues to send whenever it polls.
        let start = Instant::now();
        while links[1].missing().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20));
            let _ = links[0].try_collect(&row);
        }
        assert_eq!(links[1].missing(), [(0, LinkState::Failed { word: 7, by: 2 })]);
        let all = links[1].0.lock();
        assert_eq!(all.links[0].as_ref().unwrap().rows, [(RowNumber(1), vec![7; 4_000_000])]);
    }

    #[test]
    fn a_rank_that_announces_too_long_a_message_is_gone() {
        let (near, far) = UnixStream::pair().unwrap();
        let links = Links::new(vec![Some(near)]).unwrap();
        let announce = |length: u32| rustix::io::write(&far, &[&[DATA][..], &length.to_le_bytes()].concat()).unwrap();
        announce(5);
        rustix::io::write(&far, &[0; 5]).unwrap();
        announce(MAX_MESSAGE_BYTES as u32);
        assert_eq!(links.missing(), []);
        let (near, far) = UnixStream::pair().unwrap();
        let links = Links::new(vec![Some(near)]).unwrap();
        rustix::io::write(&far, &[DATA, 0xFF, 0xFF, 0xFF, 0xFF]).unwrap();
        assert_eq!(links.missing(), [(0, LinkState::Gone)]);
    }

    #[test]
    fn failures_are_reported_for_their_row_and_ranks() {
        let links = three();
        let rows: Vec<GatherRow> = links.iter().map(|link| link.send_row(b"1").unwrap()).collect();
        links[1].send_failure(&rows[1], &Error::new(Status::OUT_OF_MEMORY, "no memory"));
        let (rank, error) = links[0].failure_after(&rows[0], &[0, 1, 2]).unwrap();
        assert_eq!((rank, error.status(), error.message()), (1, Status::OUT_OF_MEMORY, "no memory"));
        assert!(links[0].failure_after(&rows[0], &[0, 2]).is_none());
        let next = links[0].send_row(b"2").unwrap();
        assert!(links[0].failure_after(&next, &[0, 1, 2]).is_none());
        // A rank that leaves may have done its part just before.
        links[2].leave(|_| None);
        assert!(links[0].failure_after(&next, &[0, 1, 2]).is_none());
        std::thread::sleep(GRACE_PERIOD + Duration::from_millis(10));
        let (rank, error) = links[0].failure_after(&next, &[0, 1, 2]).unwrap();
        assert_eq!((rank, error.status()), (2, Status::PEER_LOST));
    }

    #[test]
    fn ranks_that_are_gone_are_reported_with_their_state() {
        let mut links = three();
        assert_eq!(links[0].missing(), []);
        let done = |rank: u32| Some(CompletedWork { collectives: 5, sent: u64::from(rank), received: 1 << 40 });
        links[2].leave(done);
        drop(links.pop());
        let left = |rank: u32| (2, LinkState::Left { done: done(rank) });
        assert_eq!(links[0].missing(), [left(0)]);
        links[1].fail(7, 2);
        assert_eq!(links[0].missing(), [(1, LinkState::Failed { word: 7, by: 2 }), left(0)]);
        assert_eq!(links[1].missing(), [left(1)]);
        let links = three();
        links[1].leave(|_| None);
        assert_eq!(links[0].missing(), [(1, LinkState::Left { done: None })]);
        let mut links = three();
        drop(links.pop());
        assert_eq!(links[1].missing(), [(2, LinkState::Gone)]);
        assert_eq!(all_of(&links[1], b"x"), Err((2, LinkState::Gone)));
        assert_eq!(links[1].send_row(&vec![0; MAX_ROW_BYTES + 1]).unwrap_err().status(), Status::INVALID_VALUE);
    }
}

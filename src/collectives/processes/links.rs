//! Sockets between the processes of a group: who is still there, and bytes that go through the CPU.
//!
//! The kernel closes a socket when its process ends, however that ends; nothing has to be polled while all is well, and no
//! thread waits.

use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
};

/// What another rank is known to be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It takes part.
    Here,
    /// It has given up the group, as it said.
    Aborted,
    /// It has left, as it said, when its own work was done.
    Left {
        /// What it has done; not known where the group was broken for it, which it has told the others' kernels by then.
        done: Option<Done>,
    },
    /// Its process has ended.
    Gone,
}

/// What a rank that leaves has done, as far as it concerns another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The collectives.
    pub collectives: u64,
    /// The pieces that it has sent to the other rank, in the lane that every transfer uses.
    pub sent: u64,
    /// The same of those that it has received from there.
    pub received: u64,
}

impl Done {
    fn bytes(&self) -> Vec<u8> {
        [self.collectives, self.sent, self.received].iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn read(bytes: &[u8]) -> Option<Done> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let [collectives, sent, received] = numbers else { return None };
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        rest.is_empty().then_some(Done {
            collectives: number(collectives),
            sent: number(sent),
            received: number(received),
        })
    }
}

const DATA: u8 = 0;
const ABORT: u8 = 1;
const LEAVE: u8 = 2;
/// The most bytes of a row.
const MOST: usize = 1 << 24;

#[derive(Debug)]
struct Link {
    socket: UnixStream,
    state: State,
    /// What has come of a message that is not whole.
    begun: Vec<u8>,
    /// What has to go out still, so that no message is ever cut off by another.
    unsent: Vec<u8>,
    /// Rows that have come and were not asked for yet, by their numbers.
    rows: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct All {
    links: Vec<Option<Link>>,
    /// How many rows this rank has brought.
    brought: u64,
}

/// A link to each other rank.
#[derive(Debug)]
pub struct Links(Mutex<All>);

/// A row that this rank has brought. The others' rows of its number belong to it, so one that came too late for what it was
/// for is never taken for another.
#[derive(Debug)]
pub struct Row {
    number: u64,
    bytes: Vec<u8>,
}

impl Link {
    /// Sends what it can, and takes what has come.
    fn poll(&mut self) {
        self.flush();
        let mut bytes = [0; 4096];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => break self.end(),
                Ok(count) => self.begun.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break self.end(),
            }
        }
        while let Some((head, rest)) = self.begun.split_first_chunk::<5>() {
            let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            if rest.len() < length {
                return;
            }
            let body = &rest[..length];
            match (head[0], body.split_first_chunk()) {
                (DATA, Some((number, row))) => self.rows.push((u64::from_le_bytes(*number), row.to_vec())),
                (ABORT, _) => self.state = State::Aborted,
                (LEAVE, _) if self.state != State::Aborted => self.state = State::Left { done: Done::read(body) },
                _ => {}
            }
            self.begun.drain(..5 + length);
        }
    }

    fn end(&mut self) {
        if self.state == State::Here {
            // Unless it said before how it goes, which is read next.
            self.state = State::Gone;
        }
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
            match self.socket.write(&self.unsent[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Nobody hears it any more, which shows when the socket is read.
                Err(_) => sent = self.unsent.len(),
            }
        }
        self.unsent.drain(..sent);
    }
}

impl Links {
    /// Links over these sockets.
    pub fn new(sockets: Vec<Option<UnixStream>>) -> std::io::Result<Links> {
        let link = |socket: UnixStream| {
            socket.set_nonblocking(true)?;
            Ok(Link { socket, state: State::Here, begun: Vec::new(), unsent: Vec::new(), rows: Vec::new() })
        };
        let links = sockets.into_iter().map(|socket| socket.map(link).transpose());
        Ok(Links(Mutex::new(All { links: links.collect::<std::io::Result<_>>()?, brought: 0 })))
    }

    /// The ranks that are not there any more.
    pub fn missing(&self) -> Vec<(u32, State)> {
        let mut all = self.0.lock();
        let each = all.links.iter_mut().enumerate();
        each.filter_map(|(rank, link)| {
            let link = link.as_mut()?;
            link.poll();
            (link.state != State::Here).then_some((rank as u32, link.state))
        })
        .collect()
    }

    /// Tells the others that this rank gives up the group.
    pub fn abort(&self) {
        for link in self.0.lock().links.iter_mut().flatten() {
            link.push(ABORT, &[]);
        }
    }

    /// Tells the others that this rank has done all it has to, and what that was; nothing if the group is broken for it.
    pub fn leave(&self, done: impl Fn(u32) -> Option<Done>) {
        for (rank, link) in self.0.lock().links.iter_mut().enumerate() {
            if let Some(link) = link {
                link.push(LEAVE, &[&done(rank as u32).map_or_else(Vec::new, |done| done.bytes())]);
            }
        }
    }

    /// Sends a row to everybody.
    pub fn bring(&self, bytes: &[u8]) -> Result<Row> {
        if bytes.len() > MOST {
            return Err(Error::new(Status::INVALID_VALUE, format!("at most {MOST} bytes, not {}", bytes.len())));
        }
        let mut all = self.0.lock();
        all.brought += 1;
        let number = all.brought;
        for link in all.links.iter_mut().flatten() {
            link.push(DATA, &[&number.to_le_bytes(), bytes]);
        }
        Ok(Row { number, bytes: bytes.to_vec() })
    }

    /// The rows of all that belong to this one. Else a rank that has not brought its own, or not taken this one, and what it
    /// is doing; not one that is there if there is one that is not.
    pub fn take(&self, row: &Row) -> std::result::Result<Vec<Vec<u8>>, (u32, State)> {
        let mut all = self.0.lock();
        let has = |link: &Link| link.rows.iter().any(|(number, _)| *number == row.number);
        let mut waits_for = None;
        for (rank, link) in all.links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            link.poll();
            if has(link) && link.unsent.is_empty() {
                continue;
            }
            match link.state {
                State::Here => waits_for = Some(rank as u32),
                gone => return Err((rank as u32, gone)),
            }
        }
        if let Some(rank) = waits_for {
            return Err((rank, State::Here));
        }
        let taken = all.links.iter_mut().map(|link| {
            let Some(link) = link else { return row.bytes.clone() };
            let found = link.rows.iter().position(|(number, _)| *number == row.number);
            found.map_or_else(Vec::new, |found| link.rows.swap_remove(found).1)
        });
        Ok(taken.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn three() -> Vec<Links> {
        let mut sockets: Vec<Vec<Option<UnixStream>>> = (0..3).map(|_| vec![None, None, None]).collect();
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let (near, far) = UnixStream::pair().unwrap();
            (sockets[one][other], sockets[other][one]) = (Some(near), Some(far));
        }
        sockets.into_iter().map(|sockets| Links::new(sockets).unwrap()).collect()
    }

    /// What comes of asking for rows until they are there, or somebody is missing.
    fn all_of(links: &Links, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, (u32, State)> {
        let row = links.bring(bytes).unwrap();
        let start = Instant::now();
        loop {
            match links.take(&row) {
                Err((_, State::Here)) if start.elapsed() < Duration::from_secs(20) => std::thread::yield_now(),
                taken => return taken,
            }
        }
    }

    #[test]
    fn everybody_gets_the_bytes_of_each_and_in_order() {
        let links = three();
        // More than a socket holds, so that all must send and receive at once.
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
    fn rows_are_told_apart_by_their_numbers() {
        let links = three();
        let bring = |bytes: &[u8; 1]| links.iter().map(|link| link.bring(bytes).unwrap()).collect::<Vec<_>>();
        let (first, second) = (bring(b"1"), bring(b"2"));
        for (link, (first, second)) in links.iter().zip(first.iter().zip(&second)) {
            assert_eq!(link.take(second).unwrap(), [b"2", b"2", b"2"]);
            assert_eq!(link.take(first).unwrap(), [b"1", b"1", b"1"]);
        }
        // What rank 0 has given up waiting for comes late, and stays what it was.
        let given_up = links[0].bring(b"3").unwrap();
        assert_eq!(links[0].take(&given_up), Err((2, State::Here)));
        let late: Vec<Row> = links[1..].iter().map(|link| link.bring(b"3").unwrap()).collect();
        assert_eq!(links[1].take(&late[0]).unwrap(), [b"3", b"3", b"3"]);
        let next = bring(b"4");
        assert_eq!(links[0].take(&next[0]).unwrap(), [b"4", b"4", b"4"]);
    }

    #[test]
    fn what_is_said_behind_a_row_that_is_not_taken_yet_comes_whole() {
        let links = three();
        let row = links[0].bring(&[7; 4_000_000]).unwrap();
        links[0].abort();
        assert_eq!(links[1].bring(b"x").map(|row| links[1].take(&row)).unwrap(), Err((2, State::Here)));
        // Rank 0 goes on sending whenever it looks.
        let start = Instant::now();
        while links[1].missing().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20));
            let _ = links[0].take(&row);
        }
        assert_eq!(links[1].missing(), [(0, State::Aborted)]);
        let all = links[1].0.lock();
        assert_eq!(all.links[0].as_ref().unwrap().rows, [(1, vec![7; 4_000_000])]);
    }

    #[test]
    fn who_goes_is_missed_and_how_is_known() {
        let mut links = three();
        assert_eq!(links[0].missing(), []);
        let done = |rank: u32| Some(Done { collectives: 5, sent: u64::from(rank), received: 1 << 40 });
        links[2].leave(done);
        drop(links.pop());
        let left = |rank: u32| (2, State::Left { done: done(rank) });
        assert_eq!(links[0].missing(), [left(0)]);
        links[1].abort();
        assert_eq!(links[0].missing(), [(1, State::Aborted), left(0)]);
        assert_eq!(links[1].missing(), [left(1)]);
        let links = three();
        links[1].leave(|_| None);
        assert_eq!(links[0].missing(), [(1, State::Left { done: None })]);
        let mut links = three();
        drop(links.pop());
        assert_eq!(links[1].missing(), [(2, State::Gone)]);
        assert_eq!(all_of(&links[1], b"x"), Err((2, State::Gone)));
        assert_eq!(links[1].bring(&vec![0; MOST + 1]).unwrap_err().status(), Status::INVALID_VALUE);
    }
}

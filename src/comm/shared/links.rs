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
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
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
        /// Whether the group was broken for it, which it has told the others' kernels by then.
        broken: bool,
    },
    /// Its process has ended.
    Gone,
}

const DATA: u8 = 0;
const ABORT: u8 = 1;
const LEAVE: u8 = 2;
/// What a rank says as it leaves a group that is broken.
const BROKEN: u8 = 1;
/// The most bytes of a message.
const MOST: usize = 1 << 24;

#[derive(Debug)]
struct Link {
    socket: UnixStream,
    state: State,
    /// What has come of a message that is not whole.
    begun: Vec<u8>,
    messages: VecDeque<Vec<u8>>,
}

/// A link to each other rank.
#[derive(Debug)]
pub struct Links(Mutex<Vec<Option<Link>>>);

impl Link {
    /// Takes what has come.
    fn poll(&mut self) {
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
            match head[0] {
                DATA => self.messages.push_back(rest[..length].to_vec()),
                ABORT => self.state = State::Aborted,
                LEAVE if self.state != State::Aborted => {
                    self.state = State::Left { broken: rest[..length].contains(&BROKEN) };
                }
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
}

fn framed(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![kind];
    message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    message.extend_from_slice(bytes);
    message
}

impl Links {
    /// Links over these sockets.
    pub fn new(sockets: Vec<Option<UnixStream>>) -> std::io::Result<Links> {
        let link = |socket: UnixStream| {
            socket.set_nonblocking(true)?;
            Ok(Link { socket, state: State::Here, begun: Vec::new(), messages: VecDeque::new() })
        };
        let links = sockets.into_iter().map(|socket| socket.map(link).transpose());
        Ok(Links(Mutex::new(links.collect::<std::io::Result<_>>()?)))
    }

    /// The ranks that are not there any more.
    pub fn missing(&self) -> Vec<(u32, State)> {
        let mut links = self.0.lock();
        let each = links.iter_mut().enumerate();
        each.filter_map(|(rank, link)| {
            let link = link.as_mut()?;
            link.poll();
            (link.state != State::Here).then_some((rank as u32, link.state))
        })
        .collect()
    }

    fn say(&self, kind: u8, bytes: &[u8]) {
        for link in self.0.lock().iter_mut().flatten() {
            // Who does not hear it finds the socket closed.
            let _ = link.socket.write_all(&framed(kind, bytes));
        }
    }

    /// Tells the others that this rank gives up the group.
    pub fn abort(&self) {
        self.say(ABORT, &[]);
    }

    /// Tells the others that this rank has done all it has to, and whether the group is broken for it.
    pub fn leave(&self, broken: bool) {
        self.say(LEAVE, if broken { &[BROKEN] } else { &[] });
    }

    /// Gives everybody the bytes of each.
    pub fn gather(&self, rank: u32, mine: &[u8], timeout: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        if mine.len() > MOST {
            return Err(Error::new(Status::INVALID_VALUE, format!("at most {MOST} bytes, not {}", mine.len())));
        }
        let message = framed(DATA, mine);
        let mut links = self.0.lock();
        let mut sent = vec![0; links.len()];
        let start = Instant::now();
        loop {
            let mut waits_for = None;
            for (peer, link) in links.iter_mut().enumerate() {
                let Some(link) = link else { continue };
                while sent[peer] < message.len() {
                    match link.socket.write(&message[sent[peer]..]) {
                        Ok(count) => sent[peer] += count,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(_) => break,
                    }
                }
                link.poll();
                if sent[peer] < message.len() || link.messages.is_empty() {
                    if link.state != State::Here {
                        return Err(Error::new(Status::PEER_LOST, format!("rank {peer} is not there any more")));
                    }
                    waits_for = Some(peer);
                }
            }
            let Some(peer) = waits_for else { break };
            if timeout.is_some_and(|timeout| start.elapsed() > timeout) {
                let message = format!("rank {rank} waited {:?} for bytes of rank {peer}, in vain", start.elapsed());
                return Err(Error::new(Status::TIMED_OUT, message));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(links
            .iter_mut()
            .map(|link| {
                link.as_mut().map_or_else(|| mine.to_vec(), |link| link.messages.pop_front().unwrap_or_default())
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Links> {
        let mut sockets: Vec<Vec<Option<UnixStream>>> = (0..3).map(|_| vec![None, None, None]).collect();
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            let (near, far) = UnixStream::pair().unwrap();
            (sockets[one][other], sockets[other][one]) = (Some(near), Some(far));
        }
        sockets.into_iter().map(|sockets| Links::new(sockets).unwrap()).collect()
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
                        let all = links.gather(rank as u32, &of(rank, round), Some(Duration::from_secs(20))).unwrap();
                        assert_eq!(all, [of(0, round), of(1, round), of(2, round)]);
                    }
                });
            }
        });
    }

    #[test]
    fn who_goes_is_missed_and_how_is_known() {
        let mut links = three();
        assert_eq!(links[0].missing(), []);
        links[2].leave(false);
        drop(links.pop());
        let left = (2, State::Left { broken: false });
        assert_eq!(links[0].missing(), [left]);
        links[1].abort();
        assert_eq!(links[0].missing(), [(1, State::Aborted), left]);
        let links = three();
        links[1].leave(true);
        assert_eq!(links[0].missing(), [(1, State::Left { broken: true })]);
        let mut links = three();
        drop(links.pop());
        assert_eq!(links[1].missing(), [(2, State::Gone)]);
        let error = links[1].gather(1, b"x", Some(Duration::from_secs(5))).unwrap_err();
        assert_eq!(error.status(), Status::PEER_LOST);
        let error = three()[0].gather(0, b"x", Some(Duration::from_millis(20))).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
    }
}

//! Messages of the rendezvous: a status, some bytes, and file descriptors, over a Unix socket.
//!
//! Descriptors travel with the first bytes of a message.

use crate::base::unix_socket;
use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

/// The maximum number of descriptors of a message: a buffer and a link for each other rank.
const MAX_DESCRIPTORS: usize = 2 * crate::driver::group::MAX_RANKS;
/// Size of a message's header: the status, and the number of bytes.
pub const HEAD: usize = 8;
/// The maximum bytes of a message: the infos of all ranks, or an error's text.
const MOST_BYTES: usize = 1 << 16;

const _: () = assert!(MAX_DESCRIPTORS <= unix_socket::MAX_DESCRIPTORS);

/// A message.
pub struct Message {
    /// 0, or the status of the sender's error.
    pub status: i32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors.
    pub descriptors: Vec<OwnedFd>,
}

/// An optional deadline, with an optional early stop.
#[derive(Clone, Copy)]
pub struct RendezvousDeadline<'a> {
    end: Option<Instant>,
    stops: Option<&'a dyn Fn() -> bool>,
}

/// The interval at which `stops` is polled.
const SLICE: Duration = Duration::from_millis(20);

impl<'a> RendezvousDeadline<'a> {
    /// Creates a deadline `timeout` from now.
    pub fn after(timeout: Option<Duration>) -> RendezvousDeadline<'a> {
        RendezvousDeadline { end: timeout.and_then(|timeout| Instant::now().checked_add(timeout)), stops: None }
    }

    /// Adds a condition that ends waits early.
    pub fn unless(self, stops: &'a dyn Fn() -> bool) -> RendezvousDeadline<'a> {
        RendezvousDeadline { stops: Some(stops), ..self }
    }

    /// Returns the time until the deadline; fails if it has expired.
    pub fn remaining(self) -> io::Result<Option<Duration>> {
        if self.stops.is_some_and(|stops| stops()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let Some(end) = self.end else { return Ok(None) };
        match end.checked_duration_since(Instant::now()).filter(|remaining| !remaining.is_zero()) {
            Some(remaining) => Ok(Some(remaining)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Calls `read` until it returns something or the deadline expires.
    fn read<T>(self, socket: &UnixStream, mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            let remaining = self.remaining()?;
            let slice = self.stops.map(|_| remaining.map_or(SLICE, |remaining| remaining.min(SLICE)));
            socket.set_read_timeout(slice.or(remaining))?;
            match read() {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                done => return done,
            }
        }
    }
}

/// Sends a message.
pub fn send(
    socket: &UnixStream,
    status: i32,
    bytes: &[u8],
    descriptors: &[BorrowedFd],
    deadline: RendezvousDeadline,
) -> io::Result<()> {
    socket.set_write_timeout(deadline.remaining()?)?;
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&status.to_le_bytes());
    head[4..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    let sent = unix_socket::send(socket.as_raw_fd(), &head, descriptors)?;
    let mut socket = socket;
    socket.write_all(&head[sent..])?;
    socket.write_all(bytes)
}

/// Receives a complete message.
pub fn receive(socket: &UnixStream, deadline: RendezvousDeadline) -> io::Result<Message> {
    let (mut head, mut descriptors, mut have) = ([0; HEAD], Vec::new(), 0);
    while have < head.len() {
        let received =
            deadline.read(socket, || unix_socket::receive(socket.as_raw_fd(), &mut head[have..], &mut descriptors))?;
        if received.lost_descriptors {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        have += received.bytes;
    }
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = number(4) as usize;
    if length > MOST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    let mut have = 0;
    while have < length {
        match deadline.read(socket, || (&mut &*socket).read(&mut bytes[have..]))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            received => have += received,
        }
    }
    Ok(Message { status: number(0) as i32, bytes, descriptors })
}

/// Returns the body of a complete message, header included; `None` if the length does not match or the message carries
/// an error.
pub fn body(message: &[u8]) -> Option<&[u8]> {
    let (head, body) = message.split_at_checked(HEAD)?;
    let expected = [[0; 4], u32::try_from(body.len()).ok()?.to_le_bytes()];
    (head == expected.as_flattened()).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const SOON: Option<Duration> = Some(Duration::from_secs(10));

    #[test]
    fn a_message_carries_its_bytes_and_descriptors() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let text = vec![7; 40_000];
        let sender = std::thread::spawn(move || {
            send(&near, -3, &text, &[writer.as_fd()], RendezvousDeadline::after(SOON)).unwrap()
        });
        let message = receive(&far, RendezvousDeadline::after(SOON)).unwrap();
        sender.join().unwrap();
        assert_eq!((message.status, message.bytes, message.descriptors.len()), (-3, vec![7; 40_000], 1));
        std::fs::File::from(message.descriptors.into_iter().next().unwrap()).write_all(b"x").unwrap();
        let mut byte = String::new();
        reader.read_to_string(&mut byte).unwrap();
        assert_eq!(byte, "x");
    }

    #[test]
    fn waiting_ends_when_the_condition_holds() {
        let (_near, far) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let stops = || start.elapsed() > Duration::from_millis(50);
        assert_eq!(
            receive(&far, RendezvousDeadline::after(None).unless(&stops)).err().unwrap().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn silence_ends_at_the_deadline_and_garbage_at_once() {
        let (near, far) = UnixStream::pair().unwrap();
        let kind = |result: io::Result<Message>| result.err().unwrap().kind();
        let late = kind(receive(&far, RendezvousDeadline::after(Some(Duration::from_millis(20)))));
        assert!(matches!(late, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
        (&near).write_all(&[0xFF; 8]).unwrap();
        assert_eq!(kind(receive(&far, RendezvousDeadline::after(SOON))), io::ErrorKind::InvalidData);
        (&near).write_all(&[0; 5]).unwrap();
        drop(near);
        assert_eq!(kind(receive(&far, RendezvousDeadline::after(SOON))), io::ErrorKind::UnexpectedEof);
    }
}

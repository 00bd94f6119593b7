//! Messages of the rendezvous: a status, some bytes, and file descriptors, over a Unix socket.
//!
//! Descriptors travel with the first bytes of a message.

use crate::base::{
    deadline::Deadline,
    unix_socket::{self, Channel},
};
use rustix::io::Errno;
use std::{
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
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

/// Sends a message.
pub fn send(
    socket: &UnixStream,
    status: i32,
    bytes: &[u8],
    descriptors: &[BorrowedFd],
    deadline: Deadline,
) -> io::Result<()> {
    let message = [&status.to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), bytes].concat();
    Channel::with_deadline(socket.as_fd(), deadline).send(&message, descriptors)
}

/// Receives a complete message.
pub fn receive(socket: &UnixStream, deadline: Deadline) -> io::Result<Message> {
    let mut channel = Channel::with_deadline(socket.as_fd(), deadline);
    let mut head = [0; HEAD];
    let part = channel.receive(&mut head)?;
    if part.lost {
        return Err(Errno::MFILE.into());
    }
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = number(4) as usize;
    if length > MOST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    channel.receive(&mut bytes)?;
    Ok(Message { status: number(0) as i32, bytes, descriptors: part.descriptors })
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
    use std::{
        io::{Read, Write},
        time::{Duration, Instant},
    };

    const SOON: Option<Duration> = Some(Duration::from_secs(10));

    #[test]
    fn a_message_carries_its_bytes_and_descriptors() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let text = vec![7; 40_000];
        let sender =
            std::thread::spawn(move || send(&near, -3, &text, &[writer.as_fd()], Deadline::optional(SOON)).unwrap());
        let message = receive(&far, Deadline::optional(SOON)).unwrap();
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
            receive(&far, Deadline::optional(None).unless(&stops)).err().unwrap().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn silence_ends_at_the_deadline_and_garbage_at_once() {
        let (near, far) = UnixStream::pair().unwrap();
        let kind = |result: io::Result<Message>| result.err().unwrap().kind();
        let late = kind(receive(&far, Deadline::new(Duration::from_millis(20))));
        assert!(matches!(late, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
        (&near).write_all(&[0xFF; 8]).unwrap();
        assert_eq!(kind(receive(&far, Deadline::optional(SOON))), io::ErrorKind::InvalidData);
        (&near).write_all(&[0; 5]).unwrap();
        drop(near);
        assert_eq!(kind(receive(&far, Deadline::optional(SOON))), io::ErrorKind::UnexpectedEof);
    }
}

//! The program's socket, as a channel whose errors are statuses.

use crate::{
    base::unix_socket::{self, MESSAGE_LIMIT, is_datagram_socket, is_unix_socket},
    error::{Error, Result},
    status::Status,
};
use rustix::io::Errno;
use std::{
    io::{self, ErrorKind},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

/// A socket of the program.
pub struct Channel<'a>(unix_socket::Channel<'a>);

#[cold]
fn failed(action: &str, option: &str, error: &io::Error) -> Error {
    let (status, why) = match (error.kind(), error.raw_os_error().map(Errno::from_raw_os_error)) {
        (ErrorKind::UnexpectedEof, _) => (Status::IPC_PEER_GONE, "the other end of the socket is closed".to_owned()),
        (ErrorKind::InvalidData, _) => {
            (Status::INVALID_VALUE, "a packet is longer than any part of a message".to_owned())
        }
        (ErrorKind::TimedOut, _) => (
            Status::TIMED_OUT,
            format!(
                "the other process did not do its part within the time limit of the socket ({option}), or else {} s; \
                 close the socket, because it may hold a part of the message",
                MESSAGE_LIMIT.as_secs()
            ),
        ),
        (_, Some(Errno::TOOMANYREFS)) => (
            Status::SYSTEM,
            "too many file descriptors are in flight (ETOOMANYREFS): the processes of this user have sent more of them \
             through Unix sockets than one process may open, and they are not received yet; receive the messages that \
             wait, or raise the limit of open files (ulimit -n)"
                .to_owned(),
        ),
        (ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected, _) => {
            (Status::IPC_PEER_GONE, error.to_string())
        }
        _ => (Status::SYSTEM, error.to_string()),
    };
    Error::new(status, format!("{action} the Unix socket: {why}"))
}

impl<'a> Channel<'a> {
    /// Creates a channel for one message over a socket.
    pub fn new(socket: BorrowedFd<'a>) -> Result<Self> {
        let number = socket.as_raw_fd();
        let message = if !is_unix_socket(socket) {
            format!("descriptor {number} is not a Unix socket")
        } else if is_datagram_socket(socket) {
            format!(
                "descriptor {number} is a datagram socket, on which the end of the other process cannot be detected; \
                 use SOCK_STREAM or SOCK_SEQPACKET"
            )
        } else {
            return Ok(Channel(unix_socket::Channel::new(socket)));
        };
        Err(Error::new(Status::INVALID_VALUE, message))
    }

    /// Returns whether a part was sent incompletely, so that no other part can follow.
    pub fn is_broken(&self) -> bool {
        self.0.is_broken()
    }

    /// Sends one part of a message.
    pub fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd]) -> Result<()> {
        self.0.send(bytes, descriptors).map_err(|error| failed("sending through", "SO_SNDTIMEO", &error))
    }

    /// Receives one part with its descriptors. The inner error means that descriptors were lost in transit; the next
    /// part can still be received.
    pub fn receive(&mut self, bytes: &mut [u8]) -> Result<Result<Vec<OwnedFd>>> {
        let part = self.0.receive(bytes).map_err(|error| failed("receiving from", "SO_RCVTIMEO", &error))?;
        if part.lost {
            let what = "descriptors of a message were lost: this process has reached its limit of open files; \
                        raise it (ulimit -n)";
            return Ok(Err(Error::new(Status::SYSTEM, what)));
        }
        Ok(Ok(part.descriptors))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::system, *};
    use std::{
        io::{Read, Write},
        os::{fd::AsFd, unix::net::UnixStream},
    };

    fn channels() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    #[test]
    fn parts_arrive_with_their_descriptors() {
        let (here, there) = channels();
        let (reader, writer) = system::pipe().unwrap();
        Channel::new(here.as_fd()).unwrap().send(b"part", &[writer.as_fd(), writer.as_fd()]).unwrap();
        Channel::new(here.as_fd()).unwrap().send(b"next", &[]).unwrap();
        drop(writer);
        assert!(system::has_writer(&reader));
        let (mut channel, mut bytes) = (Channel::new(there.as_fd()).unwrap(), [0; 4]);
        let received_descriptors = channel.receive(&mut bytes).unwrap().unwrap();
        assert_eq!(received_descriptors.len(), 2);
        assert_eq!(&bytes, b"part");
        drop(received_descriptors);
        assert!(!system::has_writer(&reader));
        assert!(channel.receive(&mut bytes).unwrap().unwrap().is_empty());
        assert_eq!(&bytes, b"next");
    }

    #[test]
    fn closing_the_socket_closes_descriptors_in_transit() {
        let (here, there) = channels();
        let (reader, writer) = system::pipe().unwrap();
        Channel::new(here.as_fd()).unwrap().send(b"part", &[writer.as_fd()]).unwrap();
        drop((writer, here));
        assert!(system::has_writer(&reader));
        drop(there);
        assert!(!system::has_writer(&reader));
    }

    #[test]
    fn rejects_a_truncated_part() {
        let (mut here, there) = channels();
        here.write_all(b"pa").unwrap();
        drop(here);
        let error = Channel::new(there.as_fd()).unwrap().receive(&mut [0; 4]).unwrap_err();
        assert_eq!(error.status(), Status::IPC_PEER_GONE);
    }

    #[test]
    fn an_empty_non_blocking_socket_is_an_error() {
        let (_here, there) = channels();
        there.set_nonblocking(true).unwrap();
        let error = Channel::new(there.as_fd()).unwrap().receive(&mut [0; 4]).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(Channel::new(system::lock_file().unwrap().as_fd()).is_err());
    }

    #[test]
    fn sends_a_long_part_through_a_non_blocking_socket() {
        let (here, mut there) = channels();
        here.set_nonblocking(true).unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            there.read_to_end(&mut all).unwrap();
            all.len()
        });
        Channel::new(here.as_fd()).unwrap().send(&vec![1; 4 << 20], &[]).unwrap();
        drop(here);
        assert_eq!(reader.join().unwrap(), 4 << 20);
    }
}

//! A connected Unix socket that transfers messages in parts of known length, each with a known number of descriptors.
//!
//! Nothing else is required of the socket, so stream, sequenced-packet and datagram sockets all work.

use crate::{
    base::unix_socket,
    error::{Error, Result},
    status::Status,
};
use std::{
    io::{self, ErrorKind},
    os::fd::{BorrowedFd, OwnedFd, RawFd},
};

/// A socket of the program.
pub struct Channel {
    socket: RawFd,
    /// Whether any byte of a message was sent or received. From then on, calls wait for the rest even if the socket is
    /// non-blocking.
    started: bool,
}

#[cold]
fn failed(action: &str, error: &io::Error) -> Error {
    let status = match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => Status::IPC_PEER_GONE,
        _ => Status::SYSTEM,
    };
    Error::new(status, format!("{action} the Unix socket: {error}"))
}

#[cold]
fn peer_closed() -> Error {
    Error::new(Status::IPC_PEER_GONE, "the other end of the socket is closed")
}

impl Channel {
    /// Creates a channel over a socket.
    pub fn new(socket: RawFd) -> Result<Self> {
        if !unix_socket::is_unix_socket(socket) {
            return Err(Error::new(Status::INVALID_VALUE, format!("descriptor {socket} is not a Unix socket")));
        }
        Ok(Channel { socket, started: false })
    }

    /// Handles a failed call on the socket: returns `Ok` to retry, or the error.
    fn handle_error(&self, action: &str, error: &io::Error, write: bool) -> Result<()> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock if self.started => {
                unix_socket::wait(self.socket, write);
                Ok(())
            }
            _ => Err(failed(action, error)),
        }
    }

    /// Sends one part of a message.
    pub fn send(&mut self, mut bytes: &[u8], mut descriptors: &[BorrowedFd]) -> Result<()> {
        while !bytes.is_empty() {
            match unix_socket::send(self.socket, bytes, descriptors) {
                Ok(sent) => {
                    self.started = true;
                    bytes = &bytes[sent..];
                    descriptors = &[];
                }
                Err(error) => self.handle_error("sending through", &error, true)?,
            }
        }
        Ok(())
    }

    /// Receives one part with exactly `descriptors` descriptors. The inner error means that descriptors were lost in
    /// transit; the next part can still be received.
    pub fn receive(&mut self, bytes: &mut [u8], descriptors: usize) -> Result<Result<Vec<OwnedFd>>> {
        let (mut filled, mut received_descriptors, mut lost) = (0, Vec::new(), false);
        while filled < bytes.len() {
            match unix_socket::receive(self.socket, &mut bytes[filled..], &mut received_descriptors) {
                Ok(received) if received.bytes == 0 => return Err(peer_closed()),
                Ok(received) => {
                    self.started = true;
                    filled += received.bytes;
                    lost |= received.lost_descriptors;
                    if received.lost_bytes {
                        return Err(Error::new(Status::INVALID_VALUE, "a packet is longer than any part of a message"));
                    }
                }
                Err(error) => self.handle_error("receiving from", &error, false)?,
            }
        }
        if lost {
            let what = "descriptors of a message were lost: this process has reached its limit of open files; \
                        raise it (ulimit -n)";
            return Ok(Err(Error::new(Status::SYSTEM, what)));
        }
        if received_descriptors.len() != descriptors {
            let what =
                format!("a part of a message has {} descriptors instead of {descriptors}", received_descriptors.len());
            return Err(Error::new(Status::INVALID_VALUE, what));
        }
        Ok(Ok(received_descriptors))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::system, *};
    use std::{
        io::{Read, Write},
        os::{
            fd::{AsFd, AsRawFd},
            unix::net::UnixStream,
        },
    };

    fn channels() -> (UnixStream, UnixStream) {
        UnixStream::pair().unwrap()
    }

    #[test]
    fn parts_arrive_with_their_descriptors() {
        let (here, there) = channels();
        let (reader, writer) = system::pipe().unwrap();
        Channel::new(here.as_raw_fd()).unwrap().send(b"part", &[writer.as_fd(), writer.as_fd()]).unwrap();
        Channel::new(here.as_raw_fd()).unwrap().send(b"next", &[]).unwrap();
        drop(writer);
        assert!(system::has_writer(&reader));
        let (mut channel, mut bytes) = (Channel::new(there.as_raw_fd()).unwrap(), [0; 4]);
        let received_descriptors = channel.receive(&mut bytes, 2).unwrap().unwrap();
        assert_eq!(&bytes, b"part");
        drop(received_descriptors);
        assert!(!system::has_writer(&reader));
        assert!(channel.receive(&mut bytes, 0).unwrap().unwrap().is_empty());
        assert_eq!(&bytes, b"next");
    }

    #[test]
    fn closing_the_socket_closes_descriptors_in_transit() {
        let (here, there) = channels();
        let (reader, writer) = system::pipe().unwrap();
        Channel::new(here.as_raw_fd()).unwrap().send(b"part", &[writer.as_fd()]).unwrap();
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
        let error = Channel::new(there.as_raw_fd()).unwrap().receive(&mut [0; 4], 0).unwrap_err();
        assert_eq!(error.status(), Status::IPC_PEER_GONE);
    }

    #[test]
    fn rejects_too_few_descriptors() {
        let (mut here, there) = channels();
        here.write_all(b"part").unwrap();
        let error = Channel::new(there.as_raw_fd()).unwrap().receive(&mut [0; 4], 1).unwrap_err();
        assert_eq!(error.status(), Status::INVALID_VALUE);
    }

    #[test]
    fn an_empty_non_blocking_socket_is_an_error() {
        let (_here, there) = channels();
        there.set_nonblocking(true).unwrap();
        let error = Channel::new(there.as_raw_fd()).unwrap().receive(&mut [0; 4], 0).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(Channel::new(0x7FFF_FFFF).is_err());
        assert!(Channel::new(system::memory_file().unwrap().as_raw_fd()).is_err());
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
        Channel::new(here.as_raw_fd()).unwrap().send(&vec![1; 4 << 20], &[]).unwrap();
        drop(here);
        assert_eq!(reader.join().unwrap(), 4 << 20);
    }
}

//! The program's socket, as a channel whose errors are statuses.

use crate::{
    base::unix_socket::{self, is_unix_socket},
    error::{Error, Result},
    status::Status,
};
use std::{
    io::{self, ErrorKind},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

/// A socket of the program.
pub struct Channel<'a>(unix_socket::Channel<'a>);

#[cold]
fn failed(action: &str, error: &io::Error) -> Error {
    let status = match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => Status::IPC_PEER_GONE,
        ErrorKind::UnexpectedEof => return Error::new(Status::IPC_PEER_GONE, "the other end of the socket is closed"),
        ErrorKind::InvalidData => {
            return Error::new(Status::INVALID_VALUE, "a packet is longer than any part of a message");
        }
        _ => Status::SYSTEM,
    };
    Error::new(status, format!("{action} the Unix socket: {error}"))
}

impl<'a> Channel<'a> {
    /// Creates a channel over a socket.
    pub fn new(socket: BorrowedFd<'a>) -> Result<Self> {
        if !is_unix_socket(socket) {
            let message = format!("descriptor {} is not a Unix socket", socket.as_raw_fd());
            return Err(Error::new(Status::INVALID_VALUE, message));
        }
        Ok(Channel(unix_socket::Channel::new(socket)))
    }

    /// Sends one part of a message.
    pub fn send(&mut self, bytes: &[u8], descriptors: &[BorrowedFd]) -> Result<()> {
        self.0.send(bytes, descriptors).map_err(|error| failed("sending through", &error))
    }

    /// Receives one part with exactly `descriptors` descriptors. The inner error means that descriptors were lost in
    /// transit; the next part can still be received.
    pub fn receive(&mut self, bytes: &mut [u8], descriptors: usize) -> Result<Result<Vec<OwnedFd>>> {
        let part = self.0.receive(bytes).map_err(|error| failed("receiving from", &error))?;
        if part.lost {
            let what = "descriptors of a message were lost: this process has reached its limit of open files; \
                        raise it (ulimit -n)";
            return Ok(Err(Error::new(Status::SYSTEM, what)));
        }
        if part.descriptors.len() != descriptors {
            let what =
                format!("a part of a message has {} descriptors instead of {descriptors}", part.descriptors.len());
            return Err(Error::new(Status::INVALID_VALUE, what));
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
        let error = Channel::new(there.as_fd()).unwrap().receive(&mut [0; 4], 0).unwrap_err();
        assert_eq!(error.status(), Status::IPC_PEER_GONE);
    }

    #[test]
    fn rejects_too_few_descriptors() {
        let (mut here, there) = channels();
        here.write_all(b"part").unwrap();
        let error = Channel::new(there.as_fd()).unwrap().receive(&mut [0; 4], 1).unwrap_err();
        assert_eq!(error.status(), Status::INVALID_VALUE);
    }

    #[test]
    fn an_empty_non_blocking_socket_is_an_error() {
        let (_here, there) = channels();
        there.set_nonblocking(true).unwrap();
        let error = Channel::new(there.as_fd()).unwrap().receive(&mut [0; 4], 0).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(Channel::new(system::memory_file().unwrap().as_fd()).is_err());
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

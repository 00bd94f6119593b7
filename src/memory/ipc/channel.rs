//! A connected Unix socket, as messages use it: in parts of known lengths, each with known descriptors.
//!
//! That is all that is asked of the socket, so one of a stream, of packets or of datagrams will do.

use crate::{
    base::unix_socket,
    error::{Error, Result},
    status::Status,
};
use std::{
    io::{self, ErrorKind},
    os::fd::{BorrowedFd, OwnedFd, RawFd},
};

/// A socket of the program's.
pub struct Channel {
    socket: RawFd,
    /// Whether a part of a message has gone or come already: then the rest is waited for, whatever the socket's own mode.
    begun: bool,
}

#[cold]
fn failed(doing: &str, error: &io::Error) -> Error {
    let status = match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => Status::IPC_PEER_GONE,
        _ => Status::SYSTEM,
    };
    Error::new(status, format!("{doing} the Unix socket: {error}"))
}

#[cold]
fn gone() -> Error {
    Error::new(Status::IPC_PEER_GONE, "the other end of the socket is closed")
}

impl Channel {
    /// The channel over a socket.
    pub fn new(socket: RawFd) -> Result<Self> {
        if !unix_socket::is_unix_socket(socket) {
            return Err(Error::new(Status::INVALID_VALUE, format!("descriptor {socket} is no Unix socket")));
        }
        Ok(Channel { socket, begun: false })
    }

    /// What a call on the socket that gave nothing means: try again, or an error.
    fn again(&self, doing: &str, error: &io::Error, write: bool) -> Result<()> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock if self.begun => {
                unix_socket::wait(self.socket, write);
                Ok(())
            }
            _ => Err(failed(doing, error)),
        }
    }

    /// Sends one part.
    pub fn send(&mut self, mut bytes: &[u8], mut descriptors: &[BorrowedFd]) -> Result<()> {
        while !bytes.is_empty() {
            match unix_socket::send(self.socket, bytes, descriptors) {
                Ok(sent) => {
                    self.begun = true;
                    bytes = &bytes[sent..];
                    descriptors = &[];
                }
                Err(error) => self.again("sending through", &error, true)?,
            }
        }
        Ok(())
    }

    /// Receives one part, with exactly so many descriptors. The inner error is for descriptors that were lost on their
    /// way, after which the next part can be received all the same.
    pub fn receive(&mut self, bytes: &mut [u8], descriptors: usize) -> Result<Result<Vec<OwnedFd>>> {
        let (mut filled, mut got, mut lost) = (0, Vec::new(), false);
        while filled < bytes.len() {
            match unix_socket::receive(self.socket, &mut bytes[filled..], &mut got) {
                Ok(received) if received.bytes == 0 => return Err(gone()),
                Ok(received) => {
                    self.begun = true;
                    filled += received.bytes;
                    lost |= received.lost_descriptors;
                    if received.lost_bytes {
                        return Err(Error::new(Status::INVALID_VALUE, "a packet is longer than any part of a message"));
                    }
                }
                Err(error) => self.again("receiving from", &error, false)?,
            }
        }
        if lost {
            let what = "descriptors of a message are lost: this process has as many files open as it may";
            return Ok(Err(Error::new(Status::SYSTEM, what)));
        }
        if got.len() != descriptors {
            let what = format!("a part of a message came with {} descriptors instead of {descriptors}", got.len());
            return Err(Error::new(Status::INVALID_VALUE, what));
        }
        Ok(Ok(got))
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
    fn parts_travel_with_their_descriptors() {
        let (here, there) = channels();
        let (reader, writer) = system::pipe().unwrap();
        Channel::new(here.as_raw_fd()).unwrap().send(b"part", &[writer.as_fd(), writer.as_fd()]).unwrap();
        Channel::new(here.as_raw_fd()).unwrap().send(b"next", &[]).unwrap();
        drop(writer);
        assert!(system::has_writer(&reader));
        let (mut channel, mut bytes) = (Channel::new(there.as_raw_fd()).unwrap(), [0; 4]);
        let got = channel.receive(&mut bytes, 2).unwrap().unwrap();
        assert_eq!(&bytes, b"part");
        drop(got);
        assert!(!system::has_writer(&reader));
        assert!(channel.receive(&mut bytes, 0).unwrap().unwrap().is_empty());
        assert_eq!(&bytes, b"next");
    }

    #[test]
    fn a_descriptor_on_its_way_dies_with_the_socket() {
        let (here, there) = channels();
        let (reader, writer) = system::pipe().unwrap();
        Channel::new(here.as_raw_fd()).unwrap().send(b"part", &[writer.as_fd()]).unwrap();
        drop((writer, here));
        assert!(system::has_writer(&reader));
        drop(there);
        assert!(!system::has_writer(&reader));
    }

    #[test]
    fn half_a_part_is_no_part() {
        let (mut here, there) = channels();
        here.write_all(b"pa").unwrap();
        drop(here);
        let error = Channel::new(there.as_raw_fd()).unwrap().receive(&mut [0; 4], 0).unwrap_err();
        assert_eq!(error.status(), Status::IPC_PEER_GONE);
    }

    #[test]
    fn too_few_descriptors_are_refused() {
        let (mut here, there) = channels();
        here.write_all(b"part").unwrap();
        let error = Channel::new(there.as_raw_fd()).unwrap().receive(&mut [0; 4], 1).unwrap_err();
        assert_eq!(error.status(), Status::INVALID_VALUE);
    }

    #[test]
    fn an_empty_socket_that_does_not_block_is_an_error() {
        let (_here, there) = channels();
        there.set_nonblocking(true).unwrap();
        let error = Channel::new(there.as_raw_fd()).unwrap().receive(&mut [0; 4], 0).unwrap_err();
        assert_eq!(error.status(), Status::SYSTEM);
        assert!(Channel::new(0x7FFF_FFFF).is_err());
        assert!(Channel::new(system::memory_file().unwrap().as_raw_fd()).is_err());
    }

    #[test]
    fn a_long_part_passes_a_socket_that_does_not_block() {
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

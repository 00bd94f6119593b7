//! Messages with file descriptors over Unix sockets.

use super::deadline::Deadline;
use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt::socket_domain,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// The most descriptors of one part of a message; Linux allows 253.
pub const MAX_DESCRIPTORS: usize = 128;

/// Returns whether a descriptor is a Unix socket.
pub fn is_unix_socket(socket: impl AsFd) -> bool {
    socket_domain(socket) == Ok(AddressFamily::UNIX)
}

/// Sends some of the bytes, and all descriptors with the first of them. Returns the number of bytes sent.
fn send(socket: BorrowedFd, bytes: &[u8], descriptors: &[BorrowedFd], flags: SendFlags) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let all = SendAncillaryMessage::ScmRights(descriptors);
    if descriptors.len() > MAX_DESCRIPTORS || !descriptors.is_empty() && !control.push(all) {
        return Err(Errno::INVAL);
    }
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags | SendFlags::NOSIGNAL))
}

/// What one call of [`try_receive`] returned.
pub struct Received {
    /// The number of bytes; 0 if the other end is closed.
    pub bytes: usize,
    /// Whether descriptors were dropped: the process has reached its limit of open files.
    pub lost_descriptors: bool,
    /// Whether bytes of the packet were dropped: the buffer was too small.
    pub lost_bytes: bool,
}

/// Receives at most `bytes.len()` bytes, and the descriptors sent with them, without waiting.
pub fn try_receive(socket: impl AsFd, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> Result<Received, Errno> {
    receive(socket.as_fd(), bytes, descriptors, RecvFlags::DONTWAIT)
}

fn receive(
    socket: BorrowedFd,
    bytes: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
    flags: RecvFlags,
) -> Result<Received, Errno> {
    // The kernel puts the sender's credentials first if the program has asked for them.
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, flags))?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(Received {
        bytes: received.bytes,
        lost_descriptors: received.flags.contains(ReturnFlags::CTRUNC),
        lost_bytes: received.flags.contains(ReturnFlags::TRUNC),
    })
}

/// A connected Unix socket that transfers messages in parts of known length.
///
/// Nothing else is required of the socket, so stream, sequenced-packet and datagram sockets all work.
pub struct Channel<'a> {
    socket: BorrowedFd<'a>,
    /// The limit of all waits, whatever the socket's mode. If `None`, the mode decides whether a call waits for the
    /// start of a message.
    deadline: Option<Deadline<'a>>,
    /// Whether any byte of a message was sent or received. From then on, calls wait for the rest even if the socket is
    /// non-blocking.
    started: bool,
}

/// The descriptors of a received part.
pub struct ReceivedDescriptors {
    /// Those that arrived.
    pub descriptors: Vec<OwnedFd>,
    /// Whether others were lost: the process has reached its limit of open files.
    pub lost: bool,
}

impl<'a> Channel<'a> {
    /// Creates a channel whose socket decides whether calls wait.
    pub fn new(socket: BorrowedFd<'a>) -> Channel<'a> {
        Channel { socket, deadline: None, started: false }
    }

    /// Creates a channel whose calls fail with `TimedOut` when the deadline passes.
    pub fn with_deadline(socket: BorrowedFd<'a>, deadline: Deadline<'a>) -> Channel<'a> {
        Channel { socket, deadline: Some(deadline), started: false }
    }

    /// Waits until the socket may be ready; returns the error of a call that must not wait.
    fn wait(&self, events: PollFlags) -> io::Result<()> {
        let interval = match &self.deadline {
            None if self.started => None,
            None => return Err(Errno::WOULDBLOCK.into()),
            Some(deadline) if deadline.is_expired() => return Err(io::ErrorKind::TimedOut.into()),
            // A duration that the system cannot represent is no limit.
            Some(deadline) => Timespec::try_from(deadline.blocking_interval()).ok(),
        };
        // The result needs no check, because the caller retries in every case.
        let _ = poll(&mut [PollFd::new(&self.socket, events)], interval.as_ref());
        Ok(())
    }

    /// Sends one part of a message, and the descriptors with its first bytes.
    pub fn send(&mut self, mut bytes: &[u8], mut descriptors: &[BorrowedFd]) -> io::Result<()> {
        let flags = if self.deadline.is_some() { SendFlags::DONTWAIT } else { SendFlags::empty() };
        while !bytes.is_empty() {
            match send(self.socket, bytes, descriptors, flags) {
                Ok(sent) => {
                    self.started = true;
                    bytes = &bytes[sent..];
                    descriptors = &[];
                }
                Err(Errno::WOULDBLOCK) => self.wait(PollFlags::OUT)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Receives one part of a message. Fails with `UnexpectedEof` if the other end is closed, and with `InvalidData`
    /// for a packet that is longer than the part.
    pub fn receive(&mut self, bytes: &mut [u8]) -> io::Result<ReceivedDescriptors> {
        let flags = if self.deadline.is_some() { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let (mut filled, mut part) = (0, ReceivedDescriptors { descriptors: Vec::new(), lost: false });
        while filled < bytes.len() {
            match receive(self.socket, &mut bytes[filled..], &mut part.descriptors, flags) {
                Ok(received) if received.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) if received.lost_bytes => return Err(io::ErrorKind::InvalidData.into()),
                Ok(received) => {
                    self.started = true;
                    filled += received.bytes;
                    part.lost |= received.lost_descriptors;
                }
                Err(Errno::WOULDBLOCK) => self.wait(PollFlags::IN)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::net::UnixStream, time::Duration};

    #[test]
    fn sending_to_a_full_socket_ends_at_the_deadline() {
        let (near, _far) = UnixStream::pair().unwrap();
        let bytes = vec![0; 16 << 20];
        let send = |deadline| Channel::with_deadline(near.as_fd(), deadline).send(&bytes, &[]).unwrap_err().kind();
        assert_eq!(send(Deadline::new(Duration::from_millis(20))), io::ErrorKind::TimedOut);
        assert_eq!(send(Deadline::optional(None).unless(&|| true)), io::ErrorKind::TimedOut);
    }

    #[test]
    fn too_many_descriptors_are_rejected() {
        let (near, far) = UnixStream::pair().unwrap();
        let send = |count: usize| Channel::new(near.as_fd()).send(b"part", &vec![near.as_fd(); count]);
        assert_eq!(send(MAX_DESCRIPTORS + 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        send(MAX_DESCRIPTORS).unwrap();
        let part = Channel::new(far.as_fd()).receive(&mut [0; 4]).unwrap();
        assert_eq!((part.descriptors.len(), part.lost), (MAX_DESCRIPTORS, false));
    }
}

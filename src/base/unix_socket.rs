//! Messages with file descriptors over Unix sockets.

use super::deadline::Deadline;
use rustix::{
    cmsg_space,
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl},
    io::{Errno, retry_on_intr},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketType, recvmsg, sendmsg,
        sockopt::{Timeout, socket_domain, socket_timeout, socket_type},
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// The most descriptors of one part of a message; Linux allows 253.
pub const MAX_DESCRIPTORS: usize = 128;

/// Returns whether a descriptor is a Unix socket.
pub fn is_unix_socket(socket: impl AsFd) -> bool {
    socket_domain(socket) == Ok(AddressFamily::UNIX)
}

/// Returns whether a socket carries datagrams, whose reader is not notified of the end of the other process.
pub fn is_datagram_socket(socket: impl AsFd) -> bool {
    socket_type(socket) == Ok(SocketType::DGRAM)
}

/// Sends some of the bytes, and all descriptors with the first of them, without waiting. Returns the number of bytes
/// sent.
fn try_send(socket: BorrowedFd, bytes: &[u8], descriptors: &[BorrowedFd]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let all = SendAncillaryMessage::ScmRights(descriptors);
    if descriptors.len() > MAX_DESCRIPTORS || !descriptors.is_empty() && !control.push(all) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    retry_on_intr(|| sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags))
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
    // The kernel puts the sender's credentials first if the program has asked for them.
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = retry_on_intr(|| recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags))?;
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

/// The maximum duration of a message on a socket without a time limit of its own, from its first byte on.
pub const MESSAGE_LIMIT: Duration = Duration::from_secs(60);

/// A connected Unix socket that transfers messages in parts of known length.
///
/// The socket may be a stream or carry packets; its mode and its time limits decide how long calls wait.
pub struct Channel<'a> {
    socket: BorrowedFd<'a>,
    /// The limit of all waits, whatever the socket's mode; `None` before the first wait of a channel without one.
    deadline: Option<Deadline<'a>>,
    /// Whether the socket's own time limit applies anew to the rest of the message once its first byte is there.
    starts_message: bool,
    /// Whether a part was sent incompletely, so that no other part can follow.
    is_broken: bool,
}

/// The descriptors of a received part.
pub struct ReceivedDescriptors {
    /// Those that arrived.
    pub descriptors: Vec<OwnedFd>,
    /// Whether others were lost: the process has reached its limit of open files.
    pub lost: bool,
}

impl<'a> Channel<'a> {
    /// Creates a channel for one message of a socket of the program. While no byte of the message is there, calls wait
    /// as the socket's mode and its time limit say. The rest of the message has the socket's time limit, or else
    /// [`MESSAGE_LIMIT`].
    pub fn new(socket: BorrowedFd<'a>) -> Channel<'a> {
        Channel { socket, deadline: None, starts_message: true, is_broken: false }
    }

    /// Creates a channel whose calls fail with `TimedOut` when the deadline passes.
    pub fn with_deadline(socket: BorrowedFd<'a>, deadline: Deadline<'a>) -> Channel<'a> {
        Channel { socket, deadline: Some(deadline), starts_message: false, is_broken: false }
    }

    /// Returns whether a part was sent incompletely, so that no other part can follow.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Waits until the socket may be ready. Fails if the deadline has passed, or the call must not wait.
    fn wait(&mut self, events: PollFlags) -> io::Result<()> {
        if self.deadline.is_none() {
            if fcntl_getfl(self.socket)?.contains(OFlags::NONBLOCK) {
                return Err(Errno::WOULDBLOCK.into());
            }
            let limit = self.limit(events)?;
            // A receiver may wait for a message as long as the program likes; a sender only waits for its receiver.
            self.deadline = Some(match events {
                PollFlags::IN => Deadline::optional(limit),
                _ => Deadline::new(limit.unwrap_or(MESSAGE_LIMIT)),
            });
        }
        let interval = match &self.deadline {
            Some(deadline) if deadline.is_expired() => return Err(io::ErrorKind::TimedOut.into()),
            // A duration that the system cannot represent is no limit.
            Some(deadline) => Timespec::try_from(deadline.blocking_interval()).ok(),
            None => None,
        };
        match poll(&mut [PollFd::new(&self.socket, events)], interval.as_ref()) {
            // The caller tries again, and waits for the rest of the time.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the time limit that the program has set for a direction of the socket.
    fn limit(&self, events: PollFlags) -> Result<Option<Duration>, Errno> {
        socket_timeout(self.socket, if events == PollFlags::IN { Timeout::Recv } else { Timeout::Send })
    }

    /// Starts the time limit of the rest of a message.
    fn start_message(&mut self, events: PollFlags) -> io::Result<()> {
        if std::mem::take(&mut self.starts_message) {
            self.deadline = Some(Deadline::new(self.limit(events)?.unwrap_or(MESSAGE_LIMIT)));
        }
        Ok(())
    }

    /// Sends one part of a message, and the descriptors with its first bytes.
    pub fn send(&mut self, mut bytes: &[u8], mut descriptors: &[BorrowedFd]) -> io::Result<()> {
        while !bytes.is_empty() {
            match try_send(self.socket, bytes, descriptors) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    descriptors = &[];
                    self.is_broken = !bytes.is_empty();
                    self.start_message(PollFlags::OUT)?;
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
        let (mut filled, mut part) = (0, ReceivedDescriptors { descriptors: Vec::new(), lost: false });
        while filled < bytes.len() {
            match try_receive(self.socket, &mut bytes[filled..], &mut part.descriptors) {
                Ok(received) if received.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) if received.lost_bytes => return Err(io::ErrorKind::InvalidData.into()),
                Ok(received) => {
                    filled += received.bytes;
                    part.lost |= received.lost_descriptors;
                    self.start_message(PollFlags::IN)?;
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
    use std::os::unix::net::UnixStream;

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

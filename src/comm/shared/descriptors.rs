//! Messages of the rendezvous: a status, some bytes, and descriptors, over a Unix socket.
//!
//! Descriptors travel with the first bytes of a message, by `sendmsg`, for which Rust's library has no safe name.
#![allow(unsafe_code)]

use std::{
    io::{self, Read, Write},
    mem::size_of,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    ptr,
    time::{Duration, Instant},
};

/// The most descriptors of a message: a window and a link for each other rank.
const MOST_DESCRIPTORS: usize = 2 * crate::driver::group::MAX_RANKS;
/// The most bytes of a message: cards of all ranks, or an error's text.
const MOST_BYTES: usize = 1 << 16;

/// Room for the descriptors of a message, aligned as the kernel's headers want it.
type Control = [u64; 24];

const _: () = {
    // SAFETY: plain arithmetic on a length.
    let space = unsafe { libc::CMSG_SPACE((MOST_DESCRIPTORS * size_of::<RawFd>()) as u32) };
    assert!(space as usize <= size_of::<Control>());
};

/// A message.
pub struct Message {
    /// 0, or the status that the sender failed with.
    pub status: i32,
    /// What it says.
    pub bytes: Vec<u8>,
    /// What comes with it.
    pub descriptors: Vec<OwnedFd>,
}

/// When to give up; never where there is none.
#[derive(Debug, Clone, Copy)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// The time that is so far away.
    pub fn after(timeout: Option<Duration>) -> Deadline {
        Deadline(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// How long it is until then; an error when it is over.
    pub fn left(self) -> io::Result<Option<Duration>> {
        let Some(end) = self.0 else { return Ok(None) };
        match end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            Some(left) => Ok(Some(left)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Sends a message.
pub fn send(
    socket: &UnixStream,
    status: i32,
    bytes: &[u8],
    descriptors: &[BorrowedFd],
    deadline: Deadline,
) -> io::Result<()> {
    socket.set_write_timeout(deadline.left()?)?;
    let mut head = [0; 8];
    head[..4].copy_from_slice(&status.to_le_bytes());
    head[4..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    let sent = send_with(socket.as_raw_fd(), &head, descriptors)?;
    let mut socket = socket;
    socket.write_all(&head[sent..])?;
    socket.write_all(bytes)
}

/// Receives a message, whole.
pub fn receive(socket: &UnixStream, deadline: Deadline) -> io::Result<Message> {
    let (mut head, mut descriptors, mut have) = ([0; 8], Vec::new(), 0);
    while have < head.len() {
        socket.set_read_timeout(deadline.left()?)?;
        match receive_with(socket.as_raw_fd(), &mut head[have..], &mut descriptors)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            received => have += received,
        }
    }
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let length = number(4) as usize;
    if length > MOST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    let mut have = 0;
    while have < length {
        socket.set_read_timeout(deadline.left()?)?;
        let mut socket = socket;
        match socket.read(&mut bytes[have..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            received => have += received,
        }
    }
    Ok(Message { status: number(0) as i32, bytes, descriptors })
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn send_with(socket: RawFd, bytes: &[u8], descriptors: &[BorrowedFd]) -> io::Result<usize> {
    let mut control: Control = [0; 24];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        if descriptors.len() > MOST_DESCRIPTORS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let length = size_of_val(descriptors) as u32;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: plain arithmetic on a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as usize;
        // SAFETY: the control buffer is live, aligned for the header, and by the check above has room for the header and all
        // descriptors; a borrowed descriptor is represented as its number.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(length) as usize;
            ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), length as usize);
        }
    }
    // SAFETY: the message describes live buffers of these lengths, which the call only reads.
    check(unsafe { libc::sendmsg(socket, &message, libc::MSG_NOSIGNAL) })
}

fn receive_with(socket: RawFd, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut control: Control = [0; 24];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: the message describes live buffers of these lengths, which nothing else uses during the call.
    let received = check(unsafe { libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) })?;
    // SAFETY: the kernel filled in the control buffer's headers and its length; the loop stays within it, and takes over
    // descriptors that the kernel just made for this process.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                descriptors.extend((0..count).map(|index| OwnedFd::from_raw_fd(data.add(index).read_unaligned())));
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const SOON: Option<Duration> = Some(Duration::from_secs(10));

    #[test]
    fn a_message_brings_its_bytes_and_descriptors() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let text = vec![7; 40_000];
        let sender =
            std::thread::spawn(move || send(&near, -3, &text, &[writer.as_fd()], Deadline::after(SOON)).unwrap());
        let message = receive(&far, Deadline::after(SOON)).unwrap();
        sender.join().unwrap();
        assert_eq!((message.status, message.bytes, message.descriptors.len()), (-3, vec![7; 40_000], 1));
        std::fs::File::from(message.descriptors.into_iter().next().unwrap()).write_all(b"x").unwrap();
        let mut byte = String::new();
        reader.read_to_string(&mut byte).unwrap();
        assert_eq!(byte, "x");
    }

    #[test]
    fn silence_ends_at_the_deadline_and_garbage_at_once() {
        let (near, far) = UnixStream::pair().unwrap();
        let kind = |result: io::Result<Message>| result.err().unwrap().kind();
        let late = kind(receive(&far, Deadline::after(Some(Duration::from_millis(20)))));
        assert!(matches!(late, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
        (&near).write_all(&[0xFF; 8]).unwrap();
        assert_eq!(kind(receive(&far, Deadline::after(SOON))), io::ErrorKind::InvalidData);
        (&near).write_all(&[0; 5]).unwrap();
        drop(near);
        assert_eq!(kind(receive(&far, Deadline::after(SOON))), io::ErrorKind::UnexpectedEof);
    }
}

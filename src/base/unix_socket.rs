//! Descriptor passing over Unix sockets: `sendmsg` and `recvmsg`, which Rust's standard library does not wrap.

#![allow(unsafe_code)]

use std::{
    io,
    mem::size_of,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr,
};

/// The most descriptors in one call of [`send`]; Linux allows 253.
pub const MAX_DESCRIPTORS: usize = 128;

/// A control buffer for the descriptors of one message, aligned as the kernel's headers require.
type Control = [u64; 80];

const _: () = {
    // SAFETY: plain arithmetic on a length.
    let space = unsafe { libc::CMSG_SPACE((MAX_DESCRIPTORS * size_of::<RawFd>()) as u32) };
    assert!(space as usize <= size_of::<Control>());
};

/// Converts the result of a system call: the count that it returned, or the error in `errno`.
pub fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Returns whether a descriptor is a Unix socket.
pub fn is_unix_socket(socket: RawFd) -> bool {
    let (mut domain, mut bytes) = (0_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: both outputs are live locals, and the length is that of the first; a wrong descriptor gives an error.
    let result =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &mut bytes) };
    result == 0 && domain == libc::AF_UNIX
}

/// Returns whether the process at the other end of a Unix socket runs as the same user as this one.
pub fn is_same_user(socket: RawFd) -> bool {
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both outputs are live locals, and the length is that of the first; a wrong descriptor gives an error.
    let result =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut bytes) };
    // SAFETY: the call has no arguments and never fails.
    result == 0 && peer.uid == unsafe { libc::geteuid() }
}

/// Sends some of the bytes, and all descriptors with the first of them. Returns the number of bytes sent.
pub fn send(socket: RawFd, bytes: &[u8], descriptors: &[BorrowedFd]) -> io::Result<usize> {
    let mut control: Control = [0; 80];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr() as *mut _, iov_len: bytes.len() };
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    if !descriptors.is_empty() {
        if descriptors.len() > MAX_DESCRIPTORS {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let length = size_of_val(descriptors) as u32;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: plain arithmetic on a length.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(length) } as usize;
        // SAFETY: the control buffer is live, aligned for the header, and by the check above has room for the header
        // and all descriptors; a borrowed descriptor is represented as its number.
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

/// The result of one [`receive`].
pub struct Received {
    /// The number of bytes; 0 if the other end is closed.
    pub bytes: usize,
    /// Whether descriptors were dropped: the process has reached its limit of open files.
    pub lost_descriptors: bool,
    /// Whether bytes of the packet were dropped: the buffer was too small.
    pub lost_bytes: bool,
}

/// Receives at most `bytes.len()` bytes, and the descriptors sent with them.
pub fn receive(socket: RawFd, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<Received> {
    let mut control: Control = [0; 80];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    // SAFETY: the message describes live buffers of these lengths, which nothing else uses during the call.
    let received = check(unsafe { libc::recvmsg(socket, &mut message, libc::MSG_CMSG_CLOEXEC) })?;
    // SAFETY: the kernel filled in the control buffer's headers and its length; the loop stays within it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*header).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..count {
                    // SAFETY: the kernel just created this descriptor for this process, and nothing else owns it.
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&message, header);
        }
    }
    Ok(Received {
        bytes: received,
        lost_descriptors: message.msg_flags & libc::MSG_CTRUNC != 0,
        lost_bytes: message.msg_flags & libc::MSG_TRUNC != 0,
    })
}

/// Waits until a socket is readable, or writable if `write` is true.
pub fn wait(socket: RawFd, write: bool) {
    let events = if write { libc::POLLOUT } else { libc::POLLIN };
    let mut entry = libc::pollfd { fd: socket, events, revents: 0 };
    // SAFETY: the entry is a live local. The result needs no check, because the caller retries in every case.
    unsafe { libc::poll(&mut entry, 1, -1) };
}

//! The users that this process and the processes connected to it run as.

use rustix::process::geteuid;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the effective user id.
pub fn effective() -> u32 {
    geteuid().as_raw()
}

/// Returns whether the process at the other end of a Unix socket runs as the same user as this one.
pub fn is_peer(socket: impl AsFd) -> bool {
    // Not rustix's call: it requires a process id, and a process of another PID namespace has none here.
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both outputs are live locals, and the length is that of the first; the borrow of `socket` keeps the
    // descriptor open, and one that is not a socket gives an error.
    let result = unsafe {
        let (socket, peer) = (socket.as_fd().as_raw_fd(), (&raw mut peer).cast());
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, peer, &raw mut bytes)
    };
    result == 0 && peer.uid == effective()
}

//! The connections to rank 0 of a group that have not proved yet that they belong to one of its ranks.

use super::{
    descriptors,
    rendezvous::{Id, RANK_SECRET, ROOT_SECRET, RankInfo},
};
use crate::{
    base::{deadline::Deadline, unix_socket},
    driver::user,
};
use rustix::io::Errno;
use std::os::{fd::OwnedFd, unix::net::UnixStream};

/// Size of the message by which a rank introduces itself: header, secret, rank info.
const INTRODUCTION: usize = descriptors::HEAD + (RANK_SECRET.end - RANK_SECRET.start) + RankInfo::BYTES;
/// The maximum number of connections that have not introduced themselves.
const MAX_PENDING: usize = 64;

/// A connection that has not introduced itself completely.
pub struct PendingConnection {
    socket: UnixStream,
    is_own: bool,
    received: [u8; INTRODUCTION],
    bytes: usize,
    descriptors: Vec<OwnedFd>,
    lost_descriptors: bool,
}

/// The state of an introduction.
enum Introduction {
    /// The rank's buffer is missing if this process could not receive its descriptor.
    Rank(RankInfo, Option<OwnedFd>),
    /// More bytes must arrive.
    Incomplete,
    /// The connection is closed, or does not belong to a rank of this group.
    Invalid,
}

/// Adds a connection; returns false on failure. If there are too many, the oldest one of another user is closed, or
/// else the oldest one.
pub fn admit(pending: &mut Vec<PendingConnection>, socket: UnixStream) -> bool {
    if socket.set_nonblocking(true).is_err() {
        return false;
    }
    if pending.len() >= MAX_PENDING {
        let oldest = pending.iter().position(|connection| !connection.is_own).unwrap_or(0);
        pending.remove(oldest);
    }
    let is_own = user::is_peer(&socket);
    let (received, descriptors) = ([0; INTRODUCTION], Vec::new());
    pending.push(PendingConnection { socket, is_own, received, bytes: 0, descriptors, lost_descriptors: false });
    true
}

/// Closes the connections of other users. Returns whether there was one.
pub fn remove_foreign(pending: &mut Vec<PendingConnection>) -> bool {
    let before = pending.len();
    pending.retain(|connection| connection.is_own);
    pending.len() < before
}

/// Returns the next connection that has introduced itself, if there is one. Closes those that do not know the id.
pub fn next_introduced(
    id: &Id,
    pending: &mut Vec<PendingConnection>,
    deadline: Deadline,
) -> Option<(UnixStream, RankInfo, Option<OwnedFd>)> {
    let mut index = 0;
    while let Some(connection) = pending.get_mut(index) {
        match connection.listen(id) {
            Introduction::Incomplete => index += 1,
            Introduction::Invalid => drop(pending.remove(index)),
            Introduction::Rank(info, buffer) => {
                let socket = pending.remove(index).socket;
                // If the rank is gone, the next message from it fails.
                let _ = descriptors::send(&socket, 0, &id.0[ROOT_SECRET], &[], deadline);
                return Some((socket, info, buffer));
            }
        }
    }
    None
}

impl PendingConnection {
    /// Reads what has arrived, without waiting for more.
    fn listen(&mut self, id: &Id) -> Introduction {
        while self.bytes < INTRODUCTION {
            let room = &mut self.received[self.bytes..];
            match unix_socket::try_receive(&self.socket, room, &mut self.descriptors) {
                // A rank sends exactly one descriptor, that of its buffer.
                Ok(received) if received.bytes == 0 || self.descriptors.len() > 1 => return Introduction::Invalid,
                Ok(received) => {
                    self.bytes += received.bytes;
                    self.lost_descriptors |= received.lost_descriptors;
                }
                Err(Errno::WOULDBLOCK) => return Introduction::Incomplete,
                Err(_) => return Introduction::Invalid,
            }
        }
        match (self.info(id), self.descriptors.pop()) {
            (Some(info), buffer) if buffer.is_some() || self.lost_descriptors => Introduction::Rank(info, buffer),
            _ => Introduction::Invalid,
        }
    }

    /// Returns the info that it has sent, if it knows the id.
    fn info(&self, id: &Id) -> Option<RankInfo> {
        let (secret, info) = descriptors::body(&self.received)?.split_at_checked(RANK_SECRET.len())?;
        if secret == &id.0[RANK_SECRET] { RankInfo::read(info) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::{Read, Write},
        os::fd::AsFd,
        time::Duration,
    };

    fn pending(owners: &[bool]) -> (Vec<PendingConnection>, Vec<UnixStream>) {
        let (mut pending, mut others) = (Vec::new(), Vec::new());
        for is_own in owners {
            let (near, far) = UnixStream::pair().unwrap();
            assert!(admit(&mut pending, near));
            let connection = pending.last_mut().unwrap();
            assert!(connection.is_own);
            connection.is_own = *is_own;
            others.push(far);
        }
        (pending, others)
    }

    fn is_cut_off(mut other: &UnixStream) -> bool {
        other.set_nonblocking(true).unwrap();
        matches!(other.read(&mut [0; 1]), Ok(0))
    }

    #[test]
    fn connections_of_other_users_are_closed_first_then_the_oldest() {
        let mut owners = [true; MAX_PENDING];
        owners[7] = false;
        let (mut pending, others) = pending(&owners);
        for gone in [7, 0, 1] {
            assert!(!is_cut_off(&others[gone]));
            let (near, _) = UnixStream::pair().unwrap();
            assert!(admit(&mut pending, near));
            assert_eq!(pending.len(), MAX_PENDING);
            assert!(is_cut_off(&others[gone]));
        }
        assert_eq!(others.iter().filter(|other| is_cut_off(other)).count(), 3);
    }

    /// The introduction of a rank, split at arbitrary points, among connections that send nothing, too little, or
    /// something else.
    #[test]
    fn a_rank_is_found_among_invalid_connections() {
        let (id, deadline) = (Id::new().unwrap(), Deadline::new(Duration::from_secs(20)));
        let info = RankInfo(std::array::from_fn(|index| index as u64 + 3));
        let hello = [&id.0[RANK_SECRET], &info.bytes()].concat();
        let buffer = File::open("/dev/null").unwrap();
        let (mut pending, others) = pending(&[true; 6]);
        let [silent, short, mismatched, bare, many, rank] = others.try_into().unwrap();
        (&short).write_all(&[0; 5]).unwrap();
        let other = [&[0; 16][..], &info.bytes()].concat();
        descriptors::send(&mismatched, 0, &other, &[buffer.as_fd()], deadline).unwrap();
        descriptors::send(&bare, 0, &hello, &[], deadline).unwrap();
        descriptors::send(&many, 0, &hello, &[buffer.as_fd(); 3], deadline).unwrap();
        assert!(next_introduced(&id, &mut pending, deadline).is_none());
        // The silent connection, the short one, and the rank, which has not sent anything yet.
        assert_eq!(pending.len(), 3);
        assert!(is_cut_off(&mismatched) && is_cut_off(&bare) && !is_cut_off(&silent) && !is_cut_off(&short));
        let head = [[0; 4], (hello.len() as u32).to_le_bytes()].concat();
        unix_socket::Channel::new(rank.as_fd()).send(&head[..3], &[buffer.as_fd()]).unwrap();
        assert!(next_introduced(&id, &mut pending, deadline).is_none());
        (&rank).write_all(&[&head[3..], &hello[..40]].concat()).unwrap();
        assert!(next_introduced(&id, &mut pending, deadline).is_none());
        (&rank).write_all(&hello[40..]).unwrap();
        let (_, checked, _) = next_introduced(&id, &mut pending, deadline).unwrap();
        assert_eq!(checked, info);
        rank.set_nonblocking(false).unwrap();
        assert_eq!(descriptors::receive(&rank, deadline).unwrap().bytes, id.0[ROOT_SECRET]);
    }
}

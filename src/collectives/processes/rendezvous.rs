//! The rendezvous of the ranks of a group.
//!
//! Rank 0 listens on a Unix socket whose name is derived from the group's id. The other ranks connect and send their
//! rank info and the descriptor of their symmetric buffer. When all have connected, rank 0 sends to each rank the infos
//! and buffers of the others, and a socket to each of them. Finally every rank reports whether it could map the
//! buffers; either all ranks continue, or none does.
//!
//! The name is in Linux's abstract namespace, which leaves no file and belongs to a network namespace. Containers that
//! do not share one use a shared folder instead: `PLINTH_RENDEZVOUS_DIR`. Any process of the machine can read an
//! abstract name, so each side proves to the other that it knows a part of the id that is not in the name, and rank 0
//! does not block on a connection that has not done so.

use super::descriptors::{self, Message};
use crate::{
    base::{deadline::Deadline, unix_socket},
    driver::user,
    error::{Error, Result},
    status::Status,
};
use rustix::io::Errno;
use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

/// The id of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id([u8; 128]);

const MAGIC: &[u8; 16] = b"plinth group 1\0\0";
/// The random parts of an id: the socket's name, the secret that a rank sends to rank 0, and the secret that rank 0
/// returns.
const NAME: std::ops::Range<usize> = 16..32;
const RANK_SECRET: std::ops::Range<usize> = 32..48;
const ROOT_SECRET: std::ops::Range<usize> = 48..64;

/// Size of the message by which a rank introduces itself: header, secret, rank info.
const INTRODUCTION: usize = descriptors::HEAD + (RANK_SECRET.end - RANK_SECRET.start) + RankInfo::BYTES;
/// The maximum number of connections that have not introduced themselves.
const MAX_PENDING: usize = 64;

/// The information that ranks exchange. All ranks must agree on the numbers from [`RankInfo::AGREED`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankInfo(pub [u64; RankInfo::NUMBERS]);

impl RankInfo {
    /// The number of words: rank, process, the device's UUID in two words, and those that must agree.
    pub const NUMBERS: usize = 12;
    /// Index of the first word that must agree: the size of the group, and what the caller added.
    pub const AGREED: usize = 4;
    const BYTES: usize = RankInfo::NUMBERS * 8;

    /// Returns the rank.
    pub fn rank(&self) -> u64 {
        self.0[0]
    }

    /// Returns the UUID of its device.
    pub fn device(&self) -> [u64; 2] {
        [self.0[2], self.0[3]]
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn read(bytes: &[u8]) -> Option<RankInfo> {
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        (bytes.len() == RankInfo::BYTES).then_some(())?;
        words.try_into().ok().map(RankInfo)
    }
}

/// The result of the exchange, and the sockets over which the ranks agree to continue.
pub struct Rendezvous<'a> {
    /// The infos of all ranks.
    pub infos: Vec<RankInfo>,
    /// The symmetric buffers of the other ranks.
    pub buffers: Vec<Option<OwnedFd>>,
    /// A socket to each other rank.
    pub links: Vec<Option<UnixStream>>,
    /// The socket to rank 0; in rank 0, those to all others.
    channels: Vec<UnixStream>,
    rank: u32,
    deadline: Deadline<'a>,
}

impl Id {
    /// Creates a random id.
    pub fn new() -> Result<Id> {
        let mut bytes = [0; 128];
        bytes[..16].copy_from_slice(MAGIC);
        File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut bytes[16..64]))
            .map_err(|error| system("reading a group's name from /dev/urandom", &error))?;
        Ok(Id(bytes))
    }

    /// Parses an id.
    pub fn read(bytes: &[u8; 128]) -> Option<Id> {
        (bytes.starts_with(MAGIC) && bytes[ROOT_SECRET.end..].iter().all(|byte| *byte == 0)).then_some(Id(*bytes))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> [u8; 128] {
        self.0
    }

    fn address(&self) -> Result<(SocketAddr, Option<PathBuf>)> {
        let name: String = self.0[NAME].iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("plinth-group-{name}");
        match std::env::var_os("PLINTH_RENDEZVOUS_DIR").filter(|folder| !folder.is_empty()) {
            None => SocketAddr::from_abstract_name(name).map(|address| (address, None)),
            Some(folder) => {
                let path = PathBuf::from(folder).join(name);
                SocketAddr::from_pathname(&path).map(|address| (address, Some(path)))
            }
        }
        .map_err(|error| {
            let message = format!("the folder that PLINTH_RENDEZVOUS_DIR names cannot have a socket: {error}");
            Error::new(Status::INVALID_CONFIGURATION, message)
        })
    }
}

/// Exchanges infos and buffers with the other ranks.
pub fn meet<'a>(
    id: &Id,
    info: RankInfo,
    size: u32,
    buffer: &OwnedFd,
    deadline: Deadline<'a>,
) -> Result<Rendezvous<'a>> {
    let rank = info.rank() as u32;
    let mut rendezvous =
        Rendezvous { infos: vec![info], buffers: vec![None], links: vec![None], channels: Vec::new(), rank, deadline };
    if size == 1 {
        return Ok(rendezvous);
    }
    if rank == 0 {
        rendezvous.infos.resize(size as usize, info);
        rendezvous.buffers.resize_with(size as usize, || None);
        gather(id, &mut rendezvous)?;
        distribute(&mut rendezvous, buffer).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                Error::new(Status::TIMED_OUT, "a rank did not receive the data of the others in time")
            }
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Error::new(Status::PEER_LOST, format!("a rank ended while the group was made: {error}"))
            }
            _ => system("distributing the handles of a group", &error),
        })?;
    } else {
        connect(id, &mut rendezvous, info, size, buffer)?;
    }
    Ok(rendezvous)
}

/// Waits for all other ranks.
fn gather(id: &Id, rendezvous: &mut Rendezvous) -> Result<()> {
    let (address, path) = id.address()?;
    let listener = UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            Error::new(Status::INVALID_VALUE, "another process is rank 0 of this group, or its id is used again")
        }
        _ => system("listening for the ranks of a group", &error),
    })?;
    let _file = path.map(Remove);
    listener.set_nonblocking(true).map_err(|error| system("listening for the ranks of a group", &error))?;
    let mut channels: Vec<Option<UnixStream>> = rendezvous.infos.iter().map(|_| None).collect();
    let mut pending = Vec::new();
    while channels.iter().skip(1).any(Option::is_none) {
        if rendezvous.deadline.is_expired() {
            let missing: Vec<_> = (1..channels.len()).filter(|rank| channels[*rank].is_none()).collect();
            let error = Error::new(
                Status::TIMED_OUT,
                format!(
                    "rank 0 of {} timed out after {} waiting for ranks {missing:?}",
                    channels.len(),
                    describe_limit(&rendezvous.deadline)
                ),
            );
            return Err(broadcast_error(channels, error));
        }
        let has_accepted = listener.accept().is_ok_and(|(socket, _)| admit(&mut pending, socket));
        let Some((socket, info, buffer)) = next_introduced(id, &mut pending, rendezvous.deadline) else {
            if !has_accepted {
                std::thread::sleep(Duration::from_millis(1));
            }
            continue;
        };
        let rank = info.rank() as usize;
        let mismatched = if info.0[RankInfo::AGREED..] != rendezvous.infos[0].0[RankInfo::AGREED..] {
            Some(mismatch(&info, &rendezvous.infos[0]))
        } else if !(1..channels.len()).contains(&rank) || channels[rank].is_some() {
            Some(Error::new(Status::INVALID_VALUE, format!("two processes are rank {rank} of one group")))
        } else {
            None
        };
        if let Some(error) = mismatched {
            channels.push(Some(socket));
            return Err(broadcast_error(channels, error));
        }
        channels[rank] = Some(socket);
        (rendezvous.infos[rank], rendezvous.buffers[rank]) = (info, Some(buffer));
    }
    rendezvous.channels = channels.into_iter().flatten().collect();
    Ok(())
}

/// A connection that has not introduced itself completely.
struct PendingConnection {
    socket: UnixStream,
    is_own: bool,
    received: [u8; INTRODUCTION],
    bytes: usize,
    descriptors: Vec<OwnedFd>,
}

/// The state of an introduction.
enum Introduction {
    Rank(RankInfo, OwnedFd),
    /// More bytes must arrive.
    Incomplete,
    /// The connection is closed, or does not belong to a rank of this group.
    Invalid,
}

/// Adds a connection; returns false on failure. If there are too many, the oldest one of another user is closed, or
/// else the oldest one.
fn admit(pending: &mut Vec<PendingConnection>, socket: UnixStream) -> bool {
    if socket.set_nonblocking(true).is_err() {
        return false;
    }
    if pending.len() >= MAX_PENDING {
        let oldest = pending.iter().position(|connection| !connection.is_own).unwrap_or(0);
        pending.remove(oldest);
    }
    let is_own = user::is_peer(&socket);
    pending.push(PendingConnection { socket, is_own, received: [0; INTRODUCTION], bytes: 0, descriptors: Vec::new() });
    true
}

/// Returns the next connection that has introduced itself, if there is one. Closes those that do not know the id.
fn next_introduced(
    id: &Id,
    pending: &mut Vec<PendingConnection>,
    deadline: Deadline,
) -> Option<(UnixStream, RankInfo, OwnedFd)> {
    let mut index = 0;
    while let Some(connection) = pending.get_mut(index) {
        match connection.listen(id) {
            Introduction::Incomplete => index += 1,
            Introduction::Invalid => drop(pending.remove(index)),
            Introduction::Rank(info, buffer) => {
                let socket = pending.remove(index).socket;
                if descriptors::send(&socket, 0, &id.0[ROOT_SECRET], &[], deadline).is_ok() {
                    return Some((socket, info, buffer));
                }
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
                Ok(received) if received.bytes == 0 || received.lost_descriptors || self.descriptors.len() > 1 => {
                    return Introduction::Invalid;
                }
                Ok(received) => self.bytes += received.bytes,
                Err(Errno::WOULDBLOCK) => return Introduction::Incomplete,
                Err(_) => return Introduction::Invalid,
            }
        }
        match (self.info(id), self.descriptors.pop()) {
            (Some(info), Some(buffer)) => Introduction::Rank(info, buffer),
            _ => Introduction::Invalid,
        }
    }

    /// Returns the info that it has sent, if it knows the id.
    fn info(&self, id: &Id) -> Option<RankInfo> {
        let (secret, info) = descriptors::body(&self.received)?.split_at_checked(RANK_SECRET.len())?;
        if secret == &id.0[RANK_SECRET] { RankInfo::read(info) } else { None }
    }
}

fn mismatch(other: &RankInfo, own: &RankInfo) -> Error {
    let message = if other.0[RankInfo::AGREED] == own.0[RankInfo::AGREED] {
        format!("rank {} has another version of the library, kind of device or tuning than rank 0", other.rank())
    } else {
        let (sizes, rank) = ([other.0[RankInfo::AGREED], own.0[RankInfo::AGREED]], other.rank());
        format!("rank {rank} joins a group of {} ranks, rank 0 one of {}", sizes[0], sizes[1])
    };
    Error::new(Status::RANK_MISMATCH, message)
}

/// Sends the error to the ranks that have connected.
fn broadcast_error(channels: Vec<Option<UnixStream>>, error: Error) -> Error {
    let deadline = Deadline::new(Duration::from_secs(1));
    for socket in channels.iter().flatten() {
        // A rank that is gone need not receive it.
        let _ = descriptors::send(socket, error.status().0, error.message().as_bytes(), &[], deadline);
    }
    error
}

/// Sends each rank the infos, buffers and links of the others.
fn distribute(rendezvous: &mut Rendezvous, own: &OwnedFd) -> io::Result<()> {
    let size = rendezvous.infos.len();
    let mut links: Vec<Vec<Option<UnixStream>>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for (one, other) in (0..size).flat_map(|one| (one + 1..size).map(move |other| (one, other))) {
        let (near, far) = UnixStream::pair()?;
        (links[one][other], links[other][one]) = (Some(near), Some(far));
    }
    let infos: Vec<u8> = rendezvous.infos.iter().flat_map(RankInfo::bytes).collect();
    for (rank, links) in links.iter().enumerate().skip(1) {
        let buffer = |other: &usize| rendezvous.buffers[*other].as_ref().unwrap_or(own).as_fd();
        let others: Vec<usize> = (0..size).filter(|other| *other != rank).collect();
        let mut all: Vec<_> = others.iter().map(buffer).collect();
        all.extend(links.iter().flatten().map(AsFd::as_fd));
        descriptors::send(&rendezvous.channels[rank - 1], 0, &infos, &all, rendezvous.deadline)?;
    }
    rendezvous.links = links.swap_remove(0);
    Ok(())
}

/// Connects to rank 0 and receives what it sends.
fn connect(id: &Id, rendezvous: &mut Rendezvous, info: RankInfo, size: u32, buffer: &OwnedFd) -> Result<()> {
    let (address, _) = id.address()?;
    let (rank, limit) = (rendezvous.rank, describe_limit(&rendezvous.deadline));
    let timed_out = |what: &str| {
        Error::new(Status::TIMED_OUT, format!("rank {rank} of {size} timed out after {limit} waiting for {what}"))
    };
    let lost = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut => timed_out("rank 0 and the others"),
        _ => Error::new(Status::PEER_LOST, format!("rank 0 ended while the group was made: {error}")),
    };
    let mut pause = Duration::from_millis(1);
    let socket = loop {
        match UnixStream::connect_addr(&address) {
            Ok(socket) => break socket,
            Err(error) if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => return Err(lost(error)),
            Err(_) => {}
        }
        if rendezvous.deadline.is_expired() {
            return Err(timed_out("rank 0"));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let hello = [&id.0[RANK_SECRET], &info.bytes()].concat();
    descriptors::send(&socket, 0, &hello, &[buffer.as_fd()], rendezvous.deadline).map_err(lost)?;
    let answer = descriptors::receive(&socket, rendezvous.deadline).map_err(lost)?;
    if answer.bytes != id.0[ROOT_SECRET] {
        return Err(Error::new(Status::INVALID_VALUE, "what listens for the group is not its rank 0"));
    }
    let message = checked(descriptors::receive(&socket, rendezvous.deadline).map_err(lost)?)?;
    let others = size as usize - 1;
    let infos: Option<Vec<RankInfo>> = message.bytes.chunks(RankInfo::BYTES).map(RankInfo::read).collect();
    let Some(infos) = infos.filter(|infos| infos.len() == size as usize && message.descriptors.len() == 2 * others)
    else {
        return Err(Error::new(Status::PEER_LOST, "rank 0 sent an invalid message"));
    };
    let mut descriptors = message.descriptors.into_iter();
    let mut take_descriptors = |_: usize| -> Vec<Option<OwnedFd>> {
        (0..size).map(|other| if other == rank { None } else { descriptors.next() }).collect()
    };
    rendezvous.buffers = take_descriptors(0);
    rendezvous.links = take_descriptors(1).into_iter().map(|link| link.map(UnixStream::from)).collect();
    rendezvous.infos = infos;
    rendezvous.channels = vec![socket];
    Ok(())
}

/// Returns a message, or the error that it carries.
fn checked(message: Message) -> Result<Message> {
    if message.status == 0 {
        return Ok(message);
    }
    Err(Error::new(Status(message.status), String::from_utf8_lossy(&message.bytes)))
}

impl Rendezvous<'_> {
    /// Reports the result of this rank, and returns whether all ranks succeeded.
    pub fn conclude(&mut self, outcome: Result<()>) -> Result<()> {
        let mut outcome = outcome;
        let tell = |socket: &UnixStream, outcome: &Result<()>, deadline| match outcome {
            Ok(()) => descriptors::send(socket, 0, &[], &[], deadline),
            Err(error) => descriptors::send(socket, error.status().0, error.message().as_bytes(), &[], deadline),
        };
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => {
                Error::new(Status::TIMED_OUT, "the ranks of a group did not map each other's memory in time")
            }
            _ => Error::new(Status::PEER_LOST, format!("a rank ended while the group was made: {error}")),
        };
        if self.rank != 0 {
            let Some(socket) = self.channels.pop() else { return outcome };
            // Rank 0's reply shows whether it received this.
            let _ = tell(&socket, &outcome, self.deadline);
            outcome?;
            return descriptors::receive(&socket, self.deadline).map_err(lost).and_then(checked).map(drop);
        }
        for socket in &self.channels {
            let other = descriptors::receive(socket, self.deadline).map_err(lost).and_then(checked).map(drop);
            if outcome.is_ok() {
                outcome = other;
            }
        }
        for socket in self.channels.drain(..) {
            // A rank that is gone is detected later.
            let _ = tell(&socket, &outcome, self.deadline);
        }
        outcome
    }
}

/// A file that is removed when this is dropped.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        // If that fails, the file does no harm: no other group has this name.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn describe_limit(deadline: &Deadline) -> String {
    deadline.limit().map_or_else(|| "for ever".into(), |limit| format!("{limit:?}"))
}

#[cold]
fn system(attempt: &str, error: &io::Error) -> Error {
    Error::new(Status::SYSTEM, format!("{attempt}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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

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

use super::{
    admission::{admit, next_introduced, remove_foreign},
    descriptors::{self, Message},
};
use crate::{
    base::deadline::Deadline,
    driver::environment::Environment,
    error::{Context, Error, Result},
    status::Status,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, retry_on_intr},
    net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType},
    rand::{GetRandomFlags, getrandom},
};
use std::{
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::{
            fs::MetadataExt,
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// The id of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id(pub(super) [u8; 128]);

const MAGIC: &[u8; 16] = b"plinth group 1\0\0";
/// The random parts of an id: the socket's name, the secret that a rank sends to rank 0, and the secret that rank 0
/// returns.
const NAME: std::ops::Range<usize> = 16..32;
pub(super) const RANK_SECRET: std::ops::Range<usize> = 32..48;
pub(super) const ROOT_SECRET: std::ops::Range<usize> = 48..64;

/// The information that ranks exchange. All ranks must agree on the numbers from [`RankInfo::AGREED`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankInfo(pub [u64; RankInfo::NUMBERS]);

impl RankInfo {
    /// The number of words: rank, process, the device's UUID in two words, and those that must agree.
    pub const NUMBERS: usize = 12;
    /// Index of the first word that must agree: the size of the group, and what the caller added.
    pub const AGREED: usize = 4;
    /// The size of its bytes.
    pub const BYTES: usize = RankInfo::NUMBERS * 8;

    /// Returns the rank.
    pub fn rank(&self) -> u64 {
        self.0[0]
    }

    /// Returns the UUID of its device.
    pub fn device(&self) -> [u64; 2] {
        [self.0[2], self.0[3]]
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Parses bytes.
    pub fn read(bytes: &[u8]) -> Option<RankInfo> {
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
    stop: &'a dyn Fn() -> Option<Error>,
}

impl Id {
    /// Creates a random id.
    pub fn new() -> Result<Id> {
        let mut bytes = [0; 128];
        bytes[..16].copy_from_slice(MAGIC);
        // So few bytes come in one piece, and need no descriptor.
        retry_on_intr(|| getrandom(&mut bytes[NAME.start..ROOT_SECRET.end], GetRandomFlags::empty()))
            .map_err(|error| system("choosing a random name of a group", &error.into()))?;
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
        let invalid = |reason| Error::new(Status::INVALID_CONFIGURATION, reason);
        match Environment::of_process().path("PLINTH_RENDEZVOUS_DIR").map_err(invalid)? {
            None => SocketAddr::from_abstract_name(name).map(|address| (address, None)),
            Some(folder) => {
                check_folder(&folder).map_err(invalid)?;
                let path = folder.join(name);
                SocketAddr::from_pathname(&path).map(|address| (address, Some(path)))
            }
        }
        .map_err(|error| {
            let message = format!("the folder that PLINTH_RENDEZVOUS_DIR names cannot have a socket: {error}");
            Error::new(Status::INVALID_CONFIGURATION, message)
        })
    }
}

/// Checks that other users cannot replace a socket in a folder by their own: ranks would prove to it that they know the id.
/// The error is a sentence.
fn check_folder(folder: &Path) -> std::result::Result<(), String> {
    let mode = fs::metadata(folder).map(|found| found.mode());
    match mode {
        // The sticky bit protects each user's files.
        Ok(mode) if mode & libc::S_IWOTH != 0 && mode & libc::S_ISVTX == 0 => Err(format!(
            "the folder that PLINTH_RENDEZVOUS_DIR names, {}, can be written by every user; remove that permission, or set \
             the sticky bit",
            folder.display()
        )),
        // The system's calls report a folder that does not exist.
        _ => Ok(()),
    }
}

/// Exchanges infos and buffers with the other ranks. `stop` returns the error that ended the deadline early.
pub fn meet<'a>(
    id: &Id,
    info: RankInfo,
    size: u32,
    buffer: &OwnedFd,
    deadline: Deadline<'a>,
    stop: &'a dyn Fn() -> Option<Error>,
) -> Result<Rendezvous<'a>> {
    let rank = info.rank() as u32;
    let mut rendezvous = Rendezvous {
        infos: vec![info],
        buffers: vec![None],
        links: vec![None],
        channels: Vec::new(),
        rank,
        deadline,
        stop,
    };
    if size == 1 {
        return Ok(rendezvous);
    }
    if rank == 0 {
        rendezvous.infos.resize(size as usize, info);
        rendezvous.buffers.resize_with(size as usize, || None);
        gather(id, &mut rendezvous)?;
        if let Err(error) = distribute(&mut rendezvous, buffer) {
            return Err(broadcast_error(&rendezvous.channels, error));
        }
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
    let size = rendezvous.infos.len();
    let mut channels: Vec<Option<UnixStream>> = rendezvous.infos.iter().map(|_| None).collect();
    let fails = |channels: &[Option<UnixStream>], error| Err(broadcast_error(channels.iter().flatten(), error));
    let mut pending = Vec::new();
    while channels.iter().skip(1).any(Option::is_none) {
        if rendezvous.deadline.is_expired() {
            let missing: Vec<_> = (1..size).filter(|rank| channels[*rank].is_none()).collect();
            let timed_out = || {
                let limit = describe_limit(&rendezvous.deadline);
                let message = format!("rank 0 of {size} timed out after {limit} waiting for ranks {missing:?}");
                Error::new(Status::TIMED_OUT, message)
            };
            return fails(&channels, (rendezvous.stop)().unwrap_or_else(timed_out));
        }
        if let Some(rank) = channels.iter().position(|socket| socket.as_ref().is_some_and(is_readable))
            && let Some(socket) = channels[rank].take()
        {
            // A rank sends nothing before rank 0 does, unless it fails.
            let reply = rendezvous.reply_of(rank, &socket, Deadline::new(Duration::from_secs(1)));
            let invalid = || rendezvous.failed(&format!("rank {rank}"), &io::ErrorKind::InvalidData.into());
            return fails(&channels, reply.err().unwrap_or_else(invalid));
        }
        let has_accepted = match listener.accept() {
            Ok((socket, _)) => admit(&mut pending, socket),
            // Connections of other users must not use up the descriptors of this process.
            Err(error) if is_shortage(&error) && !remove_foreign(&mut pending) => {
                return fails(&channels, system(&format!("accepting a rank as rank 0 of {size}"), &error));
            }
            Err(_) => false,
        };
        let Some((socket, info, buffer)) = next_introduced(id, &mut pending, rendezvous.deadline) else {
            if !has_accepted {
                std::thread::sleep(Duration::from_millis(1));
            }
            continue;
        };
        let rank = info.rank() as usize;
        let Some(buffer) = buffer else {
            channels.push(Some(socket));
            let attempt = format!("receiving the memory of rank {rank} as rank 0 of {size}");
            return fails(&channels, system(&attempt, &Errno::MFILE.into()));
        };
        let mismatched = if info.0[RankInfo::AGREED..] != rendezvous.infos[0].0[RankInfo::AGREED..] {
            Some(mismatch(&info, &rendezvous.infos[0]))
        } else if !(1..channels.len()).contains(&rank) || channels[rank].is_some() {
            Some(Error::new(Status::INVALID_VALUE, format!("two processes are rank {rank} of one group")))
        } else {
            None
        };
        if let Some(error) = mismatched {
            channels.push(Some(socket));
            return fails(&channels, error);
        }
        channels[rank] = Some(socket);
        (rendezvous.infos[rank], rendezvous.buffers[rank]) = (info, Some(buffer));
    }
    rendezvous.channels = channels.into_iter().flatten().collect();
    Ok(())
}

/// Returns whether a message, or the end of the other process, can be read from a socket without waiting.
fn is_readable(socket: &UnixStream) -> bool {
    let mut entry = [PollFd::new(socket, PollFlags::IN)];
    matches!(retry_on_intr(|| poll(&mut entry, Some(&Timespec::default()))), Ok(1))
}

/// Returns whether this process, or the machine, lacks a resource for another socket or descriptor.
fn is_shortage(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::TOOMANYREFS))
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
pub(super) fn broadcast_error<'a>(channels: impl IntoIterator<Item = &'a UnixStream>, error: Error) -> Error {
    let deadline = Deadline::new(Duration::from_secs(1));
    for socket in channels {
        // A rank that is gone need not receive it.
        let _ = descriptors::send(socket, error.status().0, error.message().as_bytes(), &[], deadline);
    }
    error
}

/// Sends each rank the infos, buffers and links of the others.
fn distribute(rendezvous: &mut Rendezvous, own: &OwnedFd) -> Result<()> {
    let size = rendezvous.infos.len();
    let mut links: Vec<Vec<Option<UnixStream>>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for (one, other) in (0..size).flat_map(|one| (one + 1..size).map(move |other| (one, other))) {
        let (near, far) =
            UnixStream::pair().map_err(|error| system("linking the ranks of a group as rank 0", &error))?;
        (links[one][other], links[other][one]) = (Some(near), Some(far));
    }
    let infos: Vec<u8> = rendezvous.infos.iter().flat_map(RankInfo::bytes).collect();
    for (rank, links) in links.iter().enumerate().skip(1) {
        let buffer = |other: &usize| rendezvous.buffers[*other].as_ref().unwrap_or(own).as_fd();
        let others: Vec<usize> = (0..size).filter(|other| *other != rank).collect();
        let mut all: Vec<_> = others.iter().map(buffer).collect();
        all.extend(links.iter().flatten().map(AsFd::as_fd));
        descriptors::send(&rendezvous.channels[rank - 1], 0, &infos, &all, rendezvous.deadline)
            .map_err(|error| rendezvous.failed(&format!("rank {rank}"), &error))?;
    }
    rendezvous.links = links.swap_remove(0);
    Ok(())
}

/// Connects to rank 0 and receives what it sends.
fn connect(id: &Id, rendezvous: &mut Rendezvous, info: RankInfo, size: u32, buffer: &OwnedFd) -> Result<()> {
    let (address, _) = id.address()?;
    let mut pause = Duration::from_millis(1);
    let socket = loop {
        match try_connect(&address) {
            Ok(socket) => break socket,
            // Rank 0 does not listen yet, or has more connections than it has accepted.
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::WOULDBLOCK) => {}
            Err(error) => return Err(system("connecting to rank 0 of a group", &error.into())),
        }
        if rendezvous.deadline.is_expired() {
            return Err(rendezvous.failed("rank 0", &io::ErrorKind::TimedOut.into()));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let exchanged = rendezvous.exchange(id, &socket, info, size, buffer);
    rendezvous.channels = vec![socket];
    // Rank 0 does not know of an error of this rank.
    exchanged.map_err(|error| broadcast_error(&rendezvous.channels, (rendezvous.stop)().unwrap_or(error)))
}

/// Connects without waiting for the other process to accept. The socket is non-blocking.
fn try_connect(address: &SocketAddr) -> std::result::Result<UnixStream, Errno> {
    let address = match (address.as_abstract_name(), address.as_pathname()) {
        (Some(name), _) => SocketAddrUnix::new_abstract_name(name)?,
        (None, Some(path)) => SocketAddrUnix::new(path)?,
        (None, None) => return Err(Errno::INVAL),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    retry_on_intr(|| net::connect(&socket, &address))?;
    Ok(UnixStream::from(socket))
}

/// Returns a message, or the error that it carries.
pub(super) fn checked(message: Message) -> Result<Message> {
    if message.status == 0 {
        return Ok(message);
    }
    Err(Error::new(Status(message.status), String::from_utf8_lossy(&message.bytes)))
}

impl Rendezvous<'_> {
    /// Returns the error of a failed exchange with other ranks.
    fn failed(&self, others: &str, error: &io::Error) -> Error {
        let rank = self.rank;
        let (status, why) = match error.kind() {
            io::ErrorKind::TimedOut => {
                let limit = describe_limit(&self.deadline);
                (Status::TIMED_OUT, format!("rank {rank} timed out after {limit} waiting for {others}"))
            }
            io::ErrorKind::InvalidData => (Status::PEER_LOST, format!("{others} sent an invalid message")),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                (Status::PEER_LOST, format!("{others} ended while the group was made: {error}"))
            }
            _ => return system(&format!("exchanging handles with {others} as rank {rank}"), error),
        };
        Error::new(status, why)
    }

    /// Sends this rank's info and buffer to rank 0, and receives those of the others.
    fn exchange(&mut self, id: &Id, socket: &UnixStream, info: RankInfo, size: u32, buffer: &OwnedFd) -> Result<()> {
        let (rank, deadline) = (self.rank, self.deadline);
        let failed = |error: io::Error| self.failed("rank 0", &error);
        let hello = [&id.0[RANK_SECRET], &info.bytes()].concat();
        descriptors::send(socket, 0, &hello, &[buffer.as_fd()], deadline).map_err(failed)?;
        let answer = descriptors::receive(socket, deadline).map_err(failed)?;
        if answer.bytes != id.0[ROOT_SECRET] {
            return Err(Error::new(Status::INVALID_VALUE, "the process that listens for the group is not its rank 0"));
        }
        let message = checked(descriptors::receive(socket, deadline).map_err(failed)?)?;
        let others = size as usize - 1;
        let infos: Option<Vec<RankInfo>> = message.bytes.chunks(RankInfo::BYTES).map(RankInfo::read).collect();
        let Some(infos) = infos.filter(|infos| infos.len() == size as usize && message.descriptors.len() == 2 * others)
        else {
            return Err(self.failed("rank 0", &io::ErrorKind::InvalidData.into()));
        };
        let mut descriptors = message.descriptors.into_iter();
        let mut take_descriptors = |_: usize| -> Vec<Option<OwnedFd>> {
            (0..size).map(|other| if other == rank { None } else { descriptors.next() }).collect()
        };
        self.buffers = take_descriptors(0);
        self.links = take_descriptors(1).into_iter().map(|link| link.map(UnixStream::from)).collect();
        self.infos = infos;
        Ok(())
    }

    /// Waits for the result of another rank, as rank 0.
    fn reply_of(&self, rank: usize, socket: &UnixStream, deadline: Deadline) -> Result<()> {
        let rank = format!("rank {rank}");
        let message = descriptors::receive(socket, deadline).map_err(|error| self.failed(&rank, &error))?;
        checked(message).map(drop).context(|| format!("{rank} failed"))
    }

    /// Reports the result of this rank, and returns whether all ranks succeeded.
    pub fn conclude(&mut self, outcome: Result<()>) -> Result<()> {
        let mut outcome = outcome;
        let tell = |socket: &UnixStream, outcome: &Result<()>, deadline| match outcome {
            Ok(()) => descriptors::send(socket, 0, &[], &[], deadline),
            Err(error) => descriptors::send(socket, error.status().0, error.message().as_bytes(), &[], deadline),
        };
        if self.rank != 0 {
            let Some(socket) = self.channels.pop() else { return outcome };
            // Rank 0's reply shows whether it received this.
            let _ = tell(&socket, &outcome, self.deadline);
            outcome?;
            let reply = descriptors::receive(&socket, self.deadline).map_err(|error| self.failed("rank 0", &error));
            return reply.and_then(checked).map(drop);
        }
        for (index, socket) in self.channels.iter().enumerate() {
            let other = self.reply_of(index + 1, socket, self.deadline);
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
        let _ = fs::remove_file(&self.0);
    }
}

fn describe_limit(deadline: &Deadline) -> String {
    deadline.limit().map_or_else(|| "for ever".into(), |limit| format!("{limit:?}"))
}

#[cold]
fn system(attempt: &str, error: &io::Error) -> Error {
    let remedy = if is_shortage(error) {
        "; raise the limits of this process, such as that of open files (ulimit -n)"
    } else {
        ""
    };
    Error::new(Status::SYSTEM, format!("{attempt}: {error}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::fs::PermissionsExt};

    #[test]
    fn a_folder_that_every_user_can_write_needs_the_sticky_bit() {
        let folder = crate::temporary::folder().unwrap();
        for (mode, is_safe) in [(0o700, true), (0o770, true), (0o777, false), (0o702, false), (0o1777, true)] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_folder(folder.path()).is_ok(), is_safe, "{mode:o}");
        }
    }

    #[test]
    fn an_impostor_of_rank_0_is_detected() {
        let (id, deadline) = (Id::new().unwrap(), || Deadline::new(Duration::from_secs(20)));
        let listener = UnixListener::bind_addr(&id.address().unwrap().0).unwrap();
        let impostor = std::thread::spawn(move || {
            let socket = listener.accept().unwrap().0;
            let received = descriptors::receive(&socket, deadline()).unwrap();
            // It cannot know the other secret; it returns what it got.
            descriptors::send(&socket, 0, &received.bytes[..16], &[], deadline()).unwrap();
        });
        let buffer = File::open("/dev/null").unwrap().into();
        let error = meet(&id, RankInfo([1; RankInfo::NUMBERS]), 2, &buffer, deadline(), &|| None).err().unwrap();
        impostor.join().unwrap();
        assert_eq!(error.status(), Status::INVALID_VALUE);
        assert!(error.message().contains("is not its rank 0"), "{error}");
    }
}

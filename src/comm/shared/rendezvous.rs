//! How the ranks of a group meet.
//!
//! Rank 0 listens on a Unix socket whose name follows from the group's id; the others connect, each with its card and the
//! descriptor of its window. When all have come, rank 0 gives everybody the cards and windows of the others, and a socket to
//! each of them. Then everybody says whether it could map what it got, and all go on or none does.
//!
//! The name is in Linux's abstract space, which leaves no file and belongs to a network namespace. Containers that do not
//! share one meet in a folder that they share: `PLINTH_RENDEZVOUS_DIR`. Anybody on the machine can read an abstract name, so
//! each side shows the other a part of the id that is not in it.

use super::descriptors::{self, Deadline, Message};
use crate::{
    error::{Error, Result},
    status::Status,
};
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

/// A group's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id([u8; 128]);

const MAGIC: &[u8; 16] = b"plinth group 1\0\0";
/// The random bytes of an id: the socket's name, what a rank shows to rank 0, and what that shows to the rank.
const NAME: std::ops::Range<usize> = 16..32;
const QUESTION: std::ops::Range<usize> = 32..48;
const ANSWER: std::ops::Range<usize> = 48..64;

/// The numbers by which a rank introduces itself. All ranks must agree about those from [`Card::AGREED`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Card(pub [u64; Card::NUMBERS]);

impl Card {
    /// How many there are: rank, process, the device's identity in two, and those that must be the same.
    pub const NUMBERS: usize = 12;
    /// Where the numbers begin that must be the same: the size of the group, and what the caller put in.
    pub const AGREED: usize = 4;
    const BYTES: usize = Card::NUMBERS * 8;

    /// The rank.
    pub fn rank(&self) -> u64 {
        self.0[0]
    }

    /// The identity of its device.
    pub fn device(&self) -> [u64; 2] {
        [self.0[2], self.0[3]]
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn read(bytes: &[u8]) -> Option<Card> {
        let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        (bytes.len() == Card::BYTES).then_some(())?;
        words.try_into().ok().map(Card)
    }
}

/// What the ranks gave each other, and the sockets by which they agree to go on.
pub struct Meeting<'a> {
    /// Everybody's card.
    pub cards: Vec<Card>,
    /// The others' windows.
    pub windows: Vec<Option<OwnedFd>>,
    /// A socket to each other rank.
    pub links: Vec<Option<UnixStream>>,
    /// To rank 0; at that, to all others.
    channels: Vec<UnixStream>,
    rank: u32,
    deadline: Deadline<'a>,
}

impl Id {
    /// A new one.
    pub fn new() -> Result<Id> {
        let mut bytes = [0; 128];
        bytes[..16].copy_from_slice(MAGIC);
        File::open("/dev/urandom")
            .and_then(|mut source| source.read_exact(&mut bytes[16..64]))
            .map_err(|error| system("reading a group's name from /dev/urandom", &error))?;
        Ok(Id(bytes))
    }

    /// The id that these bytes are, if they are one.
    pub fn read(bytes: &[u8; 128]) -> Option<Id> {
        (bytes.starts_with(MAGIC) && bytes[ANSWER.end..].iter().all(|byte| *byte == 0)).then_some(Id(*bytes))
    }

    /// The bytes.
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

/// Meets the other ranks. Waits no more, as if its time were over, when `stops` says so.
pub fn meet<'a>(
    id: &Id,
    card: Card,
    size: u32,
    window: &OwnedFd,
    timeout: Option<Duration>,
    stops: &'a dyn Fn() -> bool,
) -> Result<Meeting<'a>> {
    let deadline = Deadline::after(timeout).unless(stops);
    let rank = card.rank() as u32;
    let mut meeting =
        Meeting { cards: vec![card], windows: vec![None], links: vec![None], channels: Vec::new(), rank, deadline };
    if size == 1 {
        return Ok(meeting);
    }
    if rank == 0 {
        meeting.cards.resize(size as usize, card);
        meeting.windows.resize_with(size as usize, || None);
        gather(id, &mut meeting, timeout)?;
        introduce(&mut meeting, window).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Error::new(Status::TIMED_OUT, "a rank did not take in time what the others brought")
            }
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Error::new(Status::PEER_LOST, format!("a rank ended while the group was made: {error}"))
            }
            _ => system("telling the ranks of a group of each other", &error),
        })?;
    } else {
        come(id, &mut meeting, card, size, window, timeout)?;
    }
    Ok(meeting)
}

/// Waits for all other ranks.
fn gather(id: &Id, meeting: &mut Meeting, timeout: Option<Duration>) -> Result<()> {
    let (address, path) = id.address()?;
    let listener = UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            Error::new(Status::INVALID_VALUE, "another process is rank 0 of this group, or its id is used again")
        }
        _ => system("listening for the ranks of a group", &error),
    })?;
    let _file = path.map(Remove);
    listener.set_nonblocking(true).map_err(|error| system("listening for the ranks of a group", &error))?;
    let mut channels: Vec<Option<UnixStream>> = meeting.cards.iter().map(|_| None).collect();
    while channels.iter().skip(1).any(Option::is_none) {
        if meeting.deadline.left().is_err() {
            let missing: Vec<_> = (1..channels.len()).filter(|rank| channels[*rank].is_none()).collect();
            let error = Error::new(
                Status::TIMED_OUT,
                format!("rank 0 of {} waited {} for ranks {missing:?}, in vain", channels.len(), told(timeout)),
            );
            return Err(refuse(channels, error));
        }
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(_) => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        let Some((card, window)) = welcome(id, &socket) else { continue };
        let rank = card.rank() as usize;
        let wrong = if card.0[Card::AGREED..] != meeting.cards[0].0[Card::AGREED..] {
            Some(disagreement(&card, &meeting.cards[0]))
        } else if !(1..channels.len()).contains(&rank) || channels[rank].is_some() {
            Some(Error::new(Status::INVALID_VALUE, format!("two processes are rank {rank} of one group")))
        } else {
            None
        };
        if let Some(error) = wrong {
            channels.push(Some(socket));
            return Err(refuse(channels, error));
        }
        channels[rank] = Some(socket);
        (meeting.cards[rank], meeting.windows[rank]) = (card, Some(window));
    }
    meeting.channels = channels.into_iter().flatten().collect();
    Ok(())
}

/// What a newcomer brings, if it knows the id. Others are sent away.
fn welcome(id: &Id, socket: &UnixStream) -> Option<(Card, OwnedFd)> {
    // A rank says who it is at once.
    let deadline = Deadline::after(Some(Duration::from_secs(5)));
    socket.set_nonblocking(false).ok()?;
    let message = descriptors::receive(socket, deadline).ok()?;
    let (question, card) = message.bytes.split_at_checked(QUESTION.len())?;
    if question != &id.0[QUESTION] {
        return None;
    }
    let window = message.descriptors.into_iter().next()?;
    let card = Card::read(card)?;
    descriptors::send(socket, 0, &id.0[ANSWER], &[], deadline).ok()?;
    Some((card, window))
}

fn disagreement(other: &Card, own: &Card) -> Error {
    let message = if other.0[Card::AGREED] == own.0[Card::AGREED] {
        format!("rank {} has another version of the library, kind of device or tuning than rank 0", other.rank())
    } else {
        let (sizes, rank) = ([other.0[Card::AGREED], own.0[Card::AGREED]], other.rank());
        format!("rank {rank} joins a group of {} ranks, rank 0 one of {}", sizes[0], sizes[1])
    };
    Error::new(Status::RANK_MISMATCH, message)
}

/// Tells those who have come why the group comes to nothing.
fn refuse(channels: Vec<Option<UnixStream>>, error: Error) -> Error {
    let deadline = Deadline::after(Some(Duration::from_secs(1)));
    for socket in channels.iter().flatten() {
        // Who is gone need not be told.
        let _ = descriptors::send(socket, error.status().0, error.message().as_bytes(), &[], deadline);
    }
    error
}

/// Gives everybody what the others brought, and links.
fn introduce(meeting: &mut Meeting, own: &OwnedFd) -> io::Result<()> {
    let size = meeting.cards.len();
    let mut links: Vec<Vec<Option<UnixStream>>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for (one, other) in (0..size).flat_map(|one| (one + 1..size).map(move |other| (one, other))) {
        let (near, far) = UnixStream::pair()?;
        (links[one][other], links[other][one]) = (Some(near), Some(far));
    }
    let cards: Vec<u8> = meeting.cards.iter().flat_map(Card::bytes).collect();
    for (rank, links) in links.iter().enumerate().skip(1) {
        let window = |other: &usize| meeting.windows[*other].as_ref().unwrap_or(own).as_fd();
        let others: Vec<usize> = (0..size).filter(|other| *other != rank).collect();
        let mut all: Vec<_> = others.iter().map(window).collect();
        all.extend(links.iter().flatten().map(AsFd::as_fd));
        descriptors::send(&meeting.channels[rank - 1], 0, &cards, &all, meeting.deadline)?;
    }
    meeting.links = links.swap_remove(0);
    Ok(())
}

/// Goes to rank 0, and takes what it has.
fn come(
    id: &Id,
    meeting: &mut Meeting,
    card: Card,
    size: u32,
    window: &OwnedFd,
    timeout: Option<Duration>,
) -> Result<()> {
    let (address, _) = id.address()?;
    let rank = meeting.rank;
    let in_vain = |what: &str| {
        Error::new(Status::TIMED_OUT, format!("rank {rank} of {size} waited {} for {what}, in vain", told(timeout)))
    };
    let lost = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => in_vain("rank 0 and the others"),
        _ => Error::new(Status::PEER_LOST, format!("rank 0 ended while the group was made: {error}")),
    };
    let mut pause = Duration::from_millis(1);
    let socket = loop {
        match UnixStream::connect_addr(&address) {
            Ok(socket) => break socket,
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => return Err(lost(error)),
            Err(_) => {}
        }
        meeting.deadline.left().map_err(|_| in_vain("rank 0"))?;
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let hello = [&id.0[QUESTION], &card.bytes()].concat();
    descriptors::send(&socket, 0, &hello, &[window.as_fd()], meeting.deadline).map_err(lost)?;
    let answer = descriptors::receive(&socket, meeting.deadline).map_err(lost)?;
    if answer.bytes != id.0[ANSWER] {
        return Err(Error::new(Status::INVALID_VALUE, "what listens for the group is not its rank 0"));
    }
    let message = heard(descriptors::receive(&socket, meeting.deadline).map_err(lost)?)?;
    let others = size as usize - 1;
    let cards: Option<Vec<Card>> = message.bytes.chunks(Card::BYTES).map(Card::read).collect();
    let Some(cards) = cards.filter(|cards| cards.len() == size as usize && message.descriptors.len() == 2 * others)
    else {
        return Err(Error::new(Status::PEER_LOST, "rank 0 said what a rank 0 does not say"));
    };
    let mut descriptors = message.descriptors.into_iter();
    let mut spread = |_: usize| -> Vec<Option<OwnedFd>> {
        (0..size).map(|other| if other == rank { None } else { descriptors.next() }).collect()
    };
    meeting.windows = spread(0);
    meeting.links = spread(1).into_iter().map(|link| link.map(UnixStream::from)).collect();
    meeting.cards = cards;
    meeting.channels = vec![socket];
    Ok(())
}

/// A message, or the error that it tells.
fn heard(message: Message) -> Result<Message> {
    if message.status == 0 {
        return Ok(message);
    }
    Err(Error::new(Status(message.status), String::from_utf8_lossy(&message.bytes)))
}

impl Meeting<'_> {
    /// Says how it went here, and learns whether it went well everywhere.
    pub fn conclude(&mut self, outcome: Result<()>) -> Result<()> {
        let mut outcome = outcome;
        let tell = |socket: &UnixStream, outcome: &Result<()>, deadline| match outcome {
            Ok(()) => descriptors::send(socket, 0, &[], &[], deadline),
            Err(error) => descriptors::send(socket, error.status().0, error.message().as_bytes(), &[], deadline),
        };
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                Error::new(Status::TIMED_OUT, "the ranks of a group did not map each other's memory in time")
            }
            _ => Error::new(Status::PEER_LOST, format!("a rank ended while the group was made: {error}")),
        };
        if self.rank != 0 {
            let Some(socket) = self.channels.pop() else { return outcome };
            // Whether rank 0 heard it shows in its answer.
            let _ = tell(&socket, &outcome, self.deadline);
            outcome?;
            return descriptors::receive(&socket, self.deadline).map_err(lost).and_then(heard).map(drop);
        }
        for socket in &self.channels {
            let other = descriptors::receive(socket, self.deadline).map_err(lost).and_then(heard).map(drop);
            if outcome.is_ok() {
                outcome = other;
            }
        }
        for socket in self.channels.drain(..) {
            // Who is gone is found missing later.
            let _ = tell(&socket, &outcome, self.deadline);
        }
        outcome
    }
}

/// A file that goes with its owner.
struct Remove(PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        // It is in nobody's way: no other group has this name.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn told(timeout: Option<Duration>) -> String {
    timeout.map_or_else(|| "for ever".into(), |timeout| format!("{timeout:?}"))
}

#[cold]
fn system(attempt: &str, error: &io::Error) -> Error {
    Error::new(Status::SYSTEM, format!("{attempt}: {error}"))
}

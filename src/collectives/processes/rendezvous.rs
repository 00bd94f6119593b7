//! How the ranks of a group meet.
//!
//! Rank 0 listens on a Unix socket whose name follows from the group's id; the others connect, each with its card and the
//! descriptor of its window. When all have come, rank 0 gives everybody the cards and windows of the others, and a socket to
//! each of them. Then everybody says whether it could map what it got, and all go on or none does.
//!
//! The name is in Linux's abstract space, which leaves no file and belongs to a network namespace. Containers that do not
//! share one meet in a folder that they share: `PLINTH_RENDEZVOUS_DIR`. Anybody on the machine can read an abstract name, so
//! each side shows the other a part of the id that is not in it, and rank 0 waits for no newcomer before it has.

use super::descriptors::{self, Deadline, Message};
use crate::{
    base::unix_socket,
    error::{Error, Result},
    status::Status,
};
use std::{
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
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

/// The bytes of the message by which a rank says who it is: a message's head, the question, and its card.
const HELLO: usize = descriptors::HEAD + (QUESTION.end - QUESTION.start) + Card::BYTES;
/// How many rank 0 listens to at a time.
const MOST_NEWCOMERS: usize = 64;

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
    let mut newcomers = Vec::new();
    while channels.iter().skip(1).any(Option::is_none) {
        if meeting.deadline.left().is_err() {
            let missing: Vec<_> = (1..channels.len()).filter(|rank| channels[*rank].is_none()).collect();
            let error = Error::new(
                Status::TIMED_OUT,
                format!("rank 0 of {} waited {} for ranks {missing:?}, in vain", channels.len(), told(timeout)),
            );
            return Err(refuse(channels, error));
        }
        let has_come = listener.accept().is_ok_and(|(socket, _)| admit(&mut newcomers, socket));
        let Some((socket, card, window)) = welcome(id, &mut newcomers, meeting.deadline) else {
            if !has_come {
                std::thread::sleep(Duration::from_millis(1));
            }
            continue;
        };
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

/// Who has connected, and has not yet said all of who it is.
struct Newcomer {
    socket: UnixStream,
    is_own: bool,
    heard: [u8; HELLO],
    bytes: usize,
    brought: Vec<OwnedFd>,
}

/// What came of listening to a newcomer.
enum Heard {
    Rank(Card, OwnedFd),
    /// It may still say more.
    NotAll,
    /// It is gone, or no rank of this group.
    Nothing,
}

/// Lets a newcomer in; false if that cannot be. Where there are many, the first to be sent away are those of other users.
fn admit(newcomers: &mut Vec<Newcomer>, socket: UnixStream) -> bool {
    if socket.set_nonblocking(true).is_err() {
        return false;
    }
    if newcomers.len() >= MOST_NEWCOMERS {
        let oldest = newcomers.iter().position(|newcomer| !newcomer.is_own).unwrap_or(0);
        newcomers.remove(oldest);
    }
    let is_own = unix_socket::is_same_user(socket.as_raw_fd());
    newcomers.push(Newcomer { socket, is_own, heard: [0; HELLO], bytes: 0, brought: Vec::new() });
    true
}

/// The next newcomer that has said who it is, if one has by now. Those that do not know the id are sent away.
fn welcome(id: &Id, newcomers: &mut Vec<Newcomer>, deadline: Deadline) -> Option<(UnixStream, Card, OwnedFd)> {
    let mut index = 0;
    while let Some(newcomer) = newcomers.get_mut(index) {
        match newcomer.listen(id) {
            Heard::NotAll => index += 1,
            Heard::Nothing => drop(newcomers.remove(index)),
            Heard::Rank(card, window) => {
                let socket = newcomers.remove(index).socket;
                let answered = socket
                    .set_nonblocking(false)
                    .and_then(|()| descriptors::send(&socket, 0, &id.0[ANSWER], &[], deadline));
                if answered.is_ok() {
                    return Some((socket, card, window));
                }
            }
        }
    }
    None
}

impl Newcomer {
    /// Hears what it has said by now, without waiting for more.
    fn listen(&mut self, id: &Id) -> Heard {
        while self.bytes < HELLO {
            let room = &mut self.heard[self.bytes..];
            match unix_socket::receive(self.socket.as_raw_fd(), room, &mut self.brought) {
                // A rank brings its window, and nothing else.
                Ok(received) if received.bytes == 0 || received.lost_descriptors || self.brought.len() > 1 => {
                    return Heard::Nothing;
                }
                Ok(received) => self.bytes += received.bytes,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    return Heard::NotAll;
                }
                Err(_) => return Heard::Nothing,
            }
        }
        match (self.card(id), self.brought.pop()) {
            (Some(card), Some(window)) => Heard::Rank(card, window),
            _ => Heard::Nothing,
        }
    }

    /// The card that it has shown, if it knows the id.
    fn card(&self, id: &Id) -> Option<Card> {
        let (question, card) = descriptors::body(&self.heard)?.split_at_checked(QUESTION.len())?;
        if question == &id.0[QUESTION] { Card::read(card) } else { None }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn newcomers(owners: &[bool]) -> (Vec<Newcomer>, Vec<UnixStream>) {
        let (mut newcomers, mut others) = (Vec::new(), Vec::new());
        for is_own in owners {
            let (near, far) = UnixStream::pair().unwrap();
            assert!(admit(&mut newcomers, near));
            let newcomer = newcomers.last_mut().unwrap();
            assert!(newcomer.is_own);
            newcomer.is_own = *is_own;
            others.push(far);
        }
        (newcomers, others)
    }

    fn is_cut_off(mut other: &UnixStream) -> bool {
        other.set_nonblocking(true).unwrap();
        matches!(other.read(&mut [0; 1]), Ok(0))
    }

    #[test]
    fn others_users_newcomers_go_first_and_then_the_oldest() {
        let mut owners = [true; MOST_NEWCOMERS];
        owners[7] = false;
        let (mut newcomers, others) = newcomers(&owners);
        for gone in [7, 0, 1] {
            assert!(!is_cut_off(&others[gone]));
            let (near, _) = UnixStream::pair().unwrap();
            assert!(admit(&mut newcomers, near));
            assert_eq!(newcomers.len(), MOST_NEWCOMERS);
            assert!(is_cut_off(&others[gone]));
        }
        assert_eq!(others.iter().filter(|other| is_cut_off(other)).count(), 3);
    }

    /// All that a rank says, cut anywhere, behind some that say nothing, too little, or something else.
    #[test]
    fn a_rank_is_heard_among_those_that_are_none() {
        let (id, deadline) = (Id::new().unwrap(), Deadline::after(Some(Duration::from_secs(20))));
        let card = Card(std::array::from_fn(|index| index as u64 + 3));
        let hello = [&id.0[QUESTION], &card.bytes()].concat();
        let window = File::open("/dev/null").unwrap();
        let (mut newcomers, others) = newcomers(&[true; 6]);
        let [silent, short, wrong, bare, many, rank] = others.try_into().unwrap();
        (&short).write_all(&[0; 5]).unwrap();
        let other = [&[0; 16][..], &card.bytes()].concat();
        descriptors::send(&wrong, 0, &other, &[window.as_fd()], deadline).unwrap();
        descriptors::send(&bare, 0, &hello, &[], deadline).unwrap();
        descriptors::send(&many, 0, &hello, &[window.as_fd(); 3], deadline).unwrap();
        assert!(welcome(&id, &mut newcomers, deadline).is_none());
        // The silent one, the short one, and the rank, which has not spoken yet.
        assert_eq!(newcomers.len(), 3);
        assert!(is_cut_off(&wrong) && is_cut_off(&bare) && !is_cut_off(&silent) && !is_cut_off(&short));
        let head = [[0; 4], (hello.len() as u32).to_le_bytes()].concat();
        let sent = unix_socket::send(rank.as_raw_fd(), &head[..3], &[window.as_fd()]).unwrap();
        assert!(welcome(&id, &mut newcomers, deadline).is_none());
        (&rank).write_all(&[&head[sent..], &hello[..40]].concat()).unwrap();
        assert!(welcome(&id, &mut newcomers, deadline).is_none());
        (&rank).write_all(&hello[40..]).unwrap();
        let (_, heard, _) = welcome(&id, &mut newcomers, deadline).unwrap();
        assert_eq!(heard, card);
        rank.set_nonblocking(false).unwrap();
        assert_eq!(descriptors::receive(&rank, deadline).unwrap().bytes, id.0[ANSWER]);
    }
}

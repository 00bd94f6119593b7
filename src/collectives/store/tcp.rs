//! A store that one process keeps, and others reach over TCP.
//!
//! A client greets, and then asks, one question at a time: an operation, a name and a value, with their lengths in front. The
//! server answers with whether there is something, and what. It believes no length that is longer than may be, and drops who
//! does not keep to this. It never waits for a guest: what one does not take stays with it, and until it is taken nothing more
//! is read from there.

use super::{MAX_NAME, MAX_VALUE, invalid, number, system};
use crate::{
    base::deadline::Deadline,
    error::{Error, Result},
    status::Status,
};
use std::{
    collections::HashMap,
    io::{self, ErrorKind, IoSlice, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

const GREETING: &[u8] = b"plinth store 1\n";
const SET: u8 = 1;
const FIND: u8 = 2;
const ADD: u8 = 3;
/// An operation, and the lengths of a name and a value.
const QUESTION: usize = 9;
/// Whether there is something, and its length.
const ANSWER: usize = 5;
/// Connections that a server keeps; more are refused.
const MOST: usize = 4096;
/// What a guest may have done, reading or answering, before the others have their turn; and how many are let in before that.
const TURN: usize = 256;

fn resolve(place: &str) -> Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = place
        .to_socket_addrs()
        .map_err(|error| invalid(format!("{place:?} is not a host and a port ({error})")))?
        .collect();
    if found.is_empty() { Err(invalid(format!("{place:?} has no address"))) } else { Ok(found) }
}

/// The process that answers.
pub struct Server {
    listener: TcpListener,
    guests: Vec<Guest>,
    values: HashMap<String, Arc<[u8]>>,
}

struct Guest {
    stream: TcpStream,
    heard: Vec<u8>,
    greeted: bool,
    owed: Option<Owed>,
}

/// An answer that is not all taken.
struct Owed {
    head: [u8; ANSWER],
    value: Arc<[u8]>,
    told: usize,
    is_sum: bool,
}

struct Question {
    operation: u8,
    name: String,
    value: Vec<u8>,
}

/// What became of an attempt with a guest that does not wait.
enum Attempt<T> {
    Done(T),
    Later,
    /// It is gone, or makes no sense.
    Lost,
}

impl Server {
    /// Listens at a host and a port; port 0 is any that is free.
    pub fn listen(place: &str) -> Result<Server> {
        let listener = TcpListener::bind(&resolve(place)?[..])
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| system("listening", &error))?;
        Ok(Server { listener, guests: Vec::new(), values: HashMap::new() })
    }

    /// The port.
    pub fn port(&self) -> Result<u16> {
        let address = self.listener.local_addr().map_err(|error| system("asking for the port", &error))?;
        Ok(address.port())
    }

    /// See [`Store::set`](super::Store::set).
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// The value of a name.
    pub fn find(&self, name: &str) -> Option<Vec<u8>> {
        self.values.get(name).map(|value| value.to_vec())
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&mut self, name: &str, amount: i64) -> i64 {
        let sum = self.values.get(name).map_or(0, |bytes| number(bytes)).wrapping_add(amount);
        self.set(name, &sum.to_le_bytes());
        sum
    }

    /// Whether a guest has not taken a sum yet. It asked for one after whatever else it has taken, so it will soon.
    pub fn owes_sum(&self) -> bool {
        self.guests.iter().any(|guest| guest.owed.as_ref().is_some_and(|owed| owed.is_sum))
    }

    /// Answers whatever was asked by now.
    pub fn serve(&mut self) -> Result<()> {
        for _ in 0..TURN {
            match self.listener.accept() {
                Ok((stream, _)) if self.guests.len() < MOST => {
                    if stream.set_nonblocking(true).is_ok() {
                        let _ = stream.set_nodelay(true);
                        self.guests.push(Guest { stream, heard: Vec::new(), greeted: false, owed: None });
                    }
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => break,
                // One that gave up before it was let in is no reason to let nobody in.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => return Err(system("letting a process in", &error)),
            }
        }
        let mut guests = std::mem::take(&mut self.guests);
        guests.retain_mut(|guest| self.attend(guest));
        self.guests = guests;
        Ok(())
    }

    /// Answers one guest, for a turn; false when it is gone, or makes no sense.
    fn attend(&mut self, guest: &mut Guest) -> bool {
        for _ in 0..TURN {
            match guest.tell() {
                Attempt::Done(()) => {}
                Attempt::Later => return true,
                Attempt::Lost => return false,
            }
            let heard = match guest.question() {
                Attempt::Done(question) => {
                    let Some(owed) = self.answer(&question) else { return false };
                    guest.owed = Some(owed);
                    continue;
                }
                Attempt::Later => guest.hear(),
                Attempt::Lost => return false,
            };
            match heard {
                Attempt::Done(()) => {}
                Attempt::Later => return true,
                Attempt::Lost => return false,
            }
        }
        true
    }

    /// What a question is answered; `None` where there is no such question.
    fn answer(&mut self, question: &Question) -> Option<Owed> {
        let name = &question.name;
        let value = match question.operation {
            SET => {
                self.set(name, &question.value);
                Some(Arc::default())
            }
            FIND => self.values.get(name).cloned(),
            ADD => {
                self.add(name, number(&question.value));
                self.values.get(name).cloned()
            }
            _ => return None,
        };
        let mut head = [u8::from(value.is_some()); ANSWER];
        let value = value.unwrap_or_default();
        head[1..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        Some(Owed { head, value, told: 0, is_sum: question.operation == ADD })
    }
}

impl Guest {
    /// Reads some of what there is.
    fn hear(&mut self) -> Attempt<()> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Attempt::Lost,
            Ok(count) => {
                self.heard.extend_from_slice(&bytes[..count]);
                Attempt::Done(())
            }
            Err(error) => passing(&error),
        }
    }

    /// Takes a whole question from what was heard.
    fn question(&mut self) -> Attempt<Question> {
        if !self.greeted {
            let common = self.heard.len().min(GREETING.len());
            if self.heard[..common] != GREETING[..common] {
                return Attempt::Lost;
            }
            if common < GREETING.len() {
                return Attempt::Later;
            }
            self.heard.drain(..common);
            self.greeted = true;
        }
        let Some(head) = self.heard.get(..QUESTION) else { return Attempt::Later };
        let (operation, name, value) = (head[0], length(&head[1..5]), length(&head[5..9]));
        if name > MAX_NAME || value > MAX_VALUE {
            return Attempt::Lost;
        }
        let Some(rest) = self.heard.get(QUESTION..QUESTION + name + value) else { return Attempt::Later };
        let Ok(key) = str::from_utf8(&rest[..name]) else { return Attempt::Lost };
        let question = Question { operation, name: key.to_owned(), value: rest[name..].to_vec() };
        self.heard.drain(..QUESTION + name + value);
        // A guest stays for long, and may never again say as much.
        self.heard.shrink_to(QUESTION + MAX_NAME);
        Attempt::Done(question)
    }

    /// Gives as much as is taken of what is owed.
    fn tell(&mut self) -> Attempt<()> {
        while let Some(owed) = &mut self.owed {
            let value = owed.told.saturating_sub(ANSWER);
            let (head, value) = (owed.head.get(owed.told..).unwrap_or_default(), &owed.value[value..]);
            if head.is_empty() && value.is_empty() {
                self.owed = None;
                break;
            }
            match self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(value)]) {
                Ok(0) => return Attempt::Lost,
                Ok(count) => owed.told += count,
                Err(error) => return passing(&error),
            }
        }
        Attempt::Done(())
    }
}

/// What an error of a connection that does not wait comes to.
fn passing(error: &io::Error) -> Attempt<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Attempt::Later,
        _ => Attempt::Lost,
    }
}

fn length(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize)
}

/// A process that asks.
pub struct Client {
    place: String,
    /// None once an answer was not waited for: the next one would be taken for it.
    stream: Option<TcpStream>,
}

impl Client {
    /// Connects to a server, which may not be there yet.
    pub fn connect(place: &str, patience: Deadline) -> Result<Client> {
        let mut client = Client { place: place.to_owned(), stream: None };
        client.reach(&patience)?;
        Ok(client)
    }

    fn reach(&mut self, patience: &Deadline) -> Result<&mut TcpStream> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let addresses = resolve(&self.place)?;
                let mut reason = String::new();
                let mut connect = || {
                    for address in &addresses {
                        let left = patience.remaining().clamp(Duration::from_millis(1), Duration::from_secs(5));
                        match TcpStream::connect_timeout(address, left) {
                            Ok(stream) => return Ok(Some(stream)),
                            Err(error) => reason = error.to_string(),
                        }
                    }
                    Ok(None)
                };
                let connected = patience.with_reset_backoff().until(|| "a server was waited for", &mut connect);
                let mut stream =
                    connected.map_err(|error| error.context(format_args!("no server answers ({reason})")))?;
                stream
                    .set_nodelay(true)
                    .and_then(|()| stream.write_all(GREETING))
                    .map_err(|error| system("greeting the server", &error))?;
                stream
            }
        };
        Ok(self.stream.insert(stream))
    }

    fn ask(&mut self, operation: u8, name: &str, value: &[u8], patience: &Deadline) -> Result<Option<Vec<u8>>> {
        if patience.is_expired() {
            // Not even asked: the connection is as good as it was.
            return Err(patience.error("a server was waited for"));
        }
        let mut question = vec![operation];
        question.extend((name.len() as u32).to_le_bytes());
        question.extend((value.len() as u32).to_le_bytes());
        question.extend(name.as_bytes());
        question.extend(value);
        let stream = self.reach(patience)?;
        let answer = converse(stream, &question, patience);
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    /// See [`Store::set`](super::Store::set).
    pub fn set(&mut self, name: &str, value: &[u8], patience: &Deadline) -> Result<()> {
        self.ask(SET, name, value, patience).map(drop)
    }

    /// The value of a name.
    pub fn find(&mut self, name: &str, patience: &Deadline) -> Result<Option<Vec<u8>>> {
        self.ask(FIND, name, &[], patience)
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&mut self, name: &str, amount: i64, patience: &Deadline) -> Result<i64> {
        Ok(self.ask(ADD, name, &amount.to_le_bytes(), patience)?.map_or(0, |bytes| number(&bytes)))
    }
}

fn converse(stream: &mut TcpStream, question: &[u8], patience: &Deadline) -> Result<Option<Vec<u8>>> {
    let lost = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => patience.error("an answer of the server was waited for"),
        _ => Error::new(Status::PEER_LOST, format!("the server of the store is gone ({error})")),
    };
    let mut limited = Limited { stream, patience };
    limited.write_all(question).map_err(lost)?;
    let mut head = [0; ANSWER];
    limited.read_exact(&mut head).map_err(lost)?;
    let count = length(&head[1..]);
    if count > MAX_VALUE {
        return Err(invalid("what answers is not the server of a store"));
    }
    let mut value = vec![0; count];
    limited.read_exact(&mut value).map_err(lost)?;
    Ok((head[0] == 1).then_some(value))
}

/// A connection each use of which has what is left of a wait: all of them together take no longer than that.
struct Limited<'a> {
    stream: &'a mut TcpStream,
    patience: &'a Deadline,
}

impl Limited<'_> {
    fn left(&self) -> io::Result<Duration> {
        let left = self.patience.remaining();
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::atomic, thread, time::Instant};

    fn question(operation: u8, name: &str, value: &[u8]) -> Vec<u8> {
        let lengths = [name.len() as u32, value.len() as u32].map(u32::to_le_bytes);
        [&[operation], lengths.as_flattened(), name.as_bytes(), value].concat()
    }

    fn server() -> (Server, String) {
        let server = Server::listen("127.0.0.1:0").unwrap();
        let place = format!("127.0.0.1:{}", server.port().unwrap());
        (server, place)
    }

    fn guest(place: &str, says: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(place).unwrap();
        stream.write_all(says).unwrap();
        stream
    }

    /// Answers until threads that ask are done.
    fn serve_while<T: Send>(server: &mut Server, ask: impl FnOnce() -> T + Send) -> T {
        let is_done = atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
                is_done.store(true, atomic::Ordering::Release);
                result
            });
            while !is_done.load(atomic::Ordering::Acquire) {
                server.serve().unwrap();
                thread::yield_now();
            }
            asking.join().unwrap().unwrap()
        })
    }

    /// Guests that ask for more than connections hold, and read nothing, hinder nobody; what they asked for is kept for them.
    #[test]
    fn who_does_not_read_hinders_nobody() {
        const ASKED: usize = 20;
        let (mut server, place) = server();
        let value: Vec<u8> = (0..MAX_VALUE).map(|at| (at * 7 % 251) as u8).collect();
        server.set("large", &value);
        let says = [GREETING, &question(FIND, "large", &[]).repeat(ASKED)].concat();
        let mut guests = [0; 3].map(|_| guest(&place, &says));
        let start = Instant::now();
        for _ in 0..10 {
            server.serve().unwrap();
        }
        let mut client = Client::connect(&place, Deadline::new(Duration::from_secs(20))).unwrap();
        let sum = serve_while(&mut server, || client.add("sum", 4, &Deadline::new(Duration::from_secs(20))));
        assert_eq!(sum.unwrap(), 4);
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        assert_eq!(server.guests.iter().filter(|guest| guest.owed.is_some()).count(), 3);
        assert!(!server.owes_sum());
        assert!(server.guests.iter().all(|guest| guest.heard.capacity() < 2 * 4096));
        serve_while(&mut server, || {
            for guest in &mut guests {
                for _ in 0..ASKED {
                    let mut answer = vec![0; ANSWER + MAX_VALUE];
                    guest.read_exact(&mut answer).unwrap();
                    assert_eq!((answer[0], length(&answer[1..ANSWER])), (1, MAX_VALUE));
                    assert!(answer[ANSWER..] == value);
                }
            }
        });
        assert!(server.guests.iter().all(|guest| guest.owed.is_none()));
    }

    /// A guest may ask many things at once, and is answered in its order, though never so long that others wait.
    #[test]
    fn who_asks_much_is_answered_by_turns() {
        const ASKED: usize = 3000;
        let (mut server, place) = server();
        let says = [GREETING, &question(ADD, "sum", &1_i64.to_le_bytes()).repeat(ASKED)].concat();
        let mut guest = guest(&place, &says);
        server.serve().unwrap();
        assert!(number(&server.find("sum").unwrap_or_default()) <= TURN as i64);
        serve_while(&mut server, || {
            for sum in 1..=ASKED as i64 {
                let mut answer = [0; ANSWER + 8];
                guest.read_exact(&mut answer).unwrap();
                assert_eq!((answer[0], number(&answer[ANSWER..])), (1, sum));
            }
        });
    }

    #[test]
    fn who_makes_no_sense_is_sent_away() {
        let (mut server, place) = server();
        let greeted = |says: &[u8]| [GREETING, says].concat();
        let mut long_name = question(FIND, "x", &[]);
        long_name[1..5].copy_from_slice(&(MAX_NAME as u32 + 1).to_le_bytes());
        let mut long_value = question(SET, "x", &[]);
        long_value[5..9].copy_from_slice(&(MAX_VALUE as u32 + 1).to_le_bytes());
        let no_text = [&question(FIND, "x", &[])[..QUESTION], &[0xFF]].concat();
        let no_question = question(9, "x", &[]);
        let wrong = [long_name, long_value, no_text, no_question].map(|says| greeted(&says));
        for says in wrong.into_iter().chain([b"GET / HTTP/1.1".to_vec()]) {
            let mut guest = guest(&place, &says);
            serve_while(&mut server, || assert!(matches!(guest.read(&mut [0; 64]), Ok(0) | Err(_))));
            assert!(server.guests.is_empty());
        }
        // Half of something may still become a whole.
        let mut slow = guest(&place, &GREETING[..4]);
        for part in [&GREETING[4..], &question(SET, "x", b"12")[..5], &question(SET, "x", b"12")[5..]] {
            server.serve().unwrap();
            assert_eq!((server.guests.len(), server.find("x")), (1, None));
            slow.write_all(part).unwrap();
        }
        serve_while(&mut server, || slow.read_exact(&mut [0; ANSWER]).unwrap());
        assert_eq!(server.find("x").unwrap(), b"12");
    }
}

//! A store that one process keeps, and others reach over TCP.
//!
//! A client greets, and then asks, one question at a time: an operation, a name and a value, with their lengths in front. The
//! server answers with whether there is something, and what. It believes no length that is longer than may be, and drops who
//! does not keep to this.

use super::{MAX_NAME, MAX_VALUE, invalid, number, system};
use crate::{
    communicator::patience::Patience,
    error::{Error, Result},
    status::Status,
};
use std::{
    collections::HashMap,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
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
/// How long a server tries to give an answer that nobody takes.
const GIVE_UP: Duration = Duration::from_secs(5);

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
    values: HashMap<String, Vec<u8>>,
}

struct Guest {
    stream: TcpStream,
    heard: Vec<u8>,
    greeted: bool,
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
        self.values.insert(name.to_owned(), value.to_vec());
    }

    /// The value of a name.
    pub fn find(&self, name: &str) -> Option<Vec<u8>> {
        self.values.get(name).cloned()
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&mut self, name: &str, amount: i64) -> Result<i64> {
        let sum = self.values.get(name).map_or(0, |bytes| number(bytes)).wrapping_add(amount);
        self.set(name, &sum.to_le_bytes());
        Ok(sum)
    }

    /// Answers whatever was asked by now.
    pub fn serve(&mut self) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) if self.guests.len() < MOST => {
                    if stream.set_nonblocking(true).is_ok() {
                        let _ = stream.set_nodelay(true);
                        self.guests.push(Guest { stream, heard: Vec::new(), greeted: false });
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

    /// Answers one guest; false when it is gone, or makes no sense.
    fn attend(&mut self, guest: &mut Guest) -> bool {
        let mut bytes = [0; 4096];
        loop {
            match guest.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(count) => guest.heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
            if guest.heard.len() > GREETING.len() + QUESTION + MAX_NAME + MAX_VALUE {
                return false;
            }
        }
        if !guest.greeted {
            let common = guest.heard.len().min(GREETING.len());
            if guest.heard[..common] != GREETING[..common] {
                return false;
            }
            if common < GREETING.len() {
                return true;
            }
            guest.heard.drain(..common);
            guest.greeted = true;
        }
        loop {
            let Some(head) = guest.heard.get(..QUESTION) else { return true };
            let (operation, name, value) = (head[0], length(&head[1..5]), length(&head[5..9]));
            if name > MAX_NAME || value > MAX_VALUE {
                return false;
            }
            let Some(rest) = guest.heard.get(QUESTION..QUESTION + name + value) else { return true };
            let Ok(key) = str::from_utf8(&rest[..name]) else { return false };
            let (key, value_bytes) = (key.to_owned(), rest[name..].to_vec());
            guest.heard.drain(..QUESTION + name + value);
            let answer = match operation {
                SET => {
                    self.set(&key, &value_bytes);
                    Some(Vec::new())
                }
                FIND => self.find(&key),
                ADD => self.add(&key, number(&value_bytes)).ok().map(|sum| sum.to_le_bytes().to_vec()),
                _ => return false,
            };
            if !tell(&mut guest.stream, answer.as_deref()) {
                return false;
            }
        }
    }
}

fn length(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize)
}

/// Gives an answer; false if it was not taken.
fn tell(stream: &mut TcpStream, answer: Option<&[u8]>) -> bool {
    let mut bytes = vec![u8::from(answer.is_some())];
    let answer = answer.unwrap_or_default();
    bytes.extend((answer.len() as u32).to_le_bytes());
    bytes.extend(answer);
    let mut told = 0;
    let taken = Patience::new(GIVE_UP).until(
        || "an answer was not taken",
        || {
            match stream.write(&bytes[told..]) {
                Ok(count) => told += count,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(system("answering", &error)),
            }
            Ok((told == bytes.len()).then_some(()))
        },
    );
    taken.is_ok()
}

/// A process that asks.
pub struct Client {
    place: String,
    /// None once an answer was not waited for: the next one would be taken for it.
    stream: Option<TcpStream>,
}

impl Client {
    /// Connects to a server, which may not be there yet.
    pub fn connect(place: &str, patience: Patience) -> Result<Client> {
        let mut client = Client { place: place.to_owned(), stream: None };
        client.reach(&patience)?;
        Ok(client)
    }

    fn reach(&mut self, patience: &Patience) -> Result<&mut TcpStream> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let addresses = resolve(&self.place)?;
                let mut reason = String::new();
                let mut connect = || {
                    for address in &addresses {
                        let left = patience.left().clamp(Duration::from_millis(1), Duration::from_secs(5));
                        match TcpStream::connect_timeout(address, left) {
                            Ok(stream) => return Ok(Some(stream)),
                            Err(error) => reason = error.to_string(),
                        }
                    }
                    Ok(None)
                };
                let connected = patience.rest().until(|| "a server was waited for", &mut connect);
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

    fn ask(&mut self, operation: u8, name: &str, value: &[u8], patience: &Patience) -> Result<Option<Vec<u8>>> {
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
    pub fn set(&mut self, name: &str, value: &[u8], patience: &Patience) -> Result<()> {
        self.ask(SET, name, value, patience).map(drop)
    }

    /// The value of a name.
    pub fn find(&mut self, name: &str, patience: &Patience) -> Result<Option<Vec<u8>>> {
        self.ask(FIND, name, &[], patience)
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&mut self, name: &str, amount: i64, patience: &Patience) -> Result<i64> {
        Ok(self.ask(ADD, name, &amount.to_le_bytes(), patience)?.map_or(0, |bytes| number(&bytes)))
    }
}

fn converse(stream: &mut TcpStream, question: &[u8], patience: &Patience) -> Result<Option<Vec<u8>>> {
    let lost = |error: std::io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => patience.error("an answer of the server was waited for"),
        _ => Error::new(Status::PEER_LOST, format!("the server of the store is gone ({error})")),
    };
    let left = Some(patience.left().max(Duration::from_millis(1)));
    stream
        .set_read_timeout(left)
        .and_then(|()| stream.set_write_timeout(left))
        .map_err(|error| system("limiting the time of a connection", &error))?;
    stream.write_all(question).map_err(lost)?;
    let mut head = [0; ANSWER];
    stream.read_exact(&mut head).map_err(lost)?;
    let count = length(&head[1..]);
    if count > MAX_VALUE {
        return Err(invalid("what answers is not the server of a store"));
    }
    let mut value = vec![0; count];
    stream.read_exact(&mut value).map_err(lost)?;
    Ok((head[0] == 1).then_some(value))
}

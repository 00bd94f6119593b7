//! A store that one process serves over TCP.
//!
//! A client sends a greeting and then requests, one at a time: an operation, the lengths of key and value, key and
//! value. The server responds with a flag (found or not) and a value. It rejects lengths beyond the limits and closes
//! connections that violate the protocol. It never blocks on a client: an unsent reply stays pending, and until it is
//! sent nothing more is read from that connection.

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
/// Size of a request's header: an operation, and the lengths of key and value.
const REQUEST_HEADER: usize = 9;
/// Size of a response's header: a flag, and the length of the value.
const RESPONSE_HEADER: usize = 5;
/// The maximum number of a server's connections; more are refused.
const MAX_CONNECTIONS: usize = 4096;
/// The maximum number of steps, each a request or a read, for one connection before the others are served, and of
/// connections accepted before that.
const MAX_STEPS: usize = 256;

fn resolve(location: &str) -> Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = location
        .to_socket_addrs()
        .map_err(|error| invalid(format!("{location:?} is not a host and a port ({error})")))?
        .collect();
    if found.is_empty() { Err(invalid(format!("{location:?} has no address"))) } else { Ok(found) }
}

/// The server of a store.
pub struct Server {
    listener: TcpListener,
    connections: Vec<Connection>,
    values: HashMap<String, Arc<[u8]>>,
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    greeted: bool,
    pending: Option<PendingReply>,
}

/// A reply that is not sent completely.
struct PendingReply {
    head: [u8; RESPONSE_HEADER],
    value: Arc<[u8]>,
    sent: usize,
    is_sum: bool,
}

struct Request {
    operation: u8,
    name: String,
    value: Vec<u8>,
}

/// The result of a non-blocking operation on a connection.
enum Attempt<T> {
    Done(T),
    Later,
    /// The connection is closed, or violates the protocol.
    Lost,
}

impl Server {
    /// Listens on a host and a port; port 0 selects any free port.
    pub fn listen(location: &str) -> Result<Server> {
        let listener = TcpListener::bind(&resolve(location)?[..])
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| system("listening", &error))?;
        Ok(Server { listener, connections: Vec::new(), values: HashMap::new() })
    }

    /// Returns the port.
    pub fn port(&self) -> Result<u16> {
        let address = self.listener.local_addr().map_err(|error| system("asking for the port", &error))?;
        Ok(address.port())
    }

    /// See [`Store::set`](super::Store::set).
    pub fn set(&mut self, name: &str, value: &[u8]) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Returns the value of a key.
    pub fn find(&self, name: &str) -> Option<Vec<u8>> {
        self.values.get(name).map(|value| value.to_vec())
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&mut self, name: &str, amount: i64) -> i64 {
        let sum = self.values.get(name).map_or(0, |bytes| number(bytes)).wrapping_add(amount);
        self.set(name, &sum.to_le_bytes());
        sum
    }

    /// Returns whether a sum is not sent to its client yet. The client requested it after everything else it has
    /// received, so it will read it soon.
    pub fn has_unsent_sum(&self) -> bool {
        self.connections.iter().any(|connection| connection.pending.as_ref().is_some_and(|pending| pending.is_sum))
    }

    /// Answers the requests that have arrived.
    pub fn serve(&mut self) -> Result<()> {
        for _ in 0..MAX_STEPS {
            match self.listener.accept() {
                Ok((stream, _)) if self.connections.len() < MAX_CONNECTIONS => {
                    if stream.set_nonblocking(true).is_ok() {
                        let _ = stream.set_nodelay(true);
                        self.connections.push(Connection {
                            stream,
                            received: Vec::new(),
                            greeted: false,
                            pending: None,
                        });
                    }
                }
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock) => break,
                // A connection that was aborted before it was accepted must not prevent others.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => return Err(system("letting a process in", &error)),
            }
        }
        let mut connections = std::mem::take(&mut self.connections);
        connections.retain_mut(|connection| self.serve_connection(connection));
        self.connections = connections;
        Ok(())
    }

    /// Serves one connection for a limited number of steps; returns false if it is closed or violates the protocol.
    fn serve_connection(&mut self, connection: &mut Connection) -> bool {
        for _ in 0..MAX_STEPS {
            match connection.send_pending() {
                Attempt::Done(()) => {}
                Attempt::Later => return true,
                Attempt::Lost => return false,
            }
            let received = match connection.request() {
                Attempt::Done(request) => {
                    let Some(pending) = self.reply(&request) else { return false };
                    connection.pending = Some(pending);
                    continue;
                }
                Attempt::Later => connection.read_some(),
                Attempt::Lost => return false,
            };
            match received {
                Attempt::Done(()) => {}
                Attempt::Later => return true,
                Attempt::Lost => return false,
            }
        }
        true
    }

    /// Executes a request and returns the reply; `None` for an unknown operation.
    fn reply(&mut self, request: &Request) -> Option<PendingReply> {
        let name = &request.name;
        let value = match request.operation {
            SET => {
                self.set(name, &request.value);
                Some(Arc::default())
            }
            FIND => self.values.get(name).cloned(),
            ADD => {
                self.add(name, number(&request.value));
                self.values.get(name).cloned()
            }
            _ => return None,
        };
        let mut head = [u8::from(value.is_some()); RESPONSE_HEADER];
        let value = value.unwrap_or_default();
        head[1..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        Some(PendingReply { head, value, sent: 0, is_sum: request.operation == ADD })
    }
}

impl Connection {
    /// Reads some of the available bytes.
    fn read_some(&mut self) -> Attempt<()> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => Attempt::Lost,
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Attempt::Done(())
            }
            Err(error) => classify(&error),
        }
    }

    /// Extracts a complete request from the received bytes.
    fn request(&mut self) -> Attempt<Request> {
        if !self.greeted {
            let common = self.received.len().min(GREETING.len());
            if self.received[..common] != GREETING[..common] {
                return Attempt::Lost;
            }
            if common < GREETING.len() {
                return Attempt::Later;
            }
            self.received.drain(..common);
            self.greeted = true;
        }
        let Some(head) = self.received.get(..REQUEST_HEADER) else { return Attempt::Later };
        let (operation, name, value) = (head[0], length(&head[1..5]), length(&head[5..9]));
        if name > MAX_NAME || value > MAX_VALUE {
            return Attempt::Lost;
        }
        let Some(rest) = self.received.get(REQUEST_HEADER..REQUEST_HEADER + name + value) else {
            return Attempt::Later;
        };
        let Ok(key) = str::from_utf8(&rest[..name]) else { return Attempt::Lost };
        let request = Request { operation, name: key.to_owned(), value: rest[name..].to_vec() };
        self.received.drain(..REQUEST_HEADER + name + value);
        // A connection is long-lived, and may never need that much memory again.
        self.received.shrink_to(REQUEST_HEADER + MAX_NAME);
        Attempt::Done(request)
    }

    /// Sends as much of the pending reply as possible.
    fn send_pending(&mut self) -> Attempt<()> {
        while let Some(pending) = &mut self.pending {
            let value = pending.sent.saturating_sub(RESPONSE_HEADER);
            let (head, value) = (pending.head.get(pending.sent..).unwrap_or_default(), &pending.value[value..]);
            if head.is_empty() && value.is_empty() {
                self.pending = None;
                break;
            }
            match self.stream.write_vectored(&[IoSlice::new(head), IoSlice::new(value)]) {
                Ok(0) => return Attempt::Lost,
                Ok(count) => pending.sent += count,
                Err(error) => return classify(&error),
            }
        }
        Attempt::Done(())
    }
}

/// Maps an I/O error of a non-blocking connection.
fn classify(error: &io::Error) -> Attempt<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Attempt::Later,
        _ => Attempt::Lost,
    }
}

fn length(bytes: &[u8]) -> usize {
    bytes.try_into().map_or(usize::MAX, |bytes| u32::from_le_bytes(bytes) as usize)
}

/// The client of a store.
pub struct Client {
    location: String,
    /// `None` after a response was abandoned: the next request would read it as its own.
    stream: Option<TcpStream>,
}

impl Client {
    /// Connects to a server, which may not be listening yet.
    pub fn connect(location: &str, deadline: Deadline) -> Result<Client> {
        let mut client = Client { location: location.to_owned(), stream: None };
        client.connected_stream(&deadline)?;
        Ok(client)
    }

    fn connected_stream(&mut self, deadline: &Deadline) -> Result<&mut TcpStream> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let addresses = resolve(&self.location)?;
                let mut reason = String::new();
                let mut connect = || {
                    for address in &addresses {
                        let remaining = deadline.remaining().clamp(Duration::from_millis(1), Duration::from_secs(5));
                        match TcpStream::connect_timeout(address, remaining) {
                            Ok(stream) => return Ok(Some(stream)),
                            Err(error) => reason = error.to_string(),
                        }
                    }
                    Ok(None)
                };
                let connected = deadline.until(|| "a server was waited for", &mut connect);
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

    fn request(&mut self, operation: u8, name: &str, value: &[u8], deadline: &Deadline) -> Result<Option<Vec<u8>>> {
        if deadline.is_expired() {
            // Nothing was sent, so the connection remains valid.
            return Err(deadline.error("a server was waited for"));
        }
        let mut request = vec![operation];
        request.extend((name.len() as u32).to_le_bytes());
        request.extend((value.len() as u32).to_le_bytes());
        request.extend(name.as_bytes());
        request.extend(value);
        let stream = self.connected_stream(deadline)?;
        let reply = exchange(stream, &request, deadline);
        if reply.is_err() {
            self.stream = None;
        }
        reply
    }

    /// See [`Store::set`](super::Store::set).
    pub fn set(&mut self, name: &str, value: &[u8], deadline: &Deadline) -> Result<()> {
        self.request(SET, name, value, deadline).map(drop)
    }

    /// Returns the value of a key.
    pub fn find(&mut self, name: &str, deadline: &Deadline) -> Result<Option<Vec<u8>>> {
        self.request(FIND, name, &[], deadline)
    }

    /// See [`Store::add`](super::Store::add).
    pub fn add(&mut self, name: &str, amount: i64, deadline: &Deadline) -> Result<i64> {
        Ok(self.request(ADD, name, &amount.to_le_bytes(), deadline)?.map_or(0, |bytes| number(&bytes)))
    }
}

fn exchange(stream: &mut TcpStream, request: &[u8], deadline: &Deadline) -> Result<Option<Vec<u8>>> {
    let lost = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => deadline.error("an answer of the server was waited for"),
        _ => Error::new(Status::PEER_LOST, format!("the server of the store is gone ({error})")),
    };
    let mut limited = Limited { stream, deadline };
    limited.write_all(request).map_err(lost)?;
    let mut head = [0; RESPONSE_HEADER];
    limited.read_exact(&mut head).map_err(lost)?;
    let count = length(&head[1..]);
    if count > MAX_VALUE {
        return Err(invalid("what answers is not the server of a store"));
    }
    let mut value = vec![0; count];
    limited.read_exact(&mut value).map_err(lost)?;
    Ok((head[0] == 1).then_some(value))
}

/// A connection whose reads and writes share one deadline.
struct Limited<'a> {
    stream: &'a mut TcpStream,
    deadline: &'a Deadline<'a>,
}

impl Limited<'_> {
    fn remaining(&self) -> io::Result<Duration> {
        let remaining = self.deadline.remaining();
        if remaining.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(remaining) }
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.remaining()?))?;
        self.stream.read(bytes)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.remaining()?))?;
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

    fn request(operation: u8, name: &str, value: &[u8]) -> Vec<u8> {
        let lengths = [name.len() as u32, value.len() as u32].map(u32::to_le_bytes);
        [&[operation], lengths.as_flattened(), name.as_bytes(), value].concat()
    }

    fn server() -> (Server, String) {
        let server = Server::listen("127.0.0.1:0").unwrap();
        let location = format!("127.0.0.1:{}", server.port().unwrap());
        (server, location)
    }

    fn connection(location: &str, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(location).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    }

    /// Serves requests until `request` returns in another thread.
    fn serve_while<T: Send>(server: &mut Server, request: impl FnOnce() -> T + Send) -> T {
        let is_done = atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(request));
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

    /// Clients that request more than the connections can buffer, and do not read, do not block the others; their
    /// replies stay pending.
    #[test]
    fn clients_that_do_not_read_do_not_block_others() {
        const ASKED: usize = 20;
        let (mut server, location) = server();
        let value: Vec<u8> = (0..MAX_VALUE).map(|at| (at * 7 % 251) as u8).collect();
        server.set("large", &value);
        let bytes = [GREETING, &request(FIND, "large", &[]).repeat(ASKED)].concat();
        let mut connections = [0; 3].map(|_| connection(&location, &bytes));
        let start = Instant::now();
        for _ in 0..10 {
            server.serve().unwrap();
        }
        let mut client = Client::connect(&location, Deadline::new(Duration::from_secs(20))).unwrap();
        let sum = serve_while(&mut server, || client.add("sum", 4, &Deadline::new(Duration::from_secs(20))));
        assert_eq!(sum.unwrap(), 4);
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
        assert_eq!(server.connections.iter().filter(|connection| connection.pending.is_some()).count(), 3);
        assert!(!server.has_unsent_sum());
        assert!(server.connections.iter().all(|connection| connection.received.capacity() < 2 * 4096));
        serve_while(&mut server, || {
            for connection in &mut connections {
                for _ in 0..ASKED {
                    let mut reply = vec![0; RESPONSE_HEADER + MAX_VALUE];
                    connection.read_exact(&mut reply).unwrap();
                    assert_eq!((reply[0], length(&reply[1..RESPONSE_HEADER])), (1, MAX_VALUE));
                    assert!(reply[RESPONSE_HEADER..] == value);
                }
            }
        });
        assert!(server.connections.iter().all(|connection| connection.pending.is_none()));
    }

    /// A client may pipeline many requests, and is answered in order, but other clients are served in between.
    #[test]
    fn pipelined_requests_are_served_fairly() {
        const ASKED: usize = 3000;
        let (mut server, location) = server();
        let bytes = [GREETING, &request(ADD, "sum", &1_i64.to_le_bytes()).repeat(ASKED)].concat();
        let mut connection = connection(&location, &bytes);
        server.serve().unwrap();
        assert!(number(&server.find("sum").unwrap_or_default()) <= MAX_STEPS as i64);
        serve_while(&mut server, || {
            for sum in 1..=ASKED as i64 {
                let mut reply = [0; RESPONSE_HEADER + 8];
                connection.read_exact(&mut reply).unwrap();
                assert_eq!((reply[0], number(&reply[RESPONSE_HEADER..])), (1, sum));
            }
        });
    }

    #[test]
    fn protocol_violations_close_the_connection() {
        let (mut server, location) = server();
        let greeted = |bytes: &[u8]| [GREETING, bytes].concat();
        let mut long_name = request(FIND, "x", &[]);
        long_name[1..5].copy_from_slice(&(MAX_NAME as u32 + 1).to_le_bytes());
        let mut long_value = request(SET, "x", &[]);
        long_value[5..9].copy_from_slice(&(MAX_VALUE as u32 + 1).to_le_bytes());
        let no_text = [&request(FIND, "x", &[])[..REQUEST_HEADER], &[0xFF]].concat();
        let no_question = request(9, "x", &[]);
        let wrong = [long_name, long_value, no_text, no_question].map(|bytes| greeted(&bytes));
        for bytes in wrong.into_iter().chain([b"GET / HTTP/1.1".to_vec()]) {
            let mut connection = connection(&location, &bytes);
            serve_while(&mut server, || assert!(matches!(connection.read(&mut [0; 64]), Ok(0) | Err(_))));
            assert!(server.connections.is_empty());
        }
        // A partial message may still become complete.
        let mut slow = connection(&location, &GREETING[..4]);
        for part in [&GREETING[4..], &request(SET, "x", b"12")[..5], &request(SET, "x", b"12")[5..]] {
            server.serve().unwrap();
            assert_eq!((server.connections.len(), server.find("x")), (1, None));
            slow.write_all(part).unwrap();
        }
        serve_while(&mut server, || slow.read_exact(&mut [0; RESPONSE_HEADER]).unwrap());
        assert_eq!(server.find("x").unwrap(), b"12");
    }
}

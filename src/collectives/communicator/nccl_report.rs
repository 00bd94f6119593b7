//! NCCL's own report of a job: the operations that the ranks of each communicator have begun, and processes that do not answer.
//!
//! From version 2.24 on a thread of NCCL answers at a socket of the machine, for all processes of the job (RAS: reliability,
//! availability, serviceability). It takes lines of text, as NVIDIA's program `ncclras` sends them, and closes the connection
//! after the report.

use crate::{
    base::deadline::Deadline,
    driver::nccl::Nccl,
    error::{Error, Result},
    status::Status,
};
use std::{
    env,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs},
    time::Duration,
};

/// NCCL's variable that holds the address. Without it the address is this port of the machine itself.
const ADDRESS_VARIABLE: &str = "NCCL_RAS_ADDR";
const PORT: u16 = 28028;
/// The first version with reports.
const FIRST_VERSION: (i32, i32, i32) = (2, 24, 0);
/// How long NCCL may take to accept a connection and to begin its answer. All processes of a job on a machine listen at one port,
/// and the kernel selects one; that process may be stopped, and the next attempt reaches another.
const ATTEMPT: Duration = Duration::from_secs(1);
/// NCCL may wait for processes that do not answer up to five seconds beyond its timeout. The answer needs a moment more.
const NCCL_EXTRA: Duration = Duration::from_secs(6);
/// The largest report, in bytes. A line of it has some hundred bytes.
const MAX_BYTES: usize = 16 << 20;

/// Asks NCCL for its report, until the deadline. It does not limit the time to resolve a name in NCCL_RAS_ADDR.
pub fn report(nccl: &Nccl, deadline: Deadline) -> Result<String> {
    let version = nccl.version();
    if version.parts() < FIRST_VERSION {
        let what = format!("NCCL {version} makes no reports; NCCL 2.24 is the first version that does");
        return Err(Error::new(Status::NOT_SUPPORTED, what));
    }
    let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let (name, addresses) = match env::var(ADDRESS_VARIABLE) {
        Ok(name) => {
            let addresses = name.to_socket_addrs().map(Iterator::collect);
            (name, addresses)
        }
        Err(_) => (format!("localhost:{PORT}"), Ok(own.map(|address| SocketAddr::new(address, PORT)).to_vec())),
    };
    let answer = addresses
        .and_then(|addresses: Vec<SocketAddr>| ask_until_answered(&addresses, deadline))
        .map_err(|error| failure(&name, deadline, &error))?;
    report_of(&answer).ok_or_else(|| {
        let first = answer.lines().next().unwrap_or_default();
        Error::new(Status::NCCL, format!("the process that listens at {name} is not NCCL: it answers {first:?}"))
    })
}

fn failure(name: &str, deadline: Deadline, error: &io::Error) -> Error {
    let what = format!("asking NCCL for its report at {name}");
    match error.kind() {
        ErrorKind::TimedOut => deadline.error(what),
        ErrorKind::ConnectionRefused => {
            let why = "no communicator of NCCL is in use on this machine, or NCCL_RAS_ENABLE=0";
            Error::new(Status::SYSTEM, format!("{what}: nobody listens there: {why}"))
        }
        _ => Error::new(Status::SYSTEM, format!("{what}: {error}")),
    }
}

/// Asks again as long as the process that accepts the connection does not begin to answer.
fn ask_until_answered(addresses: &[SocketAddr], deadline: Deadline) -> io::Result<String> {
    loop {
        let mut answer = Vec::new();
        let outcome = connect(addresses, deadline).and_then(|stream| ask(stream, &mut answer, deadline));
        match outcome {
            Err(error) if error.kind() == ErrorKind::TimedOut && answer.is_empty() && !deadline.is_expired() => {}
            outcome => return outcome.map(|()| String::from_utf8_lossy(&answer).into_owned()),
        }
    }
}

/// Connects to the first address that accepts. The error is that of the first, because the machine may have no IPv6, unless
/// another one does not answer.
fn connect(addresses: &[SocketAddr], deadline: Deadline) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the name has no address");
    for (index, address) in addresses.iter().enumerate() {
        match TcpStream::connect_timeout(address, attempt(deadline)) {
            Ok(stream) => return Ok(stream),
            Err(error) if index == 0 || error.kind() == ErrorKind::TimedOut => failure = error,
            Err(_) => {}
        }
    }
    Err(failure)
}

/// Returns how long one step may take. Sockets take zero for no limit.
fn attempt(deadline: Deadline) -> Duration {
    ATTEMPT.min(deadline.remaining()).max(Duration::from_millis(1))
}

/// Sends the questions, and receives all answers.
fn ask(mut stream: TcpStream, answer: &mut Vec<u8>, deadline: Deadline) -> io::Result<()> {
    let seconds = deadline.remaining().saturating_sub(NCCL_EXTRA).as_secs().clamp(1, i32::MAX as u64);
    let begin = Deadline::new(attempt(deadline));
    stream.set_write_timeout(Some(attempt(deadline)))?;
    stream.write_all(format!("CLIENT PROTOCOL 2\nTIMEOUT {seconds}\nVERBOSE STATUS\n").as_bytes())?;
    let mut part = [0; 4096];
    loop {
        let left = if answer.is_empty() {
            begin.remaining().min(deadline.blocking_interval())
        } else {
            deadline.blocking_interval()
        };
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        match stream.read(&mut part) {
            Ok(0) if answer.is_empty() => return Err(io::Error::other("the connection is closed without an answer")),
            Ok(0) => return Ok(()),
            Ok(bytes) if answer.len() + bytes > MAX_BYTES => return Err(io::Error::other("the report does not end")),
            Ok(bytes) => answer.extend_from_slice(&part[..bytes]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if deadline.is_expired() || answer.is_empty() && begin.is_expired() {
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

/// Returns what follows the answers to the first two lines.
fn report_of(answer: &str) -> Option<String> {
    let (protocol, rest) = answer.split_once('\n')?;
    let (accepted, report) = rest.split_once('\n')?;
    (protocol.starts_with("SERVER PROTOCOL ") && accepted == "OK").then(|| report.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_follows_two_answers() {
        assert_eq!(report_of("SERVER PROTOCOL 2\nOK\n\nJob summary\n===\n"), Some("Job summary\n===".into()));
        assert_eq!(report_of("SERVER PROTOCOL 3\nOK\n"), Some(String::new()));
        for other in ["", "SERVER PROTOCOL 2\n", "SERVER PROTOCOL 2\nERROR: Invalid timeout\n", "HTTP/1.1 400\nOK\n"] {
            assert_eq!(report_of(other), None, "{other}");
        }
    }
}

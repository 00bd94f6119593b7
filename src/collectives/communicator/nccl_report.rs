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
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

/// NCCL's variable that holds the address, and the address without it.
const ADDRESS_VARIABLE: &str = "NCCL_RAS_ADDR";
const ADDRESS: &str = "localhost:28028";
/// The first version with reports.
const FIRST_VERSION: (i32, i32, i32) = (2, 24, 0);
/// NCCL may wait for processes that do not answer this much longer than it is told to.
const NCCL_EXTRA: Duration = Duration::from_secs(5);
/// The largest report, in bytes. A line of it has some hundred bytes.
const MAX_BYTES: usize = 16 << 20;

/// Asks NCCL for its report, for at most `limit`.
pub fn report(nccl: &Nccl, limit: Duration) -> Result<String> {
    let version = nccl.version();
    if version.parts() < FIRST_VERSION {
        let what = format!("NCCL {version} makes no reports; NCCL 2.24 is the first version that does");
        return Err(Error::new(Status::NOT_SUPPORTED, what));
    }
    let address = env::var(ADDRESS_VARIABLE).unwrap_or_else(|_| ADDRESS.to_owned());
    let deadline = Deadline::new(limit);
    let answer = connect(&address, deadline)
        .and_then(|stream| ask(stream, limit, deadline))
        .map_err(|error| failure(&address, deadline, &error))?;
    report_of(&answer).ok_or_else(|| {
        let first = answer.lines().next().unwrap_or("nothing");
        Error::new(Status::NCCL, format!("who listens at {address} is not NCCL: it answers {first:?}"))
    })
}

fn failure(address: &str, deadline: Deadline, error: &io::Error) -> Error {
    let what = format!("asking NCCL for its report at {address}");
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => deadline.error(what),
        ErrorKind::ConnectionRefused => {
            let why = "no communicator of NCCL is in use on this machine, or NCCL_RAS_ENABLE=0";
            Error::new(Status::SYSTEM, format!("{what}: nobody listens there: {why}"))
        }
        _ => Error::new(Status::SYSTEM, format!("{what}: {error}")),
    }
}

fn connect(address: &str, deadline: Deadline) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::other("the name has no address"));
    for address in address.to_socket_addrs()? {
        outcome = TcpStream::connect_timeout(&address, time_left(deadline)?);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Returns the time that remains; an error if there is none, because sockets take zero for no limit.
fn time_left(deadline: Deadline) -> io::Result<Duration> {
    let left = deadline.remaining();
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Sends the questions, and returns all answers.
fn ask(mut stream: TcpStream, limit: Duration, deadline: Deadline) -> io::Result<String> {
    let seconds = limit.saturating_sub(NCCL_EXTRA).as_secs().clamp(1, i32::MAX as u64);
    stream.set_write_timeout(Some(time_left(deadline)?))?;
    stream.write_all(format!("CLIENT PROTOCOL 2\nTIMEOUT {seconds}\nVERBOSE STATUS\n").as_bytes())?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    loop {
        stream.set_read_timeout(Some(time_left(deadline)?))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(String::from_utf8_lossy(&answer).into_owned()),
            Ok(bytes) if answer.len() + bytes > MAX_BYTES => return Err(io::Error::other("the report does not end")),
            Ok(bytes) => answer.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
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

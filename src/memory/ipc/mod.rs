//! Memory that is shared with other processes.
//!
//! A block of the caching allocator is shared where it lies: what goes to the other process is a message ([`message`])
//! with descriptors of the physical memory under the block, and with one more descriptor, by which the kernel knows as
//! long as it is open that somebody has the block (`ledger`). [`export`] is the side of the process that has the memory,
//! [`import`] the other; `channel` moves messages through a socket. [`legacy`] are CUDA's own handles of 64 bytes.
//!
//! A block that others hold stays what it is: while it is live it keeps its memory in place as every live block does, and
//! when it is freed it waits, as a block waits that other streams may still use, until nobody holds it.

mod channel;
mod export;
mod holder_locks;
mod import;
pub mod legacy;
pub mod message;
mod space_layout;
#[allow(unsafe_code)]
mod system;

pub use export::{collect, has_exports, is_over, mark_of};
pub use import::{Received, add_use, close, for_each_span, is_imported};

use crate::{
    driver::{Driver, Failure, codes, types::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
    error::{Context, Error, Result},
    runtime::device::Device,
    status::Status,
};
use channel::Channel;
use message::{BATCH, HEAD, Head, PIECE, Piece};
use once_cell::sync::OnceCell;
use std::os::fd::{AsFd, OwnedFd, RawFd};

const VARIABLE: &str = "PLINTH_IPC";

/// What `PLINTH_IPC` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Memory is made so that it can be shared.
    On,
    /// It is not.
    Off,
    /// It is, and whoever sends waits for the device: no event has to be opened by the other process.
    Wait,
}

fn parse(text: &str) -> Result<Mode> {
    match text.trim() {
        "" | "1" => Ok(Mode::On),
        "0" => Ok(Mode::Off),
        "wait" => Ok(Mode::Wait),
        other => {
            Err(Error::new(Status::INVALID_CONFIGURATION, format!("{VARIABLE} is {other:?}; it can be 1, 0 or wait")))
        }
    }
}

/// What was chosen; read from the environment once.
pub fn mode() -> Result<Mode> {
    static MODE: OnceCell<Mode> = OnceCell::new();
    MODE.get_or_try_init(|| parse(&std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy())).copied()
}

/// Whether the memory of a device is made so that it can be shared.
pub fn makes_shareable(device: &Device, driver: &Driver) -> Result<bool> {
    device
        .memory
        .shareable
        .get_or_try_init(|| {
            if mode()? == Mode::Off {
                return Ok(false);
            }
            let attribute = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
            match driver.device_attribute(attribute, device.native) {
                Ok(supported) => Ok(supported != 0),
                // A driver that has not heard of the question cannot do it.
                Err(Failure { code: codes::CUDA_ERROR_INVALID_VALUE | codes::CUDA_ERROR_NOT_SUPPORTED, .. }) => {
                    Ok(false)
                }
                Err(failure) => Err(Error::from(failure).context("asking whether a device's memory can be shared")),
            }
        })
        .copied()
}

fn encode(pieces: &[Piece]) -> Vec<u8> {
    pieces.iter().flat_map(Piece::encode).collect()
}

/// Sends the block that an address lies in through a socket.
pub fn send(socket: RawFd, address: u64) -> Result<()> {
    let mut channel = Channel::new(socket)?;
    let offer = export::offer(address)?;
    let mut parts = offer.pieces().chunks(BATCH).map(|pieces| (pieces, offer.descriptors(pieces)));
    // The first descriptors are made before anything is said, so that a driver that refuses leaves no trace.
    let Some((first, descriptors)) = parts.next() else { return Ok(()) };
    let descriptors = descriptors?;
    channel.send(&offer.head().encode(), &[offer.hold().as_fd()])?;
    send_pieces(&mut channel, first, &descriptors)?;
    for (pieces, descriptors) in parts {
        match descriptors {
            Ok(descriptors) => send_pieces(&mut channel, pieces, &descriptors)?,
            Err(error) => {
                // The other process waits for this part: it learns that there will be none. The error that counts is the
                // first.
                let _ = channel.send(&encode(&vec![Piece::GIVEN_UP; pieces.len()]), &[]);
                return Err(error);
            }
        }
    }
    Ok(())
}

fn send_pieces(channel: &mut Channel, pieces: &[export::Exported], descriptors: &[OwnedFd]) -> Result<()> {
    let borrowed: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
    let pieces: Vec<Piece> = pieces.iter().map(|exported| exported.piece).collect();
    channel.send(&encode(&pieces), &borrowed)
}

/// Receives a block through a socket, and maps it here, so that a device can use it: its own, and the one that is named.
pub fn receive(socket: RawFd, device: i32) -> Result<Received> {
    let mut channel = Channel::new(socket)?;
    let mut bytes = [0; HEAD];
    let hold = channel.receive(&mut bytes, 1)?;
    let head = Head::decode(&bytes)?;
    // Whatever fails, the parts that are on their way are taken out of the socket, for the next message's sake.
    let mut taker = import::Taker::new(head, hold, device);
    let mut left = head.pieces as usize;
    while left > 0 {
        let count = left.min(BATCH);
        left -= count;
        let mut bytes = vec![0; count * PIECE];
        let (pieces, descriptors) = receive_pieces(&mut channel, &mut bytes, head.descriptors(count))?;
        taker.take(pieces, descriptors, left == 0);
    }
    taker.finish()
}

type Descriptors = Result<Vec<OwnedFd>>;

fn receive_pieces(channel: &mut Channel, bytes: &mut [u8], count: usize) -> Result<(Vec<Piece>, Descriptors)> {
    let descriptors = channel.receive(bytes, count);
    let pieces = Piece::decode_all(bytes)?;
    if !pieces.is_empty() && pieces.iter().all(|piece| *piece == Piece::GIVEN_UP) {
        return Err(Error::new(Status::IPC_PEER_GONE, "the sender gave the message up when it had sent a part of it"));
    }
    Ok((pieces, descriptors?))
}

/// A message for a channel of the program's own: its bytes, and its descriptors.
pub fn export(address: u64) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let offer = export::offer(address)?;
    let mut bytes = offer.head().encode().to_vec();
    bytes.extend(offer.pieces().iter().flat_map(|exported| exported.piece.encode()));
    let mut descriptors = offer.descriptors(offer.pieces())?;
    descriptors.insert(0, offer.into_hold());
    Ok((bytes, descriptors))
}

/// Maps the block that a message of [`export`] is about.
pub fn import(bytes: &[u8], mut descriptors: Vec<OwnedFd>, device: i32) -> Result<Received> {
    let (head, rest) = bytes.split_at(bytes.len().min(HEAD));
    let head = Head::decode(head)?;
    let pieces = Piece::decode_all(rest)?;
    head.check(&pieces)?;
    let wanted = 1 + head.descriptors(pieces.len());
    if descriptors.len() != wanted {
        let what = format!("the message has {wanted} descriptors, not {}", descriptors.len());
        return Err(Error::new(Status::INVALID_VALUE, what));
    }
    let rest = descriptors.split_off(1);
    let mut taker = import::Taker::new(head, Ok(descriptors), device);
    taker.take(pieces, Ok(rest), true);
    taker.finish()
}

/// The error of a system call.
fn system_error<T>(outcome: std::io::Result<T>, doing: &str) -> Result<T> {
    outcome.map_err(|error| Error::new(Status::SYSTEM, error.to_string())).context(|| doing.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_has_three_values() {
        assert_eq!(parse("").unwrap(), Mode::On);
        assert_eq!(parse("1").unwrap(), Mode::On);
        assert_eq!(parse(" 0 ").unwrap(), Mode::Off);
        assert_eq!(parse("wait").unwrap(), Mode::Wait);
        assert_eq!(parse("yes").unwrap_err().status(), Status::INVALID_CONFIGURATION);
    }
}

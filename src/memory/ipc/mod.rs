//! Memory shared between processes.
//!
//! A block of the caching allocator is shared in place: the exporting process sends a [`message`] with a descriptor
//! for each physical allocation under the block, and one more descriptor, which represents a hold on the block. As
//! long as that descriptor is open, the kernel reports the hold (`holder_locks`). [`mod@export`] is the side of the
//! process that owns the memory, [`mod@import`] the other; `channel` transfers messages through a socket. [`legacy`]
//! implements CUDA's 64-byte memory handles.
//!
//! A block that other processes hold stays valid: while it is live it keeps its memory in place, as every live block
//! does, and its free is deferred until no process holds it, as the free of a block that other streams may still use.

mod channel;
mod device_uuid;
mod export;
mod exporters;
pub mod exports;
mod holder_locks;
pub mod import;
pub mod legacy;
pub mod message;
pub mod mode;
mod ready_event;
mod system;

pub use import::{Received, close};

use super::trackers;
use crate::{
    error::{Error, Result},
    runtime,
    status::Status,
};
use channel::Channel;
use message::{CHUNK_BYTES, CHUNKS_PER_PART, Chunk, HEADER_BYTES, Header};
use std::{
    iter,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

fn encode(chunks: &[Chunk]) -> Vec<u8> {
    chunks.iter().flat_map(Chunk::encode).collect()
}

/// Frees what sharing has kept and no process uses any more: see [`export::collect`] and [`import::collect`].
pub fn collect() -> Result<()> {
    let Some(runtime) = runtime::if_initialized()? else { return Ok(()) };
    let imports = import::collect(runtime);
    let exports = export::collect(runtime);
    trackers::deliver();
    exports.and(imports)
}

/// Sends the block that contains an address through a socket.
pub fn send(socket: BorrowedFd, address: u64) -> Result<()> {
    let mut channel = Channel::new(socket)?;
    let export = export::prepare(address)?;
    let mut parts = export.chunks().chunks(CHUNKS_PER_PART).map(|chunks| (chunks, export.descriptors(chunks)));
    // Export the first descriptors before sending anything: if the driver refuses, the receiver sees no message.
    let Some((first, descriptors)) = parts.next() else { return Ok(()) };
    let descriptors = descriptors?;
    channel.send(&export.header().encode(), &[export.hold().as_fd()])?;
    for (chunks, descriptors) in iter::once((first, Ok(descriptors))).chain(parts) {
        let outcome = descriptors.and_then(|descriptors| send_chunks(&mut channel, chunks, &descriptors));
        if let Err(error) = outcome {
            // The receiver waits for this part, so notify it that the message is aborted, without descriptors, which may
            // be the cause. The first error is the one to return.
            if !channel.is_broken() {
                let _ = channel.send(&encode(&vec![Chunk::ABORTED; chunks.len()]), &[]);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn send_chunks(channel: &mut Channel, chunks: &[export::ExportedChunk], descriptors: &[OwnedFd]) -> Result<()> {
    let borrowed: Vec<_> = descriptors.iter().map(OwnedFd::as_fd).collect();
    let chunks: Vec<Chunk> = chunks.iter().map(|exported| exported.chunk).collect();
    channel.send(&encode(&chunks), &borrowed)
}

/// Receives a block through a socket and maps it for its own device and for `device`; -1 means no other device.
pub fn receive(socket: BorrowedFd, device: i32) -> Result<Received> {
    let mut channel = Channel::new(socket)?;
    let mut bytes = [0; HEADER_BYTES];
    let hold = channel.receive(&mut bytes)?.and_then(|hold| expect_count(hold, 1));
    let header = Header::decode(&bytes)?;
    // On any error, the remaining parts are still read, so that the socket is ready for the next message.
    let mut receiver = import::MessageReceiver::new(header, hold, device);
    let mut remaining = header.chunks as usize;
    while remaining > 0 {
        let count = remaining.min(CHUNKS_PER_PART);
        remaining -= count;
        let mut bytes = vec![0; count * CHUNK_BYTES];
        let (chunks, descriptors) = receive_chunks(&mut channel, &mut bytes, header.descriptors(count))?;
        receiver.add_part(chunks, descriptors, remaining == 0);
    }
    receiver.finish()
}

type Descriptors = Result<Vec<OwnedFd>>;

fn receive_chunks(channel: &mut Channel, bytes: &mut [u8], count: usize) -> Result<(Vec<Chunk>, Descriptors)> {
    let descriptors = channel.receive(bytes)?;
    let chunks = Chunk::decode_all(bytes)?;
    if !chunks.is_empty() && chunks.iter().all(|chunk| *chunk == Chunk::ABORTED) {
        return Err(Error::new(Status::IPC_PEER_GONE, "the sender aborted the message after it had sent a part of it"));
    }
    Ok((chunks, descriptors.and_then(|descriptors| expect_count(descriptors, count))))
}

fn expect_count(descriptors: Vec<OwnedFd>, expected: usize) -> Descriptors {
    if descriptors.len() == expected {
        return Ok(descriptors);
    }
    let what = format!("a part of a message has {} descriptors instead of {expected}", descriptors.len());
    Err(Error::new(Status::INVALID_VALUE, what))
}

/// Exports a block as a message for the program's own channel: its bytes and its descriptors.
pub fn export(address: u64) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let export = export::prepare(address)?;
    let mut bytes = export.header().encode().to_vec();
    bytes.extend(export.chunks().iter().flat_map(|exported| exported.chunk.encode()));
    let mut descriptors = export.descriptors(export.chunks())?;
    descriptors.insert(0, export.into_hold());
    Ok((bytes, descriptors))
}

/// Maps the block of a message of [`export()`].
pub fn import(bytes: &[u8], mut descriptors: Vec<OwnedFd>, device: i32) -> Result<Received> {
    let (header, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES));
    let header = Header::decode(header)?;
    let chunks = Chunk::decode_all(rest)?;
    header.check(&chunks)?;
    let expected = 1 + header.descriptors(chunks.len());
    if descriptors.len() != expected {
        let what =
            format!("importing a block: the message has {expected} descriptors, but {} were passed", descriptors.len());
        return Err(Error::new(Status::INVALID_VALUE, what));
    }
    let rest = descriptors.split_off(1);
    let mut receiver = import::MessageReceiver::new(header, Ok(descriptors), device);
    receiver.add_part(chunks, Ok(rest), true);
    receiver.finish()
}

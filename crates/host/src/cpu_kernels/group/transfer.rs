//! Transfers between two ranks.

use super::{
    super::parameter,
    symmetric_buffers::{Aborted, Backoff, Header, SymmetricBuffers, copy},
};
use crate::{
    driver::{
        codes,
        group::{ENTRIES, LANES, Reason, TRANSFER, Transfer, Transfers, offsets},
        table::Code,
    },
    kernels::Launch,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// The chunks of a transfer that go through one lane.
struct Lane<'a> {
    buffers: &'a SymmetricBuffers<'a>,
    transfer: &'a Transfer,
    lane: u32,
    launch: &'a Launch,
    /// The number of chunks that the lane has transferred, and how many of them by earlier launches.
    number: u64,
    first: u64,
    /// The number of chunks that the receiver is to report of memory that it reads where it is.
    awaits: Option<u64>,
    ended: bool,
}

/// Runs the transfers of a launch.
pub fn run(launch: &Launch) -> Result<(), Code> {
    let all = parameter::<Transfers>(launch, 0)?;
    let buffers = SymmetricBuffers::of(launch, &all.group_info)?;
    let launched = all.transfers.get(..launch.grid[1] as usize).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
    let mut lanes = Vec::new();
    for transfer in launched {
        if transfer.peer >= all.group_info.size || transfer.lanes > all.group_info.lanes {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        if transfer.bytes > 0 {
            launch.memory(transfer.address(), transfer.bytes, transfer.sends == 0)?;
        }
        for lane in 0..transfer.lanes {
            let mut lane =
                Lane { launch, buffers: &buffers, transfer, lane, number: 0, first: 0, awaits: None, ended: false };
            lane.first = lane.counter().load(Ordering::Relaxed);
            lane.number = lane.first;
            lanes.push(lane);
        }
    }
    if buffers.check().is_err() {
        return Ok(());
    }
    // An abort was already reported.
    let _ = run_lanes(&mut lanes);
    Ok(())
}

/// Transfers the chunks of all lanes; no lane waits for another.
fn run_lanes(lanes: &mut [Lane<'_>]) -> Result<(), Aborted> {
    let mut backoff = Backoff::new();
    loop {
        let mut progressed = false;
        for lane in lanes.iter_mut().filter(|lane| !lane.ended) {
            progressed |= lane.transfer_chunk()?;
        }
        let Some(waiting) = lanes.iter().find(|lane| !lane.ended) else { return Ok(()) };
        if progressed {
            backoff = Backoff::new();
        } else {
            backoff.pause(|start| waiting.buffers.check_wait(start, waiting.transfer.peer))?;
        }
    }
}

impl Lane<'_> {
    fn sends(&self) -> bool {
        self.transfer.sends != 0
    }

    fn counter(&self) -> &AtomicU64 {
        let base = if self.sends() { offsets::SENT } else { offsets::RECEIVED };
        self.buffers.word64(self.buffers.0.rank, base + u64::from(self.transfer.peer * LANES + self.lane) * 8)
    }

    /// Transfers one chunk if the peer is ready. Returns whether it did.
    fn transfer_chunk(&mut self) -> Result<bool, Aborted> {
        let (buffers, t) = (self.buffers, self.transfer);
        let (rank, entry) = (buffers.0.rank, u64::from(buffers.0.entry));
        let (peer_counter, own_counter) =
            if self.sends() { (offsets::TAKEN, offsets::ARRIVED) } else { (offsets::ARRIVED, offsets::TAKEN) };
        let peer_count =
            buffers.word64(rank, peer_counter + u64::from(t.peer * LANES + self.lane) * 8).load(Ordering::Acquire);
        let entries = u64::from(ENTRIES);
        let needed = match self.awaits {
            Some(number) => number,
            None if self.sends() => (self.number + 1).saturating_sub(entries),
            None => self.number + 1,
        };
        if peer_count < needed {
            return Ok(false);
        }
        if let Some(number) = self.awaits {
            self.end(number);
            return Ok(true);
        }
        let (from, at) = if self.sends() { (rank, t.peer) } else { (t.peer, rank) };
        let entry_index = self.number % entries;
        let index = u64::from(from * buffers.0.lanes + self.lane) * entries + entry_index;
        let staged = u64::from(buffers.0.size) * 2 * u64::from(buffers.0.slot);
        let chunk = (buffers.0.windows[at as usize] + offsets::STAGING + staged + index * entry) as *mut u8;
        let header_offset = offsets::RING_HEADERS + (u64::from(from * LANES + self.lane) * entries + entry_index) * 64;
        let mut header = [u64::from(TRANSFER) | u64::from(t.element) << 16, t.bytes, u64::from(t.lanes), t.place];
        let (begin, end) = self.part();
        let offset = (begin + (self.number - self.first) * entry).min(end);
        let bytes = (end - offset).min(entry);
        let memory = t.address().wrapping_add(offset);
        // What is read where it is counts as all chunks of the lane.
        let mut taken = 1;
        if self.sends() {
            if t.place == 0 {
                copy(memory as *const u8, chunk, bytes);
            } else {
                self.awaits = Some(self.number + t.chunks);
            }
            buffers.write_header(t.peer, header_offset, &header);
        } else {
            // Only the sender knows the place.
            header[3] = buffers.word64(rank, header_offset + 24).load(Ordering::Relaxed);
            buffers.compare(header_offset, &header, t.peer)?;
            match header[3] {
                0 => copy(chunk, memory as *mut u8, bytes),
                place => {
                    self.read_registered(place, &header)?;
                    taken = t.chunks;
                }
            }
        }
        let own_count = buffers.word64(t.peer, own_counter + u64::from(rank * LANES + self.lane) * 8);
        own_count.store(self.number + taken, Ordering::Release);
        if self.awaits.is_none() {
            self.number += taken;
            if self.number >= self.first + t.chunks {
                self.end(self.number);
            }
        }
        Ok(true)
    }

    /// Returns where the lane's part of the bytes begins and ends.
    fn part(&self) -> (u64, u64) {
        let t = self.transfer;
        let begin = t.part.saturating_mul(u64::from(self.lane)).min(t.bytes);
        (begin, begin.saturating_add(t.part).min(t.bytes))
    }

    /// Ends the lane after so many chunks.
    fn end(&mut self, number: u64) {
        self.ended = true;
        self.counter().store(number, Ordering::Relaxed);
    }

    /// Reads this lane's part of what the other rank sends, where it is.
    fn read_registered(&self, place: u64, header: &Header) -> Result<(), Aborted> {
        let (buffers, t) = (self.buffers, self.transfer);
        let (begin, end) = self.part();
        let source =
            buffers.find_place(place, t.peer).filter(|source| self.launch.memory(*source, t.bytes, false).is_ok());
        let Some(source) = source else {
            buffers.abort(Reason::Mismatch.word(t.peer), buffers.0.rank, Some((header, header)));
            return Err(Aborted);
        };
        copy((source + begin) as *const u8, (t.address() + begin) as *mut u8, end - begin);
        Ok(())
    }
}

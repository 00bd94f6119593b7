//! Transfers between two ranks.

use super::{
    super::parameter,
    symmetric_buffers::{Backoff, GroupFailed, Header, SymmetricBuffers, copy},
};
use crate::{
    driver::{
        codes,
        group::{ENTRIES, LANES, Reason, TRANSFER, Transfer, Transfers, offsets},
        table::Code,
    },
    kernels::Launch,
};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

/// The bytes of a header, and the offset of the number that tells that it is there.
const HEADER_BYTES: u64 = 64;
const HEADER_NUMBER: u64 = 32;
/// How often lanes are tried before the waits of all are checked.
const ROUNDS_PER_CHECK: u64 = 256;

/// A lane of a transfer.
struct Lane<'a> {
    buffers: &'a SymmetricBuffers<'a>,
    transfer: &'a Transfer,
    lane: u32,
    launch: &'a Launch,
    /// The number of chunks that the lane has transferred, and how many of them by earlier launches.
    done: u64,
    first: u64,
    next: Step,
    /// When it began to wait for its peer, if that was noticed.
    waits_since: Option<Instant>,
}

/// What a lane does next. It ends after all chunks.
#[derive(Clone, Copy)]
enum Step {
    /// The sender sends its header, for which there must be room; the receiver waits for it.
    SenderHeader,
    /// In a rendezvous: the receiver sends its header, the sender waits for it.
    ReceiverHeader,
    /// Chunks go through the ring.
    Chunks,
    /// The receiver waits until the sender has written all data to its registered memory.
    Written,
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
            let mut lane = Lane {
                launch,
                buffers: &buffers,
                transfer,
                lane,
                done: 0,
                first: 0,
                next: Step::SenderHeader,
                waits_since: None,
            };
            lane.first = lane.counter().load(Ordering::Relaxed);
            lane.done = lane.first;
            if !lane.sends() && lane.is_rendezvous() {
                lane.next = Step::ReceiverHeader;
            }
            lanes.push(lane);
        }
    }
    if buffers.check().is_err() {
        return Ok(());
    }
    // A failure was already reported.
    let _ = run_lanes(&mut lanes);
    Ok(())
}

/// Transfers the chunks of all lanes; no lane waits for another.
fn run_lanes(lanes: &mut [Lane<'_>]) -> Result<(), GroupFailed> {
    let mut backoff = Backoff::new();
    for round in 0u64.. {
        let mut progressed = false;
        for lane in lanes.iter_mut().filter(|lane| !lane.has_ended()) {
            if lane.advance()? {
                (lane.waits_since, progressed) = (None, true);
            }
        }
        if lanes.iter().all(Lane::has_ended) {
            break;
        }
        if progressed {
            backoff = Backoff::new();
        } else {
            backoff.pause(|_| check_waits(lanes))?;
        }
        // A lane may wait too long while others go on.
        if round % ROUNDS_PER_CHECK == 0 {
            check_waits(lanes)?;
        }
    }
    Ok(())
}

/// Fails if the wait of a lane must end.
fn check_waits(lanes: &mut [Lane<'_>]) -> Result<(), GroupFailed> {
    lanes.iter_mut().filter(|lane| !lane.has_ended()).try_for_each(|lane| {
        let since = *lane.waits_since.get_or_insert_with(Instant::now);
        lane.buffers.check_wait(since, lane.transfer.peer)
    })
}

impl Lane<'_> {
    fn sends(&self) -> bool {
        self.transfer.sends != 0
    }

    fn is_rendezvous(&self) -> bool {
        self.buffers.group_info.is_rendezvous(self.transfer.bytes)
    }

    fn has_ended(&self) -> bool {
        self.done == self.first + self.transfer.chunks
    }

    fn counter(&self) -> &AtomicU64 {
        self.count(if self.sends() { offsets::SENT } else { offsets::RECEIVED })
    }

    /// Returns a count of this lane in this rank's buffer.
    fn count(&self, base: u64) -> &AtomicU64 {
        self.buffers.word64(self.buffers.group_info.rank, base + u64::from(self.transfer.peer * LANES + self.lane) * 8)
    }

    /// Does the next step if the peer is ready. Returns whether it did.
    fn advance(&mut self) -> Result<bool, GroupFailed> {
        match self.next {
            Step::SenderHeader => self.pass_sender_header(),
            Step::ReceiverHeader => self.pass_receiver_header(),
            Step::Chunks => self.transfer_chunk(),
            Step::Written => {
                let last = self.first + self.transfer.chunks;
                let arrived = self.count(offsets::ARRIVED).load(Ordering::Acquire) >= last;
                if arrived {
                    self.publish_chunks(last);
                }
                Ok(arrived)
            }
        }
    }

    /// Returns the sender's rank, and the receiver's.
    fn ranks(&self) -> (u32, u32) {
        let (own, peer) = (self.buffers.group_info.rank, self.transfer.peer);
        if self.sends() { (own, peer) } else { (peer, own) }
    }

    fn pass_sender_header(&mut self) -> Result<bool, GroupFailed> {
        let (from, to) = self.ranks();
        let entry_index = self.first % u64::from(ENTRIES);
        let at = offsets::RING_HEADERS
            + (u64::from(from * LANES + self.lane) * u64::from(ENTRIES) + entry_index) * HEADER_BYTES;
        if self.sends() {
            let taken = self.count(offsets::CONSUMED).load(Ordering::Acquire);
            if taken + u64::from(ENTRIES) <= self.first {
                return Ok(false);
            }
            self.send_header(to, at);
        } else if self.receive_header(at)?.is_none() {
            return Ok(false);
        }
        self.next = match (self.is_rendezvous(), self.sends()) {
            (true, true) => Step::ReceiverHeader,
            (true, false) if self.transfer.place != 0 => Step::Written,
            _ => Step::Chunks,
        };
        Ok(true)
    }

    fn pass_receiver_header(&mut self) -> Result<bool, GroupFailed> {
        let (from, to) = self.ranks();
        let at = offsets::RECEIVER_HEADERS + u64::from(to * LANES + self.lane) * HEADER_BYTES;
        if !self.sends() {
            self.send_header(from, at);
            self.next = Step::SenderHeader;
            return Ok(true);
        }
        let Some(place) = self.receive_header(at)? else { return Ok(false) };
        if place == 0 {
            self.next = Step::Chunks;
        } else {
            self.write_registered(place)?;
            self.publish_chunks(self.first + self.transfer.chunks);
        }
        Ok(true)
    }

    fn header(&self) -> Header {
        let t = self.transfer;
        [u64::from(TRANSFER) | u64::from(t.element) << 16, t.bytes, u64::from(t.lanes), t.place]
    }

    /// Sends this rank's header, with the number of the first chunk behind it.
    fn send_header(&self, rank: u32, at: u64) {
        self.buffers.write_header(rank, at, &self.header());
        self.buffers.word64(rank, at + HEADER_NUMBER).store(self.first + 1, Ordering::Release);
    }

    /// Compares the header of the peer if it is there, but for the place, which only the receiver knows. Returns the place. A
    /// sender whose header differs waits until the receiver has reported how.
    fn receive_header(&self, at: u64) -> Result<Option<u64>, GroupFailed> {
        let word = |index: u64| self.buffers.word64(self.buffers.group_info.rank, at + index * 8);
        if word(HEADER_NUMBER / 8).load(Ordering::Acquire) != self.first + 1 {
            return Ok(None);
        }
        let place = word(3).load(Ordering::Relaxed);
        let mut expected = self.header();
        expected[3] = place;
        let is_same = || (0..).zip(expected).all(|(index, own)| word(index).load(Ordering::Relaxed) == own);
        if self.sends() && !is_same() {
            return Ok(None);
        }
        self.buffers.compare(at, &expected, self.transfer.peer)?;
        Ok(Some(place))
    }

    /// Transfers one chunk if the peer is ready. Returns whether it did.
    fn transfer_chunk(&mut self) -> Result<bool, GroupFailed> {
        let (group_info, t) = (self.buffers.group_info, self.transfer);
        let (entry, entries) = (u64::from(group_info.entry), u64::from(ENTRIES));
        let (peer_counter, needed) = match self.sends() {
            true => (offsets::CONSUMED, (self.done + 1).saturating_sub(entries)),
            false => (offsets::ARRIVED, self.done + 1),
        };
        if self.count(peer_counter).load(Ordering::Acquire) < needed {
            return Ok(false);
        }
        let (from, to) = self.ranks();
        let index = u64::from(from * group_info.lanes + self.lane) * entries + self.done % entries;
        let staged = u64::from(group_info.size) * 2 * u64::from(group_info.slot);
        let chunk = (group_info.buffers[to as usize] + offsets::STAGING + staged + index * entry) as *mut u8;
        let (begin, end) = self.part();
        let offset = (begin + (self.done - self.first) * entry).min(end);
        let bytes = (end - offset).min(entry);
        let memory = t.address().wrapping_add(offset);
        // SAFETY: the transfer's memory was checked before the launch, and a chunk of a lane, whose number is less than the group
        // has, is within the buffers that `SymmetricBuffers::of` checked.
        unsafe {
            match self.sends() {
                true => copy(memory as *const u8, chunk, bytes),
                false => copy(chunk, memory as *mut u8, bytes),
            }
        }
        self.publish_chunks(self.done + 1);
        Ok(true)
    }

    /// Returns where the lane's part of the bytes begins and ends.
    fn part(&self) -> (u64, u64) {
        let t = self.transfer;
        let begin = t.part.saturating_mul(u64::from(self.lane)).min(t.bytes);
        (begin, begin.saturating_add(t.part).min(t.bytes))
    }

    /// Publishes how many chunks this rank has transferred, and stores it for the next launch if they are all.
    fn publish_chunks(&mut self, done: u64) {
        let base = if self.sends() { offsets::ARRIVED } else { offsets::CONSUMED };
        let at = base + u64::from(self.buffers.group_info.rank * LANES + self.lane) * 8;
        self.done = done;
        if self.has_ended() {
            self.counter().store(done, Ordering::Relaxed);
        }
        self.buffers.word64(self.transfer.peer, at).store(done, Ordering::Release);
    }

    /// Writes this lane's part to the registered memory of the receiver.
    fn write_registered(&self, place: u64) -> Result<(), GroupFailed> {
        let (buffers, t) = (self.buffers, self.transfer);
        let (begin, end) = self.part();
        let target =
            buffers.find_place(place, t.peer).filter(|target| self.launch.memory(*target, t.bytes, true).is_ok());
        let Some(target) = target else {
            let mut header = self.header();
            header[3] = place;
            buffers.fail(Reason::Mismatch.word(t.peer), buffers.group_info.rank, Some((&header, &header)));
            return Err(GroupFailed);
        };
        // SAFETY: the transfer's memory was checked before the launch, and the target above.
        unsafe { copy((t.address() + begin) as *const u8, (target + begin) as *mut u8, end - begin) };
        Ok(())
    }
}

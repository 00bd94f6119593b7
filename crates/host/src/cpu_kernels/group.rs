//! Collectives between processes, with the same symmetric buffers and the same synchronization as kernels/group.cu,
//! which documents the protocol.
//!
//! A launch is one thread that does the work of all blocks, so only the flags of block 0 are used. There are no packets:
//! short messages go through the slots, too, and short transfers through the chunks; headers are plain words before the
//! flags, in front of each chunk of a transfer. These CPU kernels may wait for other processes and run on threads that may
//! block.

use super::{
    Parameter,
    combine::{self, Number},
    parameter,
};
use crate::{
    driver::{
        codes,
        group::{
            Collective, ENTRIES, GroupInfo, LANES, MAX_RANKS, Mode, Reason, ReportPage, TRANSFER, Transfer, Transfers,
            WINDOW_BYTES, WINDOWS_LISTED, offsets, read_place,
        },
        table::Code,
    },
    kernels::{HostKernel, Launch, Run},
};
use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

// SAFETY: all of its fields are integers.
unsafe impl Parameter for Collective {}
// SAFETY: all of its fields are integers.
unsafe impl Parameter for Transfers {}

/// Combines elements; see [`combine::combine`].
type Combine = unsafe fn(&[*const u8], &mut [u8], u32);

macro_rules! group {
    ($( $name:literal $combine:expr; )*) => {
        /// The kernels that may wait for other ranks.
        pub static KERNELS: &[HostKernel] = &[
            $( HostKernel {
                name: $name,
                parameter_sizes: &[size_of::<Collective>()],
                run: Run::Waiting(|launch| collective(launch, $combine)),
            }, )*
            HostKernel {
                name: "plinth_group_transfer",
                parameter_sizes: &[size_of::<Transfers>()],
                run: Run::Waiting(|launch| transfers(launch).unwrap_or_else(|error| launch.fail(error))),
            },
        ];
    };
}

const fn of<N: Number>() -> Option<Combine> {
    Some(combine::combine::<N>)
}

group! {
    "plinth_group_copy" None;
    "plinth_group_f16" of::<combine::Half>();
    "plinth_group_bf16" of::<combine::Brain>();
    "plinth_group_f32" of::<combine::Single>();
    "plinth_group_f64" of::<combine::Double>();
    "plinth_group_u8" of::<u8>();
    "plinth_group_i8" of::<i8>();
    "plinth_group_u16" of::<u16>();
    "plinth_group_i16" of::<i16>();
    "plinth_group_u32" of::<u32>();
    "plinth_group_i32" of::<i32>();
    "plinth_group_u64" of::<u64>();
    "plinth_group_i64" of::<i64>();
    "plinth_group_bool" of::<combine::Bool>();
    "plinth_group_c64" of::<combine::Complex64>();
    "plinth_group_c128" of::<combine::Complex128>();
}

/// The group was aborted. The launch ends, and the reason was reported.
struct Aborted;

type Header = [u64; 4];

/// The symmetric buffers of a group, all of which this launch may access.
struct SymmetricBuffers<'a>(&'a GroupInfo);

impl SymmetricBuffers<'_> {
    fn of<'a>(launch: &Launch, group_info: &'a GroupInfo) -> Result<SymmetricBuffers<'a>, Code> {
        let size = group_info.size as usize;
        let staging_end = offsets::STAGING + u64::from(group_info.size) * 2 * u64::from(group_info.slot);
        let ring = u64::from(group_info.size * group_info.lanes * ENTRIES) * u64::from(group_info.entry);
        if size > MAX_RANKS
            || group_info.lanes > LANES
            || group_info.rank >= group_info.size
            || group_info.window_bytes < staging_end + ring
        {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        for window in &group_info.windows[..size] {
            launch.memory(*window, group_info.window_bytes, true)?;
        }
        launch.memory(group_info.report, size_of::<ReportPage>() as u64, true)?;
        Ok(SymmetricBuffers(group_info))
    }

    fn word32(&self, rank: u32, at: u64) -> &AtomicU32 {
        let address = self.0.windows[rank as usize] + at;
        // SAFETY: the address is in a buffer that `of` found accessible, at a multiple of 4; all ranks use it as an
        // atomic.
        unsafe { AtomicU32::from_ptr(address as *mut u32) }
    }

    fn word64(&self, rank: u32, at: u64) -> &AtomicU64 {
        let address = self.0.windows[rank as usize] + at;
        // SAFETY: as above, at a multiple of 8.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }
    }

    fn report(&self) -> &ReportPage {
        // SAFETY: `of` found the report accessible; all accesses to its fields are atomic.
        unsafe { &*(self.0.report as *const ReportPage) }
    }

    fn slot(&self, at: u32, step: u64, from: u32) -> *mut u8 {
        let index = (step & 1) * u64::from(self.0.size) + u64::from(from);
        (self.0.windows[at as usize] + offsets::STAGING + index * u64::from(self.0.slot)) as *mut u8
    }

    /// Returns the address in this process of a place in the registered memory of a rank.
    fn find_place(&self, place: u64, rank: u32) -> Option<u64> {
        let (number, offset) = read_place(place)?;
        let row = offsets::WINDOWS + number % WINDOWS_LISTED * WINDOW_BYTES;
        let word = |index: u64| self.word64(self.0.rank, row + index * 8).load(Ordering::Relaxed);
        (word(0) == number).then(|| word(1 + u64::from(rank)) + offset)
    }

    /// Aborts the group. The first call reports its reason and notifies the other ranks.
    fn abort(&self, word: u32, by: u32, headers: Option<(&Header, &Header)>) {
        let failed = self.word32(self.0.rank, offsets::FAILED);
        if failed.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return;
        }
        let report = self.report();
        report.by.store(by, Ordering::Relaxed);
        if let Some((own, other)) = headers {
            for index in 0..4 {
                report.own[index].store(own[index], Ordering::Relaxed);
                report.other[index].store(other[index], Ordering::Relaxed);
            }
        }
        report.word.store(word, Ordering::Release);
        for peer in (0..self.0.size).filter(|peer| *peer != self.0.rank) {
            self.word32(peer, offsets::POISON + u64::from(self.0.rank) * 4).store(word, Ordering::Release);
        }
    }

    /// Fails if the group was aborted, here or by another rank. Otherwise data that arrived before its rank failed
    /// would let this rank continue without it.
    fn check(&self) -> Result<(), Aborted> {
        let group_info = self.0;
        let poison =
            |rank: &u32| self.word32(group_info.rank, offsets::POISON + u64::from(*rank) * 4).load(Ordering::Acquire);
        if let Some(rank) = (0..group_info.size).find(|rank| poison(rank) != 0) {
            self.abort(poison(&rank), rank, None);
        }
        if self.word32(group_info.rank, offsets::FAILED).load(Ordering::Acquire) != 0 { Err(Aborted) } else { Ok(()) }
    }

    /// Fails if a wait for `peer` since `start` must end: by an abort, a stop request or the timeout.
    fn check_wait(&self, start: Instant, peer: u32) -> Result<(), Aborted> {
        self.check()?;
        let group_info = self.0;
        let mut word = self.report().stop.load(Ordering::Acquire);
        if word == 0 && group_info.timeout != 0 && start.elapsed() > Duration::from_nanos(group_info.timeout) {
            word = Reason::Timeout.word(peer);
        }
        if word == 0 {
            return Ok(());
        }
        self.abort(word, group_info.rank, None);
        Err(Aborted)
    }

    /// Waits until a number that `peer` writes is at least `value`.
    fn wait(&self, number: &AtomicU64, value: u64, peer: u32) -> Result<(), Aborted> {
        let mut backoff = Backoff::new();
        while number.load(Ordering::Acquire) < value {
            backoff.pause(|start| self.check_wait(start, peer))?;
        }
        Ok(())
    }

    fn write_header(&self, rank: u32, at: u64, header: &Header) {
        for (index, word) in header.iter().enumerate() {
            self.word64(rank, at + index as u64 * 8).store(*word, Ordering::Relaxed);
        }
    }

    /// Aborts the group if another rank's header differs.
    fn compare(&self, at: u64, header: &Header, peer: u32) -> Result<(), Aborted> {
        let other =
            std::array::from_fn(|index| self.word64(self.0.rank, at + index as u64 * 8).load(Ordering::Relaxed));
        if other == *header {
            return Ok(());
        }
        self.abort(Reason::Mismatch.word(peer), self.0.rank, Some((header, &other)));
        Err(Aborted)
    }
}

/// Backoff of a waiting thread: it spins, then yields, then sleeps for short intervals.
struct Backoff {
    pauses: u32,
    start: Option<Instant>,
}

impl Backoff {
    fn new() -> Backoff {
        Backoff { pauses: 0, start: None }
    }

    fn pause(&mut self, check: impl FnOnce(Instant) -> Result<(), Aborted>) -> Result<(), Aborted> {
        self.pauses += 1;
        match self.pauses {
            0..32 => std::hint::spin_loop(),
            32..128 => std::thread::yield_now(),
            _ => {
                check(*self.start.get_or_insert_with(Instant::now))?;
                std::thread::sleep(Duration::from_micros(40));
            }
        }
        Ok(())
    }
}

/// Copies between a program's memory and a symmetric buffer.
fn copy(from: *const u8, to: *mut u8, bytes: u64) {
    // SAFETY: the launch checked access to both for all of its parameters; a symmetric buffer and a program's memory do
    // not overlap.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes as usize) };
}

/// Returns the number of bytes of a rank's part of a chunk.
fn part_bytes(bytes: u64, each: u64, rank: u32) -> u64 {
    bytes.saturating_sub(each * u64::from(rank)).min(each)
}

/// Returns how many bytes of registered memory of each rank this rank uses.
fn registered_bytes(c: &Collective, mode: Mode) -> u64 {
    let is_root = c.group_info.rank == c.root;
    match mode {
        Mode::BroadcastParts => return c.bytes,
        Mode::ReduceParts if !c.direct().is_none() => {
            let each = c.bytes.div_ceil(u64::from(c.group_info.size - 1)).next_multiple_of(16);
            return if is_root { c.bytes } else { c.bytes.saturating_sub(c.direct().target).min(each) };
        }
        _ => {}
    }
    part_bytes(c.bytes, mode.part(c.bytes, c.group_info.size), if mode.has_parts() { c.group_info.rank } else { 0 })
}

fn collective(launch: &Launch, combine: Option<Combine>) {
    let run = || {
        let c = parameter::<Collective>(launch, 0)?;
        let buffers = SymmetricBuffers::of(launch, &c.group_info)?;
        let mode = *Mode::ALL.get(c.mode as usize).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
        let (read, written) = mode.rows(c.group_info.rank, c.root, c.group_info.size);
        let (from, to) = c.memory();
        for (address, rows, write) in [(from, read, false), (to, written, true)] {
            let bytes = rows.checked_mul(c.bytes).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
            if bytes > 0 {
                launch.memory(address, bytes, write)?;
            }
        }
        let part = registered_bytes(&c, mode);
        let (inputs, outputs) = c.direct().memory();
        for (addresses, write) in [(inputs, false), (outputs, true)] {
            for address in addresses.iter().filter(|address| part > 0 && **address != 0) {
                launch.memory(*address, part, write)?;
            }
        }
        if buffers.check().is_ok() {
            let call = Call { launch, c: &c, buffers: &buffers, mode, combine, blocks: launch.grid[0] };
            // An abort was already reported.
            let _ = call.run();
        }
        Ok(())
    };
    run().unwrap_or_else(|error| launch.fail(error));
}

/// One call of a collective.
struct Call<'a> {
    launch: &'a Launch,
    c: &'a Collective,
    buffers: &'a SymmetricBuffers<'a>,
    mode: Mode,
    combine: Option<Combine>,
    blocks: u32,
}

impl Call<'_> {
    fn run(&self) -> Result<(), Aborted> {
        let (c, buffers) = (self.c, self.buffers);
        let (rank, size) = (c.group_info.rank, c.group_info.size);
        let steps = buffers.word64(rank, offsets::STEPS);
        let calls = buffers.word64(rank, offsets::CALLS);
        let (mut step, call) = (steps.load(Ordering::Relaxed), calls.load(Ordering::Relaxed));
        let (from, to) = c.memory();
        if !c.direct().is_none() {
            steps.store(self.run_registered(step, call)?, Ordering::Relaxed);
            calls.store(call + 1, Ordering::Relaxed);
            return Ok(());
        }
        let is_root = rank == c.root;
        let to_root = matches!(self.mode, Mode::Reduce | Mode::ReduceParts);
        let sends_data = !matches!(self.mode, Mode::Broadcast | Mode::BroadcastParts) || is_root;
        let receives_data = !to_root || is_root;
        let ranks = if to_root { c.root..c.root + 1 } else { 0..size };
        let by_rows = matches!(self.mode, Mode::AllToAll | Mode::ReduceScatter);
        let slot = u64::from(c.group_info.slot);
        let max_bytes = if self.mode.has_parts() { slot * u64::from(size) } else { slot };
        let mut offset = 0;
        loop {
            let bytes = (c.bytes - offset).min(max_bytes);
            let each = self.mode.part(bytes, size);
            let begins = offset == 0;
            let row_address = |row: u32| from + offset + if by_rows { u64::from(row) * c.bytes } else { 0 };
            if self.mode.has_parts() {
                for peer in (0..size).filter(|_| sends_data) {
                    let part = from + offset + each * u64::from(peer);
                    copy(part as *const u8, buffers.slot(peer, step, rank), part_bytes(bytes, each, peer));
                }
                self.synchronize(step, begins, call)?;
                let part = self.own_part(&self.slots(step), part_bytes(bytes, each, rank));
                step += 1;
                for peer in ranks.clone() {
                    copy(part.as_ptr(), buffers.slot(peer, step, rank), part.len() as u64);
                }
                self.synchronize(step, false, call)?;
                for peer in (0..size).filter(|_| receives_data) {
                    let part = to + offset + each * u64::from(peer);
                    copy(buffers.slot(rank, step, peer), part as *mut u8, part_bytes(bytes, each, peer));
                }
            } else {
                for peer in ranks.clone().filter(|_| sends_data) {
                    copy(row_address(peer) as *const u8, buffers.slot(peer, step, rank), bytes);
                }
                self.synchronize(step, begins, call)?;
                match self.mode {
                    Mode::Gather | Mode::AllToAll => {
                        for peer in 0..size {
                            let row = to + u64::from(peer) * c.bytes + offset;
                            copy(buffers.slot(rank, step, peer), row as *mut u8, bytes);
                        }
                    }
                    _ if receives_data => {
                        copy(self.own_part(&self.slots(step), bytes).as_ptr(), (to + offset) as *mut u8, bytes)
                    }
                    _ => {}
                }
            }
            step += 1;
            offset += bytes;
            if offset >= c.bytes {
                break;
            }
        }
        steps.store(step, Ordering::Relaxed);
        calls.store(call + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the inputs, and writes the outputs, where they are. Returns the number of steps of all collectives so far.
    fn run_registered(&self, step: u64, call: u64) -> Result<u64, Aborted> {
        let (c, size) = (self.c, self.c.group_info.size);
        let (inputs, outputs) = c.direct().memory();
        let (_, to) = c.memory();
        self.synchronize(step, true, call)?;
        let mut step = step + 1;
        match self.mode {
            Mode::BroadcastParts => step = self.broadcast(step)?,
            Mode::AllToAll => {
                for (row, input) in (0..size).zip(inputs) {
                    copy(*input as *const u8, (to + u64::from(row) * c.bytes) as *mut u8, c.bytes);
                }
            }
            Mode::ReduceParts => self.reduce(call)?,
            _ => {
                let inputs: Vec<*const u8> = inputs.iter().map(|address| *address as *const u8).collect();
                let part = self.own_part(&inputs, registered_bytes(c, self.mode));
                for output in
                    if self.mode == Mode::ReduceScatter { std::slice::from_ref(&to) } else { &outputs[..size as usize] }
                {
                    copy(part.as_ptr(), *output as *mut u8, part.len() as u64);
                }
            }
        }
        self.synchronize(step, false, call)?;
        Ok(step + 1)
    }

    /// Combines this rank's part of the inputs, and writes it to the root's output. If that has no place, the root does all.
    fn reduce(&self, call: u64) -> Result<(), Aborted> {
        let (c, buffers) = (self.c, self.buffers);
        let GroupInfo { rank, size, .. } = c.group_info;
        let place = buffers.word64(rank, offsets::TARGETS + (call & 1) * 8).load(Ordering::Relaxed);
        if (rank == c.root) != (place == 0) {
            return Ok(());
        }
        let bytes = registered_bytes(c, self.mode);
        let mut to = c.memory().1;
        if rank != c.root {
            let found = buffers.find_place(place, c.root).map(|to| to + c.direct().target);
            let Some(found) = found.filter(|to| bytes == 0 || self.launch.memory(*to, bytes, true).is_ok()) else {
                let header = self.header();
                buffers.abort(Reason::Mismatch.word(c.root), rank, Some((&header, &header)));
                return Err(Aborted);
            };
            to = found;
        }
        let inputs: Vec<*const u8> =
            c.direct().memory().0[..size as usize].iter().map(|input| *input as *const u8).collect();
        copy(self.own_part(&inputs, bytes).as_ptr(), to as *mut u8, bytes);
        Ok(())
    }

    /// Copies the root's row into the outputs of all ranks: the root writes a part to each other rank, which forwards it to
    /// the rest, one piece after another. Returns the step after these.
    fn broadcast(&self, mut step: u64) -> Result<u64, Aborted> {
        let (c, buffers) = (self.c, self.buffers);
        let GroupInfo { rank, size, piece, .. } = c.group_info;
        let ((from, to), (_, outputs)) = (c.memory(), c.direct().memory());
        let (is_root, receivers) = (rank == c.root, size - 1);
        let each = c.bytes.div_ceil(u64::from(receivers)).next_multiple_of(16);
        let piece = u64::from(piece.max(16)) * u64::from(self.blocks);
        let peers = (1..size).map(|distance| (c.root + distance) % size);
        for offset in (0..each).step_by(piece as usize) {
            if !is_root {
                let flag = buffers.word64(rank, offsets::FLAGS + u64::from(c.root) * 8);
                buffers.wait(flag, step + 1, c.root)?;
            }
            for (index, peer) in (0..).zip(peers.clone()) {
                let start = each * index + offset;
                let bytes = c.bytes.saturating_sub(start).min(piece.min(each - offset));
                let write = |source: u64, to: u64| {
                    if source != to && bytes > 0 {
                        copy((source + start) as *const u8, (to + start) as *mut u8, bytes);
                    }
                };
                if is_root {
                    write(from, outputs[peer as usize]);
                    write(from, to);
                    buffers.word64(peer, offsets::FLAGS + u64::from(rank) * 8).store(step + 1, Ordering::Release);
                } else if peer == rank {
                    peers.clone().for_each(|other| write(to, outputs[other as usize]));
                }
            }
            step += 1;
        }
        Ok(step)
    }

    /// Returns the addresses of the data of all ranks in this rank's slots.
    fn slots(&self, step: u64) -> Vec<*const u8> {
        let slot = |peer| self.buffers.slot(self.c.group_info.rank, step, peer).cast_const();
        (0..self.c.group_info.size).map(slot).collect()
    }

    /// Returns this rank's part: the reduction of all ranks' data, or the root's data.
    fn own_part(&self, sources: &[*const u8], bytes: u64) -> Vec<u8> {
        let mut part = vec![0; bytes as usize];
        match self.combine {
            None => copy(sources[self.c.root as usize], part.as_mut_ptr(), bytes),
            // SAFETY: a source has the bytes of the part: it is a slot, or was checked with the parameters.
            Some(combine) => unsafe {
                combine(&sources[..self.c.group_info.size as usize], &mut part, self.c.op);
            },
        }
        part
    }

    /// Returns the description of this call.
    fn header(&self) -> Header {
        let c = self.c;
        let kind = u64::from(c.mode | c.op << 8 | c.element << 16 | c.root << 24) | u64::from(self.blocks) << 32;
        let [input, output] = c.direct().places;
        [kind, c.count, input, output]
    }

    /// Signals that this rank's part of a step is written, and waits for the other ranks' parts.
    fn synchronize(&self, step: u64, begins: bool, call: u64) -> Result<(), Aborted> {
        let (c, buffers) = (self.c, self.buffers);
        let rank = u64::from(c.group_info.rank);
        let headers = offsets::HEADERS + (call & 1) * MAX_RANKS as u64 * 32;
        let header = self.header();
        let sends_target = begins && c.group_info.rank == c.root && !c.direct().is_none();
        for peer in 0..c.group_info.size {
            if sends_target {
                buffers.word64(peer, offsets::TARGETS + (call & 1) * 8).store(c.direct().target, Ordering::Relaxed);
            }
            if begins {
                buffers.write_header(peer, headers + rank * 32, &header);
            }
            buffers.word64(peer, offsets::FLAGS + rank * 8).store(step + 1, Ordering::Release);
        }
        for peer in 0..c.group_info.size {
            let flag = buffers.word64(c.group_info.rank, offsets::FLAGS + u64::from(peer) * 8);
            buffers.wait(flag, step + 1, peer)?;
            if begins {
                buffers.compare(headers + u64::from(peer) * 32, &header, peer)?;
            }
        }
        Ok(())
    }
}

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

fn transfers(launch: &Launch) -> Result<(), Code> {
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

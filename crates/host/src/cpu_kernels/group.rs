//! Collectives between processes, with the same symmetric buffers and the same synchronization as kernels/group.cu,
//! which documents the protocol.
//!
//! A launch is one thread that does the work of all blocks, so only the flags of block 0 are used. There are no packets:
//! short messages go through the slots, too, and short transfers through the chunks; headers are plain words, which a flag
//! or a number behind them publishes. These CPU kernels may wait for other processes and run on threads that may block.

mod symmetric_buffers;
mod transfer;

use super::{
    Parameter,
    combine::{self, Number},
    parameter,
};
use crate::{
    driver::{
        codes,
        group::{Collective, GroupInfo, MAX_RANKS, Mode, Reason, Transfers, offsets},
    },
    kernels::{HostKernel, Launch, Run},
};
use std::sync::atomic::Ordering;
use symmetric_buffers::{Backoff, GroupFailed, Header, SymmetricBuffers, copy};

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
                run: Run::Waiting(|launch| transfer::run(launch).unwrap_or_else(|error| launch.fail(error))),
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
    "plinth_group_e4m3" of::<combine::E4m3>();
    "plinth_group_e5m2" of::<combine::E5m2>();
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
        if c.root >= c.group_info.size {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
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
            // A failure was already reported.
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
    fn run(&self) -> Result<(), GroupFailed> {
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
                    // SAFETY: of this rank's row, which was checked with the parameters, to a slot of this size.
                    unsafe { copy(part as *const u8, buffers.slot(peer, step, rank), part_bytes(bytes, each, peer)) };
                }
                self.synchronize(step, begins, call)?;
                let part = self.own_part(&self.slots(step), part_bytes(bytes, each, rank));
                step += 1;
                for peer in ranks.clone() {
                    // SAFETY: the part is not longer than a slot.
                    unsafe { copy(part.as_ptr(), buffers.slot(peer, step, rank), part.len() as u64) };
                }
                self.synchronize(step, false, call)?;
                for peer in (0..size).filter(|_| receives_data) {
                    let part = to + offset + each * u64::from(peer);
                    // SAFETY: of a slot of this size to this rank's output, which was checked with the parameters.
                    unsafe { copy(buffers.slot(rank, step, peer), part as *mut u8, part_bytes(bytes, each, peer)) };
                }
            } else {
                for peer in ranks.clone().filter(|_| sends_data) {
                    // SAFETY: of this rank's rows, which were checked with the parameters, to a slot of this size.
                    unsafe { copy(row_address(peer) as *const u8, buffers.slot(peer, step, rank), bytes) };
                }
                self.synchronize(step, begins, call)?;
                match self.mode {
                    Mode::AllGather | Mode::AllToAll => {
                        for peer in 0..size {
                            let row = to + u64::from(peer) * c.bytes + offset;
                            // SAFETY: of a slot of this size to the output, which was checked with the parameters.
                            unsafe { copy(buffers.slot(rank, step, peer), row as *mut u8, bytes) };
                        }
                    }
                    _ if receives_data => {
                        let part = self.own_part(&self.slots(step), bytes);
                        // SAFETY: the part has as many bytes, and the output was checked with the parameters.
                        unsafe { copy(part.as_ptr(), (to + offset) as *mut u8, bytes) }
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
    fn run_registered(&self, step: u64, call: u64) -> Result<u64, GroupFailed> {
        let (c, size) = (self.c, self.c.group_info.size);
        let (inputs, outputs) = c.direct().memory();
        let (from, to) = c.memory();
        self.synchronize(step, true, call)?;
        let mut step = step + 1;
        match self.mode {
            Mode::BroadcastParts => step = self.broadcast(step)?,
            Mode::AllToAll => {
                let writes = c.direct().places[1] != 0;
                for (row, (input, output)) in inputs.iter().zip(outputs).enumerate().take(size as usize) {
                    let offset = row as u64 * c.bytes;
                    let (from, to) = if writes { (from + offset, *output) } else { (*input, to + offset) };
                    // SAFETY: a row of each; both were checked with the parameters.
                    unsafe { copy(from as *const u8, to as *mut u8, c.bytes) };
                }
            }
            Mode::ReduceParts => self.reduce(call)?,
            _ => {
                let inputs: Vec<*const u8> = inputs.iter().map(|address| *address as *const u8).collect();
                let part = self.own_part(&inputs, registered_bytes(c, self.mode));
                for output in
                    if self.mode == Mode::ReduceScatter { std::slice::from_ref(&to) } else { &outputs[..size as usize] }
                {
                    // SAFETY: the part of the output, which was checked with the parameters, has as many bytes.
                    unsafe { copy(part.as_ptr(), *output as *mut u8, part.len() as u64) };
                }
            }
        }
        self.synchronize(step, false, call)?;
        Ok(step + 1)
    }

    /// Combines this rank's part of the inputs, and writes it to the root's output. If that has no place, the root does all.
    fn reduce(&self, call: u64) -> Result<(), GroupFailed> {
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
                buffers.fail(Reason::Mismatch.word(c.root), rank, Some((&header, &header)));
                return Err(GroupFailed);
            };
            to = found;
        }
        let inputs: Vec<*const u8> =
            c.direct().memory().0[..size as usize].iter().map(|input| *input as *const u8).collect();
        let part = self.own_part(&inputs, bytes);
        // SAFETY: the part has as many bytes; the output is the root's own, checked with the parameters, or was checked above.
        unsafe { copy(part.as_ptr(), to as *mut u8, bytes) };
        Ok(())
    }

    /// Copies the root's row into the outputs of all ranks: the root writes a part to each other rank, which forwards it to
    /// the rest, one piece after another. Returns the step after these.
    fn broadcast(&self, mut step: u64) -> Result<u64, GroupFailed> {
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
                        // SAFETY: a piece of the row and of an output; both were checked with the parameters.
                        unsafe { copy((source + start) as *const u8, (to + start) as *mut u8, bytes) };
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
            // SAFETY: as below.
            None => unsafe { copy(sources[self.c.root as usize], part.as_mut_ptr(), bytes) },
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
    fn synchronize(&self, step: u64, begins: bool, call: u64) -> Result<(), GroupFailed> {
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
        // In the order in which they arrive, so that a rank that is late hides no mismatch of the others.
        let mut missing: Vec<u32> = (0..c.group_info.size).collect();
        let mut backoff = Backoff::new();
        loop {
            let has_arrived = |peer: &u32| {
                let flag = buffers.word64(c.group_info.rank, offsets::FLAGS + u64::from(*peer) * 8);
                flag.load(Ordering::Acquire) > step
            };
            let arrived: Vec<u32> = missing.extract_if(.., |peer| has_arrived(peer)).collect();
            if begins {
                arrived.iter().try_for_each(|peer| buffers.compare(headers + u64::from(*peer) * 32, &header, *peer))?;
            }
            let Some(late) = missing.first() else { return Ok(()) };
            backoff.pause(|start| buffers.check_wait(start, *late))?;
        }
    }
}

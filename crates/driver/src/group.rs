//! The parameters of a process group's kernels, the layout of the memory that the group shares, and the page through
//! which kernels report failures. kernels/group/ declares the same.

use super::{
    Driver, DriverResult, Function, KernelNode, Span,
    kernel_call::{KernelCall, with_parameter},
};
use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// The maximum number of ranks of a group.
pub const MAX_RANKS: usize = 16;
/// The maximum number of blocks of a collective's launch.
pub const MAX_BLOCKS: u32 = 128;
/// The number of threads per block.
pub const THREADS: u32 = 512;
/// The maximum number of blocks (lanes) that share a large transfer.
pub const LANES: u32 = 64;
/// The bytes for which a transfer that is not short has one lane more.
pub const LANE_BYTES: u64 = 16 << 10;
/// The number of chunks that are in flight per lane of a transfer.
pub const ENTRIES: u32 = 4;
/// The number of registrations whose addresses kernels can find by their places, and the bytes of each row.
pub const REGISTRATION_ROWS: u64 = 32;
/// See [`REGISTRATION_ROWS`].
pub const REGISTRATION_ROW_BYTES: u64 = 256;
/// The maximum number of transfers of a launch.
pub const MAX_TRANSFERS: usize = 32;

/// Offsets in a rank's symmetric buffer, in bytes. "Owner" marks fields that only the buffer's rank writes; all ranks write
/// the other fields.
pub mod offsets {
    use super::{ENTRIES, LANES, MAX_BLOCKS, MAX_RANKS, REGISTRATION_ROW_BYTES, REGISTRATION_ROWS};

    /// Owner: a `u32`, nonzero once the group has failed.
    pub const FAILED: u64 = 0;
    /// Owner: a `u32`, nonzero once one of the rank's launches writes the report. [`FAILED`] follows when it is complete.
    pub const REPORTING: u64 = 4;
    /// Owner: a `u64`, the time at which a kernel last read the page of the report, in nanoseconds of the device's clock.
    pub const POLLED: u64 = 8;
    /// Owner: the numbers of steps and of collectives so far, two `u64`, for each of two turns. The first block of a collective
    /// writes them at its end: for the other turn if there are more blocks, which may not have read those of this turn yet.
    pub const COUNTS: u64 = 128;
    /// The number of steps in the first turn of [`COUNTS`].
    pub const STEPS: u64 = COUNTS;
    /// The number of collectives in the first turn of [`COUNTS`].
    pub const CALLS: u64 = COUNTS + 8;
    /// The bytes from the numbers of the first turn to those of the second.
    pub const TURN: u64 = 16;
    /// A `u32` for each rank, nonzero once the group has failed at that rank.
    pub const PEER_FAILED: u64 = 1024;
    /// Owner: for each block a `u32`, 16 bytes apart, the turn of the next collective of several blocks.
    pub const TURNS: u64 = 2048;
    /// Owner: a `u64` for each rank and lane, the number of chunks sent to it so far.
    pub const SENT: u64 = 4096;
    /// Owner: a `u64` for each rank and lane, the number of chunks received from it so far.
    pub const RECEIVED: u64 = 12_288;
    /// A `u64` for each rank and lane: the number of chunks that the rank has sent.
    pub const ARRIVED: u64 = 20_480;
    /// A `u64` for each rank and lane: the number of chunks that the rank has received.
    pub const CONSUMED: u64 = 28_672;
    /// A `u64` for each block and rank: the number of steps for which that rank has written its part.
    pub const FLAGS: u64 = 36_864;
    /// For each chunk of each lane from each rank: the header of the transfer that begins with it, in four packets of 16 bytes.
    pub const RING_HEADERS: u64 = 53_248;
    /// For each lane to each rank: the header of the receiver of the last transfer that was a rendezvous, in such packets.
    pub const RECEIVER_HEADERS: u64 = 315_392;
    /// The header of each rank, in even and odd collectives: four packets of 16 bytes that describe the launch.
    pub const HEADERS: u64 = 380_928;
    /// A digest of the header of each rank, for each block, in even and odd collectives: a packet of 16 bytes. Only GPUs use
    /// it, for registered memory.
    pub const DIGESTS: u64 = 382_976;
    /// Owner: a row of [`REGISTRATION_ROW_BYTES`] for each of [`REGISTRATION_ROWS`] registrations: its number, and the
    /// address of the memory of each rank in this process.
    pub const REGISTRATIONS: u64 = 448_512;
    /// The place of the root's output in a reduce, for each block, in even and odd collectives: a packet of 16 bytes.
    pub const TARGETS: u64 = 456_704;
    /// A slot for each rank in even and in odd steps, followed by the chunks of each lane from each rank, by the packets of
    /// such chunks of short transfers, and by the packets of each rank in even and in odd steps.
    pub const STAGING: u64 = 460_800;

    const _: () = assert!(TURNS + MAX_BLOCKS as u64 * 16 <= SENT);
    const _: () = assert!(SENT + (MAX_RANKS * LANES as usize * 8) as u64 <= RECEIVED);
    const _: () = assert!(RECEIVED + (MAX_RANKS * LANES as usize * 8) as u64 <= ARRIVED);
    const _: () = assert!(CONSUMED + (MAX_RANKS * LANES as usize * 8) as u64 <= FLAGS);
    const _: () = assert!(8 + MAX_RANKS as u64 * 8 <= REGISTRATION_ROW_BYTES);
    const _: () = assert!(REGISTRATIONS + REGISTRATION_ROWS * REGISTRATION_ROW_BYTES <= TARGETS);
    const _: () = assert!(TARGETS + (2 * MAX_BLOCKS as usize * 16) as u64 <= STAGING);
    const _: () = assert!(ARRIVED + (MAX_RANKS * LANES as usize * 8) as u64 <= CONSUMED);
    const _: () = assert!(FLAGS + (MAX_BLOCKS as usize * MAX_RANKS * 8) as u64 <= RING_HEADERS);
    const _: () = assert!(RING_HEADERS + (MAX_RANKS * (LANES * ENTRIES) as usize * 64) as u64 <= RECEIVER_HEADERS);
    const _: () = assert!(RECEIVER_HEADERS + (MAX_RANKS * LANES as usize * 64) as u64 <= HEADERS);
    const _: () = assert!(HEADERS + (2 * MAX_RANKS * 64) as u64 <= DIGESTS);
    const _: () = assert!(DIGESTS + (2 * MAX_BLOCKS as usize * MAX_RANKS * 16) as u64 <= REGISTRATIONS);
}

/// The operation of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Every rank gets the row of each rank.
    AllGather = 0,
    /// Every rank gets one row of each rank.
    AllToAll = 1,
    /// Every rank gets the root's row.
    Broadcast = 2,
    /// A broadcast in parts, each of which one rank forwards.
    BroadcastParts = 3,
    /// Every rank gets one reduced row.
    ReduceScatter = 4,
    /// Every rank gets the same reduced row, and computes all of it.
    AllReduce = 5,
    /// An all-reduce in parts, each of which one rank reduces.
    AllReduceParts = 6,
    /// The root gets the reduced row.
    Reduce = 7,
    /// A reduce in parts, each of which one rank reduces.
    ReduceParts = 8,
}

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 9] = [
        Mode::AllGather,
        Mode::AllToAll,
        Mode::Broadcast,
        Mode::BroadcastParts,
        Mode::ReduceScatter,
        Mode::AllReduce,
        Mode::AllReduceParts,
        Mode::Reduce,
        Mode::ReduceParts,
    ];

    /// Returns the bytes of the part of each of `size` ranks of a row; the last parts may be shorter.
    pub fn part(self, bytes: u64, size: u32) -> u64 {
        if self.has_parts() { bytes.div_ceil(u64::from(size)).next_multiple_of(16) } else { bytes }
    }

    /// Returns whether the row is split into one part per rank.
    pub fn has_parts(self) -> bool {
        matches!(self, Mode::BroadcastParts | Mode::AllReduceParts | Mode::ReduceParts)
    }

    /// Returns how many rows the kernel reads, and how many it writes, on `rank` of `size`.
    pub fn rows(self, rank: u32, root: u32, size: u32) -> (u64, u64) {
        let (all, own) = (u64::from(size), u64::from(rank == root));
        match self {
            Mode::AllGather => (1, all),
            Mode::AllToAll => (all, all),
            Mode::Broadcast | Mode::BroadcastParts => (own, 1),
            Mode::ReduceScatter => (all, 1),
            Mode::AllReduce | Mode::AllReduceParts => (1, 1),
            Mode::Reduce | Mode::ReduceParts => (1, own),
        }
    }
}

/// The value that a transfer's header contains where a collective's contains its [`Mode`].
pub const TRANSFER: u32 = 0x40;

/// The group as its kernels see it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct GroupInfo {
    /// The address in this process of each rank's symmetric buffer, including this rank's.
    pub buffers: [u64; MAX_RANKS],
    /// The size of each symmetric buffer in bytes.
    pub buffer_bytes: u64,
    /// The address of the [`Report`] page that the kernel writes to.
    pub report: u64,
    /// The timeout of waits for other ranks in nanoseconds; 0 for none.
    pub timeout: u64,
    /// The maximum size in bytes of an eager transfer; a larger one is a rendezvous.
    pub eager_transfer: u64,
    /// This rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The size of a slot in bytes: a multiple of 16.
    pub slot: u32,
    /// The size of a chunk in bytes: a multiple of 16.
    pub entry: u32,
    /// The maximum size in bytes of a row that is sent in packets: a multiple of 16. The host device has no packets.
    pub packets: u32,
    /// The size in bytes of a piece of a block's slice of a row, in a broadcast or an all_to_all of registered memory: a
    /// multiple of 16.
    pub piece: u32,
    /// The maximum number of lanes of a transfer.
    pub lanes: u32,
    /// The maximum size in bytes of a row that is broadcast in packets: a multiple of 16, and at least `packets`.
    pub broadcast: u32,
    /// The maximum size in bytes of a transfer that is sent in packets.
    pub short_transfer: u32,
    /// The maximum size in bytes of a lane's part of such a transfer: a multiple of 16, and at most `entry`.
    pub short_entry: u32,
}

impl GroupInfo {
    /// Returns whether the sender of a transfer waits for the receiver before it sends data.
    pub fn is_rendezvous(&self, bytes: u64) -> bool {
        bytes > self.eager_transfer
    }
}

/// The parameters of a collective's launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Collective {
    /// The group.
    pub group_info: GroupInfo,
    /// The source address. Private, because the constructor takes a [`Span`], which guarantees the memory.
    from: u64,
    /// The destination address.
    to: u64,
    /// The size of a row in bytes.
    pub bytes: u64,
    /// The number of elements of a row.
    pub count: u64,
    /// A [`Mode`].
    pub mode: u32,
    /// The number of a `ReduceOp`.
    pub op: u32,
    /// The number of an element type.
    pub element: u32,
    /// The root rank.
    pub root: u32,
    /// See [`DirectMemory`]; zeros if the data goes through slots.
    direct: DirectMemory,
}

/// Registered memory, which the kernels of a collective read and write where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DirectMemory {
    /// The places of the input and of the output, which must be the same for all ranks: see [`place`]. 0 for memory that
    /// the kernels need not know of other ranks.
    pub places: [u64; 2],
    /// What this rank reads of each rank's input: an address, or 0.
    inputs: [u64; MAX_RANKS],
    /// What this rank writes of each rank's output: an address, or 0. In a broadcast, the whole row.
    outputs: [u64; MAX_RANKS],
    /// In a reduce, at the root: the [`place`] of its output, if the other ranks write to it, or 0 if the root combines
    /// everything. At the other ranks: the offset of their part.
    pub target: u64,
}

/// Encodes a place in registered memory: the number of the registration, from 1 on, and the offset in it.
pub fn place(registration: u64, offset: u64) -> u64 {
    registration << PLACE_BITS | offset
}

/// Decodes a place into the number of the registration and the offset; `None` for 0.
pub fn read_place(place: u64) -> Option<(u64, u64)> {
    (place != 0).then_some((place >> PLACE_BITS, place & ((1 << PLACE_BITS) - 1)))
}

/// The bits of an offset in a place; registered memory is smaller.
pub const PLACE_BITS: u32 = 40;

impl DirectMemory {
    /// No registered memory.
    pub const NONE: DirectMemory =
        DirectMemory { places: [0; 2], inputs: [0; MAX_RANKS], outputs: [0; MAX_RANKS], target: 0 };

    /// Creates it from the memory that this rank's kernel reads of each rank's input, and writes of each rank's output.
    pub fn new(places: [u64; 2], inputs: &[Span], outputs: &[Span]) -> DirectMemory {
        let mut memory = DirectMemory { places, ..DirectMemory::NONE };
        for (all, spans) in [(&mut memory.inputs, inputs), (&mut memory.outputs, outputs)] {
            for (address, span) in all.iter_mut().zip(spans) {
                *address = span.address();
            }
        }
        memory
    }

    /// Returns the addresses of what this rank reads of the inputs, and writes of the outputs.
    pub fn memory(&self) -> (&[u64; MAX_RANKS], &[u64; MAX_RANKS]) {
        (&self.inputs, &self.outputs)
    }

    /// Returns whether the data goes through slots.
    pub fn is_none(&self) -> bool {
        self.places == [0; 2]
    }
}

/// A transfer to or from another rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Transfer {
    address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The size in bytes of each lane's part: a multiple of 16. The parts of the last lanes may be shorter, or empty.
    pub part: u64,
    /// The number of chunks in each lane.
    pub chunks: u64,
    /// The other rank.
    pub peer: u32,
    /// 1 to send, 0 to receive.
    pub sends: u32,
    /// The number of an element type.
    pub element: u32,
    /// The number of lanes it uses.
    pub lanes: u32,
    /// At the receiver of a rendezvous: the [`place`] of its memory, if the sender writes to it; else 0.
    pub place: u64,
}

/// The parameters of a launch of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Transfers {
    /// The group.
    pub group_info: GroupInfo,
    /// The transfers. No two of them have the same peer and direction.
    pub transfers: [Transfer; MAX_TRANSFERS],
}

/// A kernel of the group with its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupKernel {
    function: Function,
    grid: [u32; 3],
    parameters: GroupParameters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GroupParameters {
    Collective(Box<Collective>),
    Transfers(Box<Transfers>),
}

impl GroupKernel {
    /// Creates a collective of a number of blocks. `function` is the kernel of one, for its type.
    pub fn collective(function: Function, blocks: u32, collective: Collective) -> GroupKernel {
        let parameters = GroupParameters::Collective(Box::new(collective));
        GroupKernel { function, grid: [blocks, 1, 1], parameters }
    }

    /// Creates the first `count` of `transfers`. `function` is the kernel of transfers.
    pub fn transfers(function: Function, count: u32, transfers: Transfers) -> GroupKernel {
        let lanes = transfers.transfers.iter().map(|transfer| transfer.lanes).max().unwrap_or(1);
        GroupKernel { function, grid: [lanes, count, 1], parameters: GroupParameters::Transfers(Box::new(transfers)) }
    }
}

impl KernelCall for GroupKernel {
    fn with_node<T>(&self, body: impl FnOnce(&KernelNode, &[*const c_void]) -> T) -> T {
        // SAFETY: the parameters are of the type of the kernel, as the constructors' callers ensure, and the constructors of the
        // spans in them guarantee their memory.
        unsafe {
            match &self.parameters {
                GroupParameters::Collective(all) => with_parameter(self.function, self.grid, THREADS, &**all, body),
                GroupParameters::Transfers(all) => with_parameter(self.function, self.grid, THREADS, &**all, body),
            }
        }
    }
}

impl Collective {
    /// Creates a collective that reads one span and writes another.
    pub fn of(group_info: GroupInfo, from: Span, to: Span, direct: DirectMemory) -> Collective {
        let (from, to) = (from.address(), to.address());
        Collective { group_info, from, to, bytes: 0, count: 0, mode: 0, op: 0, element: 0, root: 0, direct }
    }

    /// Returns the registered memory.
    pub fn direct(&self) -> &DirectMemory {
        &self.direct
    }

    /// Returns the source and the destination address.
    pub fn memory(&self) -> (u64, u64) {
        (self.from, self.to)
    }
}

impl Transfer {
    /// Creates a transfer of a span. Each lane has [`LANE_BYTES`], or an `entry` if that is less, or more if the group has no more
    /// lanes. If it is short, each thread sends 16 bytes, or more if the group has no more lanes.
    pub fn of(group_info: &GroupInfo, memory: Span, peer: u32, sends: bool, element: u32) -> Transfer {
        let (bytes, entry) = (memory.bytes() as u64, u64::from(group_info.entry).max(16));
        let is_short = bytes <= u64::from(group_info.short_transfer);
        let each =
            if is_short { u64::from(group_info.short_entry.clamp(16, 16 * THREADS)) } else { entry.min(LANE_BYTES) };
        let lanes = bytes.div_ceil(each).clamp(1, u64::from(group_info.lanes).max(1));
        let part = bytes.div_ceil(lanes).next_multiple_of(16);
        let chunks = part.div_ceil(entry).max(1);
        let (address, sends, lanes) = (memory.address(), u32::from(sends), lanes as u32);
        Transfer { address, bytes, part, chunks, peer, sends, element, lanes, place: 0 }
    }

    /// Returns the address that is read or written.
    pub fn address(&self) -> u64 {
        self.address
    }
}

/// The reason why a group has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// A rank did not make progress in time.
    Timeout = 1,
    /// A rank aborted the group.
    Aborted = 2,
    /// The process of a rank ended.
    Lost = 3,
    /// Ranks made different calls.
    Mismatch = 4,
}

impl Reason {
    /// Encodes a reason and the rank that it concerns in one word.
    pub fn word(self, rank: u32) -> u32 {
        self as u32 | rank << 8
    }

    /// Decodes a word into the reason and the rank.
    pub fn read(word: u32) -> Option<(Reason, u32)> {
        let reason = match word & 0xFF {
            1 => Reason::Timeout,
            2 => Reason::Aborted,
            3 => Reason::Lost,
            4 => Reason::Mismatch,
            _ => return None,
        };
        Some((reason, word >> 8))
    }
}

/// The failure that a kernel reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureReport {
    /// The encoded [`Reason`] and the rank that it concerns.
    pub word: u32,
    /// The rank that detected the failure.
    pub by: u32,
    /// The header of this rank's launch, if the reason is a mismatch.
    pub own: [u64; 4],
    /// The header of the other rank's launch, if the reason is a mismatch.
    pub other: [u64; 4],
}

/// The page of pinned memory through which the host and the kernels of a rank communicate.
#[repr(C)]
pub struct ReportPage {
    /// Written by the host: nonzero when kernels must stop.
    pub stop: AtomicU32,
    /// Written by kernels: nonzero once the other fields are written.
    pub word: AtomicU32,
    /// See [`FailureReport`].
    pub by: AtomicU32,
    /// 0.
    pub reserved: AtomicU32,
    /// See [`FailureReport`].
    pub own: [AtomicU64; 4],
    /// See [`FailureReport`].
    pub other: [AtomicU64; 4],
}

/// An allocated [`ReportPage`].
#[derive(Debug)]
pub struct Report(u64);

impl Report {
    /// Returns its address, which is the same for the host and for kernels.
    pub fn address(&self) -> u64 {
        self.0
    }

    fn page(&self) -> &ReportPage {
        // SAFETY: the pinned memory has this size and alignment, was zeroed, and stays allocated until `report_free`
        // consumes the report; every access to it is atomic.
        unsafe { &*(self.0 as *const ReportPage) }
    }

    /// Makes kernels stop. The first word stays.
    pub fn stop(&self, word: u32) {
        let _ = self.page().stop.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Returns the failure that a kernel reported.
    pub fn read(&self) -> Option<FailureReport> {
        let page = self.page();
        let word = page.word.load(Ordering::Acquire);
        let words = |of: &[AtomicU64; 4]| std::array::from_fn(|index| of[index].load(Ordering::Relaxed));
        (word != 0).then(|| FailureReport {
            word,
            by: page.by.load(Ordering::Relaxed),
            own: words(&page.own),
            other: words(&page.other),
        })
    }
}

impl Driver {
    /// Allocates an empty report, usable by kernels of any device.
    pub fn report_alloc(&self) -> DriverResult<Report> {
        let address = self.pinned_alloc(size_of::<ReportPage>())?;
        // SAFETY: the memory was just allocated with this size and page alignment, and no other code has its address.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, size_of::<ReportPage>()) };
        Ok(Report(address))
    }

    /// Frees a report that no kernel uses any more.
    pub fn report_free(&self, report: Report) -> DriverResult<()> {
        // SAFETY: the report is memory of `report_alloc` with this size, and the caller's last use of it.
        self.pinned_free(unsafe { Span::new(report.0, size_of::<ReportPage>()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip_through_words() {
        for reason in [Reason::Timeout, Reason::Aborted, Reason::Lost, Reason::Mismatch] {
            assert_eq!(Reason::read(reason.word(13)), Some((reason, 13)));
        }
        assert_eq!(Reason::read(0), None);
        assert_eq!(Reason::read(5), None);
    }

    #[test]
    fn lanes_share_a_transfer_evenly_and_have_at_least_one_chunk() {
        let mut group_info = GroupInfo::default();
        (group_info.lanes, group_info.entry) = (4, 4096);
        let transfer = |bytes| Transfer::of(&group_info, Span::dangling(4096).with_length(bytes), 1, true, 0);
        let sizes = [0, 1, 4096, 4097, 16384, 16385, 1 << 17].map(transfer);
        assert_eq!(sizes.map(|transfer| transfer.lanes), [1, 1, 1, 2, 4, 4, 4]);
        assert_eq!(sizes.map(|transfer| transfer.part), [0, 16, 4096, 2064, 4096, 4112, 32768]);
        assert_eq!(sizes.map(|transfer| transfer.chunks), [1, 1, 1, 1, 1, 2, 8]);
    }

    #[test]
    fn short_transfers_have_one_chunk_in_more_lanes() {
        let mut group_info = GroupInfo::default();
        for (lanes, entry, short_entry) in [(16, 16384, 16384), (16, 16384, 4096), (4, 65536, 65536), (4, 16, 16)] {
            (group_info.lanes, group_info.entry, group_info.short_entry) = (lanes, entry, short_entry);
            group_info.short_transfer = lanes * short_entry;
            for bytes in (0..=group_info.short_transfer).step_by(7).chain([group_info.short_transfer]) {
                let transfer = Transfer::of(&group_info, Span::dangling(4096).with_length(bytes as usize), 1, true, 0);
                assert_eq!(transfer.chunks, 1);
                assert!(transfer.part <= u64::from(short_entry), "{bytes}");
                let each = short_entry.min(16 * THREADS);
                assert_eq!(transfer.lanes, bytes.div_ceil(each).clamp(1, lanes), "{bytes}");
            }
        }
    }

    #[test]
    fn constants_match_the_kernels() {
        let source = concat!(
            include_str!("../../../kernels/group/launch.cuh"),
            include_str!("../../../kernels/group/symmetric_buffer.cuh")
        );
        for (name, value) in [
            ("kRanks", MAX_RANKS as u64),
            ("kBlocks", u64::from(MAX_BLOCKS)),
            ("kThreads", u64::from(THREADS)),
            ("kLanes", u64::from(LANES)),
            ("kEntries", u64::from(ENTRIES)),
            ("kTransfers", MAX_TRANSFERS as u64),
            ("kFailed", offsets::FAILED),
            ("kReporting", offsets::REPORTING),
            ("kPolled", offsets::POLLED),
            ("kCounts", offsets::COUNTS),
            ("kTurns", offsets::TURNS),
            ("kSent", offsets::SENT),
            ("kReceived", offsets::RECEIVED),
            ("kPeerFailed", offsets::PEER_FAILED),
            ("kArrived", offsets::ARRIVED),
            ("kConsumed", offsets::CONSUMED),
            ("kFlags", offsets::FLAGS),
            ("kRingHeaders", offsets::RING_HEADERS),
            ("kReceiverHeaders", offsets::RECEIVER_HEADERS),
            ("kHeaders", offsets::HEADERS),
            ("kDigests", offsets::DIGESTS),
            ("kRegistrations", offsets::REGISTRATIONS),
            ("kTargets", offsets::TARGETS),
            ("kRegistrationRows", REGISTRATION_ROWS),
            ("kRegistrationRowBytes", REGISTRATION_ROW_BYTES),
            ("kPlaceBits", u64::from(PLACE_BITS)),
            ("kStaging", offsets::STAGING),
            ("kTimeout", Reason::Timeout as u64),
            ("kMismatch", Reason::Mismatch as u64),
        ] {
            assert!(source.contains(&format!(" {name} = {value};")), "{name} = {value}");
        }
        for mode in Mode::ALL {
            assert!(source.contains(&format!(" k{mode:?} = {},", mode as u32)), "{mode:?}");
        }
    }
}

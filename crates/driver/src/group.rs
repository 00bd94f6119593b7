//! What the kernels of a group of processes are told, how the memory that the group shares is laid out, and where they
//! report. kernels/group.cu declares the same.

use super::{Driver, DriverResult, Function, Span, Stream};
use std::{
    ffi::c_void,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

/// The most ranks of a group.
pub const MAX_RANKS: usize = 16;
/// The most blocks of a launch of a collective: few enough to run at the same time on any device.
pub const MAX_BLOCKS: u32 = 64;
/// The threads of a block.
pub const THREADS: u32 = 512;
/// How many blocks share one transfer that is not small.
pub const LANES: u32 = 4;
/// How many pieces of a transfer are under way in a lane.
pub const ENTRIES: u32 = 4;
/// The most transfers of a launch.
pub const MAX_TRANSFERS: usize = 32;

/// Where things are in a rank's window. What is not said to be of the owner's is written by the other ranks.
pub mod offsets {
    use super::{ENTRIES, LANES, MAX_BLOCKS, MAX_RANKS};

    /// Of the owner: a `u32`, not 0 once the group is broken.
    pub const FAILED: u64 = 0;
    /// Of the owner: a `u32`, the blocks of the launch that have ended.
    pub const DONE: u64 = 4;
    /// Of the owner: a `u64`, the collectives so far.
    pub const CALLS: u64 = 8;
    /// Of the owner: a `u64`, the steps of all collectives so far.
    pub const STEPS: u64 = 16;
    /// Of the owner: a `u64` for each rank and lane, the pieces sent to it so far.
    pub const SENT: u64 = 1024;
    /// Of the owner: the same of those received.
    pub const RECEIVED: u64 = 1536;
    /// A `u32` for each rank, not 0 once that one has broken the group.
    pub const POISON: u64 = 2048;
    /// A `u64` for each rank and lane: the pieces that the rank has sent.
    pub const ARRIVED: u64 = 4096;
    /// A `u64` for each rank and lane: the pieces that the rank has received.
    pub const TAKEN: u64 = 4608;
    /// A `u64` for each block and rank: the steps of which that one has brought its part.
    pub const FLAGS: u64 = 8192;
    /// What each piece of each lane from each rank belongs to: four `u64`.
    pub const RING_HEADERS: u64 = 16384;
    /// What each block of each rank was launched for, in even and odd collectives: four `u64`.
    pub const HEADERS: u64 = 65536;
    /// A slot for each rank in even and in odd steps; then the pieces of each lane from each rank.
    pub const STAGING: u64 = 131_072;

    const _: () = assert!(SENT + (MAX_RANKS * LANES as usize * 8) as u64 <= RECEIVED);
    const _: () = assert!(ARRIVED + (MAX_RANKS * LANES as usize * 8) as u64 <= TAKEN);
    const _: () = assert!(FLAGS + (MAX_BLOCKS as usize * MAX_RANKS * 8) as u64 <= RING_HEADERS);
    const _: () = assert!(RING_HEADERS + (MAX_RANKS * (LANES * ENTRIES) as usize * 32) as u64 <= HEADERS);
    const _: () = assert!(HEADERS + (2 * MAX_BLOCKS as usize * MAX_RANKS * 32) as u64 <= STAGING);
}

/// What a collective does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Everybody gets the row of each.
    Gather = 0,
    /// Everybody gets a row of each.
    AllToAll = 1,
    /// Everybody gets the root's row.
    Broadcast = 2,
    /// The same by parts, each of which a rank passes on.
    BroadcastParts = 3,
    /// Everybody gets a row, reduced.
    ReduceScatter = 4,
    /// Everybody gets the one row, reduced by everybody.
    AllReduce = 5,
    /// The same by parts, each of which a rank reduces.
    AllReduceParts = 6,
    /// The root gets the one row, reduced.
    Reduce = 7,
    /// The same by parts, each of which a rank reduces.
    ReduceParts = 8,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 9] = [
        Mode::Gather,
        Mode::AllToAll,
        Mode::Broadcast,
        Mode::BroadcastParts,
        Mode::ReduceScatter,
        Mode::AllReduce,
        Mode::AllReduceParts,
        Mode::Reduce,
        Mode::ReduceParts,
    ];

    /// Whether the row is cut into a part for each rank.
    pub fn has_parts(self) -> bool {
        matches!(self, Mode::BroadcastParts | Mode::AllReduceParts | Mode::ReduceParts)
    }

    /// How many rows the kernel reads, and how many it writes, on `rank` of `size`.
    pub fn rows(self, rank: u32, root: u32, size: u32) -> (u64, u64) {
        let (all, own) = (u64::from(size), u64::from(rank == root));
        match self {
            Mode::Gather => (1, all),
            Mode::AllToAll => (all, all),
            Mode::Broadcast | Mode::BroadcastParts => (own, 1),
            Mode::ReduceScatter => (all, 1),
            Mode::AllReduce | Mode::AllReduceParts => (1, 1),
            Mode::Reduce | Mode::ReduceParts => (1, own),
        }
    }
}

/// What stands in the place of a [`Mode`] where a transfer tells what it was launched for.
pub const TRANSFER: u32 = 0x40;

/// What a kernel needs to know of the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct GroupInfo {
    /// Where each rank's window is here, the own one included.
    pub windows: [u64; MAX_RANKS],
    /// The bytes of each.
    pub window_bytes: u64,
    /// Where the kernel reports: a [`Report`]'s address.
    pub report: u64,
    /// How many nanoseconds it waits for others; 0 is for ever.
    pub timeout: u64,
    /// The own number.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// The bytes of a slot: a multiple of 16.
    pub slot: u32,
    /// The bytes of a piece: a multiple of 16.
    pub entry: u32,
}

/// A launch of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Collective {
    /// The group.
    pub group_info: GroupInfo,
    /// What is read: private, for whoever makes one answers for the memory.
    from: u64,
    /// What is written.
    to: u64,
    /// The bytes of a row.
    pub bytes: u64,
    /// Its elements.
    pub count: u64,
    /// A [`Mode`].
    pub mode: u32,
    /// A `ReduceOp`, by its number.
    pub op: u32,
    /// An element type, by its number.
    pub element: u32,
    /// The rank that the others give to, or get from.
    pub root: u32,
}

/// Something that goes to a rank, or comes from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Transfer {
    address: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The other rank.
    pub peer: u32,
    /// 1 if it goes there, 0 if it comes.
    pub sends: u32,
    /// An element type, by its number.
    pub element: u32,
    /// How many lanes it takes.
    pub lanes: u32,
}

/// A launch of transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Transfers {
    /// The group.
    pub group_info: GroupInfo,
    /// The transfers, no two of them alike in rank and direction.
    pub transfers: [Transfer; MAX_TRANSFERS],
}

impl Collective {
    /// A collective that reads one piece of memory and writes another.
    pub fn of(group_info: GroupInfo, from: Span, to: Span) -> Collective {
        let (from, to) = (from.address(), to.address());
        Collective { group_info, from, to, bytes: 0, count: 0, mode: 0, op: 0, element: 0, root: 0 }
    }

    /// What is read, and what is written.
    pub fn memory(&self) -> (u64, u64) {
        (self.from, self.to)
    }
}

impl Transfer {
    /// A transfer of some memory.
    pub fn of(memory: Span, peer: u32, sends: bool, element: u32) -> Transfer {
        let bytes = memory.bytes() as u64;
        let lanes = if bytes <= 1 << 16 { 1 } else { LANES };
        Transfer { address: memory.address(), bytes, peer, sends: u32::from(sends), element, lanes }
    }

    /// What is read or written.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many pieces go through the first lane, which has as many as any other.
    pub fn pieces(&self, entry: u64) -> u64 {
        self.bytes.div_ceil(u64::from(self.lanes) * entry).max(1)
    }
}

/// Why a group is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// A rank did not do its part in time.
    Timeout = 1,
    /// A rank gave up the group.
    Aborted = 2,
    /// A rank is gone.
    Lost = 3,
    /// Ranks made different calls.
    Mismatch = 4,
}

impl Reason {
    /// The word by which a reason, and the rank that it is about, are told.
    pub fn word(self, rank: u32) -> u32 {
        self as u32 | rank << 8
    }

    /// What a word tells.
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

/// What a report tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailureReport {
    /// Why the group is broken, and which rank that is about.
    pub word: u32,
    /// The rank that found it.
    pub by: u32,
    /// What this rank was launched for, where the reason is a mismatch.
    pub own: [u64; 4],
    /// What the other was launched for.
    pub other: [u64; 4],
}

/// The page of pinned memory through which host and kernels of a rank talk.
#[repr(C)]
pub struct ReportPage {
    /// The host's: not 0 when kernels are to give up.
    pub stop: AtomicU32,
    /// The kernels': not 0 once the rest is written.
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

/// A [`ReportPage`] that is there.
#[derive(Debug)]
pub struct Report(u64);

impl Report {
    /// Where it is, for the host and for kernels.
    pub fn address(&self) -> u64 {
        self.0
    }

    fn page(&self) -> &ReportPage {
        // SAFETY: the pinned memory is of this size and alignment, was zeroed, and stays until `report_free` takes the
        // report; whoever else touches it does so as atomically.
        unsafe { &*(self.0 as *const ReportPage) }
    }

    /// Tells kernels to give up. The first reason stays.
    pub fn stop(&self, word: u32) {
        let _ = self.page().stop.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire);
    }

    /// What kernels were told to give up for.
    pub fn stopped(&self) -> Option<u32> {
        Some(self.page().stop.load(Ordering::Acquire)).filter(|word| *word != 0)
    }

    /// What a kernel has reported.
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
    /// Makes a report with nothing in it, for kernels of any device.
    pub fn report_alloc(&self) -> DriverResult<Report> {
        let address = self.pinned_alloc(size_of::<ReportPage>())?;
        // SAFETY: the memory was just allocated, of this size and a page's alignment, and nobody else knows of it.
        unsafe { std::ptr::write_bytes(address as *mut u8, 0, size_of::<ReportPage>()) };
        Ok(Report(address))
    }

    /// Gives up a report that no kernel uses any more.
    pub fn report_free(&self, report: Report) -> DriverResult<()> {
        self.pinned_free(Span::owned(report.0, size_of::<ReportPage>()))
    }

    /// Launches a kernel of collectives.
    pub fn launch_group(
        &self,
        function: Function,
        blocks: u32,
        collective: &Collective,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointer = std::ptr::from_ref(collective).cast::<c_void>();
        // SAFETY: the pointer leads to what such kernels take, and outlives the call; the memory was vouched for when the
        // parameters were made.
        unsafe { self.launch(function, [blocks, 1, 1], [THREADS, 1, 1], 0, &[pointer], stream) }
    }

    /// Launches the kernel of transfers, of which there are `count`.
    pub fn launch_transfers(
        &self,
        function: Function,
        count: u32,
        transfers: &Transfers,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointer = std::ptr::from_ref(transfers).cast::<c_void>();
        // SAFETY: as above.
        unsafe { self.launch(function, [LANES, count, 1], [THREADS, 1, 1], 0, &[pointer], stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_go_through_their_words() {
        for reason in [Reason::Timeout, Reason::Aborted, Reason::Lost, Reason::Mismatch] {
            assert_eq!(Reason::read(reason.word(13)), Some((reason, 13)));
        }
        assert_eq!(Reason::read(0), None);
        assert_eq!(Reason::read(5), None);
    }

    #[test]
    fn a_transfer_has_a_piece_at_least_and_no_lane_more_than_the_first() {
        let pieces = |bytes| Transfer::of(Span::owned(4096, bytes), 1, true, 0).pieces(4096);
        assert_eq!([0, 1, 4096, 4097, 1 << 16, (1 << 16) + 1, 1 << 17].map(pieces), [1, 1, 1, 2, 16, 5, 8]);
    }

    #[test]
    fn the_kernels_have_the_same_numbers() {
        let source =
            concat!(include_str!("../../../kernels/group.cu"), include_str!("../../../kernels/group/window.cuh"));
        for (name, value) in [
            ("kRanks", MAX_RANKS as u64),
            ("kBlocks", u64::from(MAX_BLOCKS)),
            ("kThreads", u64::from(THREADS)),
            ("kLanes", u64::from(LANES)),
            ("kEntries", u64::from(ENTRIES)),
            ("kTransfers", MAX_TRANSFERS as u64),
            ("kFailed", offsets::FAILED),
            ("kDone", offsets::DONE),
            ("kCalls", offsets::CALLS),
            ("kSteps", offsets::STEPS),
            ("kSent", offsets::SENT),
            ("kReceived", offsets::RECEIVED),
            ("kPoison", offsets::POISON),
            ("kArrived", offsets::ARRIVED),
            ("kTaken", offsets::TAKEN),
            ("kFlags", offsets::FLAGS),
            ("kRingHeaders", offsets::RING_HEADERS),
            ("kHeaders", offsets::HEADERS),
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

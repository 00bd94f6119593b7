//! The algorithm of a collective, and its number of blocks.
//!
//! All ranks must choose alike, so they compare their tunings in the rendezvous. The numbers for two and for four ranks were
//! measured on H100s and H200s with NVLink (docs/benchmarks.md, docs/benchmarks_history.md); those for more ranks are estimates.
//! `PLINTH_GROUP_TUNING` overrides them, as in "one_shot=65536,blocks=32".

use crate::{
    driver::group::{ENTRIES, LANES, MAX_BLOCKS, Mode, offsets},
    error::{Error, Result},
    status::Status,
};
use std::ops::{Range, RangeInclusive};

/// The parameters of the algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// The maximum bytes of the one-shot algorithm, in which every rank gets the whole row of every other; larger rows
    /// use the two-shot algorithm.
    pub one_shot: u64,
    /// The maximum bytes of a row that is sent in packets, which need no fences but twice the bytes on the links.
    /// Longer rows, and rows of the two-shot algorithm, go through slots.
    pub packets: u64,
    /// The maximum bytes of a row that is broadcast in packets, or of a transfer in packets, if that is more than `packets`. Of
    /// rows longer than `packets`, the root sends each part to one other rank, which forwards it.
    pub broadcast: u64,
    /// The maximum bytes of a row in registered memory that is sent in packets or through slots; longer rows are read and
    /// written where they are.
    pub registered: u64,
    /// Bytes of a step for each block.
    pub block_bytes: u64,
    /// The maximum number of blocks.
    pub blocks: u32,
    /// Total bytes of the slots of all ranks, for even or for odd steps.
    pub staging: u64,
    /// Bytes of a chunk of a transfer.
    pub entry: u64,
    /// The maximum number of lanes of a transfer.
    pub lanes: u32,
    /// Bytes that a block writes to a rank in a broadcast to registered memory before that rank forwards them, and of a row of an
    /// all_to_all before it takes the next row.
    pub piece: u64,
    /// Whether ranks may be on the same GPU, on which the kernels of processes run by turns. It is meant for tests.
    pub shared_gpu: bool,
}

/// The largest one-shot row, by the maximum number of ranks. Two ranks send the same amount with either algorithm, and
/// synchronize less often with one-shot.
const ONE_SHOT: [(u32, u64); 3] = [(2, 4 << 20), (4, 512 << 10), (u32::MAX, 128 << 10)];

/// The largest row that is sent in packets, by the maximum number of ranks.
const PACKETS: [(u32, u64); 3] = [(2, 512 << 10), (4, 64 << 10), (u32::MAX, 32 << 10)];

/// The largest row that is broadcast in packets, by the maximum number of ranks.
const BROADCAST: [(u32, u64); 3] = [(2, 512 << 10), (4, 1 << 20), (u32::MAX, 128 << 10)];

/// The largest row in registered memory that is not read where it is, by the maximum number of ranks.
const REGISTERED: [(u32, u64); 3] = [(2, 1 << 20), (4, 512 << 10), (u32::MAX, 128 << 10)];

/// Bytes of a row in packets for each block: a unit of 16 bytes for each of 128 threads. With the maximum number of blocks more
/// threads have data, if it does not fit otherwise.
const PACKET_BLOCK: u64 = 16 * 128;

/// Bytes of one chunk in each lane from a rank, by the maximum number of ranks. Long transfers are faster with long chunks,
/// whose memory grows with the number of ranks.
const RING: [(u32, u64); 3] = [(2, 4 << 20), (4, 2 << 20), (u32::MAX, 256 << 10)];

/// The largest eager transfer, whose sender does not wait for the receiver. To the registered memory of a receiver that it has
/// waited for, a sender writes directly.
const EAGER_TRANSFER: u64 = 1 << 20;

/// The largest transfer in packets.
const SHORT_TRANSFER: u64 = 256 << 10;

/// The fewest lanes of the largest transfer, and the most, by the maximum number of ranks.
const LEAST_LANES: u32 = 4;
const MOST_LANES: [(u32, u64); 2] = [(2, LANES as u64), (u32::MAX, 32)];

/// How many blocks of a launch run at the same time on a multiprocessor.
const BLOCKS_AT_ONCE: u32 = 2;

/// The maximum number of blocks of a collective that is not large. A large one has more, whose loads fill the links.
const FEW_BLOCKS: u32 = 64;

/// The bytes of a step from which an all_reduce is large, and of a row from which other collectives are, by the maximum number of
/// ranks.
const LARGE_ALL_REDUCE: [(u32, u64); 2] = [(2, 1 << 20), (u32::MAX, u64::MAX)];
const LARGE_ROW: [(u32, u64); 2] = [(2, 4 << 20), (u32::MAX, u64::MAX)];

/// The most bytes of a row that is read and written where it is: kernels count its units of 16 bytes, and those of some more
/// iterations, in 32 bits.
const MOST_DIRECT: u64 = 16 * (u32::MAX as u64 - (1 << 16));

/// The parameters by name, with their ranges and what sets them.
type Key = (&'static str, RangeInclusive<u64>, fn(&mut Tuning, u64));
const KEYS: [Key; 11] = [
    ("one_shot", 0..=1 << 40, |tuning, value| tuning.one_shot = value),
    ("packets", 0..=1 << 24, |tuning, value| tuning.packets = value & !15),
    ("broadcast", 0..=1 << 24, |tuning, value| tuning.broadcast = value & !15),
    ("registered", 0..=1 << 40, |tuning, value| tuning.registered = value),
    ("block_bytes", 16..=1 << 30, |tuning, value| tuning.block_bytes = value),
    ("blocks", 1..=MAX_BLOCKS as u64, |tuning, value| tuning.blocks = value as u32),
    ("staging", 4096..=1 << 30, |tuning, value| tuning.staging = value),
    ("entry", 16..=1 << 24, |tuning, value| tuning.entry = value & !15),
    ("lanes", 1..=LANES as u64, |tuning, value| tuning.lanes = value as u32),
    ("piece", 16..=1 << 24, |tuning, value| tuning.piece = value & !15),
    ("shared_gpu", 0..=1, |tuning, value| tuning.shared_gpu = value == 1),
];

/// Returns the maximum number of lanes of a transfer. A launch may send to all ranks and receive from all, with a block for
/// each lane, and its blocks must run at the same time.
fn lanes_for(size: u32, multiprocessors: u32) -> u32 {
    (multiprocessors * BLOCKS_AT_ONCE / (2 * size.max(1))).clamp(LEAST_LANES, by_ranks(&MOST_LANES, size) as u32)
}

/// Returns the maximum number of blocks of a large collective.
fn blocks_for_large(size: u32, multiprocessors: u32) -> u32 {
    let any_is_large = [LARGE_ALL_REDUCE, LARGE_ROW].iter().any(|table| by_ranks(table, size) < u64::MAX);
    if any_is_large { (multiprocessors * BLOCKS_AT_ONCE).clamp(FEW_BLOCKS, MAX_BLOCKS) } else { FEW_BLOCKS }
}

/// Returns the entry of a table for a number of ranks: the first whose maximum number of ranks is not less.
pub fn by_ranks(table: &[(u32, u64)], size: u32) -> u64 {
    table.iter().find(|(max_size, _)| size <= *max_size).map_or(0, |(_, bytes)| *bytes)
}

impl Tuning {
    /// Returns the tuning for a number of ranks on devices of a kind: the default, or what the environment variable sets.
    pub fn of(size: u32, multiprocessors: u32) -> Result<Tuning> {
        let lanes = lanes_for(size, multiprocessors);
        let mut tuning = Tuning {
            one_shot: by_ranks(&ONE_SHOT, size),
            packets: by_ranks(&PACKETS, size),
            broadcast: by_ranks(&BROADCAST, size),
            registered: by_ranks(&REGISTERED, size),
            block_bytes: 8 << 10,
            blocks: blocks_for_large(size, multiprocessors),
            staging: 8 << 20,
            entry: by_ranks(&RING, size).div_ceil(u64::from(lanes)).next_multiple_of(16),
            lanes,
            piece: 32 << 10,
            shared_gpu: false,
        };
        if let Some(text) = std::env::var_os("PLINTH_GROUP_TUNING") {
            tuning.read(&text.to_string_lossy())?;
        }
        Ok(tuning)
    }

    /// Applies the text of the environment variable.
    fn read(&mut self, text: &str) -> Result<()> {
        let wrong = |what: String| {
            Error::new(Status::INVALID_CONFIGURATION, format!("PLINTH_GROUP_TUNING is {text:?}, where {what}"))
        };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| wrong(format!("{part:?} has no =")))?;
            let value: u64 = value.trim().parse().map_err(|_| wrong(format!("{value:?} is no number")))?;
            let Some((_, range, set)) = KEYS.iter().find(|(name, ..)| *name == key.trim()) else {
                let names: Vec<&str> = KEYS.iter().map(|(name, ..)| *name).collect();
                return Err(wrong(format!("{:?} is none of {}", key.trim(), names.join(", "))));
            };
            if !range.contains(&value) {
                return Err(wrong(format!("{key} is not from {} to {}", range.start(), range.end())));
            }
            set(self, value);
        }
        Ok(())
    }

    /// Returns the maximum bytes of a row that is sent in packets.
    pub fn packets_for(&self, mode: Mode) -> u64 {
        let longer = if matches!(mode, Mode::Broadcast | Mode::BroadcastParts) { self.broadcast } else { 0 };
        longer.max(self.packets)
    }

    /// Returns whether a collective with rows of `bytes` bytes reads and writes registered memory where it is.
    pub fn is_direct(&self, mode: Mode, bytes: u64) -> bool {
        bytes > self.registered.max(self.packets_for(mode)) && bytes <= MOST_DIRECT
    }

    /// Returns the bytes of a slot of each of `size` ranks.
    pub fn slot(&self, size: u32) -> u64 {
        (self.staging / u64::from(size)).max(16) & !15
    }

    /// Returns the bytes of the symmetric buffer of each of `size` ranks: the counters, the slots, the rings of transfers, and
    /// the packets of collectives.
    pub fn buffer_bytes(&self, size: u32) -> u64 {
        // A packet of 16 bytes has 8 bytes of data.
        let packets = 2 * 2 * self.packets_for(Mode::Broadcast);
        self.rings(size).end + u64::from(size) * packets
    }

    /// Returns the part of a symmetric buffer with the rings of transfers.
    pub fn rings(&self, size: u32) -> Range<u64> {
        let start = offsets::STAGING + 2 * u64::from(size) * self.slot(size);
        start..start + u64::from(size) * self.ring_bytes()
    }

    /// Returns the parts of a symmetric buffer that must be zero at first: the counters, and the packets, in which a rank looks
    /// for the number of a step. The packets of transfers are at the end of the rings.
    pub fn zeroed(&self, size: u32) -> [Range<u64>; 2] {
        let chunks = u64::from(size * self.lanes * ENTRIES) * self.entry;
        [0..offsets::STAGING, self.rings(size).start + chunks..self.buffer_bytes(size)]
    }

    /// Returns the bytes of the chunks of all lanes from a rank, and of the packets of such chunks of short transfers.
    pub fn ring_bytes(&self) -> u64 {
        u64::from(self.lanes * ENTRIES) * (self.entry + 2 * self.short_entry())
    }

    /// Returns the maximum bytes of a transfer that is sent in packets, with one chunk in each lane.
    pub fn short_transfer(&self) -> u64 {
        self.packets_for(Mode::Broadcast).min(u64::from(self.lanes) * self.entry).min(SHORT_TRANSFER)
    }

    /// Returns the maximum bytes of an eager transfer, which goes through the ring even to registered memory.
    pub fn eager_transfer(&self) -> u64 {
        (u64::from(self.lanes * ENTRIES) * self.entry).min(EAGER_TRANSFER).max(self.registered)
    }

    /// Returns the maximum bytes of a lane's part of a short transfer.
    pub fn short_entry(&self) -> u64 {
        self.short_transfer().div_ceil(u64::from(self.lanes)).next_multiple_of(16)
    }

    /// Returns the number of blocks of a collective with rows of `bytes` bytes.
    pub fn blocks_for(&self, mode: Mode, bytes: u64, size: u32) -> u32 {
        if !mode.has_parts() && bytes <= self.packets_for(mode) {
            return bytes.div_ceil(PACKET_BLOCK).clamp(1, u64::from(self.blocks)) as u32;
        }
        let part = if mode.has_parts() { bytes.div_ceil(u64::from(size)) } else { bytes };
        let step = part.min(self.slot(size));
        let is_large = match mode {
            Mode::AllReduce | Mode::AllReduceParts => step >= by_ranks(&LARGE_ALL_REDUCE, size),
            _ => bytes >= by_ranks(&LARGE_ROW, size),
        };
        let most = if is_large { self.blocks } else { self.blocks.min(FEW_BLOCKS) };
        step.div_ceil(self.block_bytes).clamp(1, u64::from(most)) as u32
    }

    /// Returns a digest of the parameters, which must be the same for all ranks.
    pub fn digest(&self) -> u64 {
        let bytes = [self.one_shot, self.packets, self.broadcast, self.registered, self.block_bytes, self.staging];
        let others = [self.entry, self.piece, self.blocks.into(), self.lanes.into(), self.shared_gpu.into()];
        bytes.iter().chain(&others).fold(0x9e37_79b9_7f4a_7c15, |sum, number| {
            (sum ^ number).rotate_left(23).wrapping_mul(0x2545_f491_4f6c_dd1d)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::group::THREADS;

    fn plain() -> Tuning {
        Tuning {
            one_shot: 1,
            packets: 0,
            broadcast: 0,
            registered: 0,
            block_bytes: 16,
            blocks: 4,
            staging: 4096,
            entry: 16,
            lanes: 4,
            piece: 16,
            shared_gpu: false,
        }
    }

    #[test]
    fn a_text_sets_the_parameters_that_it_names() {
        let mut tuning = plain();
        tuning.read("one_shot=65536, blocks=32,entry=100,shared_gpu=1").unwrap();
        assert_eq!(tuning, Tuning { one_shot: 65536, blocks: 32, entry: 96, shared_gpu: true, ..plain() });
        assert_ne!(tuning.digest(), plain().digest());
        assert_ne!(Tuning { shared_gpu: true, ..plain() }.digest(), plain().digest());
        for text in ["one_shot", "one_shot=x", "blocks=0", "blocks=129", "speed=3", "entry=1"] {
            let error = plain().read(text).unwrap_err();
            assert_eq!(error.status(), Status::INVALID_CONFIGURATION);
            assert!(error.message().contains(text.split('=').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn the_blocks_of_a_transfer_run_at_the_same_time() {
        assert_eq!([132, 40, 16].map(|multiprocessors| blocks_for_large(2, multiprocessors)), [128, 80, 64]);
        assert_eq!(blocks_for_large(4, 132), 64);
        assert_eq!([2, 4, 8, 16].map(|size| lanes_for(size, 132)), [64, 32, 16, 8]);
        assert_eq!([2, 4, 16].map(|size| lanes_for(size, 30)), [15, 7, 4]);
    }

    #[test]
    fn short_transfers_are_eager_and_so_is_a_mebibyte() {
        for (size, multiprocessors) in (1..=16).flat_map(|size| [16, 30, 80, 132].map(|count| (size, count))) {
            let tuning = Tuning::of(size, multiprocessors).unwrap();
            assert_eq!(tuning.eager_transfer(), 1 << 20, "{size} ranks, {multiprocessors} multiprocessors");
        }
        for text in ["entry=16,lanes=1", "packets=16777216,entry=1024", "registered=0,entry=16777216"] {
            let mut tuning = plain();
            tuning.read(text).unwrap();
            assert!(tuning.short_transfer() <= tuning.eager_transfer(), "{text}");
        }
    }

    #[test]
    fn rows_whose_units_overflow_go_through_slots() {
        let tuning = Tuning { registered: 1024, packets: 2048, ..plain() };
        let is_direct = [2048, 2049, 60 << 30, MOST_DIRECT, MOST_DIRECT + 1, 64 << 30]
            .map(|bytes| tuning.is_direct(Mode::AllGather, bytes));
        assert_eq!(is_direct, [false, true, true, true, false, false]);
        // A thread adds up to four units of each of a block's threads to the number of the last one.
        assert!((MOST_DIRECT / 16 + u64::from(MAX_BLOCKS + 4 * THREADS)) < 1 << 32);
    }

    #[test]
    fn blocks_grow_with_the_step_and_no_further() {
        let tuning = plain();
        assert_eq!([0, 16, 17, 1 << 30].map(|bytes| tuning.blocks_for(Mode::AllReduce, bytes, 2)), [1, 1, 2, 4]);
        assert_eq!([32, 33, 1 << 30].map(|bytes| tuning.blocks_for(Mode::AllReduceParts, bytes, 2)), [1, 2, 4]);
        let packets = Tuning { packets: 1 << 20, ..plain() };
        assert_eq!([0, 2048, 2049].map(|bytes| packets.blocks_for(Mode::AllReduce, bytes, 2)), [1, 1, 2]);
        assert_eq!(packets.buffer_bytes(3) - tuning.buffer_bytes(3), 3 * ((4 << 20) + 16 * 2 * 16));
        let wide = Tuning { block_bytes: 8 << 10, blocks: 128, staging: 8 << 20, ..plain() };
        let blocks = |mode, mebibytes: u64, size| wide.blocks_for(mode, mebibytes << 20, size);
        assert_eq!([1, 2, 64].map(|bytes| blocks(Mode::AllReduce, bytes, 2)), [128, 128, 128]);
        assert_eq!([2, 4, 64].map(|bytes| blocks(Mode::AllReduceParts, bytes, 2)), [128, 128, 128]);
        assert_eq!([2, 4, 64].map(|bytes| blocks(Mode::AllGather, bytes, 2)), [64, 128, 128]);
        assert_eq!([4, 64].map(|bytes| blocks(Mode::AllReduceParts, bytes, 4)), [64, 64]);
        assert_eq!(tuning.slot(3), 1360);
        assert_eq!(tuning.buffer_bytes(3), offsets::STAGING + 3 * (2 * 1360 + 16 * 16));
    }
}

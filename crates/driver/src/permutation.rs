//! What the kernels of random permutations are told, as kernels/permutation.cu declares it, and their launches.

use super::{Driver, DriverResult, Function, Span, Stream, random::PhiloxState};
use std::ffi::c_void;

/// The most parts that the keys can come in.
pub const MAX_CHUNKS: usize = 8;
/// The pairs that the kernels sort in shared memory.
pub const CAPACITY: u32 = 2496;
/// The most bits of a bucket's number with which buckets are counted in shared memory.
pub const SHARED_BITS: u32 = 13;
/// The bytes of shared memory that the sorting kernels take for their bins.
pub const BINS_BYTES: u32 = 2048 * 4;

/// See kernels/permutation.cu.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Permutation {
    /// The numbers that the keys are made of.
    pub philox: PhiloxState,
    data: u64,
    /// The distance of two elements, in elements.
    pub stride: i64,
    pairs: u64,
    counters: u64,
    /// How many calls after the first one of the keys those begin by which islands are shuffled.
    pub shuffle_calls: u64,
    /// How many elements.
    pub n: u32,
    /// Their type: an [`ElementCode`](super::random::ElementCode).
    pub code: u32,
    /// The bits of a key.
    pub bits: u32,
    /// How many of them, the upper ones, number the bucket.
    pub bucket_bits: u32,
    /// The bits of an index.
    pub index_bits: u32,
    /// How many parts the keys come in, each a fill of its own.
    pub chunks: u32,
    /// The subsequences that each part uses.
    pub lanes: [u32; MAX_CHUNKS],
    /// The index with which each part begins, and after the last one `n`.
    pub begins: [u32; MAX_CHUNKS + 1],
    /// 0.
    pub padding: u32,
    /// The first call of each part, from the first one of all.
    pub calls: [u64; MAX_CHUNKS],
}

/// How a kernel that makes all keys is spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// The blocks, in two dimensions.
    pub blocks: [u32; 2],
    /// The threads of each.
    pub threads: u32,
    /// The bytes of shared memory that it takes beside its own.
    pub shared_bytes: u32,
    /// The calls that each thread makes of its subsequence.
    pub calls: u32,
}

impl Permutation {
    /// A permutation that is written to `elements`, and for which, if it does not fit into one bucket, there is room for the
    /// pairs and the counters in `scratch`: 8 bytes for each element, then 4 for each bucket and one more.
    pub fn of(elements: Span, n: u32, scratch: Option<Span>) -> Permutation {
        let pairs = scratch.map_or(0, Span::address);
        Permutation { data: elements.address(), pairs, counters: pairs + u64::from(n) * 8, n, ..Permutation::default() }
    }

    /// The address of element 0.
    pub fn data(&self) -> u64 {
        self.data
    }
}

impl Driver {
    /// Launches a kernel that makes all keys of a permutation.
    pub fn launch_keys(
        &self,
        function: Function,
        spread: Spread,
        parameters: &Permutation,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointers = [std::ptr::from_ref(parameters).cast::<c_void>(), (&raw const spread.calls).cast()];
        let blocks = [spread.blocks[0], spread.blocks[1], 1];
        // SAFETY: the pointers lead to what the counting and the dealing kernel take, and outlive the call; the memory was
        // vouched for when the parameters were made.
        unsafe { self.launch(function, blocks, [spread.threads, 1, 1], spread.shared_bytes, &pointers, stream) }
    }

    /// Launches a kernel that sorts the buckets of a permutation, a block each.
    pub fn launch_buckets(
        &self,
        function: Function,
        buckets: u32,
        parameters: &Permutation,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointers = [std::ptr::from_ref(parameters).cast::<c_void>()];
        // SAFETY: as above.
        unsafe { self.launch(function, [buckets, 1, 1], [256, 1, 1], BINS_BYTES, &pointers, stream) }
    }
}

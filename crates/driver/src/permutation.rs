//! The parameters of the random permutation kernels, as kernels/permutation.cu declares them, and their launches.

use super::{Driver, DriverResult, Function, Span, Stream, random::PhiloxState};
use std::ffi::c_void;

/// The maximum number of key chunks.
pub const MAX_CHUNKS: usize = 8;
/// The number of pairs that the kernels can sort in shared memory.
pub const CAPACITY: u32 = 2496;
/// The maximum number of bits of a bucket index for which buckets are counted in shared memory.
pub const SHARED_BITS: u32 = 13;
/// The shared memory that the sorting kernels use for their bins, in bytes.
pub const BINS_BYTES: u32 = 2048 * 4;

/// The parameters of the permutation kernels; see kernels/permutation.cu.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Permutation {
    /// The generator state of the keys.
    pub philox: PhiloxState,
    data: u64,
    /// The stride of the elements, in elements.
    pub stride: i64,
    pairs: u64,
    counters: u64,
    /// The number of generator calls between the first call of the keys and the first call for shuffling islands.
    pub shuffle_calls: u64,
    /// The number of elements.
    pub n: u32,
    /// The element type: an [`ElementCode`](super::random::ElementCode).
    pub code: u32,
    /// The number of bits of a key.
    pub bits: u32,
    /// The number of upper bits of a key that select the bucket.
    pub bucket_bits: u32,
    /// The number of bits of an index.
    pub index_bits: u32,
    /// The number of chunks of the keys. Each chunk is a separate fill.
    pub chunks: u32,
    /// The number of subsequences of each chunk.
    pub lanes: [u32; MAX_CHUNKS],
    /// The first index of each chunk, followed by `n`.
    pub begins: [u32; MAX_CHUNKS + 1],
    /// 0.
    pub padding: u32,
    /// The first call of each chunk, relative to the first of all.
    pub calls: [u64; MAX_CHUNKS],
}

/// The launch configuration of a kernel that generates all keys.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// The number of blocks in two dimensions.
    pub blocks: [u32; 2],
    /// The number of threads per block.
    pub threads: u32,
    /// The dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// The number of calls that each thread makes in its subsequence.
    pub calls: u32,
}

impl Permutation {
    /// Creates a permutation that is written to `elements`. Unless it fits into one bucket, `scratch` must have room
    /// for the pairs and the counters: 8 bytes per element, followed by 4 bytes per bucket and 4 more.
    pub fn of(elements: Span, n: u32, scratch: Option<Span>) -> Permutation {
        let pairs = scratch.map_or(0, Span::address);
        Permutation { data: elements.address(), pairs, counters: pairs + u64::from(n) * 8, n, ..Permutation::default() }
    }

    /// Returns the address of element 0.
    pub fn data(&self) -> u64 {
        self.data
    }
}

impl Driver {
    /// Launches a kernel that generates all keys of a permutation.
    pub fn launch_keys(
        &self,
        function: Function,
        spread: Spread,
        parameters: &Permutation,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointers = [std::ptr::from_ref(parameters).cast::<c_void>(), (&raw const spread.calls).cast()];
        let blocks = [spread.blocks[0], spread.blocks[1], 1];
        // SAFETY: the pointers refer to the parameters of the counting and the dealing kernel and outlive the call; the
        // constructors of the spans guarantee the memory.
        unsafe { self.launch(function, blocks, [spread.threads, 1, 1], spread.shared_bytes, &pointers, stream) }
    }

    /// Launches a kernel that sorts the buckets of a permutation, one block per bucket.
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

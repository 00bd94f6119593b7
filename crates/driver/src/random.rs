//! What the random kernels are told: the structures that go with a launch, as kernels/random/fill.cuh declares them, and
//! the launch itself.

use super::{Driver, DriverResult, Function, Span, Stream};

/// Where a launch takes its numbers: the seed and the place in the sequence, or, in a capture, where a replay will find
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PhiloxState {
    /// The seed; in a capture the address of a `u64` on the device that holds it.
    pub seed: u64,
    /// How many 32-bit numbers each subsequence has given, a multiple of 4; in a capture the address of a `u64` on the
    /// device that holds it.
    pub offset: u64,
    /// In a capture, what the graph itself has used before this launch; added to the offset.
    pub graph_offset: u64,
    /// 1 in a capture, else 0.
    pub captured: u32,
    /// 0.
    pub reserved: u32,
}

/// A fill: `numel` elements, element i being number `(i / lanes) % unroll` of the call `i / (lanes * unroll)` of
/// subsequence `i % lanes`, where unroll is 4, or 2 for kernels that make 64 bits of a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Fill {
    /// The numbers.
    pub philox: PhiloxState,
    /// The address of element 0: private, for whoever makes one answers for the memory.
    data: u64,
    /// How many elements, less than 2^31.
    pub numel: u32,
    /// How many subsequences are used: the threads of the launch that PyTorch would make, a multiple of 256.
    pub lanes: u32,
    /// How many consecutive calls of its subsequences each thread of this launch makes.
    pub steps: u32,
    /// The type of the elements, for kernels that fill any: an [`ElementCode`].
    pub code: u32,
    /// The distribution's own parameters: bits of an f32, an f64 or an integer, as each kernel says.
    pub arguments: [u64; 4],
}

/// The types of elements that the kernels for any type tell apart. An integer's sign matters where a number is rounded to
/// it, not where bits are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum ElementCode {
    F16 = 0,
    Bf16 = 1,
    F32 = 2,
    F64 = 3,
    U8 = 4,
    I8 = 5,
    I16 = 6,
    I32 = 7,
    I64 = 8,
}

/// The threads of a block of the random kernels.
pub const THREADS: u32 = 128;

/// The most dimensions that a tensor can have: PyTorch's limit.
pub const MAX_RANK: usize = 25;

/// How the elements of a tensor lie, the fastest dimension first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Strided {
    /// How many dimensions are used.
    pub rank: u32,
    /// 0.
    pub reserved: u32,
    /// The extent of each.
    pub sizes: [u32; MAX_RANK],
    /// With `shifts`: the quotient of n < 2^31 by the extent is `(((n * magic) >> 32) + n) >> shift`.
    pub magics: [u32; MAX_RANK],
    /// See `magics`.
    pub shifts: [u32; MAX_RANK],
    /// 0.
    pub padding: u32,
    /// The distance of neighbours in each dimension, in elements.
    pub strides: [i64; MAX_RANK],
}

impl Fill {
    /// A fill of `numel` elements of which number 0 lies at the beginning of `memory`, and the others within it.
    pub fn of(memory: Span, numel: u32, lanes: u32) -> Fill {
        Fill { data: memory.address(), numel, lanes, ..Fill::default() }
    }

    /// The address of element 0.
    pub fn data(&self) -> u64 {
        self.data
    }
}

impl Default for Strided {
    fn default() -> Self {
        Strided {
            rank: 0,
            reserved: 0,
            sizes: [0; MAX_RANK],
            magics: [0; MAX_RANK],
            shifts: [0; MAX_RANK],
            padding: 0,
            strides: [0; MAX_RANK],
        }
    }
}

/// What a random kernel takes.
#[derive(Debug)]
pub enum Parameters<'a> {
    /// A fill of elements side by side.
    Dense(&'a Fill),
    /// A fill of elements anywhere.
    Strided(&'a Fill, &'a Strided),
    /// A fill that reads an element of another tensor for each that it writes: where those lie, then where these do.
    Each(&'a Fill, &'a Strided, &'a Strided),
}

impl Driver {
    /// Launches `plinth_philox_set`, which writes the seed and the offset of a replay to the beginning of `place`, 16 bytes
    /// at least.
    pub fn launch_philox_set(
        &self,
        function: Function,
        place: Span,
        seed: u64,
        offset: u64,
        stream: Stream,
    ) -> DriverResult<()> {
        let place = place.address();
        let of = |value: &u64| std::ptr::from_ref(value).cast::<std::ffi::c_void>();
        let pointers = [of(&place), of(&seed), of(&offset)];
        // SAFETY: the pointers lead to the three 64-bit integers that the kernel takes, and outlive the call; whoever made
        // the span answers for the memory.
        unsafe { self.launch(function, [1; 3], [1; 3], 0, &pointers, stream) }
    }

    /// Launches blocks of [`THREADS`] threads of a random kernel, in two dimensions.
    pub fn launch_random(
        &self,
        function: Function,
        blocks: [u32; 2],
        parameters: &Parameters,
        stream: Stream,
    ) -> DriverResult<()> {
        let of = |fill: &Fill| std::ptr::from_ref(fill).cast::<std::ffi::c_void>();
        let at = |layout: &Strided| std::ptr::from_ref(layout).cast::<std::ffi::c_void>();
        let pointers: &[*const std::ffi::c_void] = match parameters {
            Parameters::Dense(fill) => &[of(fill)],
            Parameters::Strided(fill, layout) => &[of(fill), at(layout)],
            Parameters::Each(fill, layout, other) => &[of(fill), at(layout), at(other)],
        };
        // SAFETY: the pointers lead to the structures that the kernel takes, as its name's suffix says, and outlive the
        // call.
        unsafe { self.launch(function, [blocks[0], blocks[1], 1], [THREADS, 1, 1], 0, pointers, stream) }
    }
}

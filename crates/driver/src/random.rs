//! The parameters of the random kernels, as kernels/random/fill.cuh declares them, and their launch.

use super::{Driver, DriverResult, Function, Graph, GraphNode, KernelNode, Span, Stream};

/// The state of the Philox generator: the seed and the offset, or, in a capture, the addresses at which a replay finds
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PhiloxState {
    /// The seed; in a capture the address of a `u64` on the device that holds it.
    pub seed: u64,
    /// The number of 32-bit numbers that each subsequence has produced, a multiple of 4; in a capture the address of a
    /// `u64` on the device that holds it.
    pub offset: u64,
    /// In a capture, the numbers that the graph has used before this launch; added to the offset.
    pub graph_offset: u64,
    /// 1 in a capture, else 0.
    pub captured: u32,
    /// 0.
    pub reserved: u32,
}

/// A fill of `numel` elements. Element i is number `(i / lanes) % unroll` of call `i / (lanes * unroll)` of subsequence
/// `i % lanes`, where unroll is 4, or 2 for kernels that use 64 bits per number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Fill {
    /// The generator state.
    pub philox: PhiloxState,
    /// The address of element 0. Private, because the constructor takes a [`Span`], which guarantees the memory.
    data: u64,
    /// The number of elements, less than 2^31.
    pub numel: u32,
    /// The number of subsequences used: the threads of the launch that PyTorch would make, a multiple of 256.
    pub lanes: u32,
    /// The number of consecutive calls that each thread of this launch makes in its subsequences.
    pub steps: u32,
    /// The element type, for kernels that support several: an [`ElementCode`].
    pub code: u32,
    /// The distribution's parameters: the bits of an f32, an f64 or an integer, as each kernel defines.
    pub arguments: [u64; 4],
}

/// The element types that the multi-type kernels distinguish. Signedness matters when a number is rounded to an
/// integer, not when bits are stored.
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

/// The number of threads per block of the random kernels.
pub const THREADS: u32 = 128;

/// The maximum number of dimensions of a tensor: PyTorch's limit.
pub const MAX_RANK: usize = 25;

/// The layout of a tensor's elements, the fastest dimension first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Strided {
    /// The number of dimensions.
    pub rank: u32,
    /// 0.
    pub reserved: u32,
    /// The extent of each dimension.
    pub sizes: [u32; MAX_RANK],
    /// Multipliers for division by the extents, used with `shifts`: the quotient of n < 2^31 is `(((n * magic) >> 32) +
    /// n) >> shift`.
    pub magics: [u32; MAX_RANK],
    /// See `magics`.
    pub shifts: [u32; MAX_RANK],
    /// 0.
    pub padding: u32,
    /// The stride of each dimension, in elements.
    pub strides: [i64; MAX_RANK],
}

impl Fill {
    /// Creates a fill of `numel` elements. Element 0 is at the beginning of `memory`, and the others are within it.
    pub fn of(memory: Span, numel: u32, lanes: u32) -> Fill {
        Fill { data: memory.address(), numel, lanes, ..Fill::default() }
    }

    /// Returns the address of element 0.
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

/// The parameters of a random kernel.
#[derive(Debug)]
pub enum Parameters<'a> {
    /// A fill of contiguous elements.
    Dense(&'a Fill),
    /// A fill of strided elements.
    Strided(&'a Fill, &'a Strided),
    /// A fill that reads one element of another tensor per element that it writes: the layout of the written tensor,
    /// then that of the read one.
    Each(&'a Fill, &'a Strided, &'a Strided),
}

impl Driver {
    /// Adds a node that adds `used` to the number that begins `offset`, in device memory.
    pub fn graph_add_advance(
        &self,
        graph: Graph,
        dependencies: &[GraphNode],
        function: Function,
        offset: Span,
        used: u64,
    ) -> DriverResult<GraphNode> {
        let address = offset.with_length(size_of::<u64>()).address();
        let parameters = [std::ptr::from_ref(&address).cast(), std::ptr::from_ref(&used).cast()];
        // SAFETY: the kernel takes an address and a 64-bit integer, and the constructors of `Span` guarantee the memory.
        let kernel = unsafe { KernelNode::new(function, &parameters) };
        self.graph_add_kernel(graph, dependencies, &kernel)
    }

    /// Launches blocks of [`THREADS`] threads of a random kernel, in a two-dimensional grid.
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
        // SAFETY: the pointers refer to the structs that the kernel takes, as the suffix of its name states, and
        // outlive the call.
        unsafe { self.launch(function, [blocks[0], blocks[1], 1], [THREADS, 1, 1], 0, pointers, stream) }
    }
}

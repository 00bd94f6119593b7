//! The parameters of a jiterated kernel, as kernels/jit/walk.h declares them, and its launch.

use super::{Driver, DriverResult, Function, Span, Stream};
use std::{ffi::c_void, mem::MaybeUninit};

/// The number of threads per block.
pub const THREADS: u32 = 128;
/// The maximum number of tensors of a kernel: eight inputs and eight outputs.
pub const MOST_ARRAYS: usize = 16;
/// The maximum number of scalars of a jiterated function; complex scalars take two words.
pub const MAX_SCALARS: usize = 16;
/// The dimension capacities of the strided kernels. Most layouts have few dimensions after contiguous ones are merged.
pub const RANKS: [usize; 2] = [4, 25];

/// The capacity of a launch in 64-bit words.
const WORDS: usize = 512;

/// The single parameter of a launch: the tensor addresses, their layout, and the scalars. Only the used words are
/// written, because most launches need few.
pub struct Parameters {
    words: [MaybeUninit<u64>; WORDS],
    used: usize,
}

/// The layout of non-contiguous elements, the fastest dimension first.
pub struct Strided<'a> {
    /// The dimension capacity of the kernel, one of [`RANKS`].
    pub max_rank: usize,
    /// The extents: at most `max_rank` of them, none 0, with a product below 2^31.
    pub sizes: &'a [u32],
    /// The stride of each dimension of each tensor, in bytes.
    pub strides: &'a [[i64; MOST_ARRAYS]],
    /// One bit per input: set if all elements of a row are the same element.
    pub repeats: u32,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Parameters {
    /// Creates empty parameters.
    #[inline]
    pub fn new() -> Parameters {
        Parameters { words: [const { MaybeUninit::uninit() }; WORDS], used: 0 }
    }

    fn begin(&mut self, numel: u32, rank: usize, repeats: u32, arrays: &[Span]) {
        self.used = 0;
        self.push(pair(numel, rank as u32));
        self.push(pair(repeats, 0));
        arrays.iter().for_each(|array| self.push(array.address()));
    }

    /// Starts the parameters of `numel` contiguous elements, from the beginning of each array.
    pub fn dense(&mut self, numel: u32, arrays: &[Span]) {
        self.begin(numel, 0, 0, arrays);
    }

    /// Starts the parameters of strided elements.
    pub fn strided(&mut self, layout: &Strided, arrays: &[Span]) {
        let rank = layout.sizes.len().min(layout.max_rank);
        self.begin(layout.sizes.iter().product(), rank, layout.repeats, arrays);
        let mut halves = [0_u32; 3 * RANKS[1] + 1];
        for (dimension, size) in layout.sizes[..rank].iter().enumerate() {
            // The quotient of n < 2^31 by the size is (((n * magic) >> 32) + n) >> shift.
            let shift = size.next_power_of_two().trailing_zeros();
            let magic = ((((1_u64 << shift) - u64::from(*size)) << 32) / u64::from(*size) + 1) as u32;
            halves[dimension] = *size;
            halves[layout.max_rank + dimension] = magic;
            halves[2 * layout.max_rank + dimension] = shift;
        }
        let halves = &halves[..(3 * layout.max_rank).next_multiple_of(2)];
        halves.as_chunks::<2>().0.iter().for_each(|[low, high]| self.push(pair(*low, *high)));
        let none = [0; MOST_ARRAYS];
        let strides = layout.strides[..rank].iter().chain(std::iter::repeat(&none)).take(layout.max_rank);
        strides.flat_map(|each| &each[..arrays.len()]).for_each(|stride| self.push(*stride as u64));
    }

    /// Returns the number of elements, or vectors, of the launch.
    #[cfg(any(test, feature = "test-util"))]
    pub fn count(&self) -> u64 {
        // SAFETY: callers start the parameters first, which writes the first word.
        unsafe { self.words[0].assume_init() & u64::from(u32::MAX) }
    }

    /// Appends a word of a scalar.
    pub fn push(&mut self, word: u64) {
        if let Some(slot) = self.words.get_mut(self.used) {
            slot.write(word);
            self.used += 1;
        }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self::new()
    }
}

impl Driver {
    /// Launches blocks of [`THREADS`] threads of a jiterated kernel.
    pub fn launch_jit(
        &self,
        function: Function,
        blocks: u32,
        parameters: &Parameters,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointer = parameters.words.as_ptr().cast::<c_void>();
        // SAFETY: the written words cover the kernel's one parameter, which the driver copies before it returns: the
        // words of its tensors, its dimensions and its scalars. The constructors of the spans among them guarantee
        // their memory.
        unsafe { self.launch(function, [blocks, 1, 1], [THREADS, 1, 1], 0, &[pointer], stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_launch_fits_the_parameters() {
        let (sizes, strides) = ([2_u32; 25], [[8; MOST_ARRAYS]; 25]);
        let layout = Strided { max_rank: 25, sizes: &sizes, strides: &strides, repeats: 0 };
        let mut parameters = Parameters::new();
        parameters.strided(&layout, &[Span::dangling(64); MOST_ARRAYS]);
        (0..MAX_SCALARS * 2).for_each(|word| parameters.push(word as u64));
        assert!(parameters.used <= WORDS, "{}", parameters.used);
        // Every GPU supports at least this many bytes.
        assert!(parameters.used * 8 <= 4096, "{}", parameters.used * 8);
        // SAFETY: `used` words were written.
        let words: Vec<u64> =
            parameters.words[..parameters.used].iter().map(|word| unsafe { word.assume_init() }).collect();
        assert_eq!(words[0], pair(1 << 25, 25));
        assert_eq!(words[2..18], [64; 16]);
        assert_eq!(words[18], pair(2, 2));
        // 76 halves, followed by the strides.
        assert_eq!(words[18 + 38..18 + 38 + 25 * 16], [8; 25 * 16]);
        assert_eq!(words[18 + 38 + 25 * 16..], std::array::from_fn::<u64, 32, _>(|word| word as u64));
    }

    #[test]
    fn thread_count_matches_the_kernel() {
        let text = include_str!("../../../kernels/jit/walk.h");
        assert!(text.contains(&format!("THREADS = {THREADS};")));
    }
}

//! What a jiterated kernel is told, as kernels/jit/walk.h declares it, and its launch.

use super::{Answer, Driver, Function, Span, Stream};
use std::{ffi::c_void, mem::MaybeUninit};

/// The threads of a block.
pub const THREADS: u32 = 128;
/// The most tensors of a kernel: eight inputs and eight outputs.
pub const MOST_ARRAYS: usize = 16;
/// The most dimensions of kernels for elements anywhere: mostly few are left once those that go on in each other are one.
pub const RANKS: [usize; 2] = [4, 25];

/// As many words as a launch can take.
const WORDS: usize = 512;

/// The one parameter of a launch: where the tensors are, how their elements lie, and the scalars. Only the words that are used
/// are ever written: most launches need few.
pub struct Parameters {
    words: [MaybeUninit<u64>; WORDS],
    used: usize,
}

/// How elements lie that do not lie side by side, the fastest dimension first.
pub struct Strided<'a> {
    /// The dimensions that the kernel has room for, one of [`RANKS`].
    pub most: usize,
    /// The extents, fewer than `most`, none of them 0, their product below 2^31.
    pub sizes: &'a [u32],
    /// The distance of neighbours in each dimension, in bytes, of each tensor.
    pub strides: &'a [[i64; MOST_ARRAYS]],
    /// A bit for each input of which all elements of a row are one.
    pub repeats: u32,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Parameters {
    /// A place for some.
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

    /// Begins with so many elements side by side, from the beginning of each array on.
    pub fn dense(&mut self, numel: u32, arrays: &[Span]) {
        self.begin(numel, 0, 0, arrays);
    }

    /// Begins with elements anywhere.
    pub fn strided(&mut self, layout: &Strided, arrays: &[Span]) {
        let rank = layout.sizes.len().min(layout.most);
        self.begin(layout.sizes.iter().product(), rank, layout.repeats, arrays);
        let mut halves = [0_u32; 3 * RANKS[1] + 1];
        for (dimension, size) in layout.sizes[..rank].iter().enumerate() {
            // The quotient of n < 2^31 by the size is (((n * magic) >> 32) + n) >> shift.
            let shift = size.next_power_of_two().trailing_zeros();
            let magic = ((((1_u64 << shift) - u64::from(*size)) << 32) / u64::from(*size) + 1) as u32;
            halves[dimension] = *size;
            halves[layout.most + dimension] = magic;
            halves[2 * layout.most + dimension] = shift;
        }
        let halves = &halves[..(3 * layout.most).next_multiple_of(2)];
        halves.as_chunks::<2>().0.iter().for_each(|[low, high]| self.push(pair(*low, *high)));
        let none = [0; MOST_ARRAYS];
        let strides = layout.strides[..rank].iter().chain(std::iter::repeat(&none)).take(layout.most);
        strides.flat_map(|each| &each[..arrays.len()]).for_each(|stride| self.push(*stride as u64));
    }

    /// How many elements, or vectors, the launch is for.
    #[cfg(test)]
    pub fn count(&self) -> u64 {
        // SAFETY: whoever asks has begun, and that wrote the first word.
        unsafe { self.words[0].assume_init() & u64::from(u32::MAX) }
    }

    /// Adds a word of a scalar.
    pub fn push(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut(self.used) {
            place.write(word);
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
    pub fn launch_jit(&self, function: Function, blocks: u32, parameters: &Parameters, stream: Stream) -> Answer<()> {
        let pointer = parameters.words.as_ptr().cast::<c_void>();
        // SAFETY: the words that were written are as many as the kernel's one parameter has, which the driver copies before it
        // returns: those of its tensors, of its dimensions and of its scalars. Whoever made the spans among them answers for
        // the memory.
        unsafe { self.launch(function, [blocks, 1, 1], [THREADS, 1, 1], 0, &[pointer], stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::jit::scalar;

    #[test]
    fn the_largest_launch_has_room() {
        let (sizes, strides) = ([2_u32; 25], [[8; MOST_ARRAYS]; 25]);
        let layout = Strided { most: 25, sizes: &sizes, strides: &strides, repeats: 0 };
        let mut parameters = Parameters::new();
        parameters.strided(&layout, &[Span::nowhere(64); MOST_ARRAYS]);
        (0..scalar::MAX_SCALARS * 2).for_each(|word| parameters.push(word as u64));
        assert!(parameters.used <= WORDS, "{}", parameters.used);
        // The least that every GPU takes.
        assert!(parameters.used * 8 <= 4096, "{}", parameters.used * 8);
        // SAFETY: so many words were written.
        let words: Vec<u64> =
            parameters.words[..parameters.used].iter().map(|word| unsafe { word.assume_init() }).collect();
        assert_eq!(words[0], pair(1 << 25, 25));
        assert_eq!(words[2..18], [64; 16]);
        assert_eq!(words[18], pair(2, 2));
        // 76 halves, and the strides.
        assert_eq!(words[18 + 38..18 + 38 + 25 * 16], [8; 25 * 16]);
        assert_eq!(words[18 + 38 + 25 * 16..], std::array::from_fn::<u64, 32, _>(|word| word as u64));
    }

    #[test]
    fn the_threads_are_the_kernels() {
        let text = include_str!("../../kernels/jit/walk.h");
        assert!(text.contains(&format!("THREADS = {THREADS};")));
    }
}

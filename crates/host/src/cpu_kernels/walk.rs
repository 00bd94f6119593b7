//! The order of a fill's elements: which number of which subsequence each element uses, and where it is written.

use super::{
    element::Element,
    philox::{self, WIDTH, Words},
};
use crate::driver::random::{MAX_RANK, Strided};

/// A block of elements: the elements of component k of all lanes' calls are contiguous.
#[repr(C, align(64))]
pub struct Rows<E, const N: usize>(pub [[E; WIDTH]; N]);

/// A distribution that converts a call of four numbers to N elements.
pub trait Distribution<const N: usize>: Sized {
    type Element: Element;

    /// Creates the distribution from the arguments of its kernel.
    fn new(arguments: &[u64; 4]) -> Self;

    /// Computes the first `rows` rows, and possibly more.
    fn make(&self, words: &Words, out: &mut Rows<Self::Element, N>, rows: usize);
}

/// Converts each number to an element.
#[inline(always)]
pub fn each_word<E, const N: usize>(words: &Words, out: &mut Rows<E, N>, rows: usize, element: impl Fn(u32) -> E) {
    for (from, to) in words.0.iter().zip(&mut out.0).take(rows) {
        for (word, out) in from.iter().zip(to) {
            *out = element(*word);
        }
    }
}

/// Converts each pair of numbers to N/2 elements.
#[inline(always)]
pub fn each_pair<E, const N: usize, const OUT: usize>(
    words: &Words,
    out: &mut Rows<E, N>,
    rows: usize,
    elements: impl Fn(u32, u32) -> [E; OUT],
) {
    for (from, to) in words.0.chunks_exact(2).zip(out.0.chunks_exact_mut(OUT)).take(rows.div_ceil(OUT)) {
        for index in 0..WIDTH {
            for (row, element) in to.iter_mut().zip(elements(from[0][index], from[1][index])) {
                row[index] = element;
            }
        }
    }
}

/// The source of a fill's numbers, and how many it needs.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    pub seed: u64,
    /// The number of the first call.
    pub call: u64,
    pub numel: u64,
    /// The number of lanes, a multiple of the width.
    pub lanes: u64,
}

/// A destination of elements.
pub trait Sink<E> {
    fn put(&mut self, start: u64, elements: &[E]);
}

/// Returns whether the processor can run `fill_avx2`. Not inlined into each of its callers.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn has_wide_vectors() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

impl Walk {
    /// Computes all elements.
    pub fn fill<D: Distribution<N>, const N: usize>(&self, distribution: &D, sink: &mut dyn Sink<D::Element>) {
        #[cfg(target_arch = "x86_64")]
        if has_wide_vectors() {
            // SAFETY: the processor's support was just checked.
            return unsafe { self.fill_avx2(distribution, sink) };
        }
        self.fill_plain(distribution, sink);
    }

    fn fill_plain<D: Distribution<N>, const N: usize>(&self, distribution: &D, sink: &mut dyn Sink<D::Element>) {
        let (mut words, mut out) = (Words::ZERO, Rows([[D::Element::default(); WIDTH]; N]));
        self.each_block(N, &mut |call, lane, start, rows| {
            philox::words_plain(self.seed, call, lane, &mut words);
            distribution.make(&words, &mut out, rows);
            self.put_rows(start, &out.0[..rows], sink);
        });
    }

    /// As `fill_plain`, with wider vectors: the closure and all inlined functions are compiled for them.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn fill_avx2<D: Distribution<N>, const N: usize>(&self, distribution: &D, sink: &mut dyn Sink<D::Element>) {
        self.each_block(N, &mut |call, lane, start, rows| {
            self.block_avx2(distribution, [call, lane, start], rows, sink);
        });
    }

    /// Computes a block. Its memory is its own, not the closure's: otherwise the compiler cannot know that the distribution,
    /// the words and the elements do not overlap, and uses no vectors.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn block_avx2<D: Distribution<N>, const N: usize>(
        &self,
        distribution: &D,
        [call, lane, start]: [u64; 3],
        rows: usize,
        sink: &mut dyn Sink<D::Element>,
    ) {
        let (mut words, mut out) = (Words::ZERO, Rows([[D::Element::default(); WIDTH]; N]));
        philox::words_avx2(self.seed, call, lane, &mut words);
        distribution.make(&words, &mut out, rows);
        self.put_rows(start, &out.0[..rows], sink);
    }

    /// Calls `block` with the call, the lane, the first element and the number of rows of each block. Not generic: there are
    /// many distributions.
    fn each_block(&self, rows: usize, block: &mut dyn FnMut(u64, u64, u64, usize)) {
        let (mut call, mut first) = (self.call, 0);
        while first < self.numel {
            for lane in (0..self.lanes.min(self.numel - first)).step_by(WIDTH) {
                let start = first + lane;
                block(call, lane, start, (self.numel - start).div_ceil(self.lanes).min(rows as u64) as usize);
            }
            call = call.wrapping_add(1);
            first += self.lanes * rows as u64;
        }
    }

    #[inline(never)]
    fn put_rows<E>(&self, start: u64, rows: &[[E; WIDTH]], sink: &mut dyn Sink<E>) {
        for (start, row) in (start..).step_by(self.lanes as usize).zip(rows) {
            let count = (self.numel - start).min(WIDTH as u64) as usize;
            sink.put(start, &row[..count]);
        }
    }
}

/// An iterator over the offsets of a layout's elements, in elements.
pub struct Offsets<'a> {
    layout: &'a Strided,
    digits: [u32; MAX_RANK],
    /// The distance from element 0, in elements.
    distance: i64,
}

impl<'a> Offsets<'a> {
    /// Starts at element `start`.
    pub fn new(layout: &'a Strided, start: u64) -> Offsets<'a> {
        let mut offsets = Offsets { layout, digits: [0; MAX_RANK], distance: 0 };
        let mut rest = start;
        for dimension in 0..layout.rank as usize {
            let size = u64::from(layout.sizes[dimension]);
            offsets.digits[dimension] = (rest % size) as u32;
            offsets.distance += (rest % size) as i64 * layout.strides[dimension];
            rest /= size;
        }
        offsets
    }
}

impl Iterator for Offsets<'_> {
    type Item = i64;

    #[inline(always)]
    fn next(&mut self) -> Option<i64> {
        let offset = self.distance;
        for dimension in 0..self.layout.rank as usize {
            let (size, stride) = (self.layout.sizes[dimension], self.layout.strides[dimension]);
            self.digits[dimension] += 1;
            self.distance = self.distance.wrapping_add(stride);
            if self.digits[dimension] < size {
                break;
            }
            self.digits[dimension] = 0;
            self.distance = self.distance.wrapping_sub(stride.wrapping_mul(i64::from(size)));
        }
        Some(offset)
    }
}

/// Returns the minimum and the maximum distance from element 0, in elements, of a layout of `numel` elements. Returns
/// `None` if the layout has another number of elements, or on overflow.
pub fn extent(layout: &Strided, numel: u64) -> Option<(i64, i64)> {
    let rank = layout.rank as usize;
    let (sizes, strides) = (layout.sizes.get(..rank)?, layout.strides.get(..rank)?);
    let (mut count, mut low, mut high) = (1_u64, 0_i64, 0_i64);
    for (size, stride) in sizes.iter().zip(strides) {
        count = count.checked_mul(u64::from(*size))?;
        let reach = i64::from(*size).checked_sub(1)?.checked_mul(*stride)?;
        (low, high) = (low.checked_add(reach.min(0))?, high.checked_add(reach.max(0))?);
    }
    (count == numel).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_kernels::{
        real::{Cauchy, CauchyDouble, Exponential, Normal, NormalDouble, Uniform},
        whole::{Integers, WideIntegers},
    };
    use crate::driver::half::F16;

    struct Kept<E>(Vec<E>);

    impl<E: Copy> Sink<E> for Kept<E> {
        fn put(&mut self, start: u64, elements: &[E]) {
            self.0[start as usize..][..elements.len()].copy_from_slice(elements);
        }
    }

    /// Checks that the results do not depend on wide vectors, to the last bit.
    fn check<D: Distribution<N>, const N: usize>(arguments: [u64; 4]) {
        let walk = Walk { seed: 11, call: 5, numel: 5000, lanes: 512 };
        let [mut wide, mut plain] = [0; 2].map(|_| Kept(vec![D::Element::default(); 5000]));
        walk.fill(&D::new(&arguments), &mut wide);
        walk.fill_plain(&D::new(&arguments), &mut plain);
        assert!(wide.0 == plain.0);
        assert!(wide.0.iter().any(|element| *element != wide.0[0]));
    }

    #[test]
    fn results_do_not_depend_on_the_processor() {
        let (one, two) = (u64::from(1.0_f32.to_bits()), u64::from(2.0_f32.to_bits()));
        check::<Uniform<f32>, _>([one, two, one, 0]);
        check::<Uniform<F16>, _>([one, two, one, 0]);
        check::<Normal<f32, false>, _>([one, two, 0, 0]);
        check::<Normal<f32, true>, _>([one, two, 0, 0]);
        check::<NormalDouble<true>, _>([0, 1.0_f64.to_bits(), 0, 0]);
        check::<Exponential<f32>, _>([one, 0, 0, 0]);
        check::<Cauchy<f32>, _>([one, two, 0, 0]);
        check::<CauchyDouble, _>([0, 1.0_f64.to_bits(), 0, 0]);
        check::<Integers<u8>, _>([100, 3, (1 << 32) / 100, 0]);
        check::<WideIntegers<f32>, _>([0, 3, 0, 0]);
    }
}

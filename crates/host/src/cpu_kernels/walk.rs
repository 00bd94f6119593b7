//! The order of a fill's elements: which number of which subsequence each one is made of, and where it goes.

use super::{
    element::Element,
    philox::{self, WIDTH, Words},
};
use crate::driver::random::{MAX_RANK, Strided};

/// A block of elements: what component k of each lane's call becomes, side by side.
#[repr(C, align(64))]
pub struct Rows<E, const N: usize>(pub [[E; WIDTH]; N]);

/// A distribution of which a call of four numbers makes N elements.
pub trait Distribution<const N: usize>: Sized {
    type Element: Element;

    /// With the parameters of its kernel.
    fn of(arguments: &[u64; 4]) -> Self;

    /// Makes the first `rows` rows, and others if it likes.
    fn make(&self, words: &Words, out: &mut Rows<Self::Element, N>, rows: usize);
}

/// Makes an element of each number.
#[inline(always)]
pub fn each_word<E, const N: usize>(words: &Words, out: &mut Rows<E, N>, rows: usize, element: impl Fn(u32) -> E) {
    for (from, to) in words.0.iter().zip(&mut out.0).take(rows) {
        for (word, place) in from.iter().zip(to) {
            *place = element(*word);
        }
    }
}

/// Makes N/2 elements of each pair of numbers.
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

/// Where a fill's numbers come from, and how many it needs.
#[derive(Debug, Clone, Copy)]
pub struct Walk {
    pub seed: u64,
    /// The first call.
    pub call: u64,
    pub numel: u64,
    /// A multiple of the width.
    pub lanes: u64,
}

/// Takes the elements from `start` on.
pub trait Sink<E> {
    fn put(&mut self, start: u64, elements: &[E]);
}

impl Walk {
    /// Makes all elements.
    pub fn fill<D: Distribution<N>, const N: usize>(&self, distribution: &D, sink: &mut dyn Sink<D::Element>) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor was just asked.
            return unsafe { self.fill_avx2(distribution, sink) };
        }
        self.fill_by(distribution, sink, philox::words_plain);
    }

    /// The same with wider vectors: everything that is inlined is compiled for them.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn fill_avx2<D: Distribution<N>, const N: usize>(&self, distribution: &D, sink: &mut dyn Sink<D::Element>) {
        self.fill_by(distribution, sink, |seed, call, lane, out: &mut Words| {
            philox::words_avx2(seed, call, lane, out);
        });
    }

    #[inline(always)]
    fn fill_by<D: Distribution<N>, const N: usize>(
        &self,
        distribution: &D,
        sink: &mut dyn Sink<D::Element>,
        numbers: impl Fn(u64, u64, u64, &mut Words),
    ) {
        let (mut words, mut out) = (Words::ZERO, Rows([[D::Element::default(); WIDTH]; N]));
        let (mut call, mut first) = (self.call, 0);
        while first < self.numel {
            for lane in (0..self.lanes.min(self.numel - first)).step_by(WIDTH) {
                numbers(self.seed, call, lane, &mut words);
                let start = first + lane;
                let rows = (self.numel - start).div_ceil(self.lanes).min(N as u64) as usize;
                distribution.make(&words, &mut out, rows);
                for (start, row) in (start..).step_by(self.lanes as usize).zip(&out.0).take(rows) {
                    let count = (self.numel - start).min(WIDTH as u64) as usize;
                    sink.put(start, &row[..count]);
                }
            }
            call = call.wrapping_add(1);
            first += self.lanes * N as u64;
        }
    }
}

/// Where element i of a layout lies, for i rising one by one.
pub struct Places<'a> {
    layout: &'a Strided,
    digits: [u32; MAX_RANK],
    /// The distance from element 0, in elements.
    distance: i64,
}

impl<'a> Places<'a> {
    /// From element `start` on.
    pub fn new(layout: &'a Strided, start: u64) -> Places<'a> {
        let mut places = Places { layout, digits: [0; MAX_RANK], distance: 0 };
        let mut rest = start;
        for dimension in 0..layout.rank as usize {
            let size = u64::from(layout.sizes[dimension]);
            places.digits[dimension] = (rest % size) as u32;
            places.distance += (rest % size) as i64 * layout.strides[dimension];
            rest /= size;
        }
        places
    }
}

impl Iterator for Places<'_> {
    type Item = i64;

    #[inline(always)]
    fn next(&mut self) -> Option<i64> {
        let place = self.distance;
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
        Some(place)
    }
}

/// The least and the greatest distance from element 0, in elements, that a layout of `numel` elements has; nothing if
/// it has another number of them, or cannot be counted in 64 bits.
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

    /// A processor without wide vectors has the same numbers, to the last bit.
    fn check<D: Distribution<N>, const N: usize>(arguments: [u64; 4]) {
        let walk = Walk { seed: 11, call: 5, numel: 5000, lanes: 512 };
        let [mut wide, mut plain] = [0; 2].map(|_| Kept(vec![D::Element::default(); 5000]));
        walk.fill(&D::of(&arguments), &mut wide);
        walk.fill_by(&D::of(&arguments), &mut plain, philox::words_plain);
        assert!(wide.0 == plain.0);
        assert!(wide.0.iter().any(|element| *element != wide.0[0]));
    }

    #[test]
    fn every_processor_has_the_same_numbers() {
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

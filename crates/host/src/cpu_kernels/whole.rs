//! Integer and Bernoulli distributions.

use super::{
    element::Element,
    philox::Words,
    real::wide,
    walk::{Distribution, Rows, each_pair, each_word},
};
use std::marker::PhantomData;

/// Bernoulli numbers: `one` for all numbers below the threshold.
pub struct Bernoulli<T> {
    /// At most 2^32.
    threshold: u64,
    one: T,
}

impl<T: Element> Distribution<4> for Bernoulli<T> {
    type Element = T;

    fn new([threshold, one, _, _]: &[u64; 4]) -> Self {
        Bernoulli { threshold: *threshold, one: T::from_i64(*one as i64) }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 4>, rows: usize) {
        // Compares in 32 bits; a threshold that does not fit is handled separately.
        let (always, threshold) = (self.threshold > u64::from(u32::MAX), self.threshold as u32);
        each_word(words, out, rows, |word| if always | (word < threshold) { self.one } else { T::default() });
    }
}

/// The variant with 53 bits.
pub struct BernoulliDouble {
    threshold: u64,
    one: u64,
}

impl Distribution<2> for BernoulliDouble {
    type Element = u64;

    fn new([threshold, one, _, _]: &[u64; 4]) -> Self {
        BernoulliDouble { threshold: *threshold, one: *one }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<u64, 2>, rows: usize) {
        each_pair(words, out, rows, |x, y| [if wide(x, y) < self.threshold { self.one } else { 0 }]);
    }
}

/// Integers: remainders by a divisor, plus `base`.
pub struct Integers<T> {
    divisor: u32,
    /// 2^32 / divisor, but less than 2^32.
    reciprocal: u32,
    base: i64,
    of: PhantomData<T>,
}

impl<T: Element> Distribution<4> for Integers<T> {
    type Element = T;

    fn new([divisor, base, reciprocal, _]: &[u64; 4]) -> Self {
        let (divisor, reciprocal) = (*divisor as u32, *reciprocal as u32);
        Integers { divisor, reciprocal, base: *base as i64, of: PhantomData }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 4>, rows: usize) {
        each_word(words, out, rows, |word| {
            // The quotient is at most one too small.
            let quotient = ((u64::from(word) * u64::from(self.reciprocal)) >> 32) as u32;
            let rest = word.wrapping_sub(quotient.wrapping_mul(self.divisor));
            let rest = if rest >= self.divisor { rest - self.divisor } else { rest };
            T::from_i64(i64::from(rest).wrapping_add(self.base))
        });
    }
}

/// The variant with 64 bits; divisor 0 means 2^64.
pub struct WideIntegers<T> {
    divisor: u64,
    /// 2^64 / divisor, but less than 2^64.
    reciprocal: u64,
    base: i64,
    of: PhantomData<T>,
}

impl<T: Element> Distribution<2> for WideIntegers<T> {
    type Element = T;

    fn new([divisor, base, reciprocal, _]: &[u64; 4]) -> Self {
        WideIntegers { divisor: *divisor, reciprocal: *reciprocal, base: *base as i64, of: PhantomData }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 2>, rows: usize) {
        let all = self.divisor == 0;
        each_pair(words, out, rows, |x, y| {
            let word = u64::from(x) << 32 | u64::from(y);
            let quotient = ((u128::from(word) * u128::from(self.reciprocal)) >> 64) as u64;
            let rest = word.wrapping_sub(quotient.wrapping_mul(self.divisor));
            let rest = if rest >= self.divisor { rest.wrapping_sub(self.divisor) } else { rest };
            [T::from_i64((if all { word } else { rest } as i64).wrapping_add(self.base))]
        });
    }
}

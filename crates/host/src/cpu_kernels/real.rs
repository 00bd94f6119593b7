//! Real distributions: the conversion of a call's four numbers in PyTorch's kernels, step by step with the same
//! rounding.
//!
//! f32 is also used for half-precision types, whose elements are rounded at the end. f64 uses 53 bits of two numbers.

use super::{
    element::Element,
    math::{double, single},
    philox::Words,
    walk::{Distribution, Rows, each_pair, each_word},
};
use std::marker::PhantomData;

/// Converts a number to a fraction greater than 0 and at most 1.
#[inline(always)]
pub fn fraction(word: u32) -> f32 {
    const UNIT: f32 = 1.0 / 4_294_967_296.0;
    (word as f32).mul_add(UNIT, UNIT / 2.0)
}

/// Returns 53 bits of two numbers.
#[inline(always)]
pub fn wide(x: u32, y: u32) -> u64 {
    u64::from(x) ^ u64::from(y) << 21
}

/// Converts an integer of 53 bits to f64, through the bits of its halves, so that loops can be vectorized.
#[inline(always)]
fn exact(z: u64) -> f64 {
    const LOW: f64 = 4_503_599_627_370_496.0;
    const HIGH: f64 = LOW * 4_294_967_296.0;
    let (low, high) = (f64::from_bits(LOW.to_bits() | z & 0xFFFF_FFFF), f64::from_bits(HIGH.to_bits() | z >> 32));
    (high - (HIGH + LOW)) + low
}

/// Converts two numbers to a fraction greater than 0 and at most 1.
#[inline(always)]
fn fraction_double(x: u32, y: u32) -> f64 {
    const UNIT: f64 = 1.0 / 9_007_199_254_740_992.0;
    exact(wide(x, y)).mul_add(UNIT, UNIT / 2.0)
}

fn single_of(argument: u64) -> f32 {
    f32::from_bits(argument as u32)
}

/// Uniform numbers in [low, high): the conversion maps `high` to `low`.
pub struct Uniform<T> {
    low: f32,
    range: f32,
    high: f32,
    of: PhantomData<T>,
}

impl<T: Element> Distribution<4> for Uniform<T> {
    type Element = T;

    fn new([low, range, high, _]: &[u64; 4]) -> Self {
        Uniform { low: single_of(*low), range: single_of(*range), high: single_of(*high), of: PhantomData }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 4>, rows: usize) {
        let (low, high) = (T::from_f32(self.low), T::from_f32(self.high));
        each_word(words, out, rows, |word| {
            let value = T::from_f32(fraction(word).mul_add(self.range, self.low));
            if value == high { low } else { value }
        });
    }
}

/// The f64 variant.
pub struct UniformDouble {
    low: f64,
    range: f64,
    high: f64,
}

impl Distribution<2> for UniformDouble {
    type Element = f64;

    fn new([low, range, high, _]: &[u64; 4]) -> Self {
        UniformDouble { low: f64::from_bits(*low), range: f64::from_bits(*range), high: f64::from_bits(*high) }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<f64, 2>, rows: usize) {
        each_pair(words, out, rows, |x, y| {
            let value = fraction_double(x, y).mul_add(self.range, self.low);
            [if value == self.high { self.low } else { value }]
        });
    }
}

/// Converts two uniform numbers to two independent normal numbers by the Box-Muller transform.
#[inline(always)]
fn box_muller(x: u32, y: u32) -> [f32; 2] {
    const TURN: f32 = 6.283_185_5 / 4_294_967_296.0;
    let radius = (-2.0 * single::ln(fraction(x))).sqrt();
    let angle = (y as f32).mul_add(TURN, TURN / 2.0);
    let (sin, cos) = single::sin_cos_turns(single::turns(angle));
    [radius * sin, radius * cos]
}

#[inline(always)]
fn box_muller_double(x: u32, y: u32, z: u32, w: u32) -> [f64; 2] {
    const UNIT: f64 = 2.0 / 9_007_199_254_740_992.0;
    let radius = (-2.0 * double::ln(fraction_double(x, y))).sqrt();
    let (sin, cos) = double::sin_cos_pi(exact(wide(z, w)).mul_add(UNIT, UNIT / 2.0));
    [radius * sin, radius * cos]
}

/// Normal numbers; with EXP, e to the power of them.
pub struct Normal<T, const EXP: bool> {
    mean: f32,
    std: f32,
    of: PhantomData<T>,
}

impl<T: Element, const EXP: bool> Distribution<4> for Normal<T, EXP> {
    type Element = T;

    fn new([mean, std, _, _]: &[u64; 4]) -> Self {
        Normal { mean: single_of(*mean), std: single_of(*std), of: PhantomData }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 4>, rows: usize) {
        each_pair(words, out, rows, |x, y| {
            box_muller(x, y).map(|number| {
                let value = number.mul_add(self.std, self.mean);
                T::from_f32(if EXP { single::exp(value) } else { value })
            })
        });
    }
}

/// The f64 variant.
pub struct NormalDouble<const EXP: bool> {
    mean: f64,
    std: f64,
}

impl<const EXP: bool> Distribution<2> for NormalDouble<EXP> {
    type Element = f64;

    fn new([mean, std, _, _]: &[u64; 4]) -> Self {
        NormalDouble { mean: f64::from_bits(*mean), std: f64::from_bits(*std) }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<f64, 2>, _: usize) {
        let ([x, y, z, w], [first, second]) = (&words.0, &mut out.0);
        for index in 0..first.len() {
            let pair = box_muller_double(x[index], y[index], z[index], w[index]).map(|number| {
                let value = number.mul_add(self.std, self.mean);
                if EXP { double::exp(value) } else { value }
            });
            [first[index], second[index]] = pair;
        }
    }
}

/// Exponential distribution with the rate `-1 / factor`.
pub struct Exponential<T> {
    factor: f32,
    of: PhantomData<T>,
}

impl<T: Element> Distribution<4> for Exponential<T> {
    type Element = T;

    fn new([factor, ..]: &[u64; 4]) -> Self {
        Exponential { factor: single_of(*factor), of: PhantomData }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 4>, rows: usize) {
        const LEAST: f32 = -f32::EPSILON / 2.0;
        each_word(words, out, rows, |word| {
            // Never 0: the largest fractions are treated as less than 1.
            let u = fraction(word);
            let log = if u >= 1.0 + LEAST { LEAST } else { single::ln(u) };
            T::from_f32(self.factor * log)
        });
    }
}

/// The f64 variant.
pub struct ExponentialDouble {
    factor: f64,
}

impl Distribution<2> for ExponentialDouble {
    type Element = f64;

    fn new([factor, ..]: &[u64; 4]) -> Self {
        ExponentialDouble { factor: f64::from_bits(*factor) }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<f64, 2>, rows: usize) {
        const LEAST: f64 = -f64::EPSILON / 2.0;
        each_pair(words, out, rows, |x, y| {
            let u = fraction_double(x, y);
            let log = if u >= 1.0 + LEAST { LEAST } else { double::ln(u) };
            [self.factor * log]
        });
    }
}

/// Cauchy distribution around `median`.
pub struct Cauchy<T> {
    median: f32,
    sigma: f32,
    of: PhantomData<T>,
}

impl<T: Element> Distribution<4> for Cauchy<T> {
    type Element = T;

    fn new([median, sigma, _, _]: &[u64; 4]) -> Self {
        Cauchy { median: single_of(*median), sigma: single_of(*sigma), of: PhantomData }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 4>, rows: usize) {
        each_word(words, out, rows, |word| {
            // Limited to fractions for which the tangent is finite.
            let u = fraction(word).clamp(f32::EPSILON, 1.0 - f32::EPSILON);
            let tan = single::tan(std::f32::consts::PI * (u - 0.5));
            T::from_f32(self.sigma.mul_add(tan, self.median))
        });
    }
}

/// The f64 variant.
pub struct CauchyDouble {
    median: f64,
    sigma: f64,
}

impl Distribution<2> for CauchyDouble {
    type Element = f64;

    fn new([median, sigma, _, _]: &[u64; 4]) -> Self {
        CauchyDouble { median: f64::from_bits(*median), sigma: f64::from_bits(*sigma) }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<f64, 2>, rows: usize) {
        each_pair(words, out, rows, |x, y| {
            let tan = double::tan(std::f64::consts::PI * (fraction_double(x, y) - 0.5));
            [self.sigma.mul_add(tan, self.median)]
        });
    }
}

/// Geometric distribution: the number of trials up to the first success, with the probability p each.
pub struct Geometric<T> {
    /// ln(1 - p).
    failure: f32,
    of: PhantomData<T>,
}

impl<T: Element> Distribution<4> for Geometric<T> {
    type Element = T;

    fn new([p, ..]: &[u64; 4]) -> Self {
        Geometric { failure: f64::from(1.0 - single_of(*p)).ln() as f32, of: PhantomData }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<T, 4>, rows: usize) {
        each_word(words, out, rows, |word| T::from_f32((single::ln(fraction(word)) / self.failure).ceil()));
    }
}

/// The f64 variant.
pub struct GeometricDouble {
    failure: f64,
}

impl Distribution<2> for GeometricDouble {
    type Element = f64;

    fn new([p, ..]: &[u64; 4]) -> Self {
        GeometricDouble { failure: (-f64::from_bits(*p)).ln_1p() }
    }

    #[inline(always)]
    fn make(&self, words: &Words, out: &mut Rows<f64, 2>, rows: usize) {
        each_pair(words, out, rows, |x, y| [(double::ln(fraction_double(x, y)) / self.failure).ceil()]);
    }
}

//! The functions of the distributions, as polynomials without branches. So loops can be vectorized, and the results are
//! the same on every machine, which the system's functions do not guarantee.
//!
//! The polynomials interpolate the functions at Chebyshev nodes. `tests` measures the errors.

use std::ops::Mul;

/// Returns the square, also of an expression, which is evaluated once.
#[inline(always)]
fn square<T: Copy + Mul<Output = T>>(x: T) -> T {
    x * x
}

/// f32 functions. They round where a GPU's fast functions round.
pub mod single {
    use super::square;

    const SQRT_HALF: u32 = 0x3F35_04F3;
    /// The product of this constant and an exponent is exact.
    const LN2_HIGH: f32 = 0.693_145_75;
    const LN2_LOW: f32 = 1.428_606_8e-6;
    /// A number to which small numbers are added to round them to integers, which are then its low bits.
    const ROUNDER: f32 = 12_582_912.0;

    /// Evaluates a polynomial by Horner's rule; the constant coefficient is first.
    #[inline(always)]
    fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
        let mut sum = coefficients[N - 1];
        for index in (0..N - 1).rev() {
            sum = sum.mul_add(x, coefficients[index]);
        }
        sum
    }

    /// Returns the natural logarithm of a positive normal number.
    #[inline(always)]
    pub fn ln(x: f32) -> f32 {
        // x is 2^exponent (1 + f), with 1 + f between the square roots of 1/2 and 2.
        let shifted = x.to_bits().wrapping_sub(SQRT_HALF);
        let exponent = (shifted as i32 >> 23) as f32;
        let f = f32::from_bits((shifted & 0x007F_FFFF) + SQRT_HALF) - 1.0;
        let series = polynomial(
            f,
            [
                0.333_333_3,
                -0.249_999_97,
                0.200_007_16,
                -0.166_678_03,
                0.142_490_58,
                -0.124_256_87,
                0.116_854_2,
                -0.114_797_34,
                0.069_716_12,
            ],
        );
        let tail = square(f).mul_add(-0.5, f * square(f) * series);
        exponent.mul_add(LN2_HIGH, f + exponent.mul_add(LN2_LOW, tail))
    }

    /// Returns the sine and cosine of 2 pi `turns`, for 0 to 1.
    #[inline(always)]
    pub fn sin_cos_turns(turns: f32) -> (f32, f32) {
        let rounded = turns.mul_add(4.0, ROUNDER);
        let quarters = rounded.to_bits();
        let rest = (rounded - ROUNDER).mul_add(-0.25, turns);
        let z = square(rest);
        let sin = polynomial(z, [6.283_185_5, -41.341_7, 81.605_23, -76.701_29, 41.589_542]) * rest;
        let cos = polynomial(z, [1.0, -19.739_208, 64.939_37, -85.448_82, 59.424_107]);
        let (sin, cos) = if quarters & 1 == 0 { (sin, cos) } else { (cos, sin) };
        let signed = |value: f32, half: u32| f32::from_bits(value.to_bits() ^ (half & 2) << 30);
        (signed(sin, quarters), signed(cos, quarters.wrapping_add(1)))
    }

    /// Converts an angle to turns as a GPU's fast sine does: it multiplies by 1/(2 pi) and rounds towards 0.
    #[inline(always)]
    pub fn turns(angle: f32) -> f32 {
        const TURN: f32 = 0.159_154_94;
        let product = angle * TURN;
        let excess = angle.mul_add(TURN, -product) < 0.0;
        f32::from_bits(product.to_bits() - u32::from(excess))
    }

    /// Returns the tangent through the fast sine and cosine, for -pi/2 to pi/2.
    #[inline(always)]
    pub fn tan(angle: f32) -> f32 {
        let (sin, cos) = sin_cos_turns(turns(angle.abs()));
        (sin / cos).copysign(angle)
    }

    /// Returns e^x, through 2^x.
    #[inline(always)]
    pub fn exp(x: f32) -> f32 {
        let y = (x * std::f32::consts::LOG2_E).clamp(-151.0, 129.0);
        let rounded = y + ROUNDER;
        let rest = y - (rounded - ROUNDER);
        let power = polynomial(
            rest,
            [1.0, std::f32::consts::LN_2, 0.240_226_5, 0.055_503_57, 0.009_618_083, 0.001_339_086_3, 0.000_154_531_63],
        );
        // Two factors are needed for results between the smallest normal number and 0.
        let exponent = rounded.to_bits().wrapping_sub(ROUNDER.to_bits()) as i32;
        let scale = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
        power * scale(exponent >> 1) * scale(exponent.wrapping_sub(exponent >> 1))
    }
}

/// f64 functions, accurate to a few units of the last place, as a GPU's are.
pub mod double {
    use super::square;

    const SQRT_HALF: u64 = 0x3FE6_A09E_667F_3BCD;
    const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN2_LOW: f64 = 1.908_214_929_270_588e-10;
    const ROUNDER: f64 = 6_755_399_441_055_744.0;

    /// Evaluates a polynomial by Horner's rule; the constant coefficient is first.
    #[inline(always)]
    fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
        let mut sum = coefficients[N - 1];
        for index in (0..N - 1).rev() {
            sum = sum.mul_add(x, coefficients[index]);
        }
        sum
    }

    /// Returns the natural logarithm of a positive normal number.
    #[inline(always)]
    pub fn ln(x: f64) -> f64 {
        let shifted = x.to_bits().wrapping_sub(SQRT_HALF);
        // The exponent is converted with the low bits of ROUNDER, since a vector unit may not convert 64-bit integers.
        let exponent = shifted.wrapping_add(1023 << 52) >> 52;
        let exponent = f64::from_bits(ROUNDER.to_bits() + exponent) - (ROUNDER + 1023.0);
        let f = f64::from_bits((shifted & 0x000F_FFFF_FFFF_FFFF) + SQRT_HALF) - 1.0;
        // ln(1 + f) is 2 artanh s.
        let s = f / (2.0 + f);
        let z = square(s);
        let series = polynomial(
            z,
            [
                0.666_666_666_666_666_6,
                0.400_000_000_000_008_8,
                0.285_714_285_708_036_14,
                0.222_222_223_917_139_17,
                0.181_817_956_401_329_06,
                0.153_862_397_028_146_58,
                0.132_687_731_386_568_86,
                0.130_866_261_478_401_02,
            ],
        ) * z;
        let half_square = 0.5 * square(f);
        let tail = half_square - s.mul_add(half_square + series, exponent * LN2_LOW);
        exponent.mul_add(LN2_HIGH, f - tail)
    }

    /// Returns the sine and cosine of pi times `halves`, for -2 to 2.
    #[inline(always)]
    pub fn sin_cos_pi(halves: f64) -> (f64, f64) {
        let rounded = halves.mul_add(2.0, ROUNDER);
        let quarters = rounded.to_bits();
        let rest = (rounded - ROUNDER).mul_add(-0.5, halves);
        let z = square(rest);
        let series = polynomial(
            z,
            [
                -5.167_712_780_049_97,
                2.550_164_039_877_345,
                -0.599_264_529_320_647_8,
                0.082_145_886_597_276_76,
                -0.007_370_430_312_294_823_5,
                0.000_466_287_932_614_748_1,
                -2.174_206_734_248_000_5e-5,
            ],
        );
        let sin = rest.mul_add(std::f64::consts::PI, rest * z * series);
        let cos = polynomial(
            z,
            [
                1.0,
                -4.934_802_200_544_679,
                4.058_712_126_416_768_5,
                -1.335_262_768_854_588_4,
                0.235_330_630_358_806_89,
                -0.025_806_891_384_587_305,
                0.001_929_574_124_106_191_3,
                -0.000_104_634_598_963_683_7,
                4.268_505_646_755_225e-6,
            ],
        );
        let (sin, cos) = if quarters & 1 == 0 { (sin, cos) } else { (cos, sin) };
        let signed = |value: f64, half: u64| f64::from_bits(value.to_bits() ^ (half & 2) << 62);
        (signed(sin, quarters), signed(cos, quarters.wrapping_add(1)))
    }

    /// Returns the tangent, for -pi/2 to pi/2.
    #[inline(always)]
    pub fn tan(angle: f64) -> f64 {
        const QUARTER_HIGH: f64 = std::f64::consts::FRAC_PI_2;
        const QUARTER_LOW: f64 = 6.123_233_995_736_766e-17;
        // Within an eighth of a turn of pi/2, the tangent is the reciprocal of the complement's tangent.
        let magnitude = angle.abs();
        let near = magnitude > std::f64::consts::FRAC_PI_4;
        let rest = if near { (QUARTER_HIGH - magnitude) + QUARTER_LOW } else { magnitude };
        let (sin, cos) = sin_cos_pi(rest * std::f64::consts::FRAC_1_PI);
        (if near { cos / sin } else { sin / cos }).copysign(angle)
    }

    /// Returns e^x.
    #[inline(always)]
    pub fn exp(x: f64) -> f64 {
        let x = x.clamp(-750.0, 720.0);
        let rounded = x.mul_add(std::f64::consts::LOG2_E, ROUNDER);
        let n = rounded - ROUNDER;
        let rest = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, x));
        let series = polynomial(
            rest,
            [
                0.5,
                0.166_666_666_666_666_66,
                0.041_666_666_666_666_68,
                0.008_333_333_333_333_333,
                0.001_388_888_888_887_908_2,
                0.000_198_412_698_412_633_04,
                2.480_158_733_642_132e-5,
                2.755_731_924_720_479e-6,
                2.755_726_330_147_475e-7,
                2.505_207_110_921_444_7e-8,
                2.091_812_945_496_706_5e-9,
                1.608_662_243_621_555_4e-10,
            ],
        );
        let power = 1.0 + square(rest).mul_add(series, rest);
        let exponent = rounded.to_bits().wrapping_sub(ROUNDER.to_bits()) as i64;
        let half = (exponent as i32 >> 1) as i64;
        let scale = |n: i64| f64::from_bits((n.wrapping_add(1023) as u64) << 52);
        power * scale(half) * scale(exponent.wrapping_sub(half))
    }
}

#[cfg(test)]
mod tests {
    use super::{double, single};

    /// Returns the distance of two numbers of the same sign in units of the last place.
    fn units_single(one: f32, other: f64) -> f64 {
        let other = other as f32;
        (f64::from(one.to_bits()) - f64::from(other.to_bits())).abs()
    }

    fn units_double(one: f64, other: f64) -> u64 {
        one.to_bits().abs_diff(other.to_bits())
    }

    /// Returns numbers spread over the range (0, 1], the first being 1.
    fn fractions() -> impl Iterator<Item = f64> {
        let powers = (0..33).map(|power| 0.5_f64.powi(power));
        let steps = (1..60_000).map(|step| 1.0 - f64::from(step) / 60_000.0);
        let close = (1..2000).map(|step| 1.0 - f64::from(step) * 0.5_f64.powi(24));
        powers.chain(steps).chain(close)
    }

    #[test]
    fn single_logarithm() {
        assert_eq!(single::ln(1.0), 0.0);
        for x in fractions().flat_map(|x| [x as f32, 1e9 * x as f32]) {
            assert!(units_single(single::ln(x), f64::from(x).ln()) <= 1.0, "{x}");
        }
    }

    #[test]
    fn single_sine_and_cosine() {
        for turns in fractions().map(|x| x as f32) {
            let (sin, cos) = single::sin_cos_turns(turns);
            let (exact_sin, exact_cos) = (f64::from(turns) * std::f64::consts::TAU).sin_cos();
            assert!((f64::from(sin) - exact_sin).abs() <= 0.9e-7, "{turns}: {sin} {exact_sin}");
            assert!((f64::from(cos) - exact_cos).abs() <= 0.9e-7, "{turns}: {cos} {exact_cos}");
        }
        assert_eq!(single::sin_cos_turns(0.25), (1.0, 0.0));
        assert_eq!(single::sin_cos_turns(0.5).1, -1.0);
        assert_eq!(single::sin_cos_turns(0.75).0, -1.0);
    }

    #[test]
    fn turns_are_rounded_down() {
        for angle in fractions().map(|x| (x * 6.25) as f32) {
            let exact = f64::from(angle) * f64::from(0.159_154_94_f32);
            let turns = single::turns(angle);
            let next = f32::from_bits(turns.to_bits() + 1);
            assert!(f64::from(turns) <= exact && exact < f64::from(next), "{angle}");
        }
        assert_eq!(single::turns(0.0), 0.0);
    }

    #[test]
    fn single_tangent() {
        for angle in fractions().map(|x| (x * 1.57) as f32) {
            let (tan, exact) = (f64::from(single::tan(angle)), f64::from(angle).tan());
            assert!((tan - exact).abs() <= 3e-7 * exact * (1.0 + exact), "{angle}: {tan} {exact}");
            assert_eq!(single::tan(-angle), -single::tan(angle));
        }
    }

    #[test]
    fn single_exponential() {
        for x in fractions().flat_map(|x| [x as f32, -x as f32, 88.0 * x as f32, -87.0 * x as f32]) {
            // The argument is rounded once more, as in a GPU's fast function.
            let y = f64::from(x * std::f32::consts::LOG2_E);
            assert!(units_single(single::exp(x), y.exp2()) <= 1.0, "{x}");
        }
        assert_eq!(single::exp(0.0), 1.0);
        assert_eq!(single::exp(89.0), f32::INFINITY);
        assert_eq!(single::exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(single::exp(-200.0), 0.0);
        assert_eq!(single::exp(f32::NEG_INFINITY), 0.0);
        assert!((f64::from(single::exp(-100.0)) / (-100.0_f64).exp() - 1.0).abs() < 0.02);
        assert!(single::exp(f32::NAN).is_nan());
    }

    #[test]
    fn double_logarithm() {
        assert_eq!(double::ln(1.0), 0.0);
        for x in fractions().flat_map(|x| [x, 0.5_f64.powi(20) * x, 1e200 * x]) {
            assert!(units_double(double::ln(x), x.ln()) <= 1, "{x}");
        }
    }

    #[test]
    fn double_sine_and_cosine() {
        for halves in fractions().flat_map(|x| [x / 4.0, -x / 4.0]) {
            let (sin, cos) = double::sin_cos_pi(halves);
            let (exact_sin, exact_cos) = (halves * std::f64::consts::PI).sin_cos();
            assert!(units_double(sin, exact_sin) <= 3, "{halves}: {sin} {exact_sin}");
            assert!(units_double(cos, exact_cos) <= 1, "{halves}: {cos} {exact_cos}");
        }
        // Every other part of the circle is a rotation of the first.
        for step in 0..=1000 {
            let halves = f64::from(step) / 4096.0;
            let (sin, cos) = double::sin_cos_pi(halves);
            assert_eq!(double::sin_cos_pi(halves + 0.5), (cos, -sin));
            assert_eq!(double::sin_cos_pi(halves + 1.0), (-sin, -cos));
            assert_eq!(double::sin_cos_pi(halves + 1.5), (-cos, sin));
        }
    }

    #[test]
    fn double_tangent() {
        let half_pi = std::f64::consts::FRAC_PI_2;
        for angle in fractions().flat_map(|x| [x * half_pi, (1.0 - x) * half_pi]) {
            assert!(units_double(double::tan(angle), angle.tan()) <= 4, "{angle}");
            assert_eq!(double::tan(-angle), -double::tan(angle));
        }
    }

    #[test]
    fn double_exponential() {
        for x in fractions().flat_map(|x| [x, -x, 709.0 * x, -708.0 * x]) {
            assert!(units_double(double::exp(x), x.exp()) <= 1, "{x}");
        }
        assert_eq!(double::exp(710.0), f64::INFINITY);
        assert_eq!(double::exp(f64::INFINITY), f64::INFINITY);
        assert_eq!(double::exp(f64::NEG_INFINITY), 0.0);
        assert!((double::exp(-740.0) / (-740.0_f64).exp() - 1.0).abs() < 0.02);
        assert!(double::exp(f64::NAN).is_nan());
    }
}

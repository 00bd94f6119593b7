//! 16-bit floating point: IEEE binary16, and bfloat16, the upper half of an f32.

/// IEEE binary16, stored as bits.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

/// bfloat16, stored as bits.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The NaN that GPUs produce for every NaN.
const NAN: u16 = 0x7FFF;

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0x7F80_0000;
/// The smallest f32 that overflows an F16: 2^16.
const LARGE: u32 = (127 + 16) << 23;
/// The smallest f32 that is a normal F16: 2^-14.
const SMALL: u32 = (127 - 14) << 23;
/// The difference between the exponent biases of an f32 and an F16.
const BIAS: u32 = 127 - 15;

impl F16 {
    /// Rounds to the nearest value, ties to even. Has no branches, so that the compiler can vectorize loops over it.
    #[inline(always)]
    pub fn from_f32(value: f32) -> F16 {
        let magnitude = value.to_bits() & !SIGN;
        let sign = ((value.to_bits() & SIGN) >> 16) as u16;
        // A carry out of the fraction increments the exponent, and turns the largest exponent into infinity.
        let odd = (magnitude >> 13) & 1;
        let normal = (magnitude.wrapping_add(0xFFF + odd).wrapping_sub(BIAS << 23) >> 13) as u16;
        // The last place of 0.5 as an f32 has the value of a subnormal F16's last place, so this addition rounds to it.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits()) as u16;
        let finite = if magnitude < SMALL { subnormal } else { normal };
        let bits = if magnitude < LARGE { finite } else { 0x7C00 };
        F16(if magnitude > INFINITY { NAN } else { bits | sign })
    }

    /// Converts the value exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let (sign, magnitude) = (u32::from(self.0 & 0x8000) << 16, u32::from(self.0 & 0x7FFF));
        // Scales from the exponent bias of an F16 to that of an f32: exact, and correct for subnormal numbers, too.
        let finite = f32::from_bits(magnitude << 13) * f32::from_bits((127 + BIAS) << 23);
        let bits = if magnitude < 0x7C00 { finite.to_bits() } else { INFINITY | magnitude << 13 };
        f32::from_bits(sign | bits)
    }
}

impl Bf16 {
    /// Rounds to the nearest value, ties to even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Bf16 {
        let bits = value.to_bits();
        let nearest = (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16;
        Bf16(if bits & !SIGN > INFINITY { NAN } else { nearest })
    }

    /// Converts the value exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}

/// Compares values, not bits: 0 equals -0, and a NaN does not equal itself.
#[inline(always)]
fn equal(one: u16, other: u16, infinity: u16) -> bool {
    one == other && one & 0x7FFF <= infinity || (one | other) & 0x7FFF == 0
}

impl PartialEq for F16 {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        equal(self.0, other.0, 0x7C00)
    }
}

impl PartialEq for Bf16 {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        equal(self.0, other.0, 0x7F80)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value that the bits represent.
    fn model(bits: u16, exponent_bits: i32) -> f64 {
        let fraction_bits = 15 - exponent_bits;
        let (exponent, fraction) =
            (i32::from(bits & 0x7FFF) >> fraction_bits, i32::from(bits) & ((1 << fraction_bits) - 1));
        let bias = (1 << (exponent_bits - 1)) - 1;
        let magnitude = match exponent {
            0 => f64::from(fraction) * 2_f64.powi(1 - bias - fraction_bits),
            top if top == (1 << exponent_bits) - 1 => match fraction {
                0 => f64::INFINITY,
                _ => f64::NAN,
            },
            _ => (f64::from(fraction) * 2_f64.powi(-fraction_bits) + 1.0) * 2_f64.powi(exponent - bias),
        };
        if bits >> 15 == 0 { magnitude } else { -magnitude }
    }

    fn check(exponent_bits: i32, to: impl Fn(u16) -> f32, from: impl Fn(f32) -> u16) {
        let value = |bits| model(bits, exponent_bits);
        let infinity = ((1_u16 << exponent_bits) - 1) << (15 - exponent_bits);
        for bits in 0..=u16::MAX {
            if value(bits).is_nan() {
                assert!(to(bits).is_nan());
                assert_eq!(from(to(bits)), NAN);
                continue;
            }
            assert_eq!(f64::from(to(bits)).to_bits(), value(bits).to_bits(), "{bits:#06x}");
            assert_eq!(from(to(bits)), bits);
        }
        // Tests the midpoint of each two neighbours, which rounds to the even one, and the values just beside it.
        // Beyond the largest number, infinity takes the place of the next number.
        for bits in 0..infinity {
            let (low, step) = (value(bits), value(bits) - if bits == 0 { -value(1) } else { value(bits - 1) });
            let high = if bits + 1 == infinity { low + step } else { value(bits + 1) };
            let middle = ((low + high) / 2.0) as f32;
            assert_eq!(f64::from(middle), (low + high) / 2.0);
            let even = bits + (bits & 1);
            for sign in [0, 0x8000] {
                let signed = |value: f32| if sign == 0 { value } else { -value };
                assert_eq!(from(signed(middle)), even | sign, "{bits:#06x}");
                assert_eq!(from(signed(f32::from_bits(middle.to_bits() - 1))), bits | sign, "{bits:#06x}");
                assert_eq!(from(signed(f32::from_bits(middle.to_bits() + 1))), (bits + 1) | sign, "{bits:#06x}");
            }
        }
        for large in [f32::MAX, f32::INFINITY] {
            assert_eq!(from(large), infinity);
            assert_eq!(from(-large), infinity | 0x8000);
        }
    }

    #[test]
    fn f16_conversions_match_the_model() {
        check(5, |bits| F16(bits).to_f32(), |value| F16::from_f32(value).0);
    }

    #[test]
    fn bf16_conversions_match_the_model() {
        check(8, |bits| Bf16(bits).to_f32(), |value| Bf16::from_f32(value).0);
    }

    /// Compares the result's error with that of its neighbours, for numbers over the whole range of an F16.
    #[test]
    fn f16_rounds_to_nearest() {
        for bits in (0..65_504_f32.to_bits()).step_by(977) {
            let value = f32::from_bits(bits);
            let nearest = F16::from_f32(value).0;
            let distance = |bits: u16| (model(bits, 5) - f64::from(value)).abs();
            assert!(nearest == 0 || distance(nearest) <= distance(nearest - 1), "{value}");
            assert!(nearest == 0x7BFF || distance(nearest) <= distance(nearest + 1), "{value}");
        }
    }

    #[test]
    fn equality_compares_values() {
        for one in (0..=u16::MAX).step_by(7).chain([0x8000, 0x7C00, 0x7C01, 0x7F80, 0x7F81, NAN]) {
            for other in [one, one ^ 0x8000, one.wrapping_add(1), 0, 0x8000, NAN] {
                assert_eq!(F16(one) == F16(other), F16(one).to_f32() == F16(other).to_f32());
                assert_eq!(Bf16(one) == Bf16(other), Bf16(one).to_f32() == Bf16(other).to_f32());
            }
        }
    }
}

//! 8-bit floating point, as in torch: float8_e4m3fn, which has no infinity, and float8_e5m2.

/// Four bits of exponent and three of fraction, stored as bits. The largest number is 448; only 0x7F and 0xFF are NaN.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

/// Five bits of exponent and two of fraction, stored as bits: the upper half of an F16.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct F8E5M2(pub u8);

const SIGN: u32 = 1 << 31;
const INFINITY: u32 = 0x7F80_0000;
/// The NaN that every NaN becomes.
const NAN: u8 = 0x7F;

/// The parameters of a format.
struct Format {
    fraction: u32,
    bias: u32,
    /// The smallest bits of a magnitude that is no finite number.
    not_finite: u8,
    /// The smallest f32 that is too large, even if it is rounded.
    overflow: u32,
}

const E4M3: Format = Format { fraction: 3, bias: 7, not_finite: 0x7F, overflow: 1087 << 20 };
const E5M2: Format = Format { fraction: 2, bias: 15, not_finite: 0x7C, overflow: (127 + 16) << 23 };

impl Format {
    /// Converts bits exactly.
    #[inline(always)]
    fn widen(self, bits: u8) -> f32 {
        let (sign, magnitude) = (u32::from(bits & 0x80) << 24, u32::from(bits & 0x7F));
        let fraction = magnitude << (23 - self.fraction);
        // Scales from the exponent bias of the format to that of an f32: exact, and correct for subnormal numbers, too.
        let finite = f32::from_bits(fraction) * f32::from_bits((254 - self.bias) << 23);
        let is_finite = magnitude < self.not_finite.into();
        f32::from_bits(sign | if is_finite { finite.to_bits() } else { INFINITY | fraction })
    }

    /// Rounds to the nearest value, ties to even. What is too large becomes infinity, or NaN in a format without it.
    #[inline(always)]
    fn narrow(self, value: f32) -> u8 {
        let (shift, magnitude) = (23 - self.fraction, value.to_bits() & !SIGN);
        // A carry out of the fraction increments the exponent.
        let odd = magnitude >> shift & 1;
        let half = (1 << (shift - 1)) - 1;
        let normal = magnitude.wrapping_add(half + odd).wrapping_sub((127 - self.bias) << 23) >> shift;
        // The last place of this number has the value of a subnormal number's, so the addition rounds to it.
        let place = (151 - self.bias - self.fraction) << 23;
        let subnormal = (f32::from_bits(magnitude) + f32::from_bits(place)).to_bits().wrapping_sub(place);
        let finite = if magnitude < (128 - self.bias) << 23 { subnormal } else { normal } as u8;
        let bits = if magnitude < self.overflow { finite } else { self.not_finite };
        if magnitude > INFINITY { NAN } else { bits | (value.to_bits() >> 24) as u8 & 0x80 }
    }
}

impl F8E4M3 {
    /// Rounds to the nearest value, ties to even; infinity, and what rounds to more than 448, becomes NaN.
    #[inline(always)]
    pub fn from_f32(value: f32) -> F8E4M3 {
        F8E4M3(E4M3.narrow(value))
    }

    /// Converts the value exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        E4M3.widen(self.0)
    }
}

impl F8E5M2 {
    /// Rounds to the nearest value, ties to even.
    #[inline(always)]
    pub fn from_f32(value: f32) -> F8E5M2 {
        F8E5M2(E5M2.narrow(value))
    }

    /// Converts the value exactly.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        E5M2.widen(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::F16;

    /// The finite magnitudes of a format, in the order of their bits.
    fn finite(widen: impl Fn(u8) -> f32, not_finite: u8) -> Vec<f64> {
        (0..not_finite).map(|bits| f64::from(widen(bits))).collect()
    }

    /// The bits of the nearest of the magnitudes; of two equally near ones those that are even. `next` would follow the largest.
    fn nearest(magnitudes: &[f64], next: f64, value: f64) -> u8 {
        let all: Vec<f64> = magnitudes.iter().copied().chain([next]).collect();
        let above = all.iter().position(|magnitude| *magnitude >= value).unwrap_or(all.len() - 1);
        let below = above.saturating_sub(1);
        let (down, up) = (value - all[below], all[above] - value);
        (if down < up || down == up && below % 2 == 0 { below } else { above }) as u8
    }

    #[test]
    fn bits_have_the_values_of_the_formats() {
        for (bits, value) in [(0, 0.0), (1, 0.001953125), (7, 0.013671875), (8, 0.015625), (0x38, 1.0), (0x7E, 448.0)] {
            assert_eq!(F8E4M3(bits).to_f32(), value);
            assert_eq!(F8E4M3(bits | 0x80).to_f32(), -value);
        }
        assert!(F8E4M3(0x7F).to_f32().is_nan() && F8E4M3(0xFF).to_f32().is_nan());
        for bits in 0..=255 {
            let half = F16(u16::from(bits) << 8).to_f32();
            assert_eq!(F8E5M2(bits).to_f32().to_bits(), half.to_bits());
            let [narrow, other] = [F8E4M3(bits).to_f32(), half];
            assert!(narrow.is_nan() || F8E4M3::from_f32(narrow).0 == bits);
            assert!(other.is_nan() || F8E5M2::from_f32(other).0 == bits);
        }
    }

    #[test]
    fn the_nearest_value_is_chosen() {
        let (e4m3, e5m2) = (finite(E4M3_WIDEN, 0x7F), finite(E5M2_WIDEN, 0x7C));
        // All signs, exponents, and the upper bits of the fraction, with lower bits that break ties.
        for upper in 0..0x7F80u32 << 4 {
            for lower in [0, 1, 0x800, 0xFFF] {
                let value = f32::from_bits(upper << 12 | lower);
                let wide = f64::from(value);
                let (expected, other) = (nearest(&e4m3, 480.0, wide), nearest(&e5m2, 65536.0, wide));
                assert_eq!(F8E4M3::from_f32(value).0, expected, "{value}");
                assert_eq!(F8E5M2::from_f32(value).0, other, "{value}");
                assert_eq!(F8E4M3::from_f32(-value).0, expected | 0x80, "{value}");
                assert_eq!(F8E5M2::from_f32(-value).0, other | 0x80, "{value}");
            }
        }
        assert_eq!([f32::INFINITY, f32::NAN, -f32::NAN].map(|value| F8E4M3::from_f32(value).0), [0x7F; 3]);
        assert_eq!([f32::INFINITY, f32::NAN, -f32::NAN].map(|value| F8E5M2::from_f32(value).0), [0x7C, 0x7F, 0x7F]);
    }

    const E4M3_WIDEN: fn(u8) -> f32 = |bits| F8E4M3(bits).to_f32();
    const E5M2_WIDEN: fn(u8) -> f32 = |bits| F8E5M2(bits).to_f32();
}

//! Element types.

use crate::driver::half::{Bf16, F16};

/// An element type that tensors are filled with.
pub trait Element: Copy + Default + PartialEq {
    /// Converts a number to this type. Integers lose the fraction and the bits that do not fit.
    fn from_f32(value: f32) -> Self;
    /// Converts an integer to this type: the low bits for integers, otherwise the nearest value.
    fn from_i64(value: i64) -> Self;
}

impl Element for F16 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        F16::from_f32(value)
    }

    #[inline(always)]
    fn from_i64(value: i64) -> Self {
        F16::from_f32(value as f32)
    }
}

impl Element for Bf16 {
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        Bf16::from_f32(value)
    }

    #[inline(always)]
    fn from_i64(value: i64) -> Self {
        Bf16::from_f32(value as f32)
    }
}

/// Implements the trait with `as`; f32 is converted through the type that a GPU uses.
macro_rules! by_as {
    ($($type:ty: $through:ty),*) => {$(
        impl Element for $type {
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value as $through as $type
            }

            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as $type
            }
        }
    )*};
}

by_as!(f32: f32, f64: f64, u8: u32, u16: u32, u32: u32, u64: u64, i8: i32, i16: i32, i32: i32, i64: i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_integers_take_the_low_bits_of_32() {
        assert_eq!(u8::from_f32(300.0), 44);
        assert_eq!(i8::from_f32(200.0), -56);
        assert_eq!(i8::from_f32(1e20), -1);
        assert_eq!(i16::from_f32(32_768.0), i16::MIN);
        assert_eq!(i32::from_f32(1e20), i32::MAX);
        assert_eq!(i64::from_f32(1e10), 10_000_000_000);
        assert_eq!(u8::from_i64(-1), 255);
    }

    #[test]
    fn integers_are_converted_to_halves_through_f32() {
        assert_eq!(F16::from_i64(2049).0, F16::from_f32(2048.0).0);
        // Above the midpoint of two halves by less than f32 can represent.
        assert_eq!(Bf16::from_i64(0x1_0100_0001).0, Bf16::from_f32(4_294_967_296.0).0);
        assert_eq!(f64::from_i64(-7), -7.0);
    }
}

//! Element types that ranks reduce: the type of the computation and the operations of each, as in
//! kernels/group/number.cuh.

use crate::driver::{
    float8::{F8E4M3, F8E5M2},
    half::{Bf16, F16},
};

/// An element type.
pub trait Number {
    /// The representation in memory.
    type Raw: Copy;
    /// The type of the computation.
    type Wide: Copy;
    fn widen(raw: Self::Raw) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self::Raw;
    fn sum(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn product(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn minimum(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn maximum(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn divide(a: Self::Wide, n: u32) -> Self::Wide;
}

/// The minimum and the maximum ignore a NaN if the other operand is a number; of equal operands they return the first.
macro_rules! real {
    ($name:ident, $raw:ty, $wide:ty, $widen:expr, $narrow:expr) => {
        pub struct $name;

        impl Number for $name {
            type Raw = $raw;
            type Wide = $wide;
            fn widen(raw: $raw) -> $wide {
                ($widen)(raw)
            }
            fn narrow(wide: $wide) -> $raw {
                ($narrow)(wide)
            }
            fn sum(a: $wide, b: $wide) -> $wide {
                a + b
            }
            fn product(a: $wide, b: $wide) -> $wide {
                a * b
            }
            fn minimum(a: $wide, b: $wide) -> $wide {
                if b < a || a.is_nan() { b } else { a }
            }
            fn maximum(a: $wide, b: $wide) -> $wide {
                if b > a || a.is_nan() { b } else { a }
            }
            fn divide(a: $wide, n: u32) -> $wide {
                a / n as $wide
            }
        }
    };
}

real!(Half, F16, f32, F16::to_f32, F16::from_f32);
real!(Brain, Bf16, f32, Bf16::to_f32, Bf16::from_f32);
real!(E4m3, F8E4M3, f32, F8E4M3::to_f32, F8E4M3::from_f32);
real!(E5m2, F8E5M2, f32, F8E5M2::to_f32, F8E5M2::from_f32);
real!(Single, f32, f32, |raw| raw, |wide| wide);
real!(Double, f64, f64, |raw| raw, |wide| wide);

/// Integers wrap.
macro_rules! integer {
    ($($type:ty)*) => { $(
        impl Number for $type {
            type Raw = $type;
            type Wide = $type;
            fn widen(raw: $type) -> $type {
                raw
            }
            fn narrow(wide: $type) -> $type {
                wide
            }
            fn sum(a: $type, b: $type) -> $type {
                a.wrapping_add(b)
            }
            fn product(a: $type, b: $type) -> $type {
                a.wrapping_mul(b)
            }
            fn minimum(a: $type, b: $type) -> $type {
                a.min(b)
            }
            fn maximum(a: $type, b: $type) -> $type {
                a.max(b)
            }
            fn divide(a: $type, n: u32) -> $type {
                a / n as $type
            }
        }
    )* };
}

integer!(u8 i8 u16 i16 u32 i32 u64 i64);

/// Bools: a sum is the logical or, a product the logical and.
pub struct Bool;

impl Number for Bool {
    type Raw = u8;
    type Wide = bool;
    fn widen(raw: u8) -> bool {
        raw != 0
    }
    fn narrow(wide: bool) -> u8 {
        u8::from(wide)
    }
    fn sum(a: bool, b: bool) -> bool {
        a | b
    }
    fn product(a: bool, b: bool) -> bool {
        a & b
    }
    fn minimum(a: bool, b: bool) -> bool {
        a & b
    }
    fn maximum(a: bool, b: bool) -> bool {
        a | b
    }
    fn divide(a: bool, _: u32) -> bool {
        a
    }
}

/// Complex numbers have no order, so the minimum and the maximum are the first operand.
macro_rules! complex {
    ($name:ident, $part:ty) => {
        pub struct $name;

        impl Number for $name {
            type Raw = [$part; 2];
            type Wide = [$part; 2];
            fn widen(raw: [$part; 2]) -> [$part; 2] {
                raw
            }
            fn narrow(wide: [$part; 2]) -> [$part; 2] {
                wide
            }
            fn sum(a: [$part; 2], b: [$part; 2]) -> [$part; 2] {
                [a[0] + b[0], a[1] + b[1]]
            }
            fn product(a: [$part; 2], b: [$part; 2]) -> [$part; 2] {
                [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
            }
            fn minimum(a: [$part; 2], _: [$part; 2]) -> [$part; 2] {
                a
            }
            fn maximum(a: [$part; 2], _: [$part; 2]) -> [$part; 2] {
                a
            }
            fn divide(a: [$part; 2], n: u32) -> [$part; 2] {
                a.map(|part| part / n as $part)
            }
        }
    };
}

complex!(Complex64, f32);
complex!(Complex128, f64);

/// Reduces the elements at `sources`, in their order, into the whole elements of `out`. `op` is the number of a
/// `ReduceOp`.
///
/// # Safety
/// As many bytes as `out` has can be read at each source.
pub unsafe fn combine<N: Number>(sources: &[*const u8], out: &mut [u8], op: u32) {
    let operation = match op {
        1 => N::product,
        2 => N::minimum,
        3 => N::maximum,
        _ => N::sum,
    };
    let size = size_of::<N::Raw>();
    for (index, chunk) in out.chunks_exact_mut(size).enumerate() {
        // SAFETY: the caller guarantees that as many bytes as `out` has are readable.
        let number =
            |source: &*const u8| N::widen(unsafe { source.add(index * size).cast::<N::Raw>().read_unaligned() });
        let Some(mut value) = sources.iter().map(number).reduce(operation) else { return };
        if op == 4 {
            value = N::divide(value, sources.len() as u32);
        }
        // SAFETY: the chunk has exactly the size of such an element.
        unsafe { chunk.as_mut_ptr().cast::<N::Raw>().write_unaligned(N::narrow(value)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<N: Number, const K: usize>(numbers: [N::Raw; K], op: u32) -> N::Raw {
        let sources: Vec<*const u8> = numbers.iter().map(|number| std::ptr::from_ref(number).cast()).collect();
        let mut out = vec![0; size_of::<N::Raw>()];
        // SAFETY: each source is a number of the size that `out` has.
        unsafe { combine::<N>(&sources, &mut out, op) };
        // SAFETY: `combine` wrote such a number.
        unsafe { out.as_ptr().cast::<N::Raw>().read_unaligned() }
    }

    #[test]
    fn sums_are_ordered_and_rounded_once() {
        assert_eq!(of::<Single, 3>([1e30, -1e30, 1.0], 0), 1.0);
        assert_eq!(of::<Single, 3>([1.0, 1e30, -1e30], 0), 0.0);
        // With rounding after each addition the result would be 2048.
        let half = F16::from_f32;
        assert_eq!(of::<Half, 3>([half(2048.0), half(1.0), half(1.0)], 0).0, half(2050.0).0);
        assert_eq!(of::<Brain, 3>([Bf16::from_f32(256.0), Bf16::from_f32(1.0), Bf16::from_f32(1.0)], 0).0, 0x4381);
    }

    #[test]
    fn all_operations_of_all_kinds() {
        assert_eq!([0, 1, 2, 3, 4].map(|op| of::<i8, 3>([100, 100, -7], op)), [-63, -112, -7, 100, -21]);
        assert_eq!([0, 1, 2, 3, 4].map(|op| of::<u16, 2>([65535, 3], op)), [2, 65533, 3, 65535, 1]);
        assert_eq!([0, 1, 2, 3].map(|op| of::<Bool, 2>([0, 7], op)), [1, 0, 0, 1]);
        assert_eq!(
            [0, 1, 4].map(|op| of::<Complex64, 2>([[1.0, 2.0], [3.0, 4.0]], op)),
            [[4.0, 6.0], [-5.0, 10.0], [2.0, 3.0]]
        );
        assert_eq!([0, 1, 2, 3, 4].map(|op| of::<Double, 2>([3.0, -2.0], op)), [1.0, -6.0, -2.0, 3.0, 0.5]);
    }

    #[test]
    fn comparisons_ignore_nan_and_keep_the_first_of_equal_zeros() {
        for op in [2, 3] {
            assert_eq!(of::<Single, 2>([f32::NAN, 1.0], op), 1.0);
            assert_eq!(of::<Single, 2>([1.0, f32::NAN], op), 1.0);
            assert!(of::<Single, 2>([f32::NAN, f32::NAN], op).is_nan());
            assert!(of::<Double, 2>([-0.0, 0.0], op).is_sign_negative());
        }
    }
}

//! Random integers: over the full range of a type, or over a part of it.

use super::distribution::{Dense, FillPlan, code_of, invalid, is_never_filled, unsupported};
use crate::{
    error::Result,
    half::{Bf16, F16},
    runtime::tensor::ElementType,
    stream::kernel::Kernel,
};

/// From this range on, PyTorch uses 64 random bits per number: the remainder of 32 bits would favour some numbers by 5
/// percent and more.
const WIDE_RANGE: u64 = 1 << 28;

/// The digits of a type as C++'s `digits` counts them: the bits of a float's significand, or of an integer without its
/// sign.
fn digits(element: ElementType) -> u32 {
    match element {
        ElementType::F16 => 11,
        ElementType::Bf16 | ElementType::U8 => 8,
        ElementType::F32 => 24,
        ElementType::F64 => 53,
        ElementType::Bool => 1,
        ElementType::I8 => 7,
        ElementType::I16 => 15,
        ElementType::U16 => 16,
        ElementType::I32 => 31,
        ElementType::U32 => 32,
        ElementType::I64 => 63,
        ElementType::U64 => 64,
        // Every fill rejects these types with an error.
        ElementType::Complex64 | ElementType::Complex128 | ElementType::F8E4M3 | ElementType::F8E5M2 => 0,
    }
}

/// Returns the plan for `range` numbers from `base` on; a range of 0 stands for 2^64.
fn plan(name: &'static str, element: ElementType, base: i64, range: u64, wide: bool) -> FillPlan {
    let reciprocal = |dividend: u128, most: u64| match range {
        0 => 0,
        range => u64::try_from(dividend / u128::from(range)).unwrap_or(most).min(most),
    };
    let (any, unroll, reciprocal) = if wide {
        (Kernel::Integers64Any, 2, reciprocal(1 << 64, u64::MAX))
    } else {
        (Kernel::IntegersAny, 4, reciprocal(1 << 32, u32::MAX.into()))
    };
    let mask = if range == 0 || range.is_power_of_two() { range.wrapping_sub(1) } else { 0 };
    let dense = match (element.is_float(), element.bytes(), wide) {
        (false, 1, false) => Some(Dense { kernel: Kernel::IntegersB8, width: 8 }),
        (false, 2, false) => Some(Dense { kernel: Kernel::IntegersB16, width: 8 }),
        (false, 4, false) => Some(Dense { kernel: Kernel::IntegersB32, width: 4 }),
        (false, 8, false) => Some(Dense { kernel: Kernel::IntegersB64, width: 2 }),
        (false, 4, true) => Some(Dense { kernel: Kernel::Integers64B32, width: 4 }),
        (false, 8, true) => Some(Dense { kernel: Kernel::Integers64B64, width: 2 }),
        _ => None,
    };
    FillPlan { name, dense, any, code: code_of(element), unroll, arguments: [range, base as u64, reciprocal, mask] }
}

/// Returns the plan for all non-negative numbers of a type; for floats, up to 2^digits.
pub fn full_range(element: ElementType) -> Result<FillPlan> {
    const NAME: &str = "plinth_random";
    let range = match element {
        element if is_never_filled(element) => return Err(unsupported(NAME, element)),
        ElementType::U16 | ElementType::U32 | ElementType::U64 => return Err(unsupported(NAME, element)),
        element if element.is_float() => (1 << digits(element)) + 1,
        element => 1 << digits(element),
    };
    Ok(plan(NAME, element, 0, range, element.bytes() == 8))
}

/// Rounds an integer to a float type. Results out of range become the smallest 64-bit integer, as on x86, for which
/// PyTorch was written.
fn round_trip(element: ElementType, number: i64) -> i64 {
    let near = match element {
        ElementType::F16 => f64::from(F16::from_f32(number as f32).to_f32()),
        ElementType::Bf16 => f64::from(Bf16::from_f32(number as f32).to_f32()),
        ElementType::F32 => f64::from(number as f32),
        _ => number as f64,
    };
    if near.abs() < 2_f64.powi(63) { near as i64 } else { i64::MIN }
}

/// Returns the smallest number from `low` on that a float does not round to a number below `low`.
fn round_low_up(element: ElementType, low: i64) -> i64 {
    let next = round_trip(element, low.wrapping_add(1));
    if next >= low {
        return low;
    }
    let exponent = low.wrapping_add(1).unsigned_abs().max(1).ilog2();
    next.wrapping_add(1 << (exponent + 1).saturating_sub(digits(element)))
}

/// Returns the largest number up to `high` whose predecessor a float does not round to `high` or above.
fn round_high_down(element: ElementType, high: i64) -> i64 {
    let last = round_trip(element, high.wrapping_sub(1));
    if last < high {
        return high;
    }
    let exponent = high.wrapping_sub(1).unsigned_abs().max(1).ilog2();
    last.wrapping_sub(1 << (exponent + 1).saturating_sub(digits(element)))
}

/// Returns whether a type can represent a number.
fn can_represent(element: ElementType, number: i64) -> bool {
    match element {
        ElementType::F16 => number.unsigned_abs() <= 65_504,
        ElementType::Bf16 | ElementType::F32 | ElementType::F64 | ElementType::I64 => true,
        ElementType::Bool => (0..=1).contains(&number),
        ElementType::U8 | ElementType::U16 | ElementType::U32 => (0..1_i64 << digits(element)).contains(&number),
        ElementType::U64 => number >= 0,
        ElementType::I8 | ElementType::I16 | ElementType::I32 => {
            let limit = 1_i64 << digits(element);
            (-limit..limit).contains(&number)
        }
        ElementType::Complex64 | ElementType::Complex128 | ElementType::F8E4M3 | ElementType::F8E5M2 => false,
    }
}

fn check_bounds(name: &'static str, element: ElementType, low: i64, last: i64) -> Result<()> {
    for (what, number) in [("low", low), ("high - 1", last)] {
        if !can_represent(element, number) {
            return Err(invalid(name, format_args!("got {number} as {what}, which {element} cannot hold")));
        }
    }
    Ok(())
}

/// Returns the plan for numbers from `low` up to, but not including, `high`.
pub fn range(element: ElementType, low: i64, high: i64) -> Result<FillPlan> {
    const NAME: &str = "plinth_random_range";
    if is_never_filled(element) {
        return Err(unsupported(NAME, element));
    }
    let ordered = |low: i64, high: i64, meant: &str| {
        if low < high {
            Ok(())
        } else {
            Err(invalid(NAME, format_args!("needs low < high, but {low} >= {high}{meant}")))
        }
    };
    ordered(low, high, "")?;
    let (low, high) = if element.is_float() {
        let inside = (round_low_up(element, low), round_high_down(element, high));
        ordered(inside.0, inside.1, &format!(" as {element}"))?;
        inside
    } else {
        (low, high)
    };
    check_bounds(NAME, element, low, high - 1)?;
    let range = high.wrapping_sub(low) as u64;
    Ok(plan(NAME, element, low, range, range >= WIDE_RANGE))
}

/// Returns the plan for numbers from `low` to the largest of the type; for floats, to 2^digits. If `low` is the
/// smallest 64-bit integer, all 64 bits are random.
pub fn from_low(element: ElementType, low: i64) -> Result<FillPlan> {
    const NAME: &str = "plinth_random_range";
    if element == ElementType::U64 || is_never_filled(element) {
        return Err(unsupported(NAME, element));
    }
    if low == i64::MIN {
        return match element {
            ElementType::I64 | ElementType::F64 | ElementType::F32 | ElementType::Bf16 => {
                Ok(plan(NAME, element, 0, 0, true))
            }
            _ => Err(unsupported("plinth_random_range from the least 64-bit number to the largest", element)),
        };
    }
    let (low, last) = if element.is_float() {
        let last = 1_i64 << digits(element);
        let low = round_low_up(element, low);
        if low >= last {
            return Err(invalid(NAME, format_args!("needs a low below {last} for {element}, but got {low}")));
        }
        (low, last)
    } else {
        (low, ((1_u64 << digits(element)) - 1) as i64)
    };
    check_bounds(NAME, element, low, last)?;
    let range = (last.wrapping_sub(low) as u64).wrapping_add(1);
    Ok(plan(NAME, element, low, range, range >= WIDE_RANGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(plan: Result<FillPlan>) -> (u64, i64, u32) {
        let plan = plan.unwrap();
        (plan.arguments[0], plan.arguments[1] as i64, plan.unroll)
    }

    #[test]
    fn the_full_range_depends_on_the_type() {
        assert_eq!(numbers(full_range(ElementType::U8)), (256, 0, 4));
        assert_eq!(numbers(full_range(ElementType::I8)), (128, 0, 4));
        assert_eq!(numbers(full_range(ElementType::I32)), (1 << 31, 0, 4));
        assert_eq!(numbers(full_range(ElementType::I64)), (1 << 63, 0, 2));
        assert_eq!(numbers(full_range(ElementType::Bool)), (2, 0, 4));
        assert_eq!(numbers(full_range(ElementType::F16)), (2049, 0, 4));
        assert_eq!(numbers(full_range(ElementType::F32)), ((1 << 24) + 1, 0, 4));
        assert_eq!(numbers(full_range(ElementType::F64)), ((1 << 53) + 1, 0, 2));
        assert!(full_range(ElementType::U32).is_err());
        for complex in [ElementType::Complex64, ElementType::Complex128, ElementType::F8E4M3, ElementType::F8E5M2] {
            for refused in [full_range(complex), range(complex, 0, 2), from_low(complex, 0)] {
                assert!(refused.unwrap_err().message().contains("does not fill tensors of"));
            }
        }
    }

    #[test]
    fn large_ranges_use_64_bits() {
        assert_eq!(numbers(range(ElementType::I32, 0, (1 << 28) - 1)).2, 4);
        assert_eq!(numbers(range(ElementType::I32, 0, 1 << 28)).2, 2);
        assert_eq!(numbers(range(ElementType::I64, i64::MIN, i64::MAX)), (u64::MAX, i64::MIN, 2));
        assert_eq!(numbers(from_low(ElementType::I64, i64::MIN)), (0, 0, 2));
        assert_eq!(numbers(from_low(ElementType::I8, -5)), (133, -5, 4));
        assert_eq!(numbers(from_low(ElementType::F32, 10)), ((1 << 24) - 9, 10, 4));
    }

    #[test]
    fn ranges_of_floats_are_limited_to_representable_numbers() {
        // From 2^25 on, a float represents every fourth integer only: 2^25 + 1 would become 2^25, which is below the
        // range.
        let (count, base, _) = numbers(range(ElementType::F32, (1 << 25) + 1, (1 << 25) + 16));
        assert_eq!((base, count), ((1 << 25) + 4, 8));
        // Large numbers become infinity in f16, and infinity converts to the smallest 64-bit integer.
        assert_eq!(round_trip(ElementType::F16, 70_000), i64::MIN);
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        for plan in [
            range(ElementType::I32, 5, 5),
            range(ElementType::I32, 6, 5),
            range(ElementType::U8, -1, 5),
            range(ElementType::U8, 0, 257),
            range(ElementType::I8, -129, 0),
            range(ElementType::Bool, 0, 3),
            range(ElementType::U64, -1, 5),
            range(ElementType::F16, -70_000, 0),
            from_low(ElementType::I8, 128),
            from_low(ElementType::U8, i64::MIN),
            from_low(ElementType::F16, 5000),
        ] {
            assert_eq!(plan.unwrap_err().status(), crate::status::Status::INVALID_VALUE);
        }
        assert!(range(ElementType::U8, 0, 256).is_ok());
    }
}

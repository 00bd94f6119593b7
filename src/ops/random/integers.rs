//! Whole numbers: over all of a type, or over a range of it.

use super::distribution::{Dense, Plan, code_of, refuse, unsupported};
use crate::{
    error::Result,
    half::{Bf16, F16},
    runtime::tensor::ElementType,
    stream::kernel::Kernel,
};

/// From so many numbers on PyTorch makes each of 64 bits: a remainder of 32 would favour some by 5 percent and more.
const WIDE: u64 = 1 << 28;

/// The bits of a type's numbers, as C++'s `digits` counts them: those of a float's fraction, or of an integer without its
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
        // No fill takes these, and each says so.
        ElementType::Complex64 | ElementType::Complex128 => 0,
    }
}

/// Numbers from `base` on: `range` of them, or 2^64 for 0.
fn plan(name: &'static str, element: ElementType, base: i64, range: u64, wide: bool) -> Plan {
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
    Plan { name, dense, any, code: code_of(element), unroll, arguments: [range, base as u64, reciprocal, mask] }
}

/// Numbers over all that a type has of 0 and above; of a float, the whole numbers that it tells apart.
pub fn whole(element: ElementType) -> Result<Plan> {
    const NAME: &str = "plinth_random";
    let range = match element {
        ElementType::U16 | ElementType::U32 | ElementType::U64 | ElementType::Complex64 | ElementType::Complex128 => {
            return Err(unsupported(NAME, element));
        }
        element if element.is_float() => (1 << digits(element)) + 1,
        element => 1 << digits(element),
    };
    Ok(plan(NAME, element, 0, range, element.bytes() == 8))
}

/// The number of a float type that is nearest to a whole one; the least of all numbers stands for what is out of range, as
/// the processors have it that PyTorch was written on.
fn nearest(element: ElementType, number: i64) -> i64 {
    let near = match element {
        ElementType::F16 => f64::from(F16::from_f32(number as f32).to_f32()),
        ElementType::Bf16 => f64::from(Bf16::from_f32(number as f32).to_f32()),
        ElementType::F32 => f64::from(number as f32),
        _ => number as f64,
    };
    if near.abs() < 2_f64.powi(63) { near as i64 } else { i64::MIN }
}

/// The least number from `low` on that a float does not round to below it.
fn raised(element: ElementType, low: i64) -> i64 {
    let next = nearest(element, low.wrapping_add(1));
    if next >= low {
        return low;
    }
    let exponent = low.wrapping_add(1).unsigned_abs().max(1).ilog2();
    next.wrapping_add(1 << (exponent + 1).saturating_sub(digits(element)))
}

/// The greatest number up to `high` of which a float does not round the one before to `high` or above.
fn lowered(element: ElementType, high: i64) -> i64 {
    let last = nearest(element, high.wrapping_sub(1));
    if last < high {
        return high;
    }
    let exponent = high.wrapping_sub(1).unsigned_abs().max(1).ilog2();
    last.wrapping_sub(1 << (exponent + 1).saturating_sub(digits(element)))
}

/// Whether a type has a number.
fn holds(element: ElementType, number: i64) -> bool {
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
        ElementType::Complex64 | ElementType::Complex128 => false,
    }
}

fn checked(name: &'static str, element: ElementType, low: i64, last: i64) -> Result<()> {
    for (what, number) in [("low", low), ("high - 1", last)] {
        if !holds(element, number) {
            return Err(refuse(name, format_args!("got {number} as {what}, which {element} cannot hold")));
        }
    }
    Ok(())
}

/// Numbers from `low` up to `high`, without that.
pub fn range(element: ElementType, low: i64, high: i64) -> Result<Plan> {
    const NAME: &str = "plinth_random_range";
    if element.is_complex() {
        return Err(unsupported(NAME, element));
    }
    let ordered = |low: i64, high: i64, meant: &str| {
        if low < high {
            Ok(())
        } else {
            Err(refuse(NAME, format_args!("needs low < high, but {low} >= {high}{meant}")))
        }
    };
    ordered(low, high, "")?;
    let (low, high) = if element.is_float() {
        let inside = (raised(element, low), lowered(element, high));
        ordered(inside.0, inside.1, &format!(" as {element}"))?;
        inside
    } else {
        (low, high)
    };
    checked(NAME, element, low, high - 1)?;
    let range = high.wrapping_sub(low) as u64;
    Ok(plan(NAME, element, low, range, range >= WIDE))
}

/// Numbers from `low` up to the type's largest, of a float the largest of the whole numbers that it tells apart. From the
/// least 64-bit number on: all 64 bits.
pub fn from(element: ElementType, low: i64) -> Result<Plan> {
    const NAME: &str = "plinth_random_from";
    if element == ElementType::U64 || element.is_complex() {
        return Err(unsupported(NAME, element));
    }
    if low == i64::MIN {
        return match element {
            ElementType::I64 | ElementType::F64 | ElementType::F32 | ElementType::Bf16 => {
                Ok(plan(NAME, element, 0, 0, true))
            }
            _ => Err(unsupported("plinth_random_from the least 64-bit number", element)),
        };
    }
    let (low, last) = if element.is_float() {
        let last = 1_i64 << digits(element);
        let low = raised(element, low);
        if low >= last {
            return Err(refuse(NAME, format_args!("needs a low below {last} for {element}, but got {low}")));
        }
        (low, last)
    } else {
        (low, ((1_u64 << digits(element)) - 1) as i64)
    };
    checked(NAME, element, low, last)?;
    let range = (last.wrapping_sub(low) as u64).wrapping_add(1);
    Ok(plan(NAME, element, low, range, range >= WIDE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(plan: Result<Plan>) -> (u64, i64, u32) {
        let plan = plan.unwrap();
        (plan.arguments[0], plan.arguments[1] as i64, plan.unroll)
    }

    #[test]
    fn a_type_has_its_own_numbers() {
        assert_eq!(numbers(whole(ElementType::U8)), (256, 0, 4));
        assert_eq!(numbers(whole(ElementType::I8)), (128, 0, 4));
        assert_eq!(numbers(whole(ElementType::I32)), (1 << 31, 0, 4));
        assert_eq!(numbers(whole(ElementType::I64)), (1 << 63, 0, 2));
        assert_eq!(numbers(whole(ElementType::Bool)), (2, 0, 4));
        assert_eq!(numbers(whole(ElementType::F16)), (2049, 0, 4));
        assert_eq!(numbers(whole(ElementType::F32)), ((1 << 24) + 1, 0, 4));
        assert_eq!(numbers(whole(ElementType::F64)), ((1 << 53) + 1, 0, 2));
        assert!(whole(ElementType::U32).is_err());
        for complex in [ElementType::Complex64, ElementType::Complex128] {
            for refused in [whole(complex), range(complex, 0, 2), from(complex, 0)] {
                assert!(refused.unwrap_err().message().contains("does not fill tensors of complex"));
            }
        }
    }

    #[test]
    fn large_ranges_take_64_bits() {
        assert_eq!(numbers(range(ElementType::I32, 0, (1 << 28) - 1)).2, 4);
        assert_eq!(numbers(range(ElementType::I32, 0, 1 << 28)).2, 2);
        assert_eq!(numbers(range(ElementType::I64, i64::MIN, i64::MAX)), (u64::MAX, i64::MIN, 2));
        assert_eq!(numbers(from(ElementType::I64, i64::MIN)), (0, 0, 2));
        assert_eq!(numbers(from(ElementType::I8, -5)), (133, -5, 4));
        assert_eq!(numbers(from(ElementType::F32, 10)), ((1 << 24) - 9, 10, 4));
    }

    #[test]
    fn floats_keep_to_what_they_can_hold() {
        // From 2^25 on a float has but every fourth number: 2^25 + 1 would become 2^25, which is below.
        let (count, base, _) = numbers(range(ElementType::F32, (1 << 25) + 1, (1 << 25) + 16));
        assert_eq!((base, count), ((1 << 25) + 4, 8));
        // Large numbers become infinity in f16, whose conversion stands for the least number of all.
        assert_eq!(nearest(ElementType::F16, 70_000), i64::MIN);
    }

    #[test]
    fn wrong_ranges_are_refused() {
        for plan in [
            range(ElementType::I32, 5, 5),
            range(ElementType::I32, 6, 5),
            range(ElementType::U8, -1, 5),
            range(ElementType::U8, 0, 257),
            range(ElementType::I8, -129, 0),
            range(ElementType::Bool, 0, 3),
            range(ElementType::U64, -1, 5),
            range(ElementType::F16, -70_000, 0),
            from(ElementType::I8, 128),
            from(ElementType::U8, i64::MIN),
            from(ElementType::F16, 5000),
        ] {
            assert_eq!(plan.unwrap_err().status(), crate::status::Status::INVALID_VALUE);
        }
        assert!(range(ElementType::U8, 0, 256).is_ok());
    }
}

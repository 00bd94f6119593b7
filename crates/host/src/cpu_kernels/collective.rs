//! Collectives: the operations of kernels/collective.cu on a table of chunks, with the same rounding.

use super::{elements, parameter};
use crate::{
    driver::{
        codes,
        collective::{MOST_DIMENSIONS, Operation, Table},
        element::{self, CopyDimension},
        float8::{F8E4M3, F8E5M2},
        half::{Bf16, F16},
        table::Code,
    },
    kernels::Launch,
};

const INVALID: Code = codes::CUDA_ERROR_INVALID_VALUE;

/// Returns the launch's table, if the grid has the number of blocks that the table requires.
fn table(launch: &Launch) -> Result<Table, Code> {
    let table = parameter::<Table>(launch, 0)?;
    let chunk = u64::from(table.chunk());
    let mut blocks = 0;
    for index in 0..table.count() {
        let (length, _) = table.piece(index).ok_or(INVALID)?;
        blocks += length.checked_div(chunk).ok_or(INVALID)? + u64::from(length % chunk != 0);
    }
    if blocks == u64::from(launch.grid[0]) && table.sources > 0 { Ok(table) } else { Err(INVALID) }
}

/// Runs `body` for each chunk, with its length, its source addresses, its destination addresses, and the words after
/// the addresses.
fn for_each_chunk(
    launch: &Launch,
    body: impl Fn(&Table, u64, &[u64], &[u64], &[u64]) -> Result<(), Code>,
) -> Result<(), Code> {
    let table = table(launch)?;
    for index in 0..table.count() {
        let (length, words) = table.piece(index).ok_or(INVALID)?;
        let (from, rest) = words.split_at_checked(table.sources as usize).ok_or(INVALID)?;
        let (to, dimensions) = rest.split_at_checked(table.destinations as usize).ok_or(INVALID)?;
        body(&table, length, from, to, dimensions)?;
    }
    Ok(())
}

/// Copies contiguous chunks, each to several destinations.
pub fn copy(launch: &Launch) {
    let run = for_each_chunk(launch, |_, length, from, to, _| {
        if length == 0 {
            return Ok(());
        }
        let source = launch.memory(from[0], length, false)?;
        for address in to {
            let destination = launch.memory(*address, length, true)?;
            // SAFETY: both were checked to be accessible for that many bytes; a chunk may be copied onto itself.
            unsafe { source.copy_to(destination, length as usize) };
        }
        Ok(())
    });
    run.unwrap_or_else(|error| launch.fail(error));
}

/// Returns the minimum and the maximum distance from the first unit, in bytes.
fn extent(dimensions: &[u64], which: usize) -> Option<(i64, i64)> {
    let mut ends = (0_i64, 0_i64);
    for dimension in dimensions.chunks_exact(3) {
        let last = i64::try_from(dimension[0]).ok()?.checked_sub(1)?.checked_mul(dimension[which] as i64)?;
        ends = (ends.0.checked_add(last.min(0))?, ends.1.checked_add(last.max(0))?);
    }
    Some(ends)
}

/// Copies units with arbitrary strides, and converts them.
pub fn strided(launch: &Launch) {
    let run = for_each_chunk(launch, |table, length, from, to, words| {
        let [source, destination] = table.unit().shapes().ok_or(INVALID)?;
        let dimensions: Vec<CopyDimension> =
            words.chunks_exact(3).map(|words| (words[0], words[1] as i64, words[2] as i64)).collect();
        let units = dimensions.iter().try_fold(1_u64, |product, dimension| product.checked_mul(dimension.0));
        if units != Some(length) || u32::try_from(length).is_err() || table.rank as usize > MOST_DIMENSIONS {
            return Err(INVALID);
        }
        if length == 0 {
            return Ok(());
        }
        for (address, which, (width, alignment), write) in [(from[0], 1, source, false), (to[0], 2, destination, true)]
        {
            let (low, high) = extent(words, which).ok_or(INVALID)?;
            let aligned = words.chunks_exact(3).all(|dimension| dimension[which].is_multiple_of(alignment));
            if !address.is_multiple_of(alignment) || !aligned {
                return Err(codes::CUDA_ERROR_MISALIGNED_ADDRESS);
            }
            let start = address.checked_add_signed(low).ok_or(codes::CUDA_ERROR_ILLEGAL_ADDRESS)?;
            launch.memory(start, high.abs_diff(low) + width, write)?;
        }
        // SAFETY: all addresses from the minimum to the maximum were checked to be accessible.
        unsafe { element::copy_on_cpu(table.unit(), &dimensions, from[0], to[0]) };
        Ok(())
    });
    run.unwrap_or_else(|error| launch.fail(error));
}

/// An element type: the type in which it is reduced, and the operations.
pub trait Summed: Copy {
    /// The type of a sum.
    type Sum: Copy;
    fn load(self) -> Self::Sum;
    fn store(sum: Self::Sum) -> Self;
    fn add(left: Self::Sum, right: Self::Sum) -> Self::Sum;
    fn multiply(left: Self::Sum, right: Self::Sum) -> Self::Sum;
    fn less(is_signed: bool, left: Self::Sum, right: Self::Sum) -> bool;
    fn is_nan(sum: Self::Sum) -> bool;
    fn divide(is_signed: bool, sum: Self::Sum, divisor: u32) -> Self::Sum;
}

macro_rules! summed_floats {
    ($( $type:ty as $sum:ty: $load:expr, $store:expr; )*) => { $(
        impl Summed for $type {
            type Sum = $sum;
            fn load(self) -> $sum { $load(self) }
            fn store(sum: $sum) -> Self { $store(sum) }
            fn add(left: $sum, right: $sum) -> $sum { left + right }
            fn multiply(left: $sum, right: $sum) -> $sum { left * right }
            fn less(_: bool, left: $sum, right: $sum) -> bool { left < right }
            fn is_nan(sum: $sum) -> bool { sum.is_nan() }
            fn divide(_: bool, sum: $sum, divisor: u32) -> $sum { sum / divisor as $sum }
        }
    )* };
}

summed_floats! {
    F16 as f32: F16::to_f32, F16::from_f32;
    Bf16 as f32: Bf16::to_f32, Bf16::from_f32;
    F8E4M3 as f32: F8E4M3::to_f32, F8E4M3::from_f32;
    F8E5M2 as f32: F8E5M2::to_f32, F8E5M2::from_f32;
    f32 as f32: |value| value, |value| value;
    f64 as f64: |value| value, |value| value;
}

macro_rules! summed_integers {
    ($( $type:ty, $signed:ty; )*) => { $(
        impl Summed for $type {
            type Sum = $type;
            fn load(self) -> $type { self }
            fn store(sum: $type) -> Self { sum }
            fn add(left: $type, right: $type) -> $type { left.wrapping_add(right) }
            fn multiply(left: $type, right: $type) -> $type { left.wrapping_mul(right) }
            fn less(is_signed: bool, left: $type, right: $type) -> bool {
                if is_signed { (left as $signed) < right as $signed } else { left < right }
            }
            fn is_nan(_: $type) -> bool { false }
            fn divide(is_signed: bool, sum: $type, divisor: u32) -> $type {
                if is_signed {
                    (i64::from(sum as $signed) / i64::from(divisor)) as $type
                } else {
                    (u64::from(sum) / u64::from(divisor)) as $type
                }
            }
        }
    )* };
}

summed_integers! {
    u8, i8;
    u16, i16;
    u32, i32;
    u64, i64;
}

/// A bool in memory; any byte except 0 is true.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Bool(u8);

impl Summed for Bool {
    type Sum = bool;
    fn load(self) -> bool {
        self.0 != 0
    }
    fn store(sum: bool) -> Self {
        Bool(u8::from(sum))
    }
    fn add(left: bool, right: bool) -> bool {
        left | right
    }
    fn multiply(left: bool, right: bool) -> bool {
        left & right
    }
    fn less(_: bool, left: bool, right: bool) -> bool {
        !left & right
    }
    fn is_nan(_: bool) -> bool {
        false
    }
    fn divide(_: bool, sum: bool, _: u32) -> bool {
        sum
    }
}

fn combine<E: Summed>(operation: Operation, is_signed: bool, left: E::Sum, right: E::Sum) -> E::Sum {
    match operation {
        Operation::Sum => E::add(left, right),
        Operation::RoundedSum => E::store(E::add(left, right)).load(),
        Operation::Product => E::multiply(left, right),
        Operation::Minimum if E::less(is_signed, right, left) || E::is_nan(left) => right,
        Operation::Maximum if E::less(is_signed, left, right) || E::is_nan(left) => right,
        Operation::Minimum | Operation::Maximum => left,
    }
}

/// Reduces the elements of all sources, and writes the results to all destinations.
pub fn reduce<E: Summed>(launch: &Launch) {
    let run = for_each_chunk(launch, |table, length, from, to, _| {
        let operation = Operation::from_number(table.operation).ok_or(INVALID)?;
        let is_signed = table.is_signed != 0;
        if length == 0 {
            return Ok(());
        }
        let all = (0, length as i64 - 1);
        let read = |address: &u64| elements::<E>(launch, *address, all, false);
        let write = |address: &u64| elements::<E>(launch, *address, all, true);
        let sources = from.iter().map(read).collect::<Result<Vec<*mut E>, Code>>()?;
        let destinations = to.iter().map(write).collect::<Result<Vec<*mut E>, Code>>()?;
        for index in 0..length as usize {
            // SAFETY: all elements of all sources were checked to be readable.
            let mut values = sources.iter().map(|source| unsafe { source.add(index).read() }.load());
            let first = values.next().ok_or(INVALID)?;
            let mut sum = values.fold(first, |sum, value| combine::<E>(operation, is_signed, sum, value));
            if table.divisor != 0 {
                sum = E::divide(is_signed, sum, table.divisor);
            }
            for destination in &destinations {
                // SAFETY: all elements of all destinations were checked to be writable.
                unsafe { destination.add(index).write(E::store(sum)) };
            }
        }
        Ok(())
    });
    run.unwrap_or_else(|error| launch.fail(error));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum<E: Summed>(operation: Operation, values: &[E]) -> E {
        let mut sums = values.iter().map(|value| value.load());
        let first = sums.next().unwrap();
        E::store(sums.fold(first, |sum, value| combine::<E>(operation, false, sum, value)))
    }

    #[test]
    fn half_sums_are_rounded_once_or_each_time() {
        // 2049 is not representable in f16 and rounds to the even neighbour, 2048. Rounding after each addition gives
        // 2048, rounding once gives 2050.
        let values = [2048.0, 1.0, 1.0].map(F16::from_f32);
        assert_eq!(sum(Operation::Sum, &values).to_f32(), 2050.0);
        assert_eq!(sum(Operation::RoundedSum, &values).to_f32(), 2048.0);
        let values = [256.0, 1.0, 1.0].map(Bf16::from_f32);
        assert_eq!(sum(Operation::Sum, &values).to_f32(), 258.0);
        assert_eq!(sum(Operation::RoundedSum, &values).to_f32(), 256.0);
    }

    #[test]
    fn comparisons_ignore_nan() {
        for operation in [Operation::Minimum, Operation::Maximum] {
            assert_eq!(sum(operation, &[f32::NAN, 1.0]), 1.0);
            assert_eq!(sum(operation, &[1.0, f32::NAN]), 1.0);
        }
        assert_eq!(sum(Operation::Minimum, &[3.0, 1.0, 2.0]), 1.0);
        assert_eq!(sum(Operation::Maximum, &[1.0, 3.0, 2.0]), 3.0);
    }

    #[test]
    fn comparisons_and_averages_depend_on_signedness() {
        assert!(u8::less(true, 0xFF, 1));
        assert!(!u8::less(false, 0xFF, 1));
        assert_eq!(u16::divide(true, -7_i16 as u16, 2) as i16, -3);
        assert_eq!(u16::divide(false, 65_529, 2), 32_764);
        assert_eq!(u8::divide(true, 200, 28) as i8, -2);
    }

    #[test]
    fn integers_wrap_and_bools_are_normalized() {
        assert_eq!(sum(Operation::Sum, &[200_u8, 100]), 44);
        assert_eq!(sum(Operation::Product, &[200_u8, 3]), 88);
        assert_eq!(sum(Operation::Sum, &[Bool(0), Bool(7)]).0, 1);
        assert_eq!(sum(Operation::Product, &[Bool(9), Bool(7)]).0, 1);
        assert_eq!(sum(Operation::Minimum, &[Bool(9), Bool(0)]).0, 0);
    }
}

//! Random permutations: the kernel that sorts generates all keys, sorts them, and shuffles runs of equal keys.

use super::{elements, origin, parameter, philox::philox};
use crate::{
    driver::{
        codes,
        half::{Bf16, F16},
        permutation::{MAX_CHUNKS, Permutation},
        random::ElementCode,
        table::Code,
    },
    kernels::Launch,
};

/// The key kernels only check their parameters here.
pub fn run_keys(launch: &Launch) {
    if let Err(error) = parameter::<Permutation>(launch, 0).and_then(|permutation| check(&permutation)) {
        launch.fail(error);
    }
}

fn check(permutation: &Permutation) -> Result<(), Code> {
    let chunks = permutation.chunks as usize;
    let is_valid = (1..=MAX_CHUNKS).contains(&chunks)
        && permutation.lanes[..chunks].iter().all(|lanes| *lanes > 0)
        && permutation.begins[..=chunks].is_sorted()
        && permutation.begins[0] == 0
        && permutation.begins[chunks] == permutation.n
        && (1..=64).contains(&permutation.bits);
    if is_valid { Ok(()) } else { Err(codes::CUDA_ERROR_INVALID_VALUE) }
}

/// Returns number `count` of a subsequence, counted from a call.
fn number(seed: u64, call: u64, subsequence: u64, count: u64) -> u32 {
    let call = call.wrapping_add(count / 4);
    let counter = [call as u32, (call >> 32) as u32, subsequence as u32, (subsequence >> 32) as u32];
    philox(counter, seed)[(count % 4) as usize]
}

fn key(permutation: &Permutation, seed: u64, first_call: u64, index: u32) -> u64 {
    let chunk = permutation.begins[1..permutation.chunks as usize].iter().filter(|begin| **begin <= index).count();
    let element = index - permutation.begins[chunk];
    let (row, lane) = (element / permutation.lanes[chunk], element % permutation.lanes[chunk]);
    let call = first_call.wrapping_add(permutation.calls[chunk]).wrapping_add(u64::from(row / 2));
    let counter = [call as u32, (call >> 32) as u32, lane, 0];
    let numbers = philox(counter, seed);
    let half = (row % 2 * 2) as usize;
    let wide = u64::from(numbers[half]) << 32 | u64::from(numbers[half + 1]);
    let rest = if permutation.bits <= 32 { wide % 0xFFFF_FFFF } else { wide % u64::MAX };
    rest & (u64::MAX >> (64 - permutation.bits))
}

pub fn run(launch: &Launch) {
    let run = || {
        let permutation = parameter::<Permutation>(launch, 0)?;
        check(&permutation)?;
        let (seed, offset) = origin(launch, &permutation.philox)?;
        let call = offset / 4;
        let mut sorted: Vec<(u64, u32)> =
            (0..permutation.n).map(|index| (key(&permutation, seed, call, index), index)).collect();
        sorted.sort_unstable();
        let shuffle = call.wrapping_add(permutation.shuffle_calls);
        let mut first = 0;
        for run_of_equal in sorted.chunk_by_mut(|left, right| left.0 == right.0) {
            for (used, last) in (1..run_of_equal.len()).rev().enumerate() {
                let other = number(seed, shuffle, first, used as u64) as usize % (last + 1);
                run_of_equal.swap(last, other);
            }
            first += run_of_equal.len() as u64;
        }
        write(launch, &permutation, &sorted)
    };
    run().unwrap_or_else(|error| launch.fail(error));
}

fn write(launch: &Launch, permutation: &Permutation, sorted: &[(u64, u32)]) -> Result<(), Code> {
    let code = permutation.code;
    match () {
        () if code == ElementCode::F16 as u32 => put(launch, permutation, sorted, |index| F16::from_f32(index as f32)),
        () if code == ElementCode::Bf16 as u32 => {
            put(launch, permutation, sorted, |index| Bf16::from_f32(index as f32))
        }
        () if code == ElementCode::F32 as u32 => put(launch, permutation, sorted, |index| index as f32),
        () if code == ElementCode::F64 as u32 => put(launch, permutation, sorted, f64::from),
        () if code == ElementCode::U8 as u32 || code == ElementCode::I8 as u32 => {
            put(launch, permutation, sorted, |index| index as u8)
        }
        () if code == ElementCode::I16 as u32 => put(launch, permutation, sorted, |index| index as u16),
        () if code == ElementCode::I32 as u32 => put(launch, permutation, sorted, |index| index),
        () if code == ElementCode::I64 as u32 => put(launch, permutation, sorted, u64::from),
        () => Err(codes::CUDA_ERROR_INVALID_VALUE),
    }
}

fn put<E>(
    launch: &Launch,
    permutation: &Permutation,
    sorted: &[(u64, u32)],
    element: impl Fn(u32) -> E,
) -> Result<(), Code> {
    let last = permutation.stride.checked_mul(sorted.len() as i64 - 1).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
    let data = elements::<E>(launch, permutation.data(), (last.min(0), last.max(0)), true)?;
    for (position, (_, index)) in sorted.iter().enumerate() {
        // SAFETY: the elements from the first to the last were checked to be accessible.
        unsafe { data.offset(position as isize * permutation.stride as isize).write(element(*index)) };
    }
    Ok(())
}

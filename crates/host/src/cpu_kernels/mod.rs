//! What the host device runs in place of the library's kernels: of the random ones here, the same numbers, made by the CPU;
//! those of [`group`] are collectives, and compute as [`combine`] says.
//!
//! [`philox`] makes the numbers, [`walk`] gives each element its own, and the distributions ([`real`], [`whole`]) make
//! elements of them, for the types of [`element`] and with the functions of [`math`]. [`each`] is the one
//! kernel that reads a tensor, too, and has an order of its own.
//!
//! Integers, uniform and Bernoulli numbers are a GPU's bit by bit. The others differ in the last places where a GPU's
//! fast functions do.

pub mod collective;
pub mod combine;
pub mod each;
pub mod element;
pub mod group;
pub mod math;
pub mod permutation;
pub mod philox;
pub mod real;
pub mod walk;
pub mod whole;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;

use super::kernels::{HostKernel, Launch};
use crate::driver::{
    codes,
    collective::Table,
    half::{Bf16, F16},
    permutation::Permutation,
    random::{ElementCode, Fill, PhiloxState, Strided},
    table::Code,
};
use real::{
    Cauchy, CauchyDouble, Exponential, ExponentialDouble, Geometric, GeometricDouble, Normal, NormalDouble, Uniform,
    UniformDouble,
};
use walk::{Distribution, Places, Sink, Walk};
use whole::{Bernoulli, BernoulliDouble, Integers, WideIntegers};

/// The parameters' sizes of a fill of elements side by side, of elements anywhere, and of one that reads a tensor.
const DENSE: &[usize] = &[size_of::<Fill>()];
const STRIDED: &[usize] = &[size_of::<Fill>(), size_of::<Strided>()];
const EACH: &[usize] = &[size_of::<Fill>(), size_of::<Strided>(), size_of::<Strided>()];
/// Those of the kernels of permutations, and of those among them that make keys.
const PERMUTATION: &[usize] = &[size_of::<Permutation>()];
/// That of the kernels of collectives.
const TABLE: &[usize] = &[size_of::<Table>()];
const KEYS: &[usize] = &[size_of::<Permutation>(), size_of::<u32>()];

/// The list of twins: of kernels for elements side by side; of those for elements anywhere, each by the types that it is
/// told of; and others.
macro_rules! twins {
    (
        dense: $( $name:literal: $distribution:ty, )*
        any: $( $any:literal: { $( $code:ident: $of_code:ty, )* } )*
        others: $( $other:literal $parameters:ident: $run:expr, )*
    ) => {
        pub static TWINS: &[HostKernel] = &[
            $( HostKernel { name: $name, parameter_sizes: DENSE, run: dense::<$distribution, _> }, )*
            $( HostKernel {
                name: $any,
                parameter_sizes: STRIDED,
                run: |launch| typed(launch, &[ $( (ElementCode::$code, strided::<$of_code, _>), )* ]),
            }, )*
            $( HostKernel { name: $other, parameter_sizes: $parameters, run: $run }, )*
        ];
    };
}

twins! {
    dense:
    "plinth_standard_uniform_f32": Uniform<f32>,
    "plinth_standard_uniform_f16": Uniform<F16>,
    "plinth_standard_uniform_bf16": Uniform<Bf16>,
    "plinth_uniform_f16": Uniform<F16>,
    "plinth_uniform_bf16": Uniform<Bf16>,
    "plinth_uniform_f32": Uniform<f32>,
    "plinth_uniform_f64": UniformDouble,
    "plinth_standard_normal_f16": Normal<F16, false>,
    "plinth_standard_normal_bf16": Normal<Bf16, false>,
    "plinth_standard_normal_f32": Normal<f32, false>,
    "plinth_normal_f16": Normal<F16, false>,
    "plinth_normal_bf16": Normal<Bf16, false>,
    "plinth_normal_f32": Normal<f32, false>,
    "plinth_normal_f64": NormalDouble<false>,
    "plinth_log_normal_f16": Normal<F16, true>,
    "plinth_log_normal_bf16": Normal<Bf16, true>,
    "plinth_log_normal_f32": Normal<f32, true>,
    "plinth_log_normal_f64": NormalDouble<true>,
    "plinth_exponential_f16": Exponential<F16>,
    "plinth_exponential_bf16": Exponential<Bf16>,
    "plinth_exponential_f32": Exponential<f32>,
    "plinth_exponential_f64": ExponentialDouble,
    "plinth_cauchy_f16": Cauchy<F16>,
    "plinth_cauchy_bf16": Cauchy<Bf16>,
    "plinth_cauchy_f32": Cauchy<f32>,
    "plinth_cauchy_f64": CauchyDouble,
    "plinth_geometric_f16": Geometric<F16>,
    "plinth_geometric_bf16": Geometric<Bf16>,
    "plinth_geometric_f32": Geometric<f32>,
    "plinth_geometric_f64": GeometricDouble,
    "plinth_geometric_i32": Geometric<i32>,
    "plinth_geometric_i64": Geometric<i64>,
    "plinth_bernoulli_b8": Bernoulli<u8>,
    "plinth_bernoulli_b16": Bernoulli<u16>,
    "plinth_bernoulli_b32": Bernoulli<u32>,
    "plinth_bernoulli_b64": Bernoulli<u64>,
    "plinth_bernoulli_f64": BernoulliDouble,
    "plinth_integers_b8": Integers<u8>,
    "plinth_integers_b16": Integers<u16>,
    "plinth_integers_b32": Integers<u32>,
    "plinth_integers_b64": Integers<u64>,
    "plinth_integers64_b32": WideIntegers<u32>,
    "plinth_integers64_b64": WideIntegers<u64>,
    any:
    "plinth_uniform_any": { F16: Uniform<F16>, Bf16: Uniform<Bf16>, F32: Uniform<f32>, }
    "plinth_uniform_any_f64": { F64: UniformDouble, }
    "plinth_normal_any": { F16: Normal<F16, false>, Bf16: Normal<Bf16, false>, F32: Normal<f32, false>, }
    "plinth_normal_any_f64": { F64: NormalDouble<false>, }
    "plinth_log_normal_any": { F16: Normal<F16, true>, Bf16: Normal<Bf16, true>, F32: Normal<f32, true>, }
    "plinth_log_normal_any_f64": { F64: NormalDouble<true>, }
    "plinth_exponential_any": { F16: Exponential<F16>, Bf16: Exponential<Bf16>, F32: Exponential<f32>, }
    "plinth_exponential_any_f64": { F64: ExponentialDouble, }
    "plinth_cauchy_any": { F16: Cauchy<F16>, Bf16: Cauchy<Bf16>, F32: Cauchy<f32>, }
    "plinth_cauchy_any_f64": { F64: CauchyDouble, }
    "plinth_geometric_any": {
        F16: Geometric<F16>, Bf16: Geometric<Bf16>, F32: Geometric<f32>, U8: Geometric<u8>, I8: Geometric<i8>,
        I16: Geometric<i16>, I32: Geometric<i32>, I64: Geometric<i64>,
    }
    "plinth_geometric_any_f64": { F64: GeometricDouble, }
    "plinth_bernoulli_any": { U8: Bernoulli<u8>, I16: Bernoulli<u16>, I32: Bernoulli<u32>, I64: Bernoulli<u64>, }
    "plinth_bernoulli_any_f64": { I64: BernoulliDouble, }
    "plinth_integers_any": {
        F16: Integers<F16>, Bf16: Integers<Bf16>, F32: Integers<f32>, F64: Integers<f64>, U8: Integers<u8>,
        I8: Integers<u8>, I16: Integers<u16>, I32: Integers<u32>, I64: Integers<u64>,
    }
    "plinth_integers64_any": {
        F16: WideIntegers<F16>, Bf16: WideIntegers<Bf16>, F32: WideIntegers<f32>, F64: WideIntegers<f64>,
        U8: WideIntegers<u8>, I8: WideIntegers<u8>, I16: WideIntegers<u16>, I32: WideIntegers<u32>,
        I64: WideIntegers<u64>,
    }
    others:
    "plinth_bernoulli_each_b8" EACH: each::run::<u8, false>,
    "plinth_bernoulli_each_b16" EACH: each::run::<u16, false>,
    "plinth_bernoulli_each_b32" EACH: each::run::<u32, false>,
    "plinth_bernoulli_each_b64" EACH: each::run::<u64, false>,
    "plinth_bernoulli_each_f64" EACH: each::run::<u64, true>,
    "plinth_permutation_small" PERMUTATION: permutation::run,
    "plinth_permutation_count" KEYS: permutation::run_keys,
    "plinth_permutation_deal" KEYS: permutation::run_keys,
    "plinth_permutation_sort" PERMUTATION: permutation::run,
    "plinth_comm_copy" TABLE: collective::copy,
    "plinth_comm_strided" TABLE: collective::strided,
    "plinth_comm_reduce_f16" TABLE: collective::reduce::<F16>,
    "plinth_comm_reduce_bf16" TABLE: collective::reduce::<Bf16>,
    "plinth_comm_reduce_f32" TABLE: collective::reduce::<f32>,
    "plinth_comm_reduce_f64" TABLE: collective::reduce::<f64>,
    "plinth_comm_reduce_b8" TABLE: collective::reduce::<u8>,
    "plinth_comm_reduce_b16" TABLE: collective::reduce::<u16>,
    "plinth_comm_reduce_b32" TABLE: collective::reduce::<u32>,
    "plinth_comm_reduce_b64" TABLE: collective::reduce::<u64>,
    "plinth_comm_reduce_bool" TABLE: collective::reduce::<collective::Truth>,
}

/// A parameter that is a structure.
///
/// # Safety
/// Every pattern of bits is a value of the type.
unsafe trait Parameter: Copy {}

// SAFETY: all of its fields are integers.
unsafe impl Parameter for Fill {}
// SAFETY: all of its fields are integers.
unsafe impl Parameter for Strided {}
// SAFETY: all of its fields are integers.
unsafe impl Parameter for Permutation {}
// SAFETY: all of its fields are integers.
unsafe impl Parameter for Table {}

fn parameter<T: Parameter>(launch: &Launch, index: usize) -> Result<T, Code> {
    match launch.bytes(index) {
        // SAFETY: these are as many bytes as the type has, and any are a value of it.
        Some(bytes) if bytes.len() == size_of::<T>() => Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }),
        _ => Err(codes::CUDA_ERROR_INVALID_VALUE),
    }
}

/// The place of the element at an address, if the launch may use all of `numel` elements that lie from the least to the
/// greatest distance from it.
fn elements<E>(launch: &Launch, address: u64, (low, high): (i64, i64), write: bool) -> Result<*mut E, Code> {
    let size = size_of::<E>() as u64;
    if !address.is_multiple_of(align_of::<E>() as u64) {
        return Err(codes::CUDA_ERROR_MISALIGNED_ADDRESS);
    }
    let bytes = high.abs_diff(low).checked_add(1).and_then(|count| count.checked_mul(size));
    let start = low.unsigned_abs().checked_mul(size).and_then(|below| address.checked_sub(below));
    match (start, bytes) {
        (Some(start), Some(bytes)) => launch.memory(start, bytes, write)?,
        _ => return Err(codes::CUDA_ERROR_ILLEGAL_ADDRESS),
    };
    Ok(address as *mut E)
}

/// A number in the device's memory.
fn number(launch: &Launch, address: u64) -> Result<u64, Code> {
    let place = elements::<u64>(launch, address, (0, 0), false)?;
    // SAFETY: found usable and aligned.
    Ok(unsafe { place.read() })
}

/// Seed and offset, as they are now.
fn origin(launch: &Launch, state: &PhiloxState) -> Result<(u64, u64), Code> {
    if state.captured == 0 {
        return Ok((state.seed, state.offset));
    }
    Ok((number(launch, state.seed)?, number(launch, state.offset)?.wrapping_add(state.graph_offset)))
}

/// What a fill's parameters say of its order.
fn walk(launch: &Launch, fill: &Fill) -> Result<Walk, Code> {
    let (seed, offset) = origin(launch, &fill.philox)?;
    let lanes = u64::from(fill.lanes);
    if lanes == 0 || !lanes.is_multiple_of(philox::WIDTH as u64) {
        return Err(codes::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Walk { seed, call: offset / 4, numel: u64::from(fill.numel), lanes })
}

/// Elements side by side.
struct Dense<E>(*mut E);

impl<E: Copy> Sink<E> for Dense<E> {
    #[inline(always)]
    fn put(&mut self, start: u64, elements: &[E]) {
        // SAFETY: a walk puts no element but those that it has, which were found usable.
        unsafe { elements.as_ptr().copy_to_nonoverlapping(self.0.add(start as usize), elements.len()) };
    }
}

fn dense<D: Distribution<N>, const N: usize>(launch: &Launch) {
    let run = || {
        let fill = parameter::<Fill>(launch, 0)?;
        let walk = walk(launch, &fill)?;
        if fill.numel > 0 {
            let data = elements::<D::Element>(launch, fill.data(), (0, i64::from(fill.numel) - 1), true)?;
            walk.fill(&D::of(&fill.arguments), &mut Dense(data));
        }
        Ok(())
    };
    run().unwrap_or_else(|error| launch.fail(error));
}

/// Elements anywhere.
struct Scattered<'a, E>(*mut E, &'a Strided);

impl<E: Copy> Sink<E> for Scattered<'_, E> {
    #[inline(always)]
    fn put(&mut self, start: u64, elements: &[E]) {
        for (element, place) in elements.iter().zip(Places::new(self.1, start)) {
            // SAFETY: a walk puts no element but those that it has, and all places of the layout were found usable.
            unsafe { self.0.offset(place as isize).write(*element) };
        }
    }
}

/// What a kernel for elements anywhere is for a type.
type OfCode = (ElementCode, fn(&Launch));

/// Runs what is for the type that the launch tells.
fn typed(launch: &Launch, of_codes: &[OfCode]) {
    let told = parameter::<Fill>(launch, 0).map(|fill| fill.code);
    match of_codes.iter().find(|(code, _)| Ok(*code as u32) == told) {
        Some((_, run)) => run(launch),
        None => launch.fail(codes::CUDA_ERROR_INVALID_VALUE),
    }
}

fn strided<D: Distribution<N>, const N: usize>(launch: &Launch) {
    let run = || {
        let (fill, layout) = (parameter::<Fill>(launch, 0)?, parameter::<Strided>(launch, 1)?);
        let walk = walk(launch, &fill)?;
        if fill.numel > 0 {
            let extent = walk::extent(&layout, walk.numel).ok_or(codes::CUDA_ERROR_INVALID_VALUE)?;
            let data = elements::<D::Element>(launch, fill.data(), extent, true)?;
            walk.fill(&D::of(&fill.arguments), &mut Scattered(data, &layout));
        }
        Ok(())
    };
    run().unwrap_or_else(|error| launch.fail(error));
}

//! CPU kernels: what the host device runs in place of the library's CUDA kernels. The random kernels produce the same
//! numbers on the CPU. The kernels of [`group`] are collectives, and compute as [`combine`] specifies. The sources in
//! kernels/ compile for the host device too, and are slower (docs/benchmarks.md, "The library's own kernels").
//!
//! [`philox`] generates the numbers, [`mod@walk`] assigns them to elements, and the distributions ([`real`], [`whole`])
//! convert them to elements, for the types of [`element`] and with the functions of [`math`]. [`each`] is the one
//! kernel that also reads a tensor, and has its own order.
//!
//! Integers, uniform and Bernoulli numbers match a GPU's bit by bit. The others differ in the last places where a GPU
//! uses fast functions.

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

use super::kernels::{HostKernel, Launch, Run};
use crate::driver::{
    codes,
    collective::Table,
    float8::{F8E4M3, F8E5M2},
    half::{Bf16, F16},
    permutation::Permutation,
    random::{ElementCode, Fill, PhiloxState, Strided},
    table::Code,
};
use real::{
    Cauchy, CauchyDouble, Exponential, ExponentialDouble, Geometric, GeometricDouble, Normal, NormalDouble, Uniform,
    UniformDouble,
};
use walk::{Distribution, Offsets, Sink, Walk};
use whole::{Bernoulli, BernoulliDouble, Integers, WideIntegers};

/// The parameter sizes of a fill of contiguous elements, of a strided fill, and of one that reads a tensor.
const DENSE: &[usize] = &[size_of::<Fill>()];
const STRIDED: &[usize] = &[size_of::<Fill>(), size_of::<Strided>()];
const EACH: &[usize] = &[size_of::<Fill>(), size_of::<Strided>(), size_of::<Strided>()];
/// The parameter sizes of the kernel that advances an offset.
const ADVANCE: &[usize] = &[size_of::<u64>(), size_of::<u64>()];
/// The parameter sizes of the permutation kernels; those that generate keys use `KEYS`.
const PERMUTATION: &[usize] = &[size_of::<Permutation>()];
/// The parameter sizes of the collective kernels.
const TABLE: &[usize] = &[size_of::<Table>()];
const KEYS: &[usize] = &[size_of::<Permutation>(), size_of::<u32>()];

/// Defines the list of CPU kernels: those for contiguous elements; those for strided elements, each with the types that
/// it supports; and others.
macro_rules! cpu_kernels {
    (
        dense: $( $name:literal: $distribution:ty, )*
        any: $( $any:literal: { $( $code:ident: $of_code:ty, )* } )*
        others: $( $other:literal $parameters:ident: $run:expr, )*
    ) => {
        pub static CPU_KERNELS: &[HostKernel] = &[
            $( HostKernel { name: $name, parameter_sizes: DENSE, run: Run::Function(dense::<$distribution, _>) }, )*
            $( HostKernel {
                name: $any,
                parameter_sizes: STRIDED,
                run: Run::Function(|launch| typed(launch, &[ $( (ElementCode::$code, strided::<$of_code, _>), )* ])),
            }, )*
            $( HostKernel { name: $other, parameter_sizes: $parameters, run: Run::Function($run) }, )*
        ];
    };
}

cpu_kernels! {
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
    "plinth_advance_offset" ADVANCE: advance_offset,
    "plinth_permutation_small" PERMUTATION: permutation::run,
    "plinth_permutation_count" KEYS: permutation::run_keys,
    "plinth_permutation_deal" KEYS: permutation::run_keys,
    "plinth_permutation_sort" PERMUTATION: permutation::run,
    "plinth_comm_copy" TABLE: collective::copy,
    "plinth_comm_strided" TABLE: collective::strided,
    "plinth_comm_convert" TABLE: collective::strided,
    "plinth_comm_reduce_f16" TABLE: collective::reduce::<F16>,
    "plinth_comm_reduce_bf16" TABLE: collective::reduce::<Bf16>,
    "plinth_comm_reduce_f32" TABLE: collective::reduce::<f32>,
    "plinth_comm_reduce_f64" TABLE: collective::reduce::<f64>,
    "plinth_comm_reduce_b8" TABLE: collective::reduce::<u8>,
    "plinth_comm_reduce_b16" TABLE: collective::reduce::<u16>,
    "plinth_comm_reduce_b32" TABLE: collective::reduce::<u32>,
    "plinth_comm_reduce_b64" TABLE: collective::reduce::<u64>,
    "plinth_comm_reduce_bool" TABLE: collective::reduce::<collective::Bool>,
    "plinth_comm_reduce_e4m3" TABLE: collective::reduce::<F8E4M3>,
    "plinth_comm_reduce_e5m2" TABLE: collective::reduce::<F8E5M2>,
}

/// A structure that is a kernel parameter.
///
/// # Safety
/// Every bit pattern is a value of the type.
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
        // SAFETY: the bytes have the size of the type, and any bits are a value of it.
        Some(bytes) if bytes.len() == size_of::<T>() => Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }),
        _ => Err(codes::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Returns a pointer to the element at an address, if the launch may access all elements from the minimum to the
/// maximum distance from it, in elements.
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

/// Reads a number in the device's memory.
fn number(launch: &Launch, address: u64) -> Result<u64, Code> {
    let pointer = elements::<u64>(launch, address, (0, 0), false)?;
    // SAFETY: checked to be accessible and aligned.
    Ok(unsafe { pointer.read() })
}

/// Returns the current seed and offset.
fn origin(launch: &Launch, state: &PhiloxState) -> Result<(u64, u64), Code> {
    if state.captured == 0 {
        return Ok((state.seed, state.offset));
    }
    Ok((number(launch, state.seed)?, number(launch, state.offset)?.wrapping_add(state.graph_offset)))
}

/// Advances the offset of a graph's replay for the next one.
fn advance_offset(launch: &Launch) {
    let run = || {
        let (Some(address), Some(used)) = (launch.u64(0), launch.u64(1)) else {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        };
        let offset = elements::<u64>(launch, address, (0, 0), true)?;
        // SAFETY: checked to be accessible and aligned. The nodes of the graph that read it are done.
        unsafe { offset.write(offset.read().wrapping_add(used)) };
        Ok(())
    };
    run().unwrap_or_else(|error| launch.fail(error));
}

/// Returns the order of a fill's elements from its parameters.
fn walk(launch: &Launch, fill: &Fill) -> Result<Walk, Code> {
    let (seed, offset) = origin(launch, &fill.philox)?;
    let lanes = u64::from(fill.lanes);
    if lanes == 0 || !lanes.is_multiple_of(philox::WIDTH as u64) {
        return Err(codes::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Walk { seed, call: offset / 4, numel: u64::from(fill.numel), lanes })
}

/// Contiguous elements.
struct Dense<E>(*mut E);

impl<E: Copy> Sink<E> for Dense<E> {
    #[inline(always)]
    fn put(&mut self, start: u64, elements: &[E]) {
        // SAFETY: a walk writes only its elements, which were checked to be accessible.
        unsafe { elements.as_ptr().copy_to_nonoverlapping(self.0.add(start as usize), elements.len()) };
    }
}

fn dense<D: Distribution<N>, const N: usize>(launch: &Launch) {
    let run = || {
        let fill = parameter::<Fill>(launch, 0)?;
        let walk = walk(launch, &fill)?;
        if fill.numel > 0 {
            let data = elements::<D::Element>(launch, fill.data(), (0, i64::from(fill.numel) - 1), true)?;
            walk.fill(&D::new(&fill.arguments), &mut Dense(data));
        }
        Ok(())
    };
    run().unwrap_or_else(|error| launch.fail(error));
}

/// Strided elements.
struct Scattered<'a, E>(*mut E, &'a Strided);

impl<E: Copy> Sink<E> for Scattered<'_, E> {
    #[inline(always)]
    fn put(&mut self, start: u64, elements: &[E]) {
        for (element, offset) in elements.iter().zip(Offsets::new(self.1, start)) {
            // SAFETY: a walk writes only its elements, and all elements of the layout were checked to be accessible.
            unsafe { self.0.offset(offset as isize).write(*element) };
        }
    }
}

/// The implementation of a strided kernel for one element type.
type TypedKernel = (ElementCode, fn(&Launch));

/// Runs the implementation for the element type of the launch.
fn typed(launch: &Launch, kernels: &[TypedKernel]) {
    let launched = parameter::<Fill>(launch, 0).map(|fill| fill.code);
    match kernels.iter().find(|(code, _)| Ok(*code as u32) == launched) {
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
            walk.fill(&D::new(&fill.arguments), &mut Scattered(data, &layout));
        }
        Ok(())
    };
    run().unwrap_or_else(|error| launch.fail(error));
}

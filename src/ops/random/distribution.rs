//! Distributions: the kernel for an element type, and its arguments.
//!
//! Arguments are checked as PyTorch checks them, and are converted to the types in which PyTorch computes: float for
//! elements of 16 and 32 bits and for integers, double for 64-bit floats.

use crate::{
    driver::random::ElementCode,
    error::{Error, Result},
    half::{Bf16, F16},
    runtime::tensor::ElementType,
    status::Status,
    stream::kernel::Kernel,
};

/// A kernel for contiguous elements, and the number of consecutive elements that a thread generates. The first
/// element's address must be a multiple of their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dense {
    /// The kernel.
    pub kernel: Kernel,
    /// Consecutive elements per thread.
    pub width: u32,
}

/// A fill of a tensor: kernels and arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FillPlan {
    /// The name of the C function that was called.
    pub name: &'static str,
    /// The kernel for contiguous elements, if there is one for this type.
    pub dense: Option<Dense>,
    /// The kernel for elements with any strides.
    pub any: Kernel,
    /// The element type as `any` expects it.
    pub code: ElementCode,
    /// The elements that one call of the generator produces.
    pub unroll: u32,
    /// The arguments of the kernels.
    pub arguments: [u64; 4],
}

/// The kernels of a distribution of floating-point numbers.
struct Real {
    name: &'static str,
    f16: Kernel,
    bf16: Kernel,
    f32: Kernel,
    f64: Kernel,
    any: Kernel,
    any_f64: Kernel,
}

macro_rules! real {
    ($name:ident, $title:literal, $f16:ident, $bf16:ident, $f32:ident, $f64:ident, $any:ident, $any_f64:ident) => {
        const $name: Real = Real {
            name: $title,
            f16: Kernel::$f16,
            bf16: Kernel::$bf16,
            f32: Kernel::$f32,
            f64: Kernel::$f64,
            any: Kernel::$any,
            any_f64: Kernel::$any_f64,
        };
    };
}

real!(UNIFORM, "plinth_uniform", UniformF16, UniformBf16, UniformF32, UniformF64, UniformAny, UniformAnyF64);
real!(NORMAL, "plinth_normal", NormalF16, NormalBf16, NormalF32, NormalF64, NormalAny, NormalAnyF64);
real!(
    LOG_NORMAL,
    "plinth_log_normal",
    LogNormalF16,
    LogNormalBf16,
    LogNormalF32,
    LogNormalF64,
    LogNormalAny,
    LogNormalAnyF64
);
real!(
    EXPONENTIAL,
    "plinth_exponential",
    ExponentialF16,
    ExponentialBf16,
    ExponentialF32,
    ExponentialF64,
    ExponentialAny,
    ExponentialAnyF64
);
real!(CAUCHY, "plinth_cauchy", CauchyF16, CauchyBf16, CauchyF32, CauchyF64, CauchyAny, CauchyAnyF64);
real!(
    GEOMETRIC,
    "plinth_geometric",
    GeometricF16,
    GeometricBf16,
    GeometricF32,
    GeometricF64,
    GeometricAny,
    GeometricAnyF64
);

/// Returns the code of an element type for the kernels that handle any type. Unsigned integers have the code of the
/// signed integer of the same size, except 8-bit integers.
pub fn code_of(element: ElementType) -> ElementCode {
    match element {
        ElementType::F16 => ElementCode::F16,
        ElementType::Bf16 => ElementCode::Bf16,
        ElementType::F32 => ElementCode::F32,
        ElementType::F64 => ElementCode::F64,
        ElementType::U8 | ElementType::Bool => ElementCode::U8,
        ElementType::I8 => ElementCode::I8,
        ElementType::U16 | ElementType::I16 => ElementCode::I16,
        ElementType::U32 | ElementType::I32 => ElementCode::I32,
        ElementType::U64 | ElementType::I64 => ElementCode::I64,
        // Every fill rejects these types with an error.
        ElementType::Complex64 | ElementType::Complex128 | ElementType::F8E4M3 | ElementType::F8E5M2 => {
            ElementCode::F32
        }
    }
}

/// Returns the number of consecutive elements that a thread generates.
fn width_of(element: ElementType) -> u32 {
    match element.bytes() {
        8 => 2,
        4 => 4,
        _ => 8,
    }
}

#[cold]
pub(super) fn unsupported(name: &str, element: ElementType) -> Error {
    Error::new(Status::INVALID_VALUE, format!("{name} does not fill tensors of {element}"))
}

#[cold]
pub(super) fn invalid(name: &str, reason: impl std::fmt::Display) -> Error {
    Error::new(Status::INVALID_VALUE, format!("{name} {reason}"))
}

impl FillPlan {
    /// Uses the kernel of the distribution's standard form: that of f16, bf16, f32 or f64.
    fn use_standard_kernel(&mut self, kernels: [Kernel; 4]) {
        if let Some(dense) = &mut self.dense {
            dense.kernel = kernels[self.code as usize];
        }
    }
}

impl Real {
    /// Returns a plan with arguments that are the same for all types.
    fn plan(&self, element: ElementType, arguments: &[f64]) -> Result<FillPlan> {
        let mut plan = FillPlan {
            name: self.name,
            dense: None,
            any: self.any,
            code: code_of(element),
            unroll: 4,
            arguments: [0; 4],
        };
        let kernel = match element {
            ElementType::F16 => self.f16,
            ElementType::Bf16 => self.bf16,
            ElementType::F32 => self.f32,
            ElementType::F64 => {
                (plan.any, plan.unroll) = (self.any_f64, 2);
                self.f64
            }
            _ => return Err(unsupported(self.name, element)),
        };
        plan.dense = Some(Dense { kernel, width: width_of(element) });
        for (argument, value) in plan.arguments.iter_mut().zip(arguments) {
            *argument = bits(element, *value);
        }
        Ok(plan)
    }
}

/// Returns the bits of an argument in the type in which an element type is computed.
fn bits(element: ElementType, value: f64) -> u64 {
    if element == ElementType::F64 { value.to_bits() } else { u64::from((value as f32).to_bits()) }
}

/// Returns the max_finite finite number of a type.
fn max_finite(element: ElementType) -> f64 {
    match element {
        ElementType::F16 => 65_504.0,
        ElementType::Bf16 => f64::from(f32::from_bits(0x7F7F_0000)),
        ElementType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// Rounds a number to a type; to the small types by way of float.
fn round_to(element: ElementType, value: f64) -> f64 {
    match element {
        ElementType::F16 => F16::from_f32(value as f32).to_f32().into(),
        ElementType::Bf16 => Bf16::from_f32(value as f32).to_f32().into(),
        ElementType::F32 => (value as f32).into(),
        _ => value,
    }
}

/// Returns the plan of the uniform distribution over [low, high). The parts of complex numbers have it each.
pub fn uniform(element: ElementType, low: f64, high: f64) -> Result<FillPlan> {
    let element = element.real();
    let mut plan = UNIFORM.plan(element, &[])?;
    let limit = max_finite(element);
    for (name, value) in [("low", low), ("high", high)] {
        // Written this way so that a NaN is rejected.
        if !(value >= -limit && value <= limit) {
            return Err(invalid(
                plan.name,
                format_args!("needs a {name} that {element} can hold, and {value} is none"),
            ));
        }
    }
    if low > high {
        return Err(invalid(plan.name, format_args!("needs low <= high, but {low} > {high}")));
    }
    if high - low > limit {
        return Err(invalid(plan.name, format_args!("needs high - low to be a {element}, and {} is none", high - low)));
    }
    let (low, high) = (round_to(element, low), round_to(element, high));
    // Use float for all types except f64: PyTorch rounds the difference of two small numbers to float before it rounds
    // it to the small type.
    let range = if element == ElementType::F64 { high - low } else { f64::from(high as f32 - low as f32) };
    let range = round_to(element, range);
    plan.arguments = [bits(element, low), bits(element, range), bits(element, high), 0];
    if low.to_bits() == 0 && range == 1.0 && high == 1.0 {
        plan.use_standard_kernel([
            Kernel::StandardUniformF16,
            Kernel::StandardUniformBf16,
            Kernel::StandardUniformF32,
            Kernel::UniformF64,
        ]);
    }
    if element == ElementType::Bf16 {
        // The kernel compares the bits as f16, where some of these bits are NaN, and has only one zero.
        let bits = Bf16::from_f32(high as f32).0 & 0x7FFF;
        if bits == 0 || bits > 0x7C00 {
            plan.dense = None;
        }
    }
    Ok(plan)
}

fn check_not_nan(name: &str, what: &str, value: f64) -> Result<()> {
    if value.is_nan() { Err(invalid(name, format_args!("got NaN as {what}"))) } else { Ok(()) }
}

/// Returns the plan of the normal distribution. The parts of complex numbers have the mean each, and half of the
/// variance.
pub fn normal(element: ElementType, mean: f64, deviation: f64) -> Result<FillPlan> {
    if element.is_complex() {
        return normal(element.real(), mean, deviation / std::f64::consts::SQRT_2);
    }
    let mut plan = NORMAL.plan(element, &[mean, deviation])?;
    check_not_nan(plan.name, "mean", mean)?;
    if mean.to_bits() == 0 && deviation == 1.0 {
        plan.use_standard_kernel([
            Kernel::StandardNormalF16,
            Kernel::StandardNormalBf16,
            Kernel::StandardNormalF32,
            Kernel::NormalF64,
        ]);
    }
    if deviation >= 0.0 {
        return Ok(plan);
    }
    Err(invalid(plan.name, format_args!("needs std >= 0, but got {deviation}")))
}

/// Returns the plan of the log-normal distribution.
pub fn log_normal(element: ElementType, mean: f64, deviation: f64) -> Result<FillPlan> {
    let plan = LOG_NORMAL.plan(element, &[mean, deviation])?;
    check_not_nan(plan.name, "mean", mean)?;
    if deviation > 0.0 {
        return Ok(plan);
    }
    Err(invalid(plan.name, format_args!("needs std > 0, but got {deviation}")))
}

/// Returns the plan of the exponential distribution.
pub fn exponential(element: ElementType, lambda: f64) -> Result<FillPlan> {
    let mut plan = EXPONENTIAL.plan(element, &[])?;
    plan.arguments[0] = match element {
        ElementType::F64 => (-1.0 / lambda).to_bits(),
        _ => u64::from((-1.0 / lambda as f32).to_bits()),
    };
    if lambda > 0.0 {
        return Ok(plan);
    }
    Err(invalid(plan.name, format_args!("needs lambda > 0, but got {lambda}")))
}

/// Returns the plan of the Cauchy distribution.
pub fn cauchy(element: ElementType, median: f64, sigma: f64) -> Result<FillPlan> {
    let plan = CAUCHY.plan(element, &[median, sigma])?;
    check_not_nan(plan.name, "median", median)?;
    if sigma > 0.0 {
        return Ok(plan);
    }
    Err(invalid(plan.name, format_args!("needs sigma > 0, but got {sigma}")))
}

/// Returns the plan of the geometric distribution: the number of trials up to the first success.
pub fn geometric(element: ElementType, p: f64) -> Result<FillPlan> {
    let plan = match element {
        ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64 => GEOMETRIC.plan(element, &[p])?,
        ElementType::U8 | ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64 => {
            let kernel = match element {
                ElementType::I32 => Some(Kernel::GeometricI32),
                ElementType::I64 => Some(Kernel::GeometricI64),
                _ => None,
            };
            let dense = kernel.map(|kernel| Dense { kernel, width: width_of(element) });
            FillPlan { dense, code: code_of(element), ..GEOMETRIC.plan(ElementType::F32, &[p])? }
        }
        _ => return Err(unsupported(GEOMETRIC.name, element)),
    };
    if p > 0.0 && p < 1.0 {
        return Ok(plan);
    }
    Err(invalid(plan.name, format_args!("needs a p between 0 and 1, but got {p}")))
}

/// Returns how many 32-bit numbers result in a uniform number below `p`. They are the lowest ones, because the
/// conversion is monotonic.
fn threshold32(p: f32) -> u64 {
    let below = |number: u32| number as f32 * (-32_f32).exp2() + (-33_f32).exp2() < p;
    partition_point(1 << 32, |number| below(number as u32))
}

/// Returns the same for the 53-bit numbers.
fn threshold53(p: f64) -> u64 {
    partition_point(1 << 53, |number| (number as f64).mul_add((-53_f64).exp2(), (-54_f64).exp2()) < p)
}

/// Returns the first number below `end` for which `holds` is false, provided that it is true for all numbers before it.
fn partition_point(end: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

/// Returns the bits of 1.
pub(super) fn one(element: ElementType) -> u64 {
    match element {
        ElementType::F16 => 0x3C00,
        ElementType::Bf16 => 0x3F80,
        ElementType::F32 => 1.0_f32.to_bits().into(),
        ElementType::F64 => 1.0_f64.to_bits(),
        _ => 1,
    }
}

/// Returns whether no fill with whole numbers has a type.
pub(super) fn is_never_filled(element: ElementType) -> bool {
    element.is_complex() || matches!(element, ElementType::F8E4M3 | ElementType::F8E5M2)
}

/// Checks that PyTorch has a Bernoulli kernel for the type.
pub(super) fn check_bernoulli(name: &str, element: ElementType) -> Result<()> {
    match element {
        ElementType::U16 | ElementType::U32 | ElementType::U64 => Err(unsupported(name, element)),
        _ if is_never_filled(element) => Err(unsupported(name, element)),
        _ => Ok(()),
    }
}

/// Returns the plan of the Bernoulli distribution: 1 with probability `p`, else 0.
pub fn bernoulli(element: ElementType, p: f64) -> Result<FillPlan> {
    const NAME: &str = "plinth_bernoulli";
    check_bernoulli(NAME, element)?;
    if !(0.0..=1.0).contains(&p) {
        return Err(invalid(NAME, format_args!("needs a p from 0 to 1, but got {p}")));
    }
    let (kernel, code) = match element.bytes() {
        1 => (Kernel::BernoulliB8, ElementCode::U8),
        2 => (Kernel::BernoulliB16, ElementCode::I16),
        4 => (Kernel::BernoulliB32, ElementCode::I32),
        _ => (Kernel::BernoulliB64, ElementCode::I64),
    };
    let dense = Some(Dense { kernel, width: width_of(element) });
    let arguments = [threshold32(p as f32), one(element), 0, 0];
    let plan = FillPlan { name: NAME, dense, any: Kernel::BernoulliAny, code, unroll: 4, arguments };
    if element != ElementType::F64 {
        return Ok(plan);
    }
    Ok(FillPlan {
        dense: Some(Dense { kernel: Kernel::BernoulliF64, width: 2 }),
        any: Kernel::BernoulliAnyF64,
        unroll: 2,
        arguments: [threshold53(p), one(element), 0, 0],
        ..plan
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_where_the_comparison_turns() {
        for p in [0.0_f32, 1e-10, 0.3, 0.5, 0.9999999, 1.0] {
            let threshold = threshold32(p);
            let u = |number: u64| number as u32 as f32 * (-32_f32).exp2() + (-33_f32).exp2();
            assert!(threshold == 0 || u(threshold - 1) < p, "{p}");
            assert!(threshold == 1 << 32 || u(threshold) >= p, "{p}");
        }
        // The max_finite numbers are round_to to 1, which is not less than 1.
        assert_eq!(threshold32(1.0), 0xFFFF_FF80);
        assert_eq!(threshold53(0.5), (1 << 52));
        assert_eq!(threshold53(0.0), 0);
    }

    #[test]
    fn the_range_of_a_small_type_is_rounded_twice() {
        // 1.0005 - -2.9995 in f16: both ends are round_to first, then their difference.
        let plan = uniform(ElementType::F16, -2.9995, 1.0005).unwrap();
        let value = |index: usize| f32::from_bits(plan.arguments[index] as u32);
        assert_eq!((value(0), value(2)), (-3.0, 1.0009766));
        assert_eq!(value(1), F16::from_f32(4.0009766).to_f32());
    }

    #[test]
    fn the_standard_uniform_has_its_own_kernel() {
        let kernel = |low, high| uniform(ElementType::F32, low, high).unwrap().dense.unwrap().kernel;
        assert_eq!(kernel(0.0, 1.0), Kernel::StandardUniformF32);
        assert_eq!(kernel(-0.0, 1.0), Kernel::UniformF32);
        assert_eq!(kernel(0.0, 2.0), Kernel::UniformF32);
    }

    #[test]
    fn a_bfloat16_with_bits_invalid_in_f16_uses_the_strided_kernel() {
        let dense = |low, high| uniform(ElementType::Bf16, low, high).unwrap().dense.is_some();
        assert!(dense(0.0, 1.0) && dense(-5.0, 1000.0));
        assert!(!dense(-1.0, 0.0), "-0 and 0");
        assert!(!dense(0.0, 1e38), "a NaN in f16");
    }

    #[test]
    fn parts_of_complex_numbers_share_the_variance() {
        let real = normal(ElementType::F64, 3.0, 2.0 / 2.0_f64.sqrt()).unwrap();
        assert_eq!(normal(ElementType::Complex128, 3.0, 2.0).unwrap(), real);
        let single = uniform(ElementType::F32, -1.0, 2.0).unwrap();
        assert_eq!(uniform(ElementType::Complex64, -1.0, 2.0).unwrap(), single);
        assert_eq!(log_normal(ElementType::Complex64, 0.0, 1.0).unwrap_err().status(), Status::INVALID_VALUE);
    }

    #[test]
    fn invalid_arguments_are_rejected() {
        let f32 = ElementType::F32;
        for plan in [
            uniform(f32, 1.0, 0.0),
            uniform(f32, f64::NAN, 0.0),
            uniform(f32, 0.0, f64::NAN),
            uniform(f32, 0.0, f64::INFINITY),
            uniform(f32, -3e38, 3e38),
            uniform(ElementType::F16, 0.0, 65_505.0),
            uniform(ElementType::I32, 0.0, 1.0),
            normal(f32, 0.0, -1.0),
            normal(f32, 0.0, f64::NAN),
            normal(f32, f64::NAN, 1.0),
            log_normal(f32, 0.0, 0.0),
            log_normal(f32, f64::NAN, 1.0),
            exponential(f32, 0.0),
            exponential(f32, f64::NAN),
            cauchy(f32, 0.0, 0.0),
            cauchy(f32, f64::NAN, 1.0),
            geometric(f32, 0.0),
            geometric(f32, 1.0),
            geometric(ElementType::Bool, 0.5),
            bernoulli(f32, -0.1),
            bernoulli(f32, 1.1),
            bernoulli(f32, f64::NAN),
            bernoulli(ElementType::U16, 0.5),
            bernoulli(ElementType::F8E4M3, 0.5),
            uniform(ElementType::F8E5M2, 0.0, 1.0),
            geometric(ElementType::F8E5M2, 0.5),
        ] {
            assert_eq!(plan.unwrap_err().status(), Status::INVALID_VALUE);
        }
    }
}

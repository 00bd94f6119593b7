//! The common type of a jiterated function's inputs, by PyTorch's type promotion.

use crate::{
    error::{Error, Result},
    runtime::tensor::{ElementType, Tensor},
    status::Status,
};
use ElementType::{
    Bf16, Bool, Complex64, Complex128, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64,
};

/// Returns the common type of some tensors. Zero-dimensional tensors count only if their category (bool, integer,
/// float, complex) is higher than that of all others.
pub fn common(inputs: &[Tensor]) -> Result<ElementType> {
    let (mut with, mut without) = (None, None);
    for tensor in inputs {
        if matches!(tensor.element, F8E4M3 | F8E5M2) {
            let what = format!("there are no jiterated functions of {}", tensor.element);
            return Err(Error::new(Status::NOT_SUPPORTED, what));
        }
        let of = if tensor.rank > 0 { &mut with } else { &mut without };
        *of = Some(match *of {
            None => tensor.element,
            Some(element) if element == tensor.element => element,
            Some(element) => promoted(element, tensor.element)?,
        });
    }
    match (with, without) {
        (Some(higher), Some(lower)) => combined(higher, lower),
        (Some(only), None) | (None, Some(only)) => Ok(only),
        (None, None) => Err(Error::new(Status::INVALID_VALUE, "there is no input")),
    }
}

fn is_small_complex(element: ElementType) -> bool {
    matches!(element, F16 | Bf16 | F32 | Complex64)
}

/// Returns the common type of tensors with dimensions and zero-dimensional tensors.
fn combined(higher: ElementType, lower: ElementType) -> Result<ElementType> {
    if higher.is_complex() || higher.is_float() && !lower.is_complex() {
        return Ok(higher);
    }
    if higher.is_float() {
        return Ok(if is_small_complex(higher) { Complex64 } else { Complex128 });
    }
    if higher == Bool || lower.is_float() || lower.is_complex() { promoted(higher, lower) } else { Ok(higher) }
}

/// Returns the type to which two types are promoted.
fn promoted(one: ElementType, other: ElementType) -> Result<ElementType> {
    if one == other {
        return Ok(one);
    }
    if one.is_complex() || other.is_complex() {
        let small = |element: ElementType| !matches!(element, F64 | Complex128);
        return Ok(if small(one) && small(other) { Complex64 } else { Complex128 });
    }
    match (one.is_float(), other.is_float()) {
        (true, false) => return Ok(one),
        (false, true) => return Ok(other),
        (true, true) => return Ok(if one == F64 || other == F64 { F64 } else { F32 }),
        (false, false) => {}
    }
    match (one, other) {
        (Bool, integer) | (integer, Bool) => Ok(integer),
        (U16 | U32 | U64, _) | (_, U16 | U32 | U64) => Err(Error::new(
            Status::NOT_SUPPORTED,
            format!("{one} and {other} have no type in common; convert one of them"),
        )),
        (U8, I8) | (I8, U8) => Ok(I16),
        _ => Ok([I64, I32, I16].into_iter().find(|wide| one == *wide || other == *wide).unwrap_or(one)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Span;

    fn tensor(element: ElementType, dimensions: usize) -> Tensor {
        Tensor::new(Span::dangling(4096), element, 0, &[3, 3][..dimensions], None).unwrap()
    }

    /// torch.promote_types of version 2.11, one row for each type.
    #[test]
    fn two_types_meet_as_in_torch() {
        let order = [U8, I8, I16, I32, I64, F16, F32, F64, Complex64, Complex128, Bool, Bf16];
        let table = [
            [U8, I16, I16, I32, I64, F16, F32, F64, Complex64, Complex128, U8, Bf16],
            [I16, I8, I16, I32, I64, F16, F32, F64, Complex64, Complex128, I8, Bf16],
            [I16, I16, I16, I32, I64, F16, F32, F64, Complex64, Complex128, I16, Bf16],
            [I32, I32, I32, I32, I64, F16, F32, F64, Complex64, Complex128, I32, Bf16],
            [I64, I64, I64, I64, I64, F16, F32, F64, Complex64, Complex128, I64, Bf16],
            [F16, F16, F16, F16, F16, F16, F32, F64, Complex64, Complex128, F16, F32],
            [F32, F32, F32, F32, F32, F32, F32, F64, Complex64, Complex128, F32, F32],
            [F64, F64, F64, F64, F64, F64, F64, F64, Complex128, Complex128, F64, F64],
            [
                Complex64, Complex64, Complex64, Complex64, Complex64, Complex64, Complex64, Complex128, Complex64,
                Complex128, Complex64, Complex64,
            ],
            [Complex128; 12],
            [U8, I8, I16, I32, I64, F16, F32, F64, Complex64, Complex128, Bool, Bf16],
            [Bf16, Bf16, Bf16, Bf16, Bf16, F32, F32, F64, Complex64, Complex128, Bf16, Bf16],
        ];
        for (one, row) in order.iter().zip(table) {
            for (other, expected) in order.iter().zip(row) {
                assert_eq!(common(&[tensor(*one, 1), tensor(*other, 2)]).unwrap(), expected, "{one} {other}");
                assert_eq!(common(&[tensor(*one, 0), tensor(*other, 0)]).unwrap(), expected, "{one} {other}");
            }
        }
    }

    #[test]
    fn zero_dimensional_tensors_have_lower_priority() {
        for (with, without, expected) in [
            (F16, F64, F16),
            (F32, I64, F32),
            (I8, I64, I8),
            (I8, F64, F64),
            (I32, F16, F16),
            (Bool, U8, U8),
            (Bool, F16, F16),
            (F32, Complex128, Complex64),
            (F64, Complex64, Complex128),
            (F16, Complex64, Complex64),
            (Complex64, F64, Complex64),
            (Complex64, Complex128, Complex64),
            (I64, Complex64, Complex64),
        ] {
            assert_eq!(common(&[tensor(without, 0), tensor(with, 1)]).unwrap(), expected, "{with} {without}");
        }
        assert_eq!(common(&[tensor(F16, 1), tensor(Bf16, 1), tensor(F64, 0)]).unwrap(), F32);
    }

    #[test]
    fn large_unsigned_integers_promote_to_few_types() {
        assert_eq!(common(&[tensor(U32, 1), tensor(U32, 1)]).unwrap(), U32);
        assert_eq!(common(&[tensor(U16, 1), tensor(F16, 1)]).unwrap(), F16);
        assert_eq!(common(&[tensor(U64, 1), tensor(Bool, 1)]).unwrap(), U64);
        let error = common(&[tensor(U16, 1), tensor(I32, 1)]).unwrap_err();
        assert_eq!(error.status(), Status::NOT_SUPPORTED);
        assert!(error.message().contains("uint16 and int32"));
    }
}

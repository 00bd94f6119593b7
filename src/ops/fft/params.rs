//! The parameters of a plan: sizes, strides and types, and how cuFFT expects them.

use crate::{
    driver::{
        Span,
        cufft::{Layout, Shape, data_type},
    },
    error::{Result, invalid},
    runtime::tensor::{ElementType, Tensor},
};
use std::ffi::c_int;

/// The kind of a transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transform {
    /// From complex to complex numbers.
    ComplexToComplex,
    /// From real numbers to the non-redundant half of the complex numbers.
    RealToComplex,
    /// From the non-redundant half of the complex numbers to real numbers.
    ComplexToReal,
}

/// The key of a plan. The batch is dimension 0 of sizes and strides; the strides of a side count elements of that side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Params {
    rank: usize,
    sizes: [i64; 4],
    input: [i64; 4],
    output: [i64; 4],
    transform: Transform,
    number: ElementType,
}

impl Params {
    /// Checks a program's parameters. Strides that are all 0 stand for a contiguous layout.
    pub fn new(
        rank: i32,
        sizes: [i64; 4],
        strides: [[i64; 4]; 2],
        transform: Transform,
        number: ElementType,
    ) -> Result<Params> {
        let rank = usize::try_from(rank).ok().filter(|rank| (1..=3).contains(rank)).ok_or_else(|| {
            invalid(format!(
                "a transform has 1 to 3 dimensions, and {rank} were asked for; more are several transforms"
            ))
        })?;
        let used = |numbers: [i64; 4]| {
            let mut kept = [0; 4];
            kept[..=rank].copy_from_slice(&numbers[..=rank]);
            kept
        };
        let sizes = used(sizes);
        for size in &sizes[..=rank] {
            if *size < 1 {
                return Err(invalid(format!("invalid number of data points ({size}) specified")));
            }
        }
        if !matches!(number, ElementType::F16 | ElementType::F32 | ElementType::F64) {
            return Err(invalid(format!("cuFFT doesn't support tensor of type: {number}")));
        }
        if number == ElementType::F16 && !sizes[1..=rank].iter().all(|size| size.count_ones() == 1) {
            return Err(invalid(format!(
                "cuFFT doesn't support signals of half type with size at any dimension that is not a power of two, but got \
                 a signal size of {:?}",
                &sizes[1..=rank]
            )));
        }
        let mut params = Params { rank, sizes, input: [0; 4], output: [0; 4], transform, number };
        params.input = params.strides(used(strides[0]), params.extents(true))?;
        params.output = params.strides(used(strides[1]), params.extents(false))?;
        // Report what cuFFT does not support on every request, also if there is a plan already.
        params.shape()?;
        Ok(params)
    }

    /// Returns the type of the real numbers, or of the parts of the complex numbers.
    pub fn number(&self) -> ElementType {
        self.number
    }

    /// Returns the kind of the transform.
    pub fn transform(&self) -> Transform {
        self.transform
    }

    /// Returns one side of a transform as a tensor. A complex number of 16-bit floats is a 32-bit integer in the
    /// tensor.
    pub fn tensor(&self, input: bool, memory: Span, device: u32) -> Result<Tensor> {
        let element = match (self.number, self.is_complex(input)) {
            (ElementType::F16, true) => ElementType::U32,
            (ElementType::F32, true) => ElementType::Complex64,
            (ElementType::F64, true) => ElementType::Complex128,
            (number, _) => number,
        };
        let (extents, strides) = (self.extents(input), if input { self.input } else { self.output });
        Tensor::new(memory, element, device, &extents[..=self.rank], Some(&strides[..=self.rank]))
    }

    fn is_complex(&self, input: bool) -> bool {
        self.transform != if input { Transform::RealToComplex } else { Transform::ComplexToReal }
    }

    /// Returns the sizes of one side, with the batch as dimension 0. The complex side of a real transform has about
    /// half the elements in the last dimension.
    fn extents(&self, input: bool) -> [i64; 4] {
        let mut extents = self.sizes;
        if self.transform != Transform::ComplexToComplex && self.is_complex(input) {
            extents[self.rank] = extents[self.rank] / 2 + 1;
        }
        extents
    }

    /// Returns `strides`, or those of a contiguous layout if they are all 0. Fails if an offset exceeds 64 bits.
    fn strides(&self, requested: [i64; 4], extents: [i64; 4]) -> Result<[i64; 4]> {
        let overflow = || invalid("there are more elements than can be counted");
        let mut strides = requested;
        let mut next = 1_i64;
        for dimension in (0..=self.rank).rev() {
            if requested == [0; 4] {
                strides[dimension] = next;
            }
            next = next.checked_mul(extents[dimension]).ok_or_else(overflow)?;
            strides[dimension].checked_mul(extents[dimension]).ok_or_else(overflow)?;
        }
        Ok(strides)
    }

    /// Returns the layout of one side in cuFFT's terms: the signal is a part of an array with contiguous dimensions.
    fn layout(&self, input: bool) -> Result<Layout> {
        let (strides, extents) =
            if input { (self.input, self.extents(true)) } else { (self.output, self.extents(false)) };
        let side = if input { "input" } else { "output" };
        let not_representable = || {
            invalid(format!(
                "the strides of the {side}, {:?}, cannot be represented as a cuFFT embedding; let its elements lie side by \
                 side",
                &strides[..=self.rank]
            ))
        };
        let mut layout = Layout { embed: [1; 3], stride: strides[self.rank], distance: strides[0] };
        if layout.stride < 1 {
            return Err(not_representable());
        }
        let mut inner = layout.stride;
        for dimension in (1..self.rank).rev() {
            let stride = strides[dimension];
            // The stride of a dimension of size 1 does not matter.
            if extents[dimension] != 1 {
                if stride < 1 || stride % inner != 0 {
                    return Err(not_representable());
                }
                layout.embed[dimension] = stride / inner;
                inner = stride;
            }
        }
        layout.embed[0] = self.sizes[1];
        if self.sizes[0] == 1 {
            layout.distance = extents[1..=self.rank].iter().product();
        } else if layout.distance < 1 {
            return Err(not_representable());
        }
        Ok(layout)
    }

    /// Returns the contiguous layout.
    fn plain_layout(&self, input: bool) -> Layout {
        let extents = self.extents(input);
        let mut layout = Layout { embed: [1; 3], stride: 1, distance: extents[1..=self.rank].iter().product() };
        layout.embed[..self.rank].copy_from_slice(&extents[1..=self.rank]);
        // cuFFT ignores the first extent.
        layout.embed[0] = self.sizes[1];
        layout
    }

    /// Returns the shape that is passed to cuFFT.
    pub fn shape(&self) -> Result<Shape> {
        let (input, output) = (self.layout(true)?, self.layout(false)?);
        let plain = input == self.plain_layout(true) && output == self.plain_layout(false);
        if self.number == ElementType::F16 {
            let real = if self.is_complex(true) { output } else { input };
            if self.transform != Transform::ComplexToComplex && real.stride != 1 {
                return Err(invalid("cuFFT wants real numbers of half type side by side in the last dimension"));
            }
        }
        let mut sizes = [1; 3];
        sizes[..self.rank].copy_from_slice(&self.sizes[1..=self.rank]);
        Ok(Shape {
            rank: self.rank,
            sizes,
            batch: self.sizes[0],
            layouts: (!plain).then_some((input, output)),
            types: [self.native(self.is_complex(true)), self.native(self.is_complex(false)), self.native(true)],
        })
    }

    fn native(&self, complex: bool) -> c_int {
        match (self.number, complex) {
            (ElementType::F16, false) => data_type::R_16F,
            (ElementType::F16, true) => data_type::C_16F,
            (ElementType::F64, false) => data_type::R_64F,
            (ElementType::F64, true) => data_type::C_64F,
            (_, false) => data_type::R_32F,
            (_, true) => data_type::C_32F,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Transform::{ComplexToComplex as C2C, ComplexToReal as C2R, RealToComplex as R2C};

    const NONE: [[i64; 4]; 2] = [[0; 4]; 2];

    fn shape(rank: i32, sizes: [i64; 4], strides: [[i64; 4]; 2], transform: Transform) -> Result<Shape> {
        Params::new(rank, sizes, strides, transform, ElementType::F32)?.shape()
    }

    #[test]
    fn contiguous_elements_need_no_layout() {
        assert!(shape(1, [7, 10, 0, 0], NONE, C2C).unwrap().layouts.is_none());
        assert!(shape(3, [2, 3, 4, 5], NONE, R2C).unwrap().layouts.is_none());
        let explicit = [[60, 20, 5, 1], [36, 12, 3, 1]];
        assert!(shape(3, [2, 3, 4, 5], explicit, R2C).unwrap().layouts.is_none());
        let key = |strides| Params::new(3, [2, 3, 4, 5], strides, R2C, ElementType::F32).unwrap();
        assert_eq!(key(NONE), key(explicit));
        assert_eq!(shape(2, [1, 3, 4, 9], NONE, C2R).unwrap().types, [4, 0, 4]);
    }

    #[test]
    fn strides_become_embeddings() {
        let strides = [[1000, 120, 12, 2], [60, 20, 5, 1]];
        let (input, output) = shape(3, [2, 3, 4, 5], strides, C2C).unwrap().layouts.unwrap();
        assert_eq!(input, Layout { embed: [3, 10, 6], stride: 2, distance: 1000 });
        assert_eq!(output, Layout { embed: [3, 4, 5], stride: 1, distance: 60 });
        // A dimension of size 1 has no stride, and a single signal no distance.
        let (input, _) = shape(2, [1, 1, 5, 0], [[0, 77, 3, 0], [5, 5, 1, 0]], C2C).unwrap().layouts.unwrap();
        assert_eq!(input, Layout { embed: [1, 1, 1], stride: 3, distance: 5 });
    }

    #[test]
    fn unsupported_parameters_are_rejected() {
        let message = |outcome: Result<Shape>| outcome.unwrap_err().message().to_owned();
        assert!(message(shape(0, [1; 4], NONE, C2C)).contains("1 to 3 dimensions"));
        assert!(message(shape(4, [1; 4], NONE, C2C)).contains("1 to 3 dimensions"));
        assert!(message(shape(2, [1, 5, 0, 9], NONE, C2C)).contains("invalid number of data points (0)"));
        for strides in [[20, 3, 2, 0], [20, 0, 2, 0], [0, 6, 2, 0], [20, -6, 2, 0], [20, 6, 0, 0]] {
            let outcome = message(shape(2, [2, 3, 3, 0], [strides, [9, 3, 1, 0]], C2C));
            assert!(outcome.contains("the strides of the input") && outcome.contains("cuFFT embedding"), "{strides:?}");
        }
        assert!(message(shape(1, [2, i64::MAX, 0, 0], NONE, C2C)).contains("more elements"));
        let half = |sizes, strides| Params::new(1, sizes, strides, R2C, ElementType::F16);
        assert!(half([3, 12, 0, 0], NONE).unwrap_err().message().contains("not a power of two"));
        assert!(half([3, 16, 0, 0], [[64, 2, 0, 0], [9, 1, 0, 0]]).unwrap_err().message().contains("side by side"));
        assert_eq!(half([3, 16, 0, 0], NONE).unwrap().shape().unwrap().types, [2, 6, 6]);
        let other = Params::new(1, [1, 8, 0, 0], NONE, C2C, ElementType::Bf16);
        assert!(other.unwrap_err().message().contains("doesn't support tensor of type"));
    }
}

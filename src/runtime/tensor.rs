//! Tensors: typed memory with a shape, as DLPack describes it.

pub use crate::driver::element::ElementType;

use crate::{
    driver::{Span, random::MAX_RANK},
    error::{Error, Result, invalid},
    status::Status,
};

/// A tensor in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Tensor {
    /// The memory from element 0 on. With negative strides, elements lie before it.
    pub memory: Span,
    /// The element type.
    pub element: ElementType,
    /// The number of the device.
    pub device: u32,
    /// The number of dimensions.
    pub rank: usize,
    /// The extents of the dimensions.
    pub sizes: [i64; MAX_RANK],
    /// The strides of the dimensions, in elements.
    pub strides: [i64; MAX_RANK],
    /// The number of elements.
    pub numel: u64,
}

impl Tensor {
    /// A tensor of one element without memory, to be [`set`](Tensor::set).
    pub const UNSET: Tensor = Tensor {
        memory: Span::placeholder(),
        element: ElementType::U8,
        device: 0,
        rank: 0,
        sizes: [1; MAX_RANK],
        strides: [0; MAX_RANK],
        numel: 1,
    };

    /// Creates a tensor. Without strides it is contiguous, with the last dimension varying fastest. `memory` starts
    /// at element 0; its length follows from the shape.
    #[inline]
    pub fn new(
        memory: Span,
        element: ElementType,
        device: u32,
        shape: &[i64],
        strides: Option<&[i64]>,
    ) -> Result<Tensor> {
        let mut tensor = Tensor::UNSET;
        tensor.set(memory, element, device, shape, strides)?;
        Ok(tensor)
    }

    /// Does the same in place: a tensor is some hundred bytes, and returning each of hundreds copies it several times. After
    /// an error the tensor is not to be used.
    #[inline]
    pub fn set(
        &mut self,
        memory: Span,
        element: ElementType,
        device: u32,
        shape: &[i64],
        strides: Option<&[i64]>,
    ) -> Result<()> {
        let rank = shape.len();
        if rank > MAX_RANK {
            return Err(invalid(format!("a tensor has at most {MAX_RANK} dimensions, not {rank}")));
        }
        *self = Tensor { memory, element, device, rank, ..Tensor::UNSET };
        for (dimension, size) in shape.iter().enumerate() {
            if *size < 0 {
                return Err(invalid(format!("dimension {dimension} of the tensor has {size} elements")));
            }
            self.sizes[dimension] = *size;
        }
        self.numel = shape
            .iter()
            .try_fold(1_u64, |product, size| product.checked_mul(*size as u64))
            .filter(|numel| numel.checked_mul(element.bytes()).is_some_and(|bytes| bytes < 1 << 63))
            .or_else(|| shape.contains(&0).then_some(0))
            .ok_or_else(|| invalid("the tensor's shape has more elements than there are addresses"))?;
        match strides {
            Some(strides) => self.strides[..rank].copy_from_slice(&strides[..rank]),
            None => {
                let mut stride = 1_i64;
                for dimension in (0..rank).rev() {
                    self.strides[dimension] = stride;
                    stride = stride.saturating_mul(self.sizes[dimension].max(1));
                }
            }
        }
        if self.numel > 0 {
            if memory.address() == 0 {
                return Err(Error::new(Status::NULL_POINTER, "the tensor's data is NULL"));
            }
            if !memory.address().is_multiple_of(element.alignment()) {
                return Err(invalid(format!(
                    "the tensor's data at {:#x} is not aligned to its {element} elements",
                    memory.address()
                )));
            }
        }
        Ok(())
    }

    /// Returns the extents of the dimensions.
    pub fn shape(&self) -> &[i64] {
        &self.sizes[..self.rank]
    }

    /// Returns the size of all elements in bytes.
    pub fn bytes(&self) -> u64 {
        self.numel * self.element.bytes()
    }

    /// Returns whether the tensor is contiguous in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut stride = 1;
        self.numel == 0
            || (0..self.rank).rev().all(|dimension| {
                let size = self.sizes[dimension];
                let fits = size == 1 || self.strides[dimension] == stride;
                stride *= size;
                fits
            })
    }

    /// Returns whether the elements fill one range of memory, in any order of dimensions.
    pub fn is_dense(&self) -> bool {
        let mut order: Vec<usize> = (0..self.rank).filter(|dimension| self.sizes[*dimension] != 1).collect();
        order.sort_unstable_by_key(|dimension| self.strides[*dimension]);
        let mut stride = 1;
        self.numel == 0
            || order.into_iter().all(|dimension| {
                let fits = self.strides[dimension] == stride;
                stride *= self.sizes[dimension];
                fits
            })
    }

    /// Returns the real and imaginary parts of a complex tensor: torch.view_as_real, with one more dimension. A tensor
    /// with the most dimensions loses one of size 1.
    pub fn view_as_real(&self) -> Result<Tensor> {
        let mut parts = Tensor { element: self.element.real(), rank: 0, numel: self.numel * 2, ..*self };
        for dimension in 0..self.rank {
            if self.rank == MAX_RANK && parts.rank == dimension && self.sizes[dimension] == 1 {
                continue;
            }
            if parts.rank == MAX_RANK - 1 {
                return Err(invalid(format!("a complex tensor has at most {} dimensions here", MAX_RANK - 1)));
            }
            parts.sizes[parts.rank] = self.sizes[dimension];
            parts.strides[parts.rank] = self.strides[dimension].saturating_mul(2);
            parts.rank += 1;
        }
        (parts.sizes[parts.rank], parts.strides[parts.rank]) = (2, 1);
        parts.rank += 1;
        Ok(parts)
    }

    /// Returns the part with `length` indices from `start` on in one dimension. The range must lie within the
    /// dimension.
    pub fn narrow(&self, dimension: usize, start: i64, length: i64) -> Tensor {
        let mut part = *self;
        part.sizes[dimension] = length;
        part.numel = match self.sizes[dimension] {
            0 => 0,
            size => self.numel / size as u64 * length as u64,
        };
        let elements = start.wrapping_mul(self.strides[dimension]);
        part.memory = self.memory.offset_by(elements.wrapping_mul(self.element.bytes() as i64));
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[i64], strides: Option<&[i64]>) -> Result<Tensor> {
        Tensor::new(Span::dangling(4096), ElementType::F32, 0, shape, strides)
    }

    #[test]
    fn default_strides_are_row_major() {
        let dense = tensor(&[2, 3, 4], None).unwrap();
        assert_eq!(dense.strides[..3], [12, 4, 1]);
        assert_eq!(dense.numel, 24);
        assert_eq!(tensor(&[], None).unwrap().numel, 1);
        assert_eq!(tensor(&[5, 0, 7], None).unwrap().numel, 0);
    }

    #[test]
    fn contiguous_and_dense_layouts() {
        for (shape, strides, contiguous, dense) in [
            (&[2, 3][..], &[3, 1][..], true, true),
            (&[2, 3], &[1, 2], false, true),
            (&[2, 3], &[4, 1], false, false),
            (&[2, 3], &[0, 1], false, false),
            (&[2, 1, 3], &[3, 77, 1], true, true),
            (&[2, 0], &[5, 5], true, true),
            (&[3], &[-1], false, false),
        ] {
            let tensor = tensor(shape, Some(strides)).unwrap();
            assert_eq!((tensor.is_contiguous(), tensor.is_dense()), (contiguous, dense), "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn complex_tensors_have_real_parts() {
        let complex = Tensor { element: ElementType::Complex64, ..tensor(&[4, 6], Some(&[-6, 1])).unwrap() };
        let parts = complex.view_as_real().unwrap();
        assert_eq!((parts.shape(), &parts.strides[..3], parts.numel), (&[4, 6, 2][..], &[-12, 2, 1][..], 48));
        assert_eq!((parts.element, parts.memory, parts.bytes()), (ElementType::F32, complex.memory, complex.bytes()));
        let mut shape = [2; MAX_RANK];
        let full = |shape: &[i64]| Tensor { element: ElementType::Complex128, ..tensor(shape, None).unwrap() };
        assert!(full(&shape).view_as_real().unwrap_err().message().contains("at most 24 dimensions"));
        shape[3] = 1;
        assert_eq!(full(&shape).view_as_real().unwrap().shape(), [2; MAX_RANK]);
    }

    #[test]
    fn narrow_moves_the_start() {
        let whole = tensor(&[4, 6], Some(&[-6, 1])).unwrap();
        let part = whole.narrow(0, 1, 2).narrow(1, 3, 3);
        assert_eq!(part.memory.address(), 4096 - 4 * 3);
        assert_eq!((part.shape(), part.numel, part.bytes()), (&[2, 3][..], 6, 24));
        assert_eq!(tensor(&[0, 6], None).unwrap().narrow(1, 2, 3).numel, 0);
    }

    #[test]
    fn invalid_tensors_are_refused() {
        for (shape, part) in [
            (&[3, -1][..], "dimension 1 of the tensor has -1 elements"),
            (&[i64::MAX, 2], "more elements than there are addresses"),
            (&[1; 26], "at most 25 dimensions, not 26"),
        ] {
            assert!(tensor(shape, None).unwrap_err().message().contains(part));
        }
        assert_eq!(tensor(&[i64::MAX, i64::MAX, 0], None).unwrap().numel, 0);
        let misaligned = Tensor::new(Span::dangling(4098), ElementType::F32, 0, &[1], None);
        assert!(misaligned.unwrap_err().message().contains("not aligned to its float32 elements"));
        let null = Tensor::new(Span::dangling(0), ElementType::F32, 0, &[1], None);
        assert_eq!(null.unwrap_err().status(), Status::NULL_POINTER);
    }
}

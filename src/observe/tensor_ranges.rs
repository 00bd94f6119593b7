//! The byte ranges of a tensor's elements.

use super::{Kind, Operand};
use crate::runtime::tensor::Tensor;

/// The maximum number of contiguous runs per tensor. The elements of most tensors are one run. Of a tensor with more
/// runs than this, only the first are reported, because the bytes between them belong to other data.
const MAX_RUNS: usize = 4096;

/// Adds the operands of a tensor's elements, one for each contiguous run.
pub fn operands(tensor: &Tensor, kind: Kind, into: &mut Vec<Operand>) {
    if tensor.numel == 0 {
        return;
    }
    let width = tensor.element.bytes();
    let mut start = tensor.memory.address();
    let mut dimensions: Vec<(u64, u64)> = Vec::with_capacity(tensor.rank);
    for dimension in 0..tensor.rank {
        let (size, stride) = (tensor.sizes[dimension] as u64, tensor.strides[dimension].wrapping_mul(width as i64));
        if size > 1 && stride != 0 {
            if stride < 0 {
                start = start.wrapping_add_signed(stride.wrapping_mul(size as i64 - 1));
            }
            dimensions.push((stride.unsigned_abs(), size));
        }
    }
    dimensions.sort_unstable();
    let mut run = width;
    let mut outer = Vec::with_capacity(dimensions.len());
    for (stride, size) in dimensions {
        // Runs without a gap form a longer one.
        if outer.is_empty() && stride <= run {
            run += stride.saturating_mul(size - 1);
        } else {
            outer.push((stride, size));
        }
    }
    let mut indices = vec![0; outer.len()];
    for _ in 0..MAX_RUNS {
        let offset = indices
            .iter()
            .zip(&outer)
            .fold(0_u64, |offset, (index, (stride, _))| offset.wrapping_add(stride.wrapping_mul(*index)));
        into.push(Operand::new(start.wrapping_add(offset), run, kind));
        let Some(next) = (0..outer.len()).find(|dimension| indices[*dimension] + 1 < outer[*dimension].1) else {
            return;
        };
        indices[..next].fill(0);
        indices[next] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType};

    fn runs(shape: &[i64], strides: &[i64]) -> Vec<(u64, u64)> {
        let tensor = Tensor::new(Span::dangling(4096), ElementType::F32, 0, shape, Some(strides)).unwrap();
        let mut found = Vec::new();
        operands(&tensor, Kind::Write, &mut found);
        found.iter().map(|operand| (operand.start - 4000, operand.end - operand.start)).collect()
    }

    #[test]
    fn merges_elements_into_runs() {
        assert_eq!(runs(&[4, 6], &[6, 1]), [(96, 96)]);
        assert_eq!(runs(&[], &[]), [(96, 4)]);
        assert_eq!(runs(&[0, 6], &[6, 1]), []);
        assert_eq!(runs(&[4, 6], &[1, 4]), [(96, 96)]);
        assert_eq!(runs(&[2, 3], &[6, 1]), [(96, 12), (120, 12)]);
        assert_eq!(runs(&[2, 3], &[-6, 1]), [(72, 12), (96, 12)]);
        assert_eq!(runs(&[3, 2], &[0, 1]), [(96, 8)]);
        assert_eq!(
            runs(&[2, 2, 2], &[20, 6, 3]),
            [(96, 4), (108, 4), (120, 4), (132, 4), (176, 4), (188, 4), (200, 4), (212, 4)]
        );
        assert_eq!(runs(&[1 << 20], &[2]).len(), MAX_RUNS);
    }
}

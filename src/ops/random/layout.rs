//! The order in which PyTorch's iterator visits a tensor's elements, and its splitting of tensors too large for 32-bit
//! indexing.
//!
//! Dimensions are sorted by stride, the smallest first, and adjacent dimensions are merged. A tensor that spans 2^31
//! bytes or more is split in half along its longest dimension, recursively.

use crate::{
    driver::random::{MAX_RANK, Strided},
    error::{Error, Result},
    runtime::tensor::Tensor,
    status::Status,
};

/// The maximum of a 32-bit index.
const LIMIT: u64 = i32::MAX as u64;

/// Dimensions in iteration order, the fastest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    rank: usize,
    sizes: [i64; MAX_RANK],
    /// In elements, not negative.
    strides: [i64; MAX_RANK],
    /// Offset of the first visited element from element 0 of the tensor, in elements.
    pub start: i64,
}

impl Layout {
    /// Returns the layout of a tensor that is written. Fails if several elements share an address.
    pub fn of(tensor: &Tensor) -> Result<Layout> {
        let mut layout = Layout { rank: tensor.rank, sizes: [1; MAX_RANK], strides: [0; MAX_RANK], start: 0 };
        for dimension in 0..tensor.rank {
            let (size, stride) = (tensor.sizes[dimension], tensor.strides[dimension]);
            if stride == 0 && size > 1 {
                return Err(Error::new(
                    Status::INVALID_VALUE,
                    format!(
                        "dimension {dimension} of the tensor has {size} elements in one place, so they cannot have numbers \
                         of their own"
                    ),
                ));
            }
            // The slowest dimension is last here and first there. Dimensions with negative strides are visited in
            // reverse.
            let place = tensor.rank - 1 - dimension;
            layout.sizes[place] = size;
            layout.strides[place] = stride.checked_abs().ok_or_else(too_far)?;
            if stride < 0 {
                let back = stride.checked_mul((size - 1).max(0)).ok_or_else(too_far)?;
                layout.start = layout.start.checked_add(back).ok_or_else(too_far)?;
            }
        }
        layout.check_extent(tensor)?;
        layout.sort();
        layout.merge();
        Ok(layout)
    }

    /// Returns the layouts of two tensors of one shape, in the order in which PyTorch's pointwise kernels visit both
    /// together: row-major, except for dimensions that both tensors have in the opposite order.
    pub fn pair(written: &Tensor, read: &Tensor) -> Result<(Layout, Layout)> {
        Layout::of(written)?;
        let plain = |tensor: &Tensor| {
            let mut layout = Layout { rank: tensor.rank, sizes: [1; MAX_RANK], strides: [0; MAX_RANK], start: 0 };
            layout.sizes[..tensor.rank].copy_from_slice(&tensor.sizes[..tensor.rank]);
            layout.strides[..tensor.rank].copy_from_slice(&tensor.strides[..tensor.rank]);
            layout
        };
        let (mut one, mut other) = (plain(written), plain(read));
        for i in 0..one.rank.saturating_sub(1) {
            for j in i + 1..one.rank {
                if one.sizes[i] == 1 || one.sizes[j] == 1 {
                    continue;
                }
                let both = [(one.strides[i], one.strides[j]), (other.strides[i], other.strides[j])];
                if both.iter().any(|(before, after)| before < after)
                    && both.iter().all(|(before, after)| before <= after)
                {
                    for layout in [&mut one, &mut other] {
                        layout.sizes.swap(i, j);
                        layout.strides.swap(i, j);
                    }
                }
            }
        }
        for layout in [&mut one, &mut other] {
            layout.sizes[..layout.rank].reverse();
            layout.strides[..layout.rank].reverse();
            layout.merge();
        }
        Ok((one, other))
    }

    /// Rejects a tensor that would exceed the address space.
    fn check_extent(&self, tensor: &Tensor) -> Result<()> {
        let mut extent = 0_i64;
        for dimension in 0..self.rank {
            let reach = self.strides[dimension].checked_mul((self.sizes[dimension] - 1).max(0));
            extent = reach.and_then(|reach| extent.checked_add(reach)).ok_or_else(too_far)?;
        }
        let bytes = extent.checked_mul(tensor.element.bytes() as i64).ok_or_else(too_far)?;
        tensor.memory.address().checked_add(bytes as u64).map(drop).ok_or_else(too_far)
    }

    /// Sorts the dimensions by stride; of two with equal strides the larger one comes later. Dimensions with a stride
    /// of 0 are not ordered; they stay where the insertion sort leaves them.
    fn sort(&mut self) {
        for next in 1..self.rank {
            let mut place = next;
            for before in (0..next).rev() {
                let (one, other) = (self.strides[before], self.strides[place]);
                let swap =
                    one != 0 && other != 0 && (one > other || (one == other && self.sizes[before] > self.sizes[place]));
                if swap {
                    self.sizes.swap(before, place);
                    self.strides.swap(before, place);
                    place = before;
                } else if one != 0 && other != 0 && one < other {
                    break;
                }
            }
        }
    }

    /// Merges adjacent dimensions that are contiguous in each other.
    fn merge(&mut self) {
        let mut last = 0;
        for dimension in 1..self.rank {
            let (size, stride) = (self.sizes[dimension], self.strides[dimension]);
            let follows = self.sizes[last].checked_mul(self.strides[last]) == Some(stride);
            if self.sizes[last] == 1 || size == 1 || follows {
                if self.sizes[last] == 1 {
                    self.strides[last] = stride;
                }
                self.sizes[last] *= size;
            } else {
                last += 1;
                self.sizes[last] = size;
                self.strides[last] = stride;
            }
        }
        self.rank = self.rank.min(last + 1);
    }

    /// Returns the number of elements.
    pub fn numel(&self) -> u64 {
        self.sizes[..self.rank].iter().product::<i64>() as u64
    }

    /// Returns whether the elements are contiguous.
    pub fn is_dense(&self) -> bool {
        match self.rank {
            0 => true,
            1 => self.strides[0] == 1 || self.sizes[0] == 1,
            _ => false,
        }
    }

    fn fits_32_bits(&self, element_bytes: u64) -> bool {
        let reach: i64 = (0..self.rank).map(|dimension| (self.sizes[dimension] - 1) * self.strides[dimension]).sum();
        self.numel() <= LIMIT && (reach as u64).saturating_mul(element_bytes).saturating_add(1) <= LIMIT
    }

    /// Calls `body` with each part that 32 bits can index, in PyTorch's order.
    pub fn for_each_part(&self, element_bytes: u64, body: &mut dyn FnMut(&Layout) -> Result<()>) -> Result<()> {
        if self.fits_32_bits(element_bytes) {
            return body(self);
        }
        let (first, second) = self.halves();
        first.for_each_part(element_bytes, body)?;
        second.for_each_part(element_bytes, body)
    }

    /// Returns whether [`for_each_part`](Self::for_each_part) visits more than one part.
    pub fn is_split(&self, element_bytes: u64) -> bool {
        !self.fits_32_bits(element_bytes)
    }

    fn halves(&self) -> (Layout, Layout) {
        // Split the longest dimension; of several, the slowest.
        let mut longest = 0;
        for dimension in 1..self.rank {
            let extent = |dimension: usize| (self.sizes[dimension] - 1) * self.strides[dimension];
            if extent(dimension) >= extent(longest) {
                longest = dimension;
            }
        }
        let half = self.sizes[longest] / 2;
        let (mut first, mut second) = (*self, *self);
        first.sizes[longest] = half;
        second.sizes[longest] = self.sizes[longest] - half;
        second.start += half * self.strides[longest];
        for part in [&mut first, &mut second] {
            if part.sizes[longest] == 1 {
                part.merge();
            }
        }
        (first, second)
    }

    /// Returns the layout as a kernel's argument. It must have fewer than 2^31 elements.
    pub fn strided(&self) -> Strided {
        let mut strided = Strided { rank: self.rank as u32, ..Strided::default() };
        for dimension in 0..self.rank {
            let size = self.sizes[dimension] as u64;
            let shift = size.next_power_of_two().trailing_zeros();
            strided.sizes[dimension] = size as u32;
            strided.shifts[dimension] = shift;
            strided.magics[dimension] = ((((1_u64 << shift) - size) << 32) / size + 1) as u32;
            strided.strides[dimension] = self.strides[dimension];
        }
        strided
    }
}

#[cold]
fn too_far() -> Error {
    Error::new(Status::INVALID_VALUE, "the tensor's strides lead outside of all addresses")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType};
    use proptest::prelude::*;

    fn tensor(shape: &[i64], strides: Option<&[i64]>, element: ElementType) -> Tensor {
        Tensor::new(Span::dangling(1 << 20), element, 0, shape, strides).unwrap()
    }

    fn layout(shape: &[i64], strides: Option<&[i64]>) -> Layout {
        Layout::of(&tensor(shape, strides, ElementType::F32)).unwrap()
    }

    fn dimensions(layout: &Layout) -> Vec<(i64, i64)> {
        (0..layout.rank).map(|dimension| (layout.sizes[dimension], layout.strides[dimension])).collect()
    }

    fn parts(layout: &Layout, element_bytes: u64) -> Vec<(i64, u64)> {
        let mut found = Vec::new();
        layout
            .for_each_part(element_bytes, &mut |part| {
                found.push((part.start, part.numel()));
                Ok(())
            })
            .unwrap();
        found
    }

    #[test]
    fn contiguous_dimensions_are_merged() {
        for strides in [None, Some(&[1, 2, 6][..]), Some(&[3, 1, 6]), Some(&[12, 1, 3])] {
            let shape = match strides {
                Some([12, ..]) => [2, 3, 4],
                _ => [2, 3, 4],
            };
            let found = layout(&shape, strides);
            assert!(found.is_dense(), "{strides:?} {:?}", dimensions(&found));
        }
        assert!(layout(&[], None).is_dense());
        assert!(layout(&[1, 1], Some(&[77, 5])).is_dense());
        assert!(!layout(&[2, 3], Some(&[4, 1])).is_dense());
    }

    #[test]
    fn negative_strides_are_visited_in_reverse() {
        let reversed = layout(&[4], Some(&[-1]));
        assert!(reversed.is_dense());
        assert_eq!(reversed.start, -3);
    }

    #[test]
    fn elements_that_share_an_address_are_rejected() {
        let error = Layout::of(&tensor(&[3, 4], Some(&[0, 1]), ElementType::F32)).unwrap_err();
        assert!(error.message().contains("dimension 0 of the tensor has 3 elements in one place"));
        assert!(Layout::of(&tensor(&[1, 4], Some(&[0, 1]), ElementType::F32)).is_ok());
        let far = Layout::of(&tensor(&[3, 3], Some(&[i64::MAX, 1]), ElementType::F32));
        assert!(far.unwrap_err().message().contains("outside of all addresses"));
        assert!(Layout::of(&tensor(&[2], Some(&[i64::MIN]), ElementType::F32)).is_err());
    }

    #[test]
    fn large_tensors_are_halved() {
        let floats = layout(&[(1 << 29) + 1], None);
        assert_eq!(parts(&floats, 4), [(0, 1 << 28), (1 << 28, (1 << 28) + 1)]);
        assert_eq!(parts(&layout(&[1 << 29], None), 4), [(0, 1 << 29)]);
        let bytes = Layout::of(&tensor(&[1 << 32], None, ElementType::U8)).unwrap();
        assert_eq!(parts(&bytes, 1).len(), 4);
        // Few elements that are far apart in memory.
        let wide = layout(&[4, 4], Some(&[1 << 29, 2]));
        assert_eq!(parts(&wide, 4), [(0, 4), (1 << 29, 4), (2 << 29, 4), (3 << 29, 4)]);
    }

    proptest! {
        #[test]
        fn quotients_are_exact(size in 1_u32..(1 << 30), n in 0_u32..(1 << 31)) {
            let one = Layout { rank: 2, sizes: { let mut s = [1; MAX_RANK]; s[0] = i64::from(size); s[1] = 2; s },
                strides: [1; MAX_RANK], start: 0 };
            let strided = one.strided();
            let high = (u64::from(n) * u64::from(strided.magics[0])) >> 32;
            prop_assert_eq!((high as u32).wrapping_add(n) >> strided.shifts[0], n / size);
        }

        #[test]
        fn every_element_is_visited_once(
            sizes in proptest::collection::vec(1_i64..5, 0..5),
            order in Just([0_usize, 1, 2, 3, 4]).prop_shuffle(),
            gaps in proptest::collection::vec(1_i64..3, 5),
        ) {
            let mut strides = vec![0; sizes.len()];
            let mut stride = 1;
            for dimension in order.iter().copied().filter(|dimension| *dimension < sizes.len()) {
                strides[dimension] = stride;
                stride *= sizes[dimension] * gaps[dimension];
            }
            let layout = layout(&sizes, Some(&strides));
            let mut expected: Vec<i64> = vec![0];
            for (size, stride) in sizes.iter().zip(&strides) {
                expected = expected.iter().flat_map(|base| (0..*size).map(move |i| base + i * stride)).collect();
            }
            expected.sort_unstable();
            let mut found = vec![0];
            for (size, stride) in dimensions(&layout).into_iter().rev() {
                found = found.iter().flat_map(|base: &i64| (0..size).map(move |i| base + i * stride)).collect();
            }
            // With the fastest dimension innermost, the offsets ascend.
            prop_assert_eq!(found, expected);
        }
    }
}

//! Strided copies: from one tensor to another of the same shape, with any strides.

use super::{
    chunks::{Chunks, DeviceSpan, chunk_of, copy_peer, launch},
    stream_group::{StreamGroup, Workers},
    tuning::Threshold,
};
use crate::memory::reach::ensure_access;
use crate::{
    base::units::Bytes,
    driver::collective::{Dimension, Table},
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    observe,
    runtime::{Runtime, tensor::Tensor},
    status::Status,
    stream::{self, Stream, kernel::Kernel},
};

/// A dimension of two tensors: its size, and its strides in both, in bytes.
pub type DimensionPair = (u64, i64, i64);

/// A copy to a tensor of the same shape and element size.
#[derive(Debug, Clone, Copy)]
pub struct StridedCopy<'a> {
    /// The source.
    pub from: &'a Tensor,
    /// The destination.
    pub to: &'a Tensor,
}

impl StridedCopy<'_> {
    /// Returns the merged dimensions of both tensors; the first one is the contiguous bytes.
    pub fn layout(&self) -> Vec<DimensionPair> {
        let width = self.from.element.bytes() as i64;
        let of = |tensor: &Tensor, dimension: usize| tensor.strides[dimension].wrapping_mul(width);
        let mut dimensions: Vec<DimensionPair> = (0..self.from.rank)
            .filter(|dimension| self.from.sizes[*dimension] != 1)
            .map(|dimension| (self.from.sizes[dimension] as u64, of(self.from, dimension), of(self.to, dimension)))
            .collect();
        dimensions.sort_by_key(|(_, from, to)| (to.unsigned_abs(), from.unsigned_abs()));
        let mut merged: Vec<DimensionPair> = Vec::with_capacity(dimensions.len() + 1);
        let mut last = (width as u64, 1, 1);
        for dimension in dimensions {
            let end = |stride: i64| stride.wrapping_mul(last.0 as i64);
            if dimension.1 == end(last.1) && dimension.2 == end(last.2) {
                last.0 *= dimension.0;
            } else {
                merged.push(last);
                last = dimension;
            }
        }
        merged.push(last);
        merged
    }

    /// Returns whether the elements are contiguous in both tensors, in the same order.
    pub fn is_contiguous_copy(&self) -> bool {
        let same = || {
            (0..self.from.rank).all(|dimension| {
                self.from.sizes[dimension] == 1 || self.from.strides[dimension] == self.to.strides[dimension]
            })
        };
        (self.from.is_contiguous() && self.to.is_contiguous()) || (same() && self.from.is_dense())
    }

    /// Returns whether there is nothing to copy.
    pub fn is_noop(&self) -> bool {
        let same = || {
            self.from.memory.address() == self.to.memory.address()
                && (0..self.from.rank).all(|dimension| {
                    self.from.sizes[dimension] == 1 || self.from.strides[dimension] == self.to.strides[dimension]
                })
        };
        self.from.numel == 0 || same()
    }

    fn operands(&self) -> [DeviceSpan; 2] {
        [self.from, self.to].map(device_span)
    }
}

/// Returns the memory of a tensor.
pub fn device_span(tensor: &Tensor) -> DeviceSpan {
    DeviceSpan { span: tensor.memory, device: tensor.device }
}

/// A copy for the strided kernel: the size of its units, the dimensions, and the first addresses.
struct Strided {
    width: u64,
    dimensions: Vec<DimensionPair>,
    from: DeviceSpan,
    to: DeviceSpan,
}

impl Strided {
    fn of(one: &StridedCopy, mut dimensions: Vec<DimensionPair>) -> Strided {
        let [from, to] = one.operands();
        // The largest unit that divides all addresses and strides.
        let bits = dimensions[1..]
            .iter()
            .fold(dimensions[0].0 | from.span.address() | to.span.address() | 16, |bits, (_, from, to)| {
                bits | from.unsigned_abs() | to.unsigned_abs()
            });
        let width = 1 << bits.trailing_zeros();
        dimensions[0] = (dimensions[0].0 / width, width as i64, width as i64);
        if dimensions[0].0 == 1 && dimensions.len() > 1 {
            dimensions.remove(0);
        }
        Strided { width, dimensions, from, to }
    }

    fn units(&self) -> u64 {
        self.dimensions.iter().map(|dimension| dimension.0).product()
    }

    /// Splits the copy into parts with at most 2^32 units.
    fn split(self, into: &mut Vec<Strided>) {
        if self.units() <= u64::from(u32::MAX) {
            return into.push(self);
        }
        let outermost = (0..self.dimensions.len()).max_by_key(|index| self.dimensions[*index].0).unwrap_or(0);
        let (extent, from, to) = self.dimensions[outermost];
        let half = extent / 2;
        for (begin, length) in [(0, half), (half, extent - half)] {
            let mut dimensions = self.dimensions.clone();
            dimensions[outermost].0 = length;
            let moved = |device_span: DeviceSpan, stride: i64| DeviceSpan {
                span: device_span.span.offset_by(stride.wrapping_mul(begin as i64)),
                ..device_span
            };
            let (from, to) = (moved(self.from, from), moved(self.to, to));
            Strided { width: self.width, dimensions, from, to }.split(into);
        }
    }
}

/// Copies in a stream whose device has access to all tensors.
pub fn in_stream(runtime: &Runtime, stream: Stream, copies: &[StridedCopy]) -> Result<()> {
    let engine = Threshold::CopyEngine.bytes()?;
    let (mut runs, mut strided) = (Chunks::new(1, 1), Vec::new());
    for one in copies.iter().filter(|one| !one.is_noop()) {
        let bytes = one.from.bytes();
        if one.is_contiguous_copy() && bytes >= engine {
            let span = |tensor: &Tensor| tensor.memory.with_length(bytes as usize);
            let used = [observe::read(span(one.from)), observe::write(span(one.to))];
            observe::access(runtime, stream, &used)?;
            runtime
                .in_stream(stream, |driver, raw| Ok(driver.copy(span(one.to), span(one.from), raw)?))
                .context(|| format!("copying {}", Bytes(bytes)))?;
        } else if one.is_contiguous_copy() {
            runs.push(bytes, one.operands());
        } else {
            let layout = one.layout();
            if layout.len() == 1 {
                runs.push(bytes, one.operands())
            } else {
                let used = [(one.from, observe::Kind::Read), (one.to, observe::Kind::Write)];
                observe::access_tensors(runtime, stream, &used)?;
                Strided::of(one, layout).split(&mut strided)
            }
        }
    }
    runs.copy(runtime, stream)?;
    let kind = |one: &Strided| (one.dimensions.len(), one.width);
    strided.sort_by_key(kind);
    strided
        .chunk_by(|one, other| kind(one) == kind(other))
        .try_for_each(|same_kind| copy_strided(runtime, stream, same_kind))
}

fn copy_strided(runtime: &Runtime, stream: Stream, same_kind: &[Strided]) -> Result<()> {
    let mut rest = same_kind.iter().peekable();
    while let Some(first) = rest.peek() {
        let (rank, width) = (first.dimensions.len(), first.width);
        let mut table = Table::new(1, 1, rank);
        table.width = width as u32;
        let mut units = 0;
        while let Some(one) = rest.peek() {
            let dimensions: Vec<Dimension> =
                one.dimensions.iter().map(|(extent, from, to)| (*extent as u32, *from, *to)).collect();
            if !table.push(one.units(), [one.from.span, one.to.span].into_iter(), &dimensions) {
                break;
            }
            units += one.units();
            rest.next();
        }
        if table.count() == 0 {
            return Err(Error::new(Status::NOT_SUPPORTED, "a tensor has too many dimensions for one launch"));
        }
        // A thread copies one unit after the other, of any width.
        let chunk = chunk_of(units * width) / 16;
        launch(runtime, stream, Kernel::CommStrided, &mut table, chunk as u32)?;
    }
    Ok(())
}

/// Copies between devices: with one launch if the working stream's device has access to all tensors.
pub fn copy_between_devices(group: &StreamGroup, copies: &[StridedCopy]) -> Result<()> {
    if copies.iter().all(StridedCopy::is_noop) {
        return Ok(());
    }
    let devices = copies.iter().flat_map(|one| [one.from.device, one.to.device]);
    if ensure_access(group.runtime, group.work.device, devices)? {
        return group.run(Workers::One, |work| in_stream(group.runtime, work, copies));
    }
    group.run(Workers::All, |_| {
        copies.iter().filter(|one| !one.is_noop()).try_for_each(|one| copy_without_peer_access(group, one))
    })
}

/// Allocates a contiguous tensor of the same shape in scratch memory.
pub fn allocate_packed(tensor: &Tensor, stream: Stream) -> Result<(Scratch, Tensor)> {
    let scratch = Scratch::alloc(tensor.bytes(), stream)?;
    let allocate_packed = Tensor::new(scratch.memory(), tensor.element, stream.device, tensor.shape(), None)?;
    Ok((scratch, allocate_packed))
}

/// Copies between devices without peer access: packs the source if it is not contiguous, and unpacks on the
/// destination's device.
fn copy_without_peer_access(group: &StreamGroup, one: &StridedCopy) -> Result<()> {
    let runtime = group.runtime;
    let (sender, receiver) = (group.stream_of(one.from.device)?, group.stream_of(one.to.device)?);
    if sender.device == receiver.device {
        return in_stream(runtime, sender, &[*one]);
    }
    let mut scratches = Vec::new();
    let (mut from, mut to) = (*one.from, *one.to);
    if !one.is_contiguous_copy() {
        if !from.is_contiguous() {
            let (scratch, packed_tensor) = allocate_packed(&from, sender)?;
            in_stream(runtime, sender, &[StridedCopy { from: &from, to: &packed_tensor }])?;
            (from, _) = (packed_tensor, scratches.push(scratch));
        }
        if !to.is_contiguous() {
            let (scratch, packed_tensor) = allocate_packed(&to, receiver)?;
            (to, _) = (packed_tensor, scratches.push(scratch));
        }
    }
    stream::make_wait(runtime, receiver, sender)?;
    copy_peer(runtime, receiver, device_span(&from), device_span(&to), from.bytes())?;
    in_stream(runtime, receiver, &[StridedCopy { from: &to, to: one.to }])?;
    // The sender may reuse the packed memory only after the copy.
    stream::make_wait(runtime, sender, receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType};

    fn tensor(address: u64, shape: &[i64], strides: &[i64]) -> &'static Tensor {
        Box::leak(Box::new(Tensor::new(Span::dangling(address), ElementType::F32, 0, shape, Some(strides)).unwrap()))
    }

    fn of(shape: &[i64], from: &[i64], to: &[i64]) -> StridedCopy<'static> {
        StridedCopy { from: tensor(4096, shape, from), to: tensor(8192, shape, to) }
    }

    #[test]
    fn equal_layouts_are_contiguous_copies() {
        assert_eq!(of(&[2, 3], &[3, 1], &[3, 1]).layout(), [(24, 1, 1)]);
        assert_eq!(of(&[2, 3], &[1, 2], &[1, 2]).layout(), [(24, 1, 1)]);
        assert_eq!(of(&[], &[], &[]).layout(), [(4, 1, 1)]);
        for (run, one) in [
            (true, of(&[2, 3], &[1, 2], &[1, 2])),
            (true, of(&[2, 1, 3], &[3, 99, 1], &[3, 1, 1])),
            (false, of(&[2, 3], &[3, 1], &[1, 2])),
            (false, of(&[2, 3], &[4, 1], &[4, 1])),
        ] {
            assert_eq!(one.is_contiguous_copy(), run, "{one:?}");
        }
    }

    #[test]
    fn rows_are_copied_in_the_widest_units() {
        // Rows of 6 floats with a stride of 8: 24 bytes, so units of 8.
        let rows = of(&[5, 6], &[8, 1], &[6, 1]);
        assert_eq!(rows.layout(), [(24, 1, 1), (5, 32, 24)]);
        let strided = Strided::of(&rows, rows.layout());
        assert_eq!((strided.width, strided.dimensions.clone(), strided.units()), (8, vec![(3, 8, 8), (5, 32, 24)], 15));
        // Single floats; the last dimension is the slowest of the destination.
        let turned = of(&[5, 6], &[6, 1], &[1, 5]);
        let strided = Strided::of(&turned, turned.layout());
        assert_eq!((strided.width, strided.dimensions), (4, vec![(5, 24, 4), (6, 4, 20)]));
    }

    #[test]
    fn large_copies_are_split() {
        let one = of(&[3, 1 << 31, 2], &[1 << 34, 3, 1], &[1 << 33, 2, 1]);
        let mut parts = Vec::new();
        Strided::of(&one, one.layout()).split(&mut parts);
        assert!(parts.len() > 1);
        assert!(parts.iter().all(|part| part.units() <= u64::from(u32::MAX)));
        assert_eq!(parts.iter().map(|part| part.units() * part.width).sum::<u64>(), one.from.bytes());
    }

    #[test]
    fn a_copy_to_itself_is_a_noop() {
        let mut one = of(&[2, 3], &[3, 1], &[3, 1]);
        assert!(!one.is_noop());
        one.to = one.from;
        assert!(one.is_noop());
        assert!(of(&[2, 0], &[1, 1], &[1, 1]).is_noop());
    }
}

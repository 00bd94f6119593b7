//! Copies of tensors between memory of the CPU and a device, in a stream of the device.

use super::{
    copy::{self, MAX_PITCH, Rows},
    strided_copy::{self, StridedCopy, allocate_packed},
};
use crate::{
    base::units::Bytes,
    driver::{element::CopyDimension, random::MAX_RANK},
    error::{Context, Result},
    memory::scratch::Scratch,
    runtime::{Runtime, sync_debug, tensor::Tensor},
    stream::{self, Stream},
};

/// The device ordinal of tensors in pageable memory of the CPU.
pub const PAGEABLE: u32 = u32::MAX;
/// The device ordinal of tensors in pinned memory of the CPU.
pub const PINNED: u32 = u32::MAX - 1;

/// Returns whether a tensor is in memory of the CPU.
pub fn is_on_cpu(tensor: &Tensor) -> bool {
    tensor.device >= PINNED
}

/// Copies the contiguous runs of a layout: with one call of the driver for each two dimensions, if the rows of both
/// tensors have a pitch that the driver supports.
fn copy_runs(runtime: &Runtime, stream: Stream, one: &StridedCopy, layout: &[CopyDimension]) -> Result<()> {
    copy_runs_at(runtime, stream, one, layout, (0, 0))
        .context(|| format!("copying {} between host and device", Bytes(one.from.bytes())))
}

fn copy_runs_at(
    runtime: &Runtime,
    stream: Stream,
    one: &StridedCopy,
    layout: &[CopyDimension],
    (from, to): (i64, i64),
) -> Result<()> {
    let (source, destination) = (one.from.memory.offset_by(from), one.to.memory.offset_by(to));
    match layout {
        [] => Ok(()),
        [run] => {
            let bytes = run.0 as usize;
            copy::enqueue(runtime, stream, destination.with_length(bytes), source.with_length(bytes))
        }
        [run, rows] if [rows.1, rows.2].iter().all(|pitch| (run.0 as i64..=MAX_PITCH as i64).contains(pitch)) => {
            let from = Rows { memory: source, pitch: rows.1 as usize };
            let to = Rows { memory: destination, pitch: rows.2 as usize };
            copy::enqueue_2d(runtime, stream, to, from, (run.0 as usize, rows.0 as usize))
        }
        [inner @ .., outer] => (0..outer.0 as i64).try_for_each(|index| {
            let at = (from.wrapping_add(index.wrapping_mul(outer.1)), to.wrapping_add(index.wrapping_mul(outer.2)));
            copy_runs_at(runtime, stream, one, inner, at)
        }),
    }
}

/// Returns the extent of a tensor's elements in bytes: the offset of the lowest one from the first, and the length.
pub fn extent(tensor: &Tensor) -> (i64, u64) {
    let width = tensor.element.bytes() as i64;
    let (mut low, mut high) = (0_i64, width);
    for dimension in 0..tensor.rank {
        let last = (tensor.sizes[dimension] - 1).saturating_mul(tensor.strides[dimension]).saturating_mul(width);
        low = low.saturating_add(last.min(0));
        high = high.saturating_add(last.max(0));
    }
    (low, high.abs_diff(low))
}

/// Copies a tensor from the CPU to a device, in one of its streams. The driver may wait for pageable memory, and the
/// sync debug mode reports it.
pub fn upload(runtime: &Runtime, stream: Stream, from: &Tensor, to: &Tensor) -> Result<()> {
    let one = StridedCopy { from, to };
    if from.device == PAGEABLE && !one.is_noop() {
        sync_debug::check("a collective from pageable host memory")?;
    }
    enqueue_upload(runtime, stream, &one)
}

/// Copies a tensor from the CPU to a device. Elements are rearranged and converted on the device.
pub fn enqueue_upload(runtime: &Runtime, stream: Stream, one: &StridedCopy) -> Result<()> {
    if one.is_noop() {
        return Ok(());
    }
    let layout = one.layout();
    if layout.len() == 1 && !one.converts() {
        return copy_runs(runtime, stream, one, &layout);
    }
    // If the elements fill at least half of their memory, copy all of it and rearrange the elements on the device.
    let (low, bytes) = extent(one.from);
    let unique = without_repeats(one.from);
    if bytes / 2 <= unique.bytes() {
        let scratch = Scratch::alloc(bytes, stream)?;
        let begin = scratch.memory();
        let on_device = Tensor { memory: begin.offset_by(low.wrapping_neg()), device: stream.device(), ..*one.from };
        let whole = one.from.memory.offset_by(low).with_length(bytes as usize);
        copy::enqueue(runtime, stream, begin, whole)
            .context(|| format!("copying {} between host and device", Bytes(bytes)))?;
        return strided_copy::in_stream(runtime, stream, &StridedCopy { from: &on_device, to: one.to });
    }
    if !one.converts() && unique.numel == one.from.numel {
        return copy_runs(runtime, stream, one, &layout);
    }
    let (_scratch, mut packed) = allocate_packed(&unique, stream)?;
    enqueue_upload(runtime, stream, &StridedCopy { from: &unique, to: &packed })?;
    for dimension in (0..packed.rank).filter(|dimension| one.from.strides[*dimension] == 0) {
        packed.strides[dimension] = 0;
    }
    (packed.sizes, packed.numel) = (one.from.sizes, one.from.numel);
    strided_copy::in_stream(runtime, stream, &StridedCopy { from: &packed, to: one.to })
}

/// Returns the tensor with each element that a stride of 0 repeats only once.
fn without_repeats(tensor: &Tensor) -> Tensor {
    let mut unique = *tensor;
    for dimension in (0..tensor.rank).filter(|dimension| tensor.strides[*dimension] == 0) {
        unique.numel /= (unique.sizes[dimension] as u64).max(1);
        unique.sizes[dimension] = 1;
    }
    unique
}

/// Copies a tensor from a device to the CPU, in a stream of that device. Waits for the copy if the memory is pageable,
/// except in a capture.
pub fn download(runtime: &Runtime, stream: Stream, from: &Tensor, to: &Tensor) -> Result<()> {
    let one = StridedCopy { from, to };
    if one.is_noop() {
        return Ok(());
    }
    let waits = to.device == PAGEABLE && !stream::is_validated_capturing(runtime, stream)?;
    if waits {
        sync_debug::check("a collective to pageable host memory")?;
    }
    enqueue_download(runtime, stream, &one)?;
    if waits {
        copy::wait(runtime, stream)?;
    }
    Ok(())
}

/// Copies a tensor from a device to the CPU. Elements are converted, and put into the order of the destination, on the
/// device.
pub fn enqueue_download(runtime: &Runtime, stream: Stream, one: &StridedCopy) -> Result<()> {
    if one.is_noop() {
        return Ok(());
    }
    let layout = one.layout();
    if layout.len() == 1 && !one.converts() {
        return copy_runs(runtime, stream, one, &layout);
    }
    let ordered = packed_in_order_of(one.to);
    let runs = StridedCopy { from: &ordered, to: one.to }.layout();
    if !one.converts() && runs[0].0 == layout[0].0 {
        return copy_runs(runtime, stream, one, &layout);
    }
    let scratch = Scratch::alloc(ordered.bytes(), stream)?;
    let ordered = Tensor { memory: scratch.memory(), device: stream.device(), ..ordered };
    strided_copy::in_stream(runtime, stream, &StridedCopy { from: one.from, to: &ordered })?;
    copy_runs(runtime, stream, &StridedCopy { from: &ordered, to: one.to }, &runs)
}

/// Returns the tensor with strides without gaps, in the order of its strides.
fn packed_in_order_of(tensor: &Tensor) -> Tensor {
    let mut packed = *tensor;
    let mut order: [usize; MAX_RANK] = std::array::from_fn(|dimension| dimension);
    let order = &mut order[..tensor.rank];
    order.sort_by_cached_key(|dimension| tensor.strides[*dimension].unsigned_abs());
    let mut stride = 1;
    for dimension in order.iter() {
        packed.strides[*dimension] = stride;
        stride *= tensor.sizes[*dimension].max(1);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType};

    #[test]
    fn extents_of_strided_tensors() {
        for (shape, strides, expected) in [
            (&[4, 6][..], &[6, 1][..], (0, 96)),
            (&[4, 6], &[-6, 1], (-72, 96)),
            (&[4, 6], &[0, 2], (0, 44)),
            (&[], &[], (0, 4)),
        ] {
            let tensor = Tensor::new(Span::dangling(4096), ElementType::F32, PINNED, shape, Some(strides)).unwrap();
            assert!(is_on_cpu(&tensor));
            assert_eq!(extent(&tensor), expected);
        }
    }

    #[test]
    fn repeated_elements_are_left_out() {
        let of = |shape: &[i64], strides: &[i64]| {
            let tensor = Tensor::new(Span::dangling(4096), ElementType::F32, PINNED, shape, Some(strides)).unwrap();
            let unique = without_repeats(&tensor);
            (unique.shape().to_vec(), unique.numel)
        };
        assert_eq!(of(&[5, 4, 3], &[0, 9, 0]), (vec![1, 4, 1], 4));
        assert_eq!(of(&[5, 4], &[4, 1]), (vec![5, 4], 20));
    }

    #[test]
    fn packed_tensors_keep_the_order() {
        for (shape, strides, expected) in [
            (&[4, 6][..], &[1, 10][..], &[1, 4][..]),
            (&[4, 6], &[-20, 2], &[6, 1]),
            (&[2, 1, 3], &[6, 50, 2], &[3, 6, 1]),
            (&[], &[], &[]),
        ] {
            let tensor = Tensor::new(Span::dangling(4096), ElementType::F32, PINNED, shape, Some(strides)).unwrap();
            let packed = packed_in_order_of(&tensor);
            assert_eq!(packed.strides[..shape.len()], *expected);
            assert!(packed.is_dense());
        }
    }
}

//! Tensors in memory of the CPU, as sources of scatter and broadcast and as targets of gather.

use super::strided_copies::{self, DimensionPair, StridedCopy};
use crate::{
    base::units::Bytes,
    error::{Context, Result},
    memory::scratch::Scratch,
    observe,
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

/// Copies contiguous bytes between CPU and device.
fn copy(runtime: &Runtime, stream: Stream, one: &StridedCopy, offsets: (i64, i64), bytes: u64) -> Result<()> {
    let from = one.from.memory.offset_by(offsets.0).with_length(bytes as usize);
    let to = one.to.memory.offset_by(offsets.1).with_length(bytes as usize);
    observe::copy(runtime, stream, to, from)?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.copy(to, from, raw)?))
        .context(|| format!("copying {} between host and device", Bytes(bytes)))?;
    observe::copied(runtime, stream, to);
    Ok(())
}

/// Copies every contiguous run of a layout.
fn copy_runs(
    runtime: &Runtime,
    stream: Stream,
    one: &StridedCopy,
    layout: &[DimensionPair],
    (from, to): (i64, i64),
) -> Result<()> {
    match layout {
        [] => Ok(()),
        [run] => copy(runtime, stream, one, (from, to), run.0),
        [inner @ .., outer] => (0..outer.0 as i64).try_for_each(|index| {
            let at = (from.wrapping_add(index.wrapping_mul(outer.1)), to.wrapping_add(index.wrapping_mul(outer.2)));
            copy_runs(runtime, stream, one, inner, at)
        }),
    }
}

/// Returns the extent of a tensor's elements in bytes: the offset of the lowest one from the first, and the length.
fn extent(tensor: &Tensor) -> (i64, u64) {
    let width = tensor.element.bytes() as i64;
    let (mut low, mut high) = (0_i64, width);
    for dimension in 0..tensor.rank {
        let last = (tensor.sizes[dimension] - 1).saturating_mul(tensor.strides[dimension]).saturating_mul(width);
        low = low.saturating_add(last.min(0));
        high = high.saturating_add(last.max(0));
    }
    (low, high.abs_diff(low))
}

/// Copies a tensor from the CPU to a device, in one of its streams. The driver may wait for pageable memory.
pub fn upload(runtime: &Runtime, stream: Stream, from: &Tensor, to: &Tensor) -> Result<()> {
    let one = StridedCopy { from, to };
    if one.is_noop() {
        return Ok(());
    }
    if from.device == PAGEABLE {
        sync_debug::check("a collective from pageable host memory")?;
    }
    let layout = one.layout();
    if layout.len() == 1 {
        return copy(runtime, stream, &one, (0, 0), layout[0].0);
    }
    // If the elements fill at least half of their memory, copy all of it and rearrange the elements on the device.
    let (low, bytes) = extent(from);
    if bytes / 2 <= from.bytes() {
        let scratch = Scratch::alloc(bytes, stream)?;
        let mut on_device = *from;
        (on_device.memory, on_device.device) = (scratch.memory().offset_by(low.wrapping_neg()), stream.device);
        let begin = scratch.memory();
        let whole = from.memory.offset_by(low).with_length(bytes as usize);
        observe::copy(runtime, stream, begin, whole)?;
        runtime
            .in_stream(stream, |driver, raw| Ok(driver.copy(begin, whole, raw)?))
            .context(|| format!("copying {} between host and device", Bytes(bytes)))?;
        return strided_copies::in_stream(runtime, stream, &[StridedCopy { from: &on_device, to }]);
    }
    copy_runs(runtime, stream, &one, &layout, (0, 0))
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
    copy_runs(runtime, stream, &one, &one.layout(), (0, 0))?;
    if waits {
        runtime.in_stream(stream, |driver, raw| Ok(driver.stream_synchronize(raw)?))?;
    }
    Ok(())
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
}

//! Tensors in memory of the CPU: what is scattered and broadcast from there, and gathered to it.

use super::strided_copies::{self, Both, Move};
use crate::{
    base::units::Bytes,
    error::{Context, Result},
    memory::scratch::Scratch,
    runtime::{Runtime, sync_debug, tensor::Tensor},
    sanitizer,
    stream::{self, Stream},
};

/// What stands for a device's number where a tensor lies in memory of the CPU.
pub const PAGEABLE: u32 = u32::MAX;
/// The same for memory that is pinned.
pub const PINNED: u32 = u32::MAX - 1;

/// Whether a tensor lies in memory of the CPU.
pub fn holds(tensor: &Tensor) -> bool {
    tensor.device >= PINNED
}

/// Copies a run of bytes between CPU and device.
fn copy(runtime: &Runtime, stream: Stream, one: &Move, offsets: (i64, i64), bytes: u64) -> Result<()> {
    let from = one.from.memory.offset_by(offsets.0).with_length(bytes as usize);
    let to = one.to.memory.offset_by(offsets.1).with_length(bytes as usize);
    sanitizer::copy(runtime, stream, to, from)?;
    runtime
        .in_stream(stream, |driver, raw| Ok(driver.copy(to, from, raw)?))
        .context(|| format!("copying {} between host and device", Bytes(bytes)))?;
    sanitizer::copied(runtime, stream, to);
    Ok(())
}

/// Copies every run of a layout.
fn copy_runs(runtime: &Runtime, stream: Stream, one: &Move, layout: &[Both], (from, to): (i64, i64)) -> Result<()> {
    match layout {
        [] => Ok(()),
        [run] => copy(runtime, stream, one, (from, to), run.0),
        [inner @ .., outer] => (0..outer.0 as i64).try_for_each(|index| {
            let at = (from.wrapping_add(index.wrapping_mul(outer.1)), to.wrapping_add(index.wrapping_mul(outer.2)));
            copy_runs(runtime, stream, one, inner, at)
        }),
    }
}

/// How far a tensor's elements reach from its first one, in bytes.
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

/// Brings a tensor of the CPU's to a device, in one of its streams. From pageable memory the driver may wait.
pub fn upload(runtime: &Runtime, stream: Stream, from: &Tensor, to: &Tensor) -> Result<()> {
    let one = Move { from, to };
    if one.is_nothing() {
        return Ok(());
    }
    if from.device == PAGEABLE {
        sync_debug::check("a collective from pageable host memory")?;
    }
    let layout = one.layout();
    if layout.len() == 1 {
        return copy(runtime, stream, &one, (0, 0), layout[0].0);
    }
    // Elements that nearly fill their memory go as they lie, and are parted on the device.
    let (low, bytes) = extent(from);
    if bytes / 2 <= from.bytes() {
        let scratch = Scratch::alloc(bytes, stream)?;
        let mut near = *from;
        (near.memory, near.device) = (scratch.memory().offset_by(low.wrapping_neg()), stream.device);
        let begin = scratch.memory();
        let whole = from.memory.offset_by(low).with_length(bytes as usize);
        sanitizer::copy(runtime, stream, begin, whole)?;
        runtime
            .in_stream(stream, |driver, raw| Ok(driver.copy(begin, whole, raw)?))
            .context(|| format!("copying {} between host and device", Bytes(bytes)))?;
        return strided_copies::in_stream(runtime, stream, &[Move { from: &near, to }]);
    }
    copy_runs(runtime, stream, &one, &layout, (0, 0))
}

/// Brings a tensor of a device to the CPU, in a stream of that device; and waits for it, where the memory is pageable. A
/// capture is not waited for.
pub fn download(runtime: &Runtime, stream: Stream, from: &Tensor, to: &Tensor) -> Result<()> {
    let one = Move { from, to };
    if one.is_nothing() {
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
    fn how_far_elements_reach() {
        for (shape, strides, expected) in [
            (&[4, 6][..], &[6, 1][..], (0, 96)),
            (&[4, 6], &[-6, 1], (-72, 96)),
            (&[4, 6], &[0, 2], (0, 44)),
            (&[], &[], (0, 4)),
        ] {
            let tensor = Tensor::new(Span::dangling(4096), ElementType::F32, PINNED, shape, Some(strides)).unwrap();
            assert!(holds(&tensor));
            assert_eq!(extent(&tensor), expected);
        }
    }
}

//! `torch.cuda.comm.scatter` and `gather`.

use super::{
    outputs::{self, AllocatedOutputs, Output, check_element_type, check_on_device, check_writable},
    stream_group::StreamGroup,
    strided_copies,
};
use crate::{
    error::{Context, Result, invalid},
    ops::{
        host_copy as host,
        strided_copy::{StridedCopy, allocate_packed},
    },
    runtime::{self, Runtime, tensor::Tensor},
    stream::{self, Stream},
};

/// Resolves a dimension that may be negative.
fn dimension_of(rank: usize, dimension: i32) -> Result<usize> {
    if rank == 0 {
        return Err(invalid("a tensor of no dimensions has no parts"));
    }
    let counted = if dimension < 0 { i64::from(dimension) + rank as i64 } else { dimension.into() };
    usize::try_from(counted).ok().filter(|counted| *counted < rank).ok_or_else(|| {
        invalid(format!("dimension {dimension} is none of {rank}: it can be {} to {}", -(rank as i64), rank - 1))
    })
}

/// Returns the sizes of the chunks of a dimension: `requested`, or equal ones except for the last.
fn chunk_sizes(size: i64, count: usize, requested: Option<&[i64]>) -> Result<Vec<i64>> {
    let Some(requested) = requested else {
        let each = (size as u64).div_ceil(count as u64) as i64;
        return Ok((0..count as i64).map(|index| (size - index.saturating_mul(each)).clamp(0, each)).collect());
    };
    if let Some(negative) = requested.iter().find(|chunk| **chunk < 0) {
        return Err(invalid(format!("a chunk cannot have the size {negative}")));
    }
    let sum = requested.iter().try_fold(0_i64, |sum, chunk| sum.checked_add(*chunk));
    if sum != Some(size) {
        return Err(invalid(format!("the sizes of the chunks, {requested:?}, do not add up to {size}")));
    }
    Ok(requested.to_vec())
}

/// Splits a tensor along a dimension, and copies each chunk to an output, which it makes if it does not exist. A chunk that is
/// already on its output's device becomes a view of the tensor, unless the output exists. Each chunk is copied in its stream,
/// by default its device's current one.
pub fn scatter(
    tensor: &Tensor,
    outputs: &mut [Output],
    sizes: Option<&[i64]>,
    dimension: i32,
    streams: Option<&[usize]>,
) -> Result<()> {
    let runtime = runtime::ready()?;
    if outputs.is_empty() {
        return Err(invalid("a scatter needs a device at least"));
    }
    if !host::is_on_cpu(tensor) {
        check_on_device(runtime, tensor, || "the tensor".into())?;
    }
    let dimension = dimension_of(tensor.rank, dimension)?;
    let existing = outputs.iter().filter(|output| output.is_existing()).count();
    let sizes = match existing {
        0 => chunk_sizes(tensor.sizes[dimension], outputs.len(), sizes)?,
        _ if existing < outputs.len() => return Err(invalid("either all outputs of a scatter are given, or none")),
        _ if sizes.is_some() => return Err(invalid("outputs that are given have sizes of their own; give no others")),
        _ => check_existing(runtime, tensor, outputs, dimension)?,
    };
    let streams = outputs.iter().enumerate().map(|(index, output)| {
        let device = runtime.device(output.device() as i32)?.ordinal;
        let handle = streams.map_or(stream::CURRENT, |streams| streams[index]);
        stream::resolve_same(runtime, handle, device).context(|| format!("the stream of output {index}"))
    });
    let streams = streams.collect::<Result<Vec<Stream>>>()?;
    let mut allocated = AllocatedOutputs::default();
    let mut parts = Vec::with_capacity(outputs.len());
    let mut start = 0;
    for ((output, size), stream) in outputs.iter_mut().zip(&sizes).zip(&streams) {
        let part = tensor.narrow(dimension, start, *size);
        start += size;
        if let Output::Allocate { device, any_strides } = *output {
            let is_view = device == tensor.device && (any_strides || part.is_contiguous());
            *output =
                Output::Made(if is_view { part } else { allocated.tensor(tensor, part.shape(), None, *stream)? });
        }
        parts.push(part);
    }
    let targets = outputs.iter().map(Output::tensor);
    let copies = parts.iter().zip(targets).map(|(from, to)| Ok(StridedCopy { from, to: to? }));
    let copies = copies.collect::<Result<Vec<StridedCopy>>>()?;
    let scattered = || {
        if host::is_on_cpu(tensor) {
            let uploads = copies.iter().zip(&streams);
            return uploads.clone().try_for_each(|(one, stream)| host::upload(runtime, *stream, one.from, one.to));
        }
        let first = stream::current_on(runtime, tensor.device)?;
        // A chunk that is not copied needs no ordering.
        let copying = copies.iter().zip(&streams).filter(|(one, _)| !one.is_noop()).map(|(_, stream)| *stream);
        strided_copies::copy_between_devices(&StreamGroup::new(runtime, [first].into_iter().chain(copying))?, &copies)
    };
    scattered().context(|| format!("scatter of {} elements to {} outputs", tensor.numel, outputs.len()))?;
    allocated.keep();
    Ok(())
}

/// Checks existing outputs and returns their sizes.
fn check_existing(runtime: &Runtime, tensor: &Tensor, outputs: &[Output], dimension: usize) -> Result<Vec<i64>> {
    let mut sizes = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.iter().enumerate() {
        let Output::Existing(existing) = output else { continue };
        let name = || format!("output {index}");
        outputs::check_existing(runtime, existing, tensor, None, name)?;
        check_shape_except(existing, tensor, dimension, name)?;
        sizes.push(existing.sizes[dimension]);
    }
    chunk_sizes(tensor.sizes[dimension], sizes.len(), Some(&sizes))
}

/// Rejects a tensor whose shape differs from another's in more than one dimension.
fn check_shape_except(tensor: &Tensor, other: &Tensor, dimension: usize, what: impl Fn() -> String) -> Result<()> {
    if tensor.rank != other.rank {
        return Err(invalid(format!("{} has {} dimensions, and not {}", what(), tensor.rank, other.rank)));
    }
    let mut expected = other.sizes;
    expected[dimension] = tensor.sizes[dimension];
    if tensor.shape() == &expected[..other.rank] {
        return Ok(());
    }
    Err(invalid(format!(
        "{} has invalid shape: got {:?}, but expected {:?} in all dimensions but {dimension}",
        what(),
        tensor.shape(),
        other.shape()
    )))
}

/// Concatenates tensors along a dimension into an output, which it makes if it does not exist.
pub fn gather(inputs: &[Tensor], dimension: i32, output: &mut Output) -> Result<()> {
    let runtime = runtime::ready()?;
    let Some(first) = inputs.first() else { return Err(invalid("a gather needs a tensor at least")) };
    for (index, input) in inputs.iter().enumerate() {
        check_on_device(runtime, input, || format!("input {index}"))?;
    }
    let dimension = dimension_of(first.rank, dimension)?;
    let mut shape = first.sizes;
    shape[dimension] = 0;
    for (index, input) in inputs.iter().enumerate() {
        let name = || format!("input {index}");
        check_element_type(input, first, name)?;
        check_shape_except(input, first, dimension, name)?;
        shape[dimension] = shape[dimension]
            .checked_add(input.sizes[dimension])
            .ok_or_else(|| invalid("the tensors put together have more elements than there are addresses"))?;
    }
    let shape = &shape[..first.rank];
    let mut allocated = AllocatedOutputs::default();
    match output {
        Output::Existing(existing) => {
            check_element_type(existing, first, || "the output".into())?;
            if existing.shape() != shape {
                return Err(invalid(format!(
                    "the output is expected to have shape {shape:?}, but has {:?}",
                    existing.shape()
                )));
            }
            check_writable(existing, || "the output".into())?;
            if !host::is_on_cpu(existing) {
                check_on_device(runtime, existing, || "the output".into())?;
            }
        }
        Output::Allocate { device, any_strides } => {
            let device = runtime.device(*device as i32)?.ordinal;
            let strides = if *any_strides { channels_last(inputs, shape) } else { None };
            let stream = stream::current_on(runtime, device)?;
            *output = Output::Made(allocated.tensor(first, shape, strides.as_deref(), stream)?);
        }
        Output::Made(_) => {}
    }
    let target = output.tensor()?;
    concatenate(runtime, inputs, dimension, target)
        .context(|| format!("gather of {} tensors into {} elements", inputs.len(), target.numel))?;
    allocated.keep();
    Ok(())
}

fn concatenate(runtime: &Runtime, inputs: &[Tensor], dimension: usize, target: &Tensor) -> Result<()> {
    if target.numel == 0 {
        return Ok(());
    }
    let worker = if host::is_on_cpu(target) { inputs[0].device } else { target.device };
    let streams = [worker].into_iter().chain(inputs.iter().map(|input| input.device));
    let streams = streams.map(|device| stream::current_on(runtime, device)).collect::<Result<Vec<Stream>>>()?;
    let group = StreamGroup::new(runtime, streams)?;
    // For the CPU, concatenate on a device and copy the result at once.
    let (_scratch, whole) = if host::is_on_cpu(target) {
        let (scratch, whole) = allocate_packed(target, group.work)?;
        (Some(scratch), whole)
    } else {
        (None, *target)
    };
    let mut start = 0;
    let targets: Vec<Tensor> = inputs
        .iter()
        .map(|input| {
            let size = input.sizes[dimension];
            start += size;
            whole.narrow(dimension, start - size, size)
        })
        .collect();
    let copies: Vec<StridedCopy> = inputs.iter().zip(&targets).map(|(from, to)| StridedCopy { from, to }).collect();
    strided_copies::copy_between_devices(&group, &copies)?;
    if host::is_on_cpu(target) { host::download(runtime, group.work, &whole, target) } else { Ok(()) }
}

/// Returns channels-last strides for a shape if all inputs have them, as torch preserves that layout.
fn channels_last(inputs: &[Tensor], shape: &[i64]) -> Option<Vec<i64>> {
    let strides = strides_of_channels_last(shape)?;
    let has = |input: &Tensor| {
        let own = strides_of_channels_last(input.shape()).unwrap_or_default();
        let fits = |index: usize| input.sizes[index] == 1 || input.strides[index] == own[index];
        !input.is_contiguous() && (0..input.rank).all(fits)
    };
    inputs.iter().all(has).then_some(strides)
}

fn strides_of_channels_last(shape: &[i64]) -> Option<Vec<i64>> {
    if !matches!(shape.len(), 4 | 5) {
        return None;
    }
    let mut strides = vec![1; shape.len()];
    let mut stride = shape[1].max(1);
    for index in (2..shape.len()).rev().chain([0]) {
        strides[index] = stride;
        stride = stride.saturating_mul(shape[index].max(1));
    }
    Some(strides)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType, status::Status};

    #[test]
    fn chunks_match_torch() {
        assert_eq!(chunk_sizes(10, 4, None).unwrap(), [3, 3, 3, 1]);
        assert_eq!(chunk_sizes(5, 4, None).unwrap(), [2, 2, 1, 0]);
        assert_eq!(chunk_sizes(2, 4, None).unwrap(), [1, 1, 0, 0]);
        assert_eq!(chunk_sizes(0, 3, None).unwrap(), [0, 0, 0]);
        assert_eq!(chunk_sizes(7, 2, Some(&[7, 0])).unwrap(), [7, 0]);
        for wrong in [&[3, 3][..], &[8, -1], &[i64::MAX, i64::MAX]] {
            assert_eq!(chunk_sizes(7, 2, Some(wrong)).unwrap_err().status(), Status::INVALID_VALUE);
        }
    }

    #[test]
    fn dimensions_count_from_either_end() {
        assert_eq!(dimension_of(3, 2).unwrap(), 2);
        assert_eq!(dimension_of(3, -3).unwrap(), 0);
        for (rank, dimension) in [(3, 3), (3, -4), (0, 0), (3, i32::MIN)] {
            assert!(dimension_of(rank, dimension).is_err());
        }
    }

    #[test]
    fn channels_last_is_preserved_if_all_inputs_have_it() {
        let tensor = |shape: &[i64], strides: Option<&[i64]>| {
            Tensor::new(Span::dangling(4096), ElementType::F32, 0, shape, strides).unwrap()
        };
        let (last, first) = (tensor(&[2, 3, 4, 5], Some(&[60, 1, 15, 3])), tensor(&[2, 3, 4, 5], None));
        assert_eq!(channels_last(&[last, last], &[4, 3, 4, 5]), Some(vec![60, 1, 15, 3]));
        assert_eq!(channels_last(&[last, first], &[4, 3, 4, 5]), None);
        assert_eq!(channels_last(&[tensor(&[2, 3], Some(&[1, 2]))], &[2, 3]), None);
    }
}

//! `torch.cuda.comm.reduce_add` and `reduce_add_coalesced`.

use super::{
    chunks::{Chunks, tensor_sum},
    large::{Task, in_one_stream},
    local,
    outputs::{AllocatedOutputs, Output, check_element_type, check_existing, check_on_device, check_shape},
    stream_group::StreamGroup,
    strided_copies, tuning,
};
use crate::{
    error::{Context, Error, Result},
    ops::strided_copy::{StridedCopy, allocate_packed, device_span},
    runtime::{
        self, Runtime,
        tensor::{ElementType, Tensor},
    },
    status::Status,
    stream::{self, Stream},
};

/// Adds tensors of one shape into an output, which it makes if it does not exist.
pub fn reduce_add(inputs: &[Tensor], output: &mut Output) -> Result<()> {
    reduce_add_coalesced(inputs, 1, std::slice::from_mut(output))
}

/// Adds tensors of several devices. `inputs` has `count` inputs of the first device, then those of the second, and so
/// on; the tensors number t of all devices are added into output t. All outputs are on one device, which must have one
/// of the inputs of each sum. Outputs that do not exist are made.
pub fn reduce_add_coalesced(inputs: &[Tensor], count: usize, outputs: &mut [Output]) -> Result<()> {
    let runtime = runtime::ready()?;
    if count == 0 {
        return Ok(());
    }
    if inputs.len() < count {
        return Err(Error::new(Status::INVALID_VALUE, "a sum needs a tensor at least"));
    }
    for (index, input) in inputs.iter().enumerate() {
        let name = || format!("input {index}");
        check_on_device(runtime, input, name)?;
        let first = &inputs[index % count];
        check_element_type(input, first, name)?;
        check_shape(input, first.shape(), name)?;
    }
    let root = outputs[0].device();
    let mut allocated = AllocatedOutputs::default();
    let mut sets = Vec::with_capacity(count);
    for (index, output) in outputs.iter_mut().enumerate() {
        let set: Vec<&Tensor> = inputs.iter().skip(index).step_by(count).collect();
        if output.device() != root {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("output 0 is on device {root}, and output {index} on device {}", output.device()),
            ));
        }
        make(runtime, &mut allocated, &set, output, index)?;
        sets.push(set);
    }
    let targets = outputs.iter().map(Output::tensor);
    let sums = sets.into_iter().zip(targets).map(|(set, sum)| Ok((set, sum?))).collect::<Result<Vec<_>>>()?;
    add(runtime, root, &sums).context(|| {
        let elements: u64 = inputs[..count].iter().map(|input| input.numel).sum();
        format!("sum of {} times {elements} elements", inputs.len() / count)
    })?;
    allocated.keep();
    Ok(())
}

/// Checks an output that exists; makes another one, which is the only input itself.
fn make(
    runtime: &Runtime,
    allocated: &mut AllocatedOutputs,
    set: &[&Tensor],
    output: &mut Output,
    index: usize,
) -> Result<()> {
    let (name, like) = (|| format!("output {index}"), set[0]);
    if let Output::Existing(tensor) = output {
        check_existing(runtime, tensor, like, Some(like.shape()), name)?;
    }
    if !set.iter().any(|input| input.device == output.device()) {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{} is on device {}, which has none of the tensors that are added", name(), output.device()),
        ));
    }
    if let Output::Allocate { device, any_strides } = *output {
        *output = Output::Made(if set.len() == 1 {
            *like
        } else {
            let same = |input: &&Tensor| input.strides[..input.rank] == like.strides[..like.rank];
            let strides = (any_strides && like.is_dense() && set.iter().all(same)).then(|| &like.strides[..like.rank]);
            allocated.tensor(like, like.shape(), strides, stream::current_on(runtime, device)?)?
        });
    }
    Ok(())
}

/// Returns the inputs in the order in which they are added.
fn ordered<'a>(set: &[&'a Tensor], root: u32) -> Vec<&'a Tensor> {
    let mut set = set.to_vec();
    if tuning::uses_torch_order()
        && let Some(last) = set.iter().rposition(|input| input.device == root)
    {
        set[..=last].rotate_right(1);
    }
    set
}

fn add(runtime: &Runtime, root: u32, sums: &[(Vec<&Tensor>, &Tensor)]) -> Result<()> {
    let first = stream::current_on(runtime, root)?;
    let devices = sums.iter().flat_map(|(set, _)| set.iter().map(|input| input.device));
    let mut distinct: Vec<u32> = devices.collect();
    distinct.sort_unstable();
    distinct.dedup();
    let streams =
        distinct.iter().map(|device| stream::current_on(runtime, *device)).collect::<Result<Vec<Stream>>>()?;
    let group = StreamGroup::new(runtime, [first].into_iter().chain(streams.iter().copied()))?;
    let mut by_type: Vec<(ElementType, Chunks)> = Vec::new();
    for &(ref set, sum) in sums {
        let set = ordered(set, root);
        if set.len() == 1 {
            strided_copies::copy_between_devices(&group, &[StridedCopy { from: set[0], to: sum }])?;
        } else if set.iter().all(|input| StridedCopy { from: input, to: sum }.is_contiguous_copy()) {
            let known = by_type.iter().position(|(element, _)| *element == sum.element);
            let known = known.unwrap_or_else(|| {
                by_type.push((sum.element, Chunks::new(set.len(), 1)));
                by_type.len() - 1
            });
            by_type[known].1.push(sum.bytes(), set.iter().copied().chain([sum]).map(device_span));
        } else {
            add_strided(&group, &set, sum)?;
        }
    }
    for (element, chunks) in &by_type {
        local::reduce_chunks(&group, tensor_sum(*element)?, chunks, first, streams.iter().copied())?;
    }
    Ok(())
}

/// Adds tensors whose layout differs from that of their sum: packs them first, and unpacks the sum.
fn add_strided(group: &StreamGroup, set: &[&Tensor], sum: &Tensor) -> Result<()> {
    let mut scratches = Vec::new();
    let mut packed_copy = |tensor: &Tensor| -> Result<Tensor> {
        if tensor.is_contiguous() {
            return Ok(*tensor);
        }
        let (scratch, packed_copy) = allocate_packed(tensor, group.work)?;
        scratches.push(scratch);
        Ok(packed_copy)
    };
    let inputs = set.iter().map(|input| packed_copy(input)).collect::<Result<Vec<Tensor>>>()?;
    let total = packed_copy(sum)?;
    let before: Vec<StridedCopy> = set.iter().zip(&inputs).map(|(from, to)| StridedCopy { from, to }).collect();
    strided_copies::copy_between_devices(group, &before)?;
    let mut chunks = Chunks::new(set.len(), 1);
    chunks.push(sum.bytes(), inputs.iter().chain([&total]).map(device_span));
    in_one_stream(group, Task::Reduce(tensor_sum(sum.element)?), &chunks)?;
    strided_copies::copy_between_devices(group, &[StridedCopy { from: &total, to: sum }])
}

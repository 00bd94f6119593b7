//! `torch.cuda.comm.reduce_add` and `reduce_add_coalesced`.

use super::{
    chunks::{Pieces, tensor_sum},
    large::{Task, alone},
    local,
    outputs::{Made, Output, alike, of_shape, on_device, writable},
    stream_group::Crew,
    strided_copies::{self, Move, packed, place},
    tuning,
};
use crate::{
    error::{Context, Error, Result},
    runtime::{
        self, Runtime,
        tensor::{ElementType, Tensor},
    },
    status::Status,
    stream::{self, Stream},
};

/// Adds tensors of one shape into an output, and returns what that is.
pub fn reduce_add(inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let sums = reduce_add_coalesced(inputs, 1, std::slice::from_ref(output))?;
    sums.into_iter().next().ok_or_else(|| Error::new(Status::PANIC, "a sum was not made"))
}

/// Adds tensors of some devices: `inputs` are those of the first device, `count` of them, then those of the second, and so
/// on; tensor t of all of them becomes output t. All outputs are on one device, which has one of the inputs of each.
pub fn reduce_add_coalesced(inputs: &[Tensor], count: usize, outputs: &[Output]) -> Result<Vec<Tensor>> {
    let runtime = runtime::ready()?;
    if count == 0 {
        return Ok(Vec::new());
    }
    if inputs.len() < count {
        return Err(Error::new(Status::INVALID_VALUE, "a sum needs a tensor at least"));
    }
    for (index, input) in inputs.iter().enumerate() {
        let name = || format!("input {index}");
        on_device(runtime, input, name)?;
        let first = &inputs[index % count];
        alike(input, first, name)?;
        of_shape(input, first.shape(), name)?;
    }
    let root = outputs[0].device();
    let mut made = Made::default();
    let mut sums = Vec::with_capacity(count);
    for (index, output) in outputs.iter().enumerate() {
        let set: Vec<&Tensor> = inputs.iter().skip(index).step_by(count).collect();
        if output.device() != root {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("output 0 is on device {root}, and output {index} on device {}", output.device()),
            ));
        }
        let sum = target(runtime, &mut made, &set, output, index)?;
        sums.push((set, sum));
    }
    add(runtime, root, &sums).context(|| {
        let elements: u64 = inputs[..count].iter().map(|input| input.numel).sum();
        format!("sum of {} times {elements} elements", inputs.len() / count)
    })?;
    made.keep();
    Ok(sums.into_iter().map(|(_, sum)| sum).collect())
}

/// The tensor that an output is: the one given, the only input itself, or a new one.
fn target(runtime: &Runtime, made: &mut Made, set: &[&Tensor], output: &Output, index: usize) -> Result<Tensor> {
    let (name, like) = (|| format!("output {index}"), set[0]);
    if let Output::Given(tensor) = output {
        on_device(runtime, tensor, name)?;
        alike(tensor, like, name)?;
        of_shape(tensor, like.shape(), name)?;
        writable(tensor, name)?;
    }
    if !set.iter().any(|input| input.device == output.device()) {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{} is on device {}, which has none of the tensors that are added", name(), output.device()),
        ));
    }
    match output {
        Output::Given(tensor) => Ok(*tensor),
        Output::Wanted { .. } if set.len() == 1 => Ok(*like),
        Output::Wanted { device, any_strides } => {
            let same = |input: &&Tensor| input.strides[..input.rank] == like.strides[..like.rank];
            let strides = (*any_strides && like.is_dense() && set.iter().all(same)).then(|| &like.strides[..like.rank]);
            made.tensor(like, like.shape(), strides, stream::current_on(runtime, *device)?)
        }
    }
}

/// The inputs in the order in which they are added.
fn ordered<'a>(set: &[&'a Tensor], root: u32) -> Vec<&'a Tensor> {
    let mut set = set.to_vec();
    if tuning::torch_order()
        && let Some(last) = set.iter().rposition(|input| input.device == root)
    {
        set[..=last].rotate_right(1);
    }
    set
}

fn add(runtime: &Runtime, root: u32, sums: &[(Vec<&Tensor>, Tensor)]) -> Result<()> {
    let first = stream::current_on(runtime, root)?;
    let devices = sums.iter().flat_map(|(set, _)| set.iter().map(|input| input.device));
    let mut distinct: Vec<u32> = devices.collect();
    distinct.sort_unstable();
    distinct.dedup();
    let streams =
        distinct.iter().map(|device| stream::current_on(runtime, *device)).collect::<Result<Vec<Stream>>>()?;
    let crew = Crew::new(runtime, [first].into_iter().chain(streams.iter().copied()))?;
    let mut by_type: Vec<(ElementType, Pieces)> = Vec::new();
    for (set, sum) in sums {
        let set = ordered(set, root);
        if set.len() == 1 {
            strided_copies::perform(&crew, &[Move { from: set[0], to: sum }])?;
        } else if set.iter().all(|input| Move { from: input, to: sum }.is_run()) {
            let known = by_type.iter().position(|(element, _)| *element == sum.element);
            let known = known.unwrap_or_else(|| {
                by_type.push((sum.element, Pieces::new(set.len(), 1)));
                by_type.len() - 1
            });
            by_type[known].1.push(sum.bytes(), set.iter().copied().chain([sum]).map(place));
        } else {
            add_loose(&crew, &set, sum)?;
        }
    }
    for (element, pieces) in &by_type {
        local::reduce_pieces(&crew, tensor_sum(*element)?, pieces, first, streams.iter().copied())?;
    }
    Ok(())
}

/// Adds tensors that lie otherwise than their sum: they are packed before, and the sum is unpacked.
fn add_loose(crew: &Crew, set: &[&Tensor], sum: &Tensor) -> Result<()> {
    let mut kept = Vec::new();
    let mut near = |tensor: &Tensor| -> Result<Tensor> {
        if tensor.is_contiguous() {
            return Ok(*tensor);
        }
        let (scratch, near) = packed(tensor, crew.work)?;
        kept.push(scratch);
        Ok(near)
    };
    let inputs = set.iter().map(|input| near(input)).collect::<Result<Vec<Tensor>>>()?;
    let total = near(sum)?;
    let before: Vec<Move> = set.iter().zip(&inputs).map(|(from, to)| Move { from, to }).collect();
    strided_copies::perform(crew, &before)?;
    let mut pieces = Pieces::new(set.len(), 1);
    pieces.push(sum.bytes(), inputs.iter().chain([&total]).map(place));
    alone(crew, Task::Reduce(tensor_sum(sum.element)?), &pieces)?;
    strided_copies::perform(crew, &[Move { from: &total, to: sum }])
}

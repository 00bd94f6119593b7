//! `torch.cuda.comm.broadcast` and `broadcast_coalesced`.

use super::{
    chunks::{Chunks, MAX_COPY_OPERANDS},
    local,
    outputs::{AllocatedOutputs, Output, check_existing, check_on_device},
    stream_group::StreamGroup,
    strided_copies,
};
use crate::{
    error::{Context, Error, Result},
    ops::{
        host_copy as host,
        strided_copy::{StridedCopy, device_span},
    },
    runtime::{self, Runtime, tensor::Tensor},
    status::Status,
    stream::{self, Stream},
};

/// Checks an output that exists; makes another one, which is the source itself on the source's device.
fn make(
    runtime: &Runtime,
    allocated: &mut AllocatedOutputs,
    source: &Tensor,
    output: &mut Output,
    index: usize,
) -> Result<()> {
    match output {
        Output::Existing(tensor) => {
            check_existing(runtime, tensor, source, Some(source.shape()), || format!("output {index}"))
        }
        Output::Allocate { device, .. } if *device == source.device => {
            *output = Output::Made(*source);
            Ok(())
        }
        Output::Allocate { .. } | Output::Made(_) => allocate_like(runtime, allocated, source, output),
    }
}

/// Allocates an output with the source's shape, and with its strides if permitted.
fn allocate_like(
    runtime: &Runtime,
    allocated: &mut AllocatedOutputs,
    source: &Tensor,
    output: &mut Output,
) -> Result<()> {
    if let Output::Allocate { device, any_strides } = *output {
        let device = runtime.device(device as i32)?.ordinal;
        let strides = (any_strides && source.is_dense()).then(|| &source.strides[..source.rank]);
        let stream = stream::current_on(runtime, device)?;
        *output = Output::Made(allocated.tensor(source, source.shape(), strides, stream)?);
    }
    Ok(())
}

/// Copies a tensor to outputs, which it makes if they do not exist.
pub fn broadcast(source: &Tensor, outputs: &mut [Output]) -> Result<()> {
    let runtime = runtime::ready()?;
    if !host::is_on_cpu(source) {
        check_on_device(runtime, source, || "the tensor".into())?;
    }
    let mut allocated = AllocatedOutputs::default();
    for (index, output) in outputs.iter_mut().enumerate() {
        make(runtime, &mut allocated, source, output, index)?;
    }
    let targets = outputs.iter().map(Output::tensor).collect::<Result<Vec<&Tensor>>>()?;
    let is_copied = |to: &&&Tensor| !StridedCopy { from: source, to }.is_noop();
    let remaining: Vec<&[&Tensor]> = targets.iter().filter(is_copied).map(std::slice::from_ref).collect();
    let sent = || match remaining.split_first() {
        None => Ok(()),
        // Memory of the CPU is read once: the first device sends it to the others.
        Some((first, others)) if host::is_on_cpu(source) => {
            let stream = stream::current_on(runtime, first[0].device)?;
            host::upload(runtime, stream, source, first[0])?;
            copy_to_devices(runtime, first, others)
        }
        Some(_) => copy_to_devices(runtime, &[source], &remaining),
    };
    sent().context(|| format!("broadcast of {} elements to {} outputs", source.numel, outputs.len()))?;
    allocated.keep();
    Ok(())
}

/// Copies tensors of the first device to all devices. `outputs` has the outputs of the first device, one for each
/// tensor, then those of the second, and so on; it makes those that do not exist.
pub fn broadcast_coalesced(tensors: &[Tensor], devices: &[u32], outputs: &mut [Output]) -> Result<()> {
    let runtime = runtime::ready()?;
    let Some(first) = devices.first() else {
        return Err(Error::new(Status::INVALID_VALUE, "a broadcast needs a device at least"));
    };
    for device in devices {
        runtime.device(*device as i32)?;
    }
    for (index, tensor) in tensors.iter().enumerate() {
        check_on_device(runtime, tensor, || format!("tensor {index}"))?;
        if tensor.device != *first {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!(
                    "all tensors must be on the first device, {first}, but tensor {index} is on device {}",
                    tensor.device
                ),
            ));
        }
    }
    let count = tensors.len();
    if count == 0 {
        return Ok(());
    }
    let mut allocated = AllocatedOutputs::default();
    for (index, output) in outputs.iter_mut().enumerate() {
        let (device, source) = (devices[index / count], &tensors[index % count]);
        if output.device() != device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("output {index} is on device {}, and has to be on device {device}", output.device()),
            ));
        }
        // Only the first device's outputs are the tensors themselves: a device that is listed twice receives copies.
        if index >= count && !output.is_existing() {
            allocate_like(runtime, &mut allocated, source, output)?;
        } else {
            make(runtime, &mut allocated, source, output, index)?;
        }
    }
    let sources: Vec<&Tensor> = tensors.iter().collect();
    let targets = outputs.iter().map(Output::tensor).collect::<Result<Vec<&Tensor>>>()?;
    let columns: Vec<&[&Tensor]> = targets
        .chunks_exact(count)
        .filter(|column| column.iter().zip(tensors).any(|(to, from)| !StridedCopy { from, to }.is_noop()))
        .collect();
    copy_to_devices(runtime, &sources, &columns)
        .context(|| format!("broadcast of {count} tensors to {} devices", devices.len()))?;
    allocated.keep();
    Ok(())
}

/// Copies tensors of one device to others: each column has one tensor for each of them, all on one device.
fn copy_to_devices(runtime: &Runtime, sources: &[&Tensor], columns: &[&[&Tensor]]) -> Result<()> {
    for columns in columns.chunks(MAX_COPY_OPERANDS) {
        let source = stream::current_on(runtime, sources[0].device)?;
        let receivers = columns.iter().map(|column| stream::current_on(runtime, column[0].device));
        let receivers = receivers.collect::<Result<Vec<Stream>>>()?;
        let group = StreamGroup::new(runtime, [source].into_iter().chain(receivers.iter().copied()))?;
        let (mut chunks, mut strided) = (Chunks::new(1, columns.len()), Vec::new());
        for (index, from) in sources.iter().enumerate() {
            let copies = columns.iter().map(|column| StridedCopy { from, to: column[index] });
            if copies.clone().all(|one| one.is_contiguous_copy()) {
                let operands =
                    [device_span(from)].into_iter().chain(columns.iter().map(|column| device_span(column[index])));
                chunks.push(from.bytes(), operands);
            } else {
                strided.extend(copies);
            }
        }
        local::broadcast_chunks(&group, source, &receivers, &chunks)?;
        strided_copies::copy_between_devices(&group, &strided)?;
    }
    Ok(())
}

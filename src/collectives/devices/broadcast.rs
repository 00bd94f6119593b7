//! `torch.cuda.comm.broadcast` and `broadcast_coalesced`.

use super::{
    chunks::{MOST_PLACES, Pieces},
    host, local,
    outputs::{Made, Output, alike, of_shape, on_device, writable},
    stream_group::Crew,
    strided_copies::{self, Move, place},
};
use crate::{
    error::{Context, Error, Result},
    runtime::{self, Runtime, tensor::Tensor},
    status::Status,
    stream::{self, Stream},
};

/// The tensor that an output is: the one given, the source itself where it is there already, or a new one like it.
fn target(runtime: &Runtime, made: &mut Made, source: &Tensor, output: &Output, index: usize) -> Result<Tensor> {
    let name = || format!("output {index}");
    match output {
        Output::Given(tensor) => {
            on_device(runtime, tensor, name)?;
            alike(tensor, source, name)?;
            of_shape(tensor, source.shape(), name)?;
            writable(tensor, name)?;
            Ok(*tensor)
        }
        Output::Wanted { device, .. } if *device == source.device => Ok(*source),
        Output::Wanted { .. } => made_like(runtime, made, source, output),
    }
}

/// A new tensor for an output, like the source, and with its strides where that may be.
fn made_like(runtime: &Runtime, made: &mut Made, source: &Tensor, output: &Output) -> Result<Tensor> {
    let Output::Wanted { device, any_strides } = output else {
        return Err(Error::new(Status::PANIC, "an output that exists is not to be made"));
    };
    let device = runtime.device(*device as i32)?.ordinal;
    let strides = (*any_strides && source.is_dense()).then(|| &source.strides[..source.rank]);
    made.tensor(source, source.shape(), strides, stream::current_on(runtime, device)?)
}

/// Copies a tensor to outputs, and returns what those are.
pub fn broadcast(source: &Tensor, outputs: &[Output]) -> Result<Vec<Tensor>> {
    let runtime = runtime::ready()?;
    if !host::holds(source) {
        on_device(runtime, source, || "the tensor".into())?;
    }
    let mut made = Made::default();
    let targets = outputs.iter().enumerate();
    let targets = targets.map(|(index, output)| target(runtime, &mut made, source, output, index));
    let targets = targets.collect::<Result<Vec<Tensor>>>()?;
    let wanting: Vec<&[Tensor]> =
        targets.iter().filter(|to| !Move { from: source, to }.is_nothing()).map(std::slice::from_ref).collect();
    let sent = || match wanting.split_first() {
        None => Ok(()),
        // The CPU's memory is read once: the other devices get it from the first one.
        Some((first, others)) if host::holds(source) => {
            let stream = stream::current_on(runtime, first[0].device)?;
            host::upload(runtime, stream, source, &first[0])?;
            spread(runtime, first, others)
        }
        Some(_) => spread(runtime, std::slice::from_ref(source), &wanting),
    };
    sent().context(|| format!("broadcast of {} elements to {} outputs", source.numel, outputs.len()))?;
    made.keep();
    Ok(targets)
}

/// Copies tensors of the first of some devices to all of them. `outputs` are those of the first device, one for each
/// tensor, then those of the second, and so on.
pub fn broadcast_coalesced(tensors: &[Tensor], devices: &[u32], outputs: &[Output]) -> Result<Vec<Tensor>> {
    let runtime = runtime::ready()?;
    let Some(first) = devices.first() else {
        return Err(Error::new(Status::INVALID_VALUE, "a broadcast needs a device at least"));
    };
    for device in devices {
        runtime.device(*device as i32)?;
    }
    for (index, tensor) in tensors.iter().enumerate() {
        on_device(runtime, tensor, || format!("tensor {index}"))?;
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
        return Ok(Vec::new());
    }
    let mut made = Made::default();
    let mut targets = Vec::with_capacity(outputs.len());
    for (index, output) in outputs.iter().enumerate() {
        let (device, source) = (devices[index / count], &tensors[index % count]);
        if output.device() != device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("output {index} is on device {}, and has to be on device {device}", output.device()),
            ));
        }
        // Only the first device's are the tensors themselves: a device that is named twice gets copies.
        let is_copy = index >= count && !output.is_given();
        targets.push(if is_copy {
            made_like(runtime, &mut made, source, output)?
        } else {
            target(runtime, &mut made, source, output, index)?
        });
    }
    let columns: Vec<&[Tensor]> = targets
        .chunks_exact(count)
        .filter(|column| column.iter().zip(tensors).any(|(to, from)| !Move { from, to }.is_nothing()))
        .collect();
    spread(runtime, tensors, &columns)
        .context(|| format!("broadcast of {count} tensors to {} devices", devices.len()))?;
    made.keep();
    Ok(targets)
}

/// Copies tensors of one device to others: each column has a tensor for each of them, all on a device of its own.
fn spread(runtime: &Runtime, sources: &[Tensor], columns: &[&[Tensor]]) -> Result<()> {
    for columns in columns.chunks(MOST_PLACES) {
        let source = stream::current_on(runtime, sources[0].device)?;
        let receivers = columns.iter().map(|column| stream::current_on(runtime, column[0].device));
        let receivers = receivers.collect::<Result<Vec<Stream>>>()?;
        let crew = Crew::new(runtime, [source].into_iter().chain(receivers.iter().copied()))?;
        let (mut pieces, mut loose) = (Pieces::new(1, columns.len()), Vec::new());
        for (index, from) in sources.iter().enumerate() {
            let moves = columns.iter().map(|column| Move { from, to: &column[index] });
            if moves.clone().all(|one| one.is_run()) {
                let places = [place(from)].into_iter().chain(columns.iter().map(|column| place(&column[index])));
                pieces.push(from.bytes(), places);
            } else {
                loose.extend(moves);
            }
        }
        local::broadcast_pieces(&crew, source, &receivers, &pieces)?;
        strided_copies::perform(&crew, &loose)?;
    }
    Ok(())
}

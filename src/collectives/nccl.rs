//! `torch.cuda.nccl`: collectives over tensors of several devices of this process.
//!
//! The checks are torch's. As in torch, callers need not create communicators: they are created and cached for each
//! list of devices. The communicators select the engine; NCCL need not be installed.

use crate::{
    collectives::{
        communicator::{self, Communicator, Options, RankBuffers, group, operation::Kind},
        devices::ReduceOp,
    },
    error::{Error, Result, invalid},
    runtime::tensor::Tensor,
    status::Status,
    stream,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// The communicators of the participants of one list of devices.
type Participants = Arc<Vec<Arc<Communicator>>>;

/// The cached communicators, by their devices. They are never destroyed, as in torch.
static CACHE: Mutex<Option<HashMap<Vec<u32>, Participants>>> = Mutex::new(None);

/// The streams and communicators to use; `None` selects the library's defaults.
pub struct Overrides<'a> {
    /// A stream for each tensor; `None` for the current streams.
    pub streams: Option<&'a [usize]>,
    /// A communicator for each tensor, as handles; `None` for cached communicators of the library.
    pub communicators: Option<&'a [u64]>,
}

/// Returns whether the tensors are valid for a collective: contiguous, and each on a different device.
pub fn is_available(tensors: &[Tensor]) -> bool {
    let mut devices: Vec<u32> = tensors.iter().map(|tensor| tensor.device).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.len() == tensors.len() && tensors.iter().all(Tensor::is_contiguous)
}

/// Checks tensors as torch does. The elements of an output and its input are in the ratio `output_shares` to
/// `input_shares`.
fn check(inputs: &[Tensor], outputs: &[Tensor], input_shares: u64, output_shares: u64) -> Result<()> {
    let Some(first) = inputs.first() else { return Err(invalid("there are no inputs")) };
    if inputs.len() != outputs.len() {
        return Err(invalid(format!("there are {} inputs and {} outputs", inputs.len(), outputs.len())));
    }
    for (index, (input, output)) in inputs.iter().zip(outputs).enumerate() {
        if inputs[..index].iter().any(|other| other.device == input.device) {
            return Err(invalid(format!(
                "inputs must be on unique devices, and device {} is there twice",
                input.device
            )));
        }
        if input.device != output.device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("input {index} is on device {} and its output on device {}", input.device, output.device),
            ));
        }
        if !input.is_contiguous() || !output.is_contiguous() {
            return Err(invalid(format!("all inputs and outputs have to be contiguous, and number {index} is not")));
        }
        if input.element != first.element || output.element != first.element {
            return Err(invalid(format!(
                "all inputs and outputs must be of the same type, and number {index} is {} and {} beside {}",
                input.element, output.element, first.element
            )));
        }
        if input.numel != first.numel {
            return Err(invalid(format!(
                "all inputs must have the same number of elements, and number {index} has {} beside {}",
                input.numel, first.numel
            )));
        }
        if u128::from(output.numel) * u128::from(input_shares) != u128::from(input.numel) * u128::from(output_shares) {
            return Err(invalid(format!(
                "output {index} has {} elements where {input_shares} of {output_shares} parts of {} are needed",
                output.numel, input.numel
            )));
        }
    }
    Ok(())
}

/// Returns the communicators of a list of devices, and creates them on first use.
fn participants(tensors: &[Tensor]) -> Result<Participants> {
    let devices: Vec<u32> = tensors.iter().map(|tensor| tensor.device).collect();
    let mut cache = CACHE.lock();
    let cache = cache.get_or_insert_default();
    if let Some(participants) = cache.get(&devices) {
        if participants.iter().all(|communicator| communicator.query().is_ok()) {
            return Ok(participants.clone());
        }
        // An error has aborted them, perhaps at the end of an enclosing group, or NCCL has one, whose work may wait for
        // ever.
        for communicator in participants.iter() {
            // This call needs the new ones only.
            let _ = communicator.abort();
        }
    }
    let numbers: Vec<i32> = devices.iter().map(|device| *device as i32).collect();
    let participants = Arc::new(communicator::create_in_process(&numbers, Options::default())?);
    cache.insert(devices, participants.clone());
    Ok(participants)
}

fn operate(inputs: &[Tensor], outputs: &[Tensor], kind: Kind, count: u64, overrides: &Overrides) -> Result<()> {
    let communicators: Participants = match overrides.communicators {
        None => participants(inputs)?,
        Some(handles) => Arc::new(handles.iter().map(|handle| communicator::get(*handle)).collect::<Result<_>>()?),
    };
    // The root is an input here, and a rank for the communicators, which the program may pass in any order.
    let kind = match kind {
        Kind::Reduce { op, root } => Kind::Reduce { op, root: communicators[root as usize].rank() },
        Kind::Broadcast { root } => Kind::Broadcast { root: communicators[root as usize].rank() },
        kind => kind,
    };
    let has_parts = matches!(kind, Kind::AllGather | Kind::ReduceScatter { .. });
    let mut parts = Vec::new();
    for (index, (input, output)) in inputs.iter().zip(outputs).enumerate() {
        let communicator = &communicators[index];
        if communicator.device() != input.device {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!(
                    "input {index} is on device {} and its communicator on device {}",
                    input.device,
                    communicator.device()
                ),
            ));
        }
        if has_parts && communicator.size() as usize != inputs.len() {
            return Err(invalid(format!(
                "communicator {index} has {} ranks, and there are {} inputs; the memory of each rank has a part for each \
                 input",
                communicator.size(),
                inputs.len()
            )));
        }
        let stream = overrides.streams.map_or(stream::CURRENT, |streams| streams[index]);
        let buffers = RankBuffers { from: input.memory, to: output.memory, count, element: input.element };
        parts.push((communicator, buffers, stream));
    }
    group::start();
    let mut submitted = Ok(());
    for (communicator, buffers, stream) in parts {
        submitted = submitted.and_then(|()| communicator::operate_on(communicator, kind, buffers, stream));
    }
    match submitted {
        Ok(()) => group::end(),
        Err(error) => group::cancel().and(Err(error)),
    }
}

/// Reduces the inputs; every output receives the result.
pub fn all_reduce(inputs: &[Tensor], outputs: &[Tensor], op: ReduceOp, overrides: &Overrides) -> Result<()> {
    check(inputs, outputs, 1, 1)?;
    operate(inputs, outputs, Kind::AllReduce { op }, inputs[0].numel, overrides)
}

/// Reduces the inputs; the output, on the device of the root, receives the result. Without an output, the root's input does.
pub fn reduce(
    inputs: &[Tensor],
    output: Option<&Tensor>,
    root: i32,
    op: ReduceOp,
    overrides: &Overrides,
) -> Result<()> {
    let root = rank(root, inputs)?;
    let mut outputs = inputs.to_vec();
    if let Some(output) = output {
        outputs[root as usize] = *output;
    }
    check(inputs, &outputs, 1, 1)?;
    operate(inputs, &outputs, Kind::Reduce { op, root }, inputs[0].numel, overrides)
}

/// Copies the root's tensor to the others.
pub fn broadcast(tensors: &[Tensor], root: i32, overrides: &Overrides) -> Result<()> {
    let root = rank(root, tensors)?;
    check(tensors, tensors, 1, 1)?;
    operate(tensors, tensors, Kind::Broadcast { root }, tensors[0].numel, overrides)
}

/// Concatenates all inputs in each output.
pub fn all_gather(inputs: &[Tensor], outputs: &[Tensor], overrides: &Overrides) -> Result<()> {
    check(inputs, outputs, 1, inputs.len() as u64)?;
    operate(inputs, outputs, Kind::AllGather, inputs[0].numel, overrides)
}

/// Reduces the inputs; each output receives its chunk of the result.
pub fn reduce_scatter(inputs: &[Tensor], outputs: &[Tensor], op: ReduceOp, overrides: &Overrides) -> Result<()> {
    check(inputs, outputs, inputs.len() as u64, 1)?;
    operate(inputs, outputs, Kind::ReduceScatter { op }, outputs[0].numel, overrides)
}

fn rank(root: i32, tensors: &[Tensor]) -> Result<u32> {
    u32::try_from(root)
        .ok()
        .filter(|root| (*root as usize) < tensors.len())
        .ok_or_else(|| invalid(format!("the root is {root}, and there are {} tensors", tensors.len())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{driver::Span, runtime::tensor::ElementType};

    fn tensor(device: u32, shape: &[i64], strides: Option<&[i64]>) -> Tensor {
        Tensor::new(Span::dangling(4096), ElementType::F32, device, shape, strides).unwrap()
    }

    #[test]
    fn contiguity_ignores_dimensions_of_size_one() {
        let is_available = |shape: &[i64], strides: &[i64]| is_available(&[tensor(0, shape, Some(strides))]);
        assert!(is_available(&[2, 1, 3], &[3, 77, 1]));
        assert!(is_available(&[2, 0], &[9, 9]));
        assert!(!is_available(&[2, 3], &[1, 2]));
        assert!(!is_available(&[4], &[2]));
        // The product of the other sizes is no 64-bit number.
        assert!(is_available(&[0, 5, i64::MAX], &[i64::MAX, i64::MAX, 1]));
        assert!(super::is_available(&[tensor(0, &[0, 5, i64::MAX], None)]));
    }

    #[test]
    fn tensors_are_checked_as_torch_does() {
        let (one, two) = (tensor(0, &[4], None), tensor(1, &[4], None));
        assert!(check(&[one, two], &[one, two], 1, 1).is_ok());
        let part =
            |inputs: &[Tensor], outputs: &[Tensor]| check(inputs, outputs, 1, 1).unwrap_err().message().to_owned();
        assert!(part(&[one, one], &[one, one]).contains("must be on unique devices"));
        assert!(part(&[one, two], &[two, one]).contains("output on device 1"));
        let strided = tensor(1, &[4], Some(&[2]));
        assert!(part(&[one, strided], &[one, two]).contains("have to be contiguous"));
        let short = tensor(1, &[3], None);
        assert!(part(&[one, short], &[one, short]).contains("same number of elements"));
        assert!(part(&[one, two], &[one, short]).contains("output 1 has 3 elements"));
        assert!(part(&[], &[]).contains("no inputs"));
        let eight = [tensor(0, &[8], None), tensor(1, &[8], None)];
        assert!(check(&[one, two], &eight, 1, 2).is_ok() && check(&eight, &[one, two], 2, 1).is_ok());
    }

    #[test]
    fn tensors_on_one_device_are_not_available() {
        let (one, two) = (tensor(0, &[4], None), tensor(1, &[4], None));
        assert!(is_available(&[one, two]) && !is_available(&[one, two, one]));
        assert!(!is_available(&[one, tensor(1, &[4], Some(&[3]))]));
    }
}

//! `torch.cuda.nccl`: collectives over tensors of several devices of this process.
//!
//! The checks are torch's, and so is the idea that nobody makes communicators: they are made for each list of devices that
//! comes, and kept. Which engine carries the work out is the communicators' own affair; NCCL need not be there.

use crate::{
    collectives::{
        communicator::{self, Communicator, Options, Share, group, operation::Kind},
        devices::ReduceOp,
    },
    error::{Error, Result},
    runtime::{self, tensor::Tensor},
    status::Status,
    stream,
};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// The ranks of one list of devices.
type Team = Arc<Vec<Arc<Communicator>>>;

/// The communicators that were made, by their devices. Never destroyed, as torch never does.
static TEAMS: Mutex<Option<HashMap<Vec<u32>, Team>>> = Mutex::new(None);

/// Where the work goes: streams, and communicators; the library's own choice where none are given.
pub struct Means<'a> {
    /// A stream for each tensor; `None` for the current ones.
    pub streams: Option<&'a [usize]>,
    /// A communicator for each tensor, as handles; `None` for ones of the library's.
    pub communicators: Option<&'a [u64]>,
}

fn is_contiguous(tensor: &Tensor) -> bool {
    let mut expected = 1;
    for dimension in (0..tensor.rank).rev() {
        if tensor.sizes[dimension] != 1 {
            if tensor.strides[dimension] != expected {
                return tensor.numel == 0;
            }
            expected *= tensor.sizes[dimension];
        }
    }
    true
}

/// Whether collectives can be done with these tensors: contiguous ones, on devices of their own.
pub fn is_available(tensors: &[Tensor]) -> bool {
    let mut devices: Vec<u32> = tensors.iter().map(|tensor| tensor.device).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.len() == tensors.len() && tensors.iter().all(is_contiguous)
}

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// Checks tensors as torch does, where each output has so many times the elements of its input, or the other way round.
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
        if !is_contiguous(input) || !is_contiguous(output) {
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

/// The communicators of a list of devices, made when they are first asked for.
fn team(tensors: &[Tensor]) -> Result<Team> {
    let devices: Vec<u32> = tensors.iter().map(|tensor| tensor.device).collect();
    let mut teams = TEAMS.lock();
    let teams = teams.get_or_insert_default();
    if let Some(team) = teams.get(&devices) {
        return Ok(team.clone());
    }
    let numbers: Vec<i32> = devices.iter().map(|device| *device as i32).collect();
    let team = Arc::new(communicator::team_of(&numbers, Options::default())?);
    teams.insert(devices, team.clone());
    Ok(team)
}

/// Forgets communicators that came to their end, so that the next call makes new ones.
fn forget(tensors: &[Tensor]) {
    let devices: Vec<u32> = tensors.iter().map(|tensor| tensor.device).collect();
    if let Some(teams) = TEAMS.lock().as_mut()
        && teams.get(&devices).is_some_and(|team| team.iter().any(|communicator| communicator.query().is_err()))
    {
        teams.remove(&devices);
    }
}

fn operate(inputs: &[Tensor], outputs: &[Tensor], kind: Kind, count: u64, means: &Means) -> Result<()> {
    let runtime = runtime::ready()?;
    let own = means.communicators.is_none();
    let communicators: Team = match means.communicators {
        None => team(inputs)?,
        Some(handles) => Arc::new(handles.iter().map(|handle| communicator::get(*handle)).collect::<Result<_>>()?),
    };
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
        let stream = match means.streams {
            Some(streams) if streams[index] != 0 => streams[index],
            _ => stream::current_on(runtime, input.device)?.raw.handle(),
        };
        let share = Share { from: input.memory, to: output.memory, count, element: input.element };
        parts.push((communicator, share, stream));
    }
    group::start();
    let mut given = Ok(());
    for (communicator, share, stream) in parts {
        given = given.and_then(|()| communicator::operate_on(communicator, kind, share, stream));
    }
    let done = match given {
        Ok(()) => group::end(),
        Err(error) => {
            group::cancel();
            Err(error)
        }
    };
    if done.is_err() && own {
        forget(inputs);
    }
    done
}

/// Reduces the inputs; each output gets the result.
pub fn all_reduce(inputs: &[Tensor], outputs: &[Tensor], op: ReduceOp, means: &Means) -> Result<()> {
    check(inputs, outputs, 1, 1)?;
    operate(inputs, outputs, Kind::AllReduce { op }, inputs[0].numel, means)
}

/// Reduces the inputs; the output, on the device of the root, gets the result.
pub fn reduce(inputs: &[Tensor], output: &Tensor, root: i32, op: ReduceOp, means: &Means) -> Result<()> {
    let root = rank(root, inputs)?;
    let mut outputs = inputs.to_vec();
    outputs[root as usize] = *output;
    check(inputs, &outputs, 1, 1)?;
    operate(inputs, &outputs, Kind::Reduce { op, root }, inputs[0].numel, means)
}

/// Copies the tensor of the root over the others.
pub fn broadcast(tensors: &[Tensor], root: i32, means: &Means) -> Result<()> {
    let root = rank(root, tensors)?;
    check(tensors, tensors, 1, 1)?;
    operate(tensors, tensors, Kind::Broadcast { root }, tensors[0].numel, means)
}

/// Each output gets all inputs, one after the other.
pub fn all_gather(inputs: &[Tensor], outputs: &[Tensor], means: &Means) -> Result<()> {
    check(inputs, outputs, 1, inputs.len() as u64)?;
    operate(inputs, outputs, Kind::AllGather, inputs[0].numel, means)
}

/// Reduces the inputs; each output gets its part of the result.
pub fn reduce_scatter(inputs: &[Tensor], outputs: &[Tensor], op: ReduceOp, means: &Means) -> Result<()> {
    check(inputs, outputs, inputs.len() as u64, 1)?;
    operate(inputs, outputs, Kind::ReduceScatter { op }, outputs[0].numel, means)
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
    fn contiguity_minds_no_dimension_of_one() {
        assert!(is_contiguous(&tensor(0, &[2, 1, 3], Some(&[3, 77, 1]))));
        assert!(is_contiguous(&tensor(0, &[2, 0], Some(&[9, 9]))));
        assert!(!is_contiguous(&tensor(0, &[2, 3], Some(&[1, 2]))));
        assert!(!is_contiguous(&tensor(0, &[4], Some(&[2]))));
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
    fn what_shares_a_device_is_not_available() {
        let (one, two) = (tensor(0, &[4], None), tensor(1, &[4], None));
        assert!(is_available(&[one, two]) && !is_available(&[one, two, one]));
        assert!(!is_available(&[one, tensor(1, &[4], Some(&[3]))]));
    }
}

//! What a collective writes to: tensors of the caller's, or new ones.

use super::host;
use crate::{
    base::units::Bytes,
    driver::Span,
    error::{Context, Error, Result},
    memory,
    runtime::{Runtime, tensor::Tensor},
    status::Status,
    stream::Stream,
};

/// A tensor that a collective is to write.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::large_enum_variant)] // a box for each output of hundreds would cost more than the room
pub enum Output {
    /// It exists.
    Given(Tensor),
    /// It is to be made.
    Wanted {
        /// On this device.
        device: u32,
        /// Whether its elements may lie in any order, and not only side by side with the last dimension's fastest.
        any_strides: bool,
    },
}

impl Output {
    /// The device that it is or will be on.
    pub fn device(&self) -> u32 {
        match self {
            Output::Given(tensor) => tensor.device,
            Output::Wanted { device, .. } => *device,
        }
    }

    /// Whether it exists.
    pub fn is_given(&self) -> bool {
        matches!(self, Output::Given(_))
    }
}

/// Memory of tensors that were made, until they are the caller's. Given back where they never become that.
#[derive(Default)]
pub struct Made(Vec<u64>);

impl Made {
    /// Makes a tensor like another on a stream's device, of another shape or the same. Its elements lie side by side, or as
    /// `strides` says, by which they fill the memory.
    pub fn tensor(&mut self, like: &Tensor, shape: &[i64], strides: Option<&[i64]>, stream: Stream) -> Result<Tensor> {
        // An address that suits elements of every type, and that nobody follows.
        let nowhere = Span::owned(256, 0);
        let mut tensor = Tensor::new(nowhere, like.element, stream.device, shape, strides)?;
        let bytes = tensor.bytes();
        let address = memory::caching_alloc(bytes, stream.device as i32, stream.raw)
            .context(|| format!("allocating a tensor of {} on device {}", Bytes(bytes), stream.device))?;
        if address != 0 {
            self.0.push(address);
        }
        tensor.memory = Span::owned(address, bytes as usize);
        Ok(tensor)
    }

    /// Leaves the tensors to the caller.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for address in &self.0 {
            // They were given out here, and by nobody given back.
            let _ = memory::caching_free(*address);
        }
    }
}

/// Refuses a tensor that is not on a device.
pub fn on_device(runtime: &Runtime, tensor: &Tensor, what: impl Fn() -> String) -> Result<()> {
    if host::holds(tensor) {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{} is in memory of the CPU, and all have to be on CUDA devices", what()),
        ));
    }
    runtime.device(tensor.device as i32).map(drop).map_err(|error| error.context(what()))
}

/// Refuses a tensor whose elements are as wide as another's only by chance, or not at all.
pub fn alike(tensor: &Tensor, other: &Tensor, what: impl Fn() -> String) -> Result<()> {
    if tensor.element == other.element {
        return Ok(());
    }
    let message = format!("{} has elements of {}, not of {}", what(), tensor.element, other.element);
    Err(Error::new(Status::INVALID_VALUE, message))
}

/// Refuses a tensor of another shape.
pub fn of_shape(tensor: &Tensor, shape: &[i64], what: impl Fn() -> String) -> Result<()> {
    if tensor.shape() == shape {
        return Ok(());
    }
    Err(Error::new(
        Status::INVALID_VALUE,
        format!("{} has invalid shape: got {:?}, but expected {shape:?}", what(), tensor.shape()),
    ))
}

/// Refuses to write to a tensor of which several elements are one.
pub fn writable(tensor: &Tensor, what: impl Fn() -> String) -> Result<()> {
    let shape = tensor.shape().iter().zip(&tensor.strides);
    if tensor.numel > 0 && shape.clone().any(|(size, stride)| *size > 1 && *stride == 0) {
        let message = format!("{} has several elements in one place, and cannot be written", what());
        return Err(Error::new(Status::INVALID_VALUE, message));
    }
    Ok(())
}

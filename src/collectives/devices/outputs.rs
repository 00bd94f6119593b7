//! Outputs of collectives: existing tensors, or new ones.

use crate::{
    base::units::Bytes,
    driver::Span,
    error::{Context, Error, Result},
    memory::{self, scratch::alloc_span},
    ops::host_copy as host,
    runtime::{Runtime, tensor::Tensor},
    status::Status,
    stream::Stream,
};

/// An output of a collective.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::large_enum_variant)] // a box for each output of hundreds would cost more than the room
pub enum Output {
    /// An existing tensor.
    Existing(Tensor),
    /// A tensor to allocate.
    Allocate {
        /// The device.
        device: u32,
        /// Whether its strides may have any order; otherwise it is contiguous.
        any_strides: bool,
    },
    /// The tensor that was allocated, or an input or a view of one in its place.
    Made(Tensor),
}

impl Output {
    /// Returns its device.
    pub fn device(&self) -> u32 {
        match self {
            Output::Existing(tensor) | Output::Made(tensor) => tensor.device,
            Output::Allocate { device, .. } => *device,
        }
    }

    /// Returns its tensor; fails if it still has to be allocated.
    pub fn tensor(&self) -> Result<&Tensor> {
        match self {
            Output::Existing(tensor) | Output::Made(tensor) => Ok(tensor),
            Output::Allocate { .. } => Err(Error::new(Status::PANIC, "an output was not made")),
        }
    }

    /// Returns whether it exists.
    pub fn is_existing(&self) -> bool {
        matches!(self, Output::Existing(_))
    }
}

/// Tensors that were allocated for a caller. They are freed on drop unless [`keep`](Self::keep) is called.
#[derive(Default)]
pub struct AllocatedOutputs(Vec<u64>);

impl AllocatedOutputs {
    /// Allocates a tensor with another's element type on a stream's device. It is contiguous, or has `strides`, which
    /// must be dense.
    pub fn tensor(&mut self, like: &Tensor, shape: &[i64], strides: Option<&[i64]>, stream: Stream) -> Result<Tensor> {
        let mut tensor = Tensor::new(Span::placeholder(), like.element, stream.device(), shape, strides)?;
        let bytes = tensor.bytes();
        tensor.memory = alloc_span(bytes, stream)
            .context(|| format!("allocating a tensor of {} on device {}", Bytes(bytes), stream.device()))?;
        self.0.push(tensor.memory.address());
        Ok(tensor)
    }

    /// Transfers the tensors to the caller.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for AllocatedOutputs {
    fn drop(&mut self) {
        self.0.iter().copied().for_each(memory::free_own);
    }
}

/// Rejects an output that is not on a device, has another element type than `like`, cannot be written, or has another shape than
/// `shape`, if that is given.
pub fn check_existing(
    runtime: &Runtime,
    tensor: &Tensor,
    like: &Tensor,
    shape: Option<&[i64]>,
    what: impl Fn() -> String,
) -> Result<()> {
    check_on_device(runtime, tensor, &what)?;
    check_element_type(tensor, like, &what)?;
    if let Some(shape) = shape {
        check_shape(tensor, shape, &what)?;
    }
    check_writable(tensor, what)
}

/// Rejects a tensor that is not on a device.
pub fn check_on_device(runtime: &Runtime, tensor: &Tensor, what: impl Fn() -> String) -> Result<()> {
    if host::is_on_cpu(tensor) {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{} is in memory of the CPU, and all have to be on CUDA devices", what()),
        ));
    }
    runtime.device(tensor.device as i32).map(drop).map_err(|error| error.context(what()))
}

/// Rejects a tensor of another element type.
pub fn check_element_type(tensor: &Tensor, other: &Tensor, what: impl Fn() -> String) -> Result<()> {
    if tensor.element == other.element {
        return Ok(());
    }
    let message = format!("{} has elements of {}, not of {}", what(), tensor.element, other.element);
    Err(Error::new(Status::INVALID_VALUE, message))
}

/// Rejects a tensor of another shape.
pub fn check_shape(tensor: &Tensor, shape: &[i64], what: impl Fn() -> String) -> Result<()> {
    if tensor.shape() == shape {
        return Ok(());
    }
    Err(Error::new(
        Status::INVALID_VALUE,
        format!("{} has invalid shape: got {:?}, but expected {shape:?}", what(), tensor.shape()),
    ))
}

/// Rejects an output with several elements at one address.
pub fn check_writable(tensor: &Tensor, what: impl Fn() -> String) -> Result<()> {
    let shape = tensor.shape().iter().zip(&tensor.strides);
    if tensor.numel > 0 && shape.clone().any(|(size, stride)| *size > 1 && *stride == 0) {
        let message = format!("{} has several elements in one place, and cannot be written", what());
        return Err(Error::new(Status::INVALID_VALUE, message));
    }
    Ok(())
}

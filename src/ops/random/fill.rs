//! Fills: launches a plan for a tensor, a generator and a stream.

use super::{
    distribution::{FillPlan, check_bernoulli, code_of, invalid, one},
    generator::{self, GeneratorState},
    geometry::Geometry,
    layout::Layout,
};
use crate::{
    driver::random::{Fill, Parameters, PhiloxState, THREADS},
    error::{Context, Error, Result},
    observe,
    runtime::{
        self, Runtime,
        device::Device,
        tensor::{ElementType, Tensor},
    },
    status::Status,
    stream::{self, Stream, kernel::Kernel},
};
use std::sync::Arc;

/// Blocks of a launch for each multiprocessor, if there is enough work.
const BLOCKS: u64 = 32;

/// The resolved device, stream and generator of a fill.
pub(super) struct FillTarget<'a> {
    pub runtime: &'a Runtime,
    pub device: &'a Device,
    pub stream: Stream,
    pub geometry: Geometry,
    pub generator: Arc<GeneratorState>,
}

impl<'a> FillTarget<'a> {
    /// Resolves the handles and checks that tensor, generator and stream belong to the same device.
    pub fn of(tensor: &Tensor, generator: u64, stream: usize) -> Result<FillTarget<'a>> {
        let runtime = runtime::ready()?;
        let device = runtime.device(tensor.device as i32)?;
        let stream = stream::resolve_same(runtime, stream, tensor.device)?;
        let geometry = Geometry::of(device.properties(&runtime.driver)?);
        let generator = generator::on_device(generator, tensor.device)?;
        Ok(FillTarget { runtime, device, stream, geometry, generator })
    }

    /// Launches a kernel for random numbers.
    pub fn launch(&self, kernel: Kernel, blocks: [u32; 2], parameters: &Parameters) -> Result<()> {
        let function = self.device.kernel(&self.runtime.driver, kernel)?;
        self.runtime.in_stream(self.stream, |driver, raw| Ok(driver.launch_random(function, blocks, parameters, raw)?))
    }
}

/// Fills a tensor in a stream.
pub fn fill(tensor: &Tensor, plan: &FillPlan, generator: u64, stream: usize) -> Result<()> {
    let target = FillTarget::of(tensor, generator, stream)?;
    if tensor.numel == 0 {
        return Ok(());
    }
    let filled = || -> Result<()> {
        // PyTorch fills the real and the imaginary parts of complex elements.
        let parts = if tensor.element.is_complex() { &tensor.view_as_real()? } else { tensor };
        fill_real(&target, parts, plan)
    };
    filled().context(|| format!("{} of {} elements of {}", plan.name, tensor.numel, tensor.element))
}

fn fill_real(target: &FillTarget, tensor: &Tensor, plan: &FillPlan) -> Result<()> {
    let layout = Layout::of(tensor)?;
    let bytes = tensor.element.bytes();
    let increment = |numel: u64| target.geometry.increment(numel, plan.unroll);
    // PyTorch advances the offset for the whole tensor before it splits it, and then again for each part.
    let mut used = if layout.is_split(bytes) { increment(tensor.numel) } else { 0 };
    let mut count = used;
    layout.for_each_part(bytes, &mut |part| {
        count += increment(part.numel());
        Ok(())
    })?;
    let reservation = target.generator.reserve(stream::capture_id(target.runtime, target.stream)?, count)?;
    observe::access_tensors(target.runtime, target.stream, &[(tensor, observe::Kind::Write)])?;
    layout.for_each_part(bytes, &mut |part| {
        let philox = reservation.after(used);
        used += increment(part.numel());
        launch_part(target, tensor, plan, part, philox)
    })?;
    reservation.commit();
    Ok(())
}

fn launch_part(
    target: &FillTarget,
    tensor: &Tensor,
    plan: &FillPlan,
    part: &Layout,
    philox: PhiloxState,
) -> Result<()> {
    let numel = part.numel();
    let bytes = tensor.element.bytes();
    let memory = tensor.memory.offset_by(part.start * bytes as i64);
    let lanes = target.geometry.lanes(numel);
    let mut fill = Fill::of(memory, numel as u32, lanes);
    (fill.philox, fill.code, fill.arguments) = (philox, plan.code as u32, plan.arguments);
    let dense = match plan.dense {
        Some(dense) if part.is_dense() && memory.address().is_multiple_of(u64::from(dense.width) * bytes) => {
            target.device.supports_kernel(&target.runtime.driver, dense.kernel)?.then_some(dense)
        }
        _ => None,
    };
    let width = dense.map_or(1, |dense| dense.width);
    let calls = target.geometry.calls(numel, plan.unroll);
    let across = lanes.div_ceil(width * THREADS);
    // Calls of one subsequence share some work, so a thread makes several, but only if the remaining threads keep the
    // device busy. A kernel with wide stores and little computation soon reaches the memory bandwidth; more threads
    // help it more.
    let max_steps = match (dense, plan.unroll) {
        (None, _) => 8,
        (Some(_), 2) => 31,
        (Some(dense), _) if dense.width <= 4 => 5,
        (Some(_), _) => 16,
    };
    let processors = target.device.properties(&target.runtime.driver)?.multi_processor_count.max(1) as u64;
    let steps = (calls * u64::from(across) / (processors * BLOCKS)).clamp(1, max_steps);
    fill.steps = steps as u32;
    let blocks = [across, calls.div_ceil(steps) as u32];
    match dense {
        Some(dense) => target.launch(dense.kernel, blocks, &Parameters::Dense(&fill)),
        None => target.launch(plan.any, blocks, &Parameters::Strided(&fill, &part.strided())),
    }
}

/// The maximum number of elements of one launch with a probability for each element.
const MAX_EACH: u64 = 1 << 30;

/// Fills a tensor with ones and zeros, with a probability for each element: `probabilities` has the tensor's shape, or
/// is broadcast to it.
pub fn bernoulli_each(tensor: &Tensor, probabilities: &Tensor, generator: u64, stream: usize) -> Result<()> {
    const NAME: &str = "plinth_bernoulli_tensor";
    check_bernoulli(NAME, tensor.element)?;
    if !probabilities.element.is_float() {
        return Err(invalid(NAME, format_args!("needs probabilities of a float type, not {}", probabilities.element)));
    }
    if probabilities.device != tensor.device {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("the tensor is on device {}, its probabilities on device {}", tensor.device, probabilities.device),
        ));
    }
    let probabilities = expand(probabilities, tensor)?;
    let target = FillTarget::of(tensor, generator, stream)?;
    if tensor.numel == 0 {
        return Ok(());
    }
    let (written, read) = Layout::pair(tensor, &probabilities)?;
    if tensor.numel > MAX_EACH && !(written.is_dense() && (read.is_dense() || probabilities.numel == 1)) {
        return Err(Error::new(
            Status::NOT_SUPPORTED,
            format!("{NAME} of {} elements, more than 2^30, that do not lie side by side", tensor.numel),
        ));
    }
    let kernel = match tensor.element.bytes() {
        1 => Kernel::BernoulliEachB8,
        2 => Kernel::BernoulliEachB16,
        4 => Kernel::BernoulliEachB32,
        _ if tensor.element == ElementType::F64 => Kernel::BernoulliEachF64,
        _ => Kernel::BernoulliEachB64,
    };
    let (bytes, read_bytes) = (tensor.element.bytes() as i64, probabilities.element.bytes() as i64);
    let launched = || -> Result<()> {
        let used = [(&probabilities, observe::Kind::Read), (tensor, observe::Kind::Write)];
        // PyTorch always reserves ten.
        let reservation = target.generator.reserve(stream::capture_id(target.runtime, target.stream)?, 10)?;
        observe::access_tensors(target.runtime, target.stream, &used)?;
        let philox = reservation.after(0);
        for first in (0..tensor.numel).step_by(MAX_EACH as usize) {
            let numel = (tensor.numel - first).min(MAX_EACH) as u32;
            let of_read = if read.is_dense() { first as i64 * read_bytes } else { 0 };
            let mut fill = Fill::of(tensor.memory.offset_by(first as i64 * bytes), numel, 0);
            fill.philox = philox;
            let source = probabilities.memory.offset_by(of_read).address();
            fill.arguments = [code_of(probabilities.element) as u64, one(tensor.element), source, first];
            let (written, read) = (written.strided(), read.strided());
            let blocks = [numel.div_ceil(4 * THREADS), 1];
            target.launch(kernel, blocks, &Parameters::Each(&fill, &written, &read))?;
        }
        reservation.commit();
        Ok(())
    };
    launched().context(|| format!("{NAME} of {} elements of {}", tensor.numel, tensor.element))
}

/// Returns a tensor expanded to another's shape: missing dimensions and those of size 1 are repeated.
fn expand(tensor: &Tensor, shape: &Tensor) -> Result<Tensor> {
    let mut expand = *tensor;
    let missing = shape.rank.checked_sub(tensor.rank);
    expand.rank = shape.rank;
    expand.sizes = shape.sizes;
    for dimension in 0..shape.rank {
        let own = missing.and_then(|missing| dimension.checked_sub(missing));
        expand.strides[dimension] = match own {
            Some(own) if tensor.sizes[own] == shape.sizes[dimension] => tensor.strides[own],
            Some(own) if tensor.sizes[own] != 1 => return Err(cannot_expand(tensor, shape)),
            _ => 0,
        };
    }
    if missing.is_none() { Err(cannot_expand(tensor, shape)) } else { Ok(expand) }
}

#[cold]
fn cannot_expand(tensor: &Tensor, shape: &Tensor) -> Error {
    Error::new(
        Status::INVALID_VALUE,
        format!(
            "probabilities of shape {:?} cannot be broadcast to the tensor's {:?}",
            &tensor.sizes[..tensor.rank],
            &shape.sizes[..shape.rank]
        ),
    )
}

//! GraphedCallable callables: functions of a program captured as graphs, like torch's make_graphed_callables.
//!
//! Each function runs a few times for warm-up. Then it is captured with inputs at fixed addresses: first all forward
//! passes in order, then all backward passes in reverse order, as in a training step, so that all passes can share
//! one pool. A call copies inputs that are at other addresses, replays, and returns the outputs, which are always the
//! same tensors.

use super::{capture::Mode, context};
use crate::{
    base::{
        handle::{HandleTable, Kind},
        log,
    },
    driver::Span,
    error::{Context, Error, Result},
    memory::{self, PoolId, pool, scratch::alloc_span},
    observe,
    ops::copy,
    runtime::{self, Runtime, sync_debug, tensor::Tensor},
    status::Status,
    stream::{self, Stream, StreamUse, capture_lock, ordering::OutsideCaptures},
};
use parking_lot::Mutex;

/// The most warm-up runs per function.
pub const MAX_WARMUPS: u32 = 1000;

/// A pass: it reads the first tensors and writes the second ones, in the stream with this handle.
pub type Pass<'a> = &'a dyn Fn(&[Tensor], &[Tensor], usize) -> Result<()>;

/// A visitor of the outputs of a call. The tensors stay valid until the callable is reset. An error ends the call
/// before anything is launched.
pub type OutputVisitor<'a> = &'a mut dyn FnMut(&[Tensor]) -> Result<()>;

/// A function to capture.
pub struct Callable<'a> {
    /// Computes the outputs from the inputs.
    pub forward: Pass<'a>,
    /// Computes the gradients of the inputs from those of the outputs.
    pub backward: Option<Pass<'a>>,
    /// The inputs of the capture. The program owns their memory.
    pub inputs: Vec<Tensor>,
    /// Whether each input has a gradient.
    pub differentiable: Vec<bool>,
    /// The shapes and types of the outputs, without memory.
    pub outputs: Vec<Tensor>,
}

/// A captured pass.
#[derive(Default)]
struct Captured {
    /// The graph; 0 after its destruction.
    graph: u64,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// The memory blocks that the pass owns.
    blocks: Vec<u64>,
}

/// A slot of the table of callables.
#[derive(Default)]
pub struct GraphedCallable(Mutex<CallableState>);

#[derive(Default)]
struct CallableState {
    forward: Option<Captured>,
    backward: Option<Captured>,
    device: u32,
    /// Whether a forward pass has run whose backward pass has not.
    pending: bool,
    /// The stream of the last call, which may still read the inputs.
    last: Option<StreamUse>,
}

static CALLABLES: HandleTable<GraphedCallable> = HandleTable::new(Kind::GraphedCallable);

/// Warms functions up, captures them, and returns a handle for each.
pub fn make(callables: &[Callable], pool: PoolId, warmups: u32) -> Result<Vec<u64>> {
    let runtime = runtime::ready()?;
    let device = check(runtime, callables, warmups)?;
    sync_debug::check("plinth_make_graphed_callables")?;
    if stream::is_current_capturing()? {
        return Err(Error::new(Status::CAPTURE_FORBIDS, "the current stream is capturing"));
    }
    let pool = if pool == PoolId::DEFAULT { pool::new_graph_id() } else { pool };
    pool::check_usable(pool)?;
    warm_up(runtime, device, callables, warmups)?;
    let mut bodies: Vec<CallableState> =
        callables.iter().map(|_| CallableState { device, ..CallableState::default() }).collect();
    if let Err(error) = capture_all(device, callables, pool, &mut bodies) {
        // The capture's error is returned.
        bodies.iter_mut().for_each(|body| log::ignore(body.reset(), "discarding a callable whose capture failed"));
        return Err(error);
    }
    let mut handles = Vec::with_capacity(bodies.len());
    let mut outcome = Ok(());
    for mut body in bodies {
        if outcome.is_ok() {
            let taken = &mut body;
            match CALLABLES.insert(|graphed| *graphed.0.lock() = std::mem::take(taken)) {
                Ok(handle) => handles.push(handle),
                Err(error) => outcome = Err(error),
            }
        }
        // A body that got no handle is released; the others were taken and are empty here.
        drop(body.reset());
    }
    if let Err(error) = outcome {
        handles.into_iter().for_each(|handle| drop(destroy(handle)));
        return Err(error);
    }
    Ok(handles)
}

fn check(runtime: &Runtime, callables: &[Callable], warmups: u32) -> Result<u32> {
    let device = runtime.current_device()?.ordinal;
    if callables.is_empty() {
        return Err(Error::new(Status::INVALID_VALUE, "there are no callables"));
    }
    if warmups > MAX_WARMUPS {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("warmup_count is {warmups}; it can be {MAX_WARMUPS} at most"),
        ));
    }
    for (number, callable) in callables.iter().enumerate() {
        for (name, tensors) in [("inputs", &callable.inputs), ("outputs", &callable.outputs)] {
            if let Some(index) = tensors.iter().position(|tensor| tensor.device != device) {
                return Err(Error::new(
                    Status::DEVICE_MISMATCH,
                    format!(
                        "callables[{number}].{name}[{index}] is on device {}, the current device is {device}",
                        tensors[index].device
                    ),
                ));
            }
        }
        for (index, input) in callable.inputs.iter().enumerate() {
            extent(input).context(|| format!("callables[{number}].inputs[{index}]"))?;
        }
    }
    Ok(device)
}

/// Returns the byte offset and length of a tensor's memory. The elements must fill one range without overlap.
fn extent(tensor: &Tensor) -> Result<(i64, usize)> {
    let mut dimensions: Vec<(i64, i64)> = (0..tensor.rank)
        .filter(|dimension| tensor.sizes[*dimension] != 1)
        .map(|dimension| (tensor.strides[dimension], tensor.sizes[dimension]))
        .collect();
    let bytes = tensor.element.bytes();
    if tensor.numel == 0 {
        return Ok((0, 0));
    }
    dimensions.sort_by_cached_key(|(stride, _)| stride.unsigned_abs());
    let (mut expected, mut before) = (1_i64, 0_i64);
    for (stride, size) in dimensions {
        if stride.unsigned_abs() != expected.unsigned_abs() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "the elements do not fill one range of memory without gaps or overlap; pass a contiguous copy",
            ));
        }
        if stride < 0 {
            before += stride * (size - 1);
        }
        expected = expected.saturating_mul(size);
    }
    Ok((before * bytes as i64, (tensor.numel * bytes) as usize))
}

/// Returns a tensor's memory as one range.
fn memory_range(tensor: &Tensor) -> Result<Span> {
    let (offset, bytes) = extent(tensor)?;
    Ok(tensor.memory.offset_by(offset).with_length(bytes))
}

/// Allocates contiguous tensors of these shapes in the stream, and appends their blocks to `blocks`.
fn allocate(shapes: &[Tensor], stream: Stream, blocks: &mut Vec<u64>) -> Result<Vec<Tensor>> {
    let mut tensors = Vec::with_capacity(shapes.len());
    for (index, shape) in shapes.iter().enumerate() {
        let bytes = shape.numel * shape.element.bytes();
        let memory = alloc_span(bytes, stream).context(|| format!("allocating output {index}"))?;
        blocks.push(memory.address());
        tensors.push(dense(shape, memory));
    }
    Ok(tensors)
}

/// Returns a contiguous tensor of the same shape.
fn dense(shape: &Tensor, memory: Span) -> Tensor {
    let mut tensor = Tensor { memory, ..*shape };
    let mut stride = 1_i64;
    for dimension in (0..tensor.rank).rev() {
        tensor.strides[dimension] = stride;
        stride = stride.saturating_mul(tensor.sizes[dimension].max(1));
    }
    tensor
}

fn free(blocks: &mut Vec<u64>) {
    blocks.drain(..).for_each(memory::free_own);
}

/// Returns the gradients that a backward pass writes; inputs without a gradient get no elements.
fn gradients(callable: &Callable) -> Vec<Tensor> {
    let inputs = callable.inputs.iter().zip(&callable.differentiable);
    inputs
        .map(|(input, differentiable)| Tensor { numel: if *differentiable { input.numel } else { 0 }, ..*input })
        .collect()
}

/// Runs each function a few times in a side stream.
fn warm_up(runtime: &Runtime, device: u32, callables: &[Callable], warmups: u32) -> Result<()> {
    let synchronize = || capture_lock::synchronize_device(runtime, runtime.device(device as i32)?);
    synchronize()?;
    let handle = stream::create(device as i32, 0)?;
    let side = stream::resolve(runtime, handle)?;
    let saved = stream::enter(handle)?;
    let outcome = callables.iter().enumerate().try_for_each(|(number, callable)| {
        (0..warmups).try_for_each(|_| {
            let mut blocks = Vec::new();
            let ran = (|| {
                let outputs = allocate(&callable.outputs, side, &mut blocks)?;
                (callable.forward)(&callable.inputs, &outputs, handle)?;
                if let Some(backward) = callable.backward {
                    let output_gradients = allocate(&callable.outputs, side, &mut blocks)?;
                    let input_gradients = allocate(&gradients(callable), side, &mut blocks)?;
                    backward(&output_gradients, &input_gradients, handle)?;
                }
                Ok(())
            })();
            free(&mut blocks);
            ran.map_err(|error: Error| error.context(format_args!("warming up callables[{number}]")))
        })
    });
    let exited = stream::exit(saved);
    outcome.and(exited)?;
    synchronize()
}

fn capture_all(device: u32, callables: &[Callable], pool: PoolId, bodies: &mut [CallableState]) -> Result<()> {
    for (number, (callable, body)) in callables.iter().zip(bodies.iter_mut()).enumerate() {
        let forward = body.forward.insert(Captured { inputs: callable.inputs.clone(), ..Captured::default() });
        forward
            .capture(device, pool, &callable.outputs, callable.forward)
            .context(|| format!("capturing the forward pass of callables[{number}]"))?;
    }
    for (number, (callable, body)) in callables.iter().zip(bodies.iter_mut()).enumerate().rev() {
        let Some(pass) = callable.backward else { continue };
        let backward = body.backward.insert(Captured::default());
        // The gradients that calls write to are allocated outside the pool, as in torch.
        let stream = stream::current_on(runtime::ready()?, device)?;
        backward.inputs = allocate(&callable.outputs, stream, &mut backward.blocks)?;
        backward
            .capture(device, pool, &gradients(callable), pass)
            .context(|| format!("capturing the backward pass of callables[{number}]"))?;
    }
    Ok(())
}

impl Captured {
    fn capture(&mut self, device: u32, pool: PoolId, outputs: &[Tensor], pass: Pass) -> Result<()> {
        self.graph = super::create()?;
        let block = context::begin(self.graph, pool, None, Mode::Global)?;
        let captured = (|| {
            let stream = stream::current_on(runtime::ready()?, device)?;
            self.outputs = allocate(outputs, stream, &mut self.blocks)?;
            pass(&self.inputs, &self.outputs, stream.raw.handle())
        })();
        match captured {
            Ok(()) => context::end(block),
            Err(error) => {
                // The error of the pass is returned.
                log::ignore(context::cancel(block), "discarding the capture of a pass that failed");
                Err(error)
            }
        }
    }

    /// Copies the inputs that are at other addresses, and replays.
    fn run(&self, inputs: &[Tensor], stream: Stream, visit_outputs: OutputVisitor) -> Result<()> {
        if inputs.len() != self.inputs.len() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("the callable was captured with {} inputs, but got {}", self.inputs.len(), inputs.len()),
            ));
        }
        let mut copies = Vec::new();
        for (index, (input, captured)) in inputs.iter().zip(&self.inputs).enumerate() {
            if let Some(copy) = input_copy(input, captured).context(|| format!("inputs[{index}]"))? {
                copies.push(copy);
            }
        }
        visit_outputs(&self.outputs)?;
        let runtime = runtime::ready()?;
        for (to, from) in copies {
            observe::access(runtime, stream, &[observe::read(from), observe::write(to)])?;
            copy::with_peer_access(stream.device(), &[to, from], || {
                runtime.in_stream(stream, |driver, raw| Ok(driver.copy(to, from, raw)?))
            })
            .context(|| "copying an input")?;
        }
        super::replay::replay(self.graph)
    }

    fn reset(&mut self, last: Option<StreamUse>) -> Result<()> {
        if self.graph != 0 {
            super::destroy(self.graph)?;
            self.graph = 0;
        }
        // The stream of the last call may still use these blocks, so they are reused only after it.
        for block in self.blocks.iter().filter(|block| **block != 0) {
            let (Some(last), Some(runtime)) = (last, runtime::usable()) else { break };
            let recorded = memory::record_stream(*block, stream::of_use(runtime, last));
            log::ignore(recorded, "recording the stream of a callable's last call");
        }
        free(&mut self.blocks);
        Ok(())
    }
}

/// Returns the copy that an input needs to its captured address; `None` if it is there already.
fn input_copy(input: &Tensor, captured: &Tensor) -> Result<Option<(Span, Span)>> {
    let differs =
        |what: &str| Err(Error::new(Status::INVALID_VALUE, format!("its {what} differs from the captured one")));
    if input.device != captured.device {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("it is on device {}, the captured one is on device {}", input.device, captured.device),
        ));
    }
    if input.element != captured.element {
        return differs("type");
    }
    if input.sizes[..input.rank] != captured.sizes[..captured.rank] {
        return differs("shape");
    }
    let of_size = |dimension: &usize| captured.sizes[*dimension] > 1;
    let same =
        (0..captured.rank).filter(of_size).all(|dimension| input.strides[dimension] == captured.strides[dimension]);
    if captured.numel > 0 && !same {
        return differs("order of elements in memory");
    }
    if captured.numel == 0 || input.memory.address() == captured.memory.address() {
        return Ok(None);
    }
    Ok(Some((memory_range(captured)?, memory_range(input)?)))
}

impl CallableState {
    /// Makes the device's current stream wait for the last call, which may still read what the next one overwrites.
    fn order_after_last_call(&mut self) -> Result<Stream> {
        let runtime = runtime::ready()?;
        let stream = stream::current_on(runtime, self.device)?;
        let outside = OutsideCaptures::lock(runtime);
        if !outside.contains(stream)? {
            return Err(Error::new(Status::CAPTURE_FORBIDS, "the current stream is capturing"));
        }
        let last = self.last.map(|last| stream::of_use(runtime, last));
        if let Some(last) = last.filter(|last| last.raw != stream.raw) {
            if !outside.contains(last)? {
                return Err(Error::new(Status::CAPTURE_FORBIDS, "the stream of the last call is capturing"));
            }
            outside.make_wait(stream, last)?;
        }
        self.last = Some(StreamUse::new(stream));
        Ok(stream)
    }

    fn call(&mut self, inputs: &[Tensor], visit_outputs: OutputVisitor) -> Result<()> {
        if self.forward.is_none() {
            return Err(reset_error());
        }
        let stream = self.order_after_last_call()?;
        let Some(forward) = &self.forward else { return Err(reset_error()) };
        forward.run(inputs, stream, visit_outputs)?;
        self.pending = true;
        Ok(())
    }

    fn backward(&mut self, gradients: &[Tensor], visit_outputs: OutputVisitor) -> Result<()> {
        if self.forward.is_none() {
            return Err(reset_error());
        }
        if self.backward.is_none() {
            return Err(Error::new(Status::INVALID_VALUE, "the callable was made without a backward pass"));
        }
        if !self.pending {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "no forward pass has run since the last backward pass, which consumed the saved results",
            ));
        }
        let stream = self.order_after_last_call()?;
        let Some(backward) = &self.backward else { return Err(reset_error()) };
        backward.run(gradients, stream, visit_outputs)?;
        self.pending = false;
        Ok(())
    }

    fn reset(&mut self) -> Result<()> {
        if let Some(backward) = &mut self.backward {
            backward.reset(self.last)?;
        }
        self.backward = None;
        if let Some(forward) = &mut self.forward {
            forward.reset(self.last)?;
        }
        self.forward = None;
        self.pending = false;
        Ok(())
    }
}

#[cold]
fn reset_error() -> Error {
    Error::new(Status::GRAPH_NOT_CAPTURED, "the callable was reset")
}

/// Runs a forward pass in the current stream.
pub fn call(handle: u64, inputs: &[Tensor], visit_outputs: OutputVisitor) -> Result<()> {
    CALLABLES.get(handle)?.0.lock().call(inputs, visit_outputs).context(|| "calling a graphed callable")
}

/// Runs the backward pass of the last forward pass in the current stream.
pub fn backward(handle: u64, gradients: &[Tensor], visit_outputs: OutputVisitor) -> Result<()> {
    CALLABLES
        .get(handle)?
        .0
        .lock()
        .backward(gradients, visit_outputs)
        .context(|| "calling the backward pass of a graphed callable")
}

/// Returns the pool that the callable shares with those created in the same call.
pub fn pool(handle: u64) -> Result<PoolId> {
    let body = CALLABLES.get(handle)?.0.lock();
    super::pool(body.forward.as_ref().ok_or_else(reset_error)?.graph)
}

/// Releases the graphs and the memory of a callable.
pub fn reset(handle: u64) -> Result<()> {
    let callable = &CALLABLES.get(handle)?.0;
    // Callbacks of the program may use the callable, so it is unlocked while its graphs are destroyed.
    let mut state = std::mem::take(&mut *callable.lock());
    let reset = state.reset();
    if reset.is_err() {
        *callable.lock() = state;
    }
    reset.context(|| "resetting a graphed callable")
}

/// Resets a callable and destroys its handle.
pub fn destroy(handle: u64) -> Result<()> {
    reset(handle)?;
    CALLABLES.remove(handle, |graphed| *graphed.0.lock() = CallableState::default())
}

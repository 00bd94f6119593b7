//! Functions of a program's as graphs: torch's make_graphed_callables.
//!
//! Each function is run a few times for warming up, then captured over inputs that stay where they are: first all forward
//! passes in their order, then all backward passes in the reverse order, as a training step runs them, so that the memory of
//! one pool serves all. A call copies the inputs that are elsewhere, replays, and gives the outputs, always the same ones.

use super::{capture::Mode, context};
use crate::{
    base::handle::{HandleTable, Kind},
    driver::{Span, types::CU_STREAM_PER_THREAD},
    error::{Context, Error, Result},
    memory::{self, PoolId, pool},
    ops::copy,
    runtime::{self, Runtime, sync_debug, tensor::Tensor, thread},
    sanitizer,
    status::Status,
    stream::{self, Stream, capture_lock},
};
use parking_lot::Mutex;

/// The most times that functions are run for warming up.
pub const MOST_WARMUPS: u32 = 1000;

/// A pass: it reads the first tensors and writes the second ones, in a stream.
pub type Pass<'a> = &'a dyn Fn(&[Tensor], &[Tensor], usize) -> Result<()>;

/// Is shown what a call writes to; the tensors stay where they are until the callable is reset. An error ends the call before
/// anything was launched.
pub type Give<'a> = &'a mut dyn FnMut(&[Tensor]) -> Result<()>;

/// A function to be captured.
pub struct Callable<'a> {
    /// From the inputs to the outputs.
    pub forward: Pass<'a>,
    /// From the outputs' gradients to the inputs'.
    pub backward: Option<Pass<'a>>,
    /// The inputs that are captured. Their memory stays the program's.
    pub inputs: Vec<Tensor>,
    /// For which inputs there is a gradient.
    pub differentiable: Vec<bool>,
    /// What the outputs are; they have no memory yet.
    pub outputs: Vec<Tensor>,
}

/// A pass that is captured.
#[derive(Default)]
struct Captured {
    /// The graph; 0 once it was given up.
    graph: u64,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
    /// The blocks that are its own.
    blocks: Vec<u64>,
}

/// What the table of callables holds.
#[derive(Default)]
pub struct Graphed(Mutex<Body>);

#[derive(Default)]
struct Body {
    forward: Option<Captured>,
    backward: Option<Captured>,
    device: u32,
    /// Whether a forward pass has run whose backward pass has not.
    pending: bool,
    /// The stream of the last call, which may read the inputs still, and the thread whose it is.
    last: Option<(Stream, u64)>,
}

static CALLABLES: HandleTable<Graphed> = HandleTable::new(Kind::GraphedCallable);

/// Warms functions up, captures them, and gives a handle for each.
pub fn make(callables: &[Callable], pool: PoolId, warmups: u32) -> Result<Vec<u64>> {
    let runtime = runtime::ready()?;
    let device = check(runtime, callables, warmups)?;
    sync_debug::check("plinth_make_graphed_callables")?;
    if stream::is_current_capturing()? {
        return Err(Error::new(Status::CAPTURE_FORBIDS, "the current stream is capturing"));
    }
    let pool = if pool == PoolId::DEFAULT { pool::new_id() } else { pool };
    warm_up(runtime, device, callables, warmups)?;
    let mut bodies: Vec<Body> = callables.iter().map(|_| Body { device, ..Body::default() }).collect();
    if let Err(error) = capture_all(device, callables, pool, &mut bodies) {
        // The error that counts is why there are no graphs.
        bodies.iter_mut().for_each(|body| drop(body.reset()));
        return Err(error);
    }
    let mut handles = Vec::with_capacity(bodies.len());
    let mut outcome = Ok(());
    for mut body in bodies {
        if outcome.is_ok() {
            let slot = &mut body;
            match CALLABLES.insert(|graphed| *graphed.0.lock() = std::mem::take(slot)) {
                Ok(handle) => handles.push(handle),
                Err(error) => outcome = Err(error),
            }
        }
        // What did not get a handle goes.
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
    if warmups > MOST_WARMUPS {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("warmup_count is {warmups}; it can be {MOST_WARMUPS} at most"),
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

/// Where a tensor's elements lie, if they fill one piece of memory, each in a place of its own.
fn extent(tensor: &Tensor) -> Result<(i64, usize)> {
    let mut dimensions: Vec<(i64, i64)> = (0..tensor.rank)
        .filter(|dimension| tensor.sizes[*dimension] != 1)
        .map(|dimension| (tensor.strides[dimension], tensor.sizes[dimension]))
        .collect();
    let bytes = tensor.element.bytes();
    if tensor.numel == 0 {
        return Ok((0, 0));
    }
    dimensions.sort_by_key(|(stride, _)| stride.unsigned_abs());
    let (mut expected, mut before) = (1_i64, 0_i64);
    for (stride, size) in dimensions {
        if stride.unsigned_abs() != expected.unsigned_abs() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "its elements do not fill one piece of memory, each in its own place; copy it to where they do",
            ));
        }
        if stride < 0 {
            before += stride * (size - 1);
        }
        expected = expected.saturating_mul(size);
    }
    Ok((before * bytes as i64, (tensor.numel * bytes) as usize))
}

/// A tensor's memory as one piece.
fn whole(tensor: &Tensor) -> Result<Span> {
    let (offset, bytes) = extent(tensor)?;
    Ok(tensor.memory.moved(offset).of_length(bytes))
}

/// Allocates tensors side by side, as `shapes` are, in the stream; their blocks go to `blocks`.
fn allocate(shapes: &[Tensor], stream: Stream, blocks: &mut Vec<u64>) -> Result<Vec<Tensor>> {
    let mut made = Vec::with_capacity(shapes.len());
    for (index, shape) in shapes.iter().enumerate() {
        let bytes = shape.numel * shape.element.bytes();
        let block = memory::caching_alloc(bytes, stream.device as i32, stream.raw)
            .context(|| format!("allocating output {index}"))?;
        blocks.push(block);
        made.push(dense(shape, Span::owned(block, bytes as usize)));
    }
    Ok(made)
}

/// A tensor of the same shape whose elements lie side by side.
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
    // They were allocated here, and each is given back once.
    blocks.drain(..).for_each(|block| drop(memory::caching_free(block)));
}

/// The gradients that a backward pass writes: those of no use have no elements.
fn gradients(callable: &Callable) -> Vec<Tensor> {
    let wanted = callable.inputs.iter().zip(&callable.differentiable);
    wanted.map(|(input, wanted)| Tensor { numel: if *wanted { input.numel } else { 0 }, ..*input }).collect()
}

/// Runs each function a few times in a stream of its own.
fn warm_up(runtime: &Runtime, device: u32, callables: &[Callable], warmups: u32) -> Result<()> {
    let synchronize =
        || runtime.device(device as i32)?.with_context(&runtime.driver, |driver| Ok(driver.context_synchronize()?));
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
                    let given = allocate(&callable.outputs, side, &mut blocks)?;
                    let wanted = allocate(&gradients(callable), side, &mut blocks)?;
                    backward(&given, &wanted, handle)?;
                }
                Ok(())
            })();
            free(&mut blocks);
            ran.map_err(|error: Error| error.context(format_args!("warming callables[{number}] up")))
        })
    });
    let exited = stream::exit(saved);
    outcome.and(exited)?;
    synchronize()
}

fn capture_all(device: u32, callables: &[Callable], pool: PoolId, bodies: &mut [Body]) -> Result<()> {
    for (number, (callable, body)) in callables.iter().zip(bodies.iter_mut()).enumerate() {
        let forward = body.forward.insert(Captured { inputs: callable.inputs.clone(), ..Captured::default() });
        forward
            .capture(device, pool, &callable.outputs, callable.forward)
            .context(|| format!("capturing the forward pass of callables[{number}]"))?;
    }
    for (number, (callable, body)) in callables.iter().zip(bodies.iter_mut()).enumerate().rev() {
        let Some(pass) = callable.backward else { continue };
        let backward = body.backward.insert(Captured::default());
        // What calls write to, beside the pool: torch's do the same.
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
        self.graph = super::create(0)?;
        let block = context::begin(self.graph, pool, None, Mode::Global)?;
        let captured = (|| {
            let stream = stream::current_on(runtime::ready()?, device)?;
            self.outputs = allocate(outputs, stream, &mut self.blocks)?;
            pass(&self.inputs, &self.outputs, stream.raw.handle())
        })();
        match captured {
            Ok(()) => context::end(block),
            Err(error) => {
                // The error that counts is the pass's.
                let _ = context::cancel(block);
                Err(error)
            }
        }
    }

    /// Copies what is elsewhere, and replays.
    fn run(&self, given: &[Tensor], stream: Stream, give: Give) -> Result<()> {
        if given.len() != self.inputs.len() {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("{} inputs were given, and {} captured", given.len(), self.inputs.len()),
            ));
        }
        let mut copies = Vec::new();
        for (index, (given, own)) in given.iter().zip(&self.inputs).enumerate() {
            if let Some(copy) = copy_of(given, own).context(|| format!("inputs[{index}]"))? {
                copies.push(copy);
            }
        }
        give(&self.outputs)?;
        let runtime = runtime::ready()?;
        for (to, from) in copies {
            sanitizer::access(runtime, stream, &[sanitizer::read(from), sanitizer::write(to)])?;
            copy::with_peer_access(stream.device, &[to, from], || {
                runtime.in_stream(stream, |driver, raw| Ok(driver.copy(to, from, raw)?))
            })
            .context(|| "copying an input")?;
        }
        super::replay::replay(self.graph)
    }

    fn reset(&mut self, last: Option<(Stream, u64)>) -> Result<()> {
        if self.graph != 0 {
            super::destroy(self.graph)?;
            self.graph = 0;
        }
        // What calls have written to is reused behind the last one.
        for block in self.blocks.iter().filter(|block| **block != 0) {
            let Some((last, owner)) = last else { break };
            let last = reachable(last, owner);
            let _ = memory::record_stream(*block, last.raw, last.device);
        }
        free(&mut self.blocks);
        Ok(())
    }
}

/// What has to be copied so that a captured input is what was given: nothing if it is that.
fn copy_of(given: &Tensor, own: &Tensor) -> Result<Option<(Span, Span)>> {
    let differs = |what: &str| Err(Error::new(Status::INVALID_VALUE, format!("its {what} is not the captured one's")));
    if given.device != own.device {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("it is on device {}, the captured one on device {}", given.device, own.device),
        ));
    }
    if given.element != own.element {
        return differs("type");
    }
    if given.sizes[..given.rank] != own.sizes[..own.rank] {
        return differs("shape");
    }
    let of_size = |dimension: &usize| own.sizes[*dimension] > 1;
    let same = (0..own.rank).filter(of_size).all(|dimension| given.strides[dimension] == own.strides[dimension]);
    if own.numel > 0 && !same {
        return differs("order of elements in memory");
    }
    if own.numel == 0 || given.memory.address() == own.memory.address() {
        return Ok(None);
    }
    Ok(Some((whole(own)?, whole(given)?)))
}

/// A stream, or one that comes after it: another thread's own default stream has no name here, and the legacy one waits for
/// it.
fn reachable(stream: Stream, owner: u64) -> Stream {
    let is_anothers = stream.raw.handle() == CU_STREAM_PER_THREAD && owner != thread::number();
    if is_anothers { stream.legacy() } else { stream }
}

impl Body {
    /// Lets the current stream of the device follow the last call, which may still read what is written now.
    fn follow(&mut self) -> Result<Stream> {
        let runtime = runtime::ready()?;
        let stream = stream::current_on(runtime, self.device)?;
        let _held = capture_lock::hold_off();
        if stream::is_capturing_checked(runtime, stream)? {
            return Err(Error::new(Status::CAPTURE_FORBIDS, "the current stream is capturing"));
        }
        if let Some((last, owner)) = self.last {
            let last = reachable(last, owner);
            if last.raw != stream.raw {
                if stream::is_capturing_checked(runtime, last)? {
                    return Err(Error::new(Status::CAPTURE_FORBIDS, "the stream of the last call is capturing"));
                }
                stream::order_outside(runtime, stream, last)?;
            }
        }
        self.last = Some((stream, thread::number()));
        Ok(stream)
    }

    fn call(&mut self, inputs: &[Tensor], give: Give) -> Result<()> {
        if self.forward.is_none() {
            return Err(gone());
        }
        let stream = self.follow()?;
        let Some(forward) = &self.forward else { return Err(gone()) };
        forward.run(inputs, stream, give)?;
        self.pending = true;
        Ok(())
    }

    fn backward(&mut self, given: &[Tensor], give: Give) -> Result<()> {
        if self.forward.is_none() {
            return Err(gone());
        }
        if self.backward.is_none() {
            return Err(Error::new(Status::INVALID_VALUE, "the callable was made without a backward pass"));
        }
        if !self.pending {
            return Err(Error::new(
                Status::INVALID_VALUE,
                "no forward pass has run since the last backward pass, which used up what that had left",
            ));
        }
        let stream = self.follow()?;
        let Some(backward) = &self.backward else { return Err(gone()) };
        backward.run(given, stream, give)?;
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
fn gone() -> Error {
    Error::new(Status::GRAPH_NOT_CAPTURED, "the callable was reset")
}

/// Runs a forward pass in the current stream.
pub fn call(handle: u64, inputs: &[Tensor], give: Give) -> Result<()> {
    CALLABLES.get(handle)?.0.lock().call(inputs, give).context(|| "calling a graphed callable")
}

/// Runs the backward pass of the last forward pass in the current stream.
pub fn backward(handle: u64, gradients: &[Tensor], give: Give) -> Result<()> {
    CALLABLES
        .get(handle)?
        .0
        .lock()
        .backward(gradients, give)
        .context(|| "calling the backward pass of a graphed callable")
}

/// The pool that the callable shares with those that were made with it.
pub fn pool(handle: u64) -> Result<PoolId> {
    let body = CALLABLES.get(handle)?.0.lock();
    super::pool(body.forward.as_ref().ok_or_else(gone)?.graph)
}

/// Gives up graphs and memory of a callable.
pub fn reset(handle: u64) -> Result<()> {
    CALLABLES.get(handle)?.0.lock().reset().context(|| "resetting a graphed callable")
}

/// The same, and ends the handle.
pub fn destroy(handle: u64) -> Result<()> {
    reset(handle)?;
    CALLABLES.remove(handle, |graphed| *graphed.0.lock() = Body::default())
}

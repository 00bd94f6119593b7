//! Graphed callables
//!
//! Captures the forward and backward pass of functions of the program as graphs: torch.cuda.make_graphed_callables.
//!
//! The caller owns a graphed callable and destroys it. Its inputs are the program's. Its outputs belong to its graphs:
//! they are overwritten by later calls of the callables that were captured together. The program's functions are called
//! only while plinth_make_graphed_callables runs, by the thread that called it. Calls of one callable wait for each
//! other.

use crate::{
    error::{Context, Error, Result},
    ffi::{
        Output,
        graph::{name_of, pool_of},
        guard::{self, guard},
        null, plinth_stream_t,
        pool::plinth_pool_id_t,
        status::{PLINTH_OK, plinth_status_t},
        tensor::{DLTensor, described, tensor, to_c as tensor_to_c},
    },
    graph::callable::{self, Callable},
    status::Status,
    tensor::Tensor,
};
use std::ffi::c_void;

/// How often torch runs a callable before it captures it.
pub const PLINTH_CALLABLE_WARMUPS: u32 = 3;
/// How often torch does where gradients are averaged over processes (DistributedDataParallel).
pub const PLINTH_CALLABLE_WARMUPS_DDP: u32 = 11;

/// A function of the program's that was captured. Opaque, and checked: a handle that was destroyed, is of another kind, or
/// never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_graphed_callable {
    _private: [u8; 0],
}

/// The handle of a graphed callable.
#[allow(non_camel_case_types)]
pub type plinth_graphed_callable_t = *mut plinth_graphed_callable;

/// A pass of a callable: gives work to the stream, which is current, that reads the inputs and writes the outputs. It is
/// called only while plinth_make_graphed_callables runs: a few times for warming up, then once to be captured, when it must
/// do what it will do at each call, without waiting for the device. What it allocates from the caching allocator in between
/// comes from the graphs' pool. It must not unwind or throw. Anything but PLINTH_OK ends plinth_make_graphed_callables with
/// that status.
#[allow(non_camel_case_types)]
pub type plinth_callable_fn = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        inputs: *const DLTensor,
        input_count: usize,
        outputs: *mut DLTensor,
        output_count: usize,
        stream: plinth_stream_t,
    ) -> plinth_status_t,
>;

/// A function of the program's, and what it is captured with.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct plinth_callable_t {
    /// From the inputs to the outputs.
    pub forward: plinth_callable_fn,
    /// From the gradients of the outputs to those of the inputs; NULL if there is none. What it needs of the forward pass
    /// that one must leave where both know.
    pub backward: plinth_callable_fn,
    /// Passed to both.
    pub context: *mut c_void,
    /// The inputs that are captured. Their memory stays the program's, and valid until the callable is destroyed: a call
    /// copies other inputs there. Each fills one piece of memory.
    pub inputs: *const DLTensor,
    /// How many inputs.
    pub input_count: usize,
    /// What the outputs are: device, type and shape. Data and strides are not looked at: the library allocates outputs in the
    /// graphs' pool, with their elements side by side.
    pub outputs: *const DLTensor,
    /// How many outputs.
    pub output_count: usize,
    /// For each input whether the backward pass gives its gradient; NULL if it does for all. A gradient that it does not
    /// give has NULL for data.
    pub differentiable: *const bool,
}

fn handle(callable: plinth_graphed_callable_t) -> Result<u64> {
    if callable.is_null() { Err(null("callable")) } else { Ok(callable as u64) }
}

/// Tensors that C lists.
///
/// # Safety
/// `list` is NULL or leads to `count` tensors, each as [`tensor`] asks.
unsafe fn tensors(list: *const DLTensor, count: usize, name: &str) -> Result<Vec<Tensor>> {
    if count > 0 && list.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise, and the list is not NULL if there are any.
    (0..count).map(|index| unsafe { tensor(list.add(index), &format!("{name}[{index}]")) }).collect()
}

/// A pass as the core calls it.
fn pass(
    function: unsafe extern "C" fn(
        *mut c_void,
        *const DLTensor,
        usize,
        *mut DLTensor,
        usize,
        plinth_stream_t,
    ) -> plinth_status_t,
    context: *mut c_void,
    what: &'static str,
) -> impl Fn(&[Tensor], &[Tensor], usize) -> Result<()> {
    move |inputs, outputs, stream| {
        let inputs: Vec<DLTensor> = inputs.iter().map(tensor_to_c).collect();
        let mut outputs: Vec<DLTensor> = outputs.iter().map(tensor_to_c).collect();
        let (given, written) = (inputs.as_ptr(), outputs.as_mut_ptr());
        // SAFETY: the caller of plinth_make_graphed_callables promises that the function may be called so; the lists live until
        // it has returned.
        let status =
            unsafe { function(context, given, inputs.len(), written, outputs.len(), stream as plinth_stream_t) };
        if status == PLINTH_OK {
            return Ok(());
        }
        let otherwise = format!("it returned {status}");
        Err(guard::last_error(Status(status), &otherwise).context(format_args!("the {what} pass failed")))
    }
}

type OwnPass = Box<dyn Fn(&[Tensor], &[Tensor], usize) -> Result<()>>;

/// A callable with what the core needs kept alive beside it.
struct Described {
    forward: OwnPass,
    backward: Option<OwnPass>,
    inputs: Vec<Tensor>,
    differentiable: Vec<bool>,
    outputs: Vec<Tensor>,
}

/// # Safety
/// The description is one as plinth_callable_t's comments say.
unsafe fn describe(callable: &plinth_callable_t) -> Result<Described> {
    let context = callable.context;
    let forward = callable.forward.ok_or_else(|| null("forward"))?;
    // SAFETY: the caller's promise.
    let inputs = unsafe { tensors(callable.inputs, callable.input_count, "inputs") }?;
    if callable.output_count > 0 && callable.outputs.is_null() {
        return Err(null("outputs"));
    }
    let mut outputs = Vec::with_capacity(callable.output_count.min(1024));
    for index in 0..callable.output_count {
        // SAFETY: the caller promises that many outputs.
        outputs.push(unsafe { described(callable.outputs.add(index), &format!("outputs[{index}]")) }?);
    }
    let differentiable = if callable.differentiable.is_null() {
        vec![true; inputs.len()]
    } else {
        // SAFETY: it is not NULL, so the caller promises an answer for each input. Any byte but 0 is a yes.
        (0..inputs.len()).map(|index| unsafe { callable.differentiable.cast::<u8>().add(index).read() } != 0).collect()
    };
    Ok(Described {
        forward: Box::new(pass(forward, context, "forward")),
        backward: callable.backward.map(|backward| Box::new(pass(backward, context, "backward")) as OwnPass),
        inputs,
        differentiable,
        outputs,
    })
}

/// Captures functions of the program's as graphs: torch.cuda.make_graphed_callables. Each is run `warmup_count` times in a
/// stream of its own, forward and backward. Then all forward passes are captured in their order, and all backward passes in the
/// reverse order, in one pool: so they must be called in that order, too, as one step of a training calls them. The device is
/// waited for before and after warming up, and before each capture.
///
/// The graphs reuse each other's memory: what one leaves in its outputs is good until the graphs before it in that order are
/// called again. Their calls never overlap; in another stream than the last one they wait for it.
///
/// @param callables The functions, all of the current device.
/// @param count How many; not 0.
/// @param pool The pool, as in plinth_graph_capture_begin; NULL for a new one.
/// @param warmup_count How often each is run before; torch's default is PLINTH_CALLABLE_WARMUPS. 1000 at most.
/// @param graphed Out: a callable for each, in their order. The caller owns them and destroys each with
///        plinth_graphed_callable_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a count of 0, for more warm-ups, and for a
///         tensor that is malformed, or an input that does not fill one piece of memory; PLINTH_ERROR_DEVICE_MISMATCH for a
///         tensor of another device; what a pass returned, with the message of its last call; PLINTH_ERROR_GRAPH_EMPTY for a
///         pass that gives the device nothing to do; PLINTH_ERROR_CAPTURE_FORBIDS where the current stream captures; those of
///         plinth_graph_begin and plinth_graph_end. After an error nothing is left of any of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_make_graphed_callables(
    callables: *const plinth_callable_t,
    count: usize,
    pool: *const plinth_pool_id_t,
    warmup_count: u32,
    graphed: *mut plinth_graphed_callable_t,
) -> plinth_status_t {
    guard(|| {
        if callables.is_null() {
            return Err(null("callables"));
        }
        if graphed.is_null() {
            return Err(null("graphed"));
        }
        let mut all = Vec::with_capacity(count.min(1024));
        for index in 0..count {
            // SAFETY: the caller passes that many descriptions.
            let described = unsafe { describe(&*callables.add(index)) };
            all.push(described.context(|| format!("callables[{index}]"))?);
        }
        // SAFETY: the caller passes NULL or a name.
        let pool = unsafe { pool_of(pool) };
        let all: Vec<Callable> = all
            .iter()
            .map(|described| Callable {
                forward: &*described.forward,
                backward: described.backward.as_deref(),
                inputs: described.inputs.clone(),
                differentiable: described.differentiable.clone(),
                outputs: described.outputs.clone(),
            })
            .collect();
        let handles = callable::make(&all, pool, warmup_count)?;
        for (index, handle) in handles.into_iter().enumerate() {
            // SAFETY: the caller has room for that many, and this is one of them.
            unsafe { graphed.add(index).write(handle as plinth_graphed_callable_t) };
        }
        Ok(())
    })
}

/// Tensors for C to be written to `list` when the call has succeeded.
fn collect(found: &[Tensor], list: *mut DLTensor, count: usize, name: &str) -> Result<Vec<DLTensor>> {
    if count != found.len() {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("there is room for {count} {name}, and there are {}", found.len()),
        ));
    }
    if list.is_null() && count > 0 {
        return Err(null(name));
    }
    Ok(found.iter().map(tensor_to_c).collect())
}

/// # Safety
/// `list` has room for as many tensors.
unsafe fn write(tensors: Vec<DLTensor>, list: *mut DLTensor) {
    for (index, tensor) in tensors.into_iter().enumerate() {
        // SAFETY: the caller has room for that many, and this is one of them.
        unsafe { list.add(index).write(tensor) };
    }
}

/// Calls a graphed callable in the current stream of its device: copies each input whose data is not that of the captured one,
/// and replays. Returns before that is done. The outputs are at the same addresses at each call, and the next call of this or
/// another callable of the pool writes there. A program that writes its inputs to where they were captured saves the copies.
/// Thread-safe; calls of one callable follow one another.
///
/// @param callable The callable.
/// @param inputs The inputs: each of the device, type, shape and strides of the captured one.
/// @param input_count How many; as many as were captured.
/// @param outputs Out: the outputs. Their memory, shapes and strides are the library's until the callable is reset or destroyed.
/// @param output_count How many; as many as were described.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other counts, and
///         for an input of another type, shape or order in memory; PLINTH_ERROR_DEVICE_MISMATCH;
///         PLINTH_ERROR_GRAPH_NOT_CAPTURED for a callable that was reset; PLINTH_ERROR_CAPTURE_FORBIDS where the current
///         stream captures; those of plinth_graph_replay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_call(
    callable: plinth_graphed_callable_t,
    inputs: *const DLTensor,
    input_count: usize,
    outputs: *mut DLTensor,
    output_count: usize,
) -> plinth_status_t {
    guard(|| {
        let callable = handle(callable)?;
        // SAFETY: the caller passes NULL or that many tensors, and NULL or room for as many.
        unsafe {
            let inputs = tensors(inputs, input_count, "inputs")?;
            let mut given = Vec::new();
            callable::call(callable, &inputs, &mut |found| {
                given = collect(found, outputs, output_count, "outputs")?;
                Ok(())
            })?;
            write(given, outputs);
            Ok(())
        }
    })
}

/// Calls the backward pass of a graphed callable in the same way, once after each call of the forward pass, whose results it uses
/// up.
///
/// @param callable The callable, which was made with a backward pass.
/// @param output_gradients The gradients of the outputs, with their elements side by side.
/// @param output_count How many; as many as there are outputs.
/// @param input_gradients Out: the gradients of the inputs; data is NULL for those that are not differentiable. The rest as for
///        the outputs of plinth_graphed_callable_call.
/// @param input_count How many; as many as there are inputs.
/// @return As plinth_graphed_callable_call; PLINTH_ERROR_INVALID_VALUE for a callable without a backward pass, and where no
///         forward pass came before, or since the last backward pass.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_backward(
    callable: plinth_graphed_callable_t,
    output_gradients: *const DLTensor,
    output_count: usize,
    input_gradients: *mut DLTensor,
    input_count: usize,
) -> plinth_status_t {
    guard(|| {
        let callable = handle(callable)?;
        // SAFETY: the caller passes NULL or that many tensors, and NULL or room for as many.
        unsafe {
            let gradients = tensors(output_gradients, output_count, "output_gradients")?;
            let mut given = Vec::new();
            callable::backward(callable, &gradients, &mut |found| {
                given = collect(found, input_gradients, input_count, "input_gradients")?;
                Ok(())
            })?;
            write(given, input_gradients);
            Ok(())
        }
    })
}

/// Tells the pool that a graphed callable shares with those that were made with it, and that other graphs can share.
///
/// @param callable The callable.
/// @param pool Out: its name.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED for one that was
///         reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_pool(
    callable: plinth_graphed_callable_t,
    pool: *mut plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the name.
        let pool = unsafe { Output::new(pool, "pool") }?;
        pool.set(name_of(callable::pool(handle(callable)?)?));
        Ok(())
    })
}

/// Gives up the graphs of a callable, and its outputs. What runs finishes. Does nothing to one that was reset.
///
/// @param callable The callable.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the call can be made again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_reset(callable: plinth_graphed_callable_t) -> plinth_status_t {
    guard(|| callable::reset(handle(callable)?))
}

/// Destroys a graphed callable, as plinth_graphed_callable_reset leaves it. It must not be destroyed while another thread is in a
/// call with it.
///
/// @param callable The callable; NULL does nothing.
/// @return As plinth_graphed_callable_reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_destroy(callable: plinth_graphed_callable_t) -> plinth_status_t {
    guard(|| if callable.is_null() { Ok(()) } else { callable::destroy(callable as u64) })
}

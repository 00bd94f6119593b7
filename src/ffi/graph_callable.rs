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
        Output, array,
        graph::{name_of, pool_of},
        guard::{self, guard, release},
        handle, null, plinth_stream_t,
        pool::plinth_pool_id_t,
        status::plinth_status_t,
        structs::StructList,
        tensor::{self, DLTensor, described, to_c as tensor_to_c},
    },
    graph::callable::{self, Callable},
    runtime::tensor::Tensor,
    status::Status,
};
use std::{ffi::c_void, ptr};

/// The number of times that torch runs a callable before it captures it.
pub const PLINTH_CALLABLE_WARMUPS: u32 = 3;
/// The number of times that torch runs a callable before it captures it if gradients are averaged over processes
/// (DistributedDataParallel).
pub const PLINTH_CALLABLE_WARMUPS_DDP: u32 = 11;

/// A function of the program that was captured as a graph.
///
/// The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
/// is of another kind, or that never was a handle.
#[allow(non_camel_case_types)]
pub struct plinth_graphed_callable {
    _private: [u8; 0],
}

/// The handle of a graphed callable.
#[allow(non_camel_case_types)]
pub type plinth_graphed_callable_t = *mut plinth_graphed_callable;

/// The forward or backward pass of a callable. It adds work to the stream, which is the current one, that reads the
/// inputs and writes the outputs.
///
/// plinth_make_graphed_callables calls it a few times to warm up, then once to capture it; it is not called later.
/// During the capture it must do what each call of the graphed callable shall do, and must not wait for the device.
/// Memory that it allocates from the caching allocator during the capture comes from the graphs' pool. It must not
/// unwind or throw. If it does not return PLINTH_OK, plinth_make_graphed_callables fails with its status.
#[allow(non_camel_case_types)]
pub type plinth_callable_callback_t = Option<
    unsafe extern "C" fn(
        inputs: *const DLTensor,
        input_count: usize,
        outputs: *mut DLTensor,
        output_count: usize,
        stream: plinth_stream_t,
        context: *mut c_void,
    ) -> plinth_status_t,
>;

/// A function of the program, and the tensors with which it is captured.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_callable_t {
    /// sizeof(plinth_callable_t) in the caller's version of the header.
    pub struct_size: usize,
    /// Computes the outputs from the inputs.
    pub forward: plinth_callable_callback_t,
    /// Computes the gradients of the inputs from those of the outputs; NULL if there is no backward pass. The forward
    /// pass must store the values that the backward pass needs where both can find them.
    pub backward: plinth_callable_callback_t,
    /// Passed to both functions.
    pub context: *mut c_void,
    /// The inputs of the capture. Their memory belongs to the program and must stay valid until the callable is
    /// destroyed: a call copies other inputs there. Each input must be dense: its elements fill one contiguous range
    /// of memory.
    pub inputs: *const DLTensor,
    /// The number of inputs.
    pub input_count: usize,
    /// Descriptions of the outputs: device, type and shape. Data and strides are ignored: the library allocates
    /// contiguous outputs in the graphs' pool.
    pub outputs: *const DLTensor,
    /// The number of outputs.
    pub output_count: usize,
    /// For each input, whether the backward pass computes its gradient; NULL if it does for all inputs. The DLTensor
    /// of a gradient that is not computed has NULL data.
    pub differentiable: *const bool,
}

/// Wraps a pass of the program in a closure for the core.
fn pass(
    function: unsafe extern "C" fn(
        *const DLTensor,
        usize,
        *mut DLTensor,
        usize,
        plinth_stream_t,
        *mut c_void,
    ) -> plinth_status_t,
    context: *mut c_void,
    what: &'static str,
) -> impl Fn(&[Tensor], &[Tensor], usize) -> Result<()> {
    move |inputs, outputs, stream| {
        let inputs: Vec<DLTensor> = inputs.iter().map(tensor_to_c).collect();
        let mut outputs: Vec<DLTensor> = outputs.iter().map(tensor_to_c).collect();
        let (given, written) = (inputs.as_ptr(), outputs.as_mut_ptr());
        // SAFETY: the caller of plinth_make_graphed_callables promises that the function may be called so; the lists
        // live until it has returned.
        let call =
            || unsafe { function(given, inputs.len(), written, outputs.len(), stream as plinth_stream_t, context) };
        guard::call_back("the function", call).context(|| format!("running the {what} pass"))
    }
}

type OwnPass = Box<dyn Fn(&[Tensor], &[Tensor], usize) -> Result<()>>;

/// A callable that is converted from C. It owns the closures that the core calls.
struct Described {
    forward: OwnPass,
    backward: Option<OwnPass>,
    inputs: Vec<Tensor>,
    differentiable: Vec<bool>,
    outputs: Vec<Tensor>,
}

/// Converts a callable from C.
///
/// # Safety
/// The description is valid as the comments of plinth_callable_t require.
unsafe fn describe(callable: &plinth_callable_t) -> Result<Described> {
    let context = callable.context;
    let forward = callable.forward.ok_or_else(|| null("forward"))?;
    // SAFETY: the caller's promise.
    let inputs = unsafe { tensor::list(callable.inputs, callable.input_count, "inputs") }?;
    // SAFETY: likewise.
    let outputs = unsafe { array(callable.outputs, callable.output_count, "outputs") }?.iter().enumerate();
    // SAFETY: likewise.
    let outputs = outputs.map(|(index, output)| unsafe { described(output, &format!("outputs[{index}]")) });
    let outputs = outputs.collect::<Result<_>>()?;
    let differentiable = if callable.differentiable.is_null() {
        vec![true; inputs.len()]
    } else {
        // SAFETY: it is not NULL, so the caller promises a bool for each input. Any byte other than 0 means true.
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

/// Captures functions of the program as graphs: torch.cuda.make_graphed_callables.
///
/// Each function runs `warmup_count` times, forward and backward, in a stream other than the current one. Then all
/// forward passes are captured in order, and all backward passes in reverse order, in one pool. The graphed callables
/// must therefore be called in that order, as in a training step. The call synchronizes the device before and after
/// the warm-up, and before each capture.
///
/// The graphs reuse each other's memory: the outputs of a graph are valid until the graphs before it in that order
/// are called again. Their calls never overlap; a call in another stream than the last one waits for the last one.
///
/// @param callables The functions, all of the current device.
/// @param count The number of functions; not 0.
/// @param pool The pool, as in plinth_graph_capture_begin; NULL for a new one.
/// @param warmup_count The number of warm-up runs of each function, at most 1000; torch's default is
///        PLINTH_CALLABLE_WARMUPS.
/// @param graphed Out: a graphed callable for each function, in the same order. The caller owns them and destroys
///        each with plinth_graphed_callable_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a count of 0, for too many warm-up
///         runs, for a malformed tensor, and for an input that is not dense; PLINTH_ERROR_DEVICE_MISMATCH for a
///         tensor of another device; the status that a pass returned, with the message of the pass's last call if that
///         failed with this status; PLINTH_ERROR_CAPTURE_FORBIDS if the current stream captures; the errors of
///         plinth_graph_begin and plinth_graph_end. After an error no graphed callable
///         exists.
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
        let initial = plinth_callable_t {
            struct_size: 0,
            forward: None,
            backward: None,
            context: ptr::null_mut(),
            inputs: ptr::null(),
            input_count: 0,
            outputs: ptr::null(),
            output_count: 0,
            differentiable: ptr::null(),
        };
        // SAFETY: the caller passes that many descriptions.
        let callables = unsafe { StructList::new(callables, count, initial, "callables") }?;
        let mut all = Vec::with_capacity(count.min(1024));
        for index in 0..count {
            // SAFETY: the caller passes valid descriptions.
            let described = unsafe { describe(&callables.get(index)?) };
            all.push(described.context(|| format!("callables[{index}]"))?);
        }
        // SAFETY: the caller passes NULL or a pool id.
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

/// Checks the size of the caller's list and converts the tensors for C. The caller of this function writes them to
/// `list` after the call has succeeded.
fn collect(found: &[Tensor], list: *mut DLTensor, count: usize, name: &str) -> Result<Vec<DLTensor>> {
    if count != found.len() {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("there is room for {count} {name}; the callable has {}", found.len()),
        ));
    }
    if list.is_null() && count > 0 {
        return Err(null(name));
    }
    Ok(found.iter().map(tensor_to_c).collect())
}

/// Writes tensors to C's list.
///
/// # Safety
/// `list` has room for that many tensors.
unsafe fn write(tensors: Vec<DLTensor>, list: *mut DLTensor) {
    for (index, tensor) in tensors.into_iter().enumerate() {
        // SAFETY: the caller has room for that many, and this is one of them.
        unsafe { list.add(index).write(tensor) };
    }
}

/// Calls a graphed callable in the current stream of its device.
///
/// The call copies each input whose data pointer differs from that of the captured one, replays the graph, and
/// returns before the work is done. The outputs have the same addresses at each call. The next call of this or
/// another callable of the pool overwrites them. A program that writes its inputs directly to the captured memory
/// avoids the copies. Calls of one callable are serialized.
///
/// @param callable The callable.
/// @param inputs The inputs, each with the device, type, shape and strides of the captured one.
/// @param input_count The number of inputs; must equal the captured number.
/// @param outputs Out: the outputs. Their memory, shapes and strides belong to the library and are valid until the
///        callable is reset or destroyed.
/// @param output_count The number of outputs; must equal the described number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for other
///         counts, and for an input of another type, shape or memory layout; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a callable that was reset;
///         PLINTH_ERROR_CAPTURE_FORBIDS if the current stream captures; the errors of plinth_graph_replay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_call(
    callable: plinth_graphed_callable_t,
    inputs: *const DLTensor,
    input_count: usize,
    outputs: *mut DLTensor,
    output_count: usize,
) -> plinth_status_t {
    guard(|| {
        let callable = handle(callable, "callable")?;
        // SAFETY: the caller passes NULL or arrays with the passed numbers of elements.
        unsafe {
            let inputs = tensor::list(inputs, input_count, "inputs")?;
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

/// Calls the backward pass of a graphed callable, in the same way as plinth_graphed_callable_call.
///
/// Call it at most once after each call of the forward pass: it consumes the results of the forward pass.
///
/// @param callable The callable, which must have a backward pass.
/// @param output_gradients The gradients of the outputs; contiguous.
/// @param output_count The number of output gradients; must equal the number of outputs.
/// @param input_gradients Out: the gradients of the inputs; data is NULL for inputs that are not differentiable.
///        Ownership and validity are those of the outputs of plinth_graphed_callable_call.
/// @param input_count The number of input gradients; must equal the number of inputs.
/// @return As plinth_graphed_callable_call; PLINTH_ERROR_INVALID_VALUE for a callable without a backward pass, and if
///         the forward pass was not called since the last backward pass.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_backward(
    callable: plinth_graphed_callable_t,
    output_gradients: *const DLTensor,
    output_count: usize,
    input_gradients: *mut DLTensor,
    input_count: usize,
) -> plinth_status_t {
    guard(|| {
        let callable = handle(callable, "callable")?;
        // SAFETY: the caller passes NULL or arrays with the passed numbers of elements.
        unsafe {
            let gradients = tensor::list(output_gradients, output_count, "output_gradients")?;
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

/// Gets the pool of a graphed callable. All callables of one plinth_make_graphed_callables share it, and other graphs
/// can share it too.
///
/// @param callable The callable.
/// @param pool Out: the pool id.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GRAPH_NOT_CAPTURED for a
///         callable that was reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_pool(
    callable: plinth_graphed_callable_t,
    pool: *mut plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let pool = unsafe { Output::new(pool, "pool") }?;
        pool.set(name_of(callable::pool(handle(callable, "callable")?)?));
        Ok(())
    })
}

/// Releases the graphs and the outputs of a callable. Running work finishes. Does nothing for a callable that was
/// reset.
///
/// @param callable The callable.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the call can be
///         repeated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_reset(callable: plinth_graphed_callable_t) -> plinth_status_t {
    guard(|| callable::reset(handle(callable, "callable")?))
}

/// Resets a graphed callable, as plinth_graphed_callable_reset does, and destroys its handle.
///
/// @param callable The callable; NULL does nothing.
/// @return As plinth_graphed_callable_reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_graphed_callable_destroy(callable: plinth_graphed_callable_t) -> plinth_status_t {
    release(|| if callable.is_null() { Ok(()) } else { callable::destroy(callable as u64) })
}

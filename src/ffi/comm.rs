//! Collectives between the devices of a process
//!
//! Broadcast, reduce, scatter and gather between devices of one process, made by one thread: torch.cuda.comm. For
//! several processes, see communicator.h.
//!
//! The tensors are the caller's. Where a function makes an output, the caller owns its memory and frees it with
//! plinth_caching_allocator_delete. The work is ordered on the calling thread's current streams of all devices that
//! take part. The order of sums and the thresholds hold for the whole process.

use crate::{
    collectives::devices::{
        broadcast, exchange,
        outputs::Output as Target,
        reduce,
        tuning::{self, Threshold},
    },
    error::{Error, Result, invalid},
    ffi::{
        Output, array,
        guard::guard,
        null, optional_array, plinth_stream_t,
        status::plinth_status_t,
        tensor::{CPU, CUDA, CUDA_HOST, DLDataType, DLDevice, DLTensor, device_number, set_anywhere, tensor_anywhere},
    },
    runtime::{
        self,
        tensor::{ElementType, Tensor},
        thread,
    },
    status::Status,
};

/// Adds in the order of the tensors. Sums of 8- and 16-bit floats are computed in float32 and rounded once, at the end. Only
/// if more than 506 tensors are added is the sum of the first 506 rounded as well, and then again after every 505
/// more.
pub const PLINTH_COMM_ORDER_LIST: i32 = 0;
/// Adds as torch does: the tensor on the destination (the last one if there are several) first, then the others in
/// their order. Each partial sum is rounded to the tensors' type.
pub const PLINTH_COMM_ORDER_TORCH: i32 = 1;

/// The message size in bytes from which a broadcast is split: each receiver fetches a part and writes it to all
/// receivers.
pub const PLINTH_COMM_BROADCAST_SPLIT: i32 = 0;
/// The message size in bytes from which a sum is split: every device except the destination adds a part.
pub const PLINTH_COMM_REDUCE_SPLIT: i32 = 1;
/// The message size in bytes from which every rank does part of the work of a collective whose result all ranks
/// receive. Applies to collectives between devices of this process.
pub const PLINTH_COMM_EXCHANGE_SPLIT: i32 = 2;
/// The size in bytes of a contiguous run from which a scatter or a gather uses the copy engines.
pub const PLINTH_COMM_COPY_ENGINE: i32 = 3;

/// Returns an element type for copies. Only the width of the elements matters, so a copy also accepts types that the
/// library does not know.
fn by_width(dtype: DLDataType, name: &str) -> Result<ElementType> {
    if let Ok(known) = dtype.element(name) {
        return Ok(known);
    }
    match u64::from(dtype.bits) * u64::from(dtype.lanes) {
        8 => Ok(ElementType::U8),
        16 => Ok(ElementType::U16),
        32 => Ok(ElementType::U32),
        64 => Ok(ElementType::U64),
        128 => Ok(ElementType::Complex128),
        bits => Err(invalid(format!(
            "{name}: elements of {bits} bits cannot be copied; use elements of 8, 16, 32, 64 or 128 bits"
        ))),
    }
}

/// Converts an element type for an operation: [`computable`] accepts types that kernels compute with, [`by_width`]
/// any type with a copyable width.
type ElementOf = fn(DLDataType, &str) -> Result<ElementType>;

fn computable(dtype: DLDataType, name: &str) -> Result<ElementType> {
    dtype.element(name)
}

/// Returns the tensor that C describes, on a device or in CPU memory.
///
/// # Safety
/// As [`crate::ffi::tensor::tensor`].
unsafe fn tensor_of(described: &DLTensor, element_of: ElementOf, name: &str) -> Result<Tensor> {
    // SAFETY: the caller's promise.
    unsafe { tensor_anywhere(described, element_of(described.dtype, name)?, name) }
}

/// Returns the tensors that an array describes, and the descriptions.
///
/// # Safety
/// As [`array`], and as [`tensor_of`] for each element.
unsafe fn tensors<'a>(
    first: *const DLTensor,
    count: usize,
    element_of: ElementOf,
    name: &str,
) -> Result<(Vec<Tensor>, &'a [DLTensor])> {
    // SAFETY: the caller's promise.
    let described = unsafe { array(first, count, name) }?;
    let mut tensors = vec![Tensor::UNSET; described.len()];
    for (index, (tensor, one)) in tensors.iter_mut().zip(described).enumerate() {
        let element = element_of(one.dtype, "tensor");
        // SAFETY: as above.
        let set = element.and_then(|element| unsafe { set_anywhere(tensor, one, element, "tensor") });
        set.map_err(|error| error.context(format!("{name}[{index}]")))?;
    }
    Ok((tensors, described))
}

fn is_same(one: DLDataType, other: DLDataType) -> bool {
    (one.code, one.bits, one.lanes) == (other.code, other.bits, other.lanes)
}

/// Returns an error if the types of two tensors differ. Comparing widths is not enough.
fn check_type(one: &DLTensor, other: &DLTensor, name: impl Fn() -> String) -> Result<()> {
    if is_same(one.dtype, other.dtype) {
        return Ok(());
    }
    let [one, other] = [one.dtype, other.dtype];
    Err(invalid(format!(
        "{} has elements of DLPack type code {} with {} bits; it must have type code {} with {} bits",
        name(),
        one.code,
        one.bits,
        other.code,
        other.bits
    )))
}

/// Returns the output of an operation: the described tensor, or a request to create one if its data is NULL.
///
/// # Safety
/// As [`tensor_of`].
unsafe fn target(described: &DLTensor, like: &DLTensor, element_of: ElementOf, name: &str) -> Result<Target> {
    let mut target = Target::Existing(Tensor::UNSET);
    // SAFETY: the caller's promise.
    unsafe { set_target(&mut target, described, like, element_of, name) }?;
    Ok(target)
}

/// Does the same in place, in an existing output; see [`Tensor::set`].
///
/// # Safety
/// As [`tensor_of`].
unsafe fn set_target(
    target: &mut Target,
    described: &DLTensor,
    like: &DLTensor,
    element_of: ElementOf,
    name: &str,
) -> Result<()> {
    // Outputs in CPU memory are never created; an empty CPU tensor may have NULL data.
    if let Target::Existing(tensor) = target
        && (!described.data.is_null() || matches!(described.device.device_type, CPU | CUDA_HOST))
    {
        check_type(described, like, || name.into())?;
        // SAFETY: the caller's promise.
        return unsafe { set_anywhere(tensor, described, element_of(described.dtype, name)?, name) };
    }
    if described.device.device_type != CUDA {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{name}->data is NULL, and only outputs on CUDA devices (kDLCUDA) are created; pass memory"),
        ));
    }
    if described.ndim != like.ndim {
        return Err(invalid(format!("{name}->ndim is {}; it must be {}", described.ndim, like.ndim)));
    }
    if described.ndim > 0 && described.shape.is_null() {
        return Err(null(&format!("{name}->shape")));
    }
    let device = match described.device.device_id {
        -1 => thread::device(),
        number => device_number(number, name)?,
    };
    runtime::ready()?.device(device as i32)?;
    *target = Target::Allocate { device, any_strides: !described.strides.is_null() };
    Ok(())
}

/// Returns the outputs of an operation, each compared with the tensor that `like` returns for its index.
///
/// # Safety
/// As [`array`], and as [`tensor_of`] for each element.
unsafe fn targets<'a>(
    first: *mut DLTensor,
    count: usize,
    like: impl Fn(usize) -> &'a DLTensor,
    element_of: ElementOf,
) -> Result<Vec<Target>> {
    // SAFETY: the caller's promise.
    let described = unsafe { array(first.cast_const(), count, "outputs") }?;
    let mut targets = vec![Target::Existing(Tensor::UNSET); described.len()];
    for (index, (target, one)) in targets.iter_mut().zip(described).enumerate() {
        // SAFETY: as above.
        unsafe { set_target(target, one, like(index), element_of, "tensor") }
            .map_err(|error| error.context(format!("outputs[{index}]")))?;
    }
    Ok(targets)
}

/// Writes the descriptions of the created tensors to the caller's structs.
///
/// # Safety
/// `first` points to as many descriptions as there are targets. Each description whose target was to be created was
/// checked to have room for a shape, and has room for strides unless they are NULL.
unsafe fn describe_created(first: *mut DLTensor, targets: &[Target], dtype: impl Fn(usize) -> DLDataType) {
    for (index, target) in targets.iter().enumerate() {
        let Target::Made(tensor) = target else { continue };
        // SAFETY: the caller's promise, for this and what is written below.
        unsafe {
            let out = &mut *first.add(index);
            out.data = match tensor.numel {
                0 => std::ptr::null_mut(),
                _ => tensor.memory.address() as *mut std::ffi::c_void,
            };
            out.device = DLDevice { device_type: CUDA, device_id: tensor.device as i32 };
            out.dtype = dtype(index);
            out.byte_offset = 0;
            for dimension in 0..tensor.rank {
                out.shape.add(dimension).write(tensor.sizes[dimension]);
                if !out.strides.is_null() {
                    out.strides.add(dimension).write(tensor.strides[dimension]);
                }
            }
        }
    }
}

/// Copies a tensor to other devices, as torch.cuda.comm.broadcast does.
///
/// These rules hold for all plinth_comm_ functions:
/// - Tensors may have any shape, including an empty one, and any strides. Operations that only copy accept elements
///   of any type with 8, 16, 32, 64 or 128 bits. Several tensors may be on the same device.
/// - An output whose data is not NULL is written. Its shape, type and device must match, and no two of its elements
///   may overlap.
/// - An output whose data is NULL is created: the caching allocator allocates it for the current stream of the device
///   that the output names (type kDLCUDA; -1 is the current device). The call reads `device`, `ndim`, which is the
///   number of dimensions of the result, and the pointers `shape` and `strides`. It writes `data`, `device`, `dtype`,
///   `byte_offset`, the elements of `shape`, and the elements of `strides` unless that pointer is NULL. If `strides`
///   is NULL, the tensor is contiguous in row-major order. Otherwise its strides follow those of the input if the
///   input's elements fill their memory. The caller frees the memory with plinth_caching_allocator_delete, unless the
///   function says that the output is an input itself.
/// - The work is ordered on the current streams of all devices that take part, as if each device did its part: after
///   the work that these streams have now and before work that is added later. The CPU does not wait, except for
///   pageable CPU memory. Call plinth_record_stream for memory that was allocated for streams other than the current
///   ones.
/// - While a current stream captures, the call orders only streams that capture, and one of them does the work. The
///   program must order everything else that a replay needs. Memory that is created for a device whose stream does
///   not capture does not belong to the graph's pool.
/// - Peer access between devices (plinth_enable_peer_access) is enabled when it is first needed. Devices without peer
///   access use the driver's copies. Memory that another allocator maps itself must be mapped with access for these
///   devices.
/// - Results are bitwise identical in every run.
/// - After an error no output is created and no description is written; outputs that the caller supplied may be
///   partly written.
///
/// @param tensor The tensor, on a device or in CPU memory (types kDLCPU, kDLCUDAHost).
/// @param outputs The outputs, on devices. An output that is created on the tensor's own device is the tensor itself:
///        it has the same data and must not be freed. An output in CPU memory is an error.
/// @param count The number of outputs; 0 does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a malformed tensor, and for an output
///         of another type or shape; PLINTH_ERROR_DEVICE_MISMATCH for an output that is not on a CUDA device;
///         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_WOULD_SYNCHRONIZE for pageable CPU
///         memory if the sync debug mode forbids synchronization; PLINTH_ERROR_NOT_SUPPORTED in a capture if devices
///         without peer access need a stream that does not capture, and for a tensor with too many dimensions for one
///         launch; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid PLINTH_COMM_CONF; PLINTH_ERROR_DRIVER; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_broadcast(
    tensor: *const DLTensor,
    outputs: *mut DLTensor,
    count: usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        let described = unsafe { tensor.as_ref() }.ok_or_else(|| null("tensor"))?;
        // SAFETY: the caller promises that it describes a tensor.
        let source = unsafe { tensor_of(described, by_width, "tensor") }?;
        // SAFETY: the caller passes NULL or that many outputs.
        let mut targets = unsafe { targets(outputs, count, |_| described, by_width) }?;
        broadcast::broadcast(&source, &mut targets)?;
        // SAFETY: `targets` checked the descriptions, and found room in those of outputs to create.
        unsafe { describe_created(outputs, &targets, |_| described.dtype) };
        Ok(())
    })
}

/// Copies tensors from one device to others, as torch.cuda.comm.broadcast_coalesced does, with a few launches for all
/// tensors.
///
/// @param tensors The tensors, of any types and shapes, all on the first of the devices.
/// @param count The number of tensors; 0 does nothing.
/// @param devices The device indices.
/// @param device_count The number of devices, at least 1.
/// @param buffer_size Accepted for compatibility with torch, where it is the size in bytes of the buffers into which
///        tensors are copied before they are sent together. This library sends tensors directly and ignores the
///        value.
/// @param outputs The outputs: outputs[d * count + t] is tensor t on device d, see plinth_comm_broadcast. The outputs
///        that are created for the first device are the tensors themselves. Each other created output has memory of
///        its own, even if it is on the same device.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH also for a tensor that is not on the first device,
///         and for an output that is not on its device; PLINTH_ERROR_INVALID_VALUE also for no devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_broadcast_coalesced(
    tensors: *const DLTensor,
    count: usize,
    devices: *const i32,
    device_count: usize,
    buffer_size: usize,
    outputs: *mut DLTensor,
) -> plinth_status_t {
    guard(|| {
        let _ = buffer_size;
        // SAFETY: the caller passes NULL or that many tensors.
        let (sources, described) = unsafe { self::tensors(tensors, count, by_width, "tensors") }?;
        // SAFETY: the caller passes NULL or that many numbers.
        let devices = unsafe { array(devices, device_count, "devices") }?;
        let number = |(index, device): (usize, &i32)| match device {
            -1 => Ok(thread::device()),
            number => device_number(*number, &format!("devices[{index}]")),
        };
        let devices = devices.iter().enumerate().map(number).collect::<Result<Vec<u32>>>()?;
        let all = count
            .checked_mul(device_count)
            .ok_or_else(|| invalid("count * device_count outputs do not fit in the address space"))?;
        // SAFETY: the caller passes NULL or that many outputs.
        let mut targets = unsafe { targets(outputs, all, |index| &described[index % count], by_width) }?;
        broadcast::broadcast_coalesced(&sources, &devices, &mut targets)?;
        // SAFETY: `targets` checked the descriptions, and found room in those of outputs to create.
        unsafe { describe_created(outputs, &targets, |index| described[index % count].dtype) };
        Ok(())
    })
}

/// Adds tensors of several devices, as torch.cuda.comm.reduce_add does. plinth_comm_set_reduction_order sets the
/// order of the additions.
///
/// Integers wrap. The sum of bools is their logical or. Complex numbers are added by parts.
///
/// @param inputs The tensors, on devices, of one shape and one type: integers, float8_e4m3fn, float8_e5m2, float16,
///        bfloat16, float32, float64, complex64, complex128, bool.
/// @param count The number of inputs, at least 1.
/// @param output The output, see plinth_comm_broadcast, on a device that has one of the inputs. It may be one of the
///        inputs. If it is created for a single input, it is that input itself.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA device, and for
///         an output on a device without an input; PLINTH_ERROR_INVALID_VALUE for inputs of different shapes or
///         types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_reduce_add(
    inputs: *const DLTensor,
    count: usize,
    output: *mut DLTensor,
) -> plinth_status_t {
    guard(|| {
        if count == 0 {
            return Err(invalid("a sum needs at least one tensor"));
        }
        // SAFETY: the caller passes NULL or that many tensors.
        let (sources, described) = unsafe { tensors(inputs, count, computable, "inputs") }?;
        // SAFETY: the caller passes NULL or a description.
        let out = unsafe { output.as_ref() }.ok_or_else(|| null("output"))?;
        // SAFETY: as above.
        let mut target = unsafe { target(out, &described[0], computable, "output") }?;
        reduce::reduce_add(&sources, &mut target)?;
        // SAFETY: `target` checked the description, and found room if the output is to be created.
        unsafe { describe_created(output, &[target], |_| described[0].dtype) };
        Ok(())
    })
}

/// Adds lists of tensors of several devices, as torch.cuda.comm.reduce_add_coalesced does, with a few launches for
/// all tensors.
///
/// @param inputs The tensors: inputs[d * count + t] is tensor t of device d. Tensors with the same t have the same
///        shape and type; see plinth_comm_reduce_add.
/// @param count The number of tensors of each device; 0 does nothing.
/// @param device_count The number of devices, at least 1.
/// @param buffer_size Ignored, as in plinth_comm_broadcast_coalesced.
/// @param outputs The sums: `count` outputs, all on one device, which must have an input of each sum.
/// @return As plinth_comm_reduce_add; PLINTH_ERROR_DEVICE_MISMATCH also for outputs on different devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_reduce_add_coalesced(
    inputs: *const DLTensor,
    count: usize,
    device_count: usize,
    buffer_size: usize,
    outputs: *mut DLTensor,
) -> plinth_status_t {
    guard(|| {
        let _ = buffer_size;
        if device_count == 0 {
            return Err(invalid("a sum needs at least one tensor"));
        }
        let all = count
            .checked_mul(device_count)
            .ok_or_else(|| invalid("count * device_count inputs do not fit in the address space"))?;
        // SAFETY: the caller passes NULL or that many tensors.
        let (sources, described) = unsafe { tensors(inputs, all, computable, "inputs") }?;
        // SAFETY: the caller passes NULL or that many outputs.
        let mut targets = unsafe { targets(outputs, count, |index| &described[index], computable) }?;
        reduce::reduce_add_coalesced(&sources, count, &mut targets)?;
        // SAFETY: `targets` checked the descriptions, and found room in those of outputs to create.
        unsafe { describe_created(outputs, &targets, |index| described[index].dtype) };
        Ok(())
    })
}

/// Splits a tensor along a dimension into one part for each output, as torch.cuda.comm.scatter does.
///
/// @param tensor The tensor, of at least one dimension, on a device or in CPU memory.
/// @param outputs The outputs, see plinth_comm_broadcast: either the caller supplies all of them or all are created.
///        A part that is created on the tensor's own device is a view of the tensor, which must not be freed. But if
///        its description has no room for strides and the part is not contiguous, it is a copy. The shapes of
///        supplied outputs determine the size of each part.
/// @param count The number of outputs, at least 1.
/// @param chunk_sizes The sizes of the parts in that dimension: `count` numbers whose sum is the size of the tensor.
///        NULL for parts of equal size, except that the last ones may be shorter and even empty, where torch returns
///        fewer parts. Must be NULL with supplied outputs.
/// @param dim The dimension; a negative number counts from the last dimension, which is -1.
/// @param streams For each output a stream of its device, in which it is created and copied; NULL for the current
///        streams of all outputs' devices.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no outputs, for a dimension that the tensor
///         does not have, and for sizes whose sum is wrong; PLINTH_ERROR_DEVICE_MISMATCH also for a stream of another
///         device; PLINTH_ERROR_INVALID_HANDLE for an invalid stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_scatter(
    tensor: *const DLTensor,
    outputs: *mut DLTensor,
    count: usize,
    chunk_sizes: *const i64,
    dim: i32,
    streams: *const plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        let described = unsafe { tensor.as_ref() }.ok_or_else(|| null("tensor"))?;
        // SAFETY: the caller promises that it describes a tensor.
        let source = unsafe { tensor_of(described, by_width, "tensor") }?;
        // SAFETY: the caller passes NULL or that many outputs.
        let mut targets = unsafe { targets(outputs, count, |_| described, by_width) }?;
        // SAFETY: the caller passes NULL or that many numbers and streams.
        let (sizes, streams) =
            unsafe { (optional_array(chunk_sizes, count, "chunk_sizes")?, optional_array(streams, count, "streams")?) };
        let handles = streams.map(|streams| streams.iter().map(|stream| *stream as usize).collect::<Vec<_>>());
        exchange::scatter(&source, &mut targets, sizes, dim, handles.as_deref())?;
        // SAFETY: `targets` checked the descriptions, and found room in those of outputs to create.
        unsafe { describe_created(outputs, &targets, |_| described.dtype) };
        Ok(())
    })
}

/// Concatenates tensors of several devices along a dimension, as torch.cuda.comm.gather does.
///
/// @param inputs The tensors, on devices, of one type, and of one shape except in this dimension.
/// @param count The number of inputs, at least 1.
/// @param dim The dimension; a negative number counts from the last dimension, which is -1.
/// @param output The output, see plinth_comm_broadcast: on any device, or supplied in CPU memory. With type kDLCPU
///        the call waits until the copy is done. With kDLCUDAHost, which is pinned memory, the copy is ordered on the
///        current stream of the first input's device. An output that is created with room for strides is in
///        channels-last format if all inputs are.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no inputs, for tensors without dimensions,
///         and for a dimension that they do not have; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA
///         device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_gather(
    inputs: *const DLTensor,
    count: usize,
    dim: i32,
    output: *mut DLTensor,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or that many tensors.
        let (sources, described) = unsafe { tensors(inputs, count, by_width, "inputs") }?;
        let Some(first) = described.first() else { return Err(invalid("a gather needs at least one tensor")) };
        for (index, one) in described.iter().enumerate() {
            check_type(one, first, || format!("inputs[{index}]"))?;
        }
        // SAFETY: the caller passes NULL or a description.
        let out = unsafe { output.as_ref() }.ok_or_else(|| null("output"))?;
        // SAFETY: as above.
        let mut target = unsafe { target(out, first, by_width, "output") }?;
        exchange::gather(&sources, dim, &mut target)?;
        // SAFETY: `target` checked the description, and found room if the output is to be created.
        unsafe { describe_created(output, &[target], |_| first.dtype) };
        Ok(())
    })
}

/// Sets the order in which plinth_comm_reduce_add and plinth_comm_reduce_add_coalesced add, for the whole process.
///
/// In either order results are identical in every run. Needs no device.
///
/// @param order PLINTH_COMM_ORDER_LIST, the default, or PLINTH_COMM_ORDER_TORCH, for results that are bitwise equal
///        to those of torch when torch adds without NCCL.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_set_reduction_order(order: i32) -> plinth_status_t {
    guard(|| {
        match order {
            PLINTH_COMM_ORDER_LIST => tuning::set_torch_order(false),
            PLINTH_COMM_ORDER_TORCH => tuning::set_torch_order(true),
            _ => {
                return Err(invalid(format!(
                    "{order} is not a reduction order; use PLINTH_COMM_ORDER_LIST or PLINTH_COMM_ORDER_TORCH"
                )));
            }
        }
        Ok(())
    })
}

/// Gets the order that plinth_comm_set_reduction_order set. Needs no device.
///
/// @param order Out: the order.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_get_reduction_order(order: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let order = unsafe { Output::new(order, "order") }?;
        order.set(if tuning::uses_torch_order() { PLINTH_COMM_ORDER_TORCH } else { PLINTH_COMM_ORDER_LIST });
        Ok(())
    })
}

fn threshold(which: i32) -> Result<Threshold> {
    Threshold::from_number(which).ok_or_else(|| {
        invalid(format!(
            "{which} is not a threshold; use one of the PLINTH_COMM_..._SPLIT constants or PLINTH_COMM_COPY_ENGINE"
        ))
    })
}

/// Sets the size from which collectives use another algorithm, for the whole process.
///
/// Thresholds affect only performance. The defaults were measured on H200 GPUs. The environment can replace them:
/// PLINTH_COMM_CONF=reduce_split:1048576,... with the names broadcast_split, reduce_split, exchange_split,
/// copy_engine. Needs no device.
///
/// @param which One of PLINTH_COMM_BROADCAST_SPLIT, PLINTH_COMM_REDUCE_SPLIT, PLINTH_COMM_EXCHANGE_SPLIT,
///        PLINTH_COMM_COPY_ENGINE.
/// @param bytes The size in bytes; 0 counts as 1.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid PLINTH_COMM_CONF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_set_threshold(which: i32, bytes: usize) -> plinth_status_t {
    guard(|| threshold(which)?.set(bytes as u64))
}

/// Gets the size from which collectives use another algorithm. Needs no device.
///
/// @param which As plinth_comm_set_threshold.
/// @param bytes Out: the size in bytes.
/// @return As plinth_comm_set_threshold; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_get_threshold(which: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(threshold(which)?.bytes()? as usize);
        Ok(())
    })
}

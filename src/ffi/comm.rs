//! Collectives between the devices of a process
//!
//! Broadcast, reduce, scatter and gather between devices of one process, made by one thread: torch.cuda.comm. For
//! several processes, see communicator.h.
//!
//! The tensors are the caller's. Where a function makes an output, the caller owns its memory and frees it with
//! plinth_caching_allocator_delete. The work is ordered on the calling thread's current streams of all devices that
//! take part. The order of sums and the thresholds hold for the whole process.

use crate::{
    comm::{
        broadcast, exchange, host,
        output::Output as Target,
        reduce,
        tuning::{self, Threshold},
    },
    error::{Error, Result},
    ffi::{
        Output,
        guard::guard,
        null, plinth_stream_t,
        status::plinth_status_t,
        tensor::{CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DLDataType, DLDevice, DLTensor, device_number, laid_out},
    },
    runtime,
    status::Status,
    stream,
    tensor::{ElementType, Tensor},
    thread,
};

/// Sums are in the order of the tensors; those of 16-bit floats are made in float32 and rounded once, at the end. Only where
/// more than 506 tensors are added is the sum of the first 506 rounded too, and then again after every 505 more.
pub const PLINTH_COMM_ORDER_LIST: i32 = 0;
/// Sums are as torch's additions make them: the tensor on the destination (the last one, if there are several) first, then
/// the others in their order, each sum rounded to the tensors' type.
pub const PLINTH_COMM_ORDER_TORCH: i32 = 1;

/// From a message of so many bytes on, a broadcast is shared out: each receiver fetches a part, and writes it to all of them.
pub const PLINTH_COMM_BROADCAST_SPLIT: i32 = 0;
/// From a message of so many bytes on, a sum is shared out: every device but the destination adds a part.
pub const PLINTH_COMM_REDUCE_SPLIT: i32 = 1;
/// From a message of so many bytes on, every rank works in a collective of this process's devices that all ranks receive
/// from.
pub const PLINTH_COMM_EXCHANGE_SPLIT: i32 = 2;
/// From a run of so many bytes on, a scatter or a gather is made by the copy engines.
pub const PLINTH_COMM_COPY_ENGINE: i32 = 3;

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// What elements are to a copy: only how wide they are matters, so that types are copied that are not known here.
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
        bits => Err(invalid(format!("{name}: elements of {bits} bits cannot be copied; they can have 8 to 128"))),
    }
}

/// How an operation wants elements: those that it can compute with, or any that have a width.
type ElementOf = fn(DLDataType, &str) -> Result<ElementType>;

fn computable(dtype: DLDataType, name: &str) -> Result<ElementType> {
    dtype.element(name)
}

/// The tensor that C describes, on a device or in memory of the CPU.
///
/// # Safety
/// As [`crate::ffi::tensor::tensor`].
unsafe fn placed(described: &DLTensor, element_of: ElementOf, name: &str) -> Result<Tensor> {
    let device = match described.device.device_type {
        CPU => host::PAGEABLE,
        CUDA_HOST => host::PINNED,
        CUDA | CUDA_MANAGED => device_number(described.device.device_id, name)?,
        other => {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("{name} is on a device of DLPack's type {other}, which is neither CUDA's nor the CPU's"),
            ));
        }
    };
    // SAFETY: the caller's promise.
    unsafe { laid_out(described, element_of(described.dtype, name)?, device, name) }
}

/// Descriptions in a row.
///
/// # Safety
/// `first` is NULL, or leads to so many descriptions.
unsafe fn row<'a>(first: *const DLTensor, count: usize, name: &str) -> Result<&'a [DLTensor]> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(null(name));
    }
    if count > isize::MAX as usize / size_of::<DLTensor>() {
        return Err(invalid(format!("there cannot be {count} {name}")));
    }
    // SAFETY: it is not NULL, so the caller promises as many.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// Numbers in a row; `None` for NULL.
///
/// # Safety
/// `first` is NULL, or leads to so many.
unsafe fn numbers<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    // SAFETY: it is not NULL, so the caller promises as many.
    (!first.is_null()).then(|| unsafe { std::slice::from_raw_parts(first, count) })
}

/// The tensors of a row.
///
/// # Safety
/// As [`row`], and each as [`placed`].
unsafe fn tensors<'a>(
    first: *const DLTensor,
    count: usize,
    element_of: ElementOf,
    name: &str,
) -> Result<(Vec<Tensor>, &'a [DLTensor])> {
    // SAFETY: the caller's promise.
    let described = unsafe { row(first, count, name) }?;
    // A loop, for an iterator of results would move each of hundreds of tensors many times.
    let mut tensors = Vec::with_capacity(count);
    for (index, one) in described.iter().enumerate() {
        // SAFETY: as above.
        tensors.push(match unsafe { placed(one, element_of, "tensor") } {
            Ok(tensor) => tensor,
            Err(error) => return Err(error.context(format!("{name}[{index}]"))),
        });
    }
    Ok((tensors, described))
}

fn is_same(one: DLDataType, other: DLDataType) -> bool {
    (one.code, one.bits, one.lanes) == (other.code, other.bits, other.lanes)
}

/// Refuses a tensor of another type. Widths alone would not tell.
fn check_type(one: &DLTensor, other: &DLTensor, name: impl Fn() -> String) -> Result<()> {
    if is_same(one.dtype, other.dtype) {
        return Ok(());
    }
    let [one, other] = [one.dtype, other.dtype];
    Err(invalid(format!(
        "{} has elements of DLPack's code {} with {} bits, not of code {} with {}",
        name(),
        one.code,
        one.bits,
        other.code,
        other.bits
    )))
}

/// What is to be written: the tensor described, or a new one where its data is NULL.
///
/// # Safety
/// As [`placed`].
unsafe fn target(described: &DLTensor, like: &DLTensor, element_of: ElementOf, name: &str) -> Result<Target> {
    // Memory of the CPU is not made, but an empty tensor has none.
    if !described.data.is_null() || matches!(described.device.device_type, CPU | CUDA_HOST) {
        check_type(described, like, || name.into())?;
        // SAFETY: the caller's promise.
        return Ok(Target::Given(unsafe { placed(described, element_of, name) }?));
    }
    if described.device.device_type != CUDA {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{name}->data is NULL, and only tensors on CUDA devices are made"),
        ));
    }
    if described.ndim != like.ndim {
        return Err(invalid(format!("{name} has room for {} dimensions, and needs {}", described.ndim, like.ndim)));
    }
    if described.ndim > 0 && described.shape.is_null() {
        return Err(null(&format!("{name}->shape")));
    }
    let device = match described.device.device_id {
        -1 => thread::device(),
        number => device_number(number, name)?,
    };
    runtime::ready()?.device(device as i32)?;
    Ok(Target::Wanted { device, any_strides: !described.strides.is_null() })
}

/// Targets in a row, each like the tensor that `like` names for it.
///
/// # Safety
/// As [`row`], and each as [`placed`].
unsafe fn targets<'a>(
    first: *mut DLTensor,
    count: usize,
    like: impl Fn(usize) -> &'a DLTensor,
    element_of: ElementOf,
) -> Result<Vec<Target>> {
    // SAFETY: the caller's promise.
    let described = unsafe { row(first, count, "outputs") }?;
    let mut targets = Vec::with_capacity(count);
    for (index, one) in described.iter().enumerate() {
        // SAFETY: as above.
        targets.push(match unsafe { target(one, like(index), element_of, "tensor") } {
            Ok(target) => target,
            Err(error) => return Err(error.context(format!("outputs[{index}]"))),
        });
    }
    Ok(targets)
}

/// Describes to C the tensors that were made.
///
/// # Safety
/// `first` leads to as many descriptions as there are tensors, each of which, where its target is wanted, was found to have
/// room for a shape, and has for strides unless they are NULL.
unsafe fn tell(first: *mut DLTensor, targets: &[Target], made: &[Tensor], dtype: impl Fn(usize) -> DLDataType) {
    for (index, (target, tensor)) in targets.iter().zip(made).enumerate() {
        if target.is_given() {
            continue;
        }
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
/// The rules that hold for all functions of this group:
/// - Tensors may have any shape, also an empty one, and any strides. What is only copied may have elements of any type with
///   8, 16, 32, 64 or 128 bits. Tensors may be on one device more than once.
/// - An output whose data is not NULL is written. Its shape, type and device must be right, and no two of its elements may be
///   in one place.
/// - An output whose data is NULL is made: by the caching allocator, for the current stream of the device that it names (type
///   kDLCUDA; -1 is the current device). Of it `device`, `ndim`, which is the number of dimensions that the result has, and
///   the pointers `shape` and `strides` are read; `data`, `device`, `dtype`, `byte_offset` and the numbers of `shape` are
///   written, and those of `strides` unless that is NULL. With NULL the elements lie side by side, the last dimension's
///   fastest; with room for strides they lie as the input's do, where those fill their memory. The caller frees the memory
///   with plinth_caching_allocator_delete, unless the function says that the output is an input itself.
/// - The work is ordered on the current streams of all devices that take part, as if each did its part: it comes after what
///   they have now, and before what they get later. Nothing waits on the CPU, but for pageable memory of the CPU. Memory of
///   streams other than the current ones needs plinth_record_stream, as always.
/// - While a current stream captures, only streams that capture are ordered, and one of them works; what else a replay needs,
///   the program orders around it. Memory made for a device whose stream does not capture is not of the graph's pool.
/// - Devices get access to each other's memory (plinth_enable_peer_access) when first needed; where they are no peers, the
///   driver's copies are used. Memory of another allocator that maps it itself must allow these devices access.
/// - Results are the same bit for bit in every run.
/// - Where an error is returned no output is made and none is described; one that was given may be written in part.
///   Thread-safe.
///
/// @param tensor The tensor, on a device or in memory of the CPU (types kDLCPU, kDLCUDAHost).
/// @param outputs The outputs, on devices; one that is made on the tensor's own device is the tensor itself: it has its data, and
///        is not freed. One in memory of the CPU is refused.
/// @param count How many; 0 does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a malformed tensor, and for an output of another
///         type or shape; PLINTH_ERROR_DEVICE_MISMATCH for an output that is not on a CUDA device; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode for pageable memory of the CPU;
///         PLINTH_ERROR_NOT_SUPPORTED in a capture that needs streams which do not capture, of devices that are no peers;
///         PLINTH_ERROR_INVALID_CONFIGURATION for a wrong PLINTH_COMM_CONF; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_broadcast(
    tensor: *const DLTensor,
    outputs: *mut DLTensor,
    count: usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        let described = unsafe { tensor.as_ref() }.ok_or_else(|| null("tensor"))?;
        // SAFETY: the caller promises that it is one.
        let source = unsafe { placed(described, by_width, "tensor") }?;
        // SAFETY: the caller passes NULL or as many outputs.
        let targets = unsafe { targets(outputs, count, |_| described, by_width) }?;
        let made = broadcast::broadcast(&source, &targets)?;
        // SAFETY: they were just looked at, and those that are wanted found to have room.
        unsafe { tell(outputs, &targets, &made, |_| described.dtype) };
        Ok(())
    })
}

/// Copies tensors of one device to others, as torch.cuda.comm.broadcast_coalesced does, in a few launches for all of them.
///
/// @param tensors The tensors, of any types and shapes, all on the first of the devices.
/// @param count How many; 0 does nothing.
/// @param devices The devices.
/// @param device_count How many, 1 at least.
/// @param buffer_size Torch's size of the buffers that tensors are copied into to be sent together. Here they are sent from
///        where they are, and nothing is buffered: any size is good.
/// @param outputs The outputs: outputs[d * count + t] is tensor t on device d, see plinth_comm_broadcast. Those that are made for
///        the first device are the tensors themselves; each of the others has memory of its own, also on that same device.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH also for a tensor that is not on the first device, and for an
///         output on another device than its own; PLINTH_ERROR_INVALID_VALUE for no devices.
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
        // SAFETY: the caller passes NULL or as many tensors.
        let (sources, described) = unsafe { self::tensors(tensors, count, by_width, "tensors") }?;
        // SAFETY: the caller passes NULL or as many numbers.
        let devices = unsafe { numbers(devices, device_count) }.ok_or_else(|| null("devices"))?;
        let number = |(index, device): (usize, &i32)| match device {
            -1 => Ok(thread::device()),
            number => device_number(*number, &format!("devices[{index}]")),
        };
        let devices = devices.iter().enumerate().map(number).collect::<Result<Vec<u32>>>()?;
        let all = count.checked_mul(device_count).ok_or_else(|| invalid("there cannot be so many outputs"))?;
        // SAFETY: the caller passes NULL or as many outputs.
        let targets = unsafe { targets(outputs, all, |index| &described[index % count], by_width) }?;
        let made = broadcast::broadcast_coalesced(&sources, &devices, &targets)?;
        // SAFETY: they were just looked at, and those that are wanted found to have room.
        unsafe { tell(outputs, &targets, &made, |index| described[index % count].dtype) };
        Ok(())
    })
}

/// Adds tensors of several devices, as torch.cuda.comm.reduce_add does. The order is that of plinth_comm_set_reduction_order.
///
/// Integers wrap; a sum of bools is whether one of them is true; complex numbers are added by parts.
///
/// @param inputs The tensors, on devices, of one shape and one type: integers, float16, bfloat16, float32, float64, complex64,
///        complex128, bool.
/// @param count How many, 1 at least.
/// @param output The output, see plinth_comm_broadcast, on a device that has one of the inputs. It may be one of them. Made for
///        one input alone it is that input itself.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA device, and for an output on a
///         device without an input; PLINTH_ERROR_INVALID_VALUE for inputs of different shapes or types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_reduce_add(
    inputs: *const DLTensor,
    count: usize,
    output: *mut DLTensor,
) -> plinth_status_t {
    guard(|| {
        if count == 0 {
            return Err(invalid("a sum needs a tensor at least"));
        }
        // SAFETY: the caller passes NULL or as many tensors.
        let (sources, described) = unsafe { tensors(inputs, count, computable, "inputs") }?;
        // SAFETY: the caller passes NULL or a description.
        let out = unsafe { output.as_ref() }.ok_or_else(|| null("output"))?;
        // SAFETY: as above.
        let target = unsafe { target(out, &described[0], computable, "output") }?;
        let made = reduce::reduce_add(&sources, &target)?;
        // SAFETY: it was just looked at, and if it is wanted found to have room.
        unsafe { tell(output, &[target], &[made], |_| described[0].dtype) };
        Ok(())
    })
}

/// Adds lists of tensors of several devices, as torch.cuda.comm.reduce_add_coalesced does, in a few launches for all of them.
///
/// @param inputs The tensors: inputs[d * count + t] is tensor t of device d. Those with the same t have one shape and one type;
///        see plinth_comm_reduce_add.
/// @param count How many tensors of each device; 0 does nothing.
/// @param device_count How many devices, 1 at least.
/// @param buffer_size As in plinth_comm_broadcast_coalesced: any size is good.
/// @param outputs The sums, `count` of them, all on one device that has one of the inputs of each.
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
            return Err(invalid("a sum needs a tensor at least"));
        }
        let all = count.checked_mul(device_count).ok_or_else(|| invalid("there cannot be so many inputs"))?;
        // SAFETY: the caller passes NULL or as many tensors.
        let (sources, described) = unsafe { tensors(inputs, all, computable, "inputs") }?;
        // SAFETY: the caller passes NULL or as many outputs.
        let targets = unsafe { targets(outputs, count, |index| &described[index], computable) }?;
        let made = reduce::reduce_add_coalesced(&sources, count, &targets)?;
        // SAFETY: they were just looked at, and those that are wanted found to have room.
        unsafe { tell(outputs, &targets, &made, |index| described[index].dtype) };
        Ok(())
    })
}

/// Parts a tensor along a dimension and gives each output a part, as torch.cuda.comm.scatter does.
///
/// @param tensor The tensor, of one dimension at least, on a device or in memory of the CPU.
/// @param outputs The outputs, see plinth_comm_broadcast: all are given, or none is. A part that is made on the tensor's own
///        device is a view of the tensor, which is not freed; but if it has no room for strides and the part's elements do not
///        lie side by side, it is a copy. Outputs that are given say by their shapes how long each part is.
/// @param count How many, 1 at least.
/// @param chunk_sizes The sizes of the parts in that dimension, `count` numbers that add up to the tensor's; NULL for parts as
///        long as the first, but the last ones: those may be shorter and even empty, where torch gives fewer. NULL with outputs
///        that are given.
/// @param dim The dimension; negative numbers count from the last one, which is -1.
/// @param streams For each output a stream of its device, in which it is made and copied in place of the current one; an entry of
///        NULL means the current one, and so does NULL for all.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no outputs, a dimension that the tensor does not have, and
///         sizes that do not add up; PLINTH_ERROR_DEVICE_MISMATCH also for a stream of another device;
///         PLINTH_ERROR_INVALID_HANDLE for a stream that is none.
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
        // SAFETY: the caller promises that it is one.
        let source = unsafe { placed(described, by_width, "tensor") }?;
        // SAFETY: the caller passes NULL or as many outputs.
        let targets = unsafe { targets(outputs, count, |_| described, by_width) }?;
        // SAFETY: the caller passes NULL or as many numbers and streams.
        let (sizes, streams) = unsafe { (numbers(chunk_sizes, count), numbers(streams, count)) };
        let resolved = streams.unwrap_or(&[]).iter().map(|stream| match *stream as usize {
            0 => Ok(None),
            handle => stream::resolve(runtime::ready()?, handle).map(Some),
        });
        let resolved = resolved.collect::<Result<Vec<_>>>()?;
        let made = exchange::scatter(&source, &targets, sizes, dim, &resolved)?;
        // SAFETY: they were just looked at, and those that are wanted found to have room.
        unsafe { tell(outputs, &targets, &made, |_| described.dtype) };
        Ok(())
    })
}

/// Puts tensors of several devices together along a dimension, as torch.cuda.comm.gather does.
///
/// @param inputs The tensors, on devices, of one type, and of one shape in all dimensions but this one.
/// @param count How many, 1 at least.
/// @param dim The dimension; negative numbers count from the last one, which is -1.
/// @param output The output, see plinth_comm_broadcast: on any device, or given in memory of the CPU. With type kDLCPU the call
///        waits for it; with kDLCUDAHost, which is pinned, it is ordered on the current stream of the first input's device.
///        One that is made with room for strides has its channels last if all inputs have.
/// @return As plinth_comm_broadcast; PLINTH_ERROR_INVALID_VALUE also for no inputs, for tensors without dimensions, and for a
///         dimension that they do not have; PLINTH_ERROR_DEVICE_MISMATCH for an input that is not on a CUDA device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_gather(
    inputs: *const DLTensor,
    count: usize,
    dim: i32,
    output: *mut DLTensor,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or as many tensors.
        let (sources, described) = unsafe { tensors(inputs, count, by_width, "inputs") }?;
        let Some(first) = described.first() else { return Err(invalid("a gather needs a tensor at least")) };
        for (index, one) in described.iter().enumerate() {
            check_type(one, first, || format!("inputs[{index}]"))?;
        }
        // SAFETY: the caller passes NULL or a description.
        let out = unsafe { output.as_ref() }.ok_or_else(|| null("output"))?;
        // SAFETY: as above.
        let target = unsafe { target(out, first, by_width, "output") }?;
        let made = exchange::gather(&sources, dim, &target)?;
        // SAFETY: it was just looked at, and if it is wanted found to have room.
        unsafe { tell(output, &[target], &[made], |_| first.dtype) };
        Ok(())
    })
}

/// Sets the order in which plinth_comm_reduce_add and plinth_comm_reduce_add_coalesced add, for the whole process. Whichever it
/// is, results are the same in every run. Thread-safe; needs no device.
///
/// @param order PLINTH_COMM_ORDER_LIST, which is so from the beginning, or PLINTH_COMM_ORDER_TORCH, for results that are bit for
///        bit those of torch where it adds without NCCL.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_set_reduction_order(order: i32) -> plinth_status_t {
    guard(|| {
        match order {
            PLINTH_COMM_ORDER_LIST => tuning::set_torch_order(false),
            PLINTH_COMM_ORDER_TORCH => tuning::set_torch_order(true),
            _ => return Err(invalid(format!("{order} is no order of reductions"))),
        }
        Ok(())
    })
}

/// Gets the order that plinth_comm_set_reduction_order set. Thread-safe; needs no device.
///
/// @param order Out: the order.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_get_reduction_order(order: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let order = unsafe { Output::new(order, "order") }?;
        order.set(if tuning::torch_order() { PLINTH_COMM_ORDER_TORCH } else { PLINTH_COMM_ORDER_LIST });
        Ok(())
    })
}

fn threshold(which: i32) -> Result<Threshold> {
    Threshold::numbered(which).ok_or_else(|| invalid(format!("{which} is no threshold")))
}

/// Sets a size at which collectives go another way, for the whole process. They only change how long things take. What they
/// are from the beginning was measured on H200s, or said by the environment: PLINTH_COMM_CONF=reduce_split:1048576,... with
/// the names broadcast_split, reduce_split, exchange_split, copy_engine. Thread-safe; needs no device.
///
/// @param which One of PLINTH_COMM_BROADCAST_SPLIT, PLINTH_COMM_REDUCE_SPLIT, PLINTH_COMM_EXCHANGE_SPLIT,
///        PLINTH_COMM_COPY_ENGINE.
/// @param bytes The size; 0 counts as 1.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE; PLINTH_ERROR_INVALID_CONFIGURATION for a wrong PLINTH_COMM_CONF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_set_threshold(which: i32, bytes: usize) -> plinth_status_t {
    guard(|| threshold(which)?.set(bytes as u64))
}

/// Gets such a size. Thread-safe; needs no device.
///
/// @param which As plinth_comm_set_threshold.
/// @param bytes Out: the size.
/// @return As plinth_comm_set_threshold; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_comm_get_threshold(which: i32, bytes: *mut usize) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let bytes = unsafe { Output::new(bytes, "bytes") }?;
        bytes.set(threshold(which)?.bytes()? as usize);
        Ok(())
    })
}

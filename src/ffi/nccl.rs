//! torch.cuda.nccl
//!
//! The functions of torch.cuda.nccl. They reduce and copy between devices of one process without a communicator, and
//! make the id by which the ranks of a communicator meet.
//!
//! The tensors are the caller's, and must stay valid until the work is done. A communicator that plinth_nccl_init_rank
//! returns is the caller's, as those of communicator.h are.

use crate::{
    base::deadline::Deadline,
    collectives::{
        communicator::{self, Options, group, nccl_report},
        nccl::{self, Overrides},
    },
    driver,
    error::{Error, Result},
    ffi::{
        Output,
        communicator::{PLINTH_UNIQUE_ID_SIZE, plinth_communicator_t, unique_id},
        communicator_work::reduction,
        guard::guard,
        optional_array, owned_text, plinth_stream_t,
        status::plinth_status_t,
        tensor::{self, DLTensor, tensor},
    },
    runtime::{self, tensor::Tensor, thread::MAX_DEVICES},
    status::Status,
};
use std::{ffi::c_char, time::Duration};

/// How long plinth_nccl_report waits by default.
const REPORT_TIMEOUT: Duration = Duration::from_secs(15);

/// Reads the tensors that C passed.
///
/// # Safety
/// `tensors` is NULL or points to `count` DLTensors, each as [`tensor`] requires.
unsafe fn tensors(tensors: *const DLTensor, count: usize, name: &str) -> Result<Vec<Tensor>> {
    if count > MAX_DEVICES {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("{count} tensors exceed the limit of {MAX_DEVICES} devices; each tensor must be on its own device"),
        ));
    }
    // SAFETY: the caller makes the same promise.
    unsafe { tensor::list(tensors, count, name) }
}

/// Reads the output tensors that C passed; NULL stands for the inputs.
///
/// # Safety
/// As [`tensors`].
unsafe fn tensors_or(outputs: *const DLTensor, inputs: &[Tensor], name: &str) -> Result<Vec<Tensor>> {
    if outputs.is_null() {
        return Ok(inputs.to_vec());
    }
    // SAFETY: the caller makes the same promise.
    unsafe { tensors(outputs, inputs.len(), name) }
}

/// Reads the streams and communicators that C passed.
///
/// # Safety
/// Each pointer is NULL or points to `count` elements of its kind, which outlive the result.
unsafe fn overrides<'a>(
    streams: *const plinth_stream_t,
    communicators: *const plinth_communicator_t,
    count: usize,
) -> Result<Overrides<'a>> {
    // SAFETY: the caller makes this promise; both handles are pointers in C and have the size of these numbers.
    unsafe {
        Ok(Overrides {
            streams: optional_array(streams.cast(), count, "streams")?,
            communicators: optional_array(communicators.cast(), count, "communicators")?,
        })
    }
}

/// Returns the version of NCCL, and loads NCCL if necessary. It is searched in the process, then in the system's
/// library path (libnccl.so.2), then in folders of Python packages; PLINTH_NCCL_LIBRARY names another file. Needs no
/// device.
///
/// @param major Out: the 2 of 2.28.3. Each of the three outputs may be NULL.
/// @param minor Out: the 28 of 2.28.3.
/// @param patch Out: the 3 of 2.28.3.
/// @return PLINTH_OK; PLINTH_ERROR_NCCL_UNAVAILABLE if NCCL was not found or is too old, with a message that lists
///         where it was searched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_version(major: *mut i32, minor: *mut i32, patch: *mut i32) -> plinth_status_t {
    guard(|| {
        let parts = driver::nccl::get()?.version().parts();
        for (place, part) in [(major, parts.0), (minor, parts.1), (patch, parts.2)] {
            if !place.is_null() {
                // SAFETY: it is not NULL, so the caller passes a valid pointer.
                unsafe { place.write(part) };
            }
        }
        Ok(())
    })
}

/// Writes NCCL's own report of the running job: its processes and communicators, ranks and processes that do not
/// answer, and how many collectives of each kind the ranks have launched, where these numbers differ; sends, receives,
/// exchanges and graphs are not counted. It helps to explain why ranks wait for each other. The library's log has the
/// same report before it aborts a communicator whose work exceeds its timeout.
///
/// NCCL 2.24 and newer answer at a socket of this machine, if the process or another one of the job on the machine uses
/// a communicator of NCCL: at localhost:28028, or at the address in NCCL's variable NCCL_RAS_ADDR. Jobs of one user
/// that run on one machine at the same time need different addresses. NCCL_RAS_ENABLE=0 switches the reports off. The
/// text is for people; its form depends on the version. Needs no device.
///
/// @param timeout_milliseconds How long to wait for the report; 0 for 15 seconds. NCCL waits for processes that do not
///        answer until 6 seconds before this, but for one second at least. The time to resolve a name in NCCL_RAS_ADDR
///        does not count.
/// @param text Out: the report. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_NCCL_UNAVAILABLE; PLINTH_ERROR_NOT_SUPPORTED if NCCL is
///         older than 2.24; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_SYSTEM if nobody listens at the address, or the
///         connection fails; PLINTH_ERROR_NCCL if it is not NCCL that answers; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_report(timeout_milliseconds: u64, text: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let text = unsafe { Output::new(text, "text") }?;
        let limit = match timeout_milliseconds {
            0 => REPORT_TIMEOUT,
            milliseconds => Duration::from_millis(milliseconds),
        };
        text.set(owned_text(&nccl_report::report(driver::nccl::get()?, Deadline::new(limit))?)?);
        Ok(())
    })
}

/// Reports whether the plinth_nccl_ functions support a list of tensors: whether each is contiguous and on its own
/// device. Without tensors it reports whether NCCL is available; the plinth_nccl_ functions work without it.
///
/// @param tensors The tensors; NULL with a count of 0.
/// @param count The number of tensors.
/// @param available Out: whether the tensors are supported. Tensors that are not on CUDA devices give false, not an
///        error.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_is_available(
    tensors: *const DLTensor,
    count: usize,
    available: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let available = unsafe { Output::new(available, "available") }?;
        if count == 0 {
            available.set(communicator::nccl::available(runtime::ready()?).is_ok());
            return Ok(());
        }
        // SAFETY: the caller passes NULL or `count` tensors.
        let tensors = match unsafe { self::tensors(tensors, count, "tensors") } {
            Err(error) if error.status() == Status::NULL_POINTER => return Err(error),
            tensors => tensors,
        };
        let devices = runtime::ready()?.devices().len();
        available.set(tensors.is_ok_and(|tensors| {
            tensors.iter().all(|tensor| (tensor.device as usize) < devices) && nccl::is_available(&tensors)
        }));
        Ok(())
    })
}

/// Creates the unique id of a communicator. One process creates it and sends its bytes to the others by any channel,
/// and every rank passes it to plinth_communicator_init_rank or plinth_nccl_init_rank. An id is for one communicator.
/// The process that created it must live until all ranks have joined. With NCCL it is an ncclUniqueId, which works
/// across machines; without NCCL it is the library's own, which works on one machine.
///
/// @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_NCCL; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_unique_id(id: *mut u8) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 128 bytes.
        let output = unsafe { Output::new(id.cast::<[u8; PLINTH_UNIQUE_ID_SIZE]>(), "id") }?;
        output.set(communicator::unique_id()?);
        Ok(())
    })
}

/// Creates a communicator on the current device with default options; see plinth_communicator_init_rank.
///
/// @param ranks The number of ranks.
/// @param id The PLINTH_UNIQUE_ID_SIZE bytes of plinth_nccl_unique_id.
/// @param rank The number of this rank, from 0.
/// @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
/// @return The statuses of plinth_communicator_init_rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_init_rank(
    ranks: i32,
    id: *const u8,
    rank: i32,
    communicator: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let communicator = unsafe { Output::new(communicator, "communicator") }?;
        // SAFETY: the caller passes NULL or 128 bytes.
        let id = unsafe { unique_id(id) }?;
        let made = communicator::init_rank(ranks, id, rank, -1, Options::default())?;
        communicator.set(made as plinth_communicator_t);
        Ok(())
    })
}

/// Reduces tensors on several devices of this process; every device gets the result. The work is enqueued into one
/// stream per device, in order with the work that these streams hold, and the call does not wait for it; it may be
/// captured. The tensors' memory must stay valid until the work is complete.
///
/// @param inputs The input tensors: contiguous, of the same type and size, each on its own device.
/// @param outputs The output tensors, on the same devices; NULL to write the results to the inputs.
/// @param count The number of inputs, and of outputs.
/// @param op One of the PLINTH_REDUCE_ constants.
/// @param streams One stream per device; NULL for the current streams of all devices.
/// @param communicators One communicator per device; NULL for communicators that the library creates for each list of
///        devices and caches.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for tensors or numbers that do not meet
///         these conditions; PLINTH_ERROR_DEVICE_MISMATCH if an input and its output, stream or communicator are on
///         different devices, and for tensors on the CPU; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_ABORTED; PLINTH_ERROR_NCCL;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_all_reduce(
    inputs: *const DLTensor,
    outputs: *const DLTensor,
    count: usize,
    op: i32,
    streams: *const plinth_stream_t,
    communicators: *const plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::run_request(|| {
            // SAFETY: the caller passes NULL or `count` elements of each.
            let (inputs, overrides) =
                unsafe { (tensors(inputs, count, "inputs")?, overrides(streams, communicators, count)?) };
            // SAFETY: as above.
            let outputs = unsafe { tensors_or(outputs, &inputs, "outputs") }?;
            nccl::all_reduce(&inputs, &outputs, reduction(op)?, &overrides)
        })
    })
}

/// Reduces tensors on several devices of this process; one device gets the result. Otherwise like
/// plinth_nccl_all_reduce.
///
/// @param inputs The input tensors.
/// @param output The output tensor, on the root's device; NULL to write the result to the root's input.
/// @param count The number of inputs.
/// @param root The index of the input whose device gets the result.
/// @param op One of the PLINTH_REDUCE_ constants.
/// @param streams As in plinth_nccl_all_reduce.
/// @param communicators As in plinth_nccl_all_reduce.
/// @return The statuses of plinth_nccl_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_reduce(
    inputs: *const DLTensor,
    output: *const DLTensor,
    count: usize,
    root: i32,
    op: i32,
    streams: *const plinth_stream_t,
    communicators: *const plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::run_request(|| {
            // SAFETY: the caller passes NULL or `count` elements of each.
            let (inputs, overrides) =
                unsafe { (tensors(inputs, count, "inputs")?, overrides(streams, communicators, count)?) };
            // SAFETY: the caller passes NULL or a tensor.
            let output = if output.is_null() { None } else { Some(unsafe { tensor(output, "output") }?) };
            nccl::reduce(&inputs, output.as_ref(), root, reduction(op)?, &overrides)
        })
    })
}

/// Broadcasts the tensor of one device to the tensors of the other devices. Otherwise like plinth_nccl_all_reduce.
///
/// @param tensors The tensors.
/// @param count The number of tensors.
/// @param root The index of the tensor that is copied.
/// @param streams As in plinth_nccl_all_reduce.
/// @param communicators As in plinth_nccl_all_reduce.
/// @return The statuses of plinth_nccl_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_broadcast(
    tensors: *const DLTensor,
    count: usize,
    root: i32,
    streams: *const plinth_stream_t,
    communicators: *const plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::run_request(|| {
            // SAFETY: the caller passes NULL or `count` elements of each.
            let (tensors, overrides) =
                unsafe { (self::tensors(tensors, count, "tensors")?, overrides(streams, communicators, count)?) };
            nccl::broadcast(&tensors, root, &overrides)
        })
    })
}

/// Gathers the tensors of all devices on every device, in the order of the ranks, which without communicators is that of
/// the inputs. Otherwise like plinth_nccl_all_reduce.
///
/// @param inputs The input tensors.
/// @param outputs The output tensors: on each device one with `count` times as many elements as an input.
/// @param count The number of inputs, and of outputs.
/// @param streams As in plinth_nccl_all_reduce.
/// @param communicators As in plinth_nccl_all_reduce; they must have `count` ranks.
/// @return The statuses of plinth_nccl_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_all_gather(
    inputs: *const DLTensor,
    outputs: *const DLTensor,
    count: usize,
    streams: *const plinth_stream_t,
    communicators: *const plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::run_request(|| {
            // SAFETY: the caller passes NULL or `count` elements of each.
            let (inputs, outputs, overrides) = unsafe {
                let outputs = tensors(outputs, count, "outputs")?;
                (tensors(inputs, count, "inputs")?, outputs, overrides(streams, communicators, count)?)
            };
            nccl::all_gather(&inputs, &outputs, &overrides)
        })
    })
}

/// Reduces tensors on several devices, and scatters the result: each device gets its part. Otherwise like
/// plinth_nccl_all_reduce.
///
/// @param inputs The input tensors.
/// @param outputs The output tensors: on each device one with a `count`-th of an input's elements.
/// @param count The number of inputs, and of outputs.
/// @param op One of the PLINTH_REDUCE_ constants.
/// @param streams As in plinth_nccl_all_reduce.
/// @param communicators As in plinth_nccl_all_reduce; they must have `count` ranks.
/// @return The statuses of plinth_nccl_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_reduce_scatter(
    inputs: *const DLTensor,
    outputs: *const DLTensor,
    count: usize,
    op: i32,
    streams: *const plinth_stream_t,
    communicators: *const plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::run_request(|| {
            // SAFETY: the caller passes NULL or `count` elements of each.
            let (inputs, outputs, overrides) = unsafe {
                let outputs = tensors(outputs, count, "outputs")?;
                (tensors(inputs, count, "inputs")?, outputs, overrides(streams, communicators, count)?)
            };
            nccl::reduce_scatter(&inputs, &outputs, reduction(op)?, &overrides)
        })
    })
}

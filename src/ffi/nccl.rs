//! torch.cuda.nccl, as C sees it.

use crate::{
    collectives::{
        communicator::{self, Options, group},
        nccl::{self, Overrides},
    },
    driver,
    error::{Error, Result},
    ffi::{
        Output,
        communicator::{PLINTH_UNIQUE_ID_SIZE, plinth_communicator_t, unique_id},
        communicator_work::reduction,
        guard::guard,
        null, plinth_stream_t,
        status::plinth_status_t,
        tensor::{DLTensor, tensor},
    },
    runtime::{self, tensor::Tensor, thread::MAX_DEVICES},
    status::Status,
};

/// The tensors that C describes.
///
/// # Safety
/// `tensors` is NULL or leads to `count` DLTensors, each as [`tensor`] wants it.
unsafe fn tensors(tensors: *const DLTensor, count: usize, name: &str) -> Result<Vec<Tensor>> {
    if tensors.is_null() {
        return Err(null(name));
    }
    if count > MAX_DEVICES {
        return Err(Error::new(Status::INVALID_VALUE, format!("{count} tensors cannot be on devices of their own")));
    }
    // SAFETY: the caller promises so many tensors.
    (0..count).map(|index| unsafe { tensor(tensors.add(index), &format!("{name}[{index}]")) }).collect()
}

/// The same, where NULL overrides tensors that are there already.
///
/// # Safety
/// As [`tensors`].
unsafe fn tensors_or(outputs: *const DLTensor, inputs: &[Tensor], name: &str) -> Result<Vec<Tensor>> {
    if outputs.is_null() {
        return Ok(inputs.to_vec());
    }
    // SAFETY: the caller's promise.
    unsafe { tensors(outputs, inputs.len(), name) }
}

/// Streams and communicators that C gives.
///
/// # Safety
/// Each is NULL or leads to `count` of its kind, for as long as what is returned is used.
unsafe fn overrides<'a>(
    streams: *const plinth_stream_t,
    communicators: *const plinth_communicator_t,
    count: usize,
) -> Overrides<'a> {
    // SAFETY: the caller's promise; both handles are pointers in C and as wide as these numbers here.
    unsafe {
        Overrides {
            streams: (!streams.is_null()).then(|| std::slice::from_raw_parts(streams.cast(), count)),
            communicators: (!communicators.is_null()).then(|| std::slice::from_raw_parts(communicators.cast(), count)),
        }
    }
}

/// Tells the version of the NCCL that is used, and loads it. NCCL is looked for in the process, then where the system finds
/// libraries (libnccl.so.2), then in folders of Python packages; PLINTH_NCCL_LIBRARY names another file. Thread-safe; needs no
/// device.
///
/// @param major Out: as the 2 of 2.28.3; NULL if nobody wants it, and so are the others.
/// @param minor Out: as the 28.
/// @param patch Out: as the 3.
/// @return PLINTH_OK; PLINTH_ERROR_NCCL_UNAVAILABLE where there is none, or one too old, with a message that says where it was
///         looked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_version(major: *mut i32, minor: *mut i32, patch: *mut i32) -> plinth_status_t {
    guard(|| {
        let parts = driver::nccl::get()?.version().parts();
        for (place, part) in [(major, parts.0), (minor, parts.1), (patch, parts.2)] {
            if !place.is_null() {
                // SAFETY: it is not NULL, so the caller passes a place for the number.
                unsafe { place.write(part) };
            }
        }
        Ok(())
    })
}

/// Tells whether the functions here can work with tensors: whether each is contiguous and on a device of its own. With no
/// tensors it tells whether NCCL is there, which the functions here do not need. Thread-safe.
///
/// @param tensors The tensors; NULL with a count of 0.
/// @param count How many.
/// @param available Out: whether they can. Tensors that are not on devices are no error here.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_is_available(
    tensors: *const DLTensor,
    count: usize,
    available: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
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

/// Makes an id that ranks meet by: one process makes it, the others get its bytes by any channel, and each passes it to
/// plinth_communicator_init_rank or plinth_nccl_init_rank. It is for one meeting. The process that made it must live until all
/// have met. With NCCL it is NCCL's own, and good across machines; without, it is the library's, and good on one machine.
/// Thread-safe.
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

/// As plinth_communicator_init_rank, on the current device, with defaults.
///
/// @param ranks How many ranks there are.
/// @param id The PLINTH_UNIQUE_ID_SIZE bytes of plinth_nccl_unique_id.
/// @param rank The number of this rank, from 0 on.
/// @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
/// @return As plinth_communicator_init_rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nccl_init_rank(
    ranks: i32,
    id: *const u8,
    rank: i32,
    communicator: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the communicator.
        let communicator = unsafe { Output::new(communicator, "communicator") }?;
        // SAFETY: the caller passes NULL or 128 bytes.
        let id = unsafe { unique_id(id) }?;
        let made = communicator::init_rank(ranks, id, rank, -1, Options::default())?;
        communicator.set(made as plinth_communicator_t);
        Ok(())
    })
}

/// Reduces tensors of several devices of this process; each output gets the result. The work goes into a stream of each
/// device, in order with what those have, and is not waited for; it may be captured. Memory stays valid until the work is
/// done. Thread-safe.
///
/// @param inputs The tensors: contiguous, of one type and size, each on a device of its own.
/// @param outputs Where the results go, on the same devices; NULL to have them in the inputs.
/// @param count How many inputs there are, and outputs.
/// @param op One of PLINTH_REDUCE_.
/// @param streams A stream for each device, NULL among them for its current one; NULL for all current ones.
/// @param communicators A communicator for each device; NULL for ones that the library makes for each list of devices that
///        comes, and keeps.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for tensors or numbers that are not as they must be;
///         PLINTH_ERROR_DEVICE_MISMATCH for an input and an output, a stream or a communicator of different devices, and for
///         tensors of the CPU; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_TIMED_OUT;
///         PLINTH_ERROR_ABORTED; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER; the errors of initialization.
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
            // SAFETY: the caller passes NULL or `count` of each.
            let (inputs, overrides) =
                unsafe { (tensors(inputs, count, "inputs")?, overrides(streams, communicators, count)) };
            // SAFETY: the same.
            let outputs = unsafe { tensors_or(outputs, &inputs, "outputs") }?;
            nccl::all_reduce(&inputs, &outputs, reduction(op)?, &overrides)
        })
    })
}

/// Reduces tensors of several devices of this process; one output gets the result. Otherwise as plinth_nccl_all_reduce.
///
/// @param inputs The tensors.
/// @param output Where the result goes, on the root's device; NULL to have it in the root's input.
/// @param count How many inputs there are.
/// @param root The index of the input whose device gets the result.
/// @param op One of PLINTH_REDUCE_.
/// @param streams As for plinth_nccl_all_reduce.
/// @param communicators As for plinth_nccl_all_reduce.
/// @return As plinth_nccl_all_reduce.
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
            // SAFETY: the caller passes NULL or `count` of each.
            let (inputs, overrides) =
                unsafe { (tensors(inputs, count, "inputs")?, overrides(streams, communicators, count)) };
            let output = match inputs.get(root as usize) {
                Some(input) if output.is_null() => *input,
                // SAFETY: the caller passes NULL or a tensor; the core answers for a root that is none.
                _ => unsafe { tensor(output, "output") }?,
            };
            nccl::reduce(&inputs, &output, root, reduction(op)?, &overrides)
        })
    })
}

/// Copies the tensor of one device over those of others. Otherwise as plinth_nccl_all_reduce.
///
/// @param tensors The tensors.
/// @param count How many.
/// @param root The index of the one that is copied.
/// @param streams As for plinth_nccl_all_reduce.
/// @param communicators As for plinth_nccl_all_reduce.
/// @return As plinth_nccl_all_reduce.
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
            // SAFETY: the caller passes NULL or `count` of each.
            let (tensors, overrides) =
                unsafe { (self::tensors(tensors, count, "tensors")?, overrides(streams, communicators, count)) };
            nccl::broadcast(&tensors, root, &overrides)
        })
    })
}

/// Gives each device the tensors of all, one after the other. Otherwise as plinth_nccl_all_reduce.
///
/// @param inputs The tensors.
/// @param outputs Where they go: on each device a tensor of `count` times as many elements.
/// @param count How many inputs there are, and outputs.
/// @param streams As for plinth_nccl_all_reduce.
/// @param communicators As for plinth_nccl_all_reduce.
/// @return As plinth_nccl_all_reduce.
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
            // SAFETY: the caller passes NULL or `count` of each.
            let (inputs, outputs, overrides) = unsafe {
                let outputs = tensors(outputs, count, "outputs")?;
                (tensors(inputs, count, "inputs")?, outputs, overrides(streams, communicators, count))
            };
            nccl::all_gather(&inputs, &outputs, &overrides)
        })
    })
}

/// Reduces tensors of several devices, and gives each device its part of the result. Otherwise as plinth_nccl_all_reduce.
///
/// @param inputs The tensors.
/// @param outputs Where the parts go: on each device a tensor with a `count`-th of the elements.
/// @param count How many inputs there are, and outputs.
/// @param op One of PLINTH_REDUCE_.
/// @param streams As for plinth_nccl_all_reduce.
/// @param communicators As for plinth_nccl_all_reduce.
/// @return As plinth_nccl_all_reduce.
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
            // SAFETY: the caller passes NULL or `count` of each.
            let (inputs, outputs, overrides) = unsafe {
                let outputs = tensors(outputs, count, "outputs")?;
                (tensors(inputs, count, "inputs")?, outputs, overrides(streams, communicators, count))
            };
            nccl::reduce_scatter(&inputs, &outputs, reduction(op)?, &overrides)
        })
    })
}

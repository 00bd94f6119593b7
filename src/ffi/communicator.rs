//! Communicators
//!
//! A communicator lets ranks exchange and reduce data. A rank is a device of this process, of another process of this
//! machine, or of another machine.
//!
//! The caller owns a communicator and destroys it; each rank destroys its own. The work is put into a stream and not
//! waited for, so its memory must stay valid until it is done. All ranks make the same calls in the same order.
//!
//! Calls that wait for other ranks block the calling thread. plinth_communicator_abort, from another thread, makes them
//! return. A group belongs to the thread that began it: either one thread makes the calls of several ranks in a group,
//! or each rank has its own thread.

use crate::{
    collectives::communicator::{self, Options, engine::EngineKind},
    driver::nccl::ID_BYTES,
    error::{Result, invalid},
    ffi::{
        Output, array,
        guard::{guard, release},
        handle, null, plinth_stream_t, span,
        status::plinth_status_t,
        structs,
    },
};
use std::{ffi::c_void, time::Duration};

/// One rank's communicator, for work with other ranks. Ranks are devices of this process, or other processes on this
/// machine or on others.
///
/// The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
/// is of another kind, or that never was a handle.
#[allow(non_camel_case_types)]
pub struct plinth_communicator {
    _private: [u8; 0],
}

/// The handle of a communicator.
#[allow(non_camel_case_types)]
pub type plinth_communicator_t = *mut plinth_communicator;

/// The size in bytes of the id with which ranks find each other.
pub const PLINTH_UNIQUE_ID_SIZE: usize = 128;

/// The library chooses the engine, or the environment variable PLINTH_COMMUNICATOR_ENGINE does.
pub const PLINTH_ENGINE_AUTO: u32 = 0;
/// NCCL performs the communication.
pub const PLINTH_ENGINE_NCCL: u32 = 1;
/// The library's own kernels and copies perform the communication, between devices of one process. Several ranks that
/// connect by an id have PLINTH_ENGINE_SHARED instead, also in one process.
pub const PLINTH_ENGINE_LOCAL: u32 = 2;
/// The library's own kernels perform the communication, between processes of one machine. The ranks of
/// plinth_communicator_init_all, and a single rank, have PLINTH_ENGINE_LOCAL instead.
pub const PLINTH_ENGINE_SHARED: u32 = 3;

/// If ranks connect through NCCL, plinth_communicator_init_rank returns before all ranks are connected;
/// plinth_communicator_query reports when they are, and other calls return PLINTH_ERROR_COMMUNICATOR_NOT_READY until then.
/// If ranks connect through an id of the library's own, or if all ranks belong to one process, whatever the engine, they
/// are connected when the call returns.
pub const PLINTH_COMMUNICATOR_NONBLOCKING: u32 = 1;
/// Uses NCCL in its blocking mode. Each call costs the CPU 50 to 100 microseconds less, but neither the call nor its work
/// in a stream has a timeout: if a rank never joins, the others wait forever.
pub const PLINTH_COMMUNICATOR_UNLIMITED: u32 = 2;

/// Options for the creation of a communicator.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct plinth_communicator_options_t {
    /// sizeof(plinth_communicator_options_t).
    pub struct_size: usize,
    /// How long calls, and their work in streams, wait for other ranks, in milliseconds; 0 for ten minutes.
    pub timeout_milliseconds: u64,
    /// One of the PLINTH_ENGINE_ constants.
    pub engine: u32,
    /// 0, or PLINTH_COMMUNICATOR_NONBLOCKING and _UNLIMITED combined with bitwise or.
    pub flags: u32,
}

pub(super) fn to_c(handle: u64) -> plinth_communicator_t {
    handle as plinth_communicator_t
}

/// Converts the options that C passes.
///
/// # Safety
/// `options` is NULL or points to as many bytes as its first field says.
pub(super) unsafe fn options(options: *const plinth_communicator_options_t) -> Result<Options> {
    if options.is_null() {
        return Ok(Options::default());
    }
    let initial = plinth_communicator_options_t { struct_size: 0, timeout_milliseconds: 0, engine: 0, flags: 0 };
    // SAFETY: the caller's promise.
    let options = unsafe { structs::read(options, initial, "options") }?;
    if options.flags & !(communicator::NONBLOCKING | communicator::UNLIMITED) != 0 {
        return Err(invalid(format!(
            "options->flags is {:#x}; it can have PLINTH_COMMUNICATOR_NONBLOCKING and _UNLIMITED only",
            options.flags
        )));
    }
    let engine = EngineKind::from_number(options.engine).ok_or_else(|| {
        invalid(format!("options->engine is {}; use one of the PLINTH_ENGINE_ constants", options.engine))
    })?;
    let timeout = match options.timeout_milliseconds {
        0 => communicator::TIMEOUT,
        milliseconds => Duration::from_millis(milliseconds),
    };
    Ok(Options { engine, timeout, flags: options.flags })
}

/// Reads the id that C passes.
///
/// # Safety
/// `id` is NULL or points to 128 bytes.
pub(super) unsafe fn unique_id(id: *const u8) -> Result<[u8; ID_BYTES]> {
    // SAFETY: the caller's promise; an array of bytes needs no alignment.
    unsafe { id.cast::<[u8; ID_BYTES]>().as_ref() }.copied().ok_or_else(|| null("id"))
}

/// Creates the communicator of one rank. Ranks find each other by an id, in this process, in other processes of this
/// machine, or on other machines.
///
/// Each rank makes this call in a thread of its own, with the same id and number of ranks. It returns when all ranks
/// are connected, or earlier through NCCL with PLINTH_COMMUNICATOR_NONBLOCKING. Must not be called in a group.
///
/// @param ranks The number of ranks.
/// @param id The PLINTH_UNIQUE_ID_SIZE bytes from plinth_nccl_unique_id. One process calls that function and sends
///        the bytes to the others over any channel, such as a plinth_store_t. Each id can be used for one group of
///        ranks only.
/// @param rank The number of this rank, starting at 0.
/// @param device The device index of this rank; -1 for the current device.
/// @param options The options; NULL for the defaults.
/// @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for numbers out of range or invalid
///         options, and in a group; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_TIMED_OUT if not all ranks joined in
///         time; PLINTH_ERROR_NCCL_UNAVAILABLE if NCCL is needed and not found; PLINTH_ERROR_PEER_LOST;
///         PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_init_rank(
    ranks: i32,
    id: *const u8,
    rank: i32,
    device: i32,
    options: *const plinth_communicator_options_t,
    communicator: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let communicator = unsafe { Output::new(communicator, "communicator") }?;
        // SAFETY: the caller passes NULL or 128 bytes, and NULL or options.
        let (id, options) = unsafe { (unique_id(id)?, self::options(options)?) };
        communicator.set(to_c(communicator::init_rank(ranks, id, rank, device, options)?));
        Ok(())
    })
}

/// Creates the communicators of several devices of this process, one rank for each device.
///
/// One thread can use all of them, if it makes the calls of all ranks for a collective between
/// plinth_communicator_group_start and _group_end. Alternatively each communicator is used by a thread of its own.
///
/// @param devices The device indices, one for each rank, without duplicates.
/// @param count The number of devices.
/// @param options The options; NULL for the defaults.
/// @param communicators Out: `count` communicators. The caller owns each and destroys it with
///        plinth_communicator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no devices, a duplicate device, and
///         invalid options; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NCCL_UNAVAILABLE with PLINTH_ENGINE_NCCL;
///         PLINTH_ERROR_NCCL; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_init_all(
    devices: *const i32,
    count: usize,
    options: *const plinth_communicator_options_t,
    communicators: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        if communicators.is_null() {
            return Err(null("communicators"));
        }
        if count == 0 || count > crate::runtime::thread::MAX_DEVICES {
            return Err(invalid(format!(
                "creating communicators for {count} devices: count must be 1 to {}",
                crate::runtime::thread::MAX_DEVICES
            )));
        }
        // SAFETY: the caller passes `count` numbers, and NULL or options.
        let (devices, options) = unsafe { (array(devices, count, "devices")?, self::options(options)?) };
        let made = communicator::init_all(devices, options)?;
        for (index, handle) in made.into_iter().enumerate() {
            // SAFETY: the caller passes room for `count` communicators, and `made` has `count` elements.
            unsafe { communicators.add(index).write(to_c(handle)) };
        }
        Ok(())
    })
}

/// Destroys a communicator. Each rank destroys its own.
///
/// The communicator's work should be done: synchronize its streams first, and destroy the graphs that captured it.
///
/// NCCL releases its memory of a communicator with the last rank of the process that is destroyed or aborted. That call
/// waits up to its communicator's timeout for the ranks of the other processes of the machine, and for the end of graphs
/// with NCCL's calls. NCCL 2.32 or newer aborts the ranks of the process then; an older one may keep their memory until the
/// other processes end. With PLINTH_COMMUNICATOR_UNLIMITED there is no limit. So processes destroy several communicators in
/// the same order.
///
/// @param communicator The communicator; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_TIMED_OUT if other ranks were not destroyed in time, or
///         PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_NCCL, PLINTH_ERROR_SYSTEM or PLINTH_ERROR_DRIVER if a step failed: the
///         communicator is destroyed nevertheless, as far as NCCL lets it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_destroy(communicator: plinth_communicator_t) -> plinth_status_t {
    release(|| if communicator.is_null() { Ok(()) } else { communicator::destroy(communicator as u64) })
}

/// Aborts a communicator and its work, whatever the other ranks do. Ends those of its process that are destroyed already.
/// NCCL keeps memory until the graphs that captured its calls are destroyed; the call does not wait for that.
///
/// Calls that wait in the communicator return PLINTH_ERROR_ABORTED, and so does every later call except
/// plinth_communicator_destroy. The contents of memory that the aborted work was to write are undefined. Intended for
/// a thread other than the one that waits.
///
/// @param communicator The communicator.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_abort(communicator: plinth_communicator_t) -> plinth_status_t {
    guard(|| communicator::get(handle(communicator, "communicator")?)?.abort())
}

/// Registers memory with all ranks of a communicator, so that collectives read and write it where it is. All ranks make
/// this call, each with memory of its own and with the same number of bytes; it waits for the other ranks.
///
/// The memory is of the caching allocator and of the rank's device. Each rank maps the memory of all others once. Later
/// calls with the communicator do not copy messages through its buffers, if these are registered: the output of
/// plinth_communicator_all_gather and _broadcast, the input of _reduce_scatter and of _reduce, the output of _all_to_all or
/// else its input, unless it is in place, the input and the output of _all_reduce, and where _recv receives more than a
/// mebibyte. Results have the same bits as without a registration. In a collective all ranks must use registered memory of
/// the same call of this function, at the same offset; otherwise it fails with PLINTH_ERROR_RANK_MISMATCH. Short messages
/// are unaffected. If a call fails, other ranks may still write to its output until their own work on it ends.
///
/// With PLINTH_ENGINE_NCCL the memory becomes a window of NCCL 2.28 or newer, if that of all ranks begins at a multiple of 4096
/// and is in one physical allocation; otherwise, and if the ranks cannot access each other's memory, a buffer. NCCL decides what
/// it copies then, and does not compare offsets. A call with memory that is registered in part is refused
/// (PLINTH_ERROR_INVALID_VALUE).
///
/// The registration keeps the memory in place, as plinth_memory_registration_create does: a free is deferred until it
/// ends, and the memory cannot be put to sleep. It ends with plinth_communicator_deregister, and with the communicator.
///
/// @param communicator The communicator, with PLINTH_ENGINE_SHARED or PLINTH_ENGINE_NCCL.
/// @param pointer The first byte of this rank's memory.
/// @param bytes The number of bytes, which may be a part of a block; the same for all ranks.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for no bytes,
///         for more than the block has, for memory that overlaps registered memory of this communicator, and in a
///         group; PLINTH_ERROR_RANK_MISMATCH for another number of bytes than another rank's;
///         PLINTH_ERROR_DEVICE_MISMATCH for memory of another device; PLINTH_ERROR_INVALID_POINTER for memory that is
///         not allocated; PLINTH_ERROR_GRAPH_ASLEEP; PLINTH_ERROR_IPC_REEXPORT for memory of another process;
///         PLINTH_ERROR_IPC_NOT_SHAREABLE for memory that other processes cannot map;
///         PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED; PLINTH_ERROR_SYSTEM, for example if there are too few file
///         descriptors; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_NOT_SUPPORTED for the devices of one process;
///         PLINTH_ERROR_NCCL_UNAVAILABLE with an NCCL older than 2.19; PLINTH_ERROR_TIMED_OUT, PLINTH_ERROR_PEER_LOST
///         and PLINTH_ERROR_ABORTED, if another rank does not make the call; PLINTH_ERROR_DRIVER, PLINTH_ERROR_NCCL. An error
///         of one rank is returned by all, and registers nothing; but with PLINTH_ENGINE_NCCL an error of the driver or of
///         NCCL may be that of the rank alone. PLINTH_ERROR_COMMUNICATOR_NOT_READY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_register(
    communicator: plinth_communicator_t,
    pointer: *mut c_void,
    bytes: usize,
) -> plinth_status_t {
    guard(|| {
        if pointer.is_null() {
            return Err(null("pointer"));
        }
        // SAFETY: the registration keeps the memory valid until it ends; it fails for memory that is not allocated.
        communicator::register(handle(communicator, "communicator")?, unsafe { span(pointer, bytes) })
    })
}

/// Ends the registration of this rank's memory with a communicator. Each rank makes this call, at the same point of the
/// order of its calls; the ranks do not wait for each other.
///
/// The call waits until the collectives that this rank has launched with the communicator are done, but not for replays of
/// graphs. plinth_graph_replay refuses graphs that have captured calls with the memory from then on (PLINTH_ERROR_ABORTED);
/// do not launch such a graph in another way.
///
/// @param communicator The communicator.
/// @param pointer The pointer that was passed to plinth_communicator_register; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if no
///         registered memory begins there; PLINTH_ERROR_NOT_SUPPORTED for the devices of one process; PLINTH_ERROR_NCCL;
///         PLINTH_ERROR_TIMED_OUT if the work is not done within the communicator's timeout, after which the memory is
///         still registered; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait;
///         PLINTH_ERROR_ABORTED after an error of the communicator: its destruction ends the registration.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_deregister(
    communicator: plinth_communicator_t,
    pointer: *mut c_void,
) -> plinth_status_t {
    release(|| {
        let handle = handle(communicator, "communicator")?;
        if pointer.is_null() { Ok(()) } else { communicator::deregister(handle, pointer as u64) }
    })
}

/// Gets the rank of a communicator.
///
/// @param communicator The communicator.
/// @param rank Out: the rank.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_rank(
    communicator: plinth_communicator_t,
    rank: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let rank = unsafe { Output::new(rank, "rank") }?;
        rank.set(communicator::get(handle(communicator, "communicator")?)?.rank() as i32);
        Ok(())
    })
}

/// Gets the number of ranks of a communicator.
///
/// @param communicator The communicator.
/// @param size Out: the number of ranks.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_size(
    communicator: plinth_communicator_t,
    size: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let size = unsafe { Output::new(size, "size") }?;
        size.set(communicator::get(handle(communicator, "communicator")?)?.size() as i32);
        Ok(())
    })
}

/// Gets the device of a communicator's own rank.
///
/// @param communicator The communicator.
/// @param device Out: the device index.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_device(
    communicator: plinth_communicator_t,
    device: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(communicator::get(handle(communicator, "communicator")?)?.device() as i32);
        Ok(())
    })
}

/// Gets the engine of a communicator. The library's own engines may use NCCL for large messages.
///
/// @param communicator The communicator.
/// @param engine Out: PLINTH_ENGINE_NCCL, _LOCAL or _SHARED.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_engine(
    communicator: plinth_communicator_t,
    engine: *mut u32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let engine = unsafe { Output::new(engine, "engine") }?;
        engine.set(communicator::get(handle(communicator, "communicator")?)?.engine() as u32);
        Ok(())
    })
}

/// Sets how long later calls with a communicator wait for other ranks.
///
/// The timeout also ends work in a stream, from the time when the device executes it. The communicator is unusable then;
/// the next call returns PLINTH_ERROR_TIMED_OUT with the call that waited. Replays of graphs with NCCL's work, and NCCL's
/// work with PLINTH_COMMUNICATOR_UNLIMITED, are not ended.
///
/// @param communicator The communicator.
/// @param timeout_milliseconds The timeout in milliseconds; 0 for ten minutes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_set_timeout(
    communicator: plinth_communicator_t,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        let timeout = match timeout_milliseconds {
            0 => communicator::TIMEOUT,
            milliseconds => Duration::from_millis(milliseconds),
        };
        communicator::get(handle(communicator, "communicator")?)?.set_timeout(timeout);
        Ok(())
    })
}

/// Checks a communicator for errors, such as a failed rank or a lost connection, without waiting.
///
/// @param communicator The communicator.
/// @param ready Out: whether all ranks are connected and all requested work is in the streams.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_PEER_LOST,
///         PLINTH_ERROR_NCCL or another error of the communicator, by the first call that detects it;
///         PLINTH_ERROR_ABORTED by later calls: abort or destroy the communicator and create a new one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_query(
    communicator: plinth_communicator_t,
    ready: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let ready = unsafe { Output::new(ready, "ready") }?;
        ready.set(communicator::get(handle(communicator, "communicator")?)?.query()?);
        Ok(())
    })
}

/// Waits on the CPU until all work of a stream is done, as plinth_stream_synchronize does, but with a timeout.
///
/// The call also ends when the communicator has an error: as soon as the stream's work has ended, at most one second
/// later, and with NCCL at once. It also waits until all ranks are connected.
///
/// @param communicator The communicator.
/// @param timeout_milliseconds The timeout in milliseconds; 0 for the communicator's own timeout.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL communicator; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_TIMED_OUT: the communicator and its work are unchanged (wait
///         again or abort); PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids it;
///         PLINTH_ERROR_CAPTURE_FORBIDS while the stream captures, or another thread with PLINTH_CAPTURE_GLOBAL;
///         PLINTH_ERROR_ILLEGAL_ADDRESS, PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the
///         errors of plinth_communicator_query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_wait(
    communicator: plinth_communicator_t,
    timeout_milliseconds: u64,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        let communicator = communicator::get(handle(communicator, "communicator")?)?;
        let limit = match timeout_milliseconds {
            0 => communicator.timeout(),
            milliseconds => Duration::from_millis(milliseconds),
        };
        communicator.wait(stream as usize, limit)
    })
}

/// Releases the device memory of a communicator, and keeps its addresses. All ranks make this call.
///
/// Waits for all work of the rank's device and for the other ranks; when it returns, all ranks have released the memory.
/// Until plinth_communicator_wake the communicator's calls fail with PLINTH_ERROR_GRAPH_ASLEEP, and so does
/// plinth_graph_replay for a graph that captured them; do not launch such a graph in another way. Messages that were sent
/// and not received are kept. A communicator that sleeps stays so.
///
/// The ranks that plinth_communicator_init_all makes do not wait for each other, so that one thread can call for all of them:
/// each call ends the use of its rank, and that of the last rank waits for all devices and releases the memory. If that fails
/// other than by PLINTH_ERROR_NCCL, which aborts the communicator, the last rank is awake and the others are not: repeat the
/// call, or wake them.
///
/// NCCL releases its memory from 2.30.3 on: that of PLINTH_ENGINE_NCCL, and with PLINTH_ENGINE_AUTO and PLINTH_ENGINE_SHARED
/// that for large messages, which an older NCCL keeps. Devices of one process without NCCL have no memory of their own, and
/// the call does nothing.
///
/// @param communicator The communicator. Must not be called in a group.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE in a group, if
///         memory is registered with a communicator of NCCL, or while a call of a rank of plinth_communicator_init_all waits
///         in another thread; PLINTH_ERROR_NCCL_UNAVAILABLE with PLINTH_ENGINE_NCCL and an older version; PLINTH_ERROR_NCCL;
///         PLINTH_ERROR_CAPTURE_FORBIDS while a stream of the device captures; PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync
///         debug mode forbids the wait; PLINTH_ERROR_OUT_OF_MEMORY for host memory; PLINTH_ERROR_DRIVER. If one rank
///         fails, all ranks return its status, and the communicator is awake, or, if some memory could not be released,
///         asleep: repeat the call, or wake it. PLINTH_ERROR_TIMED_OUT if a rank does not make the call,
///         PLINTH_ERROR_PEER_LOST and PLINTH_ERROR_ABORTED abort the communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_sleep(communicator: plinth_communicator_t) -> plinth_status_t {
    guard(|| communicator::set_asleep(handle(communicator, "communicator")?, true))
}

/// Allocates the device memory of a communicator that sleeps, at the same addresses. All ranks make this call.
///
/// The communicator continues where it was, and graphs that captured its calls can be replayed. A communicator that is
/// awake stays so. Of the ranks that plinth_communicator_init_all makes, the first call allocates the memory of all,
/// or fails alone.
///
/// Ranks that wake NCCL cannot tell each other anything. One whose device captures, or with PLINTH_ENGINE_NCCL has no room,
/// fails alone: repeat the call there, while the other ranks wait.
///
/// @param communicator The communicator. Must not be called in a group.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE in a group;
///         PLINTH_ERROR_NCCL_UNAVAILABLE as plinth_communicator_sleep; PLINTH_ERROR_NCCL; PLINTH_ERROR_CAPTURE_FORBIDS with
///         NCCL, while a stream of the device captures; PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_SYSTEM; PLINTH_ERROR_DRIVER. If one rank fails, all ranks return its status, and the communicator
///         sleeps on: repeat the call on all ranks. PLINTH_ERROR_TIMED_OUT if a rank does not make the call,
///         PLINTH_ERROR_PEER_LOST and PLINTH_ERROR_ABORTED abort the communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_wake(communicator: plinth_communicator_t) -> plinth_status_t {
    guard(|| communicator::set_asleep(handle(communicator, "communicator")?, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_cores() {
        for (number, choice) in [
            (PLINTH_ENGINE_AUTO, EngineKind::Auto),
            (PLINTH_ENGINE_NCCL, EngineKind::Nccl),
            (PLINTH_ENGINE_LOCAL, EngineKind::Local),
            (PLINTH_ENGINE_SHARED, EngineKind::Shared),
        ] {
            assert_eq!(EngineKind::from_number(number), Some(choice));
        }
        assert_eq!(EngineKind::from_number(4), None);
        let flags = [PLINTH_COMMUNICATOR_NONBLOCKING, PLINTH_COMMUNICATOR_UNLIMITED];
        assert_eq!(flags, [communicator::NONBLOCKING, communicator::UNLIMITED]);
        assert_eq!(PLINTH_UNIQUE_ID_SIZE, ID_BYTES);
    }
}

//! Stores
//!
//! A store is a folder that all processes of a job can access. It holds small values under names, by which the
//! processes find each other before they have a communicator. Processes that have another channel, such as MPI, need
//! no store: they send each other the bytes of plinth_nccl_unique_id.
//!
//! The caller owns a store and destroys it; the values stay in the folder. Functions that wait for other processes
//! block the calling thread.

use crate::{
    collectives::{communicator, store},
    error::Error,
    ffi::{
        Output, array,
        communicator::PLINTH_UNIQUE_ID_SIZE,
        exact_string,
        guard::{guard, release},
        handle, null, path,
        status::plinth_status_t,
    },
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

/// A store: a key-value store by which processes find each other before they have a communicator. The handle is opaque
/// and validated.
#[allow(non_camel_case_types)]
pub struct plinth_store {
    _private: [u8; 0],
}

/// The handle of a store.
#[allow(non_camel_case_types)]
pub type plinth_store_t = *mut plinth_store;

fn limit(milliseconds: u64) -> Duration {
    if milliseconds == 0 { store::TIMEOUT } else { Duration::from_millis(milliseconds) }
}

/// Opens the store in a folder that all processes can access, on one machine or on a file system that several machines
/// mount. A folder that does not exist is created for this user alone. Every key is good for one value, so use a new
/// folder for each run. Users who can read the folder can join the communicator, and users who can write to it can forge
/// values, so give no other user these rights. Needs no device.
///
/// @param address The absolute path of the folder, such as /shared/run-17. It may begin with file://.
/// @param store Out: the store. The caller owns it and destroys it with plinth_store_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an invalid address;
///         PLINTH_ERROR_NOT_SUPPORTED for an address of TCP; PLINTH_ERROR_SYSTEM if the folder cannot be created.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_create(address: *const c_char, store: *mut plinth_store_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let store = unsafe { Output::new(store, "store") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let address = unsafe { path(address, "address") }?;
        store.set(store::create(&address)? as plinth_store_t);
        Ok(())
    })
}

/// Destroys a store. The folder and its values stay.
///
/// @param store The store; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_destroy(store: plinth_store_t) -> plinth_status_t {
    release(|| if store.is_null() { Ok(()) } else { store::destroy(store as u64) })
}

/// Sets the value of a key that has none. Other processes see all of the value or nothing.
///
/// @param store The store.
/// @param name The key: 1 to 1024 bytes of UTF-8.
/// @param value The value; NULL if `bytes` is 0.
/// @param bytes Size of the value in bytes, at most 1 MiB.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong
///         size, and if the key has a value; PLINTH_ERROR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_set(
    store: plinth_store_t,
    name: *const c_char,
    value: *const c_void,
    bytes: usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let name = unsafe { exact_string(name, "name") }?;
        store::check_value(bytes)?;
        // SAFETY: the caller passes NULL or `bytes` readable bytes.
        let value = unsafe { array(value.cast::<u8>(), bytes, "value") }?;
        store::get(handle(store, "store")?)?.set(&name, value)
    })
}

/// Returns the value of a key, and waits until it is set.
///
/// @param store The store.
/// @param name The key.
/// @param timeout_milliseconds How long to wait; 0 for five minutes.
/// @param value Out: the value; not written if it does not fit. NULL if `capacity` is 0.
/// @param capacity Size of the buffer in bytes.
/// @param bytes Out, unless NULL: the size of the value in bytes, also if it does not fit.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an invalid
///         key, and if the value does not fit; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_SYSTEM, also if another process put
///         something in the value's place that is not a file of at most 1 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_get(
    store: plinth_store_t,
    name: *const c_char,
    timeout_milliseconds: u64,
    value: *mut c_void,
    capacity: usize,
    bytes: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let name = unsafe { exact_string(name, "name") }?;
        if value.is_null() && capacity > 0 {
            return Err(null("value"));
        }
        let found = store::get(handle(store, "store")?)?.wait(&name, limit(timeout_milliseconds))?;
        if !bytes.is_null() {
            // SAFETY: it is not NULL, so the caller passes a valid pointer.
            unsafe { bytes.write(found.len()) };
        }
        if found.len() > capacity {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("the value has {} bytes, but the capacity is only {capacity}", found.len()),
            ));
        }
        if !found.is_empty() {
            // SAFETY: the capacity suffices, so the caller promises as many writable bytes.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), value.cast::<u8>(), found.len()) };
        }
        Ok(())
    })
}

/// Waits until `ranks` processes have made this call with this key. A key can be used for one barrier only.
///
/// @param store The store.
/// @param name The key.
/// @param ranks The number of ranks.
/// @param timeout_milliseconds How long to wait; 0 for five minutes.
/// @return The statuses of plinth_store_set; PLINTH_ERROR_TIMED_OUT with a message that states how many ranks are
///         missing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_barrier(
    store: plinth_store_t,
    name: *const c_char,
    ranks: i32,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let name = unsafe { exact_string(name, "name") }?;
        store::get(handle(store, "store")?)?.barrier(&name, ranks, limit(timeout_milliseconds))
    })
}

/// Distributes the unique id of a communicator to all ranks: rank 0 creates it as plinth_nccl_unique_id does, the
/// others wait for it, and all calls return when every rank has it. Call plinth_communicator_init_rank next.
///
/// @param store The store.
/// @param name A key for this communicator. Each rank can use it once.
/// @param rank The number of this rank.
/// @param ranks The number of ranks.
/// @param timeout_milliseconds How long to wait; 0 for five minutes.
/// @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
/// @return The statuses of plinth_store_barrier; at rank 0 also those of plinth_nccl_unique_id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_unique_id(
    store: plinth_store_t,
    name: *const c_char,
    rank: i32,
    ranks: i32,
    timeout_milliseconds: u64,
    id: *mut u8,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 128 bytes.
        let output = unsafe { Output::new(id.cast::<[u8; PLINTH_UNIQUE_ID_SIZE]>(), "id") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let name = unsafe { exact_string(name, "name") }?;
        let store = store::get(handle(store, "store")?)?;
        output.set(store.share_id(&name, rank, ranks, limit(timeout_milliseconds), communicator::unique_id)?);
        Ok(())
    })
}

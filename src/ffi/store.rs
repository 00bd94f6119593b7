//! Stores
//!
//! A store holds small values under names, by which the processes of a job find each other before they have a
//! communicator.
//!
//! The caller owns a store and destroys it. The process that serves a TCP store must keep it open as long as others
//! need it, and answers them only while it is in a call with it. Functions that wait for other processes block the
//! calling thread.

use crate::{
    communicator,
    error::{Error, Result},
    ffi::{Output, communicator::PLINTH_UNIQUE_ID_SIZE, guard::guard, null, status::plinth_status_t, string},
    status::Status,
    store,
};
use std::{
    ffi::{c_char, c_void},
    time::Duration,
};

/// A store: small values under names, by which processes find each other before they have a communicator. Opaque, and checked
/// as every handle is.
#[allow(non_camel_case_types)]
pub struct plinth_store {
    _private: [u8; 0],
}

/// The handle of a store.
#[allow(non_camel_case_types)]
pub type plinth_store_t = *mut plinth_store;

fn handle(store: plinth_store_t) -> Result<u64> {
    if store.is_null() { Err(null("store")) } else { Ok(store as u64) }
}

fn limit(milliseconds: u64) -> Duration {
    if milliseconds == 0 { store::TIMEOUT } else { Duration::from_millis(milliseconds) }
}

/// Opens a store: a folder that all processes see, such as file:///shared/run-17, which is made if it is not there; or the
/// memory of one process that answers the others over TCP, such as tcp://10.0.0.1:29500. There is no thread: the process that
/// answers does so while it is in a call with the store, which it is while it waits for the others. Names and values are
/// seen by all who reach the folder or the port, so both belong on a network of one's own. A store is for one run: what an
/// earlier one left in a folder would be taken for this one's. Thread-safe; needs no device.
///
/// @param address The address. Port 0 is any that is free; see plinth_store_port.
/// @param serves Whether this is the process that answers, of a TCP store. Not looked at for a folder.
/// @param timeout_milliseconds How long to try to reach the one that answers; 0 for five minutes.
/// @param store Out: the store. The caller owns it and destroys it with plinth_store_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for another address; PLINTH_ERROR_TIMED_OUT if
///         nobody answers; PLINTH_ERROR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_open(
    address: *const c_char,
    serves: bool,
    timeout_milliseconds: u64,
    store: *mut plinth_store_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the store.
        let store = unsafe { Output::new(store, "store") }?;
        // SAFETY: the caller passes NULL or a text.
        let address = unsafe { string(address, "address") }?;
        store.set(store::open(&address, serves, limit(timeout_milliseconds))? as plinth_store_t);
        Ok(())
    })
}

/// Closes a store. Others lose what the process that answers has. Thread-safe, but a store must not be destroyed while
/// another thread is in a call with it.
///
/// @param store The store; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_destroy(store: plinth_store_t) -> plinth_status_t {
    guard(|| if store.is_null() { Ok(()) } else { store::destroy(store as u64) })
}

/// Tells the port at which the process that answers listens. Thread-safe.
///
/// @param store The store.
/// @param port Out: the port.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a store that does
///         not listen; PLINTH_ERROR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_port(store: plinth_store_t, port: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let port = unsafe { Output::new(port, "port") }?;
        port.set(store::get(handle(store)?)?.port()?.into());
        Ok(())
    })
}

/// Puts a value under a name, in place of what was there. Thread-safe.
///
/// @param store The store.
/// @param name The name: 1 to 1024 bytes.
/// @param value The value; NULL with 0 bytes.
/// @param bytes How long it is: up to a mebibyte.
/// @param timeout_milliseconds How long to wait for the one that answers; 0 for five minutes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong length;
///         PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST if the one that answers is gone; PLINTH_ERROR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_set(
    store: plinth_store_t,
    name: *const c_char,
    value: *const c_void,
    bytes: usize,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a text.
        let name = unsafe { string(name, "name") }?;
        if value.is_null() && bytes > 0 {
            return Err(null("value"));
        }
        let value = match bytes {
            0 => &[],
            // SAFETY: it is not NULL, so the caller passes so many bytes.
            _ => unsafe { std::slice::from_raw_parts(value.cast::<u8>(), bytes) },
        };
        store::get(handle(store)?)?.set(&name, value, limit(timeout_milliseconds))
    })
}

/// Gets the value under a name, and waits until somebody sets it. Thread-safe.
///
/// @param store The store.
/// @param name The name.
/// @param value Out: the value; not written if it has no room. NULL with a capacity of 0.
/// @param capacity How many bytes there is room for.
/// @param bytes Out: how long the value is, also where it has no room; NULL if nobody wants that.
/// @param timeout_milliseconds How long to wait; 0 for five minutes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a wrong name, and
///         if there is too little room; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_get(
    store: plinth_store_t,
    name: *const c_char,
    value: *mut c_void,
    capacity: usize,
    bytes: *mut usize,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a text.
        let name = unsafe { string(name, "name") }?;
        if value.is_null() && capacity > 0 {
            return Err(null("value"));
        }
        let found = store::get(handle(store)?)?.wait(&name, limit(timeout_milliseconds))?;
        if !bytes.is_null() {
            // SAFETY: it is not NULL, so the caller passes a place for the number.
            unsafe { bytes.write(found.len()) };
        }
        if found.len() > capacity {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("the value has {} bytes, and there is room for {capacity}", found.len()),
            ));
        }
        if !found.is_empty() {
            // SAFETY: there is room for as many bytes, so the caller passes a place for them.
            unsafe { std::ptr::copy_nonoverlapping(found.as_ptr(), value.cast::<u8>(), found.len()) };
        }
        Ok(())
    })
}

/// Adds to the number under a name, which is 0 until somebody adds to it. Thread-safe.
///
/// @param store The store.
/// @param name The name, of a number and not of a value that was set.
/// @param amount What is added.
/// @param sum Out: what it comes to.
/// @param timeout_milliseconds How long to wait for the one that answers; 0 for five minutes.
/// @return As plinth_store_set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_add(
    store: plinth_store_t,
    name: *const c_char,
    amount: i64,
    sum: *mut i64,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let sum = unsafe { Output::new(sum, "sum") }?;
        // SAFETY: the caller passes NULL or a text.
        let name = unsafe { string(name, "name") }?;
        sum.set(store::get(handle(store)?)?.add(&name, amount, limit(timeout_milliseconds))?);
        Ok(())
    })
}

/// Waits until as many processes as there are ranks have made this call with this name. A name is for one meeting.
/// Thread-safe.
///
/// @param store The store.
/// @param name The name.
/// @param ranks How many there are.
/// @param timeout_milliseconds How long to wait; 0 for five minutes.
/// @return As plinth_store_set; PLINTH_ERROR_TIMED_OUT says how many are missing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_barrier(
    store: plinth_store_t,
    name: *const c_char,
    ranks: i32,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a text.
        let name = unsafe { string(name, "name") }?;
        store::get(handle(store)?)?.barrier(&name, ranks.into(), limit(timeout_milliseconds))
    })
}

/// Gives all ranks an id to meet by: rank 0 makes it as plinth_nccl_unique_id does, the others wait for it, and all return when
/// all have it. plinth_communicator_init_rank comes next. Thread-safe.
///
/// @param store The store.
/// @param name A name for this meeting.
/// @param rank The number of this rank.
/// @param ranks How many there are.
/// @param id Out: PLINTH_UNIQUE_ID_SIZE bytes.
/// @param timeout_milliseconds How long to wait; 0 for five minutes.
/// @return As plinth_store_barrier; at rank 0 also as plinth_nccl_unique_id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_store_unique_id(
    store: plinth_store_t,
    name: *const c_char,
    rank: i32,
    ranks: i32,
    id: *mut u8,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 128 bytes.
        let output = unsafe { Output::new(id.cast::<[u8; PLINTH_UNIQUE_ID_SIZE]>(), "id") }?;
        // SAFETY: the caller passes NULL or a text.
        let name = unsafe { string(name, "name") }?;
        let store = store::get(handle(store)?)?;
        output.set(store.share_id(&name, rank, ranks, limit(timeout_milliseconds), communicator::unique_id)?);
        Ok(())
    })
}

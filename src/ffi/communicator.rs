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
    communicator::{self, Options, engine::Choice, group},
    driver::nccl::ID_BYTES,
    error::{Error, Result},
    ffi::{Output, guard::guard, null, plinth_stream_t, status::plinth_status_t},
    status::Status,
};
use std::time::Duration;

/// One rank's communicator: what it takes to work together with other ranks, which are devices of this process, or other
/// processes, on this machine or others. Opaque, and checked: a handle that was destroyed, is of another kind, or never was
/// one is answered with PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_communicator {
    _private: [u8; 0],
}

/// The handle of a communicator.
#[allow(non_camel_case_types)]
pub type plinth_communicator_t = *mut plinth_communicator;

/// The bytes of an id that ranks meet by.
pub const PLINTH_UNIQUE_ID_SIZE: usize = 128;

/// The engine is the library's choice, or that of the environment variable PLINTH_COMMUNICATOR_ENGINE.
pub const PLINTH_ENGINE_AUTO: u32 = 0;
/// NCCL carries out what ranks do together.
pub const PLINTH_ENGINE_NCCL: u32 = 1;
/// The library's own kernels and copies do, between devices of one process.
pub const PLINTH_ENGINE_LOCAL: u32 = 2;
/// The library's own kernels do, between processes of one machine.
pub const PLINTH_ENGINE_SHARED: u32 = 3;

/// Where ranks meet through NCCL, plinth_communicator_init_rank returns before they have met; plinth_communicator_query tells
/// when they have. Ranks that meet by an id of the library's own, and by whatever engine the ranks of one process, have met
/// when it returns.
pub const PLINTH_COMMUNICATOR_NONBLOCKING: u32 = 1;
/// NCCL is used in its blocking mode: each call costs the CPU some microseconds less, and has no limit of time, so that a
/// rank that never comes makes the others wait for ever.
pub const PLINTH_COMMUNICATOR_UNLIMITED: u32 = 2;

/// How a communicator is made.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct plinth_communicator_options_t {
    /// sizeof(plinth_communicator_options_t).
    pub struct_size: usize,
    /// How long ranks wait for each other, in milliseconds; 0 for ten minutes.
    pub timeout_milliseconds: u64,
    /// One of PLINTH_ENGINE_.
    pub engine: u32,
    /// 0, or PLINTH_COMMUNICATOR_NONBLOCKING and _UNLIMITED or-ed together.
    pub flags: u32,
}

pub(super) fn handle(communicator: plinth_communicator_t) -> Result<u64> {
    if communicator.is_null() { Err(null("communicator")) } else { Ok(communicator as u64) }
}

fn to_c(handle: u64) -> plinth_communicator_t {
    handle as plinth_communicator_t
}

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// The options that C gives.
///
/// # Safety
/// `options` is NULL, or leads to as many bytes as the size in front says.
pub(super) unsafe fn options(options: *const plinth_communicator_options_t) -> Result<Options> {
    // SAFETY: the caller's promise.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(Options::default()) };
    if options.struct_size != size_of::<plinth_communicator_options_t>() {
        return Err(invalid(format!("the options say that they have {} bytes", options.struct_size)));
    }
    if options.flags & !(communicator::NONBLOCKING | communicator::UNLIMITED) != 0 {
        return Err(invalid(format!("{:#x} are not flags of a communicator", options.flags)));
    }
    let engine = Choice::from_number(options.engine)
        .ok_or_else(|| invalid(format!("{} is not the number of an engine", options.engine)))?;
    let timeout = match options.timeout_milliseconds {
        0 => communicator::TIMEOUT,
        milliseconds => Duration::from_millis(milliseconds),
    };
    Ok(Options { engine, timeout, flags: options.flags })
}

/// The id that C gives.
///
/// # Safety
/// `id` is NULL or leads to 128 bytes.
pub(super) unsafe fn unique_id(id: *const u8) -> Result<[u8; ID_BYTES]> {
    // SAFETY: the caller's promise; an array of bytes needs no alignment.
    unsafe { id.cast::<[u8; ID_BYTES]>().as_ref() }.copied().ok_or_else(|| null("id"))
}

/// Becomes one of several ranks that meet by an id: in this process, in others of this machine, or on other machines. Each
/// rank makes this call, with the same id and number of ranks, in a thread of its own; it returns when all have met, or, through
/// NCCL and with PLINTH_COMMUNICATOR_NONBLOCKING, before. Thread-safe; not in a group.
///
/// @param ranks How many ranks there are.
/// @param id The PLINTH_UNIQUE_ID_SIZE bytes that plinth_nccl_unique_id gave in one process, and that the others got by any
///        channel, such as a plinth_store_t. An id is for one meeting.
/// @param rank The number of this rank, from 0 on.
/// @param device The device of this rank; -1 for the current one.
/// @param options How it is made; NULL for defaults.
/// @param communicator Out: the communicator. The caller owns it and destroys it with plinth_communicator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for wrong numbers or options, and in a group;
///         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_TIMED_OUT if not all ranks came in time; PLINTH_ERROR_NCCL_UNAVAILABLE
///         where NCCL is needed and not there; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
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
        // SAFETY: the caller passes NULL or a place for the communicator.
        let communicator = unsafe { Output::new(communicator, "communicator") }?;
        // SAFETY: the caller passes NULL or 128 bytes, and NULL or options.
        let (id, options) = unsafe { (unique_id(id)?, self::options(options)?) };
        communicator.set(to_c(communicator::init_rank(ranks, id, rank, device, options)?));
        Ok(())
    })
}

/// Makes the communicators of several devices of this process, a rank for each. One thread can use them all, with what all
/// ranks do together between plinth_communicator_group_start and _group_end; or each is used by a thread of its own.
/// Thread-safe.
///
/// @param devices The devices, one for each rank; none twice.
/// @param count How many.
/// @param options How they are made; NULL for defaults.
/// @param communicators Out: so many communicators. The caller owns each and destroys it with plinth_communicator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no devices, one that is there twice, and wrong
///         options; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_NCCL_UNAVAILABLE with PLINTH_ENGINE_NCCL; PLINTH_ERROR_NCCL;
///         PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_init_all(
    devices: *const i32,
    count: usize,
    options: *const plinth_communicator_options_t,
    communicators: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        if devices.is_null() || communicators.is_null() {
            return Err(null(if devices.is_null() { "devices" } else { "communicators" }));
        }
        if count == 0 || count > crate::thread::MAX_DEVICES {
            return Err(invalid(format!("a communicator of {count} devices cannot be")));
        }
        // SAFETY: the caller passes `count` numbers, and NULL or options.
        let (devices, options) = unsafe { (std::slice::from_raw_parts(devices, count), self::options(options)?) };
        let made = communicator::init_all(devices, options)?;
        for (index, handle) in made.into_iter().enumerate() {
            // SAFETY: the caller passes room for `count` communicators, and there are as many.
            unsafe { communicators.add(index).write(to_c(handle)) };
        }
        Ok(())
    })
}

/// Destroys a communicator. The work that it was given should be done: wait for the streams first. Each rank destroys its
/// own. Thread-safe, but a communicator must not be destroyed while another thread is in a call with it.
///
/// @param communicator The communicator; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL or PLINTH_ERROR_DRIVER for what went wrong on the way:
///         the communicator is gone all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_destroy(communicator: plinth_communicator_t) -> plinth_status_t {
    guard(|| if communicator.is_null() { Ok(()) } else { communicator::destroy(communicator as u64) })
}

/// Ends what a communicator does, and it itself, whatever the other ranks do: calls that wait in it return
/// PLINTH_ERROR_ABORTED, and so does every later one but plinth_communicator_destroy. Memory that its work
/// was to write has any content. Thread-safe, and made for a thread beside the one that waits.
///
/// @param communicator The communicator.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_abort(communicator: plinth_communicator_t) -> plinth_status_t {
    guard(|| communicator::get(handle(communicator)?)?.abort())
}

/// Makes communicators of the ranks of one: the ranks that give the same color are together in a new one, in the order of
/// their keys, and where those are equal in their old order. All ranks make this call. In a group, the new communicator is
/// there when the group has ended.
///
/// @param communicator The communicator; it stays.
/// @param color The color; -1 to be in no new communicator.
/// @param key The key.
/// @param part Out: the new communicator of this rank, NULL for color -1. The caller owns it and destroys it with
///        plinth_communicator_destroy. In a group the place must be there until the end of that.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another negative
///         color; the errors of plinth_communicator_all_reduce; PLINTH_ERROR_NCCL_UNAVAILABLE with an NCCL before 2.18.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_split(
    communicator: plinth_communicator_t,
    color: i32,
    key: i32,
    part: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller passes NULL or a place for the communicator, which stays until the split is done.
            let part = unsafe { Output::new(part, "part") }?;
            let color = match color {
                -1 => None,
                color => Some(u32::try_from(color).map_err(|_| invalid(format!("{color} is not a color")))?),
            };
            communicator::split(handle(communicator)?, color, key, Box::new(|handle| part.set(to_c(handle))))
        })
    })
}

/// Tells the number of a communicator's own rank.
///
/// @param communicator The communicator.
/// @param rank Out: the number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_rank(
    communicator: plinth_communicator_t,
    rank: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let rank = unsafe { Output::new(rank, "rank") }?;
        rank.set(communicator::get(handle(communicator)?)?.rank() as i32);
        Ok(())
    })
}

/// Tells how many ranks a communicator has.
///
/// @param communicator The communicator.
/// @param size Out: how many.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_size(
    communicator: plinth_communicator_t,
    size: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let size = unsafe { Output::new(size, "size") }?;
        size.set(communicator::get(handle(communicator)?)?.size() as i32);
        Ok(())
    })
}

/// Tells the device of a communicator's own rank.
///
/// @param communicator The communicator.
/// @param device Out: the device's number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_device(
    communicator: plinth_communicator_t,
    device: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let device = unsafe { Output::new(device, "device") }?;
        device.set(communicator::get(handle(communicator)?)?.device() as i32);
        Ok(())
    })
}

/// Tells the engine of a communicator. One of the library's own may leave large messages to NCCL.
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
        // SAFETY: the caller passes NULL or a place for the number.
        let engine = unsafe { Output::new(engine, "engine") }?;
        engine.set(communicator::get(handle(communicator)?)?.engine() as u32);
        Ok(())
    })
}

/// Sets how long calls with a communicator wait for other ranks from now on.
///
/// @param communicator The communicator.
/// @param timeout_milliseconds How long; 0 for ten minutes.
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
        communicator::get(handle(communicator)?)?.set_timeout(timeout);
        Ok(())
    })
}

/// Asks for errors that a communicator came to, without waiting: another rank that failed, a connection that was lost.
/// Thread-safe.
///
/// @param communicator The communicator.
/// @param ready Out: whether all ranks have met, and what was asked is in the streams.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_PEER_LOST, PLINTH_ERROR_NCCL or
///         another for what it came to, when that is seen first, and from then on PLINTH_ERROR_ABORTED: abort or destroy it,
///         and make a new one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_query(
    communicator: plinth_communicator_t,
    ready: *mut bool,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let ready = unsafe { Output::new(ready, "ready") }?;
        ready.set(communicator::get(handle(communicator)?)?.query()?);
        Ok(())
    })
}

/// Waits on the CPU until all work of a stream is done, as plinth_stream_synchronize does, but with an end: when the time is
/// over, or as soon as the communicator comes to an error. It also waits until the ranks have met. Thread-safe.
///
/// @param communicator The communicator.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @param timeout_milliseconds How long; 0 for the communicator's own limit.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER for a NULL communicator; PLINTH_ERROR_INVALID_HANDLE;
///         PLINTH_ERROR_DEVICE_MISMATCH; PLINTH_ERROR_TIMED_OUT: the communicator and its work are as they were, to be waited
///         for again or aborted; PLINTH_ERROR_WOULD_SYNCHRONIZE by the sync debug mode; PLINTH_ERROR_ILLEGAL_ADDRESS,
///         PLINTH_ERROR_LAUNCH_FAILED or PLINTH_ERROR_DRIVER for failed work; the errors of plinth_communicator_query.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_wait(
    communicator: plinth_communicator_t,
    stream: plinth_stream_t,
    timeout_milliseconds: u64,
) -> plinth_status_t {
    guard(|| {
        let communicator = communicator::get(handle(communicator)?)?;
        let limit = match timeout_milliseconds {
            0 => communicator.timeout(),
            milliseconds => Duration::from_millis(milliseconds),
        };
        communicator.wait(stream as usize, limit)
    })
}

/// Begins a group: what this thread asks of communicators from now on is done at plinth_communicator_group_end, as one. So
/// one thread brings the parts of several ranks, and a rank sends and receives at once. Groups may be in groups. What is
/// asked in a group has no order in it, but for what all ranks of a communicator do together in one stream; and with
/// PLINTH_ENGINE_NCCL not even that.
///
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_group_start() -> plinth_status_t {
    guard(|| {
        group::start();
        Ok(())
    })
}

/// Ends a group. What was asked in it is in the streams when this returns. If a call in the group was refused, or one in a group
/// within it, nothing is asked of any communicator, and this returns the error of the first such call. After another
/// error some of what was asked may be in the streams; the rest is not done later, but what NCCL was at when the time was over
/// may be, until the communicator is aborted.
///
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if no group was begun in this thread; the errors of what was asked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_group_end() -> plinth_status_t {
    guard(|| {
        group::end()?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_cores() {
        for (number, choice) in [
            (PLINTH_ENGINE_AUTO, Choice::Auto),
            (PLINTH_ENGINE_NCCL, Choice::Nccl),
            (PLINTH_ENGINE_LOCAL, Choice::Local),
            (PLINTH_ENGINE_SHARED, Choice::Shared),
        ] {
            assert_eq!(Choice::from_number(number), Some(choice));
        }
        assert_eq!(Choice::from_number(4), None);
        let flags = [PLINTH_COMMUNICATOR_NONBLOCKING, PLINTH_COMMUNICATOR_UNLIMITED];
        assert_eq!(flags, [communicator::NONBLOCKING, communicator::UNLIMITED]);
        assert_eq!(PLINTH_UNIQUE_ID_SIZE, ID_BYTES);
    }
}

//! Collectives of a communicator
//!
//! What the ranks of a communicator do together: reduce, broadcast, gather, scatter, send and receive. Where two
//! threads use one communicator, the program must make the order of their calls the same on all ranks.

use crate::{
    comm::ReduceOp,
    communicator::{self, Share, group, operation::Kind},
    driver::Span,
    error::{Error, Result},
    ffi::{
        communicator::{handle, plinth_communicator_t},
        guard::guard,
        plinth_stream_t,
        status::plinth_status_t,
        tensor::DLDataType,
    },
    status::Status,
};
use std::ffi::c_void;

/// The sum of all ranks' elements; of truths, whether any is. The numbers are NCCL's own.
pub const PLINTH_REDUCE_SUM: i32 = 0;
/// Their product; of truths, whether all are.
pub const PLINTH_REDUCE_PRODUCT: i32 = 1;
/// The greatest of them; complex numbers have none.
pub const PLINTH_REDUCE_MAX: i32 = 2;
/// The least of them; complex numbers have none.
pub const PLINTH_REDUCE_MIN: i32 = 3;
/// Their sum divided by the number of ranks; truths have none.
pub const PLINTH_REDUCE_AVERAGE: i32 = 4;

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// The reduction with this number.
pub(super) fn reduction(op: i32) -> Result<ReduceOp> {
    Ok(match op {
        PLINTH_REDUCE_SUM => ReduceOp::Sum,
        PLINTH_REDUCE_PRODUCT => ReduceOp::Product,
        PLINTH_REDUCE_MAX => ReduceOp::Maximum,
        PLINTH_REDUCE_MIN => ReduceOp::Minimum,
        PLINTH_REDUCE_AVERAGE => ReduceOp::Average,
        _ => return Err(invalid(format!("{op} is not the number of a reduction"))),
    })
}

fn rank(number: i32, name: &str) -> Result<u32> {
    u32::try_from(number).map_err(|_| invalid(format!("{name} is {number}, and no rank has that number")))
}

/// # Safety
/// The memory stays valid, for as many elements as the operation has, until its work is done.
unsafe fn share(from: *const c_void, to: *const c_void, count: usize, element: DLDataType) -> Result<Share> {
    let element = element.element("element")?;
    // SAFETY: the caller's promise; how far the memory reaches follows from the operation.
    let (from, to) = unsafe { (Span::new(from as u64, 0), Span::new(to as u64, 0)) };
    Ok(Share { from, to, count: count as u64, element })
}

/// Reduces the elements of all ranks; each rank gets the result. All ranks make this call, in the same order as their other
/// calls with this communicator. It is put into the stream and not waited for; it may be captured. Memory stays valid until
/// the work is done. Thread-safe, but the order of calls of two threads is any.
///
/// @param communicator The communicator.
/// @param from What this rank gives: `count` elements in its device's memory.
/// @param to Where it gets the result; the same as `from` to have it in place.
/// @param count How many elements; the same at all ranks. 0 does nothing.
/// @param element The type of the elements.
/// @param op One of PLINTH_REDUCE_.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for numbers out of
///         range, misaligned memory, and types that are not known; PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device;
///         PLINTH_ERROR_RANK_MISMATCH if ranks ask for different things, where that is seen; PLINTH_ERROR_TIMED_OUT if other
///         ranks do not come; PLINTH_ERROR_PEER_LOST; PLINTH_ERROR_ABORTED; PLINTH_ERROR_NOT_SUPPORTED for what the engine
///         cannot do with these elements; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_all_reduce(
    communicator: plinth_communicator_t,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: DLDataType,
    op: i32,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(from, to, count, element) }?;
            communicator::operate(handle(communicator)?, Kind::AllReduce { op: reduction(op)? }, share, stream as usize)
        })
    })
}

/// As plinth_communicator_all_reduce, but one rank only gets the result.
///
/// @param communicator The communicator.
/// @param from What this rank gives: `count` elements.
/// @param to Where the root gets the result; not looked at elsewhere.
/// @param count How many elements; the same at all ranks.
/// @param element The type of the elements.
/// @param op One of PLINTH_REDUCE_.
/// @param root The rank that gets the result.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return As plinth_communicator_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_reduce(
    communicator: plinth_communicator_t,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: DLDataType,
    op: i32,
    root: i32,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(from, to, count, element) }?;
            communicator::operate(
                handle(communicator)?,
                Kind::Reduce { op: reduction(op)?, root: rank(root, "root")? },
                share,
                stream as usize,
            )
        })
    })
}

/// Gives all ranks the elements of one. Otherwise as plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from At the root, `count` elements; not looked at elsewhere.
/// @param to Where this rank gets them; at the root it may be `from`.
/// @param count How many elements; the same at all ranks.
/// @param element The type of the elements.
/// @param root The rank that gives.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return As plinth_communicator_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_broadcast(
    communicator: plinth_communicator_t,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: DLDataType,
    root: i32,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(from, to, count, element) }?;
            communicator::operate(
                handle(communicator)?,
                Kind::Broadcast { root: rank(root, "root")? },
                share,
                stream as usize,
            )
        })
    })
}

/// Gives all ranks the elements of all, in the order of ranks. Otherwise as plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from What this rank gives: `count` elements; in place, its own part of `to`.
/// @param to Where it gets those of all ranks: `count` times as many elements as there are ranks.
/// @param count How many elements each rank gives; the same at all ranks.
/// @param element The type of the elements.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return As plinth_communicator_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_all_gather(
    communicator: plinth_communicator_t,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: DLDataType,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(from, to, count, element) }?;
            communicator::operate(handle(communicator)?, Kind::AllGather, share, stream as usize)
        })
    })
}

/// Reduces the elements of all ranks, and gives each rank its part of the result. Otherwise as plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from What this rank gives: `count` elements for each rank, in the order of ranks.
/// @param to Where it gets its `count` elements; in place, its own part of `from`.
/// @param count How many elements each rank gets; the same at all ranks.
/// @param element The type of the elements.
/// @param op One of PLINTH_REDUCE_.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return As plinth_communicator_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_reduce_scatter(
    communicator: plinth_communicator_t,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: DLDataType,
    op: i32,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(from, to, count, element) }?;
            communicator::operate(
                handle(communicator)?,
                Kind::ReduceScatter { op: reduction(op)? },
                share,
                stream as usize,
            )
        })
    })
}

/// Gives each rank a part of each rank's elements. Otherwise as plinth_communicator_all_reduce; not in place.
///
/// @param communicator The communicator.
/// @param from What this rank gives: `count` elements for each rank, in the order of ranks.
/// @param to Where it gets `count` elements of each rank, in the order of ranks.
/// @param count How many elements go from each rank to each; the same at all ranks.
/// @param element The type of the elements.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return As plinth_communicator_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_all_to_all(
    communicator: plinth_communicator_t,
    from: *const c_void,
    to: *mut c_void,
    count: usize,
    element: DLDataType,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(from, to, count, element) }?;
            communicator::operate(handle(communicator)?, Kind::AllToAll, share, stream as usize)
        })
    })
}

/// Sends elements to one rank, which calls plinth_communicator_recv for as many of the same type. A rank that also receives
/// does both in a group, so that neither waits for the other. Otherwise as plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from `count` elements.
/// @param count How many elements.
/// @param element The type of the elements.
/// @param peer The rank that receives.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return As plinth_communicator_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_send(
    communicator: plinth_communicator_t,
    from: *const c_void,
    count: usize,
    element: DLDataType,
    peer: i32,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(from, std::ptr::null(), count, element) }?;
            communicator::operate(
                handle(communicator)?,
                Kind::Send { peer: rank(peer, "peer")? },
                share,
                stream as usize,
            )
        })
    })
}

/// Receives elements that one rank sends with plinth_communicator_send.
///
/// @param communicator The communicator.
/// @param to Where they go.
/// @param count How many elements.
/// @param element The type of the elements.
/// @param peer The rank that sends.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return As plinth_communicator_all_reduce.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_recv(
    communicator: plinth_communicator_t,
    to: *mut c_void,
    count: usize,
    element: DLDataType,
    peer: i32,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        group::ask(|| {
            // SAFETY: the caller vouches for the memory.
            let share = unsafe { share(std::ptr::null(), to, count, element) }?;
            communicator::operate(
                handle(communicator)?,
                Kind::Receive { peer: rank(peer, "peer")? },
                share,
                stream as usize,
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_have_nccls_numbers() {
        use crate::driver::nccl::table::reduction as nccl;
        let ours =
            [PLINTH_REDUCE_SUM, PLINTH_REDUCE_PRODUCT, PLINTH_REDUCE_MAX, PLINTH_REDUCE_MIN, PLINTH_REDUCE_AVERAGE];
        assert_eq!(ours, [nccl::SUM, nccl::PRODUCT, nccl::MAXIMUM, nccl::MINIMUM, nccl::AVERAGE]);
        assert!(reduction(5).is_err() && reduction(-1).is_err());
    }
}

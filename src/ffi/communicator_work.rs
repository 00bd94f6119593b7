//! Collectives of a communicator
//!
//! What the ranks of a communicator do together: reduce, broadcast, gather, scatter, send and receive, alone or in groups.
//! Where two threads use one communicator, the program must make the order of their calls the same on all ranks.

use crate::{
    collectives::{
        communicator::{self, RankBuffers, group, operation::Kind},
        devices::ReduceOp,
    },
    driver::Span,
    error::{Result, invalid},
    ffi::{
        communicator::plinth_communicator_t, guard::guard, handle, plinth_stream_t, status::plinth_status_t,
        tensor::DLDataType,
    },
};
use std::ffi::c_void;

/// The sum of the elements of all ranks; for bools, their logical or. The constants have NCCL's values.
pub const PLINTH_REDUCE_SUM: i32 = 0;
/// The product of the elements; for bools, their logical and.
pub const PLINTH_REDUCE_PRODUCT: i32 = 1;
/// The maximum of the elements; not for complex numbers.
pub const PLINTH_REDUCE_MAX: i32 = 2;
/// The minimum of the elements; not for complex numbers.
pub const PLINTH_REDUCE_MIN: i32 = 3;
/// The sum of the elements divided by the number of ranks; not for bools.
pub const PLINTH_REDUCE_AVERAGE: i32 = 4;

/// Returns the reduction with this number.
pub(super) fn reduction(op: i32) -> Result<ReduceOp> {
    Ok(match op {
        PLINTH_REDUCE_SUM => ReduceOp::Sum,
        PLINTH_REDUCE_PRODUCT => ReduceOp::Product,
        PLINTH_REDUCE_MAX => ReduceOp::Maximum,
        PLINTH_REDUCE_MIN => ReduceOp::Minimum,
        PLINTH_REDUCE_AVERAGE => ReduceOp::Average,
        _ => return Err(invalid(format!("op is {op}; use one of the PLINTH_REDUCE_ constants"))),
    })
}

fn rank(number: i32, name: &str) -> Result<u32> {
    u32::try_from(number).map_err(|_| invalid(format!("{name} is {number}; a rank cannot be negative")))
}

/// Performs this rank's part of an operation. `memory` is the input and the output; `kind` checks the numbers that are
/// particular to the operation.
///
/// # Safety
/// The memory stays valid, for as many elements as the operation has, until its work is done.
unsafe fn operate(
    communicator: plinth_communicator_t,
    memory: (*const c_void, *mut c_void),
    count: usize,
    element: DLDataType,
    stream: plinth_stream_t,
    kind: impl FnOnce() -> Result<Kind>,
) -> Result<()> {
    group::run_request(|| {
        let element = element.element("element")?;
        // SAFETY: the caller's promise; the size of the memory follows from the operation.
        let (from, to) = unsafe { (Span::new(memory.0 as u64, 0), Span::new(memory.1 as u64, 0)) };
        let buffers = RankBuffers { from, to, count: count as u64, element };
        communicator::operate(handle(communicator, "communicator")?, kind()?, buffers, stream as usize)
    })
}

/// Starts a group: plinth_communicator_group_end submits all communicator calls that this thread makes until then, as
/// one operation.
///
/// A group lets one thread make the calls of several ranks, and lets a rank send and receive at the same time. Groups
/// can be nested. The calls in a group are not ordered among each other, except for collectives of the same
/// communicator in the same stream. With PLINTH_ENGINE_NCCL not even these are ordered.
///
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_group_start() -> plinth_status_t {
    guard(|| {
        group::start();
        Ok(())
    })
}

/// Ends a group. When the call returns, the work of the group is in the streams.
///
/// If a call in the group or in a nested group failed, nothing is submitted to any communicator, and this call
/// returns the error of the first failed call. After another error, part of the work may be in the streams. The rest
/// is not submitted later, with one exception: work that NCCL was processing at a timeout may still be submitted
/// until the communicator is aborted.
///
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if this thread has no open group; the errors of the calls in the
///         group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_group_end() -> plinth_status_t {
    guard(|| {
        group::end()?;
        Ok(())
    })
}

/// Cancels a group: the calls that this thread has made since its plinth_communicator_group_start are discarded, and
/// so are their errors. Call it in place of plinth_communicator_group_end, for example when the program fails in the
/// middle of a group.
///
/// Nothing of the group is in a stream, or has reached NCCL, before the end of the outermost group. An enclosing
/// group remains as it was before the cancelled one. The outputs of plinth_communicator_split in the group are not
/// written. The other ranks are not told: if they have made their calls of the group, they wait for this rank until
/// their timeout, or until plinth_communicator_abort.
///
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if this thread has no open group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_group_cancel() -> plinth_status_t {
    guard(|| {
        group::cancel()?;
        Ok(())
    })
}

/// Reduces the elements of all ranks; each rank gets the result.
///
/// All ranks make this call, in the same order relative to their other calls with this communicator. The call is
/// asynchronous: it adds work to the stream and does not wait for it. It may be captured. Memory must stay valid
/// until the work is done. Several threads may call at once, but then the order of their calls is undefined.
///
/// @param communicator The communicator.
/// @param from The input of this rank: `count` elements in its device's memory.
/// @param to The output of this rank: `count` elements. The same pointer as `from` for an in-place reduction.
/// @param count The number of elements; the same at all ranks. 0 does nothing.
/// @param element The type of the elements.
/// @param op One of the PLINTH_REDUCE_ constants.
/// @param stream The stream, of the communicator's device; NULL for that device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for numbers
///         out of range, misaligned memory, unknown types, and an input and an output that overlap and are not in place;
///         PLINTH_ERROR_DEVICE_MISMATCH for a stream of another device; PLINTH_ERROR_RANK_MISMATCH if the calls of the
///         ranks differ and the engine detects it;
///         PLINTH_ERROR_TIMED_OUT if other ranks do not make the call in time; PLINTH_ERROR_PEER_LOST;
///         PLINTH_ERROR_ABORTED; PLINTH_ERROR_NOT_SUPPORTED if the engine does not support the operation for these
///         elements; PLINTH_ERROR_COMMUNICATOR_NOT_READY after PLINTH_COMMUNICATOR_NONBLOCKING, if not all ranks are
///         connected; PLINTH_ERROR_NCCL; PLINTH_ERROR_DRIVER.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe {
            operate(communicator, (from, to), count, element, stream, || Ok(Kind::AllReduce { op: reduction(op)? }))
        }
    })
}

/// Reduces the elements of all ranks; only the root gets the result. Otherwise as plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from The input of this rank: `count` elements.
/// @param to The output at the root: `count` elements; ignored at other ranks.
/// @param count The number of elements; the same at all ranks.
/// @param element The type of the elements.
/// @param op One of the PLINTH_REDUCE_ constants.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe {
            operate(communicator, (from, to), count, element, stream, || {
                Ok(Kind::Reduce { op: reduction(op)?, root: rank(root, "root")? })
            })
        }
    })
}

/// Copies the elements of the root to all ranks. Otherwise as plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from The input at the root: `count` elements; ignored at other ranks.
/// @param to The output of this rank: `count` elements. At the root it may be `from`.
/// @param count The number of elements; the same at all ranks.
/// @param element The type of the elements.
/// @param root The rank whose elements are copied.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe {
            operate(communicator, (from, to), count, element, stream, || {
                Ok(Kind::Broadcast { root: rank(root, "root")? })
            })
        }
    })
}

/// Gathers the elements of all ranks at every rank, in rank order. Otherwise as plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from The input of this rank: `count` elements. For an in-place gather, this rank's own part of `to`.
/// @param to The output: `count` elements of each rank, so `count` times the number of ranks.
/// @param count The number of elements of each rank's input; the same at all ranks.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe { operate(communicator, (from, to), count, element, stream, || Ok(Kind::AllGather)) }
    })
}

/// Reduces the elements of all ranks and gives each rank its part of the result. Otherwise as
/// plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from The input of this rank: `count` elements for each rank, in rank order.
/// @param to The output: `count` elements. For an in-place operation, this rank's own part of `from`.
/// @param count The number of elements of each rank's output; the same at all ranks.
/// @param element The type of the elements.
/// @param op One of the PLINTH_REDUCE_ constants.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe {
            operate(communicator, (from, to), count, element, stream, || Ok(Kind::ReduceScatter { op: reduction(op)? }))
        }
    })
}

/// Sends a different part of each rank's elements to each rank. Otherwise as plinth_communicator_all_reduce, but not
/// in place, which PLINTH_ENGINE_LOCAL and NCCL refuse (PLINTH_ERROR_INVALID_VALUE).
///
/// @param communicator The communicator.
/// @param from The input of this rank: `count` elements for each rank, in rank order.
/// @param to The output: `count` elements of each rank, in rank order.
/// @param count The number of elements that each rank sends to each rank; the same at all ranks.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe { operate(communicator, (from, to), count, element, stream, || Ok(Kind::AllToAll)) }
    })
}

/// Sends elements to one rank, which calls plinth_communicator_recv with the same count and type.
///
/// A rank that also receives must make both calls in a group, so that neither waits for the other. Otherwise as
/// plinth_communicator_all_reduce.
///
/// @param communicator The communicator.
/// @param from The elements to send: `count` elements.
/// @param count The number of elements.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe {
            operate(communicator, (from, std::ptr::null_mut()), count, element, stream, || {
                Ok(Kind::Send { peer: rank(peer, "peer")? })
            })
        }
    })
}

/// Receives elements that one rank sends with plinth_communicator_send.
///
/// @param communicator The communicator.
/// @param to The memory for the received elements: `count` elements.
/// @param count The number of elements.
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
        // SAFETY: the caller promises that the memory is valid for `count` elements until the work is done.
        unsafe {
            operate(communicator, (std::ptr::null(), to), count, element, stream, || {
                Ok(Kind::Receive { peer: rank(peer, "peer")? })
            })
        }
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

//! Parts of a communicator
//!
//! New communicators of the ranks of one: a split by colors, or a shrink to the ranks that remain, also after another rank
//! was lost.

use crate::{
    collectives::communicator::{self, group},
    error::invalid,
    ffi::{
        Output, array,
        communicator::{plinth_communicator_t, to_c},
        guard::guard,
        handle,
        status::plinth_status_t,
    },
};

/// A shrink leaves the communicator as it is, for all of its ranks.
pub const PLINTH_SHRINK_DEFAULT: u32 = 0;
/// A shrink aborts the communicator first, as plinth_communicator_abort does.
pub const PLINTH_SHRINK_ABORT: u32 = 1;

/// Splits the ranks of a communicator into new communicators. All ranks make this call.
///
/// Ranks that pass the same color belong to the same new communicator. They are ordered by key, and by their old rank
/// if keys are equal. In a group, the new communicator exists when the group has ended. With PLINTH_ENGINE_SHARED it does not
/// use NCCL for large messages.
///
/// @param communicator The communicator, which remains valid.
/// @param color The color; -1 for a rank that joins no new communicator.
/// @param key The key.
/// @param part Out: the new communicator of this rank, NULL for color -1. The caller owns it and destroys it with
///        plinth_communicator_destroy. In a group the pointer must stay valid until the group ends.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
///         negative color; the errors of plinth_communicator_all_reduce; PLINTH_ERROR_NCCL_UNAVAILABLE with an NCCL
///         older than 2.18.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_split(
    communicator: plinth_communicator_t,
    color: i32,
    key: i32,
    part: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::run_request(|| {
            // SAFETY: the caller passes NULL or a pointer that is valid for writes, and stays so until the split is
            // done.
            let part = unsafe { Output::new(part, "part") }?;
            let color = match color {
                -1 => None,
                color => Some(
                    u32::try_from(color)
                        .map_err(|_| invalid(format!("color is {color}; use -1 or a number from 0 on")))?,
                ),
            };
            communicator::split(
                handle(communicator, "communicator")?,
                color,
                key,
                Box::new(|handle| part.set(to_c(handle))),
            )
        })
    })
}

/// Makes a communicator of the ranks that remain when others are excluded. The ranks that remain make this call, all with
/// the same excluded ranks and flags; the excluded ones do not. They keep their order.
///
/// With PLINTH_SHRINK_DEFAULT the communicator remains valid for all ranks, and its work should be done.
///
/// With PLINTH_SHRINK_ABORT the call first aborts it for all ranks (if they met by an id of NCCL, for this rank), and with it the
/// work that waits for a rank that is gone; afterwards it can only be shrunk again or destroyed. The call may follow an error,
/// such as PLINTH_ERROR_PEER_LOST or PLINTH_ERROR_TIMED_OUT, or an abort. For ranks of PLINTH_ENGINE_NCCL that met by an id it
/// may only follow an error of work in a stream, with NCCL 2.28.7 or newer and if no graph has captured calls of the
/// communicator: not the error of a call that NCCL worked at, and no abort. NCCL also waits, without a limit, for work of other
/// communicators that is ahead of this one's in its streams: abort or shrink those first.
///
/// In a group, the new communicator exists when the group has ended; a group with PLINTH_SHRINK_ABORT has no other call of
/// that communicator, nor of those made with it by plinth_communicator_init_all. The new communicator has this one's timeout. As
/// after a split, PLINTH_ENGINE_SHARED does not use NCCL for large messages there.
///
/// If the call fails on one rank, it fails on all that remain, which may repeat it with the same or with more excluded ranks. If
/// they met by an id of NCCL, a failure may abort the communicator, and ranks that exclude different ones wait for each other
/// until the timeout.
///
/// @param communicator The communicator.
/// @param excluded The excluded ranks, in any order, each once.
/// @param count The number of excluded ranks, at least one.
/// @param flags PLINTH_SHRINK_DEFAULT or PLINTH_SHRINK_ABORT.
/// @param part Out: the new communicator of this rank. The caller owns it and destroys it with plinth_communicator_destroy. In a
///        group the pointer must stay valid until the group ends.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for no excluded
///         ranks, for ranks that do not exist or are named twice, for this rank, and for other flags;
///         PLINTH_ERROR_RANK_MISMATCH if another rank excludes different ones or makes another call; PLINTH_ERROR_PEER_LOST
///         if a rank that is to remain is gone, or, with PLINTH_SHRINK_DEFAULT, an excluded one; PLINTH_ERROR_TIMED_OUT if a
///         rank does not make the call; PLINTH_ERROR_ABORTED or the error of the communicator if it cannot shrink any more;
///         PLINTH_ERROR_GRAPH_ASLEEP while it sleeps, except with PLINTH_SHRINK_ABORT without NCCL;
///         PLINTH_ERROR_COMMUNICATOR_NOT_READY; PLINTH_ERROR_NCCL_UNAVAILABLE if the ranks met by an id of NCCL and it is
///         older than 2.27; PLINTH_ERROR_NCCL; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_SYSTEM, for example if there are too
///         few file descriptors; PLINTH_ERROR_DRIVER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_communicator_shrink(
    communicator: plinth_communicator_t,
    excluded: *const i32,
    count: usize,
    flags: u32,
    part: *mut plinth_communicator_t,
) -> plinth_status_t {
    guard(|| {
        group::run_request(|| {
            // SAFETY: the caller passes NULL or a pointer that is valid for writes, and stays so until the shrink is
            // done.
            let part = unsafe { Output::new(part, "part") }?;
            // SAFETY: the caller passes as many ranks, which no other thread changes.
            let excluded = unsafe { array(excluded, count, "excluded") }?;
            let aborts = match flags {
                PLINTH_SHRINK_DEFAULT => false,
                PLINTH_SHRINK_ABORT => true,
                _ => {
                    return Err(invalid(format!("flags is {flags}; use PLINTH_SHRINK_DEFAULT or PLINTH_SHRINK_ABORT")));
                }
            };
            let deliver = Box::new(|handle| part.set(to_c(handle)));
            communicator::shrink(handle(communicator, "communicator")?, excluded, aborts, deliver)
        })
    })
}

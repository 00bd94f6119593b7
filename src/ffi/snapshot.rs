//! Snapshots of the allocator
//!
//! The segments and blocks of the caching allocator at one moment, with the history as far as it is recorded:
//! torch.cuda.memory_snapshot and torch.cuda.memory._dump_snapshot.
//!
//! A snapshot is written to a file, returned as a text that the caller frees with plinth_string_free, or passed to a
//! callback. What a callback receives is valid during the callback only. Allocations of other threads wait while the
//! blocks are copied, but not while a file is written or a callback runs.

use crate::{
    ffi::{
        Output, c_text, guard::guard, null, owned_text, path as path_of, pool::plinth_pool_id_t,
        status::plinth_status_t,
    },
    memory::{
        block::Zone,
        snapshot::{self, BlockState},
    },
    runtime::{
        names::{self, Subject},
        thread::call_program,
    },
};
use std::{
    ffi::{CStr, c_char, c_void},
    mem,
};

/// The state of a block: one of the PLINTH_BLOCK_ constants.
#[allow(non_camel_case_types)]
pub type plinth_block_state_t = i32;

/// Free: "inactive".
pub const PLINTH_BLOCK_INACTIVE: plinth_block_state_t = 0;
/// Freed, but other streams may still use it: "active_pending_free".
pub const PLINTH_BLOCK_PENDING_FREE: plinth_block_state_t = 1;
/// Allocated: "active_allocated".
pub const PLINTH_BLOCK_ALLOCATED: plinth_block_state_t = 2;

/// A segment in a snapshot: a contiguous, mapped address range of one stream in one pool of one device.
///
/// The struct grows at its end in newer versions; struct_size states how much of it the library has filled.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct plinth_memory_segment_t {
    /// The size of the struct in the library's version.
    pub struct_size: usize,
    /// The address of the segment.
    pub address: u64,
    /// The size in bytes; the sizes of its blocks add up to it.
    pub total_size: u64,
    /// Bytes of allocated blocks, each request rounded up.
    pub allocated_size: u64,
    /// Bytes of allocated blocks, and of freed blocks that other streams may still use.
    pub active_size: u64,
    /// Bytes that were requested for the active blocks.
    pub requested_size: u64,
    /// Bytes without physical memory, because the pool is suspended.
    pub asleep_size: u64,
    /// The handle of the stream that the segment serves.
    pub stream: u64,
    /// The pool.
    pub pool: plinth_pool_id_t,
    /// The number of blocks.
    pub block_count: usize,
    /// The device number.
    pub device: i32,
    /// Whether the segment serves requests above 1 MiB.
    pub is_large: bool,
    /// Whether the segment can grow and shrink, because it consists of mapped physical memory handles (expandable
    /// segments).
    pub is_expandable: bool,
    /// The name of the stream; an empty string if it has none.
    pub stream_name: *const c_char,
}

/// A block of a segment in a snapshot. The struct grows as plinth_memory_segment_t does.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct plinth_memory_block_t {
    /// The size of the struct in the library's version.
    pub struct_size: usize,
    /// The address of the block.
    pub address: u64,
    /// The size in bytes.
    pub size: u64,
    /// The number of bytes that were requested; 0 for a free block.
    pub requested_size: u64,
    /// The state of the block.
    pub state: plinth_block_state_t,
    /// Reserved: 0.
    pub reserved: i32,
    /// The name of the block; an empty string if it has none or is not allocated.
    pub name: *const c_char,
}

/// Receives a segment and one of its blocks, in the thread of the call and without any lock of the library held; it may
/// call the library. Both structs and their strings are valid until it returns.
///
/// Its arguments are the segment; the block, which is NULL in a first call for each segment, before its blocks; and the
/// context. It returns whether to continue. It must not throw.
#[allow(non_camel_case_types)]
pub type plinth_memory_snapshot_callback_t = Option<
    unsafe extern "C" fn(
        segment: *const plinth_memory_segment_t,
        block: *const plinth_memory_block_t,
        context: *mut c_void,
    ) -> bool,
>;

/// Writes a snapshot of the caching allocator to a file, for all devices, as torch.cuda.memory._dump_snapshot does. It
/// contains all segments and blocks at one moment, and the history that plinth_record_memory_history has recorded.
///
/// The end of the file name selects the format: ".json" for JSON, ".html" (or ".htm") for a page that displays the
/// snapshot in any browser, and any other name for the pickle that <https://pytorch.org/memory_viz> and torch's
/// _memory_viz.py read.
///
/// Allocations of other threads wait while blocks and history are copied, some milliseconds for a hundred thousand of
/// them, but not while the file is written. The call makes no driver call, so it does not disturb the device's work or
/// a capture. It may be called in an out-of-memory observer.
///
/// @param path The path of the file. An existing file is replaced when the new one is complete, and is unchanged if
///        writing fails; permissions are kept, and a symbolic link remains a link. A pipe or another special file is
///        written directly. In a folder that all users share, such as /tmp, another user's link or pipe is an error.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM if the file cannot be written, with the path and
///         the reason in the message; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_dump_snapshot(path: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let path = unsafe { path_of(path, "path") }?;
        snapshot::dump(&path)
    })
}

/// Returns a snapshot of the caching allocator as JSON, for all devices: the content of torch.cuda.memory_snapshot and
/// torch.cuda.memory._snapshot, with the same keys. One difference: "frames" is an index into the list "stacks". Locks
/// and driver calls are as in plinth_dump_snapshot.
///
/// @param include_traces Whether "device_traces" and "external_annotations" contain the history; otherwise they are
///        empty.
/// @param json Out: the JSON text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_snapshot(include_traces: bool, json: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let json = unsafe { Output::new(json, "json") }?;
        json.set(owned_text(&snapshot::memory_snapshot(include_traces)?)?);
        Ok(())
    })
}

/// Returns a snapshot of one pool as JSON: its segments, the history of its events, and all annotations. A pool in
/// which nothing was allocated has no segments. Otherwise like plinth_memory_snapshot.
///
/// @param pool The pool; {0, 0} for the default pool.
/// @param include_traces As in plinth_memory_snapshot.
/// @param json Out: the JSON text. The caller owns it and frees it with plinth_string_free.
/// @return The statuses of plinth_memory_snapshot; PLINTH_ERROR_INVALID_HANDLE as for plinth_mem_pool_memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_snapshot(
    pool: plinth_pool_id_t,
    include_traces: bool,
    json: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let json = unsafe { Output::new(json, "json") }?;
        json.set(owned_text(&snapshot::pool_snapshot(pool.into(), include_traces)?)?);
        Ok(())
    })
}

/// Passes every segment and every block of the caching allocator to a callback, for all devices, in the order of
/// addresses, as of one moment: the content of plinth_memory_snapshot without text formatting.
///
/// @param callback Called for each segment and block; see plinth_memory_snapshot_callback_t.
/// @param context Passed to the callback; the library does not dereference it.
/// @return PLINTH_OK, also if the callback ended the iteration; PLINTH_ERROR_NULL_POINTER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_snapshot_each(
    callback: plinth_memory_snapshot_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        let snapshot = snapshot::take(false)?;
        for segment in &snapshot.segments {
            let stream_name = names::get(Subject::stream(segment.stream, segment.device));
            let stream_name = c_text(stream_name.as_deref().unwrap_or(""));
            let shown = segment_for_c(segment, &stream_name);
            // SAFETY: this is the caller's function, with a struct that outlives the call.
            if !call_program(|| unsafe { callback(&shown, std::ptr::null(), context) }) {
                return Ok(());
            }
            for block in &segment.blocks {
                let name = snapshot.block_names.get(&block.address);
                let name = c_text(name.map_or("", |name| name));
                // SAFETY: as above.
                let block = block_for_c(block, &name);
                if !call_program(|| unsafe { callback(&shown, &block, context) }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

fn segment_for_c(segment: &snapshot::Segment, stream_name: &CStr) -> plinth_memory_segment_t {
    plinth_memory_segment_t {
        struct_size: mem::size_of::<plinth_memory_segment_t>(),
        address: segment.address,
        total_size: segment.bytes(),
        allocated_size: segment.allocated(),
        active_size: segment.active(),
        requested_size: segment.requested(),
        asleep_size: segment.asleep,
        stream: segment.stream as u64,
        pool: plinth_pool_id_t { owner: segment.pool.owner, index: segment.pool.index },
        block_count: segment.blocks.len(),
        device: segment.device as i32,
        is_large: segment.zone == Zone::Large,
        is_expandable: segment.expandable,
        stream_name: stream_name.as_ptr(),
    }
}

fn block_for_c(block: &snapshot::Block, name: &CStr) -> plinth_memory_block_t {
    plinth_memory_block_t {
        struct_size: mem::size_of::<plinth_memory_block_t>(),
        address: block.address,
        size: block.size,
        requested_size: block.requested,
        state: match block.state {
            BlockState::Inactive => PLINTH_BLOCK_INACTIVE,
            BlockState::Pending => PLINTH_BLOCK_PENDING_FREE,
            BlockState::Active => PLINTH_BLOCK_ALLOCATED,
        },
        reserved: 0,
        name: name.as_ptr(),
    }
}

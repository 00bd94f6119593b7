//! Snapshots of the caching allocator, as C sees them.

use crate::{
    error::Error,
    ffi::{Output, guard::guard, null, owned_text, path as path_of, pool::plinth_pool_id_t, status::plinth_status_t},
    memory::{
        block::Zone,
        snapshot::{self, BlockState, Format},
    },
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    mem,
};

/// How a snapshot is written: one of the PLINTH_SNAPSHOT_ constants.
#[allow(non_camel_case_types)]
pub type plinth_snapshot_format_t = i32;

/// As the name of the file ends: .json is JSON, .html and .htm are a page, and everything else is a pickle.
pub const PLINTH_SNAPSHOT_BY_NAME: plinth_snapshot_format_t = 0;
/// The pickle of torch.cuda.memory._dump_snapshot, which <https://pytorch.org/memory_viz> and torch's _memory_viz.py read.
pub const PLINTH_SNAPSHOT_PICKLE: plinth_snapshot_format_t = 1;
/// The same structure as JSON, as plinth_memory_snapshot gives it.
pub const PLINTH_SNAPSHOT_JSON: plinth_snapshot_format_t = 2;
/// An HTML page that shows the snapshot in any browser, without a network.
pub const PLINTH_SNAPSHOT_HTML: plinth_snapshot_format_t = 3;

/// What a block is: one of the PLINTH_BLOCK_ constants.
#[allow(non_camel_case_types)]
pub type plinth_block_state_t = i32;

/// Free: "inactive".
pub const PLINTH_BLOCK_INACTIVE: plinth_block_state_t = 0;
/// Freed, while other streams may still use it: "active_pending_free".
pub const PLINTH_BLOCK_PENDING_FREE: plinth_block_state_t = 1;
/// In the program's hands: "active_allocated".
pub const PLINTH_BLOCK_ALLOCATED: plinth_block_state_t = 2;

/// A segment of a snapshot: a run of addresses with memory behind them, of one stream in one pool of one device.
///
/// The struct grows at its end in newer versions, and struct_size says how much of it the library has filled.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct plinth_memory_segment_t {
    /// The size of the struct as the library knows it.
    pub struct_size: usize,
    /// Where it begins.
    pub address: u64,
    /// Its bytes; its blocks have them all.
    pub total_size: u64,
    /// Bytes in the program's hands, each request rounded up.
    pub allocated_size: u64,
    /// Those, and bytes that were freed while other streams may still use them.
    pub active_size: u64,
    /// The bytes that were asked for of those.
    pub requested_size: u64,
    /// Bytes whose physical memory is away, since the pool sleeps.
    pub asleep_size: u64,
    /// The handle of the stream that it serves.
    pub stream: u64,
    /// The pool.
    pub pool: plinth_pool_id_t,
    /// How many blocks it has.
    pub block_count: usize,
    /// The device's number.
    pub device: i32,
    /// Whether it holds requests above 1 MiB.
    pub is_large: bool,
    /// Whether it can grow and shrink: it consists of handles that are mapped.
    pub is_expandable: bool,
}

/// A block of a segment. The struct grows as plinth_memory_segment_t does.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct plinth_memory_block_t {
    /// The size of the struct as the library knows it.
    pub struct_size: usize,
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// The bytes that were asked for; 0 for a free block.
    pub requested_size: u64,
    /// What it is.
    pub state: plinth_block_state_t,
    /// 0.
    pub reserved: i32,
}

/// Hears of a segment and one of its blocks, in the thread that called and with no lock of the library's held; it may call
/// the library. Both are valid until it returns.
///
/// Its arguments are the segment; the block, which is NULL once for each segment, before its blocks; and the context. It
/// returns whether to go on.
#[allow(non_camel_case_types)]
pub type plinth_memory_snapshot_callback_t = Option<
    unsafe extern "C" fn(
        segment: *const plinth_memory_segment_t,
        block: *const plinth_memory_block_t,
        context: *mut c_void,
    ) -> bool,
>;

/// Writes a snapshot of the caching allocator to a file, for all devices: what torch.cuda.memory._dump_snapshot does. It
/// holds every segment and block at one moment and the history as far as plinth_record_memory_history keeps it.
///
/// The end of the name says in which form: ".json", ".html" (or ".htm") for a page that opens in any browser and shows
/// it, and with any other name the pickle that <https://pytorch.org/memory_viz> and torch's _memory_viz.py read.
///
/// Allocations of other threads wait while blocks and history are copied, some milliseconds for a hundred thousand of them,
/// and not while the file is written. No call of the driver is made, so work of the device goes on, and a capture does not
/// mind. May be called in an out-of-memory observer. Thread-safe.
///
/// @param path Where to write. What is there is replaced when the file is complete, and stays as it is if it cannot be
///        written; it keeps its permissions, and a link stays one. A pipe or another special file is written to as it is.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM for a file that cannot be written, with the path and the
///         reason in the message; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_dump_snapshot(path: *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let path = unsafe { path_of(path, "path") }?;
        snapshot::dump(&path, None)
    })
}

/// As plinth_dump_snapshot, in a form that the caller chooses. Thread-safe.
///
/// @param path Where to write.
/// @param format One of the PLINTH_SNAPSHOT_ constants.
/// @return As plinth_dump_snapshot; PLINTH_ERROR_INVALID_VALUE for a format that there is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_dump_snapshot_as(
    path: *const c_char,
    format: plinth_snapshot_format_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let path = unsafe { path_of(path, "path") }?;
        let format = match format {
            PLINTH_SNAPSHOT_BY_NAME => None,
            PLINTH_SNAPSHOT_PICKLE => Some(Format::Pickle),
            PLINTH_SNAPSHOT_JSON => Some(Format::Json),
            PLINTH_SNAPSHOT_HTML => Some(Format::Html),
            other => return Err(Error::new(Status::INVALID_VALUE, format!("{other} is no format of a snapshot"))),
        };
        snapshot::dump(&path, format)
    })
}

/// Gives a snapshot of the caching allocator as JSON, for all devices: what torch.cuda.memory_snapshot and
/// torch.cuda.memory._snapshot give, with the same keys. One thing differs: "frames" is a number, that of a stack in the list
/// "stacks". Waits and calls as plinth_dump_snapshot does. Thread-safe.
///
/// @param include_traces Whether "device_traces" and "external_annotations" hold the history; else they are empty.
/// @param json Out: the text. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_snapshot(include_traces: bool, json: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let json = unsafe { Output::new(json, "json") }?;
        json.set(owned_text(&snapshot::memory_snapshot(include_traces)?)?);
        Ok(())
    })
}

/// As plinth_memory_snapshot, of the segments of one pool and the history of what happened in it; annotations are all there.
/// A pool that nothing was allocated in, or that there is not, has no segments. Thread-safe.
///
/// @param pool The pool; {0, 0} for the default one.
/// @param include_traces As there.
/// @param json Out: as there.
/// @return As plinth_memory_snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_snapshot(
    pool: plinth_pool_id_t,
    include_traces: bool,
    json: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let json = unsafe { Output::new(json, "json") }?;
        json.set(owned_text(&snapshot::pool_snapshot(pool.into(), include_traces)?)?);
        Ok(())
    })
}

/// Tells a callback every segment of the caching allocator and every block, for all devices and by address, as they were at
/// one moment: the same as plinth_memory_snapshot, without texts. Thread-safe.
///
/// @param callback What is told; see plinth_memory_snapshot_callback_t.
/// @param context What it is called with; never looked into.
/// @return PLINTH_OK, also when the callback ended it; PLINTH_ERROR_NULL_POINTER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_snapshot_each(
    callback: plinth_memory_snapshot_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        let callback = callback.ok_or_else(|| null("callback"))?;
        for segment in &snapshot::take(false)?.segments {
            let told = told_segment(segment);
            // SAFETY: the caller's function, with a struct that outlives the call.
            if !unsafe { callback(&told, std::ptr::null(), context) } {
                return Ok(());
            }
            for block in &segment.blocks {
                // SAFETY: as above.
                if !unsafe { callback(&told, &told_block(block), context) } {
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}

fn told_segment(segment: &snapshot::Segment) -> plinth_memory_segment_t {
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
    }
}

fn told_block(block: &snapshot::Block) -> plinth_memory_block_t {
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
    }
}

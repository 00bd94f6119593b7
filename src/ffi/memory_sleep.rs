//! Memory that sleeps
//!
//! A program gives the memory of pools to somebody else for a time, and continues later where it was: the physical memory
//! is released and the addresses stay. Pointers stay valid, and graphs that were captured over the memory are replayed
//! afterwards without a new capture.
//!
//! Pools have tags, such as "weights" and "kv". The functions take a list of tags, separated by commas. NULL and "" stand
//! for every pool that has a tag. A tag that no pool has is an error.
//!
//! While a pool sleeps, its blocks stay allocated, and may be freed. They must not be accessed: a kernel that does fails
//! with an illegal address. A replay of a graph that was captured into the pool is refused. Requests cannot be routed to
//! the pool. The default pool cannot have a tag; route the requests to other pools.
//!
//! The functions may be called from any thread. Putting to sleep and waking are serialized.

use crate::{
    error::{Error, Result},
    ffi::{
        Output, exact_string,
        guard::{guard, release},
        owned_text, plinth_stream_t,
        pool::plinth_pool_id_t,
        status::plinth_status_t,
        structs::{self, StructOutput},
    },
    graph,
    memory::{
        self,
        sleep::backup::{Kind, Options},
    },
    ops::blas,
    status::Status,
};
use std::{
    ffi::{CStr, OsStr, c_char},
    os::unix::ffi::OsStrExt,
    ptr,
};

/// Where the contents of sleeping memory are kept.
#[allow(non_camel_case_types)]
pub type plinth_backup_t = i32;

/// Nowhere: the contents are lost.
pub const PLINTH_BACKUP_NONE: plinth_backup_t = 0;
/// In pinned host memory, the fastest. It comes from the allocator of plinth_host_alloc.
pub const PLINTH_BACKUP_PINNED: plinth_backup_t = 1;
/// In pageable host memory.
pub const PLINTH_BACKUP_PAGEABLE: plinth_backup_t = 2;
/// In a file without a name, of which nothing is left when the process ends.
pub const PLINTH_BACKUP_FILE: plinth_backup_t = 3;

/// For the flags of plinth_sleep_options_t: fail with PLINTH_ERROR_GRAPH_MEMORY_IN_USE, rather than wait, if a device has
/// work that is not complete. Needs CUDA 12.5.
pub const PLINTH_SLEEP_NO_WAIT: u32 = 1;

/// For the flags of plinth_sleep_options_t: end the registrations of the memory first, by their callbacks, rather than
/// fail with PLINTH_ERROR_GRAPH_MEMORY_IN_USE. It still fails, with no callback called, if a registration has none. What
/// was ended stays so if the sleep fails for another reason.
pub const PLINTH_SLEEP_RELEASE_REGISTRATIONS: u32 = 2;

/// For the flags of plinth_sleep_options_t: release the workspaces of cuBLAS, as plinth_clear_blas_workspaces does, and the
/// memory that is cached in other pools, as plinth_empty_cache does. The library allocates workspaces again when a thread
/// calls plinth_current_blas_handle; do not use a handle from an earlier call until then.
pub const PLINTH_SLEEP_RELEASE_WORKSPACES: u32 = 4;

const ALL_FLAGS: u32 = PLINTH_SLEEP_NO_WAIT | PLINTH_SLEEP_RELEASE_REGISTRATIONS | PLINTH_SLEEP_RELEASE_WORKSPACES;

/// How memory sleeps.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_sleep_options_t {
    /// The size of the struct in the caller.
    pub struct_size: usize,
    /// Where the contents of allocated blocks are kept.
    pub backup: plinth_backup_t,
    /// PLINTH_SLEEP_NO_WAIT, PLINTH_SLEEP_RELEASE_REGISTRATIONS and PLINTH_SLEEP_RELEASE_WORKSPACES, combined by |; or 0.
    pub flags: u32,
    /// The folder of a file; NULL for that of temporary files (TMPDIR, or /tmp).
    pub folder: *const c_char,
}

/// What sleeps of some pools, on all devices.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_sleep_info_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The number of pools.
    pub pools: u32,
    /// The number of pools that sleep.
    pub pools_asleep: u32,
    /// Bytes of physical memory.
    pub mapped_bytes: u64,
    /// Bytes that have addresses and no physical memory.
    pub asleep_bytes: u64,
    /// Bytes of the contents that backups hold.
    pub saved_bytes: u64,
    /// The size of the backups in bytes.
    pub backup_bytes: u64,
}

const NO_OPTIONS: plinth_sleep_options_t = plinth_sleep_options_t {
    struct_size: size_of::<plinth_sleep_options_t>(),
    backup: PLINTH_BACKUP_NONE,
    flags: 0,
    folder: ptr::null(),
};

/// Reads options; NULL stands for the initial ones.
///
/// # Safety
/// `options` is NULL or valid, with a folder that is NULL or a NUL-terminated string.
unsafe fn read_options(options: *const plinth_sleep_options_t) -> Result<Options> {
    if options.is_null() {
        return Ok(Options::default());
    }
    // SAFETY: the caller makes this promise.
    let options = unsafe { structs::read(options, NO_OPTIONS, "options") }?;
    let backup = match options.backup {
        PLINTH_BACKUP_NONE => Kind::None,
        PLINTH_BACKUP_PINNED => Kind::Pinned,
        PLINTH_BACKUP_PAGEABLE => Kind::Pageable,
        PLINTH_BACKUP_FILE => Kind::File,
        other => return Err(invalid(format!("options->backup is {other}, which is no plinth_backup_t"))),
    };
    if options.flags & !ALL_FLAGS != 0 {
        return Err(invalid(format!("options->flags is {:#x}, which has unknown bits", options.flags)));
    }
    let folder = (!options.folder.is_null()).then(|| {
        // SAFETY: the caller makes this promise.
        OsStr::from_bytes(unsafe { CStr::from_ptr(options.folder) }.to_bytes()).into()
    });
    if folder.is_some() && backup != Kind::File {
        return Err(invalid("options->folder is set, and the backup is no file".into()));
    }
    Ok(Options {
        backup,
        folder,
        no_wait: options.flags & PLINTH_SLEEP_NO_WAIT != 0,
        release_registrations: options.flags & PLINTH_SLEEP_RELEASE_REGISTRATIONS != 0,
        release_workspaces: options.flags & PLINTH_SLEEP_RELEASE_WORKSPACES != 0,
    })
}

fn invalid(message: String) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// Reads a list of tags, or a tag; NULL is empty.
///
/// # Safety
/// `tags` is NULL or a NUL-terminated string.
unsafe fn read_tags(tags: *const c_char, name: &str) -> Result<String> {
    // SAFETY: the caller makes this promise.
    if tags.is_null() { Ok(String::new()) } else { unsafe { exact_string(tags, name) } }
}

/// Sets the tag of a pool, which the other functions of this page find it by. Several pools may have one tag.
///
/// @param pool The pool; not the default pool. A pool of PyTorch needs to be in use.
/// @param tag The tag, which is copied; without a comma. NULL or "" removes the tag.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a tag with a comma or that is not
///         UTF-8; PLINTH_ERROR_GRAPH_ASLEEP if the tag of a pool that sleeps is removed: it could not wake any more; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_set_tag(pool: plinth_pool_id_t, tag: *const c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    guard(|| memory::pool_set_tag(pool.into(), &unsafe { read_tags(tag, "tag") }?))
}

/// Gets the tag of a pool.
///
/// @param pool The pool.
/// @param tag Out: the tag; "" if the pool has none. The caller owns it and frees it with plinth_string_free.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_get_tag(pool: plinth_pool_id_t, tag: *mut *mut c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let tag = unsafe { Output::new(tag, "tag") }?;
        tag.set(owned_text(&memory::pool_tag(pool.into())?)?);
        Ok(())
    })
}

/// Releases the physical memory of the pools with these tags, on all devices at the same time. Waits for all work of the
/// devices. Pools that sleep already stay as they are.
///
/// The contents of blocks that are allocated are kept in the backup. The contents of freed blocks are lost, also where
/// graphs use them between their captures and replays. If the backup cannot be made, nothing changes. Without tags, memory
/// that is cached in other pools is released too, as by plinth_empty_cache.
///
/// @param tags The tags, separated by commas; NULL for every pool that has one.
/// @param options How the memory sleeps; NULL for no backup.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has, and for wrong options;
///         PLINTH_ERROR_GRAPH_MEMORY_IN_USE if requests are routed to one of the pools, if another process holds memory
///         of it, and with PLINTH_SLEEP_NO_WAIT; PLINTH_ERROR_NOT_SUPPORTED for memory with fixed addresses
///         (expandable_segments:False, an allocator of the program); PLINTH_ERROR_CAPTURE_FORBIDS while a stream of a
///         device captures; PLINTH_ERROR_OUT_OF_MEMORY for a backup in host memory and PLINTH_ERROR_SYSTEM for a file;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait; PLINTH_ERROR_TIMED_OUT if another
///         thread moves memory of a pool for seconds; PLINTH_ERROR_DRIVER: pools some of
///         whose memory could not be mapped again count as asleep, with their contents if there is a backup; wake
///         them, or repeat the call to release the rest; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_sleep(
    tags: *const c_char,
    options: *const plinth_sleep_options_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a NUL-terminated string, and NULL or valid options.
        let (tags, options) = unsafe { (read_tags(tags, "tags")?, read_options(options)?) };
        if options.release_workspaces {
            blas::clear_workspaces()?;
        }
        graph::memory::sleep_tagged(&tags, &options)
    })
}

/// Creates physical memory for the pools with these tags, at the same addresses, and restores the contents that
/// were kept. Pools wake in the order of the tags, pools with one tag in the order of their ids. Those that are awake stay
/// as they are; the call waits for the copies of plinth_memory_wake_async. If memory is short, memory that is cached
/// elsewhere is released.
///
/// @param tags The tags, separated by commas; NULL for every pool that has one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; PLINTH_ERROR_OUT_OF_MEMORY if a device or a
///         limit has no room: that pool and those behind it sleep on, and nothing is lost; PLINTH_ERROR_SYSTEM if a file
///         cannot be read; PLINTH_ERROR_WOULD_SYNCHRONIZE; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_wake(tags: *const c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    guard(|| graph::memory::wake_tagged(&unsafe { read_tags(tags, "tags") }?, false))
}

/// Does the same as plinth_memory_wake, without a wait for the copies of pinned backups: they proceed in the order of the
/// pools, in a stream of the library's own on each device. Call plinth_memory_wake_wait for each stream that uses
/// the memory. Blocks may be freed at once; they are not used again before they are restored.
///
/// @param tags The tags, separated by commas; NULL for every pool that has one.
/// @return The statuses of plinth_memory_wake, except PLINTH_ERROR_WOULD_SYNCHRONIZE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_wake_async(tags: *const c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    guard(|| graph::memory::wake_tagged(&unsafe { read_tags(tags, "tags") }?, true))
}

/// Makes later work of a stream wait until the contents of pools are restored on the stream's device. The CPU does not wait.
///
/// A program that wakes one pool for each layer of a model, in their order, can begin with the first layer while the
/// memory of the others is restored.
///
/// @param tags The tags, separated by commas; NULL for every pool that has one.
/// @param stream The stream, which does not capture; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; PLINTH_ERROR_GRAPH_ASLEEP for a pool that
///         sleeps; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_wake_wait(tags: *const c_char, stream: plinth_stream_t) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    guard(|| memory::sleep::await_contents(&unsafe { read_tags(tags, "tags") }?, stream as usize))
}

/// Allocates backups for as many bytes as the pools with these tags hold now, so that plinth_memory_sleep need not: pinning
/// memory takes longer than filling it. They stay when the pools wake, until plinth_memory_free_backup. A pool
/// that has grown since gets a larger one when it sleeps.
///
/// @param tags The tags, separated by commas; NULL for every pool that has one.
/// @param options The kind of backup, and the folder of a file. The same must be passed to plinth_memory_sleep.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has, for wrong options
///         and for no backup; PLINTH_ERROR_GRAPH_ASLEEP for a pool that sleeps; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_SYSTEM; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_alloc_backup(
    tags: *const c_char,
    options: *const plinth_sleep_options_t,
) -> plinth_status_t {
    guard(|| {
        if options.is_null() {
            return Err(crate::ffi::null("options"));
        }
        // SAFETY: the caller passes NULL or a NUL-terminated string, and valid options.
        let (tags, options) = unsafe { (read_tags(tags, "tags")?, read_options(options)?) };
        if options.backup == Kind::None {
            return Err(invalid("options->backup is PLINTH_BACKUP_NONE, which needs no memory".into()));
        }
        memory::sleep::alloc_backups(&tags, &options)
    })
}

/// Frees the backups of the pools with these tags.
///
/// @param tags The tags, separated by commas; NULL for every pool that has one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; PLINTH_ERROR_GRAPH_ASLEEP for a pool that
///         sleeps; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_free_backup(tags: *const c_char) -> plinth_status_t {
    // SAFETY: the caller passes NULL or a NUL-terminated string.
    release(|| memory::sleep::free_backups(&unsafe { read_tags(tags, "tags") }?))
}

/// Describes what sleeps. Waits while another thread puts pools to sleep or wakes them.
///
/// @param tags The tags, separated by commas; NULL for every pool that has one.
/// @param info In: struct_size. Out: the sums over the pools and the devices.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tag that no pool has; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_memory_sleep_info(
    tags: *const c_char,
    info: *mut plinth_sleep_info_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let output = unsafe { StructOutput::new(info, "info") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string.
        let info = memory::sleep::info(&unsafe { read_tags(tags, "tags") }?)?;
        output.set(plinth_sleep_info_t {
            struct_size: 0,
            pools: info.pools,
            pools_asleep: info.pools_asleep,
            mapped_bytes: info.mapped,
            asleep_bytes: info.asleep,
            saved_bytes: info.saved,
            backup_bytes: info.backup,
        });
        Ok(())
    })
}

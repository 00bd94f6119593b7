//! Pluggable allocators
//!
//! A program can replace the caching allocator with its own functions, for all memory or for one pool:
//! torch.cuda.memory.CUDAPluggableAllocator. It can also turn caching off.
//!
//! The caller owns the handle of an allocator and destroys it. The allocator itself stays in use as long as a pool or a
//! block needs it, so its functions must stay callable. Its functions are called from any thread; see each function for
//! the locks that are held.

use crate::{
    driver::plugin::{Hooks, Plugin, PoolPair},
    ffi::{
        Output, guard::guard, null, path as path_of, plinth_stream_t, pool::plinth_pool_id_t, status::plinth_status_t,
        string,
    },
    memory::{self, backend, pool::Options},
};
use std::{
    ffi::{c_char, c_int, c_void},
    mem,
};

/// An allocator of the program's own: two functions and some hooks, with the signatures of torch's CUDAPluggableAllocator.
/// Opaque, and checked: a handle that was destroyed, is of another kind, or never was one is answered with
/// PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_pluggable_allocator {
    _private: [u8; 0],
}

/// The handle of such an allocator.
#[allow(non_camel_case_types)]
pub type plinth_pluggable_allocator_t = *mut plinth_pluggable_allocator;

/// The hooks of an allocator of the program's own; NULL for those that it has not. They are torch's, and are called from any
/// thread, with nothing of the library's held.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_allocator_hooks_t), and the rest to 0.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_allocator_hooks_t {
    /// The size that the caller knows.
    pub struct_size: usize,
    /// Called once before the first request, with the number of devices.
    pub init: Option<unsafe extern "C" fn(device_count: c_int)>,
    /// Called by plinth_empty_cache, and when there is no memory for a request.
    pub reset: Option<unsafe extern "C" fn()>,
    /// Called by plinth_set_per_process_memory_fraction.
    pub memory_fraction: Option<unsafe extern "C" fn(fraction: f64, device: c_int)>,
    /// Gives the base of the allocation that a pointer is in, and writes its bytes.
    pub base_alloc: Option<unsafe extern "C" fn(pointer: *mut c_void, size: *mut usize) -> *mut c_void>,
    /// Called by plinth_record_stream. An allocator without it must keep freed memory from streams that still use it in
    /// another way.
    pub record_stream: Option<unsafe extern "C" fn(pointer: *mut c_void, stream: plinth_stream_t)>,
    /// Called when requests begin to go to a pool, with an empty std::function for a filter: any stream may be meant.
    pub begin_allocate_to_pool:
        Option<unsafe extern "C" fn(device: c_int, pool: plinth_pool_id_t, filter: *mut c_void)>,
    /// Called when they do so no longer.
    pub end_allocate_to_pool: Option<unsafe extern "C" fn(device: c_int, pool: plinth_pool_id_t)>,
    /// Called when a pool has lost a user.
    pub release_pool: Option<unsafe extern "C" fn(device: c_int, pool: plinth_pool_id_t)>,
}

/// Makes an allocator of two functions of a shared library, found by their names, as
/// torch.cuda.memory.CUDAPluggableAllocator does. The library is loaded and stays so.
///
/// They are `void *alloc(size_t size, int device, cudaStream_t stream)`, where NULL is the answer if there is no memory, and
/// `void free(void *pointer, size_t size, int device, cudaStream_t stream)`, with what the allocation was asked with. They
/// are called from any thread, with nothing of the library's held, and must not throw. Thread-safe.
///
/// @param path The library, as dlopen takes it; NULL for the program itself.
/// @param alloc_name The name of the first.
/// @param free_name The name of the second.
/// @param allocator Out: the allocator. The caller owns it and gives it up with plinth_pluggable_allocator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM where the library cannot be loaded, with the system's
///         reason; PLINTH_ERROR_INVALID_VALUE for a name that it has not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_allocator_create(
    path: *const c_char,
    alloc_name: *const c_char,
    free_name: *const c_char,
    allocator: *mut plinth_pluggable_allocator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the handle, and NULL or strings.
        let (allocator, alloc_name, free_name) = unsafe {
            (Output::new(allocator, "allocator")?, string(alloc_name, "alloc_name")?, string(free_name, "free_name")?)
        };
        // SAFETY: likewise.
        let path = if path.is_null() { None } else { Some(unsafe { path_of(path, "path") }?) };
        // SAFETY: the caller vouches for the functions that these names lead to.
        let plugin = unsafe { Plugin::load(path.as_deref(), &alloc_name, &free_name) }?;
        allocator.set(backend::create(plugin)? as plinth_pluggable_allocator_t);
        Ok(())
    })
}

/// Gives an allocator its hooks, in place of those that it had. Thread-safe.
///
/// @param allocator The allocator.
/// @param hooks The hooks, which are copied; the functions stay callable.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a struct_size
///         that was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_allocator_set_hooks(
    allocator: plinth_pluggable_allocator_t,
    hooks: *const plinth_allocator_hooks_t,
) -> plinth_status_t {
    guard(|| {
        if hooks.is_null() {
            return Err(null("hooks"));
        }
        // SAFETY: it is not NULL, so the caller passes a struct that begins with its size.
        let size = unsafe { (&raw const (*hooks).struct_size).read() };
        if !(mem::size_of::<usize>()..=4096).contains(&size) {
            return Err(crate::error::Error::new(
                crate::status::Status::INVALID_VALUE,
                format!("hooks->struct_size is {size}; set it to sizeof(plinth_allocator_hooks_t)"),
            ));
        }
        // SAFETY: all zeros is a struct without hooks.
        let mut known: plinth_allocator_hooks_t = unsafe { mem::zeroed() };
        let bytes = size.min(mem::size_of::<plinth_allocator_hooks_t>());
        // SAFETY: both have that many bytes, the caller's struct by its own word.
        unsafe { std::ptr::copy_nonoverlapping(hooks.cast::<u8>(), (&raw mut known).cast::<u8>(), bytes) };
        backend::set_hooks(allocator as u64, |plugin| {
            // SAFETY: the caller vouches for the functions.
            unsafe { plugin.set_hooks(known.into()) };
        })
    })
}

type PoolHook = unsafe extern "C" fn(c_int, plinth_pool_id_t);

impl From<plinth_allocator_hooks_t> for Hooks {
    fn from(hooks: plinth_allocator_hooks_t) -> Hooks {
        // SAFETY: a stream is passed as the number that its pointer is, and both names of a pool are two 64-bit numbers in a
        // struct of C's, so that the functions of each pair are called in the same way.
        let (record_stream, begin_allocate_to_pool, end_allocate_to_pool, release_pool) = unsafe {
            (
                mem::transmute::<
                    Option<unsafe extern "C" fn(*mut c_void, plinth_stream_t)>,
                    Option<unsafe extern "C" fn(*mut c_void, usize)>,
                >(hooks.record_stream),
                mem::transmute::<
                    Option<unsafe extern "C" fn(c_int, plinth_pool_id_t, *mut c_void)>,
                    Option<unsafe extern "C" fn(c_int, PoolPair, *mut c_void)>,
                >(hooks.begin_allocate_to_pool),
                mem::transmute::<Option<PoolHook>, Option<unsafe extern "C" fn(c_int, PoolPair)>>(
                    hooks.end_allocate_to_pool,
                ),
                mem::transmute::<Option<PoolHook>, Option<unsafe extern "C" fn(c_int, PoolPair)>>(hooks.release_pool),
            )
        };
        Hooks {
            init: hooks.init,
            reset: hooks.reset,
            memory_fraction: hooks.memory_fraction,
            base_alloc: hooks.base_alloc,
            record_stream,
            begin_allocate_to_pool,
            end_allocate_to_pool,
            release_pool,
        }
    }
}

/// Gives an allocator up. What it gave out is still freed by it, and where it is in use it stays so. Thread-safe.
///
/// @param allocator The allocator; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_allocator_destroy(
    allocator: plinth_pluggable_allocator_t,
) -> plinth_status_t {
    guard(|| backend::destroy(allocator as u64))
}

/// Makes a pool whose memory comes from an allocator of the program's own, as torch.cuda.MemPool(allocator) does. The
/// caching allocator stays on top: the allocator is asked for segments (2 MiB; PLINTH_ALLOC_CONF's large_segment_size_mb;
/// multiples of 2 MiB), for the stream of the request, and gets them back with the pool, or when memory is out. It is called
/// with a lock of the pool's held, and must not allocate from the caching allocator. Thread-safe.
///
/// @param allocator The allocator. The pool keeps it; the handle may be destroyed.
/// @param use_on_oom As in plinth_mem_pool_create.
/// @param no_split As in plinth_mem_pool_create.
/// @param pool Out: the pool's name. The caller gives it up with plinth_mem_pool_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_create_with_allocator(
    allocator: plinth_pluggable_allocator_t,
    use_on_oom: bool,
    no_split: bool,
    pool: *mut plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the name.
        let pool = unsafe { Output::new(pool, "pool") }?;
        let allocator = backend::allocator_of(allocator as u64)?;
        let id = memory::pool_create(Options { use_on_oom, no_split }, Some(allocator))?;
        pool.set(plinth_pool_id_t { owner: id.owner, index: id.index });
        Ok(())
    })
}

/// Lets an allocator of the program's own meet all requests, as torch.cuda.memory.change_current_allocator does: once, and
/// before the first request for memory. Thread-safe.
///
/// @param allocator The allocator.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_ALREADY_INITIALIZED after a request for memory, or after an
///         earlier change; PLINTH_ERROR_INVALID_CONFIGURATION where the environment makes no sense.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_change_current_allocator(allocator: plinth_pluggable_allocator_t) -> plinth_status_t {
    guard(|| backend::change(backend::allocator_of(allocator as u64)?))
}

/// Tells who gives memory out, as torch.cuda.get_allocator_backend does: "native", "cudaMallocAsync" or "pluggable", and
/// "uncached" or "debug", which are plinth's own. Needs no device. Thread-safe.
///
/// @param backend Out: the name, which stays the library's.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_CONFIGURATION where the environment makes no sense.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_allocator_backend(backend: *mut *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the pointer.
        let output = unsafe { Output::new(backend, "backend") }?;
        output.set(backend::name()?.as_ptr());
        Ok(())
    })
}

/// Switches the caching of memory off or on, as torch.cuda.caching_allocator_enable does. While it is off each request goes
/// to the driver, and each free of such memory back, which waits for the device. Memory that was allocated before is freed
/// as it was allocated. Backends other than the native one are not concerned. Thread-safe.
///
/// @param enable Whether memory is cached, as it is at first.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_enable(enable: bool) -> plinth_status_t {
    guard(|| {
        backend::enable_caching(enable);
        Ok(())
    })
}

/// Tells whether memory is cached, as far as plinth_caching_allocator_enable says so. Thread-safe.
///
/// @param enabled Out: whether it is.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_is_enabled(enabled: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the answer.
        let enabled = unsafe { Output::new(enabled, "enabled") }?;
        enabled.set(backend::is_caching());
        Ok(())
    })
}

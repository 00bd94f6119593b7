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
        Output,
        guard::{guard, release},
        handle, path as path_of, plinth_stream_t,
        pool::plinth_pool_id_t,
        status::plinth_status_t,
        string, structs,
    },
    memory::{self, backend, pool::Options},
    runtime::thread::call_program,
};
use std::{
    ffi::{c_char, c_int, c_void},
    mem,
};

/// An allocator that the program supplies: two functions and optional hooks, with the signatures of torch's
/// CUDAPluggableAllocator.
///
/// The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
/// is of another kind, or that never was a handle.
#[allow(non_camel_case_types)]
pub struct plinth_pluggable_allocator {
    _private: [u8; 0],
}

/// The handle of a pluggable allocator.
#[allow(non_camel_case_types)]
pub type plinth_pluggable_allocator_t = *mut plinth_pluggable_allocator;

/// The hooks of a pluggable allocator; NULL for a hook that it does not have. The hooks are those of torch. They are
/// called from any thread; the library holds no lock during the call.
///
/// No hook may throw. The struct grows at its end in newer versions. PLINTH_ALLOCATOR_HOOKS_INIT sets struct_size, and no hook.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_allocator_hooks_t {
    /// sizeof(plinth_allocator_hooks_t) in the caller's version of the header.
    pub struct_size: usize,
    /// Called once before the first request, with the number of devices.
    pub init: Option<unsafe extern "C" fn(device_count: c_int)>,
    /// Called by plinth_empty_cache, and when an allocation fails for lack of memory.
    pub reset: Option<unsafe extern "C" fn()>,
    /// Called by plinth_set_per_process_memory_fraction.
    pub memory_fraction: Option<unsafe extern "C" fn(fraction: f64, device: c_int)>,
    /// Returns the base address of the allocation that contains a pointer, and writes its size in bytes.
    pub base_alloc: Option<unsafe extern "C" fn(pointer: *mut c_void, size: *mut usize) -> *mut c_void>,
    /// Called by plinth_record_stream. An allocator without this hook needs another way to prevent reuse of freed
    /// memory that other streams still use.
    pub record_stream: Option<unsafe extern "C" fn(pointer: *mut c_void, stream: plinth_stream_t)>,
    /// Called when requests start to be allocated from a pool. The filter is an empty std::function: any stream can
    /// be concerned.
    pub begin_allocate_to_pool:
        Option<unsafe extern "C" fn(device: c_int, pool: plinth_pool_id_t, filter: *mut c_void)>,
    /// Called when requests stop being allocated from a pool.
    pub end_allocate_to_pool: Option<unsafe extern "C" fn(device: c_int, pool: plinth_pool_id_t)>,
    /// Called when a pool has lost a user.
    pub release_pool: Option<unsafe extern "C" fn(device: c_int, pool: plinth_pool_id_t)>,
}

/// Creates an allocator from two functions of a shared library, as torch.cuda.memory.CUDAPluggableAllocator does.
///
/// The functions are found by name. The library is loaded and is never unloaded.
///
/// The functions are `void *alloc(size_t size, int device, cudaStream_t stream)`, which returns NULL if there is no
/// memory, and `void free(void *pointer, size_t size, int device, cudaStream_t stream)`, which receives the arguments
/// of the allocation. They are called from any thread; the library holds no lock during the call. They must not
/// throw.
///
/// @param path The path of the library, as for dlopen; NULL for the program itself.
/// @param alloc_name The name of the function that allocates.
/// @param free_name The name of the function that frees.
/// @param allocator Out: the allocator. The caller owns it and releases it with plinth_pluggable_allocator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM if the library cannot be loaded, with the
///         system's reason; PLINTH_ERROR_INVALID_VALUE for a name that the library does not export.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_allocator_create(
    path: *const c_char,
    alloc_name: *const c_char,
    free_name: *const c_char,
    allocator: *mut plinth_pluggable_allocator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes, and NULL or strings.
        let (allocator, alloc_name, free_name) = unsafe {
            (Output::new(allocator, "allocator")?, string(alloc_name, "alloc_name")?, string(free_name, "free_name")?)
        };
        // SAFETY: likewise.
        let path = if path.is_null() { None } else { Some(unsafe { path_of(path, "path") }?) };
        // SAFETY: the caller promises that the named functions have the documented signatures.
        let plugin = call_program(|| unsafe { Plugin::load(path.as_deref(), &alloc_name, &free_name) })?;
        allocator.set(backend::create(plugin)? as plinth_pluggable_allocator_t);
        Ok(())
    })
}

/// Sets the hooks of an allocator and replaces those that were set before.
///
/// @param allocator The allocator.
/// @param hooks The hooks. The struct is copied; the functions must stay callable.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if
///         struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_allocator_set_hooks(
    allocator: plinth_pluggable_allocator_t,
    hooks: *const plinth_allocator_hooks_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: all zeros is a valid value: a struct without hooks.
        let none: plinth_allocator_hooks_t = unsafe { mem::zeroed() };
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        let known = unsafe { structs::read(hooks, none, "hooks") }?;
        backend::set_hooks(handle(allocator, "allocator")?, |plugin| {
            // SAFETY: the caller promises that the functions have the documented signatures.
            unsafe { plugin.set_hooks(known.into()) };
        })
    })
}

type PoolHook = unsafe extern "C" fn(c_int, plinth_pool_id_t);

impl From<plinth_allocator_hooks_t> for Hooks {
    fn from(hooks: plinth_allocator_hooks_t) -> Hooks {
        // SAFETY: a stream pointer and a usize are passed alike, and both types of a pool id are C structs of two
        // 64-bit numbers, so the two function types of each pair have the same calling convention.
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

/// Releases the caller's reference to an allocator.
///
/// The allocator's free function still frees the memory that the allocator allocated. An allocator that is in use
/// stays in use.
///
/// @param allocator The allocator; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_pluggable_allocator_destroy(
    allocator: plinth_pluggable_allocator_t,
) -> plinth_status_t {
    release(|| backend::destroy(allocator as u64))
}

/// Creates a pool whose memory comes from an external allocator, as torch.cuda.MemPool(allocator) does. The caching
/// allocator requests segments from it (2 MiB; large_segment_size_mb of PLINTH_ALLOC_CONF; multiples of 2 MiB) for the
/// stream of the request, and frees them to it when the pool is destroyed or when memory runs out. The external
/// allocator is called with a lock of the pool held, and must not allocate from the caching allocator.
///
/// @param allocator The external allocator. The pool holds a reference to it; the handle may be destroyed.
/// @param use_on_oom As in plinth_mem_pool_create.
/// @param no_split As in plinth_mem_pool_create.
/// @param pool Out: the pool's id. The caller releases it with plinth_mem_pool_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_mem_pool_create_with_allocator(
    allocator: plinth_pluggable_allocator_t,
    use_on_oom: bool,
    no_split: bool,
    pool: *mut plinth_pool_id_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pool = unsafe { Output::new(pool, "pool") }?;
        let allocator = backend::allocator_of(handle(allocator, "allocator")?)?;
        let id = memory::pool_create(Options { use_on_oom, no_split, ..Options::default() }, Some(allocator))?;
        pool.set(plinth_pool_id_t { owner: id.owner, index: id.index });
        Ok(())
    })
}

/// Makes a pluggable allocator serve all requests for memory, as torch.cuda.memory.change_current_allocator does.
///
/// Can be called once, and only before the first request for memory.
///
/// @param allocator The allocator.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_ALREADY_INITIALIZED after a
///         request for memory, or after an earlier change; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid setting in
///         the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_change_current_allocator(allocator: plinth_pluggable_allocator_t) -> plinth_status_t {
    guard(|| backend::change(backend::allocator_of(handle(allocator, "allocator")?)?))
}

/// Gets the name of the active allocator backend, as torch.cuda.get_allocator_backend does.
///
/// The names are "native", "cudaMallocAsync" and "pluggable", and plinth's own "uncached" and "debug". Needs no
/// device.
///
/// @param backend Out: the name, which belongs to the library.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_CONFIGURATION for an invalid setting in the
///         environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_allocator_backend(backend: *mut *const c_char) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(backend, "backend") }?;
        output.set(backend::name()?.as_ptr());
        Ok(())
    })
}

/// Switches the caching of memory on or off, as torch.cuda.caching_allocator_enable does.
///
/// While caching is off, each request allocates from the driver, and each free of such memory releases it to the
/// driver, which waits for the device. Memory that was allocated earlier is freed in the way in which it was
/// allocated. Has no effect on backends other than the native one.
///
/// @param enable Whether to cache memory; initially true.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_enable(enable: bool) -> plinth_status_t {
    guard(|| {
        backend::enable_caching(enable);
        Ok(())
    })
}

/// Gets whether caching is on, as set by plinth_caching_allocator_enable.
///
/// @param enabled Out: whether it is on.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_caching_allocator_is_enabled(enabled: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let enabled = unsafe { Output::new(enabled, "enabled") }?;
        enabled.set(backend::is_caching());
        Ok(())
    })
}

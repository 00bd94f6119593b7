//! User-supplied allocators: functions that the program passes or names, with the signatures of torch's
//! CUDAPluggableAllocator.
//!
//! The caller that creates a [`Plugin`] guarantees for its functions that they have these signatures, may be called
//! from any thread without a lock of the library, and do not unwind.

use super::{Stream, library::Library};
use crate::{
    error::{Error, Result},
    status::Status,
};
use parking_lot::Mutex;
use std::{
    ffi::{CStr, CString, c_int, c_void},
    path::Path,
};

/// A pool id as these functions take it. Like C++'s pair of two 64-bit integers, it is passed in two registers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PoolPair {
    /// The first number.
    pub owner: u64,
    /// The second.
    pub index: u64,
}

/// Allocates memory. Parameters: size, device, stream.
pub type AllocFn = unsafe extern "C" fn(usize, c_int, usize) -> *mut c_void;
/// Frees memory. Parameters: pointer, and the size, device and stream of the allocation.
pub type FreeFn = unsafe extern "C" fn(*mut c_void, usize, c_int, usize);

/// The optional functions of an allocator.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hooks {
    /// Called once, with the number of devices, before the first allocation.
    pub init: Option<unsafe extern "C" fn(c_int)>,
    /// Called to empty the cache.
    pub reset: Option<unsafe extern "C" fn()>,
    /// Called when the fraction of a device is set.
    pub memory_fraction: Option<unsafe extern "C" fn(f64, c_int)>,
    /// Returns the base of the allocation that contains a pointer, and stores its size.
    pub base_alloc: Option<unsafe extern "C" fn(*mut c_void, *mut usize) -> *mut c_void>,
    /// Called with a pointer and a stream that uses it.
    pub record_stream: Option<unsafe extern "C" fn(*mut c_void, usize)>,
    /// Called with device, pool and a C++ function object, when allocations start to use a pool.
    pub begin_allocate_to_pool: Option<unsafe extern "C" fn(c_int, PoolPair, *mut c_void)>,
    /// Called when allocations stop using a pool.
    pub end_allocate_to_pool: Option<unsafe extern "C" fn(c_int, PoolPair)>,
    /// Called when a pool loses a user.
    pub release_pool: Option<unsafe extern "C" fn(c_int, PoolPair)>,
}

/// A user-supplied allocator.
#[derive(Debug)]
pub struct Plugin {
    alloc: AllocFn,
    free: FreeFn,
    hooks: Mutex<Hooks>,
}

/// The filter argument of `begin_allocate_to_pool`: an empty `std::function`, which is all zeros.
#[repr(C, align(16))]
struct EmptyFunction([u64; 4]);

impl Plugin {
    /// Loads a library, which stays loaded, and looks up the two functions by name. Without a path, looks in the
    /// program itself.
    ///
    /// # Safety
    /// The functions satisfy the contract in the module documentation, and the library's constructors may run.
    pub unsafe fn load(path: Option<&Path>, alloc: &str, free: &str) -> Result<Self> {
        let name = |text: &str| {
            CString::new(text).map_err(|_| Error::new(Status::INVALID_VALUE, format!("{text:?} holds a NUL")))
        };
        let (alloc_name, free_name) = (name(alloc)?, name(free)?);
        let library = path.map_or_else(Library::program, |path| Library::open_for_program(path.as_os_str()));
        let library =
            library.map_err(|reason| Error::new(Status::SYSTEM, format!("loading an allocator: {reason}")))?;
        let find = |name: &CStr| {
            library.symbol(name).ok_or_else(|| {
                let text = format!("{} has no function {name:?}", path.unwrap_or(Path::new("the program")).display());
                Error::new(Status::INVALID_VALUE, text)
            })
        };
        let (alloc, free) = (find(&alloc_name)?, find(&free_name)?);
        // SAFETY: the caller guarantees the signatures, and function pointers have the size of data pointers on this
        // platform.
        let (alloc, free) = unsafe {
            (std::mem::transmute::<*const c_void, AllocFn>(alloc), std::mem::transmute::<*const c_void, FreeFn>(free))
        };
        Ok(Plugin { alloc, free, hooks: Mutex::new(Hooks::default()) })
    }

    /// Replaces the hooks.
    ///
    /// # Safety
    /// Each hook satisfies the contract in the module documentation.
    pub unsafe fn set_hooks(&self, hooks: Hooks) {
        *self.hooks.lock() = hooks;
    }

    fn hooks(&self) -> Hooks {
        *self.hooks.lock()
    }

    /// Allocates memory; `None` if the allocator has none.
    pub fn alloc(&self, bytes: u64, device: u32, stream: Stream) -> Option<u64> {
        // SAFETY: the contract of `load` covers the function.
        let pointer = unsafe { (self.alloc)(bytes as usize, device as c_int, stream.handle()) };
        (!pointer.is_null()).then_some(pointer as u64)
    }

    /// Frees memory from [`alloc`](Self::alloc). The other arguments must be the same.
    pub fn free(&self, address: u64, bytes: u64, device: u32, stream: Stream) {
        // SAFETY: as above; the caller frees memory of this allocator, once.
        unsafe { (self.free)(address as *mut c_void, bytes as usize, device as c_int, stream.handle()) };
    }

    /// Calls the `init` hook with the number of devices.
    pub fn init(&self, devices: usize) {
        if let Some(hook) = self.hooks().init {
            // SAFETY: as above.
            unsafe { hook(devices as c_int) };
        }
    }

    /// Calls the hook that empties the cache.
    pub fn reset(&self) {
        if let Some(hook) = self.hooks().reset {
            // SAFETY: as above.
            unsafe { hook() };
        }
    }

    /// Calls the hook that sets the usable memory fraction of a device.
    pub fn set_fraction(&self, fraction: f64, device: u32) {
        if let Some(hook) = self.hooks().memory_fraction {
            // SAFETY: as above.
            unsafe { hook(fraction, device as c_int) };
        }
    }

    /// Returns the start and the bytes of the allocation that contains an address; `None` if the allocator cannot
    /// determine it.
    pub fn base(&self, address: u64) -> Option<(u64, u64)> {
        let mut bytes = 0;
        let hook = self.hooks().base_alloc?;
        // SAFETY: as above; the size is a live local.
        let base = unsafe { hook(address as *mut c_void, &mut bytes) };
        (!base.is_null()).then_some((base as u64, bytes as u64))
    }

    /// Calls the hook that records a stream's use of an allocation. Returns whether the allocator has this hook.
    pub fn record_stream(&self, address: u64, stream: Stream) -> bool {
        let Some(hook) = self.hooks().record_stream else { return false };
        // SAFETY: as above.
        unsafe { hook(address as *mut c_void, stream.handle()) };
        true
    }

    /// Calls the hook for the start of allocations from a pool of a device.
    pub fn begin_pool(&self, device: u32, pool: PoolPair) {
        if let Some(hook) = self.hooks().begin_allocate_to_pool {
            let mut empty = EmptyFunction([0; 4]);
            // SAFETY: as above. C++ passes a function object by its address. It belongs to this frame; all zeros is an
            // empty object, which the callee may copy, move from or ignore.
            unsafe { hook(device as c_int, pool, (&raw mut empty).cast()) };
        }
    }

    /// Calls the hook for the end of allocations from a pool.
    pub fn end_pool(&self, device: u32, pool: PoolPair) {
        if let Some(hook) = self.hooks().end_allocate_to_pool {
            // SAFETY: as above.
            unsafe { hook(device as c_int, pool) };
        }
    }

    /// Calls the hook for a pool that loses a user.
    pub fn release_pool(&self, device: u32, pool: PoolPair) {
        if let Some(hook) = self.hooks().release_pool {
            // SAFETY: as above.
            unsafe { hook(device as c_int, pool) };
        }
    }
}

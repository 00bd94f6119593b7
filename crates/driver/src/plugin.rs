//! Allocators of other people's: functions that the program named or gave, called by torch's signatures of
//! CUDAPluggableAllocator.
//!
//! Whoever makes a [`Plugin`] vouches for its functions: that they have those signatures, may be called from any thread with
//! no lock of the library's held, and do not unwind.

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

/// A pool's name, as such functions take it: like C++'s pair of two 64-bit numbers, it travels in two registers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PoolPair {
    /// The first number.
    pub owner: u64,
    /// The second.
    pub index: u64,
}

/// Allocates: size, device, stream.
pub type AllocFn = unsafe extern "C" fn(usize, c_int, usize) -> *mut c_void;
/// Frees: pointer, and the size, device and stream of the allocation.
pub type FreeFn = unsafe extern "C" fn(*mut c_void, usize, c_int, usize);

/// The functions that an allocator may have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hooks {
    /// Called once, with the number of devices, before the first allocation.
    pub init: Option<unsafe extern "C" fn(c_int)>,
    /// Called to empty the cache.
    pub reset: Option<unsafe extern "C" fn()>,
    /// Called when the fraction of a device is set.
    pub memory_fraction: Option<unsafe extern "C" fn(f64, c_int)>,
    /// Gives the base of the allocation that a pointer is in, and its size.
    pub base_alloc: Option<unsafe extern "C" fn(*mut c_void, *mut usize) -> *mut c_void>,
    /// Called with a pointer and a stream that uses it.
    pub record_stream: Option<unsafe extern "C" fn(*mut c_void, usize)>,
    /// Called with device, pool and a C++ function object, when requests begin to go to a pool.
    pub begin_allocate_to_pool: Option<unsafe extern "C" fn(c_int, PoolPair, *mut c_void)>,
    /// Called when they do so no longer.
    pub end_allocate_to_pool: Option<unsafe extern "C" fn(c_int, PoolPair)>,
    /// Called when a pool loses a user.
    pub release_pool: Option<unsafe extern "C" fn(c_int, PoolPair)>,
}

/// An allocator of somebody else's.
#[derive(Debug)]
pub struct Plugin {
    alloc: AllocFn,
    free: FreeFn,
    hooks: Mutex<Hooks>,
}

/// What the filter of `begin_allocate_to_pool` is here: an empty `std::function`, which is all zeros.
#[repr(C, align(16))]
struct EmptyFunction([u64; 4]);

impl Plugin {
    /// Loads a library, which stays loaded, and finds the two functions in it by their names. No path is the program itself.
    ///
    /// # Safety
    /// What has these names is as the module's comment says, and the library's constructors may run.
    pub unsafe fn load(path: Option<&Path>, alloc: &str, free: &str) -> Result<Self> {
        let name = |text: &str| {
            CString::new(text).map_err(|_| Error::new(Status::INVALID_VALUE, format!("{text:?} holds a NUL")))
        };
        let (alloc_name, free_name) = (name(alloc)?, name(free)?);
        let library = path.map_or_else(Library::program, |path| Library::open_path(path.as_os_str()));
        let library =
            library.map_err(|reason| Error::new(Status::SYSTEM, format!("loading an allocator: {reason}")))?;
        let find = |name: &CStr| {
            library.symbol(name).ok_or_else(|| {
                let text = format!("{} has no function {name:?}", path.unwrap_or(Path::new("the program")).display());
                Error::new(Status::INVALID_VALUE, text)
            })
        };
        let (alloc, free) = (find(&alloc_name)?, find(&free_name)?);
        // SAFETY: the caller vouched for the signatures, and function pointers have the size of data pointers here.
        let (alloc, free) = unsafe {
            (std::mem::transmute::<*const c_void, AllocFn>(alloc), std::mem::transmute::<*const c_void, FreeFn>(free))
        };
        Ok(Plugin { alloc, free, hooks: Mutex::new(Hooks::default()) })
    }

    /// Puts other hooks in place of those that were there.
    ///
    /// # Safety
    /// Each is as the module's comment says.
    pub unsafe fn set_hooks(&self, hooks: Hooks) {
        *self.hooks.lock() = hooks;
    }

    fn hooks(&self) -> Hooks {
        *self.hooks.lock()
    }

    /// Allocates; `None` where there is no memory.
    pub fn alloc(&self, bytes: u64, device: u32, stream: Stream) -> Option<u64> {
        // SAFETY: whoever made this vouched for the function.
        let pointer = unsafe { (self.alloc)(bytes as usize, device as c_int, stream.handle()) };
        (!pointer.is_null()).then_some(pointer as u64)
    }

    /// Frees what [`alloc`](Self::alloc) gave with the same arguments.
    pub fn free(&self, address: u64, bytes: u64, device: u32, stream: Stream) {
        // SAFETY: as above; the caller gives back what this allocator gave, once.
        unsafe { (self.free)(address as *mut c_void, bytes as usize, device as c_int, stream.handle()) };
    }

    /// Tells that there are so many devices.
    pub fn init(&self, devices: usize) {
        if let Some(hook) = self.hooks().init {
            // SAFETY: as above.
            unsafe { hook(devices as c_int) };
        }
    }

    /// Asks for the cache to be emptied.
    pub fn reset(&self) {
        if let Some(hook) = self.hooks().reset {
            // SAFETY: as above.
            unsafe { hook() };
        }
    }

    /// Tells the fraction of a device that may be used.
    pub fn set_fraction(&self, fraction: f64, device: u32) {
        if let Some(hook) = self.hooks().memory_fraction {
            // SAFETY: as above.
            unsafe { hook(fraction, device as c_int) };
        }
    }

    /// Where the allocation that an address is in begins, and its bytes; `None` where the allocator cannot tell.
    pub fn base(&self, address: u64) -> Option<(u64, u64)> {
        let mut bytes = 0;
        let hook = self.hooks().base_alloc?;
        // SAFETY: as above; the size is a live local.
        let base = unsafe { hook(address as *mut c_void, &mut bytes) };
        (!base.is_null()).then_some((base as u64, bytes as u64))
    }

    /// Tells that a stream uses an allocation. Whether the allocator wants to know.
    pub fn record_stream(&self, address: u64, stream: Stream) -> bool {
        let Some(hook) = self.hooks().record_stream else { return false };
        // SAFETY: as above.
        unsafe { hook(address as *mut c_void, stream.handle()) };
        true
    }

    /// Tells that requests of a device go to a pool from now on.
    pub fn begin_pool(&self, device: u32, pool: PoolPair) {
        if let Some(hook) = self.hooks().begin_allocate_to_pool {
            let mut empty = EmptyFunction([0; 4]);
            // SAFETY: as above. A function object is passed by its address, and belongs to this frame; all zeros is one
            // that is empty, for the callee to copy, to move from and to ignore.
            unsafe { hook(device as c_int, pool, (&raw mut empty).cast()) };
        }
    }

    /// Tells that they do so no longer.
    pub fn end_pool(&self, device: u32, pool: PoolPair) {
        if let Some(hook) = self.hooks().end_allocate_to_pool {
            // SAFETY: as above.
            unsafe { hook(device as c_int, pool) };
        }
    }

    /// Tells that a pool has lost a user.
    pub fn release_pool(&self, device: u32, pool: PoolPair) {
        if let Some(hook) = self.hooks().release_pool {
            // SAFETY: as above.
            unsafe { hook(device as c_int, pool) };
        }
    }
}

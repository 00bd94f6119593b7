//! The driver's modules and kernels.

use super::{Answer, Driver, Stream, call, types::*};
use std::{
    ffi::{CStr, c_void},
    ptr,
};

/// A loaded module. It stays loaded until the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module(usize);

/// A kernel of a loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(usize);

impl Function {
    /// The kernel with this handle.
    ///
    /// # Safety
    /// The handle is a live one of the driver's.
    pub unsafe fn from_handle(handle: usize) -> Self {
        Function(handle)
    }

    /// The driver's own pointer, for programs that call CUDA themselves.
    pub fn handle(self) -> usize {
        self.0
    }

    /// A kernel that the driver named.
    pub(super) fn found(function: CUfunction) -> Self {
        Function(function as usize)
    }

    pub(super) fn raw(self) -> CUfunction {
        self.0 as CUfunction
    }
}

impl Driver {
    /// Loads PTX text into the calling thread's context.
    pub fn module_load(&self, ptx: &CStr) -> Answer<Module> {
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: the output is a live local, and the image is NUL-terminated PTX text.
        unsafe { call!(self, cuModuleLoadData(&mut module, ptx.as_ptr().cast())) }?;
        Ok(Module(module as usize))
    }

    /// Finds a kernel of a module by name.
    pub fn module_function(&self, module: Module, name: &CStr) -> Answer<Function> {
        let mut function: CUfunction = ptr::null_mut();
        // SAFETY: the output is a live local, the module stays loaded, and the name is NUL-terminated.
        unsafe { call!(self, cuModuleGetFunction(&mut function, module.0 as CUmodule, name.as_ptr())) }?;
        Ok(Function(function as usize))
    }

    /// Launches one block of one thread of a kernel that takes one 64-bit integer.
    pub fn launch_scalar(&self, function: Function, argument: u64, stream: Stream) -> Answer<()> {
        let argument = (&raw const argument).cast::<c_void>();
        // SAFETY: the kernel takes exactly one 64-bit integer, as its callers in the core see to, and that outlives the
        // call.
        unsafe { self.launch(function, [1; 3], [1; 3], 0, &[argument], stream) }
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// Each of `parameters` leads to a value of the type that the kernel takes in that place; the driver copies it before
    /// it returns. What the kernel does with the addresses among them is right.
    pub unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        parameters: &[*const c_void],
        stream: Stream,
    ) -> Answer<()> {
        // SAFETY: the caller answers for the parameters, which the driver only reads; function and stream are live.
        unsafe {
            call!(
                self,
                cuLaunchKernel(
                    function.0 as CUfunction,
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shared_bytes,
                    stream.raw(),
                    parameters.as_ptr().cast_mut().cast(),
                    ptr::null_mut()
                )
            )
        }
    }
}

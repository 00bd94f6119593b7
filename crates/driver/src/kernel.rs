//! Modules and kernels.

use super::{Driver, DriverResult, Failure, Image, Stream, call, codes, types::*};
use std::{
    ffi::{CStr, c_uint, c_void},
    ptr,
};

/// A loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module(usize);

impl Module {
    /// Creates an invalid handle for tests that never use it.
    #[cfg(any(test, feature = "test-util"))]
    pub fn dangling() -> Self {
        Module(0)
    }
}

/// A kernel of a loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(usize);

impl Function {
    /// Wraps a kernel handle.
    ///
    /// # Safety
    /// The handle is a live one of the driver.
    pub unsafe fn from_handle(handle: usize) -> Self {
        Function(handle)
    }

    /// Creates an invalid handle for tests that never launch it.
    #[cfg(any(test, feature = "test-util"))]
    pub fn dangling() -> Self {
        Function(0)
    }

    /// Returns the driver's pointer, for programs that call CUDA directly.
    pub fn handle(self) -> usize {
        self.0
    }

    /// Wraps a kernel that the driver returned.
    pub(super) fn from_raw(function: CUfunction) -> Self {
        Function(function as usize)
    }

    pub(super) fn raw(self) -> CUfunction {
        self.0 as CUfunction
    }
}

impl Driver {
    /// Loads PTX text into the calling thread's context.
    pub fn module_load(&self, ptx: &CStr) -> DriverResult<Module> {
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: the output is a live local, and the image is NUL-terminated PTX text.
        unsafe { call!(self, cuModuleLoadData(&mut module, ptx.as_ptr().cast())) }?;
        Ok(Module(module as usize))
    }

    /// Finds a kernel of a module by name.
    pub fn module_function(&self, module: Module, name: &CStr) -> DriverResult<Function> {
        let mut function: CUfunction = ptr::null_mut();
        // SAFETY: the output is a live local, the module stays loaded, and the name is NUL-terminated.
        unsafe { call!(self, cuModuleGetFunction(&mut function, module.0 as CUmodule, name.as_ptr())) }?;
        Ok(Function(function as usize))
    }

    /// Finds a variable of a module by name. Returns its address in device memory and its size in bytes.
    pub fn module_variable(&self, module: Module, name: &CStr) -> DriverResult<(u64, usize)> {
        let (mut address, mut bytes): (CUdeviceptr, usize) = (0, 0);
        // SAFETY: the outputs are live locals, the module stays loaded, and the name is NUL-terminated.
        unsafe { call!(self, cuModuleGetGlobal_v2(&mut address, &mut bytes, module.0 as CUmodule, name.as_ptr())) }?;
        Ok((address, bytes))
    }

    /// Launches one block of one thread of a kernel that takes one 64-bit integer.
    pub fn launch_scalar(&self, function: Function, argument: u64, stream: Stream) -> DriverResult<()> {
        let argument = (&raw const argument).cast::<c_void>();
        // SAFETY: the kernel takes exactly one 64-bit integer, which the library's callers ensure, and the argument
        // outlives the call.
        unsafe { self.launch(function, [1; 3], [1; 3], 0, &[argument], stream) }
    }

    /// Launches a kernel.
    ///
    /// # Safety
    /// Each of `parameters` points to a value of the type that the kernel takes at that position; the driver copies it
    /// before it returns. The kernel's accesses through the addresses among them are valid.
    pub unsafe fn launch(
        &self,
        function: Function,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        parameters: &[*const c_void],
        stream: Stream,
    ) -> DriverResult<()> {
        // SAFETY: the caller guarantees the parameters, which the driver only reads; function and stream are live.
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

/// The launch configuration of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// The number of blocks along each axis.
    pub grid: [u32; 3],
    /// The number of threads per block along each axis.
    pub block: [u32; 3],
    /// The number of blocks per cluster along each axis; all 0 for no clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Whether the launch is cooperative: all blocks run at the same time and may wait for each other.
    pub cooperative: bool,
}

/// The arguments of a user kernel, stored as copies.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Each value begins in a separate 16-byte word, so that it is aligned for any type.
    words: Vec<u128>,
    starts: Vec<usize>,
    sizes: Vec<usize>,
}

impl Arguments {
    /// Appends a value.
    ///
    /// # Safety
    /// The kernel's use of the value, including the memory that it refers to, is valid until the launches that receive
    /// it are complete.
    pub unsafe fn push(&mut self, value: &[u8]) {
        self.starts.push(self.words.len());
        self.sizes.push(value.len());
        for part in value.chunks(size_of::<u128>()) {
            let mut word = [0; size_of::<u128>()];
            word[..part.len()].copy_from_slice(part);
            self.words.push(u128::from_ne_bytes(word));
        }
    }

    /// Returns the size of each value in bytes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    fn pointers(&self) -> Vec<*const c_void> {
        self.starts.iter().map(|start| self.words[*start..].as_ptr().cast()).collect()
    }
}

impl Driver {
    /// Loads an image into the calling thread's context.
    pub fn module_load_image(&self, image: &Image) -> DriverResult<Module> {
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: the output is a live local, and the image is complete.
        unsafe { call!(self, cuModuleLoadData(&mut module, image.bytes().as_ptr().cast())) }?;
        Ok(Module(module as usize))
    }

    /// Loads an image like [`module_load_image`](Self::module_load_image). A failure also returns the log of the
    /// driver's PTX compiler.
    pub fn module_load_logged(&self, image: &Image) -> Result<Module, (Failure, String)> {
        const ROOM: usize = 16 << 10;
        let (mut module, mut log): (CUmodule, _) = (ptr::null_mut(), vec![0_u8; ROOM]);
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(ROOM)];
        // SAFETY: the output is a live local, the image is complete, and there are as many options as values: a log
        // buffer and its size.
        let loaded = unsafe {
            call!(
                self,
                cuModuleLoadDataEx(
                    &mut module,
                    image.bytes().as_ptr().cast(),
                    2,
                    options.as_mut_ptr(),
                    values.as_mut_ptr()
                )
            )
        };
        let text = CStr::from_bytes_until_nul(&log).unwrap_or_default().to_string_lossy();
        loaded.map(|()| Module(module as usize)).map_err(|failure| (failure, text.trim_end().to_owned()))
    }

    /// Unloads a module whose kernels are no longer used.
    pub fn module_unload(&self, module: Module) -> DriverResult<()> {
        // SAFETY: the module is live, and the caller passes on its ownership.
        unsafe { call!(self, cuModuleUnload(module.0 as CUmodule)) }
    }

    /// Returns an attribute of a kernel. `attribute` is one of `CU_FUNC_ATTRIBUTE_...`.
    pub fn function_attribute(&self, function: Function, attribute: c_uint) -> DriverResult<i32> {
        let mut value = 0;
        // SAFETY: the output is a live local, and the kernel's module is loaded.
        unsafe { call!(self, cuFuncGetAttribute(&mut value, attribute, function.raw())) }?;
        Ok(value)
    }

    /// Sets an attribute of a kernel.
    pub fn set_function_attribute(&self, function: Function, attribute: c_uint, value: i32) -> DriverResult<()> {
        // SAFETY: the kernel's module is loaded.
        unsafe { call!(self, cuFuncSetAttribute(function.raw(), attribute, value)) }
    }

    /// Returns how many blocks of a kernel one multiprocessor can run at the same time.
    pub fn occupancy(&self, function: Function, threads: i32, shared_bytes: usize) -> DriverResult<i32> {
        let mut blocks = 0;
        // SAFETY: the output is a live local, and the kernel's module is loaded.
        unsafe {
            call!(self, cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.raw(), threads, shared_bytes))
        }?;
        Ok(blocks)
    }

    /// Returns the size of each parameter of a kernel in bytes; `None` if the driver does not support the query.
    pub fn parameter_sizes(&self, function: Function) -> DriverResult<Option<Vec<usize>>> {
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the outputs are live locals, and the kernel's module is loaded.
            let result =
                unsafe { call!(self, cuFuncGetParamInfo(function.raw(), sizes.len(), &mut offset, &mut bytes)) };
            match result {
                Ok(()) => sizes.push(bytes),
                Err(Failure { code: codes::CUDA_ERROR_INVALID_VALUE, .. }) => return Ok(Some(sizes)),
                Err(Failure { code: codes::CUDA_ERROR_NOT_SUPPORTED, .. }) => return Ok(None),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Launches a user kernel.
    pub fn launch_user_kernel(
        &self,
        function: Function,
        shape: &LaunchShape,
        arguments: &Arguments,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointers = arguments.pointers();
        if shape.cluster == [0; 3] && !shape.cooperative {
            // SAFETY: the caller of `Arguments::push` guarantees the arguments; they outlive the call.
            return unsafe { self.launch(function, shape.grid, shape.block, shape.shared_bytes, &pointers, stream) };
        }
        let mut attributes: Vec<CUlaunchAttribute> = Vec::new();
        // SAFETY: the struct consists of integers, for which zeros are valid; an all-zero attribute is the one to
        // ignore.
        let empty: CUlaunchAttribute = unsafe { std::mem::zeroed() };
        if shape.cooperative {
            let mut attribute = empty;
            attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            attribute.value.cooperative = 1;
            attributes.push(attribute);
        }
        if shape.cluster != [0; 3] {
            let mut attribute = empty;
            attribute.id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            let [x, y, z] = shape.cluster;
            attribute.value.clusterDim.x = x;
            attribute.value.clusterDim.y = y;
            attribute.value.clusterDim.z = z;
            attributes.push(attribute);
        }
        let config = CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.shared_bytes,
            hStream: stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as c_uint,
        };
        // SAFETY: as above; the attributes outlive the call.
        unsafe {
            call!(self, cuLaunchKernelEx(&config, function.raw(), pointers.as_ptr().cast_mut().cast(), ptr::null_mut()))
        }
    }
}

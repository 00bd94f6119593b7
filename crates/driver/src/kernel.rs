//! The driver's modules and kernels.

use super::{Driver, DriverResult, Failure, Image, Stream, call, codes, types::*};
use std::{
    ffi::{CStr, c_uint, c_void},
    ptr,
};

/// A loaded module.
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

    /// A kernel that the test at hand never launches.
    #[cfg(any(test, feature = "test-util"))]
    pub fn dangling() -> Self {
        Function(0)
    }

    /// The driver's own pointer, for programs that call CUDA themselves.
    pub fn handle(self) -> usize {
        self.0
    }

    /// A kernel that the driver named.
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

    /// Launches one block of one thread of a kernel that takes one 64-bit integer.
    pub fn launch_scalar(&self, function: Function, argument: u64, stream: Stream) -> DriverResult<()> {
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
    ) -> DriverResult<()> {
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

/// How a kernel is launched, beside what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchShape {
    /// How many blocks, along each axis.
    pub grid: [u32; 3],
    /// How many threads a block has, along each axis.
    pub block: [u32; 3],
    /// How many blocks a cluster has, along each axis; all 0 for no clusters.
    pub cluster: [u32; 3],
    /// Dynamic shared memory, in bytes a block.
    pub shared_bytes: u32,
    /// Whether all blocks run at the same time and may wait for each other.
    pub cooperative: bool,
}

/// What a kernel of a program's own is given: copies of the values.
#[derive(Debug, Default)]
pub struct Arguments {
    /// Every value begins in a word of its own, so it is aligned as any type wants it.
    words: Vec<u128>,
    starts: Vec<usize>,
    sizes: Vec<usize>,
}

impl Arguments {
    /// Adds a value.
    ///
    /// # Safety
    /// What the kernel does with it, the memory it leads to included, is right until the launches that it is given are done.
    pub unsafe fn push(&mut self, value: &[u8]) {
        self.starts.push(self.words.len());
        self.sizes.push(value.len());
        for part in value.chunks(size_of::<u128>()) {
            let mut word = [0; size_of::<u128>()];
            word[..part.len()].copy_from_slice(part);
            self.words.push(u128::from_ne_bytes(word));
        }
    }

    /// The bytes of each.
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
        // SAFETY: the output is a live local, and the image is whole.
        unsafe { call!(self, cuModuleLoadData(&mut module, image.bytes().as_ptr().cast())) }?;
        Ok(Module(module as usize))
    }

    /// The same; beside a failure, what the driver's compiler says of PTX.
    pub fn module_load_logged(&self, image: &Image) -> Result<Module, (Failure, String)> {
        const ROOM: usize = 16 << 10;
        let (mut module, mut log): (CUmodule, _) = (ptr::null_mut(), vec![0_u8; ROOM]);
        let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(ROOM)];
        // SAFETY: the output is a live local, the image is whole, and there are as many options as values: room for a log, and
        // its size.
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

    /// Unloads a module, whose kernels nobody uses any more.
    pub fn module_unload(&self, module: Module) -> DriverResult<()> {
        // SAFETY: the module is live, and its holder gives it up.
        unsafe { call!(self, cuModuleUnload(module.0 as CUmodule)) }
    }

    /// An attribute of a kernel, one of `CU_FUNC_ATTRIBUTE_...`.
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

    /// How many blocks of a kernel one multiprocessor runs at once.
    pub fn occupancy(&self, function: Function, threads: i32, shared_bytes: usize) -> DriverResult<i32> {
        let mut blocks = 0;
        // SAFETY: the output is a live local, and the kernel's module is loaded.
        unsafe {
            call!(self, cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function.raw(), threads, shared_bytes))
        }?;
        Ok(blocks)
    }

    /// The bytes of each parameter of a kernel, if the driver tells them.
    pub fn parameter_sizes(&self, function: Function) -> DriverResult<Option<Vec<usize>>> {
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the outputs are live locals, and the kernel's module is loaded.
            let told = unsafe { call!(self, cuFuncGetParamInfo(function.raw(), sizes.len(), &mut offset, &mut bytes)) };
            match told {
                Ok(()) => sizes.push(bytes),
                Err(Failure { code: codes::CUDA_ERROR_INVALID_VALUE, .. }) => return Ok(Some(sizes)),
                Err(Failure { code: codes::CUDA_ERROR_NOT_SUPPORTED, .. }) => return Ok(None),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Launches a kernel of a program's own.
    pub fn launch_user_kernel(
        &self,
        function: Function,
        shape: &LaunchShape,
        arguments: &Arguments,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointers = arguments.pointers();
        if shape.cluster == [0; 3] && !shape.cooperative {
            // SAFETY: whoever pushed the arguments answers for them; they outlive the call.
            return unsafe { self.launch(function, shape.grid, shape.block, shape.shared_bytes, &pointers, stream) };
        }
        let mut attributes: Vec<CUlaunchAttribute> = Vec::new();
        // SAFETY: an attribute is integers, of which none at all is one that says nothing.
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

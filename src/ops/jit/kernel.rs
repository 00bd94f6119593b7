//! Kernels that the program provides, as CUDA C++ or as images: compilation, loading, attributes and launches.

use super::{host_kernel, nvrtc_source::Source};
use crate::{
    base::{
        handle::{Kind, ReferenceTable},
        retry::retry,
    },
    driver::{self, Arguments, Function, Image, Kind as DeviceKind, LaunchShape, codes, types::*},
    error::{Context, Error, Result},
    observe::{self, Operand},
    runtime::{self, Runtime, device::Device},
    status::Status,
    stream,
};
use parking_lot::Mutex;
use std::{
    ffi::CString,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// A kernel that can be launched.
pub struct Kernel {
    function: Function,
    device: u32,
    name: String,
    /// The bytes of each parameter, if the driver reports them.
    parameters: Option<Vec<usize>>,
    /// The dynamic shared memory that a launch may currently use.
    shared_bytes: AtomicU32,
    /// The module that it is part of.
    module: driver::Module,
    /// The owner of the module, if the program loaded it and may destroy it.
    owner: Option<Arc<Module>>,
}

/// A module that the program loaded. It is unloaded when no handle and no kernel refers to it.
pub struct Module {
    module: driver::Module,
    device: u32,
    loaded: Mutex<bool>,
}

impl Module {
    /// Unloads the module; a failed call can be repeated. Does nothing if the driver must not be called any more.
    fn unload(&self) -> Result<()> {
        self.unload_if(|| true)
    }

    /// Unloads the module if `unused` returns true. The lock prevents new kernels of the module in the meantime.
    fn unload_if(&self, unused: impl FnOnce() -> bool) -> Result<()> {
        let mut loaded = self.loaded.lock();
        if *loaded
            && unused()
            && let Some(runtime) = runtime::usable()
        {
            runtime.device(self.device as i32)?.with_context(&runtime.driver, |driver| {
                driver.with_relaxed_capture(|| driver.module_unload(self.module))??;
                Ok(())
            })?;
            *loaded = false;
        }
        Ok(())
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Two threads that destroy the last handles concurrently may each leave the unloading to the other.
        retry(|| self.unload());
    }
}

/// The attributes of a kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::missing_docs_in_private_items)]
pub struct Attributes {
    pub registers: i32,
    pub shared_bytes: i32,
    pub max_dynamic_shared_bytes: i32,
    pub local_bytes: i32,
    pub const_bytes: i32,
    pub max_threads_per_block: i32,
    pub ptx_version: i32,
    pub binary_version: i32,
}

static KERNELS: ReferenceTable<Arc<Kernel>> = ReferenceTable::new(Kind::CompiledKernel);
static MODULES: ReferenceTable<Arc<Module>> = ReferenceTable::new(Kind::KernelModule);

/// Compiles a kernel, loads it on a device and returns its handle. The kernel stays loaded.
pub fn compile(source: &Source, device: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(device)?;
    let properties = device.properties(&runtime.driver)?;
    let compile = |use_cached| match runtime.driver.kind() {
        DeviceKind::Host => host_kernel::compile(source, (properties.major, properties.minor), use_cached),
        DeviceKind::Cuda => source.compile(&source.architecture(runtime, device)?, use_cached),
    };
    let compiled = compile(true)?;
    let (module, lowered) = match load_on(runtime, device, &compiled.image) {
        Ok(module) => (module, compiled.lowered),
        // The driver rejects an image that an earlier driver accepted.
        Err(_) if compiled.is_cached => {
            let compiled = compile(false)?;
            (load_on(runtime, device, &compiled.image)?, compiled.lowered)
        }
        Err(error) => return Err(error),
    };
    let found = find(runtime, device, module, &lowered, source.name, None);
    found.and_then(|kernel| KERNELS.insert(Arc::new(kernel))).inspect_err(|_| {
        // Return why there is no kernel, not an error of the cleanup.
        retry(|| {
            device.with_context(&runtime.driver, |driver| {
                Ok(driver.with_relaxed_capture(|| driver.module_unload(module))??)
            })
        });
    })
}

fn load_on(runtime: &Runtime, device: &Device, image: &Image) -> Result<driver::Module> {
    device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| driver.module_load_logged(image))?.map_err(|(failure, log)| {
            let error = Error::from(failure).context("loading a module");
            if log.is_empty() {
                return error;
            }
            Error::new(Status::COMPILATION_FAILED, format!("{}\n{log}", error.message())).with_driver_code(failure.code)
        })
    })
}

fn find(
    runtime: &Runtime,
    device: &Device,
    module: driver::Module,
    symbol: &str,
    name: &str,
    owner: Option<Arc<Module>>,
) -> Result<Kernel> {
    let symbol = CString::new(symbol).map_err(|_| Error::new(Status::INVALID_VALUE, "a kernel's name holds a NUL"))?;
    device.with_context(&runtime.driver, |driver| {
        let function = driver.module_function(module, &symbol).map_err(|failure| match failure.code {
            codes::CUDA_ERROR_NOT_FOUND => {
                let reason = match driver.kind() {
                    DeviceKind::Host => {
                        ", and no function of plinth_host_kernel_register replaces it on the host device"
                    }
                    DeviceKind::Cuda => "",
                };
                Error::new(Status::INVALID_VALUE, format!("the module has no kernel {name}{reason}"))
                    .with_driver_code(failure.code)
            }
            _ => Error::from(failure),
        })?;
        let parameters = driver.parameter_sizes(function)?;
        let shared = driver.function_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
        Ok(Kernel {
            function,
            device: device.ordinal,
            name: name.to_owned(),
            parameters,
            shared_bytes: AtomicU32::new(u32::try_from(shared).unwrap_or(0)),
            module,
            owner,
        })
    })
}

/// Loads a module from an image on a device and returns its handle.
pub fn load_module(image: &Image, device: i32) -> Result<u64> {
    let runtime = runtime::ready()?;
    let device = runtime.device(device)?;
    let module = load_on(runtime, device, image)?;
    MODULES.insert(Arc::new(Module { module, device: device.ordinal, loaded: Mutex::new(true) }))
}

/// Returns a kernel of a module as a handle.
pub fn from_module(handle: u64, name: &str) -> Result<u64> {
    let module = MODULES.get(handle)?;
    let loaded = module.loaded.lock();
    if !*loaded {
        return Err(Error::new(Status::INVALID_HANDLE, "the module is being destroyed"));
    }
    let runtime = runtime::ready()?;
    let device = runtime.device(module.device as i32)?;
    KERNELS.insert(Arc::new(find(runtime, device, module.module, name, name, Some(module.clone()))?))
}

/// Returns the address and the size in bytes of a variable of a module.
pub fn symbol_of_module(handle: u64, name: &str) -> Result<(u64, usize)> {
    let module = MODULES.get(handle)?;
    let loaded = module.loaded.lock();
    if !*loaded {
        return Err(Error::new(Status::INVALID_HANDLE, "the module is being destroyed"));
    }
    find_symbol(module.device, module.module, name)
}

/// Returns the address and the size in bytes of a variable of a kernel's module.
pub fn symbol(handle: u64, name: &str) -> Result<(u64, usize)> {
    let kernel = KERNELS.get(handle)?;
    find_symbol(kernel.device, kernel.module, name)
}

fn find_symbol(device: u32, module: driver::Module, name: &str) -> Result<(u64, usize)> {
    let symbol = CString::new(name).map_err(|_| Error::new(Status::INVALID_VALUE, "a variable's name holds a NUL"))?;
    let runtime = runtime::ready()?;
    runtime.device(device as i32)?.with_context(&runtime.driver, |driver| {
        driver.module_variable(module, &symbol).map_err(|failure| match failure.code {
            codes::CUDA_ERROR_NOT_FOUND => {
                Error::new(Status::INVALID_VALUE, format!("the module has no variable {name}"))
                    .with_driver_code(failure.code)
            }
            _ => Error::from(failure).context(name),
        })
    })
}

/// Destroys a module's handle. If that fails, the handle stays valid.
pub fn destroy_module(handle: u64) -> Result<()> {
    let module = MODULES.get(handle)?;
    // The table's reference and this one: no kernel refers to it.
    module.unload_if(|| Arc::strong_count(&module) == 2)?;
    MODULES.remove(handle).map(drop)
}

/// Destroys a kernel's handle. If that fails, the handle stays valid.
pub fn destroy(handle: u64) -> Result<()> {
    let kernel = KERNELS.get(handle)?;
    if let Some(module) = &kernel.owner
        && Arc::strong_count(module) == 1
        && Arc::strong_count(&kernel) == 2
    {
        module.unload()?;
    }
    KERNELS.remove(handle).map(drop)
}

/// Returns the attributes of a kernel.
pub fn attributes(handle: u64) -> Result<Attributes> {
    let kernel = KERNELS.get(handle)?;
    kernel.on_device(|driver| {
        let attribute = |number| driver.function_attribute(kernel.function, number);
        Ok(Attributes {
            registers: attribute(CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            shared_bytes: attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_dynamic_shared_bytes: attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            local_bytes: attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            const_bytes: attribute(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
            max_threads_per_block: attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            ptx_version: attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            binary_version: attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
        })
    })
}

/// Returns how many blocks of `threads` threads a multiprocessor runs concurrently.
pub fn occupancy(handle: u64, threads: u32, shared_bytes: u32) -> Result<i32> {
    let kernel = KERNELS.get(handle)?;
    kernel.allow_shared(shared_bytes)?;
    let threads = i32::try_from(threads).unwrap_or(i32::MAX);
    kernel.on_device(|driver| Ok(driver.occupancy(kernel.function, threads, shared_bytes as usize)?))
}

/// Allows launches of a kernel to use `bytes` bytes of dynamic shared memory.
pub fn set_shared_bytes(handle: u64, bytes: u32) -> Result<()> {
    KERNELS.get(handle)?.allow_shared(bytes)
}

/// Launches a kernel in a stream. `operands` are the memory accesses that the sanitizer checks.
pub fn launch(
    handle: u64,
    shape: &LaunchShape,
    arguments: &Arguments,
    operands: &[Operand],
    stream: usize,
) -> Result<()> {
    let kernel = KERNELS.get(handle)?;
    kernel.launch(shape, arguments, operands, stream).context(|| format!("launching {}", kernel.name))
}

/// Returns the device of a kernel.
pub fn device_of(handle: u64) -> Result<u32> {
    Ok(KERNELS.get(handle)?.device)
}

impl Kernel {
    fn on_device<T>(&self, body: impl FnOnce(&driver::Driver) -> Result<T>) -> Result<T> {
        let runtime = runtime::ready()?;
        runtime
            .device(self.device as i32)?
            .with_context(&runtime.driver, body)
            .map_err(|error| error.context(&self.name))
    }

    /// Raises the limit of a launch's dynamic shared memory to at least `bytes`. The default limit, 48 KiB including
    /// the kernel's static shared memory, is always allowed.
    fn allow_shared(&self, bytes: u32) -> Result<()> {
        if bytes <= self.shared_bytes.load(Ordering::Relaxed) {
            return Ok(());
        }
        let runtime = runtime::ready()?;
        let device = runtime.device(self.device as i32)?;
        let limit = device.properties(&runtime.driver)?.shared_memory_per_block_optin;
        if u64::from(bytes) > limit {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!(
                    "{}: {bytes} bytes of shared memory, and a block of device {} has at most {limit}",
                    self.name, self.device
                ),
            ));
        }
        // Another handle of the same kernel may have set a higher limit, and the driver keeps the last value.
        static RAISING: Mutex<()> = Mutex::new(());
        let _guard = RAISING.lock();
        self.on_device(|driver| {
            let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            if driver.function_attribute(self.function, attribute)? < bytes as i32 {
                driver.set_function_attribute(self.function, attribute, bytes as i32)?;
            }
            Ok(())
        })?;
        self.shared_bytes.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn check(&self, sizes: &[usize]) -> Result<()> {
        let Some(parameters) = &self.parameters else { return Ok(()) };
        let invalid = |message: String| Err(Error::new(Status::INVALID_VALUE, message));
        if sizes.len() != parameters.len() {
            return invalid(format!("it takes {} arguments, not {}", parameters.len(), sizes.len()));
        }
        match sizes.iter().zip(parameters).position(|(size, expected)| size != expected) {
            Some(at) => invalid(format!("argument {at} has {} bytes, and its parameter {}", sizes[at], parameters[at])),
            None => Ok(()),
        }
    }

    fn launch(&self, shape: &LaunchShape, arguments: &Arguments, operands: &[Operand], handle: usize) -> Result<()> {
        self.check(arguments.sizes())?;
        let runtime = runtime::ready()?;
        let stream = stream::resolve_same(runtime, handle, self.device)?;
        let mut extents = shape.grid.iter().zip(&shape.cluster);
        if shape.cluster != [0; 3] && !extents.all(|(blocks, cluster)| *cluster > 0 && blocks % cluster == 0) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("the grid of {:?} blocks is not a multiple of the cluster of {:?}", shape.grid, shape.cluster),
            ));
        }
        self.allow_shared(shape.shared_bytes)?;
        // Larger than the portable cluster size.
        if shape.cluster.iter().fold(1, |blocks: u32, extent| blocks.saturating_mul(*extent)) > 8 {
            self.on_device(|driver| {
                let attribute = CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
                Ok(driver.set_function_attribute(self.function, attribute, 1)?)
            })?;
        }
        if !operands.is_empty() {
            observe::operation(runtime, stream, &self.name, operands)?;
        }
        runtime.in_stream(stream, |driver, raw| Ok(driver.launch_user_kernel(self.function, shape, arguments, raw)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_must_match_parameters() {
        let kernel = |parameters: Option<Vec<usize>>| Kernel {
            function: Function::dangling(),
            device: 0,
            name: "f".to_owned(),
            parameters,
            shared_bytes: AtomicU32::new(0),
            module: driver::Module::dangling(),
            owner: None,
        };
        let two = kernel(Some(vec![8, 4]));
        assert!(two.check(&[8, 4]).is_ok());
        assert!(two.check(&[8]).unwrap_err().message().contains("takes 2 arguments, not 1"));
        assert!(two.check(&[8, 8]).unwrap_err().message().contains("argument 1 has 8 bytes, and its parameter 4"));
        assert!(kernel(None).check(&[1, 2, 3]).is_ok());
    }
}

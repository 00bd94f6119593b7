//! Kernels: functions of this library that do on the CPU what its CUDA kernels do on a GPU.
//!
//! PTX of a module is only checked to be PTX, and code for a GPU (a cubin or a fatbin) is not read. What runs is the CPU
//! kernel of the same name, from the built-in list ([`cpu_kernels`]) or registered with [`register`]. A module that is a
//! shared library contains its own kernels ([`compiled`]).

use super::{
    compiled::{self, Loaded, Variable},
    context, cpu_kernels, cuda_kernel,
    engine::Engine,
    graph::set_conditional,
    ids::{self, Id},
    memory::check::Accessor,
    model::{MAX_BLOCK, MAX_GRID, MAX_THREADS_PER_BLOCK, Model},
    state,
};
use crate::driver::{Image, codes, table::Code, work_report};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// A CPU kernel.
pub struct HostKernel {
    pub name: &'static str,
    /// The size of each parameter in bytes, in order: how much of each is copied at the launch.
    pub parameter_sizes: &'static [usize],
    pub run: Run,
}

/// What runs all blocks of a launch.
pub enum Run {
    Function(fn(&Launch)),
    /// A function that may wait for other ranks.
    Waiting(fn(&Launch)),
    /// A kernel of the jiterator.
    Compiled(compiled::Entry),
    /// A kernel in CUDA C++.
    Cuda(cuda_kernel::Kernel),
    Program(ProgramKernel),
}

/// A function of the program that replaces a kernel. Its error is text for the program.
pub type ProgramKernel = Box<dyn Fn(&Launch) -> Result<(), String> + Send + Sync>;

impl HostKernel {
    /// Returns whether the kernel may wait for other ranks or other kernels, so that it must not occupy a worker.
    pub fn may_block(&self) -> bool {
        !matches!(self.run, Run::Function(_) | Run::Compiled(_))
    }

    /// Returns the most threads of a block.
    pub fn max_threads(&self) -> u32 {
        if let Run::Cuda(kernel) = &self.run { kernel.max_threads } else { MAX_THREADS_PER_BLOCK }
    }

    /// Returns the bytes of static shared memory of a block.
    pub fn static_shared(&self) -> u32 {
        if let Run::Cuda(kernel) = &self.run { kernel.static_shared } else { 0 }
    }

    /// Returns the bytes of shared memory of a block that has `dynamic` bytes of dynamic shared memory.
    pub fn total_shared(&self, dynamic: usize) -> usize {
        dynamic.saturating_add(self.static_shared() as usize)
    }
}

/// One launch of a kernel.
pub struct Launch {
    pub kernel: &'static HostKernel,
    pub device: usize,
    pub model: &'static Model,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    /// Whether all blocks run at the same time, so that they can wait for each other.
    pub cooperative: bool,
    /// The bytes of the parameters, concatenated.
    parameters: Vec<u8>,
    error: AtomicU32,
    /// What a kernel reported with its error.
    report: Mutex<Option<String>>,
}

/// The shared memory of a block in bytes, static and dynamic, without `cuFuncSetAttribute`. It is the most static memory.
pub const DEFAULT_SHARED: u32 = 48 << 10;

pub struct Module {
    functions: Vec<Id>,
    pub device: usize,
    /// The library with the module's kernels, or `None` if they are built-in or registered CPU kernels.
    library: Option<Loaded>,
}

#[derive(Clone, Copy)]
pub struct Function {
    pub kernel: &'static HostKernel,
    pub device: usize,
    /// The maximum dynamic shared memory of a launch, as set by the program.
    pub shared_bytes: u32,
}

static SLEEP: HostKernel = HostKernel { name: "plinth_sleep", parameter_sizes: &[8], run: Run::Function(sleep) };

static CONDITION_SET: HostKernel =
    HostKernel { name: "plinth_condition_set", parameter_sizes: &[8, 8], run: Run::Function(condition_set) };

static REGISTRY: Mutex<Vec<&'static HostKernel>> = Mutex::new(Vec::new());

/// Registers a CPU kernel. It replaces a registered kernel of the same name.
pub fn register(kernel: &'static HostKernel) {
    let mut registry = REGISTRY.lock();
    registry.retain(|registered| registered.name != kernel.name);
    registry.push(kernel);
}

/// Removes the registered kernel of this name, which functions that were found before still run.
pub fn unregister(name: &str) {
    REGISTRY.lock().retain(|registered| registered.name != name);
}

/// Finds the registered kernel of this name.
pub fn find_registered(name: &[u8]) -> Option<&'static HostKernel> {
    REGISTRY.lock().iter().find(|kernel| kernel.name.as_bytes() == name).copied()
}

/// Finds the CPU kernel of this name.
pub fn find(name: &[u8]) -> Option<&'static HostKernel> {
    let built_in = [&SLEEP, &CONDITION_SET].into_iter();
    find_registered(name).or_else(|| {
        built_in
            .chain(cpu_kernels::CPU_KERNELS)
            .chain(cpu_kernels::group::KERNELS)
            .find(|kernel| kernel.name.as_bytes() == name)
    })
}

/// Occupies the stream for a number of the multiprocessor's clock cycles. A GPU spins; the host sleeps.
fn sleep(launch: &Launch) {
    let Some(cycles) = launch.u64(0) else { return launch.fail(codes::CUDA_ERROR_INVALID_VALUE) };
    let seconds = cycles as f64 / (f64::from(launch.model.clock_khz) * 1e3);
    std::thread::sleep(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
}

/// Sets a condition to the value that is in memory now.
fn condition_set(launch: &Launch) {
    let (Some(condition), Some(address)) = (launch.u64(0), launch.u64(1)) else {
        return launch.fail(codes::CUDA_ERROR_INVALID_VALUE);
    };
    let outcome = match launch.memory(address, 4, false) {
        // SAFETY: the 4 bytes were checked to be memory of the device, and aligned as the kernel requires.
        Ok(memory) if memory.addr().is_multiple_of(4) => {
            set_conditional(condition, unsafe { memory.cast::<u32>().read() })
        }
        Ok(_) => Err(codes::CUDA_ERROR_MISALIGNED_ADDRESS),
        Err(code) => Err(code),
    };
    if let Err(code) = outcome {
        launch.fail(code);
    }
}

impl Launch {
    /// Creates a launch without parameters, which [`push`](Launch::push) adds. Fails if a dimension or the shared
    /// memory exceeds its limit.
    pub fn new(function: Function, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Result<Launch, Code> {
        let model = state::get()?.config.model;
        let too_large = |size: &[u32; 3], limit: &[u32; 3]| size.iter().zip(limit).any(|(n, max)| *n == 0 || n > max);
        let threads = block.iter().try_fold(1_u32, |product, size| product.checked_mul(*size));
        if too_large(&grid, &MAX_GRID)
            || too_large(&block, &MAX_BLOCK)
            || threads.is_none_or(|threads| threads > function.kernel.max_threads())
            || shared_bytes > function.shared_bytes
        {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Launch {
            kernel: function.kernel,
            device: function.device,
            model,
            grid,
            block,
            shared_bytes,
            cooperative: false,
            parameters: Vec::new(),
            error: AtomicU32::new(codes::CUDA_SUCCESS),
            report: Mutex::new(None),
        })
    }

    /// Makes all blocks run at the same time. Fails if the kernel is not CUDA C++, and if the device could not hold so
    /// many blocks, or the system so many threads.
    pub fn make_cooperative(&mut self) -> Result<(), Code> {
        if !matches!(self.kernel.run, Run::Cuda(_)) {
            return Err(codes::CUDA_ERROR_NOT_SUPPORTED);
        }
        let threads: u32 = self.block.iter().product();
        let shared_bytes = self.kernel.total_shared(self.shared_bytes as usize);
        let resident = self.model.resident_blocks(threads as usize, shared_bytes);
        let limit = (resident as u64 * self.model.multiprocessors as u64).min(cuda_kernel::MAX_COOPERATIVE_BLOCKS);
        if self.blocks() > limit {
            return Err(codes::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        self.cooperative = true;
        Ok(())
    }

    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        self.grid.iter().map(|extent| u64::from(*extent)).product()
    }

    /// Appends the bytes of the next parameter.
    pub fn push(&mut self, bytes: &[u8]) {
        self.parameters.extend_from_slice(bytes);
    }

    /// Returns the bytes of a parameter, or `None` if the kernel has no such parameter.
    pub fn bytes(&self, index: usize) -> Option<&[u8]> {
        let sizes = self.kernel.parameter_sizes;
        let start = sizes.get(..index)?.iter().sum::<usize>();
        self.parameters.get(start..start + sizes.get(index)?)
    }

    /// Returns the bytes of each parameter, or `None` if the launch has fewer than the kernel.
    pub fn parameters(&self) -> Option<Vec<&[u8]>> {
        (0..self.kernel.parameter_sizes.len()).map(|index| self.bytes(index)).collect()
    }

    pub fn u32(&self, index: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(index)?.try_into().ok()?))
    }

    pub fn u64(&self, index: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(index)?.try_into().ok()?))
    }

    pub fn f32(&self, index: usize) -> Option<f32> {
        self.u32(index).map(f32::from_bits)
    }

    pub fn f64(&self, index: usize) -> Option<f64> {
        self.u64(index).map(f64::from_bits)
    }

    /// Returns a pointer to the memory at an address, if the launch's device may access it. Like a GPU's kernel, a CPU
    /// kernel faults if it uses the memory after the program has unmapped it.
    pub fn memory(&self, address: u64, bytes: u64, write: bool) -> Result<*mut u8, Code> {
        let what = format_args!("kernel {}", self.kernel.name);
        state::get()?.memory.read().check_access(what, address, bytes, write, Accessor::Device(self.device))?;
        Ok(address as *mut u8)
    }

    /// Makes the launch fail with this error, which ends the device's contexts.
    pub fn fail(&self, error: Code) {
        self.error.store(error, Ordering::Release);
    }

    /// As [`fail`](Launch::fail), with a report for the program.
    pub fn fail_with(&self, error: Code, report: String) {
        *self.report.lock() = Some(report);
        self.fail(error);
    }

    pub fn run(&self) -> Result<(), Code> {
        match &self.kernel.run {
            Run::Function(run) | Run::Waiting(run) => run(self),
            Run::Compiled(entry) => compiled::run(*entry, self),
            Run::Cuda(kernel) => cuda_kernel::run(kernel, self),
            Run::Program(function) => {
                let mut outcome = Ok(());
                context::run_as_host_function(|| outcome = function(self));
                if let Err(report) = outcome {
                    self.fail_with(codes::CUDA_ERROR_LAUNCH_FAILED, format!("kernel {}, {report}", self.kernel.name));
                }
            }
        }
        // The error is reset here, since a graph runs the same launch many times.
        match self.error.swap(codes::CUDA_SUCCESS, Ordering::AcqRel) {
            codes::CUDA_SUCCESS => Ok(()),
            error => {
                // The report of an access is already there.
                let report = self.report.lock().take().map(|report| (error, report));
                if report.is_some() || error != codes::CUDA_ERROR_ILLEGAL_ADDRESS {
                    work_report::set(report);
                }
                Err(error)
            }
        }
    }
}

impl Engine {
    /// Loads a module from PTX or from code for a GPU, or from the library that its image is.
    pub fn load_module(&mut self, device: usize, image: &[u8], library: Option<Loaded>) -> Result<Id, Code> {
        let is_ptx = || image.windows(8).any(|window| window == b".version");
        if library.is_none() && !Image::is_gpu_code(image) && !is_ptx() {
            return Err(codes::CUDA_ERROR_INVALID_IMAGE);
        }
        let id = ids::next();
        self.modules.insert(id, Module { functions: Vec::new(), device, library });
        Ok(id)
    }

    pub fn unload_module(&mut self, id: Id) -> Result<(), Code> {
        let module = self.modules.remove(&id).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        for function in module.functions {
            self.functions.remove(&function);
        }
        Ok(())
    }

    /// Returns a variable of a module, and the module's device.
    pub fn find_variable(&self, module: Id, name: &[u8]) -> Result<(usize, &'static Variable), Code> {
        let module = self.modules.get(&module).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        let variable = module.library.and_then(|library| library.variable(name)).ok_or(codes::CUDA_ERROR_NOT_FOUND)?;
        Ok((module.device, variable))
    }

    pub fn find_function(&mut self, module: Id, name: &[u8]) -> Result<Id, Code> {
        let module = self.modules.get_mut(&module).ok_or(codes::CUDA_ERROR_INVALID_HANDLE)?;
        let has_name =
            |id: &&Id| self.functions.get(id).is_some_and(|function| function.kernel.name.as_bytes() == name);
        if let Some(id) = module.functions.iter().find(has_name) {
            return Ok(*id);
        }
        let kernel = match module.library {
            Some(library) => compiled::find(library, name),
            None => find(name),
        };
        let kernel = kernel.ok_or(codes::CUDA_ERROR_NOT_FOUND)?;
        let id = ids::next();
        let shared_bytes = DEFAULT_SHARED.saturating_sub(kernel.static_shared());
        self.functions.insert(id, Function { kernel, device: module.device, shared_bytes });
        module.functions.push(id);
        Ok(id)
    }
}

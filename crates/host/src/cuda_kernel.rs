//! Kernels in CUDA C++ that the machine's compiler compiled against `kernels/host/`.
//!
//! The library of such a kernel exports a [`Description`]. Its function runs a range of blocks in the calling thread, and
//! each block's threads as fibers, whose memory is allocated here. A launch spreads its blocks over the machine's
//! processors. In a cooperative launch every block has a thread of its own, because the blocks wait for each other.

use super::{
    faults::{self, Guard},
    kernels::{HostKernel, Launch, Run},
    memory::sys,
    model::MAX_THREADS_PER_BLOCK,
    place,
    shared_memory::SharedMemory,
};
use crate::driver::{codes, library::Library, signals, table::Code};
use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex};
use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_uint, c_ulonglong, c_void},
    ptr,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    thread,
};

/// The symbol of the description in the library of a kernel.
pub const SYMBOL: &CStr = c"plinth_host_kernel";
/// The symbol of the size of a kernel's static shared memory, a `u32`, in its library.
pub const STATIC_SHARED: &CStr = c"plinth_host_static_shared";
/// The version of [`Description`] and [`Blocks`].
const VERSION: c_uint = 3;
/// The most parameters that a kernel may have: CUDA's limit of their size in bytes.
const MAX_PARAMETERS: c_uint = 32764;
/// The most blocks of a cooperative launch, each of which is a thread of the system.
pub const MAX_COOPERATIVE_BLOCKS: u64 = 1024;
/// The fewest threads in a launch for which another processor is worth its start.
const MIN_THREADS_PER_WORKER: u64 = 4096;
/// How many parts the blocks are divided into for each worker, so that none is left with a long one at the end.
const PARTS: u64 = 8;

/// The size and the alignment of a fiber's memory: `kFiberBytes` in `kernels/host/plinth_host/fiber.h`.
pub const FIBER_BYTES: u64 = 1 << 20;
/// How many fibers are allocated at a time: each allocation is a mapping, of which a process has 65,530 by default.
const FIBERS_PER_SLAB: usize = 32;
/// The most fibers of the process whose stacks end at a page that cannot be accessed: such a page divides a mapping.
const MAX_GUARDS: usize = 8192;
static GUARDS: AtomicUsize = AtomicUsize::new(0);

/// `plinth_host::Kernel` of `kernels/host/plinth_host/launch.h`.
#[repr(C)]
struct Description {
    version: c_uint,
    parameter_count: c_uint,
    parameter_bytes: *const c_uint,
    name: *const c_char,
    run: RunBlocks,
    max_threads: unsafe extern "C" fn() -> c_uint,
    fault: faults::Report,
}

/// `plinth_host::Launch` of `kernels/host/plinth_host/launch.h`.
#[repr(C)]
struct Blocks {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    cooperative: c_uint,
    parameters: *const *const c_void,
    context: *const c_void,
    fiber: unsafe extern "C" fn(context: *const c_void, index: c_uint) -> *mut c_void,
    fail: unsafe extern "C" fn(context: *const c_void, code: c_uint, text: *const c_char),
    shared: *const SharedMemory,
    histories: *mut u64,
    locate: unsafe extern "C" fn(context: *const c_void, instruction: *const c_void, text: *mut c_char, bytes: c_uint),
    has_failed: unsafe extern "C" fn(context: *const c_void) -> c_uint,
    wait_for_grid: unsafe extern "C" fn(context: *const c_void) -> c_uint,
}

type RunBlocks = unsafe extern "C" fn(launch: *const Blocks, first: c_ulonglong, last: c_ulonglong);

/// A kernel in CUDA C++.
pub struct Kernel {
    description: &'static Description,
    /// The bytes of its library.
    image: &'static [u8],
    /// The bytes of static shared memory of a block.
    pub static_shared: u32,
    /// The most threads of a block.
    pub max_threads: u32,
    /// What the checks of shared memory need, if the kernel was compiled with them.
    shared: Option<&'static SharedMemory>,
}

// SAFETY: a description lies in a library that stays loaded, and nothing writes to it or to what it points to.
unsafe impl Sync for Description {}

/// Returns the kernel of a library, if it has one and its name is `name`.
pub fn find(library: Library, image: &'static [u8], name: &[u8]) -> Option<&'static HostKernel> {
    let (symbol, static_shared) = (library.symbol(SYMBOL)?, library.symbol(STATIC_SHARED)?);
    // SAFETY: a library with this symbol was compiled with kernels/host/plinth_host/entry.h, which exports this struct under
    // it, and the library stays loaded.
    let description: &'static Description = unsafe { &*symbol.cast::<Description>() };
    if description.version != VERSION || description.parameter_count > MAX_PARAMETERS {
        return None;
    }
    // SAFETY: such a library has an aligned number under this symbol.
    let static_shared = unsafe { static_shared.cast::<u32>().read() };
    // SAFETY: the struct has a function of this signature, which reads the library's own memory.
    let max_threads = match unsafe { (description.max_threads)() } {
        0 => MAX_THREADS_PER_BLOCK,
        bound => bound.min(MAX_THREADS_PER_BLOCK),
    };
    // SAFETY: the struct holds a string, and as many sizes as it states.
    let (own_name, sizes) = unsafe {
        (
            CStr::from_ptr(description.name),
            std::slice::from_raw_parts(description.parameter_bytes, description.parameter_count as usize),
        )
    };
    if own_name.to_bytes() != name {
        return None;
    }
    let sizes: Vec<usize> = sizes.iter().map(|size| *size as usize).collect();
    let shared = crate::checks().shared.then(|| SharedMemory::of(image)).flatten();
    Some(Box::leak(Box::new(HostKernel {
        name: own_name.to_str().ok()?,
        parameter_sizes: Box::leak(sizes.into()),
        run: Run::Cuda(Kernel { description, image, static_shared, max_threads, shared }),
    })))
}

/// The memory of the fibers of one thread.
#[derive(Default)]
struct Fibers {
    slabs: Vec<u64>,
    /// How many of its fibers have a guard.
    guards: usize,
}

impl Fibers {
    /// Returns the memory of a fiber; allocates it when it is used first.
    fn get(&mut self, index: usize) -> Option<*mut c_void> {
        while self.slabs.len() <= index / FIBERS_PER_SLAB {
            let slab = self.allocate()?;
            self.slabs.push(slab);
        }
        Some((self.slabs[index / FIBERS_PER_SLAB] + (index % FIBERS_PER_SLAB) as u64 * FIBER_BYTES) as *mut c_void)
    }

    fn allocate(&mut self) -> Option<u64> {
        let bytes = FIBERS_PER_SLAB as u64 * FIBER_BYTES;
        let slab = sys::reserve(bytes, FIBER_BYTES, 0)?;
        if sys::protect(slab, bytes, sys::PROT_WRITE).is_err() {
            sys::release(slab, bytes);
            return None;
        }
        // A stack grows towards its first page. Without a guard, a thread that needs too much local memory overwrites
        // another's.
        let page = rustix::param::page_size() as u64;
        for index in 0..FIBERS_PER_SLAB as u64 {
            if GUARDS.load(Ordering::Relaxed) < MAX_GUARDS
                && sys::protect(slab + index * FIBER_BYTES, page, sys::PROT_NONE).is_ok()
            {
                GUARDS.fetch_add(1, Ordering::Relaxed);
                self.guards += 1;
            }
        }
        Some(slab)
    }
}

impl Drop for Fibers {
    fn drop(&mut self) {
        for slab in self.slabs.drain(..) {
            sys::release(slab, FIBERS_PER_SLAB as u64 * FIBER_BYTES);
        }
        GUARDS.fetch_sub(self.guards, Ordering::Relaxed);
    }
}

thread_local! {
    static FIBERS: RefCell<Fibers> = RefCell::default();
}

/// The blocks of a cooperative launch: how many wait for all others, how many have ended, and how often all had arrived.
#[derive(Default)]
struct Grid {
    waiting: u64,
    ended: u64,
    rounds: u64,
}

/// A launch in progress, which all threads that run its blocks share.
struct Progress<'a> {
    launch: &'a Launch,
    image: &'static [u8],
    /// The kernel's function, by which its library is found.
    run: RunBlocks,
    failed: AtomicBool,
    /// The first error and its report.
    error: Mutex<Option<(Code, String)>>,
    /// The blocks of a cooperative launch.
    grid: Mutex<Grid>,
    complete: Condvar,
}

impl Progress<'_> {
    fn fail(&self, code: Code, text: &str) {
        let mut error = self.error.lock();
        if error.is_none() {
            *error = Some((code, text.to_owned()));
        }
        drop(error);
        // Those that wait for the grid read this under the lock, or are woken after it.
        let _grid = self.grid.lock();
        self.failed.store(true, Ordering::Release);
        self.complete.notify_all();
    }

    /// Waits for all blocks of a cooperative launch. Returns whether none has failed.
    fn wait_for_grid(&self) -> bool {
        let mut grid = self.grid.lock();
        grid.waiting += 1;
        let round = grid.rounds;
        if grid.waiting == self.launch.blocks() {
            grid.waiting = 0;
            grid.rounds += 1;
            self.complete.notify_all();
        }
        if self.is_stuck(&grid) {
            drop(grid);
            self.fail_stuck();
            return false;
        }
        while grid.rounds == round && !self.failed.load(Ordering::Acquire) {
            self.complete.wait(&mut grid);
        }
        !self.failed.load(Ordering::Acquire)
    }

    /// Notes that a block has ended.
    fn end_block(&self) {
        let mut grid = self.grid.lock();
        grid.ended += 1;
        if self.is_stuck(&grid) {
            drop(grid);
            self.fail_stuck();
        }
    }

    /// Returns whether blocks wait for blocks that have ended.
    fn is_stuck(&self, grid: &Grid) -> bool {
        grid.waiting > 0 && grid.ended > 0 && grid.waiting + grid.ended == self.launch.blocks()
    }

    fn fail_stuck(&self) {
        self.fail(codes::CUDA_ERROR_LAUNCH_FAILED, "the barrier of the grid waits for blocks that have ended");
    }
}

/// Returns the launch behind the context of a callback.
///
/// # Safety
/// `context` is the `context` of a [`Blocks`] whose launch is in progress.
unsafe fn progress<'a>(context: *const c_void) -> &'a Progress<'a> {
    // SAFETY: `run` points it to its `Progress`, which outlives the calls of the kernel.
    unsafe { &*context.cast::<Progress>() }
}

unsafe extern "C" fn fiber(_: *const c_void, index: c_uint) -> *mut c_void {
    // A thread that is ending has no fibers; it runs no blocks either.
    let found = FIBERS.try_with(|fibers| fibers.borrow_mut().get(index as usize));
    found.ok().flatten().unwrap_or(ptr::null_mut())
}

unsafe extern "C" fn fail(context: *const c_void, code: c_uint, text: *const c_char) {
    // SAFETY: the kernel passes its launch's context, and a string.
    let (progress, text) = unsafe { (progress(context), CStr::from_ptr(text)) };
    progress.fail(code, &text.to_string_lossy());
}

unsafe extern "C" fn locate(context: *const c_void, instruction: *const c_void, text: *mut c_char, bytes: c_uint) {
    // SAFETY: the kernel passes its launch's context.
    let progress = unsafe { progress(context) };
    let place = place::of(instruction.addr(), progress.run as usize, progress.image);
    let length = place.len().min((bytes as usize).saturating_sub(1));
    // SAFETY: the kernel passes as many bytes as it states, and they hold the text and its end.
    unsafe {
        ptr::copy_nonoverlapping(place.as_ptr(), text.cast(), length);
        text.add(length).write(0);
    }
}

unsafe extern "C" fn has_failed(context: *const c_void) -> c_uint {
    // SAFETY: the kernel passes its launch's context.
    c_uint::from(unsafe { progress(context) }.failed.load(Ordering::Acquire))
}

unsafe extern "C" fn wait_for_grid(context: *const c_void) -> c_uint {
    // SAFETY: the kernel passes its launch's context.
    c_uint::from(unsafe { progress(context) }.wait_for_grid())
}

/// Runs all blocks of a launch.
pub fn run(kernel: &Kernel, launch: &Launch) {
    let Some(parameters) = launch.parameters() else { return launch.fail(codes::CUDA_ERROR_INVALID_VALUE) };
    let progress = Progress {
        launch,
        image: kernel.image,
        run: kernel.description.run,
        failed: AtomicBool::new(false),
        error: Mutex::new(None),
        grid: Mutex::default(),
        complete: Condvar::new(),
    };
    let next = AtomicU64::new(0);
    let blocks = launch.blocks();
    let workers = workers(launch);
    let part = if launch.cooperative { 1 } else { (blocks / (workers * PARTS)).max(1) };
    let checks = crate::checks();
    let _handler = checks.addresses.then(faults::install);
    let run_blocks = || {
        let _guard = checks.addresses.then(|| Guard::new(kernel.description.fault));
        let pointers: Vec<*const c_void> = parameters.iter().map(|bytes| bytes.as_ptr().cast()).collect();
        let mut histories = vec![0_u64; kernel.shared.map_or(0, SharedMemory::history_bytes).div_ceil(8)];
        let description = Blocks {
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            cooperative: c_uint::from(launch.cooperative),
            parameters: pointers.as_ptr(),
            context: ptr::from_ref(&progress).cast(),
            fiber,
            fail,
            shared: kernel.shared.map_or(ptr::null(), ptr::from_ref),
            histories: histories.as_mut_ptr(),
            locate,
            has_failed,
            wait_for_grid,
        };
        loop {
            let first = next.fetch_add(part, Ordering::Relaxed);
            if first >= blocks || progress.failed.load(Ordering::Acquire) {
                return;
            }
            // SAFETY: the parameters have as many bytes as the kernel's description states, and all that the struct
            // points to outlives the call.
            unsafe { (kernel.description.run)(&description, first, (first + part).min(blocks)) };
            if launch.cooperative {
                progress.end_block();
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            let worker = thread::Builder::new().name("plinth-host-block".to_owned());
            let _blocked = signals::block();
            let started = worker.spawn_scoped(scope, run_blocks);
            if started.is_err() {
                if launch.cooperative {
                    progress.fail(codes::CUDA_ERROR_OPERATING_SYSTEM, "");
                }
                break;
            }
        }
        run_blocks();
    });
    if let Some((code, text)) = progress.error.into_inner() {
        match text.as_str() {
            "" => launch.fail(code),
            text => launch.fail_with(code, format!("kernel {}, {text}", launch.kernel.name)),
        }
    }
}

/// Returns how many threads run the blocks of a launch.
fn workers(launch: &Launch) -> u64 {
    let blocks = launch.blocks();
    if launch.cooperative {
        return blocks;
    }
    let threads = blocks.saturating_mul(launch.block.iter().map(|extent| u64::from(*extent)).product());
    static PROCESSORS: OnceCell<u64> = OnceCell::new();
    let processors = *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(1, |count| count.get() as u64));
    processors.min(blocks).min(threads / MIN_THREADS_PER_WORKER).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_fibers_is_aligned_and_guarded() {
        let mut fibers = Fibers::default();
        let last = fibers.get(FIBERS_PER_SLAB).unwrap() as u64;
        let first = fibers.get(0).unwrap() as u64;
        assert!(first != last && first.is_multiple_of(FIBER_BYTES) && last.is_multiple_of(FIBER_BYTES));
        let accessible = |address: u64| {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let contains = |line: &&str| {
                let range = line.split(' ').next().and_then(|range| range.split_once('-'));
                range.is_some_and(|(start, end)| {
                    let number = |text| u64::from_str_radix(text, 16).unwrap();
                    (number(start)..number(end)).contains(&address)
                })
            };
            maps.lines()
                .find(contains)
                .is_some_and(|line| line.split(' ').nth(1).is_some_and(|mode| mode.contains('w')))
        };
        let page = rustix::param::page_size() as u64;
        assert!(!accessible(first) && accessible(first + page));
        assert!(accessible(first + FIBER_BYTES - 1));
    }
}

//! Accesses and divisions that the processor refuses while a kernel runs: they become errors of the kernel's launch, if
//! `PLINTH_HOST_CHECKS` says so.
//!
//! The handlers for SIGSEGV, SIGBUS and SIGFPE are installed while such kernels run. A signal of a thread that runs a fiber
//! of a kernel makes the fiber report the address and leave its block; every other signal is passed on to the handler that
//! the program had installed.

use super::cuda_kernel::FIBER_BYTES;
use parking_lot::Mutex;
use std::{
    ffi::{c_int, c_uint, c_void},
    mem, ptr,
    sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering},
};

/// A kernel's function that reports an access or a division and leaves the block. It runs in the fiber that failed.
pub type Report = unsafe extern "C" fn(address: *const c_void, instruction: *const c_void, is_division: c_uint);

const SIGNALS: [c_int; 3] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE];
/// The size of the stack on which a thread that runs a kernel handles signals: a fiber's own may be full.
const STACK: usize = 64 << 10;
/// The end of a fiber's memory, where the state of its thread may lie: the function's frame begins below it. Not less than
/// `kStateBytes` in `kernels/host/plinth_host/fiber.h`.
const STATE: u64 = 136 << 10;
/// How many threads can be watched at a time. Faults of others end the process, as without the checks.
const MAX_THREADS: usize = 2048;

/// A thread that runs a kernel. A handler reads it, so it is no thread-local variable, whose first use may allocate.
struct Running {
    /// The number of the thread, or 0.
    thread: AtomicI32,
    /// The kernel's function; 0 once it was called.
    report: AtomicUsize,
}

static RUNNING: [Running; MAX_THREADS] =
    [const { Running { thread: AtomicI32::new(0), report: AtomicUsize::new(0) } }; MAX_THREADS];

/// How many launches need the handlers.
static USERS: Mutex<usize> = Mutex::new(0);
/// The program's own handlers, which are never freed, because a signal may arrive while they are replaced.
static PREVIOUS: [AtomicPtr<libc::sigaction>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];
/// The thread whose signal is being passed on.
static PASSING: AtomicI32 = AtomicI32::new(0);

fn thread() -> i32 {
    // SAFETY: the call has no arguments and always succeeds.
    unsafe { libc::gettid() }
}

/// Keeps the handlers installed.
pub struct Handler(());

/// Installs the handlers, if no other launch has.
pub fn install() -> Handler {
    let mut users = USERS.lock();
    *users += 1;
    if *users == 1 {
        for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
            // SAFETY: the structs live through the calls, zeros are valid for them, and the handler's signature is what
            // SA_SIGINFO requires.
            unsafe {
                let mut found: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, ptr::null(), &mut found);
                // A program may have put back this handler, which it found when it installed its own.
                if found.sa_sigaction == handle as *const () as usize {
                    continue;
                }
                let known = previous.load(Ordering::Acquire);
                if known.is_null() || (*known).sa_sigaction != found.sa_sigaction || (*known).sa_flags != found.sa_flags
                {
                    previous.store(Box::into_raw(Box::new(found)), Ordering::Release);
                }
                let mut action: libc::sigaction = mem::zeroed();
                action.sa_sigaction = handle as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
                libc::sigaction(signal, &action, ptr::null_mut());
            }
        }
    }
    Handler(())
}

impl Drop for Handler {
    fn drop(&mut self) {
        let mut users = USERS.lock();
        *users -= 1;
        if *users > 0 {
            return;
        }
        for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
            // SAFETY: the structs live through the calls; `install` stored what it replaced.
            unsafe {
                let mut found: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, ptr::null(), &mut found);
                // A handler that the program installed in the meantime stays.
                if found.sa_sigaction == handle as *const () as usize {
                    libc::sigaction(signal, previous.load(Ordering::Acquire), ptr::null_mut());
                }
            }
        }
    }
}

/// Lets the handlers act on this thread, while it runs blocks of a kernel.
pub struct Guard {
    entry: Option<&'static Running>,
    /// The stack for signals, and what was there before.
    stack: Vec<u8>,
    previous: libc::stack_t,
}

impl Guard {
    pub fn new(report: Report) -> Guard {
        let take =
            |entry: &&Running| entry.thread.compare_exchange(0, thread(), Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let entry = RUNNING.iter().find(take);
        if let Some(entry) = entry {
            entry.report.store(report as *const () as usize, Ordering::Release);
        }
        let mut stack = vec![0; STACK];
        let used = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: STACK };
        // SAFETY: the memory lives until `drop` replaces it, and both structs live through the call. Failure means only
        // that a full stack ends the process.
        let previous = unsafe {
            let mut previous: libc::stack_t = mem::zeroed();
            libc::sigaltstack(&used, &mut previous);
            previous
        };
        Guard { entry, stack, previous }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // SAFETY: what was there before is valid again; the memory of this guard is not used as a stack any more.
        unsafe { libc::sigaltstack(&self.previous, ptr::null_mut()) };
        if let Some(entry) = self.entry {
            entry.report.store(0, Ordering::Release);
            entry.thread.store(0, Ordering::Release);
        }
        self.stack.clear();
    }
}

/// Registers of an interrupted thread.
struct Registers<'a>(&'a mut libc::ucontext_t);

#[cfg(target_arch = "x86_64")]
impl Registers<'_> {
    fn stack(&self) -> u64 {
        self.0.uc_mcontext.gregs[libc::REG_RSP as usize] as u64
    }

    fn instruction(&self) -> u64 {
        self.0.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
    }

    /// Makes the thread call a function, with a stack that ends at an address, when the handler returns.
    fn call(&mut self, function: u64, stack_end: u64, arguments: [u64; 3]) {
        let registers = &mut self.0.uc_mcontext.gregs;
        for (register, argument) in [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].into_iter().zip(arguments) {
            registers[register as usize] = argument as i64;
        }
        // As behind a call: the place of the return address.
        registers[libc::REG_RSP as usize] = (stack_end - 72) as i64;
        registers[libc::REG_RIP as usize] = function as i64;
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers<'_> {
    fn stack(&self) -> u64 {
        self.0.uc_mcontext.sp
    }

    fn instruction(&self) -> u64 {
        self.0.uc_mcontext.pc
    }

    fn call(&mut self, function: u64, stack_end: u64, arguments: [u64; 3]) {
        let context = &mut self.0.uc_mcontext;
        context.regs[..3].copy_from_slice(&arguments);
        (context.sp, context.pc) = (stack_end - 64, function);
    }
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes the signal's information and the registers of this thread.
    let (address, code, mut registers) =
        unsafe { ((*info).si_addr() as u64, (*info).si_code, Registers(&mut *context.cast::<libc::ucontext_t>())) };
    let thread = thread();
    // Positive codes are faults of the processor; others were sent. A thread that runs a kernel is in a fiber but for a
    // few functions of this library, which make no wrong access. The function is called once, since it may fail itself.
    let report = match RUNNING.iter().find(|entry| entry.thread.load(Ordering::Acquire) == thread) {
        Some(entry) if code > 0 => entry.report.swap(0, Ordering::AcqRel),
        _ => 0,
    };
    if report != 0 {
        let fiber = registers.stack() & !(FIBER_BYTES - 1);
        let arguments = [address, registers.instruction(), u64::from(signal == libc::SIGFPE)];
        return registers.call(report as u64, fiber + FIBER_BYTES - STATE, arguments);
    }
    let index = SIGNALS.iter().position(|known| *known == signal).unwrap_or(0);
    // SAFETY: `install` stored the program's handler before this one could run, and never frees it.
    let previous = unsafe { &*PREVIOUS[index].load(Ordering::Acquire) };
    // The program's handler may pass signals on to this one, which it found when it was installed.
    let is_passed_back = PASSING.load(Ordering::Acquire) == thread;
    match previous.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        // The instruction is executed again, and ends the process as if this handler had never been there. The system
        // does not ignore a fault.
        libc::SIG_IGN | libc::SIG_DFL => end(signal, code),
        _ if is_passed_back => end(signal, code),
        function if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag the program's handler has this signature.
            let function: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = unsafe { mem::transmute(function) };
            PASSING.store(thread, Ordering::Release);
            function(signal, info, context);
            PASSING.store(0, Ordering::Release);
        }
        function => {
            // SAFETY: without the flag the program's handler has this signature.
            let function: extern "C" fn(c_int) = unsafe { mem::transmute(function) };
            PASSING.store(thread, Ordering::Release);
            function(signal);
            PASSING.store(0, Ordering::Release);
        }
    }
}

/// Gives a signal its default effect.
fn end(signal: c_int, code: c_int) {
    // SAFETY: the struct lives through the call, and zeros mean the default effect.
    unsafe {
        let action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, &action, ptr::null_mut());
        if code <= 0 {
            libc::raise(signal);
        }
    }
}

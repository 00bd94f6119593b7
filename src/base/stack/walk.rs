//! Stack walks of the calling thread.
//!
//! A step from a function to its caller needs the rule for the return address and two words of the stack. Each thread
//! caches its rules, so a step takes a few nanoseconds. The walk reads only the thread's stack, above the current
//! frame. A stale rule, for example of a library that was unloaded, ends the walk or yields a wrong name, and does no
//! other harm. Where the stack pointer lies outside the thread's stack, as in coroutines, and on processors other
//! than x86-64, the compiler's unwinder walks instead, at some hundred nanoseconds per step.

use super::{
    images, rules,
    table::{self, StackId},
};
use crate::driver::signals;
use once_cell::sync::Lazy;
use std::{
    cell::{Cell, RefCell},
    ffi::c_void,
    ops::Range,
};

/// The most frames of a stack that are kept, counted from the innermost.
const DEPTH: usize = 128;
/// Rules in a thread's cache.
const RULES: usize = 1024;
/// Stacks in a thread's cache.
const STACKS: usize = 512;

struct Walker {
    /// The address range of the thread's stack.
    stack: Range<u64>,
    /// The cache of rules: return addresses with their rules, indexed by a hash of the address.
    rules: Box<[(u64, rules::Rule); RULES]>,
    /// The cache of stacks: hashes of all addresses of a stack, with its number.
    stacks: Box<[(u64, StackId); STACKS]>,
    frames: Box<[u64; DEPTH]>,
}

/// The walker of a thread. A handler of a signal that interrupts the allocator must make no call, so it is dropped while
/// signals are blocked.
struct ThreadWalker(RefCell<Option<Walker>>);

impl Drop for ThreadWalker {
    fn drop(&mut self) {
        let _blocked = signals::block();
        self.0.take();
    }
}

thread_local! {
    static WALKER: ThreadWalker = const { ThreadWalker(RefCell::new(None)) };
}

/// Returns the range of the library's code; empty if the library is part of the program's image.
fn own_code() -> &'static Range<u64> {
    static OWN: Lazy<Range<u64>> = Lazy::new(|| {
        let code = images::find(own_code as *const () as u64, |image| (!image.is_program()).then(|| image.code()));
        code.flatten().unwrap_or(0..0)
    });
    &OWN
}

/// Mixes an address into a hash. The highest bits are distributed best.
#[inline]
fn mix(hash: u64, address: u64) -> u64 {
    (hash.rotate_left(5) ^ address).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the number of the calling thread's stack, from the function that called the library. Returns
/// [`StackId::NONE`] if the stack cannot be walked, for example at the end of a thread.
#[inline(never)] // the walk begins in this function's frame
pub fn capture() -> StackId {
    let start = Start::here();
    let captured = WALKER.try_with(|walker| {
        // A signal handler may interrupt a capture and call this function.
        let mut walker = walker.0.try_borrow_mut().ok()?;
        Some(walker.get_or_insert_with(Walker::new).capture(start))
    });
    captured.ok().flatten().unwrap_or_default()
}

/// Returns the kernel's ID of the calling thread.
#[inline]
pub fn thread_id() -> u32 {
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            // SAFETY: the call has no arguments and touches no memory.
            number.set(unsafe { libc::gettid() } as u32);
        }
        number.get()
    })
}

/// The registers with which a walk begins.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
struct Start {
    instruction: u64,
    stack: u64,
    frame: u64,
}

impl Start {
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn here() -> Start {
        let (instruction, stack, frame);
        // SAFETY: the instructions copy three registers and touch neither memory nor flags.
        unsafe {
            std::arch::asm!(
                "lea {instruction}, [rip]",
                "mov {stack}, rsp",
                "mov {frame}, rbp",
                instruction = out(reg) instruction,
                stack = out(reg) stack,
                frame = out(reg) frame,
                options(nomem, nostack, preserves_flags)
            );
        }
        Start { instruction, stack, frame }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn here() -> Start {
        Start { instruction: 0, stack: 0, frame: 0 }
    }
}

impl Walker {
    fn new() -> Walker {
        Walker {
            stack: stack_of_this_thread(),
            rules: Box::new([(0, rules::Rule::END); RULES]),
            stacks: Box::new([(0, StackId::NONE); STACKS]),
            frames: Box::new([0; DEPTH]),
        }
    }

    fn capture(&mut self, start: Start) -> StackId {
        let known = self.stack.contains(&start.stack) && cfg!(target_arch = "x86_64");
        let (count, hash) = if known { self.walk(start) } else { self.walk_slowly() };
        if count == 0 {
            return StackId::NONE;
        }
        // Collisions of the 64-bit hash are improbable enough to ignore.
        let entry = &mut self.stacks[(hash >> 32) as usize % STACKS];
        if entry.0 != hash {
            *entry = (hash, table::number(&self.frames[..count]));
        }
        entry.1
    }

    /// Collects the return addresses from the library's caller on. Returns their number and their hash.
    fn walk(&mut self, start: Start) -> (usize, u64) {
        let own = own_code();
        let Start { mut instruction, mut stack, mut frame } = start;
        let (mut count, mut hash) = (0, 0);
        while count < DEPTH {
            let rule = self.rule(instruction);
            let base = match rule.base {
                rules::Base::End => break,
                rules::Base::Stack => stack,
                rules::Base::Frame => frame,
                rules::Base::AtFrame => frame,
            };
            let mut top = base.wrapping_add_signed(i64::from(rule.offset));
            if rule.base == rules::Base::AtFrame {
                match self.word(top) {
                    Some(word) => top = word,
                    None => break,
                }
            }
            // A caller's frame lies above its callee's; any other result ends the walk.
            if top <= stack {
                break;
            }
            let Some(address) = self.word(top.wrapping_sub(8)) else { break };
            if rule.frame != 0 {
                match self.word(top.wrapping_add_signed(i64::from(rule.frame))) {
                    Some(word) => frame = word,
                    None => break,
                }
            }
            (instruction, stack) = (address, top);
            if count == 0 && own.contains(&address) {
                continue;
            }
            if address == 0 {
                break;
            }
            self.frames[count] = address;
            hash = mix(hash, address);
            count += 1;
        }
        (count, hash)
    }

    /// Returns the rule for a return address: that of the call instruction before it.
    #[inline]
    fn rule(&mut self, address: u64) -> rules::Rule {
        let entry = &mut self.rules[(mix(0, address) >> 54) as usize % RULES];
        if entry.0 != address {
            *entry = (address, rules::rule(address.wrapping_sub(1)));
        }
        entry.1
    }

    /// Reads a word of the thread's stack.
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        if address < self.stack.start || address.wrapping_add(8) > self.stack.end || !address.is_multiple_of(8) {
            return None;
        }
        // SAFETY: the eight bytes lie in the calling thread's stack and are aligned. They are above the stack pointer
        // at which the walk began, or below it in memory that belongs to the thread's stack or that it grows into.
        // Any bits are a valid number, so their meaning does not matter, and no other code of this thread runs during
        // the read.
        Some(unsafe { (address as *const u64).read_volatile() })
    }

    /// Does the same as [`walk`](Self::walk) with the compiler's unwinder.
    #[cold]
    fn walk_slowly(&mut self) -> (usize, u64) {
        let mut visit = Visit { frames: &mut self.frames, count: 0, hash: 0 };
        // SAFETY: the unwinder passes this pointer to `step` only during the call, and `step` has the type that it
        // requires.
        unsafe { _Unwind_Backtrace(step, (&raw mut visit).cast()) };
        (visit.count, visit.hash)
    }
}

struct Visit<'a> {
    frames: &'a mut [u64; DEPTH],
    count: usize,
    hash: u64,
}

#[allow(non_snake_case)]
unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> i32, visit: *mut c_void) -> i32;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

extern "C" fn step(context: *mut c_void, visit: *mut c_void) -> i32 {
    const CONTINUE: i32 = 0;
    const END: i32 = 5;
    // SAFETY: `walk_slowly` passed this pointer, and uses its target for nothing else during the call.
    let visit = unsafe { &mut *visit.cast::<Visit>() };
    // SAFETY: the unwinder passes its own context, which is valid during this call.
    let address = unsafe { _Unwind_GetIP(context) } as u64;
    if visit.count == DEPTH || address == 0 {
        return END;
    }
    let in_program = own_code().is_empty();
    // The first address lies in this library's `walk_slowly`.
    if visit.count > 0 || in_program || !own_code().contains(&address) {
        visit.frames[visit.count] = address;
        visit.hash = mix(visit.hash, address);
        visit.count += 1;
    }
    CONTINUE
}

/// Returns the address range of the calling thread's stack; an empty range if the system does not report it.
fn stack_of_this_thread() -> Range<u64> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the first call initialises the attributes of the calling thread; only after its success are they read
    // and destroyed.
    let known = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return 0..0;
        }
        let known = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut bytes) == 0;
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        known
    };
    if known { start as u64..start as u64 + bytes as u64 } else { 0..0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn recurse(depth: u32, leaf: &dyn Fn() -> Vec<StackId>) -> Vec<StackId> {
        let result = if depth == 0 { leaf() } else { recurse(depth - 1, leaf) };
        std::hint::black_box(result)
    }

    fn depth_of(stack: StackId) -> usize {
        table::addresses(stack).len()
    }

    #[test]
    fn equal_stacks_have_one_number_and_all_callers() {
        let twice = |depth| {
            recurse(depth, &|| {
                let mut both = Vec::new();
                for _ in 0..2 {
                    both.push(capture());
                }
                both
            })
        };
        let (shallow, deep) = (twice(3), twice(23));
        assert_ne!(shallow[0], StackId::NONE);
        assert_eq!(shallow[0], shallow[1]);
        assert_ne!(shallow[0], deep[0]);
        assert_eq!(depth_of(deep[0]), depth_of(shallow[0]) + 20);
        assert_eq!(depth_of(twice(500)[0]), DEPTH);
    }

    #[test]
    fn both_unwinders_return_the_same_callers() {
        let both = recurse(10, &|| {
            let start = Start::here();
            let mut walker = Walker::new();
            let (count, _) = walker.walk(start);
            let fast = walker.frames[..count].to_vec();
            let (count, _) = walker.walk_slowly();
            let slow = &walker.frames[..count];
            // The walks begin in different functions and share the callers.
            let common = fast.len() - 1;
            assert!(common > 10, "{common}");
            assert!(slow.len() >= common);
            let tail = &slow[slow.len() - common..];
            assert_eq!(tail, &fast[1..]);
            Vec::new()
        });
        assert!(both.is_empty());
    }

    #[test]
    fn an_invalid_rule_ends_the_walk() {
        let mut walker = Walker::new();
        let start = Start::here();
        for base in [rules::Base::Stack, rules::Base::Frame, rules::Base::AtFrame] {
            for offset in [0, -8, 3, i32::MAX, i32::MIN, 16] {
                for frame in [-16, 5, i16::MAX] {
                    let rule = rules::Rule { offset, frame, base };
                    walker.rules.fill((0, rules::Rule::END));
                    walker.rules[(mix(0, start.instruction) >> 54) as usize % RULES] = (start.instruction, rule);
                    let (count, _) = walker.walk(start);
                    assert!(count <= DEPTH);
                }
            }
        }
        walker.stack = 0..0;
        assert_ne!(walker.capture(start), StackId::NONE);
    }
}

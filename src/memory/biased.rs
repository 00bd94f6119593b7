//! A lock that costs its usual owner next to nothing: two plain stores and two loads, and no atomic read-modify-write.
//!
//! An arena is mostly used by one thread, the one that its stream belongs to. That thread owns the lock: to enter it writes
//! that it is inside and looks whether it is still the owner. Anybody else first takes the ownership away, for good, and
//! from then on everyone, the old owner too, goes through an ordinary [`Lock`].
//!
//! What makes that right is on the side of him who takes away. A processor may hold back the owner's store that it is
//! inside while its load of the owner has gone ahead; the other side would then see nobody inside while the owner sees
//! itself in office. So after writing that there is no owner he has the kernel make every processor that runs a thread of
//! this process pass a full barrier (membarrier). An owner that looked before its barrier has its store out by then and
//! is waited for; one that looks after it sees that it is the owner no more. It is the asymmetric fence of Dice, Huang and
//! Yang (2001), which the kernel has offered since Linux 4.14. Where it does not, nobody becomes an owner.

use super::lock::{Guard, Lock};
use once_cell::sync::OnceCell;
use std::{
    cell::UnsafeCell,
    hint,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence},
    thread,
    time::Duration,
};

/// The owner that nobody is: numbers of threads begin at 1.
const NOBODY: u64 = 0;

/// A value that one thread at a time may use, cheapest for one of them.
///
/// It begins a cache line of its own, with what the owner needs first.
#[repr(C, align(128))]
pub struct Biased<T> {
    owner: AtomicU64,
    /// Whether the owner is inside.
    inside: AtomicBool,
    value: UnsafeCell<T>,
    /// For everybody, once there is no owner.
    lock: Lock<()>,
}

// SAFETY: a reference to the value is had only through a `Held`, and there is one at a time (see `lock`), so threads that
// share the lock hand the value to each other and never share it.
unsafe impl<T: Send> Sync for Biased<T> {}

/// The right to use the value; to drop it unlocks, also when a panic drops it.
#[must_use = "the lock is free again as soon as this is dropped"]
pub struct Held<'a, T> {
    biased: &'a Biased<T>,
    /// None for the owner.
    guard: Option<Guard<'a, ()>>,
    /// Stays in its thread.
    in_thread: PhantomData<*mut T>,
}

impl<T> Biased<T> {
    /// A lock that is free, and owned by the thread with this number where owners are possible.
    pub fn new(value: T, owner: u64) -> Self {
        let owner = if barrier_is_there() { owner } else { NOBODY };
        Biased {
            owner: AtomicU64::new(owner),
            inside: AtomicBool::new(false),
            value: UnsafeCell::new(value),
            lock: Lock::new(()),
        }
    }

    /// Waits until the value is free, and takes it, for the thread with this number: the calling one. A thread that holds
    /// it already waits for ever.
    #[inline(always)] // the way of every request and every free
    pub fn lock(&self, thread: u64) -> Held<'_, T> {
        if self.owner.load(Ordering::Relaxed) == thread {
            // Only the owner writes this, so there is nothing to compare it with.
            self.inside.store(true, Ordering::Relaxed);
            // The processor may still let the load below go before the store above; the compiler may not.
            compiler_fence(Ordering::SeqCst);
            if self.owner.load(Ordering::Acquire) == thread {
                return Held { biased: self, guard: None, in_thread: PhantomData };
            }
            self.inside.store(false, Ordering::Release);
        }
        self.lock_shared(thread)
    }

    #[inline]
    fn lock_shared(&self, thread: u64) -> Held<'_, T> {
        let guard = self.lock.lock();
        if self.owner.load(Ordering::Relaxed) != NOBODY {
            self.depose(thread);
        }
        Held { biased: self, guard: Some(guard), in_thread: PhantomData }
    }

    /// Takes the ownership away, and waits until the owner is outside. The caller holds the inner lock.
    #[cold]
    fn depose(&self, thread: u64) {
        debug_assert_ne!(self.owner.load(Ordering::Relaxed), thread);
        self.owner.store(NOBODY, Ordering::Release);
        if !barrier() {
            // A process can forbid itself the call after it worked once. No processor holds a store back for so long.
            thread::sleep(Duration::from_millis(100));
        }
        let mut rounds = 0_u32;
        // Acquire: what the owner wrote inside is visible here.
        while self.inside.load(Ordering::Acquire) {
            rounds += 1;
            if rounds < 100 {
                hint::spin_loop();
            } else {
                thread::sleep(Duration::from_micros(10));
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: whoever has a `Held` is alone. With a guard: the inner lock keeps others out that come through it, and
        // before it was used there was no owner any more, nor one inside (`depose`, or none since before); an owner
        // that comes later sees that it is none, by the module's comment. Without: the thread is the owner, and
        // saw so after it had written that it is inside, so whoever deposes it waits until it is out; and another
        // `Held` of the same thread cannot be, since nothing locks twice.
        unsafe { &*self.biased.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and this one is borrowed mutably.
        unsafe { &mut *self.biased.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.guard.is_none() {
            // Release: whoever deposes the owner sees what it wrote.
            self.biased.inside.store(false, Ordering::Release);
        }
    }
}

// The numbers of the call's commands, as linux/membarrier.h has them.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three numbers, and touches no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether the kernel has the barrier; asks it once, and registers the process for it.
fn barrier_is_there() -> bool {
    static THERE: OnceCell<bool> = OnceCell::new();
    *THERE.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
}

/// A full barrier on every processor that runs a thread of this process. A child of a fork has to register anew.
fn barrier() -> bool {
    membarrier(PRIVATE_EXPEDITED) || (membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    };

    #[test]
    fn the_owner_and_others_count_together() {
        for round in 0..200 {
            let biased = Arc::new(Biased::new((0_u64, 0_u64), 1));
            let go = Arc::new(AtomicU32::new(0));
            let threads: Vec<_> = (1..=3_u64)
                .map(|number| {
                    let (biased, go) = (biased.clone(), go.clone());
                    thread::spawn(move || {
                        go.fetch_add(1, Ordering::SeqCst);
                        while go.load(Ordering::SeqCst) < 3 {
                            hint::spin_loop();
                        }
                        // The owner is at it for a while before the others depose it.
                        for _ in 0..if number == 1 { 4_000 } else { round * 10 } {
                            hint::spin_loop();
                        }
                        for _ in 0..2_000 {
                            let mut held = biased.lock(number);
                            held.0 += 1;
                            held.1 += 1;
                            assert_eq!(held.0, held.1);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(*biased.lock(1), (6_000, 6_000));
            assert_eq!(biased.owner.load(Ordering::Relaxed), NOBODY);
        }
    }

    #[test]
    fn an_owner_inside_is_waited_for() {
        let biased = Arc::new(Biased::new(0, 1));
        let out = Arc::new(AtomicBool::new(false));
        let held = biased.lock(1);
        let other = {
            let (biased, out) = (biased.clone(), out.clone());
            thread::spawn(move || {
                let held = biased.lock(2);
                assert!(out.load(Ordering::SeqCst));
                assert_eq!(*held, 0);
            })
        };
        thread::sleep(Duration::from_millis(20));
        out.store(true, Ordering::SeqCst);
        drop(held);
        other.join().unwrap();
        drop(biased.lock(1));
    }

    #[test]
    fn a_panic_unlocks() {
        let biased = Biased::new(0, 1);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _held = biased.lock(1);
            panic!("inside");
        }));
        *biased.lock(1) += 1;
        assert_eq!(*biased.lock(2), 1);
    }
}

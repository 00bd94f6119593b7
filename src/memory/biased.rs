//! A lock that is almost free for its owner thread: two plain stores and two loads, no atomic read-modify-write.
//!
//! An arena is mostly used by one thread, the one that uses its stream. That thread owns the lock: to enter, it sets
//! the `inside` flag and then checks that it is still the owner. Any other thread first revokes the ownership,
//! permanently, and from then on every thread, including the former owner, uses an ordinary [`Lock`].
//!
//! The revoking thread ensures correctness. A processor may delay the owner's store of `inside` past its load of
//! `owner`; then the revoking thread would see no owner inside while the owner sees itself as the owner. So after it
//! clears the owner, the revoking thread makes the kernel execute a full barrier on every processor that runs a thread
//! of this process (membarrier). If the owner checked before its barrier, its store is visible by then and the revoking
//! thread waits for it; if the owner checks after it, it sees that it is no longer the owner. This is the asymmetric
//! fence of Dice, Huang and Yang (2001), available since Linux 4.14. Without it, a lock never has an owner.

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

/// The value of `owner` without an owner; thread numbers start at 1.
const NO_OWNER: u64 = 0;

/// A value that one thread at a time may use, with the lowest cost for one of them.
///
/// It starts on its own cache line, with the fields that the owner needs first.
#[repr(C, align(128))]
pub struct Biased<T> {
    owner: AtomicU64,
    /// Whether the owner holds the lock.
    inside: AtomicBool,
    value: UnsafeCell<T>,
    /// The lock for every thread, once there is no owner.
    lock: Lock<()>,
}

// SAFETY: only a `BiasedGuard` gives out references to the value, and there is only one guard at a time (see `lock`),
// so threads that share the lock pass the value to each other and never share it.
unsafe impl<T: Send> Sync for Biased<T> {}

/// Exclusive access to the value. Dropping it unlocks, also during a panic.
#[must_use = "the lock is free again as soon as this is dropped"]
pub struct BiasedGuard<'a, T> {
    biased: &'a Biased<T>,
    /// `None` if the owner holds the lock.
    guard: Option<Guard<'a, ()>>,
    /// Keeps the guard in its thread.
    in_thread: PhantomData<*mut T>,
}

impl<T> Biased<T> {
    /// Creates an unlocked lock, owned by the thread with this number if owners are supported.
    pub fn new(value: T, owner: u64) -> Self {
        let owner = if has_barrier() { owner } else { NO_OWNER };
        Biased {
            owner: AtomicU64::new(owner),
            inside: AtomicBool::new(false),
            value: UnsafeCell::new(value),
            lock: Lock::new(()),
        }
    }

    /// Waits until the value is free, and locks it for the thread with this number, which must be the calling thread. A
    /// thread that already holds the lock deadlocks.
    #[inline(always)] // hot path
    pub fn lock(&self, thread: u64) -> BiasedGuard<'_, T> {
        if self.owner.load(Ordering::Relaxed) == thread {
            // Only the owner writes this flag, so no comparison is needed.
            self.inside.store(true, Ordering::Relaxed);
            // The processor may still reorder the load below before the store above; the compiler may not.
            compiler_fence(Ordering::SeqCst);
            if self.owner.load(Ordering::Acquire) == thread {
                return BiasedGuard { biased: self, guard: None, in_thread: PhantomData };
            }
            self.inside.store(false, Ordering::Release);
        }
        self.lock_shared(thread)
    }

    #[inline]
    fn lock_shared(&self, thread: u64) -> BiasedGuard<'_, T> {
        let guard = self.lock.lock();
        if self.owner.load(Ordering::Relaxed) != NO_OWNER {
            self.revoke(thread);
        }
        BiasedGuard { biased: self, guard: Some(guard), in_thread: PhantomData }
    }

    /// Revokes the ownership and waits until the owner is outside. The caller holds the inner lock.
    #[cold]
    fn revoke(&self, thread: u64) {
        debug_assert_ne!(self.owner.load(Ordering::Relaxed), thread);
        self.owner.store(NO_OWNER, Ordering::Release);
        if !barrier() {
            // A process can forbid itself the system call after it succeeded once. No processor delays a store for so
            // long.
            thread::sleep(Duration::from_millis(100));
        }
        let mut rounds = 0_u32;
        // Acquire: makes the owner's writes visible here.
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

impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the holder of a `BiasedGuard` has exclusive access. With `guard`: the inner lock excludes all other
        // threads that go through it; before this thread used it, ownership was revoked and the owner was outside (by
        // `revoke`, or because there was none before), and a former owner that arrives later sees that it is not the
        // owner (see the module documentation). Without `guard`: the thread is the owner and verified that after it set
        // `inside`, so a revoking thread waits until it is outside; and no other `BiasedGuard` of the same thread
        // exists, because no code locks twice.
        unsafe { &*self.biased.value.get() }
    }
}

impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; this guard is borrowed mutably.
        unsafe { &mut *self.biased.value.get() }
    }
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.guard.is_none() {
            // Release: makes the owner's writes visible to a revoking thread.
            self.biased.inside.store(false, Ordering::Release);
        }
    }
}

// Commands of the system call, from linux/membarrier.h.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three integers and accesses no memory of the process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Returns whether the kernel supports the barrier. Asks once and registers the process for it.
fn has_barrier() -> bool {
    static THERE: OnceCell<bool> = OnceCell::new();
    *THERE.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED))
}

/// Executes a full barrier on every processor that runs a thread of this process. Registers again in a forked child.
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
    fn owner_and_other_threads_count_together() {
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
                        // The owner uses the lock for a while before the others revoke it.
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
            assert_eq!(biased.owner.load(Ordering::Relaxed), NO_OWNER);
        }
    }

    #[test]
    fn revoking_waits_for_owner_inside() {
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

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
//!
//! An owner that ends releases the ownership, and another thread can become the owner.

use super::lock::{Guard, Lock, Word};
use crate::base::cancellation;
use once_cell::sync::OnceCell;
use std::{
    cell::UnsafeCell,
    hint,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic::{self, AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// The value of `owner` without an owner; thread numbers start at 1.
const NO_OWNER: u64 = 0;

/// The operations that the lock needs of its two words, and of the barrier. [`OwnerWords`] implements them; the model
/// checker of the tests has its own implementation, so that it checks this code and its orderings unchanged.
pub trait Words {
    /// The word of the lock for every thread.
    type Inner: Word;
    /// Returns the number of the owner thread, or [`NO_OWNER`].
    fn owner(&self, order: Ordering) -> u64;
    /// Revokes the ownership.
    fn clear_owner(&self, order: Ordering);
    /// Returns whether the owner holds the lock.
    fn is_inside(&self, order: Ordering) -> bool;
    /// Sets whether the owner holds the lock. Only the owner calls this, so no comparison is needed.
    fn set_inside(&self, inside: bool, order: Ordering);
    /// Keeps the compiler from moving memory accesses across; the processor may still do so.
    fn compiler_fence();
    /// Makes every thread of the process execute a full barrier between the begin and the end of this call.
    fn barrier(&self);
    /// Waits a little, longer in higher rounds.
    fn wait(round: u32);
}

/// The words of a lock of this process.
#[repr(C)]
pub struct OwnerWords {
    owner: AtomicU64,
    inside: AtomicBool,
}

impl Words for OwnerWords {
    type Inner = AtomicBool;

    #[inline(always)]
    fn owner(&self, order: Ordering) -> u64 {
        self.owner.load(order)
    }

    fn clear_owner(&self, order: Ordering) {
        self.owner.store(NO_OWNER, order);
    }

    fn is_inside(&self, order: Ordering) -> bool {
        self.inside.load(order)
    }

    #[inline(always)]
    fn set_inside(&self, inside: bool, order: Ordering) {
        self.inside.store(inside, order);
    }

    #[inline(always)]
    fn compiler_fence() {
        atomic::compiler_fence(Ordering::SeqCst);
    }

    fn barrier(&self) {
        if !barrier() {
            // A process can forbid itself the system call after it succeeded once. No processor delays a store for so
            // long.
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn wait(round: u32) {
        if round < 100 {
            hint::spin_loop();
        } else {
            thread::sleep(Duration::from_micros(10));
        }
    }
}

/// A value that one thread at a time may use, with the lowest cost for one of them.
///
/// It starts on its own cache line, with the fields that the owner needs first.
#[repr(C, align(128))]
pub struct Biased<T, W: Words = OwnerWords> {
    words: W,
    value: UnsafeCell<T>,
    /// The lock for every thread, once there is no owner.
    lock: Lock<(), W::Inner>,
}

// SAFETY: only a `BiasedGuard` gives out references to the value, and there is only one guard at a time (see `lock`),
// so threads that share the lock pass the value to each other and never share it. The words are shared, hence their
// bounds.
unsafe impl<T: Send, W: Words + Sync> Sync for Biased<T, W> where W::Inner: Sync {}

/// Exclusive access to the value. Dropping it unlocks, also during a panic.
#[must_use = "the lock is free again as soon as this is dropped"]
pub struct BiasedGuard<'a, T, W: Words = OwnerWords> {
    biased: &'a Biased<T, W>,
    /// `None` if the owner holds the lock.
    guard: Option<Guard<'a, (), W::Inner>>,
    /// Whether another thread held the inner lock.
    contended: bool,
    /// Keeps the guard in its thread.
    in_thread: PhantomData<*mut T>,
}

impl<T> Biased<T> {
    /// Creates an unlocked lock, owned by the thread with this number if owners are supported.
    pub fn new(value: T, owner: u64) -> Self {
        let owner = if has_barrier() { owner } else { NO_OWNER };
        Biased {
            words: OwnerWords { owner: AtomicU64::new(owner), inside: AtomicBool::new(false) },
            value: UnsafeCell::new(value),
            lock: Lock::new(()),
        }
    }

    /// Ends the ownership of the thread with this number, if it is the owner. It must be the calling thread, and must not
    /// hold the lock.
    pub fn release_ownership(&self, thread: u64) {
        if self.words.owner.load(Ordering::Relaxed) == thread {
            // The inner lock makes the owner's writes visible to the next thread that takes it.
            let _guard = self.lock.lock();
            let _ = self.words.owner.compare_exchange(thread, NO_OWNER, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl<T, W: Words> Biased<T, W> {
    /// Waits until the value is free, and locks it for the thread with this number, which must be the calling thread. A
    /// thread that already holds the lock deadlocks.
    #[inline(always)] // hot path
    pub fn lock(&self, thread: u64) -> BiasedGuard<'_, T, W> {
        match self.lock_as_owner(thread) {
            Some(guard) => guard,
            None => self.lock_shared(thread),
        }
    }

    /// Locks the value if it is free and has no owner but the thread with this number. It waits for no other thread, so the
    /// caller may hold other locks.
    pub fn try_lock(&self, thread: u64) -> Option<BiasedGuard<'_, T, W>> {
        let locked = self.lock_as_owner(thread);
        if locked.is_some() {
            return locked;
        }
        let guard = self.lock.try_lock()?;
        let has_owner = self.words.owner(Ordering::Relaxed) != NO_OWNER;
        (!has_owner).then(|| BiasedGuard { biased: self, guard: Some(guard), contended: false, in_thread: PhantomData })
    }

    #[inline(always)] // hot path
    fn lock_as_owner(&self, thread: u64) -> Option<BiasedGuard<'_, T, W>> {
        if self.words.owner(Ordering::Relaxed) == thread {
            self.words.set_inside(true, Ordering::Relaxed);
            W::compiler_fence();
            if self.words.owner(Ordering::Acquire) == thread {
                return Some(BiasedGuard { biased: self, guard: None, contended: false, in_thread: PhantomData });
            }
            self.words.set_inside(false, Ordering::Release);
        }
        None
    }

    /// Locks as [`lock`](Self::lock) does, but before threads that call that, except the owner.
    pub fn lock_first(&self, thread: u64) -> BiasedGuard<'_, T, W> {
        match self.lock_as_owner(thread) {
            Some(guard) => guard,
            None => self.with_inner(thread, self.lock.lock_first(), false),
        }
    }

    #[inline]
    fn lock_shared(&self, thread: u64) -> BiasedGuard<'_, T, W> {
        let (guard, contended) = self.lock.lock_reporting_contention();
        self.with_inner(thread, guard, contended)
    }

    /// Returns the guard of a thread that holds the inner lock and is not the owner.
    #[inline]
    fn with_inner<'a>(&'a self, thread: u64, guard: Guard<'a, (), W::Inner>, contended: bool) -> BiasedGuard<'a, T, W> {
        if self.words.owner(Ordering::Relaxed) != NO_OWNER {
            self.revoke(thread);
        }
        BiasedGuard { biased: self, guard: Some(guard), contended, in_thread: PhantomData }
    }

    /// Revokes the ownership and waits until the owner is outside. The caller holds the inner lock.
    #[cold]
    fn revoke(&self, thread: u64) {
        // A sleep is a cancellation point.
        let _uncancellable = cancellation::disable();
        debug_assert_ne!(self.words.owner(Ordering::Relaxed), thread);
        self.words.clear_owner(Ordering::Release);
        self.words.barrier();
        let mut round = 0_u32;
        // Acquire: makes the owner's writes visible here.
        while self.words.is_inside(Ordering::Acquire) {
            W::wait(round);
            round = round.saturating_add(1);
        }
    }
}

impl<T> BiasedGuard<'_, T> {
    /// Returns whether another thread held the inner lock: a sign that threads should have their own values.
    #[inline]
    pub fn was_contended(&self) -> bool {
        self.contended
    }

    /// Makes the thread with this number, the calling thread, the owner, if owners are supported. Every earlier owner must have
    /// called [`release_ownership`](Biased::release_ownership): a thread that still takes itself for the owner would
    /// clear the flag of the new one.
    pub fn make_owner(&self, thread: u64) {
        // Without the inner lock, the thread is the owner already. With it, no other thread is inside, and each that
        // comes later takes the inner lock after this one and revokes the new ownership.
        if self.guard.is_some() && has_barrier() {
            self.biased.words.owner.store(thread, Ordering::Relaxed);
        }
    }
}

impl<T, W: Words> Deref for BiasedGuard<'_, T, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the holder of a `BiasedGuard` has exclusive access. With `guard`: the inner lock excludes all other
        // threads that go through it; before this thread used it, ownership was revoked and the owner was outside (by
        // `revoke`, because it released the ownership, or because there was none before), and a former owner that arrives
        // later sees that it is not the owner (see the module documentation). Without `guard`: the thread is the owner and verified that after it set
        // `inside`, so a revoking thread waits until it is outside; and no other `BiasedGuard` of the same thread
        // exists, because no code locks twice, and a signal handler that interrupted a call makes no other.
        unsafe { &*self.biased.value.get() }
    }
}

impl<T, W: Words> DerefMut for BiasedGuard<'_, T, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; this guard is borrowed mutably.
        unsafe { &mut *self.biased.value.get() }
    }
}

impl<T, W: Words> Drop for BiasedGuard<'_, T, W> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.guard.is_none() {
            // Release: makes the owner's writes visible to a revoking thread.
            self.biased.words.set_inside(false, Ordering::Release);
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
mod tests;

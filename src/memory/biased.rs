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
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32},
    };

    /// Checks every interleaving of small programs, and every value that the orderings allow a load to return. So a load
    /// may return an old value although the other thread stored a new one: that is how the checker shows a store that the
    /// processor delays.
    ///
    /// The checker has no membarrier, so the model has the interrupts by which the kernel implements it. Between any two
    /// of the owner's operations the owner may be interrupted, and then executes a full barrier. The revoking thread
    /// requests that and waits until it is done, or until the owner has ended, also with a barrier.
    mod model {
        use super::*;
        use loom::{
            cell,
            model::Builder,
            sync::{
                Arc, Notify,
                atomic::{AtomicBool as ModelledBool, AtomicU64 as ModelledU64, fence},
            },
        };

        const OWNER: u64 = 1;
        const OTHER: u64 = 2;

        /// The interrupts of the owner. The flags are not part of the checked memory: they order none of its accesses.
        struct Interrupts {
            owner: loom::thread::ThreadId,
            requested: AtomicBool,
            owner_has_ended: AtomicBool,
            done: Notify,
            /// Every operation changes it first, without an order. The checker only tries both orders of two operations if
            /// both access one word, and if no other access to it is between them.
            operations: ModelledU64,
        }

        impl Interrupts {
            fn new() -> Arc<Interrupts> {
                Arc::new(Interrupts {
                    owner: loom::thread::current().id(),
                    requested: AtomicBool::new(false),
                    owner_has_ended: AtomicBool::new(false),
                    done: Notify::new(),
                    operations: ModelledU64::new(0),
                })
            }

            /// Begins an operation. The owner may be interrupted here.
            fn begin(&self) {
                self.operations.fetch_add(1, Ordering::Relaxed);
                if loom::thread::current().id() == self.owner && self.requested.load(Ordering::Relaxed) {
                    fence(Ordering::SeqCst);
                    self.requested.store(false, Ordering::Relaxed);
                    self.done.notify();
                }
            }

            /// Interrupts the owner.
            fn request(&self) {
                fence(Ordering::SeqCst);
                self.begin();
                self.requested.store(true, Ordering::Relaxed);
                while self.requested.load(Ordering::Relaxed) && !self.owner_has_ended.load(Ordering::Relaxed) {
                    self.done.wait();
                }
                self.begin();
                fence(Ordering::SeqCst);
            }

            /// Ends the owner. The kernel interrupts no thread that does not run: such a thread executed a barrier when it
            /// stopped.
            fn end_owner(&self) {
                self.begin();
                fence(Ordering::SeqCst);
                self.owner_has_ended.store(true, Ordering::Relaxed);
                if self.requested.load(Ordering::Relaxed) {
                    self.done.notify();
                }
            }
        }

        struct InnerWord {
            taken: ModelledBool,
            interrupts: Arc<Interrupts>,
        }

        impl Word for InnerWord {
            fn set(&self, success: Ordering) -> bool {
                self.interrupts.begin();
                self.taken.compare_exchange(false, true, success, Ordering::Relaxed).is_ok()
            }

            fn load(&self, order: Ordering) -> bool {
                self.interrupts.begin();
                self.taken.load(order)
            }

            fn clear(&self, order: Ordering) {
                self.interrupts.begin();
                self.taken.store(false, order);
            }

            fn wait(_: u32) {
                loom::thread::yield_now();
            }
        }

        /// The words in the model. A false parameter leaves a part of the protocol out.
        struct ModelledWords<const BARRIER: bool, const SECOND_CHECK: bool> {
            owner: ModelledU64,
            inside: ModelledBool,
            interrupts: Arc<Interrupts>,
        }

        impl<const BARRIER: bool, const SECOND_CHECK: bool> Words for ModelledWords<BARRIER, SECOND_CHECK> {
            type Inner = InnerWord;

            fn owner(&self, order: Ordering) -> u64 {
                self.interrupts.begin();
                // Only the second check acquires.
                if !SECOND_CHECK && order == Ordering::Acquire { OWNER } else { self.owner.load(order) }
            }

            fn clear_owner(&self, order: Ordering) {
                self.interrupts.begin();
                self.owner.store(NO_OWNER, order);
            }

            fn is_inside(&self, order: Ordering) -> bool {
                self.interrupts.begin();
                self.inside.load(order)
            }

            fn set_inside(&self, inside: bool, order: Ordering) {
                self.interrupts.begin();
                self.inside.store(inside, order);
            }

            fn compiler_fence() {}

            fn barrier(&self) {
                if BARRIER {
                    self.interrupts.request();
                }
            }

            fn wait(_: u32) {
                loom::thread::yield_now();
            }
        }

        /// A number whose every access the checker tracks: two unordered accesses fail the test.
        type Number = cell::UnsafeCell<u64>;

        fn increment(number: &Number, interrupts: &Interrupts) {
            interrupts.begin();
            number.with_mut(|number| {
                // SAFETY: the checker allows no concurrent access, or fails the test.
                unsafe { *number += 1 }
            });
        }

        /// The owner and another thread each lock as often as the parameters say.
        fn check<const BARRIER: bool, const SECOND_CHECK: bool>(by_owner: u64, by_other: u64, preemptions: usize) {
            let mut builder = Builder::new();
            builder.preemption_bound = Some(preemptions);
            builder.check(move || {
                let interrupts = Interrupts::new();
                let biased = Arc::new(Biased {
                    words: ModelledWords::<BARRIER, SECOND_CHECK> {
                        owner: ModelledU64::new(OWNER),
                        inside: ModelledBool::new(false),
                        interrupts: interrupts.clone(),
                    },
                    value: UnsafeCell::new(Number::new(0)),
                    lock: Lock::with_word(
                        InnerWord { taken: ModelledBool::new(false), interrupts: interrupts.clone() },
                        (),
                    ),
                });
                let other = {
                    let (biased, interrupts) = (biased.clone(), interrupts.clone());
                    loom::thread::spawn(move || {
                        (0..by_other).for_each(|_| increment(&biased.lock(OTHER), &interrupts));
                    })
                };
                (0..by_owner).for_each(|_| increment(&biased.lock(OWNER), &interrupts));
                interrupts.end_owner();
                other.join().unwrap();
                // SAFETY: as in `increment`.
                assert_eq!(biased.lock(OTHER).with(|number| unsafe { *number }), by_owner + by_other);
            });
        }

        #[test]
        fn owner_and_revoking_thread_are_ordered() {
            check::<true, true>(1, 1, 3);
            check::<true, true>(2, 1, 2);
            check::<true, true>(1, 2, 2);
            check::<true, true>(2, 2, 2);
        }

        #[test]
        #[should_panic]
        fn without_the_barrier_both_are_inside() {
            check::<false, true>(1, 1, 3);
        }

        #[test]
        #[should_panic]
        fn without_the_second_check_both_are_inside() {
            check::<true, false>(1, 1, 3);
        }
    }

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
            assert_eq!(biased.words.owner(Ordering::Relaxed), NO_OWNER);
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
    fn try_lock_waits_for_no_thread() {
        let biased = Biased::new(0, 1);
        *biased.try_lock(1).unwrap() += 1;
        // Even while the owner is outside, it would have to be revoked.
        assert!(biased.try_lock(2).is_none() || !has_barrier());
        *biased.lock(2) += 1;
        *biased.try_lock(3).unwrap() += 1;
        let held = biased.lock(3);
        assert!(biased.try_lock(1).is_none());
        drop(held);
        assert_eq!(*biased.try_lock(1).unwrap(), 3);
    }

    #[test]
    fn ownership_passes_from_a_thread_that_ends() {
        let biased = Arc::new(Biased::new((0_u64, 0_u64), 1));
        let current = Arc::new(AtomicU32::new(1));
        biased.release_ownership(1);
        // Threads 2 and up own the lock one after the other, while thread 1 revokes the ownership at times.
        for number in 2..200 {
            let (lock, owner) = (biased.clone(), current.clone());
            let next = thread::spawn(move || {
                lock.lock(number).make_owner(number);
                owner.store(number as u32, Ordering::SeqCst);
                for _ in 0..500 {
                    let mut held = lock.lock(number);
                    held.0 += 1;
                    held.1 += 1;
                    assert_eq!(held.0, held.1);
                }
                lock.release_ownership(number);
                assert_eq!(lock.words.owner(Ordering::Relaxed), NO_OWNER);
            });
            while current.load(Ordering::SeqCst) < number as u32 {
                hint::spin_loop();
            }
            for _ in 0..number % 3 * 100 {
                let mut held = biased.lock(1);
                held.0 += 1;
                held.1 += 1;
                assert_eq!(held.0, held.1);
            }
            next.join().unwrap();
        }
        let shared: u64 = (2..200).map(|number| number % 3 * 100).sum();
        assert_eq!(biased.lock(1).0, 198 * 500 + shared);
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

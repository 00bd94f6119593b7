//! The mutex of an arena, with minimal cost: an allocation and the free that follows it lock it twice and should take
//! about 20 ns in all.
//!
//! Locking without contention is one compare-exchange, and unlocking is one plain store: the holder does not check for
//! waiters, so it needs no second read-modify-write and never calls the kernel. Waiters pay the cost: they poll, first
//! by spinning, then by yielding the processor, then by sleeping, and there is no queue and no fairness. So a thread that
//! locks again and again often has the lock before one that waits sees it free. A thread for which many others wait locks
//! [first](Lock::lock_first): for some microseconds, all others wait until it has the lock.
//!
//! This suits only short critical sections such as an arena's: most last tens of nanoseconds, and a count of all
//! arenas some microseconds, because they never call the driver, the system or a user callback. A waiter stops
//! spinning only if the holder was preempted. It sleeps instead of yielding indefinitely, because a yield never lets
//! a holder of lower real-time priority run.
//!
//! A panic unlocks and does not poison the lock. The panic becomes the status of the call in which it happened. A lock
//! that stayed locked would hang every later call, and a poisoned one would fail every later free of valid memory,
//! although the allocator can check the consistency of its structures at any time.

use crate::base::cancellation;
use std::{
    cell::UnsafeCell,
    fmt, hint,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

/// The number of spinning rounds, each twice as long as the one before: some tens of microseconds in all, so that a count
/// over all arenas, which holds their locks, is over before a waiter sleeps. The shortest sleep takes Linux some 60
/// microseconds. The polls of long waits are rare, because each takes the line from the holder for a while.
const SPINS: u32 = 10;
/// The number of rounds after those that also yield the processor, each as long as the last one before.
const YIELDS: u32 = 8;
const SHORTEST_SLEEP: Duration = Duration::from_micros(2);
/// The number of times that the sleep doubles; the longest sleep is 64 microseconds.
const LONGER_SLEEPS: u32 = 5;
/// The rounds in which a waiter does not lock while another thread is to lock first. That one has the lock soon, unless it was
/// preempted.
const ROUNDS_BEHIND_FIRST: u32 = 6;
/// How often a thread that locks first polls before its waits become longer, and the round whose wait is between two polls.
const FIRST_POLLS: u32 = 64;
const FIRST_ROUND: u32 = 2;

/// The operations that a lock needs of its atomic word. [`AtomicBool`] implements them; the model checker of the tests
/// has its own implementation, so that it checks this code and its orderings unchanged. The number of threads that lock first is
/// not among them: it orders nothing.
pub trait Word {
    /// As [`AtomicBool::compare_exchange`] from `false` to `true`; returns whether it succeeded.
    fn set(&self, success: Ordering) -> bool;
    /// As [`AtomicBool::load`].
    fn load(&self, order: Ordering) -> bool;
    /// As [`AtomicBool::store`] of `false`.
    fn clear(&self, order: Ordering);
    /// Waits a little, longer in higher rounds.
    fn wait(round: u32);
}

impl Word for AtomicBool {
    #[inline]
    fn set(&self, success: Ordering) -> bool {
        self.compare_exchange(false, true, success, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn load(&self, order: Ordering) -> bool {
        AtomicBool::load(self, order)
    }

    #[inline]
    fn clear(&self, order: Ordering) {
        self.store(false, order);
    }

    fn wait(round: u32) {
        if round < SPINS + YIELDS {
            for _ in 0..1u32 << round.min(SPINS - 1) {
                hint::spin_loop();
            }
            if round >= SPINS {
                thread::yield_now();
            }
        } else {
            thread::sleep(SHORTEST_SLEEP * (1 << (round - SPINS - YIELDS).min(LONGER_SLEEPS)));
        }
    }
}

/// A value that one thread at a time may use.
///
/// It starts on its own cache line, and the adjacent line holds no other lock either, because processors fetch lines in
/// pairs. The value follows the word, so that the thread that gets the word also has the value's first fields in its
/// cache.
#[repr(C, align(128))]
pub struct Lock<T, W = AtomicBool> {
    taken: W,
    /// How many threads wait to lock first. It orders no access.
    first_waiters: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: only a guard gives out references to the value, and there is only one guard at a time (see `try_lock`), so
// threads that share the lock pass the value to each other and never share it: that requires only `T: Send`. The word
// itself is shared, hence `W: Sync`.
unsafe impl<T: Send, W: Sync> Sync for Lock<T, W> {}

impl<T> Lock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Lock::with_word(AtomicBool::new(false), value)
    }
}

impl<T, W> Lock<T, W> {
    /// Creates an unlocked lock with a word of its own, which must be clear.
    pub const fn with_word(taken: W, value: T) -> Self {
        Lock { taken, first_waiters: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }
}

impl<T, W: Word> Lock<T, W> {
    /// Waits until the value is free, and locks it. A thread that already holds the lock deadlocks.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, W> {
        self.lock_reporting_contention().0
    }

    /// Locks as [`lock`](Self::lock) does, and also returns whether another thread held the lock, or was to lock first: a sign
    /// that threads should have their own values.
    #[inline]
    pub fn lock_reporting_contention(&self) -> (Guard<'_, T, W>, bool) {
        if self.first_waiters.load(Ordering::Relaxed) == 0
            && let Some(guard) = self.try_lock()
        {
            return (guard, false);
        }
        (self.wait(), true)
    }

    /// Locks as [`lock`](Self::lock) does, but before threads that call that, also if they began to wait earlier.
    pub fn lock_first(&self) -> Guard<'_, T, W> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        // A sleep is a cancellation point.
        let _uncancellable = cancellation::disable();
        self.first_waiters.fetch_add(1, Ordering::Relaxed);
        let mut polls = 0_u32;
        let guard = loop {
            W::wait(FIRST_ROUND.max(polls.saturating_sub(FIRST_POLLS)));
            polls = polls.saturating_add(1);
            if let Some(guard) = self.lock_if_free() {
                break guard;
            }
        };
        self.first_waiters.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Locks the value if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, W>> {
        // The only way to get a guard: only one thread sets the word to `true`, and only the guard returned here clears
        // it. Acquire makes the previous holder's writes before its release visible here.
        self.taken.set(Ordering::Acquire).then(|| Guard { lock: self, in_thread: PhantomData })
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T, W> {
        // A sleep is a cancellation point.
        let _uncancellable = cancellation::disable();
        let mut round = 0u32;
        loop {
            W::wait(round);
            round = round.saturating_add(1);
            if round < ROUNDS_BEHIND_FIRST && self.first_waiters.load(Ordering::Relaxed) > 0 {
                continue;
            }
            if let Some(guard) = self.lock_if_free() {
                return guard;
            }
        }
    }

    /// A load keeps the line shared among the waiters; a failed compare-exchange would take it from the holder, which is about
    /// to need it.
    fn lock_if_free(&self) -> Option<Guard<'_, T, W>> {
        if self.taken.load(Ordering::Relaxed) { None } else { self.try_lock() }
    }
}

impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Lock::new(T::default())
    }
}

impl<T, W> fmt::Debug for Lock<T, W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// Exclusive access to a lock's value. Dropping it unlocks, also during a panic.
#[must_use = "the lock is free again as soon as the guard is dropped"]
pub struct Guard<'a, T, W: Word = AtomicBool> {
    lock: &'a Lock<T, W>,
    /// Keeps the guard in its thread and unshared: a shared guard would share the value, whose type promises only that
    /// it can be sent.
    in_thread: PhantomData<*mut T>,
}

impl<T, W: Word> Deref for Guard<'_, T, W> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one (see `try_lock`), and it is borrowed for as long as the reference lives.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T, W: Word> DerefMut for Guard<'_, T, W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard is the only one (see `try_lock`), and it is borrowed mutably, so no other reference from
        // it exists.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, W: Word> Drop for Guard<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        // Release makes the writes under the lock visible to the next holder.
        self.lock.taken.clear(Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        cell::Cell,
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::AtomicUsize,
    };

    /// Checks every interleaving of small programs, and every value that the orderings allow a load to return.
    mod model {
        use super::*;
        use loom::{
            cell,
            model::Builder,
            sync::{Arc, atomic::AtomicBool as Modelled},
        };

        impl Word for Modelled {
            fn set(&self, success: Ordering) -> bool {
                self.compare_exchange(false, true, success, Ordering::Relaxed).is_ok()
            }

            fn load(&self, order: Ordering) -> bool {
                Modelled::load(self, order)
            }

            fn clear(&self, order: Ordering) {
                self.store(false, order);
            }

            fn wait(_: u32) {
                loom::thread::yield_now();
            }
        }

        /// A number whose every access the checker tracks: two unordered accesses fail the test.
        type Number = cell::UnsafeCell<u64>;

        fn modelled() -> Arc<Lock<Number, Modelled>> {
            Arc::new(Lock::with_word(Modelled::new(false), Number::new(0)))
        }

        fn increment(number: &Number) {
            number.with_mut(|number| {
                // SAFETY: the checker allows no concurrent access, or fails the test.
                unsafe { *number += 1 }
            });
        }

        fn value(number: &Number) -> u64 {
            // SAFETY: as in `increment`.
            number.with(|number| unsafe { *number })
        }

        fn bounded(preemptions: usize, program: impl Fn() + Send + Sync + 'static) {
            let mut builder = Builder::new();
            builder.preemption_bound = Some(preemptions);
            builder.check(program);
        }

        /// Two threads lock twice each, the other one by `lock_other`.
        fn check(preemptions: usize, lock_other: fn(&Lock<Number, Modelled>) -> Guard<'_, Number, Modelled>) {
            bounded(preemptions, move || {
                let lock = modelled();
                let other = {
                    let lock = lock.clone();
                    loom::thread::spawn(move || {
                        increment(&lock_other(&lock));
                        increment(&lock_other(&lock));
                    })
                };
                increment(&lock.lock());
                increment(&lock.lock_reporting_contention().0);
                other.join().unwrap();
                assert_eq!(value(&lock_other(&lock)), 4);
            });
        }

        #[test]
        fn holders_are_ordered() {
            check(3, Lock::lock);
        }

        #[test]
        fn lock_first_is_ordered() {
            check(2, Lock::lock_first);
        }

        /// Only one thread waits at a time, as above: the checker treats two that wait for each other's yield as a
        /// livelock.
        #[test]
        fn try_lock_is_ordered_or_fails() {
            bounded(2, || {
                let lock = modelled();
                let waiter = {
                    let lock = lock.clone();
                    loom::thread::spawn(move || increment(&lock.lock()))
                };
                let trier = {
                    let lock = lock.clone();
                    loom::thread::spawn(move || match lock.try_lock() {
                        Some(guard) => {
                            increment(&guard);
                            1
                        }
                        None => 0,
                    })
                };
                increment(&lock.lock());
                waiter.join().unwrap();
                let tried = trier.join().unwrap();
                assert_eq!(value(&lock.lock()), 2 + tried);
            });
        }
    }

    #[test]
    fn lock_shares_no_cache_line() {
        assert_eq!((align_of::<Lock<u8>>(), size_of::<Lock<u8>>()), (128, 128));
        assert_eq!(size_of::<Lock<[u64; 16]>>(), 256);
        assert_eq!(size_of::<Guard<'_, u64>>(), size_of::<usize>());
    }

    #[test]
    fn try_lock_fails_while_held() {
        static LOCK: Lock<u32> = Lock::new(1);
        let guard = LOCK.lock();
        assert!(LOCK.try_lock().is_none());
        drop(guard);
        *LOCK.try_lock().unwrap() += 1;
        let (guard, waited) = LOCK.lock_reporting_contention();
        assert_eq!((*guard, waited), (2, false));
    }

    thread_local! {
        /// The waits of the calling thread until the word is cleared; none if it is 0.
        static CLEARED_AFTER: Cell<u32> = const { Cell::new(0) };
        static WAITS: Cell<u32> = const { Cell::new(0) };
        /// How many threads were waiting to lock this lock first.
        static WATCHED: Cell<Option<&'static AtomicU32>> = const { Cell::new(None) };
        static FIRST_WAITERS: Cell<u32> = const { Cell::new(0) };
    }

    /// A word that is cleared after some waits, as if another thread unlocked.
    #[derive(Default)]
    struct ClearedWord(Cell<bool>);

    impl Word for ClearedWord {
        fn set(&self, order: Ordering) -> bool {
            let is_free = !self.load(order);
            self.0.set(true);
            is_free
        }
        fn load(&self, _: Ordering) -> bool {
            self.0.get() && (CLEARED_AFTER.get() == 0 || WAITS.get() < CLEARED_AFTER.get())
        }
        fn clear(&self, _: Ordering) {
            self.0.set(false);
        }
        fn wait(_: u32) {
            WAITS.set(WAITS.get() + 1);
            FIRST_WAITERS.set(WATCHED.get().map_or(0, |watched| watched.load(Ordering::Relaxed)));
        }
    }

    /// Returns the waits of a call that locks.
    fn waits<'a>(lock: impl FnOnce() -> Guard<'a, (), ClearedWord>) -> u32 {
        WAITS.set(0);
        drop(lock());
        WAITS.get()
    }

    #[test]
    fn other_threads_wait_for_one_that_locks_first() {
        let lock = Lock::with_word(ClearedWord::default(), ());
        assert_eq!([waits(|| lock.lock()), waits(|| lock.lock_first())], [0, 0]);
        // As if another thread waited.
        lock.first_waiters.fetch_add(1, Ordering::Relaxed);
        assert_eq!(waits(|| lock.lock()), ROUNDS_BEHIND_FIRST);
        assert_eq!(waits(|| lock.lock_first()), 0);
        let held: &'static Lock<(), ClearedWord> = Box::leak(Box::new(Lock::with_word(ClearedWord::default(), ())));
        WATCHED.set(Some(&held.first_waiters));
        for cleared_after in [1, ROUNDS_BEHIND_FIRST - 1, FIRST_POLLS + 5] {
            CLEARED_AFTER.set(cleared_after);
            held.taken.0.set(true);
            assert_eq!(waits(|| held.lock_first()), cleared_after);
            assert_eq!(FIRST_WAITERS.get(), 1);
            held.taken.0.set(true);
            assert_eq!(waits(|| held.lock()), cleared_after);
            assert_eq!(FIRST_WAITERS.get(), 0);
            assert_eq!(held.first_waiters.load(Ordering::Relaxed), 0);
        }
        CLEARED_AFTER.set(0);
    }

    #[test]
    fn lock_reports_contention() {
        let lock = Lock::new(());
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let guard = lock.lock();
            let waiter = scope.spawn(|| {
                begun.store(true, Ordering::Release);
                lock.lock_reporting_contention().1
            });
            while !begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // Long enough for every kind of wait.
            thread::sleep(Duration::from_millis(100));
            drop(guard);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn a_panic_unlocks() {
        let lock = Lock::new(5);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let _guard = lock.lock();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(result.is_err());
        assert_eq!(*lock.lock(), 5);
    }

    #[test]
    fn many_threads_lose_no_update() {
        const THREADS: usize = 8;
        const EACH: usize = 20_000;
        let lock = Lock::new((0usize, 0usize));
        let waits = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for step in 0..EACH {
                        let (mut guard, waited) =
                            if step % 4 == 0 { (lock.lock(), false) } else { lock.lock_reporting_contention() };
                        assert_eq!(guard.0, guard.1);
                        guard.0 += 1;
                        // Simulates a holder that is preempted in the middle of its change.
                        if step % 5_000 == 0 {
                            thread::yield_now();
                        }
                        guard.1 += 1;
                        drop(guard);
                        waits.fetch_add(usize::from(waited), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (THREADS * EACH, THREADS * EACH));
        assert!(waits.into_inner() < THREADS * EACH);
    }
}

//! The mutex of an arena, as cheap as a mutex can be: an allocation and the free that follows it take it twice and
//! are to cost some 20 ns in all.
//!
//! To lock is one compare-exchange where nobody is in the way, and to unlock is one plain store: the holder does not
//! ask whether anybody waits, so it needs no second read-modify-write and never calls the kernel. The price is paid by
//! those who wait. They look again and again, first spinning, then giving the processor up, then sleeping, and no
//! queue says whose turn it is.
//!
//! That is right for sections like an arena's and for no others: they last tens of nanoseconds, because nothing in
//! them calls the driver, the system or a callback of the user's. A waiter gets past the spinning only where the
//! holder lost its processor, and sleeps, rather than yields without end, because a yield never lets a holder of
//! lower real-time priority run.
//!
//! A panic unlocks, and nothing is poisoned. The panic becomes the status of the call that it happened in; a lock that
//! stayed taken would hang every later call instead of that, and a poisoned one would fail every later free, of memory
//! that is sound, while the allocator can walk and check its structures whenever it is in doubt.

use std::{
    cell::UnsafeCell,
    fmt, hint,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Rounds of waiting that spin, each twice as long as the one before: a few microseconds together.
const SPINS: u32 = 6;
/// Rounds after those that let another thread have the processor.
const YIELDS: u32 = 4;
const SHORTEST_SLEEP: Duration = Duration::from_micros(2);
/// Doublings of the sleep; the longest is 64 microseconds.
const LONGER_SLEEPS: u32 = 5;

/// What a lock asks of its word. The processor's is [`AtomicBool`]; the model checker of the tests has its own, under
/// which the code and the orderings here are tried as they stand.
pub trait Word {
    /// As [`AtomicBool::compare_exchange`] from `false` to `true`; whether it did.
    fn set(&self, success: Ordering) -> bool;
    /// As [`AtomicBool::load`].
    fn load(&self, order: Ordering) -> bool;
    /// As [`AtomicBool::store`] of `false`.
    fn clear(&self, order: Ordering);
    /// Waits a little, the longer the higher the round.
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
        if round < SPINS {
            for _ in 0..1u32 << round {
                hint::spin_loop();
            }
        } else if round < SPINS + YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(SHORTEST_SLEEP * (1 << (round - SPINS - YIELDS).min(LONGER_SLEEPS)));
        }
    }
}

/// A value that one thread at a time may use.
///
/// It begins a cache line that it shares with no other lock, and no neighbour of the line either, since processors
/// fetch lines in pairs. The value follows the word, so that who gets the word has the value's first fields with it.
#[repr(C, align(128))]
pub struct Lock<T, W = AtomicBool> {
    taken: W,
    value: UnsafeCell<T>,
}

// SAFETY: a reference to the value is had only through a guard, and there is one guard at a time (see `try_lock`), so
// threads that share the lock hand the value to each other and never share it: that needs `T: Send` and no more. The
// word is shared itself, hence `W: Sync`.
unsafe impl<T: Send, W: Sync> Sync for Lock<T, W> {}

impl<T> Lock<T> {
    /// A lock that is free.
    pub const fn new(value: T) -> Self {
        Lock { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }
}

impl<T, W: Word> Lock<T, W> {
    /// Waits until the value is free, and takes it. A thread that holds it already waits for ever.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, W> {
        self.lock_noting().0
    }

    /// The same, and whether another thread was in the way: the sign that threads had better have values of their own.
    #[inline]
    pub fn lock_noting(&self) -> (Guard<'_, T, W>, bool) {
        match self.try_lock() {
            Some(guard) => (guard, false),
            None => (self.wait(), true),
        }
    }

    /// Takes the value if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, W>> {
        // The one way to a guard: only one thread turns the word to `true`, and only the guard that this gives turns it
        // back. Acquire makes what the last holder wrote before its release visible here.
        self.taken.set(Ordering::Acquire).then(|| Guard { lock: self, in_thread: PhantomData })
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T, W> {
        let mut round = 0u32;
        loop {
            W::wait(round);
            round = round.saturating_add(1);
            // Reading leaves the line with all who wait; a failed compare-exchange would take it from the holder, who
            // is about to need it.
            if !self.taken.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
        }
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

/// The right to use a lock's value; to drop it unlocks, also when a panic drops it.
#[must_use = "the lock is free again as soon as the guard is dropped"]
pub struct Guard<'a, T, W: Word = AtomicBool> {
    lock: &'a Lock<T, W>,
    /// Keeps the guard in its thread, and shared with no other: a shared guard would share the value, whose type
    /// promises only that it can be handed on.
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
        // SAFETY: this guard is the only one (see `try_lock`), and it is borrowed mutably, so that no other reference
        // out of it lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T, W: Word> Drop for Guard<'_, T, W> {
    #[inline]
    fn drop(&mut self) {
        // Release makes what was written under the lock visible to the next holder.
        self.lock.taken.clear(Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::atomic::AtomicUsize,
    };

    /// Tries every interleaving, and every value that the orderings let a load see, of small programs.
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

        /// A number whose every use the checker watches: two that are not ordered fail the test.
        type Number = cell::UnsafeCell<u64>;

        fn modelled() -> Arc<Lock<Number, Modelled>> {
            Arc::new(Lock { taken: Modelled::new(false), value: UnsafeCell::new(Number::new(0)) })
        }

        fn increment(number: &Number) {
            number.with_mut(|number| {
                // SAFETY: the checker lets no other access be at the same time, or fails the test.
                unsafe { *number += 1 }
            });
        }

        fn value(number: &Number) -> u64 {
            // SAFETY: as above.
            number.with(|number| unsafe { *number })
        }

        fn bounded(preemptions: usize, program: impl Fn() + Send + Sync + 'static) {
            let mut builder = Builder::new();
            builder.preemption_bound = Some(preemptions);
            builder.check(program);
        }

        #[test]
        fn holders_are_ordered() {
            bounded(3, || {
                let lock = modelled();
                let other = {
                    let lock = lock.clone();
                    loom::thread::spawn(move || {
                        increment(&lock.lock());
                        increment(&lock.lock());
                    })
                };
                increment(&lock.lock());
                increment(&lock.lock_noting().0);
                other.join().unwrap();
                assert_eq!(value(&lock.lock()), 4);
            });
        }

        /// One waiter at a time, as above: the checker takes two that wait for each other's yield for a livelock.
        #[test]
        fn a_try_is_ordered_or_refused() {
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
    fn a_lock_has_its_lines_to_itself() {
        assert_eq!((align_of::<Lock<u8>>(), size_of::<Lock<u8>>()), (128, 128));
        assert_eq!(size_of::<Lock<[u64; 16]>>(), 256);
        assert_eq!(size_of::<Guard<'_, u64>>(), size_of::<usize>());
    }

    #[test]
    fn a_held_lock_refuses() {
        static LOCK: Lock<u32> = Lock::new(1);
        let guard = LOCK.lock();
        assert!(LOCK.try_lock().is_none());
        drop(guard);
        *LOCK.try_lock().unwrap() += 1;
        let (guard, waited) = LOCK.lock_noting();
        assert_eq!((*guard, waited), (2, false));
    }

    #[test]
    fn who_waits_is_told() {
        let lock = Lock::new(());
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            let guard = lock.lock();
            let waiter = scope.spawn(|| {
                begun.store(true, Ordering::Release);
                lock.lock_noting().1
            });
            while !begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // Long enough for every way of waiting to have its turn.
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
                        let (mut guard, waited) = if step % 4 == 0 { (lock.lock(), false) } else { lock.lock_noting() };
                        assert_eq!(guard.0, guard.1);
                        guard.0 += 1;
                        // A holder that loses its processor now and then, in the middle of its change.
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

//! The lock against every interleaving of small programs, and with threads.

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

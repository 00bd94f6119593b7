//! The peaks against a model, for threads one after the other and for concurrent ones.

use super::*;
use crate::{
    driver::Stream,
    memory::{
        arena::{Key, StreamUse},
        block::{UNIT, Zone, zone_of},
        counters::{Counters, max_of},
        pool::PoolId,
        stats::ByPool,
    },
};
use proptest::prelude::*;
use std::{
    sync::atomic::{AtomicU32, AtomicU64},
    thread as threads,
};

fn arenas(memory: &DeviceMemory, count: usize) -> Vec<&'static Arena> {
    let key = |stream| Key { stream, thread: 0, pool: PoolId::DEFAULT, ended: 0 };
    // Arenas of other tests must not lend budget.
    static DEVICES: AtomicU32 = AtomicU32::new(1 << 16);
    let device = DEVICES.fetch_add(1, Ordering::Relaxed);
    let user = StreamUse { stream: Stream::DEFAULT, device, thread: 0, generation: 0 };
    (0..count).map(|stream| memory.arena(key(stream), user).unwrap().0).collect()
}

/// Changes the counters of an arena as an allocation does.
fn change(memory: &DeviceMemory, arena: &Arena, body: impl FnOnce(&mut Counters)) {
    let mut inner = arena.lock();
    body(&mut inner.space.counters);
    let needs_attention = inner.space.counters.needs_attention;
    drop(inner);
    if needs_attention {
        ensure_budget(memory, arena);
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Allocates a block in an arena.
    Alloc(usize, u64),
    /// Frees a block; at once, or after another stream.
    Free(usize, bool),
    /// Completes a deferred free.
    Complete(usize),
    /// Maps a handle in an arena.
    Map(usize, u64),
    /// Unmaps a handle.
    Unmap(usize),
    /// Allocates a block of another backend.
    AllocOther(u64),
    /// Frees the blocks of the other backend.
    FreeOther,
    /// Resets the peaks.
    Reset,
    /// Continues in another thread.
    NextThread,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![1_u64..5_000, 1_u64..4 << 20];
    prop_oneof![
        12 => (0_usize..ARENAS, bytes()).prop_map(|(arena, bytes)| Step::Alloc(arena, bytes)),
        9 => (any::<usize>(), any::<bool>()).prop_map(|(index, deferred)| Step::Free(index, deferred)),
        3 => any::<usize>().prop_map(Step::Complete),
        2 => (0_usize..ARENAS, bytes()).prop_map(|(arena, bytes)| Step::Map(arena, bytes)),
        1 => any::<usize>().prop_map(Step::Unmap),
        2 => bytes().prop_map(Step::AllocOther),
        1 => Just(Step::FreeOther),
        1 => Just(Step::Reset),
        1 => Just(Step::NextThread),
    ]
}

const ARENAS: usize = 5;

/// A device with arenas, and a model of it: the blocks and the peaks of their sums.
struct Program {
    memory: DeviceMemory,
    arenas: Vec<&'static Arena>,
    /// Arena and requested bytes.
    live: Vec<(usize, u64)>,
    waiting: Vec<(usize, u64)>,
    mapped: Vec<(usize, u64)>,
    other: Vec<u64>,
    peaks: ScopedLevels,
}

fn size_of(requested: u64) -> u64 {
    requested.next_multiple_of(UNIT)
}

impl Program {
    fn new() -> Self {
        let memory = DeviceMemory::default();
        let arenas = arenas(&memory, ARENAS);
        let peaks = ScopedLevels::default();
        Program { memory, arenas, live: vec![], waiting: vec![], mapped: vec![], other: vec![], peaks }
    }

    fn levels(&self) -> ScopedLevels {
        let mut levels = ScopedLevels::default();
        let mut add = |requested: u64, quantities: &[(Quantity, u64)]| {
            for scope in [zone_of(size_of(requested)) as usize, ALL] {
                for (quantity, amount) in quantities {
                    levels[scope][*quantity as usize] += amount;
                }
            }
        };
        let live = self.live.iter().map(|(_, requested)| requested);
        let waiting = self.waiting.iter().map(|(_, requested)| requested);
        for requested in live.clone().chain(&self.other) {
            let size = size_of(*requested);
            add(*requested, &[(Quantity::Count, 1), (Quantity::Bytes, size)]);
        }
        for requested in live.chain(waiting).chain(&self.other) {
            let size = size_of(*requested);
            add(*requested, &[(Quantity::Active, 1), (Quantity::ActiveBytes, size), (Quantity::Requested, *requested)]);
        }
        for (_, bytes) in &self.mapped {
            add(*bytes, &[(Quantity::Segments, 1), (Quantity::Reserved, *bytes)]);
        }
        levels
    }

    fn run(&mut self, step: &Step) {
        let zone = |requested: u64| zone_of(size_of(requested));
        let memory = &self.memory;
        match *step {
            Step::Alloc(arena, requested) => {
                self.live.push((arena, requested));
                change(memory, self.arenas[arena], |counters| {
                    counters.count_alloc(zone(requested), size_of(requested), requested);
                });
            }
            Step::Free(index, deferred) if !self.live.is_empty() => {
                let (arena, requested) = self.live.swap_remove(index % self.live.len());
                change(memory, self.arenas[arena], |counters| {
                    counters.count_free(zone(requested), size_of(requested), requested);
                    if deferred {
                        counters.count_deferred_free(zone(requested), size_of(requested), requested);
                    }
                });
                if deferred {
                    self.waiting.push((arena, requested));
                }
            }
            Step::Complete(index) if !self.waiting.is_empty() => {
                let (arena, requested) = self.waiting.swap_remove(index % self.waiting.len());
                change(memory, self.arenas[arena], |counters| {
                    counters.count_deferred_free_done(zone(requested), size_of(requested), requested);
                });
            }
            Step::Map(arena, bytes) => {
                self.mapped.push((arena, bytes));
                self.arenas[arena].lock().space.count_mapped(zone(bytes), bytes);
            }
            Step::Unmap(index) if !self.mapped.is_empty() => {
                let (arena, bytes) = self.mapped.swap_remove(index % self.mapped.len());
                self.arenas[arena].lock().space.count_unmapped(zone(bytes), bytes);
            }
            Step::AllocOther(requested) => {
                self.other.push(requested);
                self.count_others(|by_pool, amount| by_pool.add(zone(requested), amount), requested);
                count_other_backends(&self.memory);
            }
            Step::FreeOther => {
                for requested in std::mem::take(&mut self.other) {
                    self.count_others(|by_pool, amount| by_pool.sub(zone(requested), amount), requested);
                }
            }
            Step::Reset => {
                reset(memory);
                self.peaks = ScopedLevels::default();
            }
            Step::Free(..) | Step::Complete(_) | Step::Unmap(_) | Step::NextThread => {}
        }
        self.peaks = max_of(self.peaks, &self.levels());
    }

    fn count_others(&self, change: impl Fn(&mut ByPool, u64), requested: u64) {
        let mut others = self.memory.others.lock();
        change(&mut others.allocation, 1);
        change(&mut others.active, 1);
        change(&mut others.allocated_bytes, size_of(requested));
        change(&mut others.active_bytes, size_of(requested));
        change(&mut others.requested_bytes, requested);
    }
}

fn assert_peaks(found: &ScopedLevels, expected: &ScopedLevels) {
    for (index, (found, expected)) in found.as_flattened().iter().zip(expected.as_flattened()).enumerate() {
        let is_exact = index == ALL_BYTES || BUDGETED & 1 << index == 0;
        let slack = if is_exact { 0 } else { found / SLACK_DIVISOR };
        assert!(found <= expected && expected - found <= slack, "{index}: {found} instead of {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The peaks of one thread at a time are exact, or too low by the slack at most, whichever thread it is and
    /// whether or not they are read.
    #[test]
    fn peaks_match_the_model(steps in prop::collection::vec(step(), 1..150), read_each in any::<bool>()) {
        let mut program = Program::new();
        for steps in steps.split(|step| matches!(step, Step::NextThread)) {
            let program = &mut program;
            let run = move || {
                for step in steps {
                    program.run(step);
                    for arena in &program.arenas {
                        assert_eq!(arena.lock().space.counters.check(), Ok(()));
                    }
                    if read_each {
                        let counted = read(&program.memory);
                        assert_eq!(counted.levels, program.levels(), "{step:?}");
                        assert_peaks(&counted.peaks, &program.peaks);
                    }
                }
            };
            threads::scope(|scope| scope.spawn(run).join()).unwrap();
        }
        assert_peaks(&read(&program.memory).peaks, &program.peaks);
    }
}

/// Concurrent threads: the peak is between what was certainly allocated at once, less the allowances, and what can
/// have been allocated at once.
#[test]
fn concurrent_peaks_are_within_the_allowances() {
    const THREADS: usize = 4;
    let memory = DeviceMemory::default();
    let arenas = arenas(&memory, THREADS);
    let (least, most) = ([const { AtomicU64::new(0) }; 2], [const { AtomicU64::new(0) }; 2]);
    let add = |sum: &[AtomicU64; 2], bytes: u64| {
        let now = sum[0].fetch_add(bytes, Ordering::SeqCst) + bytes;
        sum[1].fetch_max(now, Ordering::SeqCst);
    };
    threads::scope(|scope| {
        for (number, arena) in arenas.iter().enumerate() {
            let (memory, add, least, most) = (&memory, &add, &least, &most);
            scope.spawn(move || {
                let mut random = number as u64 + 1;
                let mut live = Vec::new();
                for _ in 0..4000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    if (random >> 40) % 32 > live.len() as u64 {
                        let bytes = ((random >> 33) % (32 << 20) + 1).next_multiple_of(UNIT);
                        live.push(bytes);
                        add(most, bytes);
                        change(memory, arena, |counters| counters.count_alloc(Zone::Large, bytes, bytes));
                        add(least, bytes);
                    } else if let Some(bytes) = live.pop() {
                        least[0].fetch_sub(bytes, Ordering::SeqCst);
                        arena.lock().space.counters.count_free(Zone::Large, bytes, bytes);
                        most[0].fetch_sub(bytes, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    let (_, peak) = read(&memory).live();
    let [least, most] = [least, most].map(|sum| sum[1].load(Ordering::SeqCst));
    let allowances = (peak / ALLOWANCE_DIVISOR).max(THREADS as u64 * MIN_ALLOWANCE[Quantity::Bytes as usize]);
    assert!(least <= peak + allowances, "{least} were allocated at once, the peak is {peak}");
    assert!(peak <= most, "at most {most} were allocated at once, the peak is {peak}");
}

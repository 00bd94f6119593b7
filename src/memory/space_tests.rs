//! Runs random programs on a space, against a model that is only a list of live blocks.

use super::{
    block::{BlockId, Zone},
    block::{round, zone_of},
    directory,
    growth::{DetachedHandle, GrowthCandidate, ReclaimableHandle},
    mapped::Backing,
    sections::LARGEST_GROWTH,
    space::Space,
};
use crate::driver::Physical;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const GRANULE: u64 = 2 << 20;

/// Each space of the tests has its own numbers and addresses, because the directory is global.
static NUMBERS: AtomicU32 = AtomicU32::new(40_000);
static ADDRESSES: AtomicU64 = AtomicU64::new(0x1000_0000_0000);
static HANDLES: AtomicU64 = AtomicU64::new(1);

#[derive(Debug, Clone)]
enum Step {
    Alloc(u64),
    Free(usize),
    Coalesce,
    /// Moves up to this many handles to where the next growth needs them.
    Move(usize),
    /// Releases one handle.
    Release(usize),
    /// Suspends the space, frees up to this many blocks meanwhile, and resumes it. If the flag is set, drops the
    /// suspended mappings in free blocks first.
    Sleep(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..2_000_000).prop_map(Step::Alloc),
        2 => (1_u64..40_000_000).prop_map(Step::Alloc),
        1 => (1_u64..12).prop_map(|granules| Step::Alloc(granules * GRANULE)),
        4 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Coalesce),
        1 => (1_usize..5).prop_map(Step::Move),
        1 => any::<usize>().prop_map(Step::Release),
        1 => (0_usize..4, any::<bool>()).prop_map(|(frees, forget)| Step::Sleep(frees, forget)),
    ]
}

struct Program {
    space: Space,
    live: Vec<(u64, u64)>,
}

impl Program {
    fn new() -> Self {
        Program { space: Space::new(NUMBERS.fetch_add(1, Ordering::Relaxed), Default::default()), live: Vec::new() }
    }

    fn region(&mut self, zone: Zone, bytes: u64) {
        let address = ADDRESSES.fetch_add(bytes, Ordering::Relaxed);
        self.space.add_region(address, bytes, zone);
    }

    fn candidate(&mut self, size: u64) -> GrowthCandidate {
        let zone = zone_of(size);
        if self.space.growth_candidates(zone, size, GRANULE, self.space.uses_sections).is_empty() {
            self.region(zone, 256 << 20);
        }
        self.space.growth_candidates(zone, size, GRANULE, self.space.uses_sections)[0]
    }

    fn alloc(&mut self, bytes: u64) {
        let size = round(bytes).unwrap();
        if let Some(address) = self.space.allocate(size, bytes) {
            self.live.push((address, size));
            return;
        }
        // Coalesced blocks might suffice; growing anyway must do no harm.
        self.space.coalesce_all();
        let candidate = self.candidate(size);
        let site = self.space.reserve_site(candidate);
        let address = self.space.commit_site(site, &[(new_handle(), candidate.need)], size, bytes);
        self.live.push((address, size));
    }

    fn free(&mut self, index: usize) {
        if self.live.is_empty() {
            return;
        }
        let (address, _) = self.live.swap_remove(index % self.live.len());
        let id = self.id_of(address);
        self.space.free(id);
    }

    fn id_of(&self, address: u64) -> BlockId {
        let entry = directory::find(address).unwrap();
        assert!(self.space.live(entry.block, address).is_some(), "{address:#x}");
        entry.block
    }

    /// Moves handles and serves a request with them, as an arena does at its limit.
    fn move_handles(&mut self, limit: usize) {
        self.space.coalesce_all();
        let reclaimable: Vec<_> = self.space.reclaimable_handles().into_iter().take(limit).collect();
        let detached: Vec<DetachedHandle> = reclaimable.iter().filter_map(|handle| self.space.detach(handle)).collect();
        let bytes: u64 = detached.iter().map(|detached| detached.bytes).sum();
        if bytes == 0 {
            return;
        }
        self.region(Zone::Large, bytes);
        let candidate = self
            .space
            .growth_candidates(Zone::Large, bytes, GRANULE, false)
            .into_iter()
            .find(|candidate| candidate.need >= bytes);
        match candidate {
            Some(candidate) => {
                let site = self.space.reserve_site(candidate);
                let handles: Vec<_> = detached.iter().map(|detached| (detached.physical, detached.bytes)).collect();
                let address = self.space.commit_site(site, &handles, bytes, bytes);
                self.live.push((address, bytes));
                for detached in &detached {
                    self.space.mark_moved(detached);
                    self.space.free_addresses(detached.block, detached.address);
                }
            }
            None => detached.iter().for_each(|detached| self.space.reattach(detached.block)),
        }
    }

    fn release(&mut self, index: usize) {
        let reclaimable = self.space.reclaimable_handles();
        if reclaimable.is_empty() {
            return;
        }
        if let Some(detached) = self.space.detach(&reclaimable[index % reclaimable.len()]) {
            self.space.mark_moved(&detached);
            self.space.free_addresses(detached.block, detached.address);
        }
    }

    fn sleep(&mut self, frees: usize, forget: bool) {
        let before = self.space.mapped_bytes();
        let handles = self.space.mapped_handles().unwrap();
        for (mapping, _) in &handles {
            self.space.set_backing(*mapping, Backing::Suspended);
            self.check();
        }
        assert_eq!(self.space.mapped_bytes(), 0);
        assert!(self.space.mapped_handles().unwrap().is_empty());
        for index in 0..frees {
            self.free(index);
        }
        self.space.coalesce_all();
        assert!(self.space.reclaimable_handles().is_empty(), "suspended memory cannot move");
        let mut forgotten = 0;
        if forget {
            let free: u64 = self
                .space
                .reclaimable_handles_where(|backing| backing == Backing::Suspended)
                .iter()
                .map(|handle| handle.bytes)
                .sum();
            self.space.drop_suspended_state();
            forgotten = free;
            self.check();
        }
        for mapping in self.space.suspended_mappings() {
            self.space.set_backing(mapping, Backing::Handle(new_handle()));
            self.check();
        }
        assert_eq!(self.space.mapped_bytes(), before - forgotten);
    }

    fn check(&self) {
        assert_eq!(self.space.check(), Ok(()));
        let mut live = self.live.clone();
        live.sort_unstable();
        for pair in live.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
        }
        assert_eq!(self.space.counters.live(), live.iter().map(|block| block.1).sum::<u64>());
        for (address, _) in live {
            self.id_of(address);
        }
    }
}

fn new_handle() -> Physical {
    Physical::dangling(HANDLES.fetch_add(1, Ordering::Relaxed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_keep_the_space_consistent(
        steps in prop::collection::vec(step(), 1..120),
        uses_sections in any::<bool>(),
    ) {
        let mut program = Program::new();
        program.space.uses_sections = uses_sections;
        for step in steps {
            match step {
                Step::Alloc(bytes) => program.alloc(bytes),
                Step::Free(index) => program.free(index),
                Step::Coalesce => { program.space.coalesce_all(); }
                Step::Move(limit) => program.move_handles(limit),
                Step::Release(index) => program.release(index),
                Step::Sleep(frees, forget) => program.sleep(frees, forget),
            }
            program.check();
        }
        while !program.live.is_empty() {
            program.free(0);
        }
        program.space.coalesce_all();
        while !program.space.reclaimable_handles().is_empty() {
            program.release(0);
        }
        program.check();
        // Without live blocks every handle is completely free, so nothing stays mapped.
        prop_assert_eq!(program.space.mapped_bytes(), 0);
        prop_assert!(program.space.is_empty());
    }
}

#[test]
fn released_site_leaves_space_unchanged() {
    let mut program = Program::new();
    program.alloc(3 << 20);
    program.alloc(5 << 20);
    program.free(0);
    program.space.coalesce_all();
    let before = (program.space.largest_free(), program.space.growth_candidates(Zone::Large, 40 << 20, GRANULE, false));
    let site = program.space.reserve_site(before.1[0]);
    program.space.release_site(site);
    assert_eq!(
        (program.space.largest_free(), program.space.growth_candidates(Zone::Large, 40 << 20, GRANULE, false)),
        before
    );
    program.check();
}

#[test]
fn same_size_reuses_same_block() {
    let mut program = Program::new();
    for bytes in [512, 100_000, 1 << 20, 64 << 20] {
        program.alloc(bytes);
        let (address, _) = program.live[0];
        program.free(0);
        program.alloc(bytes);
        assert_eq!(program.live[0].0, address, "{bytes}");
        program.free(0);
    }
}

#[test]
fn a_block_is_found_after_one_inside_its_cell_of_the_directory() {
    const KIB: u64 = 1 << 10;
    let mut program = Program::new();
    program.alloc(1536 * KIB);
    let first = program.live[0].0;
    program.alloc(2048 * KIB);
    program.free(0);
    program.space.coalesce_all();
    program.alloc(1152 * KIB);
    program.free(0);
    program.alloc(1280 * KIB);
    let address = first + 1152 * KIB;
    assert_eq!(program.live.last().map(|(address, _)| *address), Some(address));
    program.free(1);
    program.space.coalesce_all();
    // A checkpoint allocates a block inside the free one, in the same MiB.
    let (block, _) = program.space.blocks.iter().find(|(_, block)| block.address == address).unwrap();
    let inside = ReclaimableHandle { block, block_bytes: 0, address: first + 1536 * KIB, bytes: 2048 * KIB };
    let id = program.space.detach_block(&inside).unwrap();
    program.space.mark_live(id, inside.bytes);
    program.live.push((inside.address, inside.bytes));
    program.free(1);
    program.space.coalesce_all();
    program.alloc(1280 * KIB);
    assert_eq!(program.live.last().map(|(address, _)| *address), Some(address));
    program.id_of(address);
}

#[test]
fn a_block_is_placed_where_it_leaves_handles_whole() {
    const MIB: u64 = 1 << 20;
    let mut program = Program::new();
    (0..4).for_each(|_| program.alloc(8 * MIB));
    let first = program.live.iter().map(|(address, _)| *address).min().unwrap();
    (0..4).for_each(|_| program.free(0));
    program.space.coalesce_all();
    let mut place = |bytes| {
        program.alloc(bytes);
        program.check();
        program.live.last().map(|(address, _)| (*address - first) / MIB)
    };
    // The first and the last cut a handle in any case. The second would cut one at the beginning of the free block.
    assert_eq!([place(3 * MIB), place(8 * MIB), place(6 * MIB)], [Some(0), Some(24), Some(3)]);
    let whole = program.space.reclaimable_handles();
    assert_eq!(whole.iter().map(|handle| handle.address - first).collect::<Vec<_>>(), [16 * MIB]);
}

#[test]
fn blocks_and_new_memory_are_placed_in_sections() {
    const MIB: u64 = 1 << 20;
    let mut program = Program::new();
    program.space.uses_sections = true;
    let start = ADDRESSES.fetch_add(256 * MIB, Ordering::Relaxed).next_multiple_of(LARGEST_GROWTH);
    program.space.add_region(start, 128 * MIB, Zone::Large);
    let place = |program: &mut Program, half_mib: u64| {
        program.alloc(half_mib * MIB / 2);
        program.check();
        program.live.last().map(|(address, _)| (*address - start) * 2 / MIB)
    };
    // In new memory: in sections of 4, 4 and 8 MiB, and in none.
    assert_eq!([6, 6, 10, 17].map(|half_mib| place(&mut program, half_mib)), [0, 8, 16, 26].map(Some));
    // In a free block from 3 to 8 MiB.
    let second = program.space.live_block_containing(start + 4 * MIB).unwrap();
    program.space.free(second);
    program.live.retain(|(address, _)| *address != start + 4 * MIB);
    program.space.coalesce_all();
    assert_eq!(place(&mut program, 7), Some(8));
    // 22 MiB are mapped, the last half MiB of them is free. A section of 4 MiB begins at 20 MiB.
    let hole = program.space.growth_candidates(Zone::Large, 5 * MIB / 2, GRANULE, true)[0];
    assert_eq!((hole.need, hole.room), (2 * MIB, 106 * MIB));
    let hole = program.space.growth_candidates(Zone::Large, 3 * MIB, GRANULE, true)[0];
    assert_eq!((hole.need, hole.room), (6 * MIB, 106 * MIB));
    let site = program.space.reserve_site(hole);
    assert_eq!(site.address(6 * MIB), start + 22 * MIB);
    // Up to 32 and 64 MiB, and to the end of the hole.
    assert_eq!([32, 64, 256].map(|growth| site.whole_growth(6 * MIB, growth * MIB) / MIB), [10, 42, 106]);
    program.space.release_site(site);
}

#[test]
fn a_region_holds_one_handle_of_a_pool_for_windows() {
    const MIB: u64 = 1 << 20;
    let mut program = Program::new();
    program.region(Zone::Large, 16 * MIB);
    program.region(Zone::Large, 64 * MIB);
    let need_of = |space: &Space, bytes| {
        space.unmapped_region(Zone::Large, bytes).map(|candidate| (candidate.need / MIB, candidate.room / MIB))
    };
    assert_eq!(program.space.unmapped_region(Zone::Small, MIB), None);
    assert_eq!(need_of(&program.space, 80 * MIB), None);
    assert_eq!(need_of(&program.space, 8 * MIB), Some((8, 16)));
    let candidate = program.space.unmapped_region(Zone::Large, 8 * MIB).unwrap();
    let site = program.space.reserve_site(candidate);
    let first = program.space.commit_site(site, &[(new_handle(), 8 * MIB)], 6 * MIB, 6 * MIB);
    // The rest of the region stays without memory, and the handle's own rest serves the next request.
    assert_eq!(need_of(&program.space, 8 * MIB), Some((8, 64)));
    assert_eq!(program.space.allocate(2 * MIB, 2 * MIB), Some(first + 6 * MIB));
    for address in [first, first + 6 * MIB] {
        let block = program.space.live_block_containing(address).unwrap();
        program.space.free(block);
    }
    program.space.coalesce_all();
    let handle = program.space.reclaimable_handles()[0];
    assert_eq!((handle.address, handle.bytes), (first, 8 * MIB));
    let detached = program.space.detach(&handle).unwrap();
    assert_eq!(need_of(&program.space, 8 * MIB), Some((8, 64)));
    program.space.mark_moved(&detached);
    program.space.free_addresses(detached.block, detached.address);
    assert_eq!(need_of(&program.space, 8 * MIB), Some((8, 16)));
    program.space.check().unwrap();
}

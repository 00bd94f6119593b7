//! Random programs over a space, against a model that is a list of live blocks and nothing else.

use super::{
    block::{Id, Zone},
    directory,
    growth::{Lifted, Spot},
    mapped::Backing,
    space::{Space, round, zone_of},
};
use crate::driver::Physical;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const GRANULE: u64 = 2 << 20;

/// Each space of the tests has numbers and addresses of its own: the directory is one for all.
static NUMBERS: AtomicU32 = AtomicU32::new(40_000);
static ADDRESSES: AtomicU64 = AtomicU64::new(0x1000_0000_0000);
static HANDLES: AtomicU64 = AtomicU64::new(1);

#[derive(Debug, Clone)]
enum Step {
    Alloc(u64),
    Free(usize),
    Settle,
    /// Moves up to so many handles to where the next growth needs them.
    Move(usize),
    /// Gives back one handle.
    Release(usize),
    /// Falls asleep, frees up to so many blocks meanwhile, and wakes; where nobody is to wake it, what is free is forgotten
    /// first.
    Sleep(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1_u64..2_000_000).prop_map(Step::Alloc),
        2 => (1_u64..40_000_000).prop_map(Step::Alloc),
        4 => any::<usize>().prop_map(Step::Free),
        1 => Just(Step::Settle),
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
        Program { space: Space::new(NUMBERS.fetch_add(1, Ordering::Relaxed)), live: Vec::new() }
    }

    fn region(&mut self, zone: Zone, bytes: u64) {
        let address = ADDRESSES.fetch_add(bytes, Ordering::Relaxed);
        self.space.add_region(address, bytes, zone);
    }

    fn spot(&mut self, size: u64) -> Spot {
        let zone = zone_of(size);
        if self.space.spots(zone, size, GRANULE).is_empty() {
            self.region(zone, 256 << 20);
        }
        self.space.spots(zone, size, GRANULE)[0]
    }

    fn alloc(&mut self, bytes: u64) {
        let size = round(bytes).unwrap();
        if let Some(address) = self.space.take(size, bytes) {
            self.live.push((address, size));
            return;
        }
        // Parked blocks that merge might be enough; growing all the same must do no harm.
        self.space.settle();
        let spot = self.spot(size);
        let site = self.space.hold(spot);
        let address = self.space.fill(site, &[(new_handle(), spot.need)], size, bytes);
        self.live.push((address, size));
    }

    fn free(&mut self, index: usize) {
        if self.live.is_empty() {
            return;
        }
        let (address, _) = self.live.swap_remove(index % self.live.len());
        let id = self.id_of(address);
        self.space.give_back(id);
    }

    fn id_of(&self, address: u64) -> Id {
        let entry = directory::find(address).unwrap();
        assert!(self.space.live(entry.block, address).is_some(), "{address:#x}");
        entry.block
    }

    /// Moves handles and meets a request with them, as an arena does that must not hold more.
    fn move_handles(&mut self, most: usize) {
        self.space.settle();
        let spares: Vec<_> = self.space.spares().into_iter().take(most).collect();
        let lifted: Vec<Lifted> = spares.iter().filter_map(|spare| self.space.lift(spare)).collect();
        let bytes: u64 = lifted.iter().map(|piece| piece.bytes).sum();
        if bytes == 0 {
            return;
        }
        self.region(Zone::Large, bytes);
        let spot = self.space.spots(Zone::Large, bytes, GRANULE).into_iter().find(|spot| spot.need >= bytes);
        match spot {
            Some(spot) => {
                let site = self.space.hold(spot);
                let handles: Vec<_> = lifted.iter().map(|piece| (piece.physical, piece.bytes)).collect();
                let address = self.space.fill(site, &handles, bytes, bytes);
                self.live.push((address, bytes));
                for piece in &lifted {
                    self.space.moved(piece);
                    self.space.vacate(piece.block, piece.address);
                }
            }
            None => lifted.iter().for_each(|piece| self.space.put_back(piece.block)),
        }
    }

    fn release(&mut self, index: usize) {
        let spares = self.space.spares();
        if spares.is_empty() {
            return;
        }
        if let Some(lifted) = self.space.lift(&spares[index % spares.len()]) {
            self.space.moved(&lifted);
            self.space.vacate(lifted.block, lifted.address);
        }
    }

    fn sleep(&mut self, frees: usize, forget: bool) {
        let before = self.space.mapped_bytes();
        let sleepers = self.space.sleepers().unwrap();
        for (dream, _) in &sleepers {
            self.space.change(*dream, Backing::Asleep);
            self.check();
        }
        assert_eq!(self.space.mapped_bytes(), 0);
        assert!(self.space.sleepers().unwrap().is_empty());
        for index in 0..frees {
            self.free(index);
        }
        self.space.settle();
        assert!(self.space.spares().is_empty(), "what sleeps cannot move");
        let mut forgotten = 0;
        if forget {
            let free: u64 =
                self.space.spares_of(|backing| backing == Backing::Asleep).iter().map(|spare| spare.bytes).sum();
            self.space.forget_dreams();
            forgotten = free;
            self.check();
        }
        for dream in self.space.dreams() {
            self.space.change(dream, Backing::Handle(new_handle()));
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
        assert_eq!(self.space.counters.live, live.iter().map(|block| block.1).sum::<u64>());
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
    fn random_programs_keep_the_space_whole(steps in prop::collection::vec(step(), 1..120)) {
        let mut program = Program::new();
        for step in steps {
            match step {
                Step::Alloc(bytes) => program.alloc(bytes),
                Step::Free(index) => program.free(index),
                Step::Settle => { program.space.settle(); }
                Step::Move(most) => program.move_handles(most),
                Step::Release(index) => program.release(index),
                Step::Sleep(frees, forget) => program.sleep(frees, forget),
            }
            program.check();
        }
        while !program.live.is_empty() {
            program.free(0);
        }
        program.space.settle();
        while !program.space.spares().is_empty() {
            program.release(0);
        }
        program.check();
        // A space without a live block has every handle wholly free, so that nothing stays mapped.
        prop_assert_eq!(program.space.mapped_bytes(), 0);
        prop_assert!(program.space.is_empty());
    }
}

#[test]
fn a_site_that_is_given_up_leaves_no_trace() {
    let mut program = Program::new();
    program.alloc(3 << 20);
    program.alloc(5 << 20);
    program.free(0);
    program.space.settle();
    let before = (program.space.largest_free(), program.space.spots(Zone::Large, 40 << 20, GRANULE));
    let site = program.space.hold(before.1[0]);
    program.space.abandon(site);
    assert_eq!((program.space.largest_free(), program.space.spots(Zone::Large, 40 << 20, GRANULE)), before);
    program.check();
}

#[test]
fn the_same_size_gets_the_same_block_again() {
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

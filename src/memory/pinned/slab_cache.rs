//! The blocks of one class: slabs of pinned memory cut into equal parts, and which of them are free. No driver call is made
//! here.

use super::class;

/// What a block is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// In the caller's hands.
    Live,
    /// The same, and streams or graphs use it.
    Used,
    /// Freed, while those may still use it.
    Waiting,
}

/// Where a slab's memory came from, and so how it goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Pinned memory of the driver's.
    Driver,
    /// Pages of the process, which were registered.
    Registered,
    /// A part of the reserve, which never goes back.
    Reserve,
}

/// Memory to cut up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Where it came from.
    pub origin: Origin,
}

/// A slab: a piece of memory, and the state of its blocks.
#[derive(Debug)]
pub struct Slab {
    /// The memory.
    pub piece: Piece,
    /// The free blocks; the last was freed last, and is the next to go.
    free: Vec<u16>,
    states: Box<[State]>,
}

impl Slab {
    /// A slab of a class with every block free; the lowest goes first.
    pub fn new(class: usize, piece: Piece) -> Self {
        let slots = class::slots(class) as usize;
        // No class has more blocks to a slab than 16 bits can number.
        let free = (0..slots).rev().map(|slot| slot as u16).collect();
        Slab { piece, free, states: vec![State::Free; slots].into() }
    }

    fn is_free(&self) -> bool {
        self.free.len() == self.states.len()
    }
}

/// What a free came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// The block is free.
    Free,
    /// It stays out of use until what uses it is done.
    Waits,
    /// There is no such block in anybody's hands.
    Unknown,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub struct Shelf {
    /// By number; `None` for a number that no slab has, or whose slab is away.
    slabs: Vec<Option<Slab>>,
    /// The numbers that no slab has.
    vacant: Vec<u32>,
    /// The slabs with free blocks; the last is used first.
    open: Vec<u32>,
    /// Blocks that were given out, since the sums were reset.
    pub given: u64,
    /// Blocks that came back and may be given out again, since then.
    pub returned: u64,
}

impl Shelf {
    /// Takes a free block, if there is one.
    #[inline]
    pub fn take(&mut self, size: u64) -> Option<u64> {
        let number = *self.open.last()?;
        let slab = self.slabs.get_mut(number as usize)?.as_mut()?;
        let slot = slab.free.pop()?;
        slab.states[slot as usize] = State::Live;
        if slab.free.is_empty() {
            self.open.pop();
        }
        self.given += 1;
        Some(slab.piece.address + u64::from(slot) * size)
    }

    /// The slab with this number, and the block of it that an address lies in.
    #[inline]
    fn locate(&mut self, number: u32, address: u64, size: u64) -> Option<(&mut Slab, usize)> {
        let slab = self.slabs.get_mut(number as usize)?.as_mut()?;
        let offset = address.checked_sub(slab.piece.address)?;
        let slot = (offset / size) as usize;
        (slot < slab.states.len()).then_some((slab, slot))
    }

    /// Takes back the block that begins at an address.
    #[inline]
    pub fn give_back(&mut self, number: u32, address: u64, size: u64) -> Given {
        let Some((slab, slot)) = self.locate(number, address, size) else { return Given::Unknown };
        if slab.piece.address + slot as u64 * size != address {
            return Given::Unknown;
        }
        match slab.states[slot] {
            State::Live => {
                self.shelve(number, slot);
                Given::Free
            }
            State::Used => {
                slab.states[slot] = State::Waiting;
                Given::Waits
            }
            State::Free | State::Waiting => Given::Unknown,
        }
    }

    /// Puts a block among the free ones.
    #[inline]
    fn shelve(&mut self, number: u32, slot: usize) {
        let Some(Some(slab)) = self.slabs.get_mut(number as usize) else { return };
        slab.states[slot] = State::Free;
        if slab.free.is_empty() {
            self.open.push(number);
        }
        slab.free.push(slot as u16);
        self.returned += 1;
    }

    /// Ends the wait of a block. Whether there was one.
    pub fn end_wait(&mut self, number: u32, address: u64, size: u64) -> bool {
        let Some((slab, slot)) = self.locate(number, address, size) else { return false };
        let waits = slab.states[slot] == State::Waiting;
        if waits {
            self.shelve(number, slot);
        }
        waits
    }

    /// Notes that streams or graphs use the live block that an address lies in, and returns where it begins.
    pub fn note_use(&mut self, number: u32, address: u64, size: u64) -> Option<u64> {
        let (slab, slot) = self.locate(number, address, size)?;
        if !matches!(slab.states[slot], State::Live | State::Used) {
            return None;
        }
        slab.states[slot] = State::Used;
        Some(slab.piece.address + slot as u64 * size)
    }

    /// The block in somebody's hands that an address lies in: where it begins.
    pub fn live_at(&mut self, number: u32, address: u64, size: u64) -> Option<u64> {
        let (slab, slot) = self.locate(number, address, size)?;
        let live = matches!(slab.states[slot], State::Live | State::Used);
        live.then(|| slab.piece.address + slot as u64 * size)
    }

    /// Whether an address lies in a slab's memory.
    pub fn has(&self, number: u32, address: u64) -> bool {
        let slab = self.slabs.get(number as usize).and_then(Option::as_ref);
        slab.is_some_and(|slab| address.wrapping_sub(slab.piece.address) < slab.piece.bytes)
    }

    /// A number for a slab that is to come.
    pub fn number(&mut self) -> u32 {
        self.vacant.pop().unwrap_or_else(|| {
            self.slabs.push(None);
            self.slabs.len() as u32 - 1
        })
    }

    /// Gives a number back.
    pub fn vacate(&mut self, number: u32) {
        self.vacant.push(number);
    }

    /// Adds a slab under the number that was kept for it.
    pub fn put(&mut self, number: u32, slab: Slab) {
        if let Some(place) = self.slabs.get_mut(number as usize) {
            *place = Some(slab);
            self.open.push(number);
        }
    }

    /// Takes out the slabs that are wholly free and can go back to the driver. Their numbers stay kept.
    pub fn remove_free(&mut self) -> Vec<(u32, Slab)> {
        let mut removed = Vec::new();
        for (number, place) in self.slabs.iter_mut().enumerate() {
            let slab = place.take_if(|slab| slab.is_free() && slab.piece.origin != Origin::Reserve);
            removed.extend(slab.map(|slab| (number as u32, slab)));
        }
        if !removed.is_empty() {
            let slabs = &self.slabs;
            self.open.retain(|number| slabs[*number as usize].is_some());
        }
        removed
    }

    /// What is wrong with the structure, if anything is; otherwise the slabs, their bytes, and the blocks that are not free.
    pub fn check(&self) -> Result<(u64, u64, u64), String> {
        let (mut slabs, mut bytes, mut active) = (0, 0, 0);
        for (number, slab) in self.slabs.iter().enumerate() {
            let number = number as u32;
            let listed = self.open.iter().filter(|open| **open == number).count();
            let Some(slab) = slab else {
                if listed != 0 {
                    return Err(format!("slab {number} is away and has free blocks"));
                }
                continue;
            };
            let free = slab.states.iter().filter(|state| **state == State::Free).count();
            let listed_free = slab.free.iter().all(|slot| slab.states.get(*slot as usize) == Some(&State::Free));
            let mut slots = slab.free.clone();
            slots.sort_unstable();
            slots.dedup();
            if !listed_free || slots.len() != free || slab.free.len() != free {
                return Err(format!("slab {number} lists {} free blocks, and has {free}", slab.free.len()));
            }
            if listed != usize::from(free > 0) {
                return Err(format!("slab {number} has {free} free blocks, and is found {listed} times"));
            }
            slabs += 1;
            bytes += slab.piece.bytes;
            active += (slab.states.len() - free) as u64;
        }
        Ok((slabs, bytes, active))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashMap};

    fn piece(class: usize, index: u64, origin: Origin) -> Piece {
        Piece { address: (index + 1) << 40, bytes: class::slab_bytes(class), origin }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Take,
        Free(usize),
        Use(usize),
        EndWait(usize),
        FreeNonsense(u64),
        Trim,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => Just(Step::Take),
            4 => any::<usize>().prop_map(Step::Free),
            2 => any::<usize>().prop_map(Step::Use),
            2 => any::<usize>().prop_map(Step::EndWait),
            1 => any::<u64>().prop_map(Step::FreeNonsense),
            1 => Just(Step::Trim),
        ];
        proptest::collection::vec(step, 1..300)
    }

    fn nth<T: Copy>(map: &BTreeMap<u64, T>, index: usize) -> Option<(u64, T)> {
        map.iter().nth(index.checked_rem(map.len())?).map(|(key, value)| (*key, *value))
    }

    proptest! {
        /// Beside a model that knows blocks by their addresses alone.
        #[test]
        fn a_shelf_does_as_its_model(steps in steps(), class in prop_oneof![Just(70usize), Just(94), Just(96), Just(200)]) {
            let size = class::size(class);
            let mut shelf = Shelf::default();
            let mut slabs: HashMap<u32, Piece> = HashMap::new();
            // Live blocks with whether they are used, and blocks that wait.
            let (mut live, mut waiting) = (BTreeMap::new(), BTreeMap::new());
            let mut added = 0;
            let number_of = |slabs: &HashMap<u32, Piece>, address: u64| {
                let found = slabs.iter().find(|(_, piece)| address.wrapping_sub(piece.address) < piece.bytes);
                found.map_or(0, |(number, _)| *number)
            };
            for step in steps {
                match step {
                    Step::Take => {
                        let address = shelf.take(size).unwrap_or_else(|| {
                            let number = shelf.number();
                            let origin = if added % 4 == 3 { Origin::Reserve } else { Origin::Driver };
                            let piece = piece(class, added, origin);
                            added += 1;
                            assert!(slabs.insert(number, piece).is_none());
                            shelf.put(number, Slab::new(class, piece));
                            shelf.take(size).unwrap()
                        });
                        let piece = slabs[&number_of(&slabs, address)];
                        prop_assert!(address >= piece.address && address + size <= piece.address + piece.bytes);
                        prop_assert!((address - piece.address).is_multiple_of(size));
                        prop_assert!(!waiting.contains_key(&address) && live.insert(address, false).is_none());
                    }
                    Step::Free(index) => if let Some((address, used)) = nth(&live, index) {
                        let number = number_of(&slabs, address);
                        let expected = if used { Given::Waits } else { Given::Free };
                        prop_assert_eq!(shelf.give_back(number, address + 1, size), Given::Unknown);
                        prop_assert_eq!(shelf.give_back(number, address, size), expected);
                        prop_assert_eq!(shelf.give_back(number, address, size), Given::Unknown);
                        live.remove(&address);
                        if used {
                            waiting.insert(address, ());
                        }
                    },
                    Step::Use(index) => if let Some((address, _)) = nth(&live, index) {
                        let number = number_of(&slabs, address);
                        prop_assert_eq!(shelf.note_use(number, address + size - 1, size), Some(address));
                        live.insert(address, true);
                    },
                    Step::EndWait(index) => if let Some((address, ())) = nth(&waiting, index) {
                        let number = number_of(&slabs, address);
                        prop_assert_eq!(shelf.note_use(number, address, size), None);
                        prop_assert!(shelf.end_wait(number, address, size) && !shelf.end_wait(number, address, size));
                        waiting.remove(&address);
                    },
                    Step::FreeNonsense(address) => {
                        prop_assert_eq!(shelf.give_back((address % 7) as u32, address | 1 << 63, size), Given::Unknown);
                    }
                    Step::Trim => {
                        let busy: Vec<u64> = live.keys().chain(waiting.keys()).copied().collect();
                        for (number, slab) in shelf.remove_free() {
                            let piece = slabs.remove(&number).unwrap();
                            prop_assert_eq!(piece, slab.piece);
                            prop_assert!(piece.origin != Origin::Reserve);
                            prop_assert!(busy.iter().all(|address| address.wrapping_sub(piece.address) >= piece.bytes));
                            shelf.vacate(number);
                        }
                        for piece in slabs.values().filter(|piece| piece.origin != Origin::Reserve) {
                            prop_assert!(busy.iter().any(|address| address.wrapping_sub(piece.address) < piece.bytes));
                        }
                    }
                }
                let found = shelf.check().unwrap();
                let bytes = slabs.values().map(|piece| piece.bytes).sum();
                prop_assert_eq!(found, (slabs.len() as u64, bytes, (live.len() + waiting.len()) as u64));
                prop_assert_eq!(shelf.given - shelf.returned, found.2);
            }
        }
    }

    #[test]
    fn the_last_freed_is_the_next_given() {
        let (class, mut shelf) = (0, Shelf::default());
        let size = class::size(class);
        let number = shelf.number();
        shelf.put(number, Slab::new(class, piece(class, 0, Origin::Driver)));
        let blocks: Vec<u64> = (0..4).map(|_| shelf.take(size).unwrap()).collect();
        assert_eq!(blocks[1], blocks[0] + size);
        assert_eq!(shelf.give_back(number, blocks[2], size), Given::Free);
        assert_eq!(shelf.take(size), Some(blocks[2]));
    }
}

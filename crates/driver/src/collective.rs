//! What the kernels of collectives are told, as kernels/collective.cu declares it, and their launch.

use super::{Driver, DriverResult, Function, Span, Stream};
use std::ffi::c_void;

/// The threads of a block.
pub const THREADS: u32 = 256;
/// The words of a table: with what stands before them, all that a launch can take along.
pub const WORDS: usize = 508;
/// The most bytes, elements or units of a piece: what its word has bits for.
pub const MOST_LENGTH: u64 = (1 << 40) - 1;
/// The most blocks of a launch, for the same reason.
const MOST_BLOCKS: u64 = 1 << 24;
/// The most dimensions of a piece that does not lie in one run.
pub const MOST_DIMENSIONS: usize = super::random::MAX_RANK + 1;

/// One dimension of a piece: its extent, and the distances of neighbours where it comes from and where it goes, in bytes.
pub type Dimension = (u32, i64, i64);

/// Pieces for one launch. A piece takes a word for its length, one for each address, and three for each dimension; then
/// comes the next. All pieces of a table have as many of each.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Table {
    /// How many pieces there are.
    count: u32,
    /// How many addresses each is read from.
    pub sources: u32,
    /// How many each is written to.
    pub destinations: u32,
    /// What a block does of a piece: bytes of a copy, elements of a reduction, units of a strided copy.
    chunk: u32,
    /// The dimensions of each piece of a strided copy.
    pub rank: u32,
    /// The bytes of a unit of a strided copy: 1, 2, 4, 8 or 16.
    pub width: u32,
    /// What a reduction does: an [`Operation`].
    pub operation: u16,
    /// Whether a reduction's integers have a sign: 1 or 0.
    pub is_signed: u16,
    /// What an average divides by; 0 for none.
    pub divisor: u32,
    words: [u64; WORDS],
}

/// What a reduction does with two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Operation {
    Sum = 0,
    Product = 1,
    Minimum = 2,
    Maximum = 3,
    /// A sum that is rounded to the elements' type after every addition.
    RoundedSum = 4,
}

impl Operation {
    /// The one with this number.
    pub fn from_number(number: u16) -> Option<Operation> {
        use Operation::*;
        [Sum, Product, Minimum, Maximum, RoundedSum].into_iter().find(|one| *one as u16 == number)
    }
}

impl Table {
    /// An empty table.
    pub fn new(sources: usize, destinations: usize, rank: usize) -> Table {
        Table {
            count: 0,
            sources: sources as u32,
            destinations: destinations as u32,
            chunk: 1,
            rank: rank as u32,
            width: 1,
            operation: 0,
            is_signed: 0,
            divisor: 0,
            words: [0; WORDS],
        }
    }

    /// How many pieces there are.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// The words of a piece.
    pub fn piece_words(&self) -> usize {
        1 + self.sources as usize + self.destinations as usize + 3 * self.rank as usize
    }

    /// What a block does of a piece.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// The words of piece `index`: its length, then its addresses, then its dimensions.
    pub fn piece(&self, index: usize) -> Option<(u64, &[u64])> {
        let words = self.piece_words();
        let piece = self.words.get(index * words..(index + 1) * words)?;
        Some((piece[0] & MOST_LENGTH, &piece[1..]))
    }

    /// Adds a piece, whose addresses are those that it is read from, then those that it is written to. False if the table
    /// is full, or has never room for it.
    pub fn push(&mut self, length: u64, addresses: impl Iterator<Item = Span>, dimensions: &[Dimension]) -> bool {
        let (words, at) = (self.piece_words(), self.count as usize * self.piece_words());
        let Some(piece) = self.words.get_mut(at..at + words) else { return false };
        if length > MOST_LENGTH {
            return false;
        }
        piece[0] = length;
        let mut places = piece[1..].iter_mut();
        // As many as the table says, whatever there are: the kernel never reads a piece past its end.
        for (place, address) in places.by_ref().take((self.sources + self.destinations) as usize).zip(addresses) {
            *place = address.address();
        }
        for (index, (extent, from, to)) in dimensions.iter().enumerate().take(self.rank as usize) {
            let base = 1 + (self.sources + self.destinations) as usize + 3 * index;
            piece[base..base + 3].copy_from_slice(&[u64::from(*extent), *from as u64, *to as u64]);
        }
        self.count += 1;
        true
    }

    /// Says what a block does of a piece, and numbers the first block of each; how many blocks that makes. `chunk` is made
    /// larger where there would be too many.
    pub fn finish(&mut self, chunk: u32) -> u32 {
        let words = self.piece_words();
        let lengths = |table: &Table| (0..table.count as usize).map(|i| table.words[i * words] & MOST_LENGTH).collect();
        let lengths: Vec<u64> = lengths(self);
        let mut chunk = u64::from(chunk.max(1));
        let blocks = |chunk: u64| lengths.iter().map(|length| length.div_ceil(chunk)).sum::<u64>();
        while blocks(chunk) >= MOST_BLOCKS && chunk < 1 << 30 {
            chunk *= 2;
        }
        self.chunk = chunk as u32;
        let mut first = 0;
        for (index, length) in lengths.iter().enumerate() {
            self.words[index * words] = length | first << 40;
            first += length.div_ceil(chunk);
        }
        first as u32
    }
}

impl Driver {
    /// Launches a kernel of collectives on the pieces of a table that is settled.
    pub fn launch_collective(
        &self,
        function: Function,
        table: &Table,
        blocks: u32,
        stream: Stream,
    ) -> DriverResult<()> {
        let pointers = [std::ptr::from_ref(table).cast::<c_void>()];
        // SAFETY: the pointer leads to what all of these kernels take, and outlives the call; the addresses in the table were
        // vouched for when their spans were made, and are as long as the pieces are.
        unsafe { self.launch(function, [blocks, 1, 1], [THREADS, 1, 1], 0, &pointers, stream) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_what_a_launch_can_take() {
        assert_eq!(size_of::<Table>(), 4096);
        for number in 0..6 {
            assert_eq!(Operation::from_number(number).map(|one| one as u16), (number < 5).then_some(number));
        }
    }

    #[test]
    fn pieces_are_kept_until_the_table_is_full() {
        let mut table = Table::new(1, 3, 0);
        let spans = |index: u64| (0..4).map(move |place| Span::dangling(1000 * index + place));
        let mut pushed = 0;
        while table.push(pushed + 1, spans(pushed), &[]) {
            pushed += 1;
        }
        assert_eq!(pushed as usize, WORDS / 5);
        assert_eq!(table.finish(10) as u64, (1..=pushed).map(|length: u64| length.div_ceil(10)).sum::<u64>());
        for index in 0..pushed {
            let (length, addresses) = table.piece(index as usize).unwrap();
            assert_eq!(length, index + 1);
            assert_eq!(addresses, spans(index).map(Span::address).collect::<Vec<u64>>());
        }
        assert!(!Table::new(1, 1, 0).push(1 << 40, spans(0), &[]));
    }

    #[test]
    fn chunks_grow_where_there_would_be_too_many() {
        let mut table = Table::new(1, 1, 0);
        assert!(table.push(1 << 39, (0..2).map(Span::dangling), &[]));
        assert!(table.finish(1) < MOST_BLOCKS as u32);
        assert!(table.chunk() >= 1 << 15);
    }

    #[test]
    fn dimensions_follow_the_addresses() {
        let mut table = Table::new(1, 1, 2);
        assert!(table.push(6, (1..3).map(Span::dangling), &[(2, 8, -16), (3, 100, 200)]));
        assert_eq!(table.piece(0).unwrap().1, [1, 2, 2, 8, (-16_i64) as u64, 3, 100, 200]);
        assert_eq!(table.piece(WORDS / 9), None);
    }
}

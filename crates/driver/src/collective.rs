//! The parameters of the collective kernels, as kernels/collective.cuh declares them, and their launch.

use super::{
    Function, KernelNode, Span,
    element::{CopyDimension, Unit},
    kernel_call::{KernelCall, with_parameter},
};
use std::ffi::c_void;

/// The number of threads per block.
pub const THREADS: u32 = 256;
/// The number of words of a table: with its header, it fills the 4 KiB of parameters that every launch supports.
pub const WORDS: usize = 508;
/// The maximum length of a piece in bytes, elements or units: its word has 40 bits for the length.
pub const MOST_LENGTH: u64 = (1 << 40) - 1;
/// The maximum number of blocks of a launch: the word has 24 bits for a block index.
const MOST_BLOCKS: u64 = 1 << 24;
/// The maximum number of dimensions of a strided piece.
pub const MOST_DIMENSIONS: usize = super::random::MAX_RANK + 1;

/// The pieces of one launch. A piece has one word for its length, one for each address, and three for each dimension.
/// All pieces of a table have the same number of addresses and dimensions.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Table {
    /// The number of pieces.
    count: u32,
    /// The number of source addresses of each piece.
    pub sources: u32,
    /// The number of destination addresses of each piece.
    pub destinations: u32,
    /// The amount of a piece that one block processes: bytes of a copy, elements of a reduction, units of a strided
    /// copy.
    chunk: u32,
    /// The number of dimensions of each piece of a strided copy.
    pub rank: u32,
    /// The size of a unit of a strided copy: 1, 2, 4, 8 or 16 bytes; 0 for one that converts its elements.
    width: u32,
    /// The [`Operation`] of a reduction; the number of the source's element type in a copy that converts.
    pub operation: u16,
    /// Whether a reduction's integers are signed: 1 or 0; the number of the destination's element type in a copy that
    /// converts.
    pub is_signed: u16,
    /// The divisor of an average; 0 for none.
    pub divisor: u32,
    words: [u64; WORDS],
}

/// The operation of a reduction on two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Operation {
    Sum = 0,
    Product = 1,
    Minimum = 2,
    Maximum = 3,
    /// A sum that is rounded to the element type after each addition.
    RoundedSum = 4,
}

impl Operation {
    /// Returns the operation with this number.
    pub fn from_number(number: u16) -> Option<Operation> {
        use Operation::*;
        [Sum, Product, Minimum, Maximum, RoundedSum].into_iter().find(|one| *one as u16 == number)
    }
}

impl Table {
    /// Creates an empty table.
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

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the number of words of a piece.
    pub fn piece_words(&self) -> usize {
        1 + self.sources as usize + self.destinations as usize + 3 * self.rank as usize
    }

    /// Returns the amount of a piece that one block processes.
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Returns the length of piece `index`, and its other words: addresses, then dimensions.
    pub fn piece(&self, index: usize) -> Option<(u64, &[u64])> {
        let words = self.piece_words();
        let piece = self.words.get(index * words..(index + 1) * words)?;
        Some((piece[0] & MOST_LENGTH, &piece[1..]))
    }

    /// Sets the unit of a strided copy.
    pub fn set_unit(&mut self, unit: Unit) {
        (self.width, self.operation, self.is_signed) = match unit {
            Unit::Bytes(width) => (width, 0, 0),
            Unit::Converted(from, to) => (0, from, to),
        };
    }

    /// Returns the unit of a strided copy.
    pub fn unit(&self) -> Unit {
        match self.width {
            0 => Unit::Converted(self.operation, self.is_signed),
            width => Unit::Bytes(width),
        }
    }

    /// Adds a piece. `addresses` are the sources followed by the destinations. Returns false if the table is full or if
    /// the piece is too long.
    pub fn push(&mut self, length: u64, addresses: impl Iterator<Item = Span>, dimensions: &[CopyDimension]) -> bool {
        let (words, at) = (self.piece_words(), self.count as usize * self.piece_words());
        let Some(piece) = self.words.get_mut(at..at + words) else { return false };
        if length > MOST_LENGTH {
            return false;
        }
        piece[0] = length;
        let mut slots = piece[1..].iter_mut();
        // Limit to the table's count: the kernel must never read past the end of a piece.
        for (slot, address) in slots.by_ref().take((self.sources + self.destinations) as usize).zip(addresses) {
            *slot = address.address();
        }
        for (index, (extent, from, to)) in dimensions.iter().enumerate().take(self.rank as usize) {
            let base = 1 + (self.sources + self.destinations) as usize + 3 * index;
            piece[base..base + 3].copy_from_slice(&[*extent, *from as u64, *to as u64]);
        }
        self.count += 1;
        true
    }

    /// Sets the amount that one block processes, and stores the index of the first block of each piece. Returns the
    /// number of blocks. `chunk` is increased if there would be too many blocks.
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

impl PartialEq for Table {
    /// Compares the words that the kernel reads.
    fn eq(&self, other: &Table) -> bool {
        let header = |table: &Table| {
            let sizes =
                [table.count, table.sources, table.destinations, table.chunk, table.rank, table.width, table.divisor];
            (sizes, table.operation, table.is_signed)
        };
        let used = self.count as usize * self.piece_words();
        header(self) == header(other) && self.words[..used] == other.words[..used]
    }
}

/// A collective kernel for the pieces of a finished table.
#[derive(Debug, Clone, PartialEq)]
pub struct CollectiveKernel {
    /// The kernel.
    pub function: Function,
    /// The number of blocks.
    pub blocks: u32,
    /// The table.
    pub table: Table,
}

impl KernelCall for CollectiveKernel {
    fn with_node<T>(&self, body: impl FnOnce(&KernelNode, &[*const c_void]) -> T) -> T {
        // SAFETY: a table is the parameter of all of these kernels; the constructors of the spans in it guarantee their memory,
        // and the spans are as long as the pieces.
        unsafe { with_parameter(self.function, [self.blocks, 1, 1], THREADS, &self.table, body) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_fills_the_parameter_limit() {
        assert_eq!(size_of::<Table>(), 4096);
        for number in 0..6 {
            assert_eq!(Operation::from_number(number).map(|one| one as u16), (number < 5).then_some(number));
        }
    }

    #[test]
    fn table_accepts_pieces_until_full() {
        let mut table = Table::new(1, 3, 0);
        let spans = |index: u64| (0..4).map(move |offset| Span::dangling(1000 * index + offset));
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
    fn chunks_grow_to_limit_the_blocks() {
        let mut table = Table::new(1, 1, 0);
        assert!(table.push(1 << 39, (0..2).map(Span::dangling), &[]));
        assert!(table.finish(1) < MOST_BLOCKS as u32);
        assert!(table.chunk() >= 1 << 15);
    }

    #[test]
    fn dimensions_follow_the_addresses() {
        let mut table = Table::new(1, 1, 2);
        for unit in [Unit::Bytes(8), Unit::Converted(3, 14)] {
            table.set_unit(unit);
            assert_eq!(table.unit(), unit);
        }
        assert!(table.push(6, (1..3).map(Span::dangling), &[(2, 8, -16), (3, 100, 200)]));
        assert_eq!(table.piece(0).unwrap().1, [1, 2, 2, 8, (-16_i64) as u64, 3, 100, 200]);
        assert_eq!(table.piece(WORDS / 9), None);
    }
}

//! What goes from one process to the other about a block: bytes that are checked before any of them is believed.

use crate::base::unix_socket::MAX_DESCRIPTORS;
use crate::{
    error::{Error, Result},
    status::Status,
};

/// The bytes of a head.
pub const HEAD: usize = 256;
/// The bytes of a piece.
pub const PIECE: usize = 16;
/// How many pieces go in one part of a message, each with its descriptor.
pub const BATCH: usize = MAX_DESCRIPTORS;

const MAGIC: u64 = u64::from_le_bytes(*b"plinthIP");
const VERSION: u32 = 1;
/// More bytes than addresses can number, and more pieces than that has granules, are no memory.
const MOST_BYTES: u64 = 1 << 47;
const MOST_PIECES: u32 = 1 << 26;

/// Names a process for good.
pub type Token = [u8; 16];

/// How the memory gets to the other process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Each piece has a descriptor.
    Descriptors,
    /// There is one piece, for which this is the driver's handle.
    Handle([u8; 64]),
}

/// How the other process says that it holds the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// By a lock on a byte of the file whose descriptor comes with the head.
    Byte(u64),
    /// By keeping that descriptor open.
    Open,
}

/// What a message says first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The process that has the block.
    pub token: Token,
    /// The number of the block among all that it ever shared.
    pub serial: u64,
    /// How it is held.
    pub holding: Holding,
    /// The device, by its own name.
    pub uuid: [u8; 16],
    /// Where the block begins in its pieces.
    pub start: u64,
    /// The bytes that were asked for.
    pub bytes: u64,
    /// Which of them is meant.
    pub offset: u64,
    /// How many pieces of memory the block lies in.
    pub pieces: u32,
    /// How the pieces come.
    pub way: Way,
    /// The event to wait for.
    pub event: Option<[u8; 64]>,
}

/// A piece of memory, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// Its number among all that the process ever shared.
    pub serial: u64,
    /// Its bytes; 0 in a message that its sender gave up.
    pub bytes: u64,
}

#[cold]
fn malformed(what: &str) -> Error {
    Error::new(Status::INVALID_VALUE, format!("the bytes are no message about another process's memory: {what}"))
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (here, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        self.0 = rest;
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (here, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| malformed("they are too few"))?;
        self.0 = rest;
        Ok(*here)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }
}

impl Head {
    /// As bytes.
    pub fn encode(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let (body, end) = bytes.split_at_mut(HEAD - 8);
        let mut writer = Writer(body);
        let byte = match self.holding {
            Holding::Byte(byte) => byte,
            Holding::Open => u64::MAX,
        };
        let handle = match self.way {
            Way::Handle(handle) => Some(handle),
            Way::Descriptors => None,
        };
        writer.put(&MAGIC.to_le_bytes());
        writer.put(&VERSION.to_le_bytes());
        writer.put(&self.pieces.to_le_bytes());
        writer.put(&self.token);
        writer.put(&self.uuid);
        for number in [self.serial, byte, self.start, self.bytes, self.offset] {
            writer.put(&number.to_le_bytes());
        }
        for optional in [handle, self.event] {
            writer.put(&u32::from(optional.is_some()).to_le_bytes());
            writer.put(&optional.unwrap_or([0; 64]));
        }
        end.copy_from_slice(&checksum(body).to_le_bytes());
        bytes
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Head> {
        let bytes: &[u8; HEAD] = bytes.try_into().map_err(|_| malformed("a head has another length"))?;
        let (body, end) = bytes.split_at(HEAD - 8);
        let mut reader = Reader(body);
        if reader.u64()? != MAGIC {
            return Err(malformed("they begin otherwise"));
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Err(malformed(&format!("they are of version {version}, and this library knows {VERSION}")));
        }
        if Reader(end).u64()? != checksum(body) {
            return Err(malformed("their checksum is wrong"));
        }
        let pieces = reader.u32()?;
        let (token, uuid) = (reader.take()?, reader.take()?);
        let serial = reader.u64()?;
        let holding = match reader.u64()? {
            u64::MAX => Holding::Open,
            byte if byte <= i64::MAX as u64 => Holding::Byte(byte),
            _ => return Err(malformed("the place of the lock is no place")),
        };
        let (start, size, offset) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut optional = || -> Result<Option<[u8; 64]>> {
            let there = reader.u32()? != 0;
            let handle = reader.take()?;
            Ok(there.then_some(handle))
        };
        let way = optional()?.map_or(Way::Descriptors, Way::Handle);
        let event = optional()?;
        if start > MOST_BYTES || size > MOST_BYTES || offset >= size {
            return Err(malformed("the block has no such place or size"));
        }
        if pieces == 0 || pieces > MOST_PIECES || (way != Way::Descriptors && pieces != 1) {
            return Err(malformed(&format!("a block cannot lie in {pieces} pieces")));
        }
        Ok(Head { token, serial, holding, uuid, start, bytes: size, offset, pieces, way, event })
    }

    /// Whether the block lies within pieces of these bytes in all.
    pub fn check(&self, pieces: &[Piece]) -> Result<u64> {
        let sum = |sum: u64, piece: &Piece| sum.checked_add(piece.bytes).filter(|sum| *sum <= MOST_BYTES);
        let total = pieces.iter().try_fold(0, sum).ok_or_else(|| malformed("the pieces are too large"))?;
        if pieces.len() != self.pieces as usize || self.start + self.bytes > total {
            return Err(malformed("the block does not lie within its pieces"));
        }
        Ok(total)
    }

    /// How many descriptors come with so many of the pieces.
    pub fn descriptors(&self, pieces: usize) -> usize {
        if self.way == Way::Descriptors { pieces } else { 0 }
    }
}

impl Piece {
    /// Stands in a part of a message whose sender gave up.
    pub const GIVEN_UP: Piece = Piece { serial: 0, bytes: 0 };

    /// As bytes.
    pub fn encode(&self) -> [u8; PIECE] {
        let mut bytes = [0; PIECE];
        let mut writer = Writer(&mut bytes);
        writer.put(&self.serial.to_le_bytes());
        writer.put(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads pieces one after the other.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Piece>> {
        let (chunks, rest) = bytes.as_chunks::<PIECE>();
        if !rest.is_empty() {
            return Err(malformed("the last piece is cut off"));
        }
        chunks
            .iter()
            .map(|chunk| {
                let mut reader = Reader(chunk);
                Ok(Piece { serial: reader.u64()?, bytes: reader.u64()? })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> Head {
        Head {
            token: [7; 16],
            serial: 3,
            holding: Holding::Byte(11),
            uuid: [9; 16],
            start: 512,
            bytes: 4096,
            offset: 100,
            pieces: 2,
            way: Way::Descriptors,
            event: Some([5; 64]),
        }
    }

    /// A head with a right checksum, whatever else it says.
    fn sealed(mut bytes: [u8; HEAD]) -> [u8; HEAD] {
        let sum = checksum(&bytes[..HEAD - 8]);
        bytes[HEAD - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for event in [None, Some([5; 64])] {
            for (way, pieces) in [(Way::Descriptors, 2), (Way::Handle([6; 64]), 1)] {
                for holding in [Holding::Byte(0), Holding::Open] {
                    let head = Head { event, way, pieces, holding, ..head() };
                    assert_eq!(Head::decode(&head.encode()).unwrap(), head);
                }
            }
        }
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let bytes = head().encode();
        for bit in 0..HEAD * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&wrong).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_head_that_makes_no_sense_is_refused() {
        let wrong = [
            Head { offset: 4096, ..head() },
            Head { pieces: 0, ..head() },
            Head { pieces: u32::MAX, ..head() },
            Head { start: u64::MAX, ..head() },
            Head { bytes: u64::MAX, ..head() },
            Head { way: Way::Handle([1; 64]), ..head() },
        ];
        for head in wrong {
            assert_eq!(Head::decode(&head.encode()).unwrap_err().status(), Status::INVALID_VALUE, "{head:?}");
        }
    }

    #[test]
    fn a_block_lies_within_its_pieces() {
        let piece = |bytes| Piece { serial: 1, bytes };
        assert_eq!(head().check(&[piece(4096), piece(512)]).unwrap(), 4608);
        for pieces in [vec![piece(4608)], vec![piece(4096), piece(511)], vec![piece(u64::MAX), piece(u64::MAX)]] {
            assert!(head().check(&pieces).is_err(), "{pieces:?}");
        }
        let bytes: Vec<u8> = [piece(1), piece(2)].iter().flat_map(Piece::encode).collect();
        assert_eq!(Piece::decode_all(&bytes).unwrap(), [piece(1), piece(2)]);
        assert!(Piece::decode_all(&bytes[..31]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_are_believed_blindly(bytes in proptest::collection::vec(any::<u8>(), 0..HEAD + 8)) {
            prop_assert!(Head::decode(&bytes).is_err());
            let _ = Piece::decode_all(&bytes);
        }

        /// Whoever can make the checksum right can say what he likes, but not what makes no sense.
        #[test]
        fn a_right_checksum_is_not_enough(bytes in proptest::collection::vec(any::<u8>(), HEAD - 12)) {
            let mut whole = [0; HEAD];
            whole[..8].copy_from_slice(&MAGIC.to_le_bytes());
            whole[8..12].copy_from_slice(&VERSION.to_le_bytes());
            whole[12..].copy_from_slice(&bytes);
            if let Ok(head) = Head::decode(&sealed(whole)) {
                prop_assert!(head.offset < head.bytes && head.bytes <= MOST_BYTES && head.start <= MOST_BYTES);
                prop_assert!(head.pieces > 0);
            }
        }
    }
}

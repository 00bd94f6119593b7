//! The message that describes a shared block. The receiver validates every byte before it uses any.

use crate::base::unix_socket::MAX_DESCRIPTORS;
use crate::{
    error::{Error, Result},
    status::Status,
};

/// The size of an encoded header in bytes.
pub const HEADER_BYTES: usize = 256;
/// The size of an encoded chunk in bytes.
pub const CHUNK_BYTES: usize = 16;
/// The number of chunks in one part of a message, each with its descriptor.
pub const CHUNKS_PER_PART: usize = MAX_DESCRIPTORS;

const MAGIC: u64 = u64::from_le_bytes(*b"plinthIP");
const VERSION: u32 = 1;
/// A block cannot have more bytes than the address space, nor more chunks than the address space has granules.
const MAX_BYTES: u64 = 1 << 47;
const MAX_CHUNKS: u32 = 1 << 26;

/// A random identifier of a process.
pub type Token = [u8; 16];

/// How the memory is transferred to the other process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Each chunk has a file descriptor.
    Descriptors,
    /// The driver's handle of the only chunk.
    Handle([u8; 64]),
}

/// How the receiving process represents its hold on the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldKind {
    /// A lock on this byte of the file whose descriptor accompanies the header.
    Byte(u64),
    /// That descriptor itself, as long as it is open.
    Descriptor,
}

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The process that owns the block.
    pub token: Token,
    /// The number of the block among all that this process ever shared.
    pub serial: u64,
    /// How the block is held.
    pub hold: HoldKind,
    /// The UUID of the device.
    pub uuid: [u8; 16],
    /// The offset of the block in its chunks, in bytes.
    pub start: u64,
    /// The requested size of the block in bytes.
    pub bytes: u64,
    /// The offset of the sent address in the block.
    pub offset: u64,
    /// The number of chunks that the block spans.
    pub chunks: u32,
    /// How the chunks are transferred.
    pub transport: Transport,
    /// The event to wait for before the memory is used.
    pub event: Option<[u8; 64]>,
}

/// One physical allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk {
    /// The number of the chunk among all that the process ever shared.
    pub serial: u64,
    /// The size in bytes; 0 in an aborted message.
    pub bytes: u64,
}

#[cold]
fn malformed(what: &str) -> Error {
    Error::new(
        Status::INVALID_VALUE,
        format!("the bytes are not a valid message about another process's memory: {what}"),
    )
}

/// Creates the error for a message that does not fit an earlier one.
#[cold]
pub fn contradiction() -> Error {
    Error::new(Status::INVALID_VALUE, "the message contradicts an earlier message of the same sender")
}

/// Creates the error for a message that states something else than its memory shows.
#[cold]
pub fn misstated(what: &str) -> Error {
    let message = format!("importing a block: its memory has another {what} than the message states; check the sender");
    Error::new(Status::INVALID_VALUE, message)
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
    fn read<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (here, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| malformed("they are too short"))?;
        self.0 = rest;
        Ok(*here)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.read()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.read()?))
    }
}

impl Header {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let (body, end) = bytes.split_at_mut(HEADER_BYTES - 8);
        let mut writer = Writer(body);
        let byte = match self.hold {
            HoldKind::Byte(byte) => byte,
            HoldKind::Descriptor => u64::MAX,
        };
        let handle = match self.transport {
            Transport::Handle(handle) => Some(handle),
            Transport::Descriptors => None,
        };
        writer.put(&MAGIC.to_le_bytes());
        writer.put(&VERSION.to_le_bytes());
        writer.put(&self.chunks.to_le_bytes());
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

    /// Decodes and validates a header of [`encode`](Self::encode).
    pub fn decode(bytes: &[u8]) -> Result<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.try_into().map_err(|_| malformed("the header has the wrong length"))?;
        let (body, end) = bytes.split_at(HEADER_BYTES - 8);
        let mut reader = Reader(body);
        if reader.u64()? != MAGIC {
            return Err(malformed("they do not begin with the signature"));
        }
        let version = reader.u32()?;
        if version != VERSION {
            return Err(malformed(&format!(
                "they have version {version}, but this library supports version {VERSION}"
            )));
        }
        if Reader(end).u64()? != checksum(body) {
            return Err(malformed("their checksum is wrong"));
        }
        let chunks = reader.u32()?;
        let (token, uuid) = (reader.read()?, reader.read()?);
        let serial = reader.u64()?;
        let hold = match reader.u64()? {
            u64::MAX => HoldKind::Descriptor,
            byte if byte <= i64::MAX as u64 => HoldKind::Byte(byte),
            _ => return Err(malformed("the position of the lock is out of range")),
        };
        let (start, size, offset) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let mut optional = || -> Result<Option<[u8; 64]>> {
            let there = reader.u32()? != 0;
            let handle = reader.read()?;
            Ok(there.then_some(handle))
        };
        let transport = optional()?.map_or(Transport::Descriptors, Transport::Handle);
        let event = optional()?;
        if start > MAX_BYTES || size > MAX_BYTES || offset >= size {
            return Err(malformed("the position or the size of the block is out of range"));
        }
        if chunks == 0 || chunks > MAX_CHUNKS || (transport != Transport::Descriptors && chunks != 1) {
            return Err(malformed(&format!("a block cannot span {chunks} chunks")));
        }
        Ok(Header { token, serial, hold, uuid, start, bytes: size, offset, chunks, transport, event })
    }

    /// Checks that the block lies within its chunks, and returns their total size in bytes.
    pub fn check(&self, chunks: &[Chunk]) -> Result<u64> {
        let sum = |sum: u64, chunk: &Chunk| sum.checked_add(chunk.bytes).filter(|sum| *sum <= MAX_BYTES);
        let total = chunks.iter().try_fold(0, sum).ok_or_else(|| malformed("the chunks are too large"))?;
        if chunks.len() != self.chunks as usize || self.start + self.bytes > total {
            return Err(malformed("the block does not lie within its chunks"));
        }
        Ok(total)
    }

    /// Returns the number of descriptors that accompany `chunks` chunks.
    pub fn descriptors(&self, chunks: usize) -> usize {
        if self.transport == Transport::Descriptors { chunks } else { 0 }
    }
}

impl Chunk {
    /// The marker that fills a part of an aborted message.
    pub const ABORTED: Chunk = Chunk { serial: 0, bytes: 0 };

    /// Encodes the chunk.
    pub fn encode(&self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        let mut writer = Writer(&mut bytes);
        writer.put(&self.serial.to_le_bytes());
        writer.put(&self.bytes.to_le_bytes());
        bytes
    }

    /// Decodes a sequence of chunks.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Chunk>> {
        let (encoded, rest) = bytes.as_chunks::<CHUNK_BYTES>();
        if !rest.is_empty() {
            return Err(malformed("the last chunk is truncated"));
        }
        encoded
            .iter()
            .map(|bytes| {
                let mut reader = Reader(bytes);
                Ok(Chunk { serial: reader.u64()?, bytes: reader.u64()? })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header {
            token: [7; 16],
            serial: 3,
            hold: HoldKind::Byte(11),
            uuid: [9; 16],
            start: 512,
            bytes: 4096,
            offset: 100,
            chunks: 2,
            transport: Transport::Descriptors,
            event: Some([5; 64]),
        }
    }

    /// Replaces the checksum of a header with the correct one.
    fn with_valid_checksum(mut bytes: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
        let sum = checksum(&bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn a_header_survives_encoding_and_decoding() {
        for event in [None, Some([5; 64])] {
            for (transport, chunks) in [(Transport::Descriptors, 2), (Transport::Handle([6; 64]), 1)] {
                for hold in [HoldKind::Byte(0), HoldKind::Descriptor] {
                    let header = Header { event, transport, chunks, hold, ..header() };
                    assert_eq!(Header::decode(&header.encode()).unwrap(), header);
                }
            }
        }
    }

    #[test]
    fn detects_any_flipped_bit() {
        let bytes = header().encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut wrong = bytes;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&wrong).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn rejects_an_inconsistent_header() {
        let wrong = [
            Header { offset: 4096, ..header() },
            Header { chunks: 0, ..header() },
            Header { chunks: u32::MAX, ..header() },
            Header { start: u64::MAX, ..header() },
            Header { bytes: u64::MAX, ..header() },
            Header { transport: Transport::Handle([1; 64]), ..header() },
        ];
        for header in wrong {
            assert_eq!(Header::decode(&header.encode()).unwrap_err().status(), Status::INVALID_VALUE, "{header:?}");
        }
    }

    #[test]
    fn a_block_lies_within_its_chunks() {
        let chunk = |bytes| Chunk { serial: 1, bytes };
        assert_eq!(header().check(&[chunk(4096), chunk(512)]).unwrap(), 4608);
        for chunks in [vec![chunk(4608)], vec![chunk(4096), chunk(511)], vec![chunk(u64::MAX), chunk(u64::MAX)]] {
            assert!(header().check(&chunks).is_err(), "{chunks:?}");
        }
        let bytes: Vec<u8> = [chunk(1), chunk(2)].iter().flat_map(Chunk::encode).collect();
        assert_eq!(Chunk::decode_all(&bytes).unwrap(), [chunk(1), chunk(2)]);
        assert!(Chunk::decode_all(&bytes[..31]).is_err());
    }

    proptest! {
        #[test]
        fn rejects_random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..HEADER_BYTES + 8)) {
            prop_assert!(Header::decode(&bytes).is_err());
            let _ = Chunk::decode_all(&bytes);
        }

        /// A header with a valid checksum may still be inconsistent, and must then be rejected.
        #[test]
        fn a_valid_checksum_is_not_enough(bytes in proptest::collection::vec(any::<u8>(), HEADER_BYTES - 12)) {
            let mut whole = [0; HEADER_BYTES];
            whole[..8].copy_from_slice(&MAGIC.to_le_bytes());
            whole[8..12].copy_from_slice(&VERSION.to_le_bytes());
            whole[12..].copy_from_slice(&bytes);
            if let Ok(header) = Header::decode(&with_valid_checksum(whole)) {
                prop_assert!(header.offset < header.bytes && header.bytes <= MAX_BYTES && header.start <= MAX_BYTES);
                prop_assert!(header.chunks > 0);
            }
        }
    }
}

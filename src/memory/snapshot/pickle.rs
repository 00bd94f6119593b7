//! The pickle format that torch's viewers read.
//!
//! The viewers support protocols 2 to 4 and some thirty opcodes: no classes, no bytes, no integers of more than eight
//! bytes. This writer uses fewer. Strings, frames and stacks are written once and then referenced through the memo,
//! which keeps the file of a long history small. The file is streamed while the snapshot is traversed.

use super::{
    super::{history::Frame, pool::PoolId},
    Snapshot,
    write::{self, Writer},
};
use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const TUPLE2: u8 = 0x86;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const BININT: u8 = b'J';
const BININT1: u8 = b'K';
const BININT2: u8 = b'M';
const LONG1: u8 = 0x8a;
const BINFLOAT: u8 = b'G';
const SHORT_BINUNICODE: u8 = 0x8c;
const BINUNICODE: u8 = b'X';
const MEMOIZE: u8 = 0x94;
const BINGET: u8 = b'h';
const LONG_BINGET: u8 = b'j';

/// The protocol: the first that has SHORT_BINUNICODE and MEMOIZE.
const VERSION: u8 = 4;
/// The maximum number of values per APPENDS; a reader keeps that many on its stack.
const BATCH: u32 = 1000;

/// Writes a snapshot.
pub fn write(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let mut pickler = Pickler {
        out,
        memo: 0,
        texts: HashMap::new(),
        frames: HashMap::new(),
        stacks: vec![None; snapshot.stacks.all().len()],
        pending: Vec::new(),
        all: snapshot.stacks.all(),
    };
    pickler.out.write_all(&[PROTO, VERSION])?;
    write::write_snapshot(snapshot, &mut pickler)?;
    pickler.out.write_all(&[STOP])
}

struct Pickler<'a> {
    out: &'a mut dyn Write,
    /// The number of objects in the memo.
    memo: u32,
    /// The memo indices of strings.
    texts: HashMap<Box<str>, u32>,
    /// The memo indices of frames: name, file, line.
    frames: HashMap<(&'a str, &'a str, u32), u32>,
    /// The memo indices of stacks, by their number in the snapshot.
    stacks: Vec<Option<u32>>,
    /// For each open list, the number of values that are not appended yet.
    pending: Vec<u32>,
    all: &'a [Arc<[Frame]>],
}

impl Pickler<'_> {
    /// Stores the object that was just written in the memo.
    fn memoize(&mut self) -> io::Result<u32> {
        self.memo += 1;
        self.out.write_all(&[MEMOIZE])?;
        Ok(self.memo - 1)
    }

    /// Writes a reference to an object of the memo.
    fn write_reference(&mut self, number: u32) -> io::Result<()> {
        match u8::try_from(number) {
            Ok(number) => self.out.write_all(&[BINGET, number]),
            Err(_) => self.with_u32(LONG_BINGET, number),
        }
    }

    fn with_u32(&mut self, opcode: u8, number: u32) -> io::Result<()> {
        let [a, b, c, d] = number.to_le_bytes();
        self.out.write_all(&[opcode, a, b, c, d])
    }

    fn frame(&mut self, stack: u32, index: usize) -> io::Result<()> {
        let all = self.all;
        let Frame { name, file, line } = &all[stack as usize][index];
        if let Some(number) = self.frames.get(&(name.as_str(), file.as_str(), *line)) {
            return self.write_reference(*number);
        }
        self.out.write_all(&[EMPTY_DICT])?;
        let number = self.memoize()?;
        self.out.write_all(&[MARK])?;
        self.set_text("name", name)?;
        self.set_text("filename", file)?;
        self.set("line", u64::from(*line))?;
        self.end_map()?;
        self.frames.insert((name, file, *line), number);
        Ok(())
    }
}

impl Writer for Pickler<'_> {
    fn begin_map(&mut self) -> io::Result<()> {
        self.out.write_all(&[EMPTY_DICT, MARK])
    }

    fn end_map(&mut self) -> io::Result<()> {
        self.out.write_all(&[SETITEMS])
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.pending.push(0);
        self.out.write_all(&[EMPTY_LIST])
    }

    fn end_list(&mut self) -> io::Result<()> {
        match self.pending.pop() {
            Some(1..) => self.out.write_all(&[APPENDS]),
            _ => Ok(()),
        }
    }

    fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.text(key)
    }

    fn item(&mut self) -> io::Result<()> {
        let Some(pending) = self.pending.last_mut() else { return Ok(()) };
        *pending += 1;
        match *pending {
            1 => self.out.write_all(&[MARK]),
            count if count > BATCH => {
                *pending = 1;
                self.out.write_all(&[APPENDS, MARK])
            }
            _ => Ok(()),
        }
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        if let Ok(number) = u8::try_from(number) {
            return self.out.write_all(&[BININT1, number]);
        }
        if let Ok(number) = u16::try_from(number) {
            let [a, b] = number.to_le_bytes();
            return self.out.write_all(&[BININT2, a, b]);
        }
        if let Ok(number) = i32::try_from(number) {
            return self.with_u32(BININT, number as u32);
        }
        // The highest bit is the sign, and some readers support at most eight bytes.
        let number = number.min(i64::MAX as u64);
        let bytes = (u64::BITS - number.leading_zeros()) / 8 + 1;
        self.out.write_all(&[LONG1, bytes as u8])?;
        self.out.write_all(&number.to_le_bytes()[..bytes as usize])
    }

    fn no_limit(&mut self) -> io::Result<()> {
        self.with_u32(BININT, u32::MAX)
    }

    fn real(&mut self, number: f64) -> io::Result<()> {
        self.out.write_all(&[BINFLOAT])?;
        self.out.write_all(&number.to_be_bytes())
    }

    fn boolean(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(&[if value { NEWTRUE } else { NEWFALSE }])
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(number) = self.texts.get(text) {
            return self.write_reference(*number);
        }
        match u8::try_from(text.len()) {
            Ok(bytes) => self.out.write_all(&[SHORT_BINUNICODE, bytes])?,
            Err(_) => {
                let bytes = u32::try_from(text.len());
                let too_long =
                    |_| io::Error::new(io::ErrorKind::InvalidInput, "writing a pickle: a string is longer than 4 GiB");
                self.with_u32(BINUNICODE, bytes.map_err(too_long)?)?;
            }
        }
        self.out.write_all(text.as_bytes())?;
        let number = self.memoize()?;
        self.texts.insert(text.into(), number);
        Ok(())
    }

    fn pool(&mut self, pool: PoolId) -> io::Result<()> {
        self.number(pool.owner)?;
        self.number(pool.index)?;
        self.out.write_all(&[TUPLE2])
    }

    fn stacks(&mut self, _: &[Arc<[Frame]>]) -> io::Result<()> {
        Ok(())
    }

    fn stack(&mut self, number: u32, frames: &[Frame]) -> io::Result<()> {
        if let Some(Some(number)) = self.stacks.get(number as usize) {
            return self.write_reference(*number);
        }
        self.out.write_all(&[EMPTY_LIST])?;
        let object = self.memoize()?;
        self.pending.push(0);
        for index in 0..frames.len() {
            self.item()?;
            self.frame(number, index)?;
        }
        self.end_list()?;
        if let Some(index) = self.stacks.get_mut(number as usize) {
            *index = Some(object);
        }
        Ok(())
    }
}

//! The snapshot as JSON. It differs from torch's structure in one respect: a stack is an index into the list "stacks",
//! because JSON has no references, and a history repeats its stacks thousands of times.

use super::{
    super::{history::Frame, pool::PoolId},
    Snapshot,
    write::{self, Writer},
};
use std::{
    io::{self, Write},
    sync::Arc,
};

/// Writes a snapshot.
pub fn write(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let mut json = Json { out, first: true };
    write::write_snapshot(snapshot, &mut json)?;
    json.out.write_all(b"\n")
}

/// Writes a quoted string. `<` is escaped, so that the string can be embedded in a page.
pub fn quote(out: &mut dyn Write, text: &str) -> io::Result<()> {
    out.write_all(b"\"")?;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c < ' ' || matches!(c, '"' | '\\' | '<' | '\u{7f}')) {
        out.write_all(&rest.as_bytes()[..at])?;
        match rest.as_bytes()[at] {
            plain @ (b'"' | b'\\') => out.write_all(&[b'\\', plain])?,
            b'\n' => out.write_all(b"\\n")?,
            other => write!(out, "\\u{other:04x}")?,
        }
        rest = &rest[at + 1..];
    }
    out.write_all(rest.as_bytes())?;
    out.write_all(b"\"")
}

struct Json<'a> {
    out: &'a mut dyn Write,
    /// Whether the innermost list or map is still empty.
    first: bool,
}

impl Json<'_> {
    fn next(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.first, false) { Ok(()) } else { self.out.write_all(b",") }
    }

    fn begin(&mut self, bracket: u8) -> io::Result<()> {
        self.first = true;
        self.out.write_all(&[bracket])
    }

    fn end(&mut self, bracket: u8) -> io::Result<()> {
        self.first = false;
        self.out.write_all(&[bracket])
    }
}

impl Writer for Json<'_> {
    fn begin_map(&mut self) -> io::Result<()> {
        self.begin(b'{')
    }

    fn end_map(&mut self) -> io::Result<()> {
        self.end(b'}')
    }

    fn begin_list(&mut self) -> io::Result<()> {
        self.begin(b'[')
    }

    fn end_list(&mut self) -> io::Result<()> {
        self.end(b']')
    }

    fn key(&mut self, key: &'static str) -> io::Result<()> {
        self.next()?;
        write!(self.out, "\"{key}\":")
    }

    fn item(&mut self) -> io::Result<()> {
        self.next()
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        write!(self.out, "{number}")
    }

    fn no_limit(&mut self) -> io::Result<()> {
        self.out.write_all(b"-1")
    }

    fn real(&mut self, number: f64) -> io::Result<()> {
        // JSON cannot represent infinities and NaN.
        write!(self.out, "{:?}", if number.is_finite() { number } else { 0.0 })
    }

    fn boolean(&mut self, value: bool) -> io::Result<()> {
        write!(self.out, "{value}")
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        quote(self.out, text)
    }

    fn pool(&mut self, pool: PoolId) -> io::Result<()> {
        write!(self.out, "[{},{}]", pool.owner, pool.index)
    }

    fn stacks(&mut self, stacks: &[Arc<[Frame]>]) -> io::Result<()> {
        self.key("stacks")?;
        self.begin_list()?;
        for stack in stacks {
            self.item()?;
            self.begin_list()?;
            for Frame { name, file, line } in stack.iter() {
                self.item()?;
                self.begin_map()?;
                self.set_text("name", name)?;
                self.set_text("filename", file)?;
                self.set("line", u64::from(*line))?;
                self.end_map()?;
            }
            self.end_list()?;
        }
        self.end_list()
    }

    fn stack(&mut self, number: u32, _: &[Frame]) -> io::Result<()> {
        self.number(u64::from(number))
    }
}

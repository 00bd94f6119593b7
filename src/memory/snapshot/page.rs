//! One HTML file that shows a snapshot, and needs nothing else: no network, no server, no PyTorch.
//!
//! The page's own parts lie in page/, as a person edits them; they are put together here. What is particular to a snapshot
//! is in two places. The tables (texts, frames, stacks, pools, segments' owners) are JSON. Entries and blocks, of which there
//! can be millions, are a row of numbers of 7 bits a byte, as base64: an entry takes some 15 bytes, and page/read.js has them
//! back in typed arrays in a moment. An address or a size that comes again and again is a small number in a table.

use super::{
    super::{
        block::Zone,
        history::{Action, Entry, Frame},
        pool::PoolId,
    },
    Snapshot, json, stream_number,
};
use crate::base::embedded::{CompressedText, embedded_text};
use std::{
    collections::HashMap,
    hash::Hash,
    io::{self, Write},
};

/// What the page consists of, in its order. `read.js` and what follows are one script.
const HEAD: CompressedText = embedded_text!("head.html");
const STYLE: CompressedText = embedded_text!("style.css");
const BODY: CompressedText = embedded_text!("body.html");
const SCRIPTS: [CompressedText; 8] = [
    embedded_text!("read.js"),
    embedded_text!("model.js"),
    embedded_text!("common.js"),
    embedded_text!("timeline.js"),
    embedded_text!("map.js"),
    embedded_text!("tables.js"),
    embedded_text!("events.js"),
    embedded_text!("main.js"),
];

/// Writes the page.
pub fn write(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let tables = Tables::new(snapshot);
    let text = |part: CompressedText| part.decompress().map_err(|error| io::Error::other(error.message().to_owned()));
    let (head, style, body) = (text(HEAD)?, text(STYLE)?, text(BODY)?);
    write!(out, "{head}<style>\n{style}</style>\n</head>\n<body>\n{body}")?;
    out.write_all(b"<script type=\"application/json\" id=\"tables\">")?;
    tables.write(snapshot, out)?;
    out.write_all(b"</script>\n<script type=\"text/plain\" id=\"rows\">")?;
    let mut base64 = Base64 { out, group: [0; 3], filled: 0 };
    tables.write_rows(snapshot, &mut base64)?;
    base64.finish()?;
    out.write_all(b"</script>\n<script>\n'use strict';\n")?;
    for script in SCRIPTS {
        out.write_all(text(script)?.as_bytes())?;
    }
    out.write_all(b"</script>\n</body>\n</html>\n")
}

/// Values numbered in the order of their first appearance.
struct Numbered<T> {
    numbers: HashMap<T, u64>,
    values: Vec<T>,
}

impl<T: Hash + Eq + Copy> Numbered<T> {
    fn new() -> Self {
        Numbered { numbers: HashMap::new(), values: Vec::new() }
    }

    fn add(&mut self, value: T) -> u64 {
        let next = self.values.len() as u64;
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            next
        })
    }

    fn number(&self, value: T) -> u64 {
        self.numbers.get(&value).copied().unwrap_or(0)
    }
}

struct Tables<'a> {
    texts: Numbered<&'a str>,
    frames: Numbered<(&'a str, &'a str, u32)>,
    streams: Numbered<usize>,
    pools: Numbered<PoolId>,
    threads: Numbered<u64>,
    addresses: Numbered<u64>,
    sizes: Numbered<u64>,
}

impl<'a> Tables<'a> {
    fn new(snapshot: &'a Snapshot) -> Self {
        let mut tables = Tables {
            texts: Numbered::new(),
            frames: Numbered::new(),
            streams: Numbered::new(),
            pools: Numbered::new(),
            threads: Numbered::new(),
            addresses: Numbered::new(),
            sizes: Numbered::new(),
        };
        // Number 0 is no text, the default stream and the default pool.
        tables.texts.add("");
        tables.streams.add(0);
        tables.pools.add(PoolId::DEFAULT);
        for Frame { name, file, line } in snapshot.stacks.all().iter().flat_map(|frames| frames.iter()) {
            tables.texts.add(name);
            tables.texts.add(file);
            tables.frames.add((name, file, *line));
        }
        for annotation in &snapshot.annotations {
            tables.texts.add(&annotation.name);
        }
        for segment in &snapshot.segments {
            tables.streams.add(segment.stream);
            tables.pools.add(segment.pool);
        }
        for entry in snapshot.traces.iter().flatten() {
            tables.texts.add(entry.metadata.as_deref().unwrap_or_default());
            tables.streams.add(entry.stream);
            tables.pools.add(entry.pool);
            tables.threads.add(entry.thread);
            tables.addresses.add(entry.address);
            tables.sizes.add(entry.size);
        }
        tables
    }

    fn write(&self, snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{{\"version\":\"{}\",\"time\":{}", env!("CARGO_PKG_VERSION"), snapshot.time_us)?;
        list(out, "texts", &self.texts.values, |out, text| json::quote(out, text))?;
        list(out, "frames", &self.frames.values, |out, (name, file, line)| {
            write!(out, "[{},{},{line}]", self.texts.number(name), self.texts.number(file))
        })?;
        list(out, "stacks", snapshot.stacks.all(), |out, frames| {
            let numbers = frames.iter().map(|frame| self.frames.number((&frame.name, &frame.file, frame.line)));
            write!(out, "{:?}", numbers.collect::<Vec<_>>())
        })?;
        list(out, "streams", &self.streams.values, |out, stream| write!(out, "{}", stream_number(*stream)))?;
        list(out, "pools", &self.pools.values, |out, pool| write!(out, "[{},{}]", pool.owner, pool.index))?;
        list(out, "threads", &self.threads.values, |out, thread| write!(out, "{thread}"))?;
        list(out, "annotations", &snapshot.annotations, |out, one| {
            let (name, begin) = (self.texts.number(&one.name), u8::from(one.begin));
            write!(out, "[{},{},{name},{begin}]", one.device, one.time_us)
        })?;
        list(out, "devices", &snapshot.figures, |out, figures| {
            let (total, limit) = (figures.total.unwrap_or(0), figures.limit.unwrap_or(0));
            write!(out, "[{total},{limit},{}]", figures.held)
        })?;
        out.write_all(b"}")
    }

    fn write_rows(&self, snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
        for table in [&self.addresses.values, &self.sizes.values] {
            number(out, table.len() as u64)?;
            table.iter().try_for_each(|value| number(out, *value))?;
        }
        for (device, trace) in snapshot.traces.iter().enumerate() {
            number(out, trace.len() as u64)?;
            let mut time = trace.first().map_or(0, |entry| entry.time_us);
            number(out, time)?;
            for entry in trace {
                self.write_entry(snapshot, entry, time, out)?;
                time = time.max(entry.time_us);
            }
            let segments: Vec<_> =
                snapshot.segments.iter().filter(|segment| segment.device as usize == device).collect();
            number(out, segments.len() as u64)?;
            for segment in segments {
                number(out, segment.address)?;
                number(out, segment.asleep)?;
                number(out, self.streams.number(segment.stream))?;
                number(out, self.pools.number(segment.pool))?;
                let kind = u64::from(segment.zone == Zone::Large) | u64::from(segment.expandable) << 1;
                number(out, kind)?;
                number(out, segment.blocks.len() as u64)?;
                for block in &segment.blocks {
                    number(out, block.size)?;
                    number(out, block.requested)?;
                    number(out, block.state as u64)?;
                    number(out, u64::from(snapshot.stacks.number(block.stack)))?;
                }
            }
        }
        Ok(())
    }

    /// Times go up: where a clock was set back, they stand still.
    fn write_entry(&self, snapshot: &Snapshot, entry: &Entry, before: u64, out: &mut impl Write) -> io::Result<()> {
        number(out, action(entry.action))?;
        number(out, self.addresses.number(entry.address))?;
        number(out, self.sizes.number(entry.size))?;
        number(out, self.streams.number(entry.stream))?;
        number(out, self.pools.number(entry.pool))?;
        number(out, entry.time_us.saturating_sub(before))?;
        number(out, u64::from(snapshot.stacks.number(entry.stack)))?;
        number(out, self.texts.number(entry.metadata.as_deref().unwrap_or_default()))?;
        number(out, self.threads.number(entry.thread))
    }
}

/// The number of an action in the page; page/read.js has the same.
fn action(action: Action) -> u64 {
    match action {
        Action::Alloc => 0,
        Action::FreeRequested => 1,
        Action::FreeCompleted => 2,
        Action::SegmentAlloc => 3,
        Action::SegmentFree => 4,
        Action::SegmentMap => 5,
        Action::SegmentUnmap => 6,
        Action::Snapshot => 7,
        Action::Oom => 8,
    }
}

fn list<T>(
    out: &mut dyn Write,
    key: &str,
    values: &[T],
    write: impl Fn(&mut dyn Write, &T) -> io::Result<()>,
) -> io::Result<()> {
    write!(out, ",\n\"{key}\":[")?;
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        write(out, value)?;
    }
    out.write_all(b"]")
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn number(out: &mut impl Write, mut number: u64) -> io::Result<()> {
    let mut bytes = [0; 10];
    let mut length = 0;
    loop {
        let more = number > 0x7f;
        bytes[length] = number as u8 & 0x7f | u8::from(more) << 7;
        length += 1;
        number >>= 7;
        if !more {
            return out.write_all(&bytes[..length]);
        }
    }
}

/// Writes what it is given as base64.
struct Base64<'a> {
    out: &'a mut dyn Write,
    group: [u8; 3],
    filled: usize,
}

impl Base64<'_> {
    fn put(&mut self) -> io::Result<()> {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let [a, b, c] = self.group.map(u32::from);
        let bits = a << 16 | b << 8 | c;
        let mut text = [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift) as usize & 63]);
        text[self.filled + 1..].fill(b'=');
        (self.group, self.filled) = ([0; 3], 0);
        self.out.write_all(&text)
    }

    fn finish(mut self) -> io::Result<()> {
        if self.filled > 0 { self.put() } else { Ok(()) }
    }
}

impl Write for Base64<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.group[self.filled] = *byte;
            self.filled += 1;
            if self.filled == 3 {
                self.put()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

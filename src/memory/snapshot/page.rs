//! Writes a snapshot as one self-contained HTML file: no network, no server, no PyTorch.
//!
//! The sources of the page are in page/. The data of a snapshot is in two places. The tables (strings, frames, stacks,
//! pools, annotations) are JSON. Entries and blocks, of which there can be millions, are variable-length numbers of 7
//! bits per byte in base64: an entry takes about 15 bytes, and page/read.js decodes them into typed arrays quickly.
//! Repeated addresses and sizes are indices into a table.

use super::{
    super::{
        block::Zone,
        history::{Action, Entry, Frame},
        pool::PoolId,
    },
    Snapshot, json, stream_number,
};
use crate::base::{
    embedded::{CompressedText, embedded_text},
    stack::is_library,
};
use std::{
    collections::HashMap,
    hash::Hash,
    io::{self, Write},
};

/// The parts of the page, in order. The scripts are concatenated into one.
const HEAD: CompressedText = embedded_text!("head.html");
const STYLE: CompressedText = embedded_text!("style.css");
const BODY: CompressedText = embedded_text!("body.html");
const SCRIPTS: [CompressedText; 13] = [
    embedded_text!("read.js"),
    embedded_text!("model.js"),
    embedded_text!("common.js"),
    embedded_text!("colours.js"),
    embedded_text!("details.js"),
    embedded_text!("rows.js"),
    embedded_text!("timeline.js"),
    embedded_text!("timeline_paint.js"),
    embedded_text!("timeline_input.js"),
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
    out.write_all(b"</script>\n")?;
    let mut base64 = Base64 { out, group: [0; 3], filled: 0, groups: 0 };
    tables.write_rows(snapshot, &mut base64)?;
    base64.finish()?;
    out.write_all(b"<script>\n'use strict';\n")?;
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
        // Index 0 is the empty string, the default stream, the default pool and an unknown thread.
        tables.texts.add("");
        tables.streams.add(0);
        tables.pools.add(PoolId::DEFAULT);
        tables.threads.add(0);
        for Frame { name, file, line } in snapshot.stacks.all().iter().flat_map(|frames| frames.iter()) {
            tables.texts.add(name);
            tables.texts.add(file);
            tables.frames.add((name, file, *line));
        }
        for annotation in &snapshot.annotations {
            tables.texts.add(&annotation.name);
        }
        for name in snapshot.block_names.values() {
            tables.texts.add(name);
        }
        for segment in &snapshot.segments {
            tables.streams.add(segment.stream);
            tables.pools.add(segment.pool);
        }
        for entry in snapshot.traces.iter().flatten() {
            tables.texts.add(entry.metadata.as_deref().unwrap_or_default());
            tables.texts.add(entry.name.as_deref().unwrap_or_default());
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
        write_list(out, "texts", &self.texts.values, |out, text| json::quote(out, text))?;
        write_list(out, "frames", &self.frames.values, |out, (name, file, line)| {
            let library = u8::from(is_library(name, file));
            write!(out, "[{},{},{line},{library}]", self.texts.number(name), self.texts.number(file))
        })?;
        write_list(out, "stacks", snapshot.stacks.all(), |out, frames| {
            let numbers = frames.iter().map(|frame| self.frames.number((&frame.name, &frame.file, frame.line)));
            write!(out, "{:?}", numbers.collect::<Vec<_>>())
        })?;
        write_list(out, "streams", &self.streams.values, |out, stream| write!(out, "{}", stream_number(*stream)))?;
        write_list(out, "stream_names", &self.streams.values, |out, stream| {
            json::quote(out, snapshot.stream_names.get(&stream_number(*stream)).map_or("", |name| name))
        })?;
        let names: Vec<_> = snapshot.block_names.iter().collect();
        write_list(out, "block_names", &names, |out, (address, name)| {
            write!(out, "[\"{address:x}\",{}]", self.texts.number(name))
        })?;
        write_list(out, "pools", &self.pools.values, |out, pool| write!(out, "[{},{}]", pool.owner, pool.index))?;
        write_list(out, "threads", &self.threads.values, |out, thread| write!(out, "{thread}"))?;
        write_list(out, "annotations", &snapshot.annotations, |out, one| {
            let (name, begin) = (self.texts.number(&one.name), u8::from(one.begin));
            write!(out, "[{},{},{name},{begin}]", one.device, one.time_us)
        })?;
        write_list(out, "devices", &snapshot.totals, |out, totals| {
            let (total, limit) = (totals.total.unwrap_or(0), totals.limit.unwrap_or(0));
            write!(out, "[{total},{limit},{}]", totals.reserved)
        })?;
        out.write_all(b"}")
    }

    fn write_rows(&self, snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
        for table in [&self.addresses.values, &self.sizes.values] {
            write_number(out, table.len() as u64)?;
            table.iter().try_for_each(|value| write_number(out, *value))?;
        }
        for (device, trace) in snapshot.traces.iter().enumerate() {
            write_number(out, trace.len() as u64)?;
            let mut time = trace.first().map_or(0, |entry| entry.time_us);
            write_number(out, time)?;
            for entry in trace {
                self.write_entry(snapshot, entry, time, out)?;
                time = time.max(entry.time_us);
            }
            let segments: Vec<_> =
                snapshot.segments.iter().filter(|segment| segment.device as usize == device).collect();
            write_number(out, segments.len() as u64)?;
            for segment in segments {
                write_number(out, segment.address)?;
                write_number(out, segment.asleep)?;
                write_number(out, self.streams.number(segment.stream))?;
                write_number(out, self.pools.number(segment.pool))?;
                let kind = u64::from(segment.zone == Zone::Large) | u64::from(segment.expandable) << 1;
                write_number(out, kind)?;
                write_number(out, segment.blocks.len() as u64)?;
                for block in &segment.blocks {
                    write_number(out, block.size)?;
                    write_number(out, block.requested)?;
                    write_number(out, block.state as u64)?;
                    write_number(out, u64::from(snapshot.stacks.number(block.stack)))?;
                }
            }
        }
        Ok(())
    }

    /// Writes an entry. Times never decrease: if the clock was set back, the time stays the same.
    fn write_entry(&self, snapshot: &Snapshot, entry: &Entry, before: u64, out: &mut impl Write) -> io::Result<()> {
        write_number(out, action_number(entry.action))?;
        write_number(out, self.addresses.number(entry.address))?;
        write_number(out, self.sizes.number(entry.size))?;
        write_number(out, self.streams.number(entry.stream))?;
        write_number(out, self.pools.number(entry.pool))?;
        write_number(out, entry.time_us.saturating_sub(before))?;
        write_number(out, u64::from(snapshot.stacks.number(entry.stack)))?;
        write_number(out, self.texts.number(entry.metadata.as_deref().unwrap_or_default()))?;
        write_number(out, self.threads.number(entry.thread))?;
        write_number(out, self.texts.number(entry.name.as_deref().unwrap_or_default()))
    }
}

/// Returns the number of an action in the page; page/read.js has the same.
fn action_number(action: Action) -> u64 {
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

fn write_list<T>(
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

/// Writes a number with 7 bits per byte, lowest first; the highest bit of a byte means that more follow.
fn write_number(out: &mut impl Write, mut number: u64) -> io::Result<()> {
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

/// Encodes the bytes written to it as base64, in elements of a limited size: browsers limit the length of a string, and
/// the page removes each element when it has read it.
struct Base64<'a> {
    out: &'a mut dyn Write,
    group: [u8; 3],
    filled: usize,
    /// The groups in the current element.
    groups: usize,
}

impl Base64<'_> {
    /// The most groups of four characters in an element.
    const MAX_GROUPS: usize = 1 << 18;

    fn put(&mut self) -> io::Result<()> {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        if self.groups == 0 {
            self.out.write_all(b"<script type=\"text/plain\" class=\"rows\">")?;
        }
        let [a, b, c] = self.group.map(u32::from);
        let bits = a << 16 | b << 8 | c;
        let mut text = [18, 12, 6, 0].map(|shift| DIGITS[(bits >> shift) as usize & 63]);
        text[self.filled + 1..].fill(b'=');
        (self.group, self.filled) = ([0; 3], 0);
        self.groups += 1;
        self.out.write_all(&text)?;
        if self.groups == Self::MAX_GROUPS { self.end_element() } else { Ok(()) }
    }

    fn end_element(&mut self) -> io::Result<()> {
        self.groups = 0;
        self.out.write_all(b"</script>\n")
    }

    fn finish(mut self) -> io::Result<()> {
        if self.filled > 0 {
            self.put()?;
        }
        if self.groups > 0 { self.end_element() } else { Ok(()) }
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

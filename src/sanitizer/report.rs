//! What the sanitizer found, and how it is told in words.

use super::{Kind, Stream, blocks::Life};
use crate::base::{
    stack::{self, StackId},
    units::Bytes,
};
use std::{
    fmt::{self, Write},
    sync::Arc,
};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// Nothing orders two accesses to the same bytes.
    Race,
    /// The same, and between the two the memory was freed and given out again.
    Reuse,
    /// Freed memory is used.
    UseAfterFree,
}

impl Conflict {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Conflict::Race => "race",
            Conflict::Reuse => "reuse",
            Conflict::UseAfterFree => "use_after_free",
        }
    }
}

/// Where an access ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// On the CPU.
    Cpu,
    /// In a stream.
    Stream(Stream),
    /// In a replay of a graph, in the stream that it was launched in.
    Replay {
        /// The graph.
        graph: u64,
        /// The branch of the graph, from 0.
        branch: usize,
        /// The stream.
        stream: Stream,
    },
    /// In a capture of a graph, and so in no replay yet.
    Capture {
        /// The graph.
        graph: u64,
        /// The stream that captures.
        stream: Stream,
    },
}

impl Site {
    /// The stream, if it is not the CPU.
    pub fn stream(self) -> Option<Stream> {
        match self {
            Site::Cpu => None,
            Site::Stream(stream) | Site::Replay { stream, .. } | Site::Capture { stream, .. } => Some(stream),
        }
    }
}

/// An access as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// The name of the call or the kernel.
    pub name: Arc<str>,
    /// What it did.
    pub kind: Kind,
    /// Where it ran.
    pub site: Site,
    /// Its first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Who made the call.
    pub stack: StackId,
    /// The number of the operation, in the order in which they were made.
    pub number: u64,
}

/// What would have ordered the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Missing {
    /// The later one's stream, or the CPU, waits for the earlier one's stream.
    Wait {
        /// Whether it did wait, but before the earlier access was there.
        too_early: bool,
    },
    /// The earlier one's stream is recorded for the block before it is freed.
    RecordStream,
    /// The free comes after the access.
    LaterFree,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub conflict: Conflict,
    /// The access at which it was found.
    pub access: Side,
    /// The earlier one; none if freed memory was used.
    pub previous: Option<Side>,
    /// The first byte that is concerned.
    pub address: u64,
    /// How many there are.
    pub bytes: u64,
    /// What would have ordered them.
    pub missing: Missing,
    /// The block that the access lies in, if an allocator's.
    pub allocation: Option<Life>,
    /// The block that the earlier one lay in, if that was another.
    pub former: Option<Life>,
    /// How often it was found.
    pub times: u64,
}

struct InStream(Stream);

impl fmt::Display for InStream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stream { device, handle, thread, .. } = self.0;
        match (handle, thread) {
            (0..=1, _) => write!(out, "the default stream of device {device}"),
            (_, 1..) => write!(out, "the default stream of thread {thread} on device {device}"),
            _ => write!(out, "stream {handle:#x} of device {device}"),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Cpu => write!(out, "on the CPU"),
            Site::Stream(stream) => write!(out, "in {}", InStream(*stream)),
            Site::Replay { graph, branch, stream } => {
                write!(out, "in branch {branch} of a replay of graph {graph:#x} in {}", InStream(*stream))
            }
            Site::Capture { graph, stream } => {
                write!(out, "in the capture of graph {graph:#x} in {}", InStream(*stream))
            }
        }
    }
}

fn range(address: u64, bytes: u64) -> String {
    format!("{} from {address:#x} on", Bytes(bytes))
}

impl Report {
    /// One sentence that says what is wrong.
    pub fn headline(&self) -> String {
        let range = range(self.address, self.bytes);
        let Side { name, site, kind, .. } = &self.access;
        let verb = kind.verb();
        let Some(previous) = &self.previous else {
            return format!("\"{name}\" {site} {verb} {range}, which were freed");
        };
        let (before, whence) = (previous.kind.verb(), previous.site);
        let again = if self.conflict == Conflict::Reuse { " as another block's" } else { "" };
        format!(
            "\"{name}\" {site} {verb} {range} while \"{}\" {whence} {before} them{again}: nothing orders the two",
            previous.name
        )
    }

    /// The order that is missing, and what makes it.
    pub fn advice(&self) -> String {
        let later = &self.access.name;
        let Some(previous) = &self.previous else {
            return format!("the free must come after the call of \"{later}\"");
        };
        let earlier = &previous.name;
        if self.missing == Missing::RecordStream {
            let block = self.former.as_ref().map_or(self.address, |life| life.address);
            let place = previous.site.stream().map_or("the CPU".into(), |stream| InStream(stream).to_string());
            return format!(
                "the block {block:#x} was freed while {place} was still to run \"{earlier}\": record that stream for the block \
                 before its free (plinth_record_stream), or let the block's own stream wait for it first"
            );
        }
        if let (Site::Replay { graph, .. }, Site::Replay { graph: same, .. }) = (self.access.site, previous.site)
            && graph == same
        {
            return format!("graph {graph:#x} has no path from \"{earlier}\" to \"{later}\"");
        }
        let awaited = previous.site.stream().map_or("the CPU".into(), |stream| InStream(stream).to_string());
        let (waiting, how) = match self.access.site.stream() {
            None => ("the CPU".into(), "plinth_stream_synchronize or plinth_event_synchronize"),
            Some(stream) => (InStream(stream).to_string(), "plinth_stream_wait_stream or plinth_event_wait"),
        };
        let so_far = match self.missing {
            Missing::Wait { too_early: true } => format!("last waited for it before \"{earlier}\" was there"),
            _ => "has not waited for it".into(),
        };
        format!("{waiting} must wait for {awaited} after \"{earlier}\" and before \"{later}\" ({how}); it {so_far}")
    }

    /// All that is known, on several lines.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.conflict.name().replace('_', " "), self.headline());
        tell_side(&mut text, "the access", &self.access);
        if let Some(previous) = &self.previous {
            tell_side(&mut text, "the earlier access", previous);
        }
        // Writing to a text cannot fail.
        let _ = writeln!(text, "  missing: {}", self.advice());
        if let Some(life) = &self.allocation {
            tell_life(&mut text, "the block", life);
        }
        if let Some(life) = &self.former {
            tell_life(&mut text, "the block before", life);
        }
        if self.times > 1 {
            let _ = writeln!(text, "  found {} times", self.times);
        }
        text
    }
}

fn tell_side(text: &mut String, what: &str, side: &Side) {
    let Side { name, kind, site, address, bytes, stack, number } = side;
    let _ = writeln!(
        text,
        "  {what}: \"{name}\" {site} {} {}, operation {number}, called from",
        kind.verb(),
        range(*address, *bytes)
    );
    tell_stack(text, *stack);
}

fn tell_life(text: &mut String, what: &str, life: &Life) {
    let range = range(life.address, life.bytes);
    let place = life.stream.map_or("the CPU".into(), |stream| InStream(stream).to_string());
    let _ = writeln!(text, "  {what}: {range}, allocated for {place} by");
    tell_stack(text, life.stack);
    if let Some(stack) = life.freed {
        let _ = writeln!(text, "  and freed by");
        tell_stack(text, stack);
    }
}

fn tell_stack(text: &mut String, stack: StackId) {
    let frames = stack::frames(stack);
    if frames.is_empty() {
        let _ = writeln!(text, "    a stack that is not known");
    }
    for frame in frames.iter() {
        let _ = match frame.line {
            0 => writeln!(text, "    {} ({})", frame.name, frame.file),
            line => writeln!(text, "    {} ({}:{line})", frame.name, frame.file),
        };
    }
}

//! Reports of the sanitizer, and their text.

use super::{blocks::Allocation, call::Stream};
use crate::{
    base::{
        stack::{self, Line, StackId},
        units::Bytes,
    },
    observe::Kind,
    runtime::names,
};
use std::{
    fmt::{self, Write},
    sync::Arc,
};

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// Two accesses to the same bytes are not ordered.
    Race,
    /// The same, and between the two the memory was freed and reallocated.
    Reuse,
    /// Freed memory is accessed.
    UseAfterFree,
    /// An access begins in a block and runs past its end.
    OutOfBounds,
    /// Memory without physical memory is accessed.
    UseWhileAsleep,
}

impl Conflict {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Conflict::Race => "race",
            Conflict::Reuse => "reuse",
            Conflict::UseAfterFree => "use_after_free",
            Conflict::OutOfBounds => "out_of_bounds",
            Conflict::UseWhileAsleep => "use_while_asleep",
        }
    }
}

/// Where an access runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// On the CPU.
    Cpu,
    /// In a stream.
    Stream(Stream),
    /// In a replay of a graph, in the stream of its launch.
    Replay {
        /// The graph.
        graph: u64,
        /// The branch of the graph, from 0.
        branch: usize,
        /// The stream.
        stream: Stream,
    },
    /// In the capture of a graph, before any replay.
    Capture {
        /// The graph.
        graph: u64,
        /// The stream that captures.
        stream: Stream,
    },
}

impl Site {
    /// Returns the stream; `None` for the CPU.
    pub fn stream(self) -> Option<Stream> {
        match self {
            Site::Cpu => None,
            Site::Stream(stream) | Site::Replay { stream, .. } | Site::Capture { stream, .. } => Some(stream),
        }
    }
}

/// The description of an access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessInfo {
    /// The name of the call or the kernel.
    pub name: Arc<str>,
    /// The kind of access.
    pub kind: Kind,
    /// Where it runs.
    pub site: Site,
    /// The first byte.
    pub address: u64,
    /// The size in bytes.
    pub bytes: u64,
    /// The stack of the call.
    pub stack: StackId,
    /// The number of the operation, in the order of the calls.
    pub number: u64,
}

/// The missing order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Missing {
    /// The stream of the later access, or the CPU, must wait for the stream of the earlier one.
    Wait {
        /// Whether it did wait, but before the earlier access was enqueued.
        too_early: bool,
    },
    /// The stream of the earlier access must be recorded for the block before its free.
    RecordStream,
    /// The free must come after the access.
    LaterFree,
    /// The block must be larger, or the access shorter.
    LargerBlock,
    /// The memory must wake before the access.
    Wake,
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The kind of finding.
    pub conflict: Conflict,
    /// The access that was checked.
    pub access: AccessInfo,
    /// The earlier access; `None` for an access that is wrong in any order.
    pub previous: Option<AccessInfo>,
    /// The first affected byte.
    pub address: u64,
    /// The number of affected bytes.
    pub bytes: u64,
    /// The order that is missing.
    pub missing: Missing,
    /// The block that contains the access, if it is known.
    pub allocation: Option<Allocation>,
    /// The former block that contained the earlier access, if it is another.
    pub former: Option<Allocation>,
    /// The number of times it was found.
    pub times: u64,
}

struct StreamName(Stream);

impl fmt::Display for StreamName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stream { device, handle, thread, .. } = self.0;
        match (handle, thread) {
            (2.., 1..) => write!(out, "the default stream of thread {thread} on device {device}"),
            _ => out.write_str(&names::describe_stream(handle, device)),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Cpu => write!(out, "on the CPU"),
            Site::Stream(stream) => write!(out, "in {}", StreamName(*stream)),
            Site::Replay { graph, branch, stream } => {
                write!(out, "in branch {branch} of a replay of graph {graph:#x} in {}", StreamName(*stream))
            }
            Site::Capture { graph, stream } => {
                write!(out, "in the capture of graph {graph:#x} in {}", StreamName(*stream))
            }
        }
    }
}

fn range(address: u64, bytes: u64) -> String {
    format!("{} from {address:#x} on", Bytes(bytes))
}

impl Report {
    /// Returns the finding as one sentence.
    pub fn headline(&self) -> String {
        let range = range(self.address, self.bytes);
        let AccessInfo { name, site, kind, .. } = &self.access;
        let verb = kind.verb();
        if let (Conflict::OutOfBounds, Some(block)) = (self.conflict, &self.allocation) {
            return format!(
                "\"{name}\" {site} {verb} {} from byte {} of a block{} of {} at {:#x}: {} lie past its end",
                Bytes(self.access.bytes),
                self.access.address - block.address,
                block.name.as_deref().map_or(String::new(), |name| format!(" \"{name}\"")),
                Bytes(block.bytes),
                block.address,
                Bytes(self.bytes)
            );
        }
        let Some(previous) = &self.previous else {
            let why = if self.conflict == Conflict::UseWhileAsleep { "sleep" } else { "were freed" };
            return format!("\"{name}\" {site} {verb} {range}, which {why}");
        };
        let (earlier_verb, earlier_site) = (previous.kind.verb(), previous.site);
        let reused = if self.conflict == Conflict::Reuse { " as another block's" } else { "" };
        format!(
            "\"{name}\" {site} {verb} {range} while \"{}\" {earlier_site} {earlier_verb} them{reused}: \
             nothing orders the two",
            previous.name
        )
    }

    /// Returns the missing order, and the call that establishes it.
    pub fn advice(&self) -> String {
        let later = &self.access.name;
        if self.conflict == Conflict::OutOfBounds {
            return format!(
                "pass \"{later}\" at most {} from {:#x} on, or allocate a larger block",
                Bytes(self.access.bytes - self.bytes),
                self.access.address
            );
        }
        if self.conflict == Conflict::UseWhileAsleep {
            return format!("wake the memory before the call of \"{later}\" (plinth_memory_wake)");
        }
        let Some(previous) = &self.previous else {
            return format!("the free must come after the call of \"{later}\"");
        };
        let earlier = &previous.name;
        if self.missing == Missing::RecordStream {
            let block = self.former.as_ref().map_or(self.address, |former| former.address);
            let place = previous.site.stream().map_or("the CPU".into(), |stream| StreamName(stream).to_string());
            return format!(
                "the block {block:#x} was freed before {place} had run \"{earlier}\": record that stream for the block \
                 before its free (plinth_record_stream), or let the block's own stream wait for it first"
            );
        }
        if let (Site::Replay { graph, .. }, Site::Replay { graph: same, .. }) = (self.access.site, previous.site)
            && graph == same
        {
            return format!("graph {graph:#x} has no path from \"{earlier}\" to \"{later}\"");
        }
        let awaited = previous.site.stream().map_or("the CPU".into(), |stream| StreamName(stream).to_string());
        let (waiting, how) = match self.access.site.stream() {
            None => ("the CPU".into(), "plinth_stream_synchronize or plinth_event_synchronize"),
            Some(stream) => (StreamName(stream).to_string(), "plinth_stream_wait_stream or plinth_event_wait"),
        };
        let so_far = match self.missing {
            Missing::Wait { too_early: true } => format!("last waited for it before \"{earlier}\" was enqueued"),
            _ => "has not waited for it".into(),
        };
        format!("{waiting} must wait for {awaited} after \"{earlier}\" and before \"{later}\" ({how}); it {so_far}")
    }

    /// Returns the report as the message of the call that is refused: what was found, where in the program, and what is
    /// missing.
    pub fn message(&self) -> String {
        let block = self.former.as_ref().or(self.allocation.as_ref());
        let allocated = block.filter(|_| self.conflict != Conflict::Race);
        let mut places = String::new();
        for (label, stack) in [
            ("the access is", Some(self.access.stack)),
            ("the earlier access is", self.previous.as_ref().map(|previous| previous.stack)),
            ("the block was allocated", allocated.map(|block| block.stack)),
            ("it was freed", allocated.and_then(|block| block.freed)),
        ] {
            if let Some(place) = stack.and_then(stack::describe_place) {
                // Writing to a text cannot fail.
                let _ = write!(places, "; {label} in {place}");
            }
        }
        format!("{}: {}{places}; {}", self.conflict.name().replace('_', " "), self.headline(), self.advice())
    }

    /// Returns the full report on several lines.
    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.conflict.name().replace('_', " "), self.headline());
        write_access(&mut text, "the access", &self.access);
        if let Some(previous) = &self.previous {
            write_access(&mut text, "the earlier access", previous);
        }
        // Writing to a text cannot fail.
        let _ = writeln!(text, "  missing: {}", self.advice());
        if let Some(allocation) = &self.allocation {
            write_allocation(&mut text, "the block", allocation);
        }
        if let Some(former) = &self.former {
            write_allocation(&mut text, "the former block", former);
        }
        if self.times > 1 {
            let _ = writeln!(text, "  found {} times", self.times);
        }
        text
    }
}

fn write_access(text: &mut String, label: &str, access: &AccessInfo) {
    let AccessInfo { name, kind, site, address, bytes, stack, number } = access;
    let _ = writeln!(
        text,
        "  {label}: \"{name}\" {site} {} {}, operation {number}, called from",
        kind.verb(),
        range(*address, *bytes)
    );
    write_stack(text, *stack);
}

fn write_allocation(text: &mut String, label: &str, allocation: &Allocation) {
    let name = allocation.name.as_deref().map_or(String::new(), |name| format!("\"{name}\", "));
    let range = format!("{name}{}", range(allocation.address, allocation.bytes));
    let place = allocation.stream.map_or("the CPU".into(), |stream| StreamName(stream).to_string());
    let _ = writeln!(text, "  {label}: {range}, allocated for {place} by");
    write_stack(text, allocation.stack);
    if let Some(stack) = allocation.freed {
        let _ = writeln!(text, "  and freed by");
        write_stack(text, stack);
    }
}

fn write_stack(text: &mut String, stack: StackId) {
    let frames = stack::frames(stack);
    if frames.is_empty() {
        let _ = writeln!(text, "    an unknown stack");
    }
    for line in stack::fold(&frames) {
        let _ = match line {
            Line::Frame(frame) => writeln!(text, "    {} ({})", frame.name, frame.place()),
            Line::Folded(count) => writeln!(text, "    ... {count} of plinth's headers and the C++ library"),
        };
    }
}

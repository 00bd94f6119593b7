//! Reports as JSON.

use super::{
    blocks::Allocation,
    call::Stream,
    report::{AccessInfo, Missing, Report, Site},
};
use crate::{
    base::stack::{self, StackId},
    memory::snapshot::json::quote,
    runtime::names::{self, Subject},
};
use std::io::{self, Write};

/// Formats reports as a JSON list.
pub fn json(reports: &[Report]) -> String {
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = write_list(&mut out, reports, |out, report| report.write_json(out));
    String::from_utf8_lossy(&out).into_owned()
}

/// Formats a report as a JSON object.
pub fn one(report: &Report) -> String {
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = report.write_json(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn write_list<T>(
    out: &mut Vec<u8>,
    items: &[T],
    mut one: impl FnMut(&mut Vec<u8>, &T) -> io::Result<()>,
) -> io::Result<()> {
    out.push(b'[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        one(out, item)?;
    }
    out.push(b']');
    Ok(())
}

impl Report {
    fn write_json(&self, out: &mut Vec<u8>) -> io::Result<()> {
        write!(out, "{{\"kind\":\"{}\",\"message\":", self.conflict.name())?;
        quote(out, &self.headline())?;
        write!(out, ",\"times\":{},\"address\":{},\"bytes\":{},\"access\":", self.times, self.address, self.bytes)?;
        write_access(out, &self.access)?;
        out.extend(b",\"previous\":");
        match &self.previous {
            Some(previous) => write_access(out, previous)?,
            None => out.extend(b"null"),
        }
        let missing = match self.missing {
            Missing::Wait { too_early: false } => "wait",
            Missing::Wait { too_early: true } => "later_wait",
            Missing::RecordStream => "record_stream",
            Missing::LaterFree => "later_free",
            Missing::Wake => "wake",
            Missing::LargerBlock => "larger_block",
        };
        write!(out, ",\"missing\":\"{missing}\",\"advice\":")?;
        quote(out, &self.advice())?;
        for (key, allocation) in [("allocation", &self.allocation), ("former_allocation", &self.former)] {
            write!(out, ",\"{key}\":")?;
            match allocation {
                Some(allocation) => write_allocation(out, allocation)?,
                None => out.extend(b"null"),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

fn write_stream(out: &mut Vec<u8>, stream: Option<Stream>) -> io::Result<()> {
    match stream {
        Some(stream) => {
            write!(out, "\"device\":{},\"stream\":{},\"stream_name\":", stream.device, stream.handle)?;
            let name = names::get(Subject::stream(stream.handle, stream.device));
            quote(out, name.as_deref().unwrap_or_default())
        }
        None => out.write_all(b"\"device\":null,\"stream\":null,\"stream_name\":null"),
    }
}

fn write_access(out: &mut Vec<u8>, access: &AccessInfo) -> io::Result<()> {
    out.extend(b"{\"name\":");
    quote(out, &access.name)?;
    write!(out, ",\"kind\":\"{}\",", access.kind.name())?;
    write_stream(out, access.site.stream())?;
    match access.site {
        Site::Replay { graph, .. } | Site::Capture { graph, .. } => write!(out, ",\"graph\":{graph}")?,
        _ => out.extend(b",\"graph\":null"),
    }
    write!(
        out,
        ",\"address\":{},\"bytes\":{},\"operation\":{},\"frames\":",
        access.address, access.bytes, access.number
    )?;
    write_stack(out, access.stack)?;
    out.push(b'}');
    Ok(())
}

fn write_allocation(out: &mut Vec<u8>, allocation: &Allocation) -> io::Result<()> {
    out.extend(b"{\"name\":");
    quote(out, allocation.name.as_deref().unwrap_or_default())?;
    write!(out, ",\"address\":{},\"bytes\":{},", allocation.address, allocation.bytes)?;
    write_stream(out, allocation.stream)?;
    out.extend(b",\"frames\":");
    write_stack(out, allocation.stack)?;
    out.extend(b",\"freed_frames\":");
    match allocation.freed {
        Some(stack) => write_stack(out, stack)?,
        None => out.extend(b"null"),
    }
    out.push(b'}');
    Ok(())
}

fn write_stack(out: &mut Vec<u8>, stack: StackId) -> io::Result<()> {
    write_list(out, &stack::frames(stack), |out, frame| {
        out.extend(b"{\"name\":");
        quote(out, &frame.name)?;
        out.extend(b",\"filename\":");
        quote(out, &frame.file)?;
        write!(out, ",\"line\":{}}}", frame.line)
    })
}

//! Reports in JSON.

use super::{
    Report, Stream,
    blocks::Life,
    report::{Missing, Side, Site},
};
use crate::{
    base::stack::{self, StackId},
    memory::snapshot::json::quote,
};
use std::io::{self, Write};

/// Reports as a JSON list.
pub fn json(reports: &[Report]) -> String {
    let mut out = Vec::new();
    // Writing to memory cannot fail.
    let _ = write_list(&mut out, reports, |out, report| report.write_json(out));
    String::from_utf8_lossy(&out).into_owned()
}

/// A report as a JSON object.
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
        write_side(out, &self.access)?;
        out.extend(b",\"previous\":");
        match &self.previous {
            Some(previous) => write_side(out, previous)?,
            None => out.extend(b"null"),
        }
        let missing = match self.missing {
            Missing::Wait { too_early: false } => "wait",
            Missing::Wait { too_early: true } => "later_wait",
            Missing::RecordStream => "record_stream",
            Missing::LaterFree => "later_free",
        };
        write!(out, ",\"missing\":\"{missing}\",\"advice\":")?;
        quote(out, &self.advice())?;
        for (key, life) in [("allocation", &self.allocation), ("former_allocation", &self.former)] {
            write!(out, ",\"{key}\":")?;
            match life {
                Some(life) => write_life(out, life)?,
                None => out.extend(b"null"),
            }
        }
        out.push(b'}');
        Ok(())
    }
}

fn write_stream(out: &mut Vec<u8>, stream: Option<Stream>) -> io::Result<()> {
    match stream {
        Some(stream) => write!(out, "\"device\":{},\"stream\":{}", stream.device, stream.handle),
        None => out.write_all(b"\"device\":null,\"stream\":null"),
    }
}

fn write_side(out: &mut Vec<u8>, side: &Side) -> io::Result<()> {
    out.extend(b"{\"name\":");
    quote(out, &side.name)?;
    write!(out, ",\"kind\":\"{}\",", side.kind.name())?;
    write_stream(out, side.site.stream())?;
    match side.site {
        Site::Replay { graph, .. } | Site::Capture { graph, .. } => write!(out, ",\"graph\":{graph}")?,
        _ => out.extend(b",\"graph\":null"),
    }
    write!(out, ",\"address\":{},\"bytes\":{},\"operation\":{},\"frames\":", side.address, side.bytes, side.number)?;
    write_stack(out, side.stack)?;
    out.push(b'}');
    Ok(())
}

fn write_life(out: &mut Vec<u8>, life: &Life) -> io::Result<()> {
    write!(out, "{{\"address\":{},\"bytes\":{},", life.address, life.bytes)?;
    write_stream(out, life.stream)?;
    out.extend(b",\"frames\":");
    write_stack(out, life.stack)?;
    out.extend(b",\"freed_frames\":");
    match life.freed {
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

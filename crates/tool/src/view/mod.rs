//! `plinth view`: analysis of a snapshot of the allocator, and its HTML page.

mod file;
mod summary;

use super::{
    failure::Result,
    output::{Columns, Output, bytes, heading, or_dash},
};
use clap::Args;
use plinth::internal::memory::{
    history::Frame,
    snapshot::{self, Snapshot},
};
use serde_json::{Value, json};
use std::path::PathBuf;
use summary::{Moment, Summary};

/// The options of `plinth view`.
#[derive(Args)]
pub struct Options {
    /// A snapshot that plinth_dump_snapshot wrote to a name that ends in .json
    snapshot: PathBuf,
    /// Also write the HTML page of the snapshot: one file for any browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The number of stacks to show
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// The number of functions of each stack to show
    #[arg(long, default_value_t = 4)]
    frames: usize,
}

/// Runs the subcommand.
pub fn run(options: &Options, output: &Output) -> Result<()> {
    let (snapshot, version) = file::read(&options.snapshot, output)?;
    if let Some(path) = &options.html {
        snapshot::file::replace(path, |out| snapshot::page::write(&snapshot, out))?;
    }
    let summary = Summary::of(&snapshot);
    if output.json {
        output.value(&as_json(options, &snapshot, &version, &summary))
    } else {
        output.text(&as_text(options, &snapshot, &version, &summary))
    }
}

fn frames_json(frames: &[Frame]) -> Vec<Value> {
    frames.iter().map(|frame| json!({ "name": frame.name, "file": frame.file, "line": frame.line })).collect()
}

fn moment_json(moment: &Moment) -> Value {
    json!({
        "device": moment.device,
        "time_us": moment.time_us,
        "live": moment.live,
        "request": moment.request.map(|(request, _)| request),
        "device_free": moment.request.map(|(_, free)| free),
        "frames": frames_json(&moment.frames),
    })
}

fn as_json(options: &Options, snapshot: &Snapshot, version: &str, summary: &Summary) -> Value {
    let sums = |sums: &summary::Sums| {
        json!({
            "segments": sums.segments, "blocks": sums.blocks, "bytes": sums.bytes, "active": sums.active,
            "pending": sums.pending, "free": sums.free(), "largest_free": sums.largest_free,
        })
    };
    let devices = summary.devices.iter().map(|(device, one)| {
        let totals = snapshot.totals.get(*device as usize).copied().unwrap_or_default();
        let mut value = sums(one);
        value["device"] = json!(device);
        value["total_memory"] = json!(totals.total);
        value["limit"] = json!(totals.limit);
        value["reserved"] = json!(totals.reserved);
        value
    });
    let pools = summary.pools.iter().map(|((device, pool, stream), one)| {
        let mut value = sums(one);
        value["device"] = json!(device);
        value["pool"] = json!([pool.owner, pool.index]);
        value["stream"] = json!(stream);
        value
    });
    let stacks = summary
        .stacks
        .iter()
        .take(options.top)
        .map(|stack| json!({ "bytes": stack.bytes, "blocks": stack.blocks, "frames": frames_json(&stack.frames) }));
    json!({
        "version": version,
        "time_us": snapshot.time_us,
        "entries": summary.entries,
        "devices": devices.collect::<Vec<Value>>(),
        "pools": pools.collect::<Vec<Value>>(),
        "stacks": stacks.collect::<Vec<Value>>(),
        "peaks": summary.peaks.iter().map(moment_json).collect::<Vec<Value>>(),
        "out_of_memory": summary.out_of_memory.iter().map(moment_json).collect::<Vec<Value>>(),
        "html": options.html.as_ref().map(|path| path.to_string_lossy()),
    })
}

/// Formats a stack in one line, innermost function first.
fn frames_text(frames: &[Frame], most: usize) -> String {
    if frames.is_empty() {
        return "no stack was recorded".to_owned();
    }
    let place = |frame: &Frame| {
        let file = frame.file.rsplit('/').next().unwrap_or_default();
        if frame.line > 0 {
            format!("{} ({file}:{})", frame.name, frame.line)
        } else {
            format!("{} ({file})", frame.name)
        }
    };
    let mut shown: Vec<String> = frames.iter().take(most.max(1)).map(place).collect();
    if frames.len() > shown.len() {
        shown.push(format!("{} more", frames.len() - shown.len()));
    }
    shown.join(" < ")
}

fn moment_text(moment: &Moment, options: &Options, snapshot: &Snapshot) -> String {
    let before = snapshot.time_us.saturating_sub(moment.time_us) as f64 / 1e6;
    let live = bytes(moment.live);
    let what = match moment.request {
        Some((request, free)) => format!(
            "Device {}, {before:.6} s before the snapshot: {} were requested, {live} were in use, {} of the device \
             were free",
            moment.device,
            bytes(request),
            bytes(free),
        ),
        None => format!("Device {}, {before:.6} s before the snapshot: {live} were in use", moment.device),
    };
    format!("{what}\n  {}\n", frames_text(&moment.frames, options.frames))
}

fn as_text(options: &Options, snapshot: &Snapshot, version: &str, summary: &Summary) -> String {
    let mut text = format!("A snapshot of plinth {version}, with {} entries of history\n", summary.entries);
    let mut devices = Columns::new(&[
        "device",
        ">memory",
        ">limit",
        ">held",
        ">segments",
        ">blocks",
        ">in use",
        ">freed, in use",
        ">free",
        ">largest free",
    ]);
    for (device, one) in &summary.devices {
        let totals = snapshot.totals.get(*device as usize).copied().unwrap_or_default();
        devices.row([
            device.to_string(),
            or_dash(totals.total.map(bytes)),
            or_dash(totals.limit.map(bytes)),
            bytes(totals.reserved),
            one.segments.to_string(),
            one.blocks.to_string(),
            bytes(one.active),
            bytes(one.pending),
            bytes(one.free()),
            bytes(one.largest_free),
        ]);
    }
    text += &format!("\n{}{}", heading("Devices"), devices.text());
    if !summary.pools.is_empty() {
        let mut pools = Columns::new(&["device", "pool", "stream", ">segments", ">bytes", ">in use", ">free"]);
        for ((device, pool, stream), one) in &summary.pools {
            pools.row([
                device.to_string(),
                pool.to_string(),
                format!("{stream:#x}"),
                one.segments.to_string(),
                bytes(one.bytes),
                bytes(one.active + one.pending),
                bytes(one.free()),
            ]);
        }
        text += &format!("\n{}{}", heading("Pools and streams"), pools.text());
    }
    if !summary.stacks.is_empty() {
        let mut stacks = Columns::new(&[">bytes", ">blocks", "allocated by"]);
        for stack in summary.stacks.iter().take(options.top) {
            stacks.row([bytes(stack.bytes), stack.blocks.to_string(), frames_text(&stack.frames, options.frames)]);
        }
        let hidden = summary.stacks.len().saturating_sub(options.top);
        let more =
            if hidden > 0 { format!("{hidden} smaller stacks are hidden; --top shows more.\n") } else { String::new() };
        text += &format!("\n{}{}{more}", heading("Allocated bytes by stack"), stacks.text());
    }
    for (name, moments) in [("Peak", &summary.peaks), ("Out of memory", &summary.out_of_memory)] {
        if !moments.is_empty() {
            let each: String = moments.iter().map(|moment| moment_text(moment, options, snapshot)).collect();
            text += &format!("\n{}{each}", heading(name));
        }
    }
    if let Some(path) = &options.html {
        text += &format!("\nThe page is {}.\n", path.display());
    }
    text
}

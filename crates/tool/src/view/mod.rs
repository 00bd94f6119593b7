//! `plinth view`: analysis of a snapshot of the allocator, and its HTML page.

mod file;
mod stack;
mod summary;

use super::{
    failure::{Failure, Result},
    output::{Columns, Output, bytes, heading, or_dash, paragraph, printable, width},
};
use clap::Args;
use plinth::internal::memory::{
    history::Frame,
    snapshot::{self, Snapshot},
};
use serde_json::{Value, json};
use std::{
    env,
    path::{Path, PathBuf},
};
use summary::{Moment, Summary};

/// The options of `plinth view`.
#[derive(Args)]
pub struct Options {
    /// A snapshot that plinth_dump_snapshot wrote to a name that ends in .json
    snapshot: PathBuf,
    /// Also write the HTML page of the snapshot: one file for any browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the HTML page and open it in the browser; without --html it is written beside the snapshot
    #[arg(long)]
    open: bool,
    /// The number of stacks to show
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// The number of functions of each stack to show
    #[arg(long, default_value_t = 4)]
    frames: usize,
    /// Show whole stacks, with the functions of libraries: one function in each line
    #[arg(long)]
    full_stacks: bool,
}

impl Options {
    /// Returns the file of the HTML page, if one is to be written.
    fn page(&self) -> Option<PathBuf> {
        let beside = || self.open.then(|| self.snapshot.with_extension("html"));
        self.html.clone().or_else(beside)
    }
}

/// Runs the subcommand.
pub fn run(options: &Options, output: &Output) -> Result<()> {
    let (snapshot, version) = file::read(&options.snapshot, output)?;
    let page = options.page();
    if let Some(path) = &page {
        snapshot::file::replace(path, |out| snapshot::page::write(&snapshot, out))?;
    }
    let summary = Summary::of(&snapshot);
    if output.json {
        output.value(&as_json(options, &snapshot, &version, &summary))?;
    } else {
        output.text(&as_text(options, &snapshot, &version, &summary))?;
    }
    page.filter(|_| options.open).map_or(Ok(()), |path| open_page(&path))
}

/// Variables of which one is set where a browser can be opened.
const DISPLAYS: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"];

/// Opens a page in the user's browser.
fn open_page(path: &Path) -> Result<()> {
    // Programs that open files may run in another folder.
    let path = std::path::absolute(path).map_err(|error| Failure::file(path, error))?;
    let has_display = DISPLAYS.iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()));
    let opened = if has_display {
        open::that_detached(&path).map_err(|error| error.to_string())
    } else {
        Err(format!("there is no display (none of {} is set)", DISPLAYS.join(", ")))
    };
    opened.map_err(|reason| {
        let path = path.display();
        Failure::Failed(format!("opening a browser: {reason}; open {path} in one, on any machine"))
    })
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
        value["stream_name"] = json!(snapshot.stream_names.get(&(*stream as u64)).map(|name| &**name));
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
        "html": options.page().as_ref().map(|path| path.to_string_lossy()),
    })
}

/// Formats a stack, indented.
fn stack_text(frames: &[Frame], options: &Options) -> String {
    if options.full_stacks {
        return stack::full(frames).iter().map(|line| format!("    {line}\n")).collect();
    }
    let width = width().map_or(usize::MAX, usize::from);
    let lines = stack::of_program(frames, options.frames).into_iter();
    lines.map(|line| format!("{}\n", console::truncate_str(&format!("    {line}"), width, "..."))).collect()
}

/// Formats a stream's number, with its name if it has one.
fn stream_text(snapshot: &Snapshot, stream: usize) -> String {
    match snapshot.stream_names.get(&(stream as u64)) {
        Some(name) => format!("\"{}\" {stream:#x}", printable(name)),
        None => format!("{stream:#x}"),
    }
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
    format!("{}\n{}", paragraph(&what, 0), stack_text(&moment.frames, options))
}

/// Returns the table of devices. It lacks limits if none is set, and freed blocks in use if there are none.
fn devices_text(snapshot: &Snapshot, summary: &Summary) -> String {
    let is_limited = snapshot.totals.iter().any(|totals| totals.limit.is_some());
    let is_pending = summary.devices.values().any(|one| one.pending > 0);
    let columns = [
        ("device", true),
        (">memory", true),
        (">limit", is_limited),
        (">held", true),
        (">blocks", true),
        (">in use", true),
        (">freed, in use", is_pending),
        (">free", true),
        (">largest free", true),
    ];
    let names: Vec<&str> = columns.iter().filter(|(_, shown)| *shown).map(|(name, _)| *name).collect();
    let mut table = Columns::new(&names);
    for (device, one) in &summary.devices {
        let totals = snapshot.totals.get(*device as usize).copied().unwrap_or_default();
        let cells = [
            device.to_string(),
            or_dash(totals.total.map(bytes)),
            or_dash(totals.limit.map(bytes)),
            bytes(totals.reserved),
            one.blocks.to_string(),
            bytes(one.active),
            bytes(one.pending),
            bytes(one.free()),
            bytes(one.largest_free),
        ];
        table.row(cells.into_iter().zip(&columns).filter(|(_, (_, shown))| *shown).map(|(cell, _)| cell));
    }
    table.text()
}

fn as_text(options: &Options, snapshot: &Snapshot, version: &str, summary: &Summary) -> String {
    let version = printable(version);
    let mut text = format!("A snapshot of plinth {version}, with {} entries of history\n", summary.entries);
    text += &format!("\n{}{}", heading("Devices"), devices_text(snapshot, summary));
    if !summary.pools.is_empty() {
        let mut pools = Columns::new(&["device", "pool", "stream", ">segments", ">bytes", ">in use", ">free"]);
        for ((device, pool, stream), one) in &summary.pools {
            pools.row([
                device.to_string(),
                pool.to_string(),
                stream_text(snapshot, *stream),
                one.segments.to_string(),
                bytes(one.bytes),
                bytes(one.active + one.pending),
                bytes(one.free()),
            ]);
        }
        text += &format!("\n{}{}", heading("Pools and streams"), pools.text());
    }
    if !summary.stacks.is_empty() {
        let each = summary.stacks.iter().take(options.top).map(|stack| {
            let blocks = if stack.blocks == 1 { "block" } else { "blocks" };
            let (size, frames) = (bytes(stack.bytes), stack_text(&stack.frames, options));
            format!("{size} in {} {blocks}\n{frames}", stack.blocks)
        });
        let stacks: String = each.collect();
        let hidden = summary.stacks.len().saturating_sub(options.top);
        let more =
            if hidden > 0 { format!("{hidden} smaller stacks are hidden; --top shows more.\n") } else { String::new() };
        text += &format!("\n{}{}{more}", heading("Allocated bytes by stack"), stacks);
    }
    for (name, moments) in [("Peak", &summary.peaks), ("Out of memory", &summary.out_of_memory)] {
        if !moments.is_empty() {
            let each: String = moments.iter().map(|moment| moment_text(moment, options, snapshot)).collect();
            text += &format!("\n{}{each}", heading(name));
        }
    }
    if let Some(path) = &options.page() {
        text += &format!("\nThe page is {}.\n", path.display());
    }
    text
}

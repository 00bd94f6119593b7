//! The structure of a snapshot, walked once for every format: torch's keys in torch's order, and after them our own.

use super::{
    super::{
        block::Zone,
        config,
        history::{Action, Annotation, Entry, Frame},
        pool::PoolId,
    },
    Block, Figures, Segment, Snapshot, stream_number,
};
use std::{io, sync::Arc};

/// What hears the parts of a snapshot, in order.
pub trait Writer {
    /// A map begins.
    fn begin_map(&mut self) -> io::Result<()>;
    /// The map ends.
    fn end_map(&mut self) -> io::Result<()>;
    /// A list begins.
    fn begin_list(&mut self) -> io::Result<()>;
    /// The list ends.
    fn end_list(&mut self) -> io::Result<()>;
    /// Of a map the next key; its value follows.
    fn key(&mut self, key: &'static str) -> io::Result<()>;
    /// The next value of a list follows.
    fn item(&mut self) -> io::Result<()>;
    /// A number.
    fn number(&mut self, number: u64) -> io::Result<()>;
    /// A number that stands for "no limit": -1.
    fn no_limit(&mut self) -> io::Result<()>;
    /// A number with a fraction.
    fn real(&mut self, number: f64) -> io::Result<()>;
    /// Yes or no.
    fn truth(&mut self, truth: bool) -> io::Result<()>;
    /// A text.
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// The name of a pool.
    fn pool(&mut self, pool: PoolId) -> io::Result<()>;
    /// All stacks, where the format has them in one place. Their key is written by then only if there is one.
    fn stacks(&mut self, stacks: &[Arc<[Frame]>]) -> io::Result<()>;
    /// A stack, by its number.
    fn stack(&mut self, number: u32, frames: &[Frame]) -> io::Result<()>;

    /// A key with a number.
    fn set(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.key(key)?;
        self.number(value)
    }

    /// A key with a text.
    fn set_text(&mut self, key: &'static str, value: &str) -> io::Result<()> {
        self.key(key)?;
        self.text(value)
    }

    /// A key with yes or no.
    fn set_truth(&mut self, key: &'static str, value: bool) -> io::Result<()> {
        self.key(key)?;
        self.truth(value)
    }
}

/// Tells a writer a whole snapshot.
pub fn snapshot(snapshot: &Snapshot, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.stacks(snapshot.stacks.all())?;
    to.key("segments")?;
    to.begin_list()?;
    for one in &snapshot.segments {
        to.item()?;
        segment(snapshot, one, to)?;
    }
    to.end_list()?;
    to.key("device_traces")?;
    to.begin_list()?;
    for trace in &snapshot.traces {
        to.item()?;
        to.begin_list()?;
        for one in trace {
            to.item()?;
            entry(snapshot, one, to)?;
        }
        to.end_list()?;
    }
    to.end_list()?;
    to.key("allocator_settings")?;
    settings(to)?;
    to.key("external_annotations")?;
    to.begin_list()?;
    for one in &snapshot.annotations {
        to.item()?;
        annotation(one, to)?;
    }
    to.end_list()?;
    to.key("plinth")?;
    own(snapshot, to)?;
    to.end_map()
}

fn frames(snapshot: &Snapshot, number: u32, to: &mut impl Writer) -> io::Result<()> {
    to.key("frames")?;
    to.stack(number, snapshot.stacks.all().get(number as usize).map_or(&[], |frames| &frames[..]))
}

fn segment(snapshot: &Snapshot, segment: &Segment, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set("device", u64::from(segment.device))?;
    to.set("address", segment.address)?;
    to.set("total_size", segment.bytes())?;
    to.set("allocated_size", segment.allocated())?;
    to.set("active_size", segment.active())?;
    to.set("requested_size", segment.requested())?;
    to.set("stream", stream_number(segment.stream))?;
    to.set_text("segment_type", zone_name(segment.zone))?;
    to.key("segment_pool_id")?;
    to.pool(segment.pool)?;
    to.set_truth("is_expandable", segment.expandable)?;
    // Handles are mapped and unmapped as memory is needed: a segment has no one place that it comes from.
    frames(snapshot, 0, to)?;
    to.key("blocks")?;
    to.begin_list()?;
    for one in &segment.blocks {
        to.item()?;
        block(snapshot, one, to)?;
    }
    to.end_list()?;
    to.set("asleep_size", segment.asleep)?;
    to.end_map()
}

/// torch's name of a zone.
fn zone_name(zone: Zone) -> &'static str {
    match zone {
        Zone::Small => "small",
        Zone::Large => "large",
    }
}

fn block(snapshot: &Snapshot, block: &Block, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set("address", block.address)?;
    to.set("size", block.size)?;
    to.set("requested_size", block.requested)?;
    to.set_text("state", block.state.name())?;
    // Always, if only an empty one: without it torch's viewers take the size for what was asked for.
    frames(snapshot, snapshot.stacks.number(block.stack), to)?;
    to.end_map()
}

fn entry(snapshot: &Snapshot, entry: &Entry, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set_text("action", entry.action.name())?;
    to.set(if entry.action == Action::Oom { "device_free" } else { "addr" }, entry.address)?;
    to.set("size", entry.size)?;
    to.set("stream", stream_number(entry.stream))?;
    to.set("time_us", entry.time_us)?;
    to.set_text("compile_context", "N/A")?;
    to.set_text("user_metadata", entry.metadata.as_deref().unwrap_or_default())?;
    frames(snapshot, snapshot.stacks.number(entry.stack), to)?;
    to.key("pool_id")?;
    to.pool(entry.pool)?;
    to.set("thread", entry.thread)?;
    to.end_map()
}

fn annotation(annotation: &Annotation, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set_text("name", &annotation.name)?;
    to.set_text("stage", if annotation.begin { "START" } else { "END" })?;
    to.set("device", u64::from(annotation.device))?;
    to.set("time_us", annotation.time_us)?;
    to.end_map()
}

/// torch's settings, as far as there are such here; the others are what torch has when nothing is set.
fn settings(to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set_text(
        "PYTORCH_CUDA_ALLOC_CONF",
        &std::env::var_os("PLINTH_ALLOC_CONF").unwrap_or_default().to_string_lossy(),
    )?;
    to.key("max_split_size")?;
    to.no_limit()?;
    to.key("garbage_collection_threshold")?;
    to.real(0.0)?;
    to.set_truth("expandable_segments", config::get().is_ok_and(|config| config.expandable_segments))?;
    to.set("pinned_num_register_threads", 1)?;
    to.set_truth("release_lock_on_cudamalloc", false)?;
    to.set_truth("pinned_use_cuda_host_register", false)?;
    to.set_truth("graph_capture_record_stream_reuse", false)?;
    to.key("roundup_power2_divisions")?;
    to.begin_map()?;
    for power in ROUNDED {
        to.set(power, 0)?;
    }
    to.end_map()?;
    to.end_map()
}

/// The sizes, in MiB, for which torch can be told to round otherwise.
const ROUNDED: [&str; 16] =
    ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"];

/// What torch's structure has no place for.
fn own(snapshot: &Snapshot, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set_text("version", env!("CARGO_PKG_VERSION"))?;
    to.set("time_us", snapshot.time_us)?;
    to.key("devices")?;
    to.begin_list()?;
    for Figures { total, limit, held } in &snapshot.figures {
        to.item()?;
        to.begin_map()?;
        for (key, value) in [("total_memory", *total), ("limit", *limit), ("reserved", Some(*held))] {
            if let Some(value) = value {
                to.set(key, value)?;
            }
        }
        to.end_map()?;
    }
    to.end_list()?;
    to.end_map()
}

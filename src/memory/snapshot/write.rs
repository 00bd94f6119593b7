//! Traverses a snapshot for every format: torch's keys in torch's order, followed by plinth's own.

use super::{
    super::{
        block::Zone,
        config,
        history::{Action, Annotation, Entry, Frame},
        pool::PoolId,
    },
    Block, DeviceTotals, Segment, Snapshot, stream_number,
};
use std::{io, sync::Arc};

/// Receives the parts of a snapshot in order.
pub trait Writer {
    /// Begins a map.
    fn begin_map(&mut self) -> io::Result<()>;
    /// Ends the map.
    fn end_map(&mut self) -> io::Result<()>;
    /// Begins a list.
    fn begin_list(&mut self) -> io::Result<()>;
    /// Ends the list.
    fn end_list(&mut self) -> io::Result<()>;
    /// Writes the next key of a map; its value follows.
    fn key(&mut self, key: &'static str) -> io::Result<()>;
    /// Announces the next value of a list.
    fn item(&mut self) -> io::Result<()>;
    /// Writes an integer.
    fn number(&mut self, number: u64) -> io::Result<()>;
    /// Writes -1, which means "no limit".
    fn no_limit(&mut self) -> io::Result<()>;
    /// Writes a floating-point number.
    fn real(&mut self, number: f64) -> io::Result<()>;
    /// Writes a boolean.
    fn boolean(&mut self, value: bool) -> io::Result<()>;
    /// Writes a string.
    fn text(&mut self, text: &str) -> io::Result<()>;
    /// Writes the id of a pool.
    fn pool(&mut self, pool: PoolId) -> io::Result<()>;
    /// Writes all stacks with their key, if the format stores them in one place.
    fn stacks(&mut self, stacks: &[Arc<[Frame]>]) -> io::Result<()>;
    /// Writes a stack, or a reference to it.
    fn stack(&mut self, number: u32, frames: &[Frame]) -> io::Result<()>;

    /// Writes a key with an integer.
    fn set(&mut self, key: &'static str, value: u64) -> io::Result<()> {
        self.key(key)?;
        self.number(value)
    }

    /// Writes a key with a string.
    fn set_text(&mut self, key: &'static str, value: &str) -> io::Result<()> {
        self.key(key)?;
        self.text(value)
    }

    /// Writes a key with a boolean.
    fn set_boolean(&mut self, key: &'static str, value: bool) -> io::Result<()> {
        self.key(key)?;
        self.boolean(value)
    }
}

/// Passes a whole snapshot to a writer.
pub fn write_snapshot(snapshot: &Snapshot, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.stacks(snapshot.stacks.all())?;
    to.key("segments")?;
    to.begin_list()?;
    for one in &snapshot.segments {
        to.item()?;
        write_segment(snapshot, one, to)?;
    }
    to.end_list()?;
    to.key("device_traces")?;
    to.begin_list()?;
    for trace in &snapshot.traces {
        to.item()?;
        to.begin_list()?;
        for one in trace {
            to.item()?;
            write_entry(snapshot, one, to)?;
        }
        to.end_list()?;
    }
    to.end_list()?;
    to.key("allocator_settings")?;
    write_settings(to)?;
    to.key("external_annotations")?;
    to.begin_list()?;
    for one in &snapshot.annotations {
        to.item()?;
        write_annotation(one, to)?;
    }
    to.end_list()?;
    to.key("plinth")?;
    write_plinth_data(snapshot, to)?;
    to.end_map()
}

fn write_frames(snapshot: &Snapshot, number: u32, to: &mut impl Writer) -> io::Result<()> {
    to.key("frames")?;
    to.stack(number, snapshot.stacks.all().get(number as usize).map_or(&[], |frames| &frames[..]))
}

fn write_segment(snapshot: &Snapshot, segment: &Segment, to: &mut impl Writer) -> io::Result<()> {
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
    to.set_boolean("is_expandable", segment.expandable)?;
    // Handles are mapped and unmapped on demand, so a segment has no single stack of its allocation.
    write_frames(snapshot, 0, to)?;
    to.key("blocks")?;
    to.begin_list()?;
    for one in &segment.blocks {
        to.item()?;
        write_block(snapshot, one, to)?;
    }
    to.end_list()?;
    to.set("asleep_size", segment.asleep)?;
    to.end_map()
}

/// Returns torch's name of a zone.
fn zone_name(zone: Zone) -> &'static str {
    match zone {
        Zone::Small => "small",
        Zone::Large => "large",
    }
}

fn write_block(snapshot: &Snapshot, block: &Block, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set("address", block.address)?;
    to.set("size", block.size)?;
    to.set("requested_size", block.requested)?;
    to.set_text("state", block.state.name())?;
    // Always write the key, even for an empty stack: without it torch's viewers take the size for the requested size.
    write_frames(snapshot, snapshot.stacks.number(block.stack), to)?;
    if let Some(name) = snapshot.block_names.get(&block.address) {
        to.set_text("name", name)?;
    }
    to.end_map()
}

fn write_entry(snapshot: &Snapshot, entry: &Entry, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set_text("action", entry.action.name())?;
    to.set(if entry.action == Action::Oom { "device_free" } else { "addr" }, entry.address)?;
    to.set("size", entry.size)?;
    to.set("stream", stream_number(entry.stream))?;
    to.set("time_us", entry.time_us)?;
    to.set_text("compile_context", "N/A")?;
    to.set_text("user_metadata", entry.metadata.as_deref().unwrap_or_default())?;
    write_frames(snapshot, snapshot.stacks.number(entry.stack), to)?;
    to.key("pool_id")?;
    to.pool(entry.pool)?;
    to.set("thread", entry.thread)?;
    if let Some(name) = &entry.name {
        to.set_text("name", name)?;
    }
    to.end_map()
}

fn write_annotation(annotation: &Annotation, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set_text("name", &annotation.name)?;
    to.set_text("stage", if annotation.begin { "START" } else { "END" })?;
    to.set("device", u64::from(annotation.device))?;
    to.set("time_us", annotation.time_us)?;
    to.end_map()
}

/// Writes the settings that torch's structure has. If they cannot be read, they have their defaults.
fn write_settings(to: &mut impl Writer) -> io::Result<()> {
    let config = config::get().unwrap_or_default();
    to.begin_map()?;
    to.set_text("PYTORCH_CUDA_ALLOC_CONF", &config.text())?;
    to.key("max_split_size")?;
    match config.max_split_size {
        u64::MAX => to.no_limit()?,
        limit => to.number(limit)?,
    }
    to.key("garbage_collection_threshold")?;
    to.real(config.garbage_collection_threshold)?;
    to.set_boolean("expandable_segments", config.expandable_segments)?;
    to.set("pinned_num_register_threads", config.pinned_num_register_threads.into())?;
    to.set_boolean("release_lock_on_cudamalloc", config.release_lock_on_cudamalloc)?;
    to.set_boolean("pinned_use_cuda_host_register", config.pinned_use_cuda_host_register)?;
    to.set_boolean("graph_capture_record_stream_reuse", config.graph_capture_record_stream_reuse)?;
    to.key("roundup_power2_divisions")?;
    to.begin_map()?;
    for (size, divisions) in ROUNDUP_SIZES.into_iter().zip(config.roundup_power2_divisions) {
        to.set(size, divisions)?;
    }
    to.end_map()?;
    to.end_map()
}

/// The sizes in MiB for which torch supports separate rounding.
const ROUNDUP_SIZES: [&str; config::INTERVALS] =
    ["1", "2", "4", "8", "16", "32", "64", "128", "256", "512", "1024", "2048", "4096", "8192", "16384", "32768"];

/// Writes the data that torch's structure lacks.
fn write_plinth_data(snapshot: &Snapshot, to: &mut impl Writer) -> io::Result<()> {
    to.begin_map()?;
    to.set_text("version", env!("CARGO_PKG_VERSION"))?;
    to.set("time_us", snapshot.time_us)?;
    to.key("stream_names")?;
    to.begin_list()?;
    for (stream, name) in &snapshot.stream_names {
        to.item()?;
        to.begin_map()?;
        to.set("stream", *stream)?;
        to.set_text("name", name)?;
        to.end_map()?;
    }
    to.end_list()?;
    to.key("devices")?;
    to.begin_list()?;
    for DeviceTotals { total, limit, reserved } in &snapshot.totals {
        to.item()?;
        to.begin_map()?;
        for (key, value) in [("total_memory", *total), ("limit", *limit), ("reserved", Some(*reserved))] {
            if let Some(value) = value {
                to.set(key, value)?;
            }
        }
        to.end_map()?;
    }
    to.end_list()?;
    to.end_map()
}

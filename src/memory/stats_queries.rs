//! Queries of statistics: for a pool, for a stream, and as JSON.

use super::{pool::PoolId, route, stats::Stats, stats_aggregation};
use crate::{
    error::Result,
    runtime::{self, thread},
    stream::Stream,
};
use std::fmt::Write;

/// Returns the statistics of a pool on a device. Quantities that only the device counts are 0.
pub fn pool_stats(id: PoolId, number: i32) -> Result<Stats> {
    let memory = &runtime::ready()?.device(number)?.memory();
    Ok(stats_aggregation::stats_of(memory.arenas(), |key| key.pool == id))
}

/// Returns the statistics of a stream in all pools. Quantities that only the device counts are 0.
pub fn stream_stats(stream: &Stream) -> Result<Stats> {
    let memory = &super::device_memory::device(runtime::ready()?, stream.device)?.memory();
    let handle = route::canonical(stream.raw.handle());
    let number = thread::of_stream(handle);
    Ok(stats_aggregation::stats_of(memory.arenas(), |key| (key.stream, key.thread) == (handle, number)))
}

/// Resets all sums and counters of a device.
pub fn reset_accumulated_stats(number: i32) -> Result<()> {
    runtime::ready()?.device(number)?.memory().reset_accumulated();
    Ok(())
}

/// Formats statistics as JSON: one flat object with torch's keys, or objects nested at the dots of the keys.
pub fn json(stats: &Stats, nested: bool) -> String {
    let entries: Vec<(&str, i64)> = stats.entries().collect();
    let mut text = String::new();
    if nested {
        write_nested(&mut text, &entries);
    } else {
        write_object(&mut text, entries.iter(), |text, (key, value)| write!(text, "\"{key}\": {value}"));
    }
    text
}

fn write_object<T>(
    text: &mut String,
    members: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T) -> std::fmt::Result,
) {
    text.push('{');
    for (index, member) in members.enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        // Writing to a string cannot fail.
        let _ = write(text, member);
    }
    text.push('}');
}

/// Writes entries in sorted key order, so that keys with a common prefix are adjacent.
fn write_nested(text: &mut String, entries: &[(&str, i64)]) {
    let first = |key: &str| key.split_once('.').map_or(key, |(first, _)| first).to_owned();
    let groups = entries.chunk_by(|one, other| first(one.0) == first(other.0));
    write_object(text, groups, |text, group| {
        write!(text, "\"{}\": ", first(group[0].0))?;
        if let [(key, value)] = group
            && !key.contains('.')
        {
            return write!(text, "{value}");
        }
        let inner: Vec<(&str, i64)> =
            group.iter().filter_map(|(key, value)| Some((key.split_once('.')?.1, *value))).collect();
        write_nested(text, &inner);
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{block::Zone, stats::KEYS};

    #[test]
    fn stats_are_formatted_as_json() {
        let mut stats = Stats { num_ooms: 2, ..Stats::default() };
        stats.active.add(Zone::Large, 7);
        let flat = json(&stats, false);
        assert!(flat.starts_with("{\"active.all.allocated\": 7, \"active.all.current\": 7, "), "{flat}");
        assert!(flat.ends_with("\"segment.small_pool.peak\": 0}"), "{flat}");
        assert_eq!((flat.matches(": ").count(), flat.matches(", ").count()), (KEYS, KEYS - 1));
        let nested = json(&stats, true);
        let begin =
            "{\"active\": {\"all\": {\"allocated\": 7, \"current\": 7, \"freed\": 0, \"peak\": 7}, \"large_pool\": {";
        assert!(nested.starts_with(begin), "{nested}");
        assert!(nested.contains("}}, \"max_split_size\": -1, \"num_alloc_retries\": 0, "), "{nested}");
        assert_eq!(nested.matches('{').count(), 1 + 9 * 4 + 2);
        assert_eq!(nested.matches('}').count(), nested.matches('{').count());
        // One value for each key and one object for each group.
        assert_eq!(nested.matches(": ").count(), KEYS + 9 * 4 + 2);
    }
}

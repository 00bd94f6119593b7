//! Scenarios: a trace with other sizes, in other pools, under another limit or other settings.

use super::trace::{Operation, Trace};
use std::collections::BTreeMap;

/// The units of sizes, with the powers of two that they stand for.
const UNITS: [(&str, u32); 5] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("B", 0)];

/// How a scenario is written; a part of `--help`.
pub const SYNTAX: &str = "scale=FACTOR, limit=RATIO|SIZE|least, pools=streams, settings=TEXT, memory=SIZE; scale and pools \
                          take @transient or @SIZE, as in \"scale=2@transient limit=40GiB\"";

/// Which blocks are meant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Selection {
    /// All of them.
    All,
    /// Those that are live for less than half of the trace's events: not the weights of a training, for example.
    Transient,
    /// Those of at least so many bytes.
    AtLeast(u64),
}

/// The most memory that may be reserved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// As a multiple of the trace's peak.
    Ratio(f64),
    /// In bytes.
    Bytes(u64),
    /// The least with which the trace still runs.
    Least,
}

/// Which blocks are allocated in pools of their own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pools {
    /// Those of each stream but the first in a pool of the stream.
    Streams,
    /// The selected ones in one pool.
    Selected(Selection),
}

/// What differs from the recorded program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scenario {
    /// The factor by which the sizes of blocks change.
    pub scale: Option<(f64, Selection)>,
    /// The limit.
    pub limit: Option<Limit>,
    /// The pools.
    pub pools: Option<Pools>,
    /// The value of PLINTH_ALLOC_CONF.
    pub settings: Option<String>,
    /// The memory of the device in bytes.
    pub memory: Option<u64>,
}

type Parsed<T> = Result<T, String>;

fn number(text: &str) -> Parsed<f64> {
    let number: Option<f64> = text.parse().ok().filter(|number: &f64| *number > 0.0 && number.is_finite());
    number.ok_or_else(|| format!("\"{text}\" is not a positive number"))
}

/// Reads a size with its unit; `None` if the text has no unit.
fn size(text: &str) -> Option<Parsed<u64>> {
    let (digits, shift) = UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
    let bytes = number(digits).map(|number| number * (1_u64 << shift) as f64);
    Some(bytes.and_then(|bytes| if bytes < 1e18 { Ok(bytes as u64) } else { Err(format!("{text} is too large")) }))
}

fn required_size(text: &str) -> Parsed<u64> {
    size(text).unwrap_or_else(|| Err(format!("\"{text}\" has no unit: B, KiB, MiB, GiB or TiB")))
}

fn selection(text: &str) -> Parsed<Selection> {
    if text == "transient" { Ok(Selection::Transient) } else { Ok(Selection::AtLeast(required_size(text)?)) }
}

impl Scenario {
    /// Reads a scenario: elements `key=value`, separated by spaces.
    pub fn parse(text: &str) -> Parsed<Scenario> {
        let mut scenario = Scenario::default();
        for element in text.split_whitespace() {
            let (key, value) = element.split_once('=').unwrap_or((element, ""));
            let refused = |reason: String| format!("\"{element}\": {reason}");
            match key {
                "scale" => {
                    let (factor, rest) =
                        value.split_once('@').map_or((value, None), |(first, rest)| (first, Some(rest)));
                    let selected = rest.map_or(Ok(Selection::All), selection).map_err(refused)?;
                    scenario.scale = Some((number(factor).map_err(refused)?, selected));
                }
                "limit" if value == "least" => scenario.limit = Some(Limit::Least),
                "limit" => {
                    let limit = match size(value) {
                        Some(bytes) => bytes.map(Limit::Bytes),
                        None => number(value).map(Limit::Ratio),
                    };
                    scenario.limit = Some(limit.map_err(refused)?);
                }
                "pools" => {
                    scenario.pools = Some(match value.strip_prefix('@') {
                        None if value == "streams" => Pools::Streams,
                        None => return Err(refused("pools are streams, @transient or @SIZE".to_owned())),
                        Some(rest) => Pools::Selected(selection(rest).map_err(refused)?),
                    });
                }
                "settings" if !value.is_empty() => scenario.settings = Some(value.to_owned()),
                "memory" => scenario.memory = Some(required_size(value).map_err(refused)?),
                _ => return Err(format!("\"{element}\" is not one of {SYNTAX}")),
            }
        }
        Ok(scenario)
    }

    /// Changes the sizes and the pools of a trace. Fails if its memory would not fit into 2^62 bytes.
    pub fn apply(&self, trace: &mut Trace) -> Parsed<()> {
        let transient = trace.transient();
        let is_selected = |selection: Selection, event: usize, size: u64| match selection {
            Selection::All => true,
            Selection::Transient => transient[event],
            Selection::AtLeast(least) => size >= least,
        };
        let mut sizes = vec![0; trace.slots as usize];
        let mut pools_of_streams = BTreeMap::new();
        let (mut live, mut peak) = (0_u64, 0);
        for (index, event) in trace.events.iter_mut().enumerate() {
            let slot = &mut sizes[event.slot as usize];
            match &mut event.operation {
                Operation::Allocate { size, stream, pool } => {
                    *pool = match self.pools {
                        None => 0,
                        Some(Pools::Streams) if *stream == 0 => 0,
                        Some(Pools::Streams) => {
                            let next = pools_of_streams.len() as u16 + 1;
                            *pools_of_streams.entry(*stream).or_insert(next)
                        }
                        Some(Pools::Selected(selection)) => u16::from(is_selected(selection, index, *size)),
                    };
                    trace.pools = trace.pools.max(*pool);
                    if let Some((factor, selection)) = self.scale
                        && is_selected(selection, index, *size)
                    {
                        *size = (*size as f64 * factor).ceil() as u64;
                    }
                    *slot = *size;
                    live = live.saturating_add(*size);
                    peak = peak.max(live);
                }
                Operation::Free { size } => {
                    *size = *slot;
                    live = live.saturating_sub(*size);
                }
            }
        }
        trace.peak_live = peak;
        if peak > 1 << 62 { Err("the scaled blocks exceed 2^62 bytes".to_owned()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::trace::Event, *};

    #[test]
    fn elements_are_read() {
        let read =
            Scenario::parse(" scale=1.5@16MiB limit=1.05 pools=streams settings=a:1,b:[2] memory=80GiB").unwrap();
        assert_eq!(read.scale, Some((1.5, Selection::AtLeast(16 << 20))));
        assert_eq!((read.limit, read.pools), (Some(Limit::Ratio(1.05)), Some(Pools::Streams)));
        assert_eq!((read.settings.as_deref(), read.memory), (Some("a:1,b:[2]"), Some(80 << 30)));
        assert_eq!(Scenario::parse("limit=0.5KiB").unwrap().limit, Some(Limit::Bytes(512)));
        assert_eq!(Scenario::parse("limit=least").unwrap().limit, Some(Limit::Least));
        assert_eq!(Scenario::parse("pools=@transient").unwrap().pools, Some(Pools::Selected(Selection::Transient)));
        assert_eq!(Scenario::parse("").unwrap(), Scenario::default());
        for wrong in
            ["scale=0", "scale=x", "scale=2@weights", "limit=", "limit=9e30TiB", "pools=1MiB", "memory=5", "x=1"]
        {
            assert!(Scenario::parse(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    fn sizes_and_pools(text: &str) -> (Vec<(u64, u16)>, u64) {
        let allocate = |slot, size, stream| Event { slot, operation: Operation::Allocate { size, stream, pool: 0 } };
        let mut trace = Trace {
            events: vec![
                allocate(0, 100, 0),
                allocate(1, 10, 1),
                Event { slot: 1, operation: Operation::Free { size: 10 } },
                allocate(1, 30, 2),
            ],
            slots: 2,
            streams: 3,
            ..Trace::default()
        };
        Scenario::parse(text).unwrap().apply(&mut trace).unwrap();
        let blocks = trace.events.iter().filter_map(|event| match event.operation {
            Operation::Allocate { size, pool, .. } => Some((size, pool)),
            Operation::Free { .. } => None,
        });
        (blocks.collect(), trace.peak_live)
    }

    #[test]
    fn traces_are_changed() {
        assert_eq!(sizes_and_pools(""), (vec![(100, 0), (10, 0), (30, 0)], 130));
        assert_eq!(sizes_and_pools("scale=2.05"), (vec![(205, 0), (21, 0), (62, 0)], 267));
        assert_eq!(sizes_and_pools("scale=3@transient"), (vec![(100, 0), (30, 0), (30, 0)], 130));
        assert_eq!(sizes_and_pools("scale=2@30B pools=streams"), (vec![(200, 0), (10, 1), (60, 2)], 260));
        assert_eq!(sizes_and_pools("pools=@30B").0, [(100, 1), (10, 0), (30, 1)]);
    }
}

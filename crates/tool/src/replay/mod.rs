//! `plinth replay`: runs a recorded trace of allocations through this library's allocator.
//!
//! The first pass starts with an empty allocator and times each operation. Then all blocks are freed and the trace is
//! repeated; these rounds measure the steady state, and are timed as a whole to exclude the cost of reading the
//! clock. With `--what-if` the allocator is asked about other programs than the recorded one: see [`what_if`].

mod scenario;
mod trace;
mod what_if;

use super::{
    failure::{Failure, Result},
    output::{Columns, Output, bytes, heading, paragraph},
};
use clap::Args;
use plinth::internal::{
    memory::{self, PoolId, pool},
    runtime, stream,
};
use plinth_driver::{Kind, Stream, error::Error, status::Status};
use scenario::{Limit, Scenario};
use serde_json::{Value, json};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};
use trace::{Event, Operation, Trace};

/// The options of `plinth replay`.
#[derive(Args)]
pub struct Options {
    /// A trace that plinth_trace_start wrote, also compressed by xz
    trace: PathBuf,
    /// The number of the device
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    on: u32,
    /// The most memory that the allocator may reserve, as a multiple of the trace's peak
    #[arg(long, value_name = "RATIO")]
    limit: Option<f64>,
    /// The number of repetitions after the first pass
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Forecast the memory of another program than the recorded one, on the host device unless --device names another;
    /// may be given several times
    #[arg(long, value_name = "SCENARIO", long_help = what_if::help(), conflicts_with = "limit")]
    what_if: Vec<String>,
    /// Replay one scenario: what the processes do that --what-if starts
    #[arg(long, hide = true, conflicts_with = "limit")]
    scenario: Option<String>,
}

/// Events between two reads of the clock, which also update the progress bar.
const CHUNK: usize = 4096;

/// The results of one pass over the trace.
struct Pass {
    time: Duration,
    /// The most bytes that were reserved.
    peak_held: u64,
    /// The bytes that were reserved after all blocks were freed.
    held_after: u64,
}

/// The slowest operation.
struct Slowest {
    time: Duration,
    event: usize,
}

/// The event at which memory ran out.
struct OutOfMemory {
    event: usize,
    request: u64,
    live: u64,
    reason: String,
}

struct Replay<'a> {
    trace: &'a Trace,
    device: i32,
    streams: Vec<Stream>,
    /// The pools besides the default one.
    pools: Vec<PoolId>,
    /// The addresses of the blocks, by slot; 0 for an unused slot.
    blocks: Vec<u64>,
}

impl Replay<'_> {
    fn new(trace: &Trace, device: i32) -> Result<Replay<'_>> {
        let runtime = runtime::ready()?;
        let mut streams = Vec::new();
        for _ in 0..trace.streams {
            // Each stream is created separately, because the library's pools would return the same streams again.
            let made = runtime.device(device)?.with_context(&runtime.driver, |driver| Ok(driver.stream_create(0)?))?;
            stream::from_external(made, device)?;
            streams.push(made);
        }
        let create = |_| memory::pool_create(pool::Options::default(), None);
        let pools = (0..trace.pools).map(create).collect::<std::result::Result<_, _>>()?;
        Ok(Replay { trace, device, streams, pools, blocks: vec![0; trace.slots as usize] })
    }

    fn step(&mut self, event: Event) -> plinth_driver::error::Result<()> {
        let block = &mut self.blocks[event.slot as usize];
        match event.operation {
            Operation::Allocate { size, stream, pool: 0 } => {
                *block = memory::caching_alloc(size, self.device, self.streams[usize::from(stream)])?;
                Ok(())
            }
            Operation::Allocate { size, stream, pool } => {
                let pool = self.pools[usize::from(pool) - 1];
                memory::begin_allocate_current_thread_to_pool(self.device, pool)?;
                let made = memory::caching_alloc(size, self.device, self.streams[usize::from(stream)]);
                memory::end_allocate_to_pool(self.device, pool)?;
                memory::release_pool(self.device, pool)?;
                *block = made?;
                Ok(())
            }
            Operation::Free { .. } => memory::caching_free(std::mem::take(block)),
        }
    }

    /// Describes the failure of an event.
    fn describe_failure(&self, at: usize, error: Error) -> std::result::Result<OutOfMemory, Failure> {
        let event = self.trace.events[at];
        let Operation::Allocate { size, .. } = event.operation else { return Err(error.into()) };
        if error.status() != Status::OUT_OF_MEMORY {
            return Err(error.into());
        }
        let live = self.trace.events[..at].iter().fold(0, |live, event| match event.operation {
            Operation::Allocate { size, .. } => live + size,
            Operation::Free { size } => live - size,
        });
        Ok(OutOfMemory { event: at, request: size, live, reason: error.message().to_owned() })
    }

    fn free_all(&mut self) -> Result<()> {
        for block in &mut self.blocks {
            memory::caching_free(std::mem::take(block))?;
        }
        Ok(())
    }

    /// Runs the trace once. With `timed`, times each event and returns the slowest.
    fn pass(&mut self, timed: bool, tick: impl Fn(u64)) -> Result<std::result::Result<(Pass, Slowest), OutOfMemory>> {
        memory::reset_peak_stats(self.device)?;
        let mut slowest = Slowest { time: Duration::ZERO, event: 0 };
        let mut time = Duration::ZERO;
        let trace = self.trace;
        for (chunk, events) in trace.events.chunks(CHUNK).enumerate() {
            let first = chunk * CHUNK;
            let mut failed = None;
            let started = Instant::now();
            for (index, event) in events.iter().enumerate() {
                let before = timed.then(Instant::now);
                if let Err(error) = self.step(*event) {
                    failed = Some((first + index, error));
                    break;
                }
                if let Some(took) = before.map(|before| before.elapsed()).filter(|took| *took > slowest.time) {
                    slowest = Slowest { time: took, event: first + index };
                }
            }
            time += started.elapsed();
            if let Some((at, error)) = failed {
                let explained = self.describe_failure(at, error)?;
                self.free_all()?;
                return Ok(Err(explained));
            }
            tick(events.len() as u64);
        }
        self.free_all()?;
        let (held_after, peak_held) = memory::reserved(self.device)?;
        Ok(Ok((Pass { time, peak_held, held_after }, slowest)))
    }
}

/// The results of a replay.
struct Report {
    device: String,
    limit: Option<u64>,
    first: Option<Pass>,
    slowest: Slowest,
    rounds: Vec<Pass>,
    out_of_memory: Option<OutOfMemory>,
}

/// Limits the device's reserved memory.
fn set_limit(options: &Options, limit: Option<Limit>, peak_live: u64, total: u64) -> Result<Option<u64>> {
    let limit = match limit {
        None | Some(Limit::Least) => return Ok(None),
        Some(Limit::Bytes(bytes)) => bytes,
        Some(Limit::Ratio(ratio)) if ratio > 0.0 && ratio.is_finite() => (peak_live as f64 * ratio) as u64,
        Some(Limit::Ratio(ratio)) => {
            return Err(Failure::Invalid(format!("--limit {ratio} is invalid; it must be a positive number")));
        }
    };
    if limit > total {
        let (limit, total) = (bytes(limit), bytes(total));
        return Err(Failure::Invalid(format!("the limit of {limit} is more than the device has: {total}")));
    }
    memory::set_fraction(limit as f64 / total as f64, options.on as i32)?;
    Ok(Some(limit))
}

fn replay(options: &Options, trace: &Trace, limit: Option<Limit>, output: &Output) -> Result<Report> {
    let runtime = runtime::ready()?;
    let number = i32::try_from(options.on).unwrap_or(i32::MAX);
    let properties = runtime.device(number)?.properties(&runtime.driver)?;
    let limit = set_limit(options, limit, trace.peak_live, properties.total_memory)?;
    let mut report = Report {
        device: match runtime.driver.kind() {
            Kind::Cuda => properties.name.clone(),
            Kind::Host => format!("the host device, as {}", properties.name),
        },
        limit,
        first: None,
        slowest: Slowest { time: Duration::ZERO, event: 0 },
        rounds: Vec::new(),
        out_of_memory: None,
    };
    let mut replay = Replay::new(trace, number)?;
    let events = trace.events.len() as u64;
    let bar = output.progress("replaying", events * (1 + u64::from(options.rounds)));
    for round in 0..=options.rounds {
        match replay.pass(round == 0, |count| bar.inc(count))? {
            Ok((pass, slowest)) if round == 0 => (report.first, report.slowest) = (Some(pass), slowest),
            Ok((pass, _)) => report.rounds.push(pass),
            Err(out) => {
                report.out_of_memory = Some(out);
                break;
            }
        }
    }
    memory::check()?;
    Ok(report)
}

/// Runs the subcommand. `on_gpu` says that forecasts are to be made on a GPU.
pub fn run(options: &Options, on_gpu: bool, output: &Output) -> Result<()> {
    if !options.what_if.is_empty() {
        return what_if::run(options, if on_gpu { "cuda" } else { "host" }, output);
    }
    let mut trace = trace::read(&options.trace, output)?;
    let mut limit = options.limit.map(Limit::Ratio);
    if let Some(text) = &options.scenario {
        let scenario = Scenario::parse(text).map_err(Failure::Invalid)?;
        scenario.apply(&mut trace).map_err(Failure::Invalid)?;
        limit = scenario.limit;
    }
    let report = replay(options, &trace, limit, output)?;
    if output.json {
        output.value(&as_json(&trace, &report))?;
    } else {
        output.text(&as_text(&trace, &report))?;
    }
    if report.out_of_memory.is_some() { Err(Failure::ProblemFound) } else { Ok(()) }
}

fn each(pass: &Pass, trace: &Trace) -> f64 {
    pass.time.as_nanos() as f64 / trace.events.len().max(1) as f64
}

/// Returns the round with the median time.
fn median(rounds: &[Pass]) -> Option<&Pass> {
    let mut sorted: Vec<&Pass> = rounds.iter().collect();
    sorted.sort_by_key(|pass| pass.time);
    sorted.get(sorted.len() / 2).copied()
}

fn as_json(trace: &Trace, report: &Report) -> Value {
    let pass = |pass: &Pass| {
        json!({
            "nanoseconds": pass.time.as_nanos() as u64,
            "nanoseconds_per_event": each(pass, trace),
            "peak_held": pass.peak_held,
            "held_after": pass.held_after,
        })
    };
    json!({
        "device": report.device,
        "events": trace.events.len(),
        "streams": trace.streams,
        "peak_live": trace.peak_live,
        "limit": report.limit,
        "first": report.first.as_ref().map(pass),
        "worst": { "nanoseconds": report.slowest.time.as_nanos() as u64, "event": report.slowest.event },
        "rounds": report.rounds.iter().map(pass).collect::<Vec<Value>>(),
        "median": median(&report.rounds).map(pass),
        "out_of_memory": report.out_of_memory.as_ref().map(|out| json!({
            "event": out.event, "request": out.request, "live": out.live, "reason": out.reason,
        })),
    })
}

fn as_text(trace: &Trace, report: &Report) -> String {
    let streams = if trace.streams == 1 { "" } else { "s" };
    let mut text =
        format!("{} events on {} stream{streams}, on {}\n", trace.events.len(), trace.streams, report.device);
    if let Some(limit) = report.limit {
        text += &format!("At most {} may be reserved\n", bytes(limit));
    }
    let mut table = Columns::new(&[
        "pass",
        ">time",
        ">per event",
        ">peak live",
        ">peak held",
        ">held/live",
        ">held when all is free",
    ]);
    let mut row = |name: String, pass: &Pass| {
        let ratio = match trace.peak_live {
            0 => "-".to_owned(),
            live => format!("{:.3}", pass.peak_held as f64 / live as f64),
        };
        table.row([
            name,
            format!("{:.2} ms", pass.time.as_secs_f64() * 1e3),
            format!("{:.0} ns", each(pass, trace)),
            bytes(trace.peak_live),
            bytes(pass.peak_held),
            ratio,
            bytes(pass.held_after),
        ]);
    };
    if let Some(first) = &report.first {
        row("first".to_owned(), first);
    }
    if let Some(middle) = median(&report.rounds) {
        row(format!("median of {} more", report.rounds.len()), middle);
    }
    if report.first.is_some() {
        text += &format!("\n{}", table.text());
        let (time, event) = (report.slowest.time.as_secs_f64() * 1e6, report.slowest.event);
        text += &format!("\nThe longest operation of the first pass took {time:.1} us: event {event}.\n");
    }
    if let Some(out) = &report.out_of_memory {
        text += &format!("\n{}", heading("Out of memory"));
        let (request, live) = (bytes(out.request), bytes(out.live));
        let reason = out.reason.trim_end_matches('.');
        let sentence = format!("Event {} requests {request} while {live} are live: {reason}.", out.event);
        text += &format!("{}\n", paragraph(&sentence, 0));
    }
    text
}

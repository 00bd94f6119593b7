//! `plinth replay --what-if`: forecasts the memory of programs that differ from the recorded one.
//!
//! Each scenario is replayed in a process of its own, because settings and limits hold for a process, and because the
//! allocator must be empty. The host device has no memory that a replay would touch, so it stands for a GPU of any size.

use super::{
    Options,
    scenario::{Limit, SYNTAX, Scenario},
    trace,
};
use crate::{
    failure::{Failure, Result},
    output::{Columns, Output, bytes},
};
use plinth_host::config::MAX_MEMORY;
use serde_json::{Value, json};
use std::process::Command;

/// The least memory of the host device, that of the H200 that it stands for: the allocator's policies take the size of the
/// device into account.
const LEAST_MEMORY: u64 = 139 << 30;
/// How exactly the least limit is found, as a part of it.
const PRECISION: f64 = 0.001;

/// Returns the help of the option.
pub fn help() -> String {
    format!(
        "Forecast the memory of another program than the recorded one, on the host device unless --device names another; \
         may be given several times. A scenario consists of {SYNTAX}"
    )
}

/// A forecast.
struct Forecast {
    scenario: String,
    /// The report of the replay as JSON.
    report: Value,
    /// The least limit, if it was asked for.
    least: Option<u64>,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

impl Forecast {
    fn peak_live(&self) -> u64 {
        number(&self.report["peak_live"])
    }

    fn runs(&self) -> bool {
        self.report["out_of_memory"].is_null()
    }

    /// Returns the peaks of the held bytes in the first pass and in all later ones.
    fn held(&self) -> (u64, u64) {
        let rounds = self.report["rounds"].as_array().map_or(&[][..], Vec::as_slice);
        let later = rounds.iter().map(|round| number(&round["peak_held"])).max().unwrap_or(0);
        (number(&self.report["first"]["peak_held"]), later)
    }
}

/// Runs the subcommand with its scenarios, on a kind of device.
pub fn run(options: &Options, device: &str, output: &Output) -> Result<()> {
    let recorded = trace::read(&options.trace, output)?;
    let mut forecasts = Vec::new();
    let mut texts = vec![String::new()];
    texts.extend(options.what_if.iter().cloned());
    let bar = output.progress("forecasting", texts.len() as u64);
    for text in texts {
        let scenario = Scenario::parse(&text).map_err(Failure::Invalid)?;
        let mut trace = recorded.clone();
        scenario.apply(&mut trace).map_err(Failure::Invalid)?;
        forecasts.push(forecast(options, device, &scenario, text, trace.peak_live)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if output.json {
        output.value(&Value::Array(forecasts.iter().map(as_json).collect()))?;
    } else {
        output.text(&as_text(&forecasts))?;
    }
    if forecasts.iter().all(Forecast::runs) { Ok(()) } else { Err(Failure::ProblemFound) }
}

fn forecast(options: &Options, device: &str, scenario: &Scenario, text: String, peak_live: u64) -> Result<Forecast> {
    let memory = scenario.memory.unwrap_or_else(|| peak_live.saturating_mul(2).clamp(LEAST_MEMORY, MAX_MEMORY));
    let replay = |limit: Option<u64>| {
        // Of two limits the last one holds.
        let limited = limit.map_or_else(|| text.clone(), |limit| format!("{text} limit={limit}B"));
        replay_in_child(options, device, scenario, &limited, memory)
    };
    let mut report = replay(None)?;
    let mut least = None;
    if scenario.limit == Some(Limit::Least) && report["out_of_memory"].is_null() {
        let mut low = peak_live.max(1);
        let mut high = number(&report["first"]["peak_held"]).max(low);
        while (high - low) as f64 > low as f64 * PRECISION {
            let middle = low + (high - low) / 2;
            let tried = replay(Some(middle))?;
            if tried["out_of_memory"].is_null() {
                (high, report) = (middle, tried);
            } else {
                low = middle;
            }
        }
        least = Some(high);
    }
    Ok(Forecast { scenario: text, report, least })
}

fn replay_in_child(options: &Options, device: &str, scenario: &Scenario, text: &str, memory: u64) -> Result<Value> {
    let tool =
        std::env::current_exe().map_err(|error| Failure::Failed(format!("finding the program itself: {error}")))?;
    let mut command = Command::new(tool);
    command.arg("replay").arg(&options.trace).args(["--json", "--scenario", text]);
    command.args(["--rounds", &options.rounds.to_string(), "--on", &options.on.to_string()]);
    command.args(["--device", device]);
    command.env("PLINTH_HOST_MEMORY", memory.to_string()).env_remove("PLINTH_HOST_MEMORY_NAME");
    if let Some(settings) = &scenario.settings {
        command.env("PLINTH_ALLOC_CONF", settings);
    }
    let ended = command.output().map_err(|error| Failure::Failed(format!("starting a replay: {error}")))?;
    // Status 1 is that of a replay that ran out of memory, which its report says.
    match ended.status.code() {
        Some(0 | 1) => serde_json::from_slice(&ended.stdout)
            .map_err(|error| Failure::Failed(format!("reading the report of a replay: {error}"))),
        status => {
            let said = String::from_utf8_lossy(&ended.stderr);
            let said = said.trim().trim_start_matches("plinth: ").to_owned();
            Err(if status == Some(2) { Failure::Invalid(said) } else { Failure::Failed(said) })
        }
    }
}

fn name_of(forecast: &Forecast) -> &str {
    if forecast.scenario.is_empty() { "as recorded" } else { &forecast.scenario }
}

fn as_json(forecast: &Forecast) -> Value {
    let (first, later) = forecast.held();
    json!({
        "scenario": forecast.scenario,
        "device": forecast.report["device"],
        "peak_live": forecast.peak_live(),
        "runs": forecast.runs(),
        "peak_held_first": first,
        "peak_held_later": later,
        "limit": forecast.report["limit"],
        "least_limit": forecast.least,
        "out_of_memory": forecast.report["out_of_memory"],
    })
}

fn as_text(forecasts: &[Forecast]) -> String {
    let mut table =
        Columns::new(&["scenario", ">peak live", ">peak held", ">held/live", ">repeated", ">limit", "outcome"]);
    for forecast in forecasts {
        let (first, later) = forecast.held();
        let live = forecast.peak_live();
        let ratio = if live == 0 { "-".to_owned() } else { format!("{:.3}", first.max(later) as f64 / live as f64) };
        let limit = forecast.report["limit"].as_u64().map_or_else(|| "-".to_owned(), bytes);
        let out = &forecast.report["out_of_memory"];
        let name = name_of(forecast).to_owned();
        match (forecast.runs(), forecast.least) {
            (true, None) => {
                table.row([name, bytes(live), bytes(first), ratio, bytes(later), limit, "it runs".to_owned()]);
            }
            (true, Some(least)) => {
                let outcome = format!("the least limit: {:.3} times the peak", least as f64 / live.max(1) as f64);
                table.row([name, bytes(live), bytes(first), ratio, bytes(later), bytes(least), outcome]);
            }
            (false, _) => {
                let outcome = format!("out of memory at event {}", out["event"]);
                let none = || "-".to_owned();
                table.row([name, bytes(live), none(), none(), none(), limit, outcome]);
            }
        }
    }
    let device = forecasts.first().map_or("", |forecast| forecast.report["device"].as_str().unwrap_or(""));
    format!("Forecasts on {device}; \"repeated\" is the peak held when the trace is repeated\n\n{}", table.text())
}

//! `plinth top`: what the devices do.

use super::{
    failure::{Failure, Result},
    output::{Columns, Output, bytes, is_watched, or_dash},
};
use clap::Args;
use console::Term;
use plinth::{
    ops::telemetry::{self, Process, Reading, THROTTLE_REASONS, Telemetry},
    runtime,
};
use serde_json::{Value, json};
use std::{fs, thread, time::Duration};

/// What `plinth top` is told.
#[derive(Args)]
pub struct Options {
    /// Show one reading and end; that is also what happens where the output is no terminal
    #[arg(long)]
    once: bool,
    /// Seconds between readings, 1 if nothing is said; if given, readings go on where the output is no terminal, too
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
}

/// Seconds between readings where nobody says.
const INTERVAL: f64 = 1.0;

struct Shown {
    number: usize,
    name: String,
    total: u64,
    telemetry: Telemetry,
    /// Why there are none, or the processes.
    processes: std::result::Result<Vec<Process>, String>,
}

impl Shown {
    fn value(&self, reading: Reading) -> Option<u64> {
        self.telemetry.values[reading as usize]
    }

    fn reasons(&self) -> Option<Vec<&'static str>> {
        let bits = self.value(Reading::ThrottleReasons)?;
        Some(THROTTLE_REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, reason)| *reason).collect())
    }
}

fn read() -> Result<Vec<Shown>> {
    let runtime = runtime::ready()?;
    let mut all = Vec::new();
    for (number, device) in runtime.devices().iter().enumerate() {
        let properties = device.properties(&runtime.driver)?;
        all.push(Shown {
            number,
            name: properties.name.clone(),
            total: properties.total_memory,
            telemetry: telemetry::read_all(number as i32)?,
            processes: telemetry::processes(number as i32).map_err(|error| error.message().to_owned()),
        });
    }
    Ok(all)
}

/// What a process calls itself. One in another container has no name here.
fn process_name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Runs it.
pub fn run(options: &Options, output: &Output) -> Result<()> {
    let seconds = options.interval.unwrap_or(INTERVAL);
    let interval = match Duration::try_from_secs_f64(seconds) {
        Ok(interval) if seconds >= 0.05 => interval,
        _ => return Err(Failure::Senseless(format!("--interval {seconds} is no time of 0.05 seconds or more"))),
    };
    let watched = is_watched() && !output.json;
    let once = options.once || (!watched && options.interval.is_none());
    let mut lines = 0;
    loop {
        let shown = read()?;
        if output.json {
            // A line each, so that a program can read on while more come.
            let value = as_json(&shown);
            if once { output.value(&value)? } else { output.text(&format!("{value}\n"))? }
        } else {
            let text = as_text(&shown);
            if watched && lines > 0 {
                Term::stdout().clear_last_lines(lines)?;
            }
            lines = fitted(&text, output)?;
        }
        if once {
            return Ok(());
        }
        thread::sleep(interval);
    }
}

/// Writes as much of a text as a terminal shows, so that it can be written over; how many lines that is.
fn fitted(text: &str, output: &Output) -> Result<usize> {
    let term = Term::stdout();
    let Some((rows, columns)) = term.size_checked().filter(|_| term.is_term()) else {
        output.text(text)?;
        return Ok(0);
    };
    let fits = text.lines().take(usize::from(rows).saturating_sub(1));
    let lines: Vec<_> = fits.map(|line| console::truncate_str(line, usize::from(columns), "")).collect();
    output.text(&format!("{}\n", lines.join("\n")))?;
    Ok(lines.len())
}

fn as_json(all: &[Shown]) -> Value {
    let devices: Vec<Value> = all
        .iter()
        .map(|one| {
            let processes = one.processes.as_ref().map(|list| {
            let each = |process: &Process| {
                json!({ "pid": process.pid, "name": process_name(process.pid), "memory": process.memory })
            };
            list.iter().map(each).collect::<Vec<Value>>()
        });
            json!({
                "device": one.number,
                "name": one.name,
                "time_us": one.telemetry.time_us,
                "utilization_percent": one.value(Reading::Utilization),
                "memory_usage_percent": one.value(Reading::MemoryUsage),
                "memory_used": one.value(Reading::MemoryUsed),
                "memory_total": one.total,
                "temperature_celsius": one.value(Reading::Temperature),
                "power_milliwatts": one.value(Reading::PowerDraw),
                "energy_millijoules": one.value(Reading::Energy),
                "clock_mhz": one.value(Reading::ClockRate),
                "memory_clock_mhz": one.value(Reading::MemoryClockRate),
                "throttle_reasons": one.reasons(),
                "processes": processes.ok(),
            })
        })
        .collect();
    json!({ "devices": devices })
}

fn as_text(all: &[Shown]) -> String {
    let mut table = Columns::new(&[
        "device",
        "name",
        ">busy",
        ">memory",
        ">of",
        ">moved",
        ">temperature",
        ">power",
        ">clock",
        ">memory clock",
        "held down by",
    ]);
    for one in all {
        let with = |reading, unit: &str| or_dash(one.value(reading).map(|value| format!("{value}{unit}")));
        let reasons = one.reasons().map(|reasons| reasons.join(", ")).filter(|reasons| !reasons.is_empty());
        table.row([
            one.number.to_string(),
            one.name.clone(),
            with(Reading::Utilization, " %"),
            or_dash(one.value(Reading::MemoryUsed).map(bytes)),
            bytes(one.total),
            with(Reading::MemoryUsage, " %"),
            with(Reading::Temperature, " C"),
            or_dash(one.value(Reading::PowerDraw).map(|power| format!("{:.1} W", power as f64 / 1000.0))),
            with(Reading::ClockRate, " MHz"),
            with(Reading::MemoryClockRate, " MHz"),
            or_dash(reasons),
        ]);
    }
    let mut processes = Columns::new(&["device", ">process", ">memory", "name"]);
    let mut notes = String::new();
    let mut any = false;
    for one in all {
        match &one.processes {
            Ok(list) => {
                for process in list {
                    any = true;
                    processes.row([
                        one.number.to_string(),
                        process.pid.to_string(),
                        or_dash(process.memory.map(bytes)),
                        or_dash(process_name(process.pid)),
                    ]);
                }
            }
            Err(reason) => notes += &format!("The processes on device {} are not known: {reason}.\n", one.number),
        }
    }
    let processes = if any { processes.text() } else { "No process computes on them.\n".to_owned() };
    format!("{}\n{processes}{notes}", table.text())
}

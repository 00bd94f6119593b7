//! `plinth top`: the activity of the devices.

use super::{
    failure::{Failure, Result},
    output::{Columns, Output, bytes, is_terminal, or_dash},
};
use clap::Args;
use console::Term;
use plinth::internal::{
    ops::telemetry::{self, Process, Reading, THROTTLE_REASONS, Telemetry},
    runtime,
};
use serde_json::{Value, json};
use std::{fs, thread, time::Duration};

/// The options of `plinth top`.
#[derive(Args)]
pub struct Options {
    /// Show one reading and end; this is the default if the output is not a terminal
    #[arg(long)]
    once: bool,
    /// Seconds between readings, by default 1; if set, readings continue even if the output is not a terminal
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
}

/// The default for the seconds between readings.
const INTERVAL: f64 = 1.0;

struct DeviceReading {
    number: usize,
    name: String,
    total: u64,
    telemetry: Telemetry,
    /// The processes, or why they are unknown.
    processes: std::result::Result<Vec<Process>, String>,
}

impl DeviceReading {
    fn value(&self, reading: Reading) -> Option<u64> {
        self.telemetry.values[reading as usize]
    }

    fn reasons(&self) -> Option<Vec<&'static str>> {
        let bits = self.value(Reading::ThrottleReasons)?;
        Some(THROTTLE_REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, reason)| *reason).collect())
    }
}

fn read() -> Result<Vec<DeviceReading>> {
    let runtime = runtime::ready()?;
    let mut all = Vec::new();
    for (number, device) in runtime.devices().iter().enumerate() {
        let properties = device.properties(&runtime.driver)?;
        all.push(DeviceReading {
            number,
            name: properties.name.clone(),
            total: properties.total_memory,
            telemetry: telemetry::read_all(number as i32)?,
            processes: telemetry::processes(number as i32).map_err(|error| error.message().to_owned()),
        });
    }
    Ok(all)
}

/// Returns the name of a process; `None` for one in another container.
fn process_name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Runs the subcommand.
pub fn run(options: &Options, output: &Output) -> Result<()> {
    let seconds = options.interval.unwrap_or(INTERVAL);
    let interval = match Duration::try_from_secs_f64(seconds) {
        Ok(interval) if seconds >= 0.05 => interval,
        _ => return Err(Failure::Invalid(format!("--interval {seconds} is invalid; the minimum is 0.05 seconds"))),
    };
    let refreshed = is_terminal() && !output.json;
    let once = options.once || (!refreshed && options.interval.is_none());
    let mut lines = 0;
    loop {
        let shown = read()?;
        if output.json {
            // One line per reading, so that a program can process each one as it arrives.
            let value = as_json(&shown);
            if once { output.value(&value)? } else { output.text(&format!("{value}\n"))? }
        } else {
            let text = as_text(&shown);
            if refreshed && lines > 0 {
                Term::stdout().clear_last_lines(lines)?;
            }
            lines = write_fitting(&text, output)?;
        }
        if once {
            return Ok(());
        }
        thread::sleep(interval);
    }
}

/// Writes the part of a text that fits on the terminal, so that it can be overwritten. Returns the number of lines.
fn write_fitting(text: &str, output: &Output) -> Result<usize> {
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

fn as_json(all: &[DeviceReading]) -> Value {
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

fn as_text(all: &[DeviceReading]) -> String {
    let mut table = Columns::new(&[
        "device",
        "name",
        ">busy",
        ">memory",
        ">of",
        ">memory busy",
        ">temperature",
        ">power",
        ">clock",
        ">memory clock",
        "throttled by",
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
            Err(reason) => notes += &format!("The processes on device {} are unknown: {reason}.\n", one.number),
        }
    }
    let processes = if any { processes.text() } else { "No process uses the devices.\n".to_owned() };
    format!("{}\n{processes}{notes}", table.text())
}

//! `plinth top`: the activity of the devices, and of the processes that use them.
//!
//! In a terminal it is an interactive screen: the [`screen`]'s event loop updates the [`state`], which [`draw`] shows.
//! Otherwise it writes tables or JSON. Both show the same [`reading`].

mod draw;
mod process;
mod reading;
mod screen;
mod state;

use super::{
    failure::{Failure, Result},
    output::{Columns, Output, bytes, heading, is_terminal, or_dash, paragraph, width},
};
use clap::Args;
use plinth::internal::ops::telemetry::Reading;
use plinth_driver::Kind;
use reading::{DeviceReading, ProcessReading, Sampler};
use serde_json::{Value, json};
use std::{thread, time::Duration};

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
/// The time over which a single reading measures the processor time of processes.
const FIRST_INTERVAL: Duration = Duration::from_millis(100);
/// From this width on the table has all columns.
const WIDE: u16 = 110;

/// Returns the list of keys, for the help.
pub fn keys() -> String {
    let each = draw::ALL_KEYS.iter().map(|(key, what)| format!("  {key:<23}{what}\n"));
    format!("Keys:\n{}", each.collect::<String>())
}

/// Runs the subcommand.
pub fn run(options: &Options, output: &Output) -> Result<()> {
    let seconds = options.interval.unwrap_or(INTERVAL);
    let interval = match Duration::try_from_secs_f64(seconds) {
        // A clock cannot represent a time that is too far away.
        Ok(interval) if (0.05..=86400.0).contains(&seconds) => interval,
        _ => {
            return Err(Failure::Invalid(format!(
                "--interval {seconds} is invalid; it is from 0.05 seconds to 86400, a day"
            )));
        }
    };
    if is_terminal() && !output.json && !options.once {
        return screen::run(interval);
    }
    let mut sampler = Sampler::new()?;
    sampler.read()?;
    if options.once || options.interval.is_none() {
        thread::sleep(FIRST_INTERVAL);
        let devices = sampler.read()?;
        return if output.json {
            output.value(&as_json(sampler.kind, &devices))
        } else {
            output.text(&as_text(&sampler, &devices))
        };
    }
    loop {
        thread::sleep(interval);
        let devices = sampler.read()?;
        // One line per reading, so that a program can process each one as it arrives.
        let text = if output.json { as_json(sampler.kind, &devices).to_string() } else { as_text(&sampler, &devices) };
        output.text(&format!("{text}\n"))?;
    }
}

fn as_json(kind: Kind, all: &[DeviceReading]) -> Value {
    let process = |one: &ProcessReading| {
        let details = one.details.as_ref();
        json!({
            "pid": one.pid,
            "memory": one.memory,
            "utilization_percent": one.busy,
            "name": details.map(|details| &details.name),
            "user": details.map(|details| &details.user),
            "command": details.map(|details| &details.command),
            "cpu_percent": details.and_then(|details| details.cpu),
            "machine_memory": details.map(|details| details.resident),
            "running_seconds": details.map(|details| details.seconds),
        })
    };
    let device = |one: &DeviceReading| {
        json!({
            "number": one.number,
            "name": one.name,
            "simulated": kind == Kind::Host,
            "time_us": one.telemetry.time_us,
            "utilization_percent": one.value(Reading::Utilization),
            "memory_utilization_percent": one.value(Reading::MemoryUsage),
            "memory_used": one.value(Reading::MemoryUsed),
            "memory_total": one.total,
            "temperature_celsius": one.value(Reading::Temperature),
            "power_milliwatts": one.value(Reading::PowerDraw),
            "energy_millijoules": one.value(Reading::Energy),
            "clock_mhz": one.value(Reading::ClockRate),
            "memory_clock_mhz": one.value(Reading::MemoryClockRate),
            "throttle_reasons": one.throttle_reasons(),
            "processes": one.processes.as_ref().ok().map(|list| list.iter().map(process).collect::<Vec<Value>>()),
        })
    };
    json!({ "devices": all.iter().map(device).collect::<Vec<Value>>() })
}

fn as_text(sampler: &Sampler, all: &[DeviceReading]) -> String {
    let mut text = match (&sampler.driver, &sampler.note) {
        (Some(driver), _) => format!("{driver}\n\n"),
        (None, note) => {
            let note = paragraph(note.as_deref().unwrap_or_default(), 0);
            format!("{}{note}\n\n", heading("Host device: GPUs simulated on this CPU"))
        }
    };
    text += &devices_text(all, width().is_none_or(|width| width >= WIDE));
    let mut processes = Columns::new(&["device", ">process", "user", ">busy", ">memory", ">cpu", "command"]);
    let mut notes = String::new();
    let mut any = false;
    for one in all {
        match &one.processes {
            Ok(list) => {
                for process in list {
                    any = true;
                    let details = process.details.as_ref();
                    processes.row([
                        one.number.to_string(),
                        process.pid.to_string(),
                        or_dash(details.map(|one| &one.user)),
                        or_dash(process.busy.map(|busy| format!("{busy} %"))),
                        or_dash(process.memory.map(bytes)),
                        or_dash(details.and_then(|one| one.cpu).map(|cpu| format!("{cpu:.0} %"))),
                        details.map_or_else(|| "(in another container)".to_owned(), |one| one.line(true)),
                    ]);
                }
            }
            Err(reason) => notes += &format!("The processes on device {} are unknown: {reason}.\n", one.number),
        }
    }
    let processes = if any { processes.text() } else { "No process uses the devices.\n".to_owned() };
    format!("{text}\n{processes}{notes}")
}

/// Returns the table of devices. If it is not wide, it lacks the clock rate of the memory and the limits of the clock
/// rate.
fn devices_text(all: &[DeviceReading], wide: bool) -> String {
    let mut names = vec!["device", "name", ">busy", ">memory", ">of", ">memory busy", ">temp", ">power", ">clock"];
    if wide {
        names.extend([">memory clock", "clock limited by"]);
    }
    let mut table = Columns::new(&names);
    for one in all {
        let with = |reading, unit: &str| or_dash(one.value(reading).map(|value| format!("{value}{unit}")));
        let mut row = vec![
            one.number.to_string(),
            one.name.clone(),
            with(Reading::Utilization, " %"),
            or_dash(one.value(Reading::MemoryUsed).map(bytes)),
            bytes(one.total),
            with(Reading::MemoryUsage, " %"),
            with(Reading::Temperature, " C"),
            or_dash(one.value(Reading::PowerDraw).map(|power| format!("{} W", power / 1000))),
            with(Reading::ClockRate, " MHz"),
        ];
        if wide {
            let reasons = one.throttle_reasons().map(|reasons| reasons.join(", "));
            row.extend([
                with(Reading::MemoryClockRate, " MHz"),
                or_dash(reasons.filter(|reasons| !reasons.is_empty())),
            ]);
        }
        table.row(row);
    }
    table.text()
}

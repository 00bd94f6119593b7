//! Compares the host device with a GPU: runs random sequences of driver calls on a GPU and records the answers, and
//! runs the same sequences on the host device and compares them.
//!
//! ```text
//! conformance record --programs 20000 --seed 1 --device cuda --output FILE [--jobs 8]
//! conformance replay FILE [--device host] [--differences 20] [--jobs 2]
//! conformance print FILE
//! conformance show --seed 1 --program 17 [--device host]
//! ```

mod answer;
mod compare;
mod differences;
mod execute;
mod generate;
mod model;
mod program;
mod random;
mod record;
mod workers;

use record::Record;
use std::{
    io::{self, Write},
    process::ExitCode,
};
use workers::Device;

const USAGE: &str = "usage: conformance record --programs N --seed S --device cuda|host --output FILE [--jobs J]
       conformance replay FILE [--device cuda|host] [--differences N] [--jobs J]
       conformance print FILE
       conformance show --seed S --program N [--device cuda|host]";

/// Writes a line to standard error.
fn report(line: &str) {
    let _ = writeln!(io::stderr(), "conformance: {line}");
}

fn write(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// The options of the command line.
struct Options {
    words: Vec<String>,
}

impl Options {
    fn text(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    fn number(&self, name: &str, default: Option<u64>) -> Result<u64, String> {
        match self.text(name) {
            Some(text) => text.parse().map_err(|_| format!("{name} {text}: not a number\n{USAGE}")),
            None => default.ok_or_else(|| format!("{name} is missing\n{USAGE}")),
        }
    }

    fn device(&self, default: Option<Device>) -> Result<Device, String> {
        match self.text("--device") {
            Some("cuda") => Ok(Device::Cuda),
            Some("host") => Ok(Device::Host),
            Some(other) => Err(format!("--device {other}: set it to cuda or host\n{USAGE}")),
            None => default.ok_or_else(|| format!("--device is missing\n{USAGE}")),
        }
    }

    fn jobs(&self) -> Result<u32, String> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Ok(self.number("--jobs", Some(processors.min(8)))? as u32)
    }
}

fn record(options: &Options) -> Result<i32, String> {
    let device = options.device(None)?;
    let (seed, programs) = (options.number("--seed", None)?, options.number("--programs", None)? as u32);
    let path = options.text("--output").ok_or_else(|| format!("--output is missing\n{USAGE}"))?;
    let start = std::time::Instant::now();
    let answers = workers::run(device, seed, programs, options.jobs()?)?;
    let calls: usize = answers.iter().map(Vec::len).sum();
    let record = Record { seed, device: device.description()?, answers };
    let bytes = record.to_bytes();
    std::fs::write(path, &bytes).map_err(|error| format!("{path}: {error}"))?;
    write(&format!(
        "{programs} programs, {calls} calls on {} in {:.1} s, {} bytes in {path}\n",
        record.device,
        start.elapsed().as_secs_f64(),
        bytes.len()
    ));
    Ok(0)
}

fn replay(options: &Options) -> Result<i32, String> {
    let path = options.words.get(1).ok_or_else(|| USAGE.to_owned())?;
    let record = Record::from_bytes(&std::fs::read(path).map_err(|error| format!("{path}: {error}"))?)?;
    let device = options.device(Some(Device::Host))?;
    write(&format!("recorded on {}\n", record.device));
    let got = workers::run(device, record.seed, record.answers.len() as u32, options.jobs()?)?;
    let comparison = compare::compare(record.seed, &record.answers, &got);
    let most = options.number("--differences", Some(20))? as usize;
    write(&comparison.text(record.seed, &record.answers, &got, most));
    Ok(i32::from(comparison.differs()))
}

/// Prints the programs of a record with their answers.
fn print(options: &Options) -> Result<i32, String> {
    let path = options.words.get(1).ok_or_else(|| USAGE.to_owned())?;
    let record = Record::from_bytes(&std::fs::read(path).map_err(|error| format!("{path}: {error}"))?)?;
    for (number, answers) in record.answers.iter().enumerate() {
        write(&format!("program {number}:\n"));
        for (step, answer) in generate::program(record.seed, number as u32).steps.iter().zip(answers) {
            write(&format!("    {step} -> {answer}\n"));
        }
    }
    Ok(0)
}

/// Runs one program in this process and prints each call before it is made.
fn show(options: &Options) -> Result<i32, String> {
    let program = generate::program(options.number("--seed", None)?, options.number("--program", None)? as u32);
    let Some(_) = options.text("--device") else {
        program.steps.iter().for_each(|step| write(&format!("{step}\n")));
        return Ok(0);
    };
    let mut executor = options.device(None)?.executor()?;
    execute::gate::start_watchdog();
    execute::gate::set_running(options.number("--program", None)? as u32);
    executor.run(&program, |step, answer| match answer {
        None => write(&format!("{step}")),
        Some(answer) => write(&format!(" -> {answer}\n")),
    });
    Ok(0)
}

fn work(options: &Options) -> Result<i32, String> {
    let range = options.text("--range").and_then(|text| text.split_once("..")).ok_or_else(|| USAGE.to_owned())?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| USAGE.to_owned());
    workers::work(options.device(None)?, options.number("--seed", None)?, number(range.0)?..number(range.1)?)
}

// A program may end its process; the prohibition is for the library. Threads may still be in the driver.
#[allow(clippy::disallowed_methods)]
fn main() -> ExitCode {
    let options = Options { words: std::env::args().skip(1).collect() };
    let result = match options.words.first().map(String::as_str) {
        Some("record") => record(&options),
        Some("replay") => replay(&options),
        Some("print") => print(&options),
        Some("show") => show(&options),
        Some("work") => work(&options),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(status) => {
            // Ends without destructors: threads may still be in the driver.
            let _ = io::stdout().flush();
            std::process::exit(status)
        }
        Err(error) => {
            report(&error);
            std::process::exit(1)
        }
    }
}

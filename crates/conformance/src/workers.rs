//! Worker processes: each runs a range of the programs, and a crash of one costs one program.

use super::{
    answer::Answer,
    execute::{Executor, gate},
    generate, record,
};
use plinth_driver::{Table, cuda};
use std::{
    io::{self, BufReader, Write},
    ops::Range,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The exit status of a worker whose device is not as before the last program.
const UNCLEAN: i32 = 96;

/// The devices that programs run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Cuda,
    Host,
}

impl Device {
    pub fn name(self) -> &'static str {
        match self {
            Device::Cuda => "cuda",
            Device::Host => "host",
        }
    }

    /// Returns the device's table of calls.
    pub fn table(self) -> Result<Table, String> {
        match self {
            Device::Host => Ok(plinth_host::table()),
            Device::Cuda => cuda::load(false).map(|driver| *driver.table()).map_err(|error| error.message().to_owned()),
        }
    }

    /// Creates an executor in this process.
    pub fn executor(self) -> Result<Executor, String> {
        Executor::new(self.table()?, self == Device::Cuda)
    }

    /// Returns the device's name and its driver's version.
    pub fn description(self) -> Result<String, String> {
        let table = self.table()?;
        let (mut version, mut device, mut name) = (0, 0, [0_u8; 128]);
        // SAFETY: the outputs are live locals, and the name's capacity is given.
        let code = unsafe {
            (table.cuDriverGetVersion)(&mut version);
            (table.cuInit)(0)
                | (table.cuDeviceGet)(&mut device, 0)
                | (table.cuDeviceGetName)(name.as_mut_ptr().cast(), name.len() as i32, device)
        };
        if code != 0 {
            return Err(format!("the device cannot be used: driver error {code}"));
        }
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(format!("{}, CUDA {}.{}", String::from_utf8_lossy(name), version / 1000, version % 1000 / 10))
    }
}

/// Runs a range of programs in this process and writes their answers to standard output. Returns the exit status.
pub fn work(device: Device, seed: u64, range: Range<u32>) -> Result<i32, String> {
    let mut executor = device.executor()?;
    gate::start_watchdog();
    let mut output = io::stdout().lock();
    for number in range {
        gate::set_running(number);
        let (mut answers, is_clean) = executor.run(&generate::program(seed, number), |_, _| {});
        if gate::is_rescued() {
            answers = vec![Answer::CRASHED];
        }
        output.write_all(&record::encode_program(&answers)).map_err(|error| error.to_string())?;
        output.flush().map_err(|error| error.to_string())?;
        if !is_clean {
            return Ok(UNCLEAN);
        }
    }
    Ok(0)
}

/// Runs the first programs of a seed in several processes, and returns their answers.
pub fn run(device: Device, seed: u64, programs: u32, jobs: u32) -> Result<Vec<Vec<Answer>>, String> {
    let jobs = jobs.clamp(1, programs.max(1));
    let bound = |job: u32| (u64::from(programs) * u64::from(job) / u64::from(jobs)) as u32;
    let threads: Vec<_> = (0..jobs)
        .map(|job| {
            let range = bound(job)..bound(job + 1);
            thread::spawn(move || run_range(device, seed, range))
        })
        .collect();
    let mut answers = Vec::new();
    for thread in threads {
        answers.extend(thread.join().map_err(|_| "a thread panicked".to_owned())??);
    }
    Ok(answers)
}

/// The programs that have not run by then are left out, so that a device with many crashes still gives a record.
const LIMIT: Duration = Duration::from_secs(240);

fn run_range(device: Device, seed: u64, range: Range<u32>) -> Result<Vec<Vec<Answer>>, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut answers: Vec<Vec<Answer>> = Vec::new();
    let start = Instant::now();
    while answers.len() < range.len() {
        if start.elapsed() > LIMIT {
            super::report(&format!("{} programs were left out after {LIMIT:?}", range.len() - answers.len()));
            answers.resize(range.len(), vec![Answer::CRASHED]);
            break;
        }
        let next = range.start + answers.len() as u32;
        let mut child = Command::new(&program)
            .args(["work", "--device", device.name(), "--seed", &seed.to_string()])
            .args(["--range", &format!("{next}..{}", range.end)])
            // One device, as on the machine of a record.
            .env("PLINTH_HOST_DEVICES", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("a worker cannot be started: {error}"))?;
        let before = answers.len();
        if let Some(output) = child.stdout.take() {
            let mut output = BufReader::new(output);
            while let Some(program) = record::read_program(&mut output) {
                answers.push(program);
                if start.elapsed() > LIMIT {
                    let _ = child.kill();
                    break;
                }
            }
        }
        let status = child.wait().map_err(|error| error.to_string())?;
        match status.code() {
            Some(0) => {}
            Some(UNCLEAN) if answers.len() > before => {}
            _ if start.elapsed() > LIMIT => {}
            Some(1) => return Err("a worker failed; see above".to_owned()),
            _ if answers.len() < range.len() => {
                let number = range.start + answers.len() as u32;
                super::report(&format!("program {number} ended the process ({status})"));
                answers.push(vec![Answer::CRASHED]);
            }
            _ => {}
        }
    }
    Ok(answers)
}

//! Readings of the devices, and of the processes that use them.

use super::{
    super::{failure::Result, info, libraries, topology},
    process::{Details, Reader},
};
use nvml_wrapper::{Nvml, error::NvmlError};
use plinth::internal::{
    ops::telemetry::{self, Reading, THROTTLE_REASONS, Telemetry},
    runtime::{self, properties::Properties},
};
use plinth_driver::Kind;
use std::{
    collections::HashMap,
    env, thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The age of the oldest samples of processes that are used: NVML takes one or a few in each second.
const RECENT: Duration = Duration::from_secs(2);

/// A process that uses a device.
#[derive(Debug, Clone, Default)]
pub struct ProcessReading {
    /// The number of the device.
    pub device: usize,
    /// Process id.
    pub pid: u32,
    /// Bytes of the device's memory, if the driver reports them.
    pub memory: Option<u64>,
    /// Per cent of the device's time in which kernels of this process ran; on the host device its share of all
    /// processors.
    pub busy: Option<u64>,
    /// What Linux reports; `None` for a process of another container.
    pub details: Option<Details>,
}

/// A device with its processes.
#[derive(Debug, Clone)]
pub struct DeviceReading {
    /// The number of the device.
    pub number: usize,
    /// The name of the model.
    pub name: String,
    /// Bytes of memory.
    pub total: u64,
    /// All readings.
    pub telemetry: Telemetry,
    /// The processes, or why they are unknown.
    pub processes: std::result::Result<Vec<ProcessReading>, String>,
}

impl DeviceReading {
    /// Returns a reading, if the device reports it.
    pub fn value(&self, reading: Reading) -> Option<u64> {
        self.telemetry.values[reading as usize]
    }

    /// Returns the reasons for a reduced clock rate, if the device reports them.
    pub fn throttle_reasons(&self) -> Option<Vec<&'static str>> {
        let bits = self.value(Reading::ThrottleReasons)?;
        Some(THROTTLE_REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, reason)| *reason).collect())
    }

    /// Returns the memory in use, in per cent.
    pub fn memory_percent(&self) -> Option<u64> {
        Some(self.value(Reading::MemoryUsed)? * 100 / self.total.max(1))
    }
}

/// The utilization of a device by process, or `None` if the driver does not report it.
type Shares = Option<HashMap<u32, u64>>;

/// Reads all devices repeatedly.
pub struct Sampler {
    /// The kind of the devices.
    pub kind: Kind,
    /// The driver's release and CUDA version, for GPUs.
    pub driver: Option<String>,
    /// What the readings of the host device mean.
    pub note: Option<String>,
    nvml: Option<Nvml>,
    processes: Reader,
}

impl Sampler {
    /// Prepares readings of all devices.
    pub fn new() -> Result<Sampler> {
        let runtime = runtime::ready()?;
        let kind = runtime.driver.kind();
        let cuda = runtime.driver.version().map_or_else(|_| "-".to_owned(), libraries::cuda_version);
        let release = || info::release().unwrap_or_else(|| "-".to_owned());
        let driver = (kind == Kind::Cuda).then(|| format!("driver {}, CUDA {cuda}", release()));
        let nvml = if kind == Kind::Cuda { libraries::nvml().ok() } else { None };
        let shared = env::var("PLINTH_HOST_MEMORY_NAME").ok().filter(|name| kind == Kind::Host && !name.is_empty());
        let note = (kind == Kind::Host).then(|| host_note(shared.as_deref()));
        Ok(Sampler { kind, driver, note, nvml, processes: Reader::default() })
    }

    /// Reads all devices. Processor time of processes is that since the previous call.
    pub fn read(&mut self) -> Result<Vec<DeviceReading>> {
        let runtime = runtime::ready()?;
        let begun = Instant::now();
        // A process may use several devices.
        let mut known: HashMap<u32, Option<Details>> = HashMap::new();
        let mut all = Vec::new();
        for (number, device) in runtime.devices().iter().enumerate() {
            let properties = device.properties(&runtime.driver)?;
            let processes = telemetry::processes(number as i32).map_err(|error| error.message().to_owned());
            let shares = processes.as_ref().ok().and_then(|_| self.shares(properties));
            let processes = processes.map(|list| {
                let each = list.into_iter().map(|one| {
                    let details = known.entry(one.pid).or_insert_with(|| self.processes.read(one.pid)).clone();
                    let busy = match self.kind {
                        Kind::Cuda => shares.as_ref().map(|shares| shares.get(&one.pid).copied().unwrap_or(0)),
                        Kind::Host => details.as_ref().and_then(|one| one.cpu).map(share_of_processors),
                    };
                    ProcessReading { device: number, pid: one.pid, memory: one.memory, busy, details }
                });
                each.collect()
            });
            all.push(DeviceReading {
                number,
                name: properties.name.clone(),
                total: properties.total_memory,
                telemetry: telemetry::read_all(number as i32)?,
                processes,
            });
        }
        self.processes.forget(begun);
        Ok(all)
    }

    /// Returns the recent utilization of a GPU by process.
    fn shares(&self, properties: &Properties) -> Shares {
        let card = topology::card(self.nvml.as_ref()?, properties)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let samples = match card.process_utilization_stats(now.saturating_sub(RECENT).as_micros() as u64) {
            Ok(samples) => samples,
            // No process was active.
            Err(NvmlError::NotFound) => Vec::new(),
            Err(_) => return None,
        };
        let mut newest: HashMap<u32, (u64, u64)> = HashMap::new();
        for sample in samples {
            let share = newest.entry(sample.pid).or_default();
            *share = (*share).max((sample.timestamp, sample.sm_util.into()));
        }
        Some(newest.into_iter().map(|(pid, (_, share))| (pid, share)).collect())
    }
}

/// Returns what the readings of the host device mean.
fn host_note(shared: Option<&str>) -> String {
    let memory = match shared {
        None => "Each process has host devices of its own, so only this one is listed.".to_owned(),
        Some(name) => format!(
            "The memory in use is that of all processes with PLINTH_HOST_MEMORY_NAME={name}; only this one is listed."
        ),
    };
    format!("No GPU is used. \"busy\" is the load of this machine's processors. {memory}")
}

fn share_of_processors(cpu: f64) -> u64 {
    (cpu / thread::available_parallelism().map_or(1, usize::from) as f64).round() as u64
}

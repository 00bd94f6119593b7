//! The machine's processors, on which the host device runs: readings from Linux's /proc and /sys.

use super::{Reading, not_read};
use crate::error::Result;
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Counters since the start of the machine, at one moment.
#[derive(Debug, Clone, Copy)]
struct Sums {
    when: Instant,
    /// Clock ticks in which a processor was busy, and all clock ticks.
    busy: u64,
    all: u64,
    /// Microjoules, if the machine counts them.
    energy: Option<u64>,
}

/// Bounds of the interval between the two samples that a rate needs.
const MIN_INTERVAL: Duration = Duration::from_millis(20);
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// The processors of a machine, given by the root of its file system.
pub struct Cpu {
    root: PathBuf,
    last: Mutex<Option<Sums>>,
    /// The packages' counters of energy by their folder: the last value, and the microjoules of the times that it wrapped
    /// around.
    energies: Mutex<HashMap<PathBuf, (u64, u64)>>,
}

/// Returns the processors of this machine.
pub fn machine() -> &'static Cpu {
    static MACHINE: Lazy<Cpu> = Lazy::new(|| Cpu::at(Path::new("/")));
    &MACHINE
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the entries of a folder whose names begin with `prefix`.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    found.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect()
}

fn mean(values: &[u64]) -> Option<u64> {
    (!values.is_empty()).then(|| values.iter().sum::<u64>() / values.len() as u64)
}

impl Cpu {
    fn at(root: &Path) -> Cpu {
        Cpu { root: root.to_owned(), last: Mutex::new(None), energies: Mutex::default() }
    }

    /// Returns one reading.
    pub fn read(&self, reading: Reading) -> Result<u64> {
        let value = match reading {
            Reading::Utilization => self.rates().map(|(busy, _)| busy),
            Reading::PowerDraw => self.rates().and_then(|(_, power)| power),
            Reading::Temperature => self.temperature(),
            Reading::ClockRate => self.clock(),
            Reading::Energy => self.energy().map(|microjoules| microjoules / 1000),
            Reading::MemoryUsage | Reading::MemoryClockRate | Reading::MemoryUsed | Reading::ThrottleReasons => None,
        };
        value.ok_or_else(|| not_read("this machine's Linux does not tell it of its processors"))
    }

    fn sums(&self) -> Option<Sums> {
        let text = fs::read_to_string(self.root.join("proc/stat")).ok()?;
        // user nice system idle iowait irq softirq steal
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().take(8).map(|word| word.parse().unwrap_or(0)).collect();
        let idle = ticks.get(3)? + ticks.get(4)?;
        let all = ticks.iter().sum::<u64>();
        Some(Sums { when: Instant::now(), busy: all - idle, all, energy: self.energy() })
    }

    /// Returns the recent utilization of the processors in per cent, and their power in milliwatts.
    fn rates(&self) -> Option<(u64, Option<u64>)> {
        let mut last = self.last.lock();
        let usable = |sums: &Sums| (MIN_INTERVAL..MAX_INTERVAL).contains(&sums.when.elapsed());
        let before = match last.filter(usable) {
            Some(sums) => sums,
            None => {
                let sums = self.sums()?;
                std::thread::sleep(MIN_INTERVAL);
                sums
            }
        };
        let now = self.sums()?;
        if last.is_none_or(|sums| sums.when.elapsed() > MAX_INTERVAL / 4) {
            *last = Some(now);
        }
        let (busy, all) = (now.busy.saturating_sub(before.busy), now.all.saturating_sub(before.all));
        let time = (now.when - before.when).as_micros() as u64;
        let used = now.energy.zip(before.energy).and_then(|(now, before)| now.checked_sub(before));
        Some((busy * 100 / all.max(1), used.map(|microjoules| microjoules * 1000 / time.max(1))))
    }

    fn energy(&self) -> Option<u64> {
        let zones = entries(&self.root.join("sys/class/powercap"), "intel-rapl:");
        // Other zones are parts of a package, or the whole machine including its packages.
        let is_package =
            |path: &&PathBuf| fs::read_to_string(path.join("name")).is_ok_and(|name| name.starts_with("package"));
        // Counters are read under the lock: a value that another thread reads earlier and stores later is no wrap.
        let mut energies = self.energies.lock();
        let mut count = |path: &PathBuf| {
            let value = number(&path.join("energy_uj"))?;
            let (last, wrapped) = energies.entry(path.clone()).or_default();
            if value < *last {
                *wrapped += number(&path.join("max_energy_range_uj"))?;
            }
            *last = value;
            Some(value + *wrapped)
        };
        let counted: Vec<u64> = zones.iter().filter(is_package).filter_map(&mut count).collect();
        (!counted.is_empty()).then(|| counted.iter().sum())
    }

    fn temperature(&self) -> Option<u64> {
        let is = |path: &Path, file: &str, names: &[&str]| {
            fs::read_to_string(path.join(file)).is_ok_and(|name| names.contains(&name.trim()))
        };
        let sensors = entries(&self.root.join("sys/class/hwmon"), "hwmon").into_iter();
        let sensors = sensors.filter(|path| is(path, "name", &["coretemp", "k10temp", "zenpower"]));
        let zones = entries(&self.root.join("sys/class/thermal"), "thermal_zone").into_iter();
        let zones = zones.filter(|path| is(path, "type", &["x86_pkg_temp", "cpu-thermal", "cpu_thermal"]));
        let values = sensors.map(|path| path.join("temp1_input")).chain(zones.map(|path| path.join("temp")));
        values.filter_map(|path| number(&path)).max().map(|thousandths| thousandths / 1000)
    }

    fn clock(&self) -> Option<u64> {
        let policies = entries(&self.root.join("sys/devices/system/cpu/cpufreq"), "policy");
        let kilohertz: Vec<u64> = policies
            .iter()
            .filter_map(|path| number(&path.join("scaling_cur_freq")))
            .map(|value| value / 1000)
            .collect();
        mean(&kilohertz).or_else(|| {
            let text = fs::read_to_string(self.root.join("proc/cpuinfo")).ok()?;
            let values = text.lines().filter_map(|line| line.strip_prefix("cpu MHz")?.split(':').nth(1));
            let values: Vec<u64> =
                values.filter_map(|value| value.trim().parse::<f64>().ok()).map(|value| value as u64).collect();
            mean(&values)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary::Folder;
    use crate::{status::Status, temporary};

    /// A simulated machine: a folder with its files.
    struct Machine(Folder);

    impl Machine {
        fn new() -> Machine {
            Machine(temporary::folder().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn readings_are_those_of_the_files() {
        let machine = Machine::new();
        machine.write("proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n");
        machine.write("proc/cpuinfo", "cpu MHz\t\t: 2400.5\ncpu MHz\t\t: 2600.0\n");
        machine.write("sys/class/hwmon/hwmon0/name", "nvme\n");
        machine.write("sys/class/hwmon/hwmon0/temp1_input", "99000\n");
        machine.write("sys/class/hwmon/hwmon1/name", "k10temp\n");
        machine.write("sys/class/hwmon/hwmon1/temp1_input", "53875\n");
        machine.write("sys/class/powercap/intel-rapl:0/energy_uj", "5000000\n");
        machine.write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
        machine.write("sys/class/powercap/intel-rapl:0:0/energy_uj", "777\n");
        machine.write("sys/class/powercap/intel-rapl:0:0/name", "core\n");
        machine.write("sys/class/powercap/intel-rapl:1/energy_uj", "9000000\n");
        machine.write("sys/class/powercap/intel-rapl:1/name", "psys\n");
        let cpu = Cpu::at(machine.0.path());
        assert_eq!(cpu.read(Reading::ClockRate).unwrap(), 2500);
        assert_eq!(cpu.read(Reading::Temperature).unwrap(), 53);
        assert_eq!(cpu.read(Reading::Energy).unwrap(), 5000);
        *cpu.last.lock() = Some(Sums {
            when: Instant::now() - Duration::from_millis(100),
            busy: 175,
            all: 900,
            energy: Some(4_000_000),
        });
        assert_eq!(cpu.read(Reading::Utilization).unwrap(), 25);
        let power = cpu.read(Reading::PowerDraw).unwrap();
        assert!((5_000..=10_000).contains(&power), "a joule in a tenth of a second: {power} mW");
        machine.write("sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "3000000\n");
        assert_eq!(cpu.read(Reading::ClockRate).unwrap(), 3000);
    }

    #[test]
    fn energy_goes_on_when_its_counter_wraps_around() {
        let machine = Machine::new();
        machine.write("proc/stat", "cpu  100 0 100 700 100 0 0 0 0 0\n");
        let counts = |one: &str, other: &str| {
            machine.write("sys/class/powercap/intel-rapl:0/energy_uj", one);
            machine.write("sys/class/powercap/intel-rapl:1/energy_uj", other);
        };
        for zone in ["intel-rapl:0", "intel-rapl:1"] {
            machine.write(&format!("sys/class/powercap/{zone}/name"), "package\n");
            machine.write(&format!("sys/class/powercap/{zone}/max_energy_range_uj"), "10000000\n");
        }
        let cpu = Cpu::at(machine.0.path());
        counts("9000000", "1000000");
        assert_eq!(cpu.read(Reading::Energy).unwrap(), 10_000);
        let before = cpu.sums().unwrap();
        *cpu.last.lock() = Some(Sums { when: Instant::now() - Duration::from_millis(100), ..before });
        counts("500000", "1500000");
        let power = cpu.read(Reading::PowerDraw).unwrap();
        assert!((10_000..=20_000).contains(&power), "two joules in a tenth of a second: {power} mW");
        assert_eq!(cpu.read(Reading::Energy).unwrap(), 12_000);
        counts("600000", "1500000");
        assert_eq!(cpu.read(Reading::Energy).unwrap(), 12_100);
    }

    #[test]
    fn missing_files_are_not_supported() {
        let machine = Machine::new();
        let cpu = Cpu::at(machine.0.path());
        for reading in Reading::ALL {
            assert_eq!(cpu.read(reading).unwrap_err().status(), Status::NOT_SUPPORTED, "{reading:?}");
        }
    }
}

//! The configuration of the host devices from the environment, read once when the driver is initialised.

use super::{
    driver::{environment::Environment, visible::visible_devices},
    memory::share::is_name,
    model::{MODELS, Model, uuid_text},
};

/// The size and alignment of physical memory, the same as a GPU's driver reports.
pub const GRANULE: u64 = 2 << 20;
/// The maximum number of devices of a process: access rights are stored as one bit per device.
pub const MAX_DEVICES: usize = 64;
/// The most bytes of memory of a device.
pub const MAX_MEMORY: u64 = 64 << 40;

/// How the costs of driver calls are accounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Costs {
    /// The prices are only added up.
    Count,
    /// Each call also takes at least its price.
    Spin,
}

/// How copies are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    /// As fast as possible.
    Fast,
    /// Each takes milliseconds, so that a program that does not wait for it gets wrong results.
    Slow,
    /// As slow ones, and a device is given access to memory only when its copies are done.
    Exclusive,
}

/// The host devices of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub model: &'static Model,
    /// The physical ordinal of each visible device.
    pub visible: Vec<usize>,
    /// The memory of each device, in bytes.
    pub memory: u64,
    /// The name by which processes share the amount of memory; `None` if it is this process's own.
    pub memory_name: Option<String>,
    pub launch_blocking: bool,
    /// Whether devices can be given access to each other's memory.
    pub peers: bool,
    /// Whether memory can be exported as fabric handles. Where it cannot, the driver says so when such memory is created.
    pub fabric: bool,
    /// How copies are executed.
    pub copies: Copies,
    /// Whether new memory holds arbitrary bytes, so that a program that does not initialize it gets wrong results.
    pub arbitrary_contents: bool,
    pub costs: Costs,
    pub checks: Checks,
}

/// What is checked while kernels in CUDA C++ run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checks {
    /// An access that the processor refuses is an error of the work; otherwise the process ends.
    pub addresses: bool,
    /// Accesses to shared memory: their bounds, and races between barriers.
    pub shared: bool,
}

impl Checks {
    fn parse(text: &str) -> Option<Checks> {
        match text.trim() {
            "" | "0" => return Some(Checks::default()),
            "1" => return Some(Checks { addresses: true, shared: true }),
            _ => {}
        }
        let mut checks = Checks::default();
        for part in text.split(',') {
            match part.trim() {
                "addresses" => checks.addresses = true,
                "shared" => checks.shared = true,
                _ => return None,
            }
        }
        Some(checks)
    }
}

impl Config {
    /// Reads the configuration from the environment.
    pub fn from_environment() -> Result<Config, String> {
        Config::read(|name| match name {
            "PLINTH_HOST_MEMORY_NAME" => Environment::of_process().value(name)?.into_string().ok(),
            _ => std::env::var(name).ok(),
        })
    }

    /// Reads the configuration through `get`, which looks up an environment variable. Empty ones are not set, except for
    /// CUDA_VISIBLE_DEVICES, which then means no device.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Config, String> {
        let set = |name| get(name).filter(|text| !text.trim().is_empty());
        let model = match set("PLINTH_HOST_MODEL") {
            None => &MODELS[0],
            Some(key) => Model::find(key.trim()).ok_or_else(|| {
                let known: Vec<_> = MODELS.iter().map(|model| model.key).collect();
                format!("PLINTH_HOST_MODEL is \"{key}\"; set it to one of {}", known.join(", "))
            })?,
        };
        let devices = match set("PLINTH_HOST_DEVICES") {
            None => 2,
            Some(text) => match text.trim().parse() {
                Ok(count) if (1..=MAX_DEVICES).contains(&count) => count,
                _ => return Err(format!("PLINTH_HOST_DEVICES is \"{text}\"; set it to 1 to {MAX_DEVICES}")),
            },
        };
        let memory = match set("PLINTH_HOST_MEMORY") {
            None => 4 << 30,
            Some(text) => match parse_bytes(&text) {
                Some(bytes) if (GRANULE..=MAX_MEMORY).contains(&bytes) => bytes / GRANULE * GRANULE,
                _ => {
                    return Err(format!(
                        "PLINTH_HOST_MEMORY is \"{text}\"; set it to 2MiB to 64TiB, in bytes or with KiB, MiB, GiB, TiB"
                    ));
                }
            },
        };
        let memory_name = set("PLINTH_HOST_MEMORY_NAME");
        if let Some(name) = memory_name.as_deref().filter(|name| !is_name(name)) {
            return Err(format!(
                "PLINTH_HOST_MEMORY_NAME is \"{name}\"; set it to 1 to 64 letters, digits, '-', '_' or '.'"
            ));
        }
        let costs = match set("PLINTH_HOST_COSTS").as_deref().map(str::trim) {
            None | Some("count") => Costs::Count,
            Some("spin") => Costs::Spin,
            Some(text) => return Err(format!("PLINTH_HOST_COSTS is \"{text}\"; set it to count or spin")),
        };
        let visible = match get("CUDA_VISIBLE_DEVICES") {
            None => (0..devices).collect(),
            Some(list) => {
                let uuids: Vec<String> = (0..devices).map(|physical| uuid_text(model.uuid(physical))).collect();
                visible_devices(&list, &uuids)
            }
        };
        let launch_blocking =
            get("CUDA_LAUNCH_BLOCKING").is_some_and(|text| text.trim().parse::<i64>().is_ok_and(|number| number != 0));
        let peers = match set("PLINTH_HOST_PEERS").as_deref().map(str::trim) {
            None | Some("all") => true,
            Some("none") => false,
            Some(text) => return Err(format!("PLINTH_HOST_PEERS is \"{text}\"; set it to all or none")),
        };
        let fabric = match set("PLINTH_HOST_FABRIC").as_deref().map(str::trim) {
            None | Some("0") => false,
            Some("1") => true,
            Some(text) => return Err(format!("PLINTH_HOST_FABRIC is \"{text}\"; set it to 1 or 0")),
        };
        let copies = match set("PLINTH_HOST_COPIES").as_deref().map(str::trim) {
            None | Some("fast") => Copies::Fast,
            Some("slow") => Copies::Slow,
            Some("exclusive") => Copies::Exclusive,
            Some(text) => return Err(format!("PLINTH_HOST_COPIES is \"{text}\"; set it to fast, slow or exclusive")),
        };
        let arbitrary_contents = match set("PLINTH_HOST_CONTENTS").as_deref().map(str::trim) {
            None | Some("zero") => false,
            Some("arbitrary") => true,
            Some(text) => return Err(format!("PLINTH_HOST_CONTENTS is \"{text}\"; set it to zero or arbitrary")),
        };
        let checks = match set("PLINTH_HOST_CHECKS") {
            None => Checks::default(),
            Some(text) => Checks::parse(&text).ok_or_else(|| {
                format!("PLINTH_HOST_CHECKS is \"{text}\"; set it to addresses, shared, both with a comma, 1 or 0")
            })?,
        };
        Ok(Config {
            model,
            visible,
            memory,
            memory_name,
            launch_blocking,
            peers,
            fabric,
            copies,
            arbitrary_contents,
            costs,
            checks,
        })
    }
}

/// Parses a number of bytes, or a number with the suffix KiB, MiB, GiB or TiB.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|number| (number, *shift)))
        .unwrap_or((text, 0));
    number.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Config, String> {
        Config::read(|name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
    }

    fn visible(list: &str) -> Vec<usize> {
        read(&[("PLINTH_HOST_DEVICES", "4"), ("CUDA_VISIBLE_DEVICES", list)]).unwrap().visible
    }

    #[test]
    fn defaults() {
        let config = read(&[]).unwrap();
        assert_eq!(config.visible, [0, 1]);
        assert_eq!(config.memory, 4 << 30);
        assert_eq!(config.model.name, "NVIDIA H200");
        assert_eq!(config.costs, Costs::Count);
        assert!(!config.launch_blocking);
        assert!(config.peers);
        assert_eq!(config.memory_name, None);
        assert!(!read(&[("PLINTH_HOST_PEERS", "none")]).unwrap().peers);
        assert!(!config.fabric && config.copies == Copies::Fast && !config.arbitrary_contents);
        assert_eq!(read(&[("PLINTH_HOST_COPIES", "slow")]).unwrap().copies, Copies::Slow);
        assert_eq!(read(&[("PLINTH_HOST_COPIES", "exclusive")]).unwrap().copies, Copies::Exclusive);
        assert!(read(&[("PLINTH_HOST_FABRIC", "1")]).unwrap().fabric);
        assert!(read(&[("PLINTH_HOST_CONTENTS", "arbitrary")]).unwrap().arbitrary_contents);
    }

    #[test]
    fn memory_sizes() {
        let memory = |text| read(&[("PLINTH_HOST_MEMORY", text)]).map(|config| config.memory);
        assert_eq!(memory("3000000"), Ok(2 << 20));
        assert_eq!(memory("4096 KiB"), Ok(4 << 20));
        assert_eq!(memory("64GiB"), Ok(64 << 30));
        assert_eq!(memory("1TiB"), Ok(1 << 40));
        for wrong in ["1", "-1", "4GB", "99999999TiB", "99999999999999999999"] {
            assert!(memory(wrong).unwrap_err().contains("PLINTH_HOST_MEMORY"), "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_variable_and_value() {
        for (name, value) in [
            ("PLINTH_HOST_DEVICES", "0"),
            ("PLINTH_HOST_DEVICES", "65"),
            ("PLINTH_HOST_MODEL", "none"),
            ("PLINTH_HOST_CHECKS", "adresses"),
            ("PLINTH_HOST_COSTS", "free"),
            ("PLINTH_HOST_PEERS", "some"),
            ("PLINTH_HOST_FABRIC", "yes"),
            ("PLINTH_HOST_COPIES", "none"),
            ("PLINTH_HOST_MEMORY_NAME", "a/b"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn empty_variables_are_not_set() {
        let names =
            ["DEVICES", "MEMORY", "MODEL", "MEMORY_NAME", "COSTS", "PEERS", "FABRIC", "COPIES", "CONTENTS", "CHECKS"]
                .map(|name| format!("PLINTH_HOST_{name}"));
        let config = read(&names.each_ref().map(|name| (name.as_str(), " "))).unwrap();
        assert_eq!((config.visible.len(), config.memory, config.memory_name), (2, 4 << 30, None));
    }

    #[test]
    fn visible_devices_follow_cuda() {
        assert_eq!(visible("2,0"), [2, 0]);
        assert!(visible("").is_empty());
        assert!(visible("0,1,0").is_empty());
        let uuid = uuid_text(MODELS[0].uuid(3));
        assert_eq!(visible(&uuid), [3]);
        assert_eq!(visible(&uuid[..12]), [3]);
        assert!(visible("GPU-").is_empty());
    }
}

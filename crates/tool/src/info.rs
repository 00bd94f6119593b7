//! `plinth info`: driver, devices, peer access, libraries and settings.

use super::{
    failure::Result,
    libraries::{self, Library},
    output::{Columns, Output, bytes, heading, or_dash, paragraph},
    settings,
    topology::{self, Connections, uuid_text},
};
use clap::Args;
use plinth::internal::runtime::{self, properties::Properties};
use plinth_driver::Kind;
use plinth_host::config::{Config, Costs};
use serde_json::{Value, json};
use std::{fs, thread};

/// The options of `plinth info`.
#[derive(Args)]
pub struct Options {
    /// Also show UUIDs, the files of libraries, and where missing libraries were searched
    #[arg(long, short)]
    long: bool,
}

/// The driver with its devices, or the reason why there is none.
type Found = std::result::Result<Driver, String>;

struct Driver {
    kind: Kind,
    /// The newest CUDA version that the driver supports.
    cuda: Option<String>,
    /// NVIDIA's release number of the driver.
    release: Option<String>,
    devices: Vec<Properties>,
    connections: Vec<Connections>,
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Cuda => "cuda",
        Kind::Host => "host",
    }
}

/// Returns NVIDIA's release number, from the kernel module or NVML.
pub fn release() -> Option<String> {
    let module = fs::read_to_string("/sys/module/nvidia/version").ok().map(|text| text.trim().to_owned());
    module.or_else(|| libraries::nvml().ok()?.sys_driver_version().ok())
}

fn find() -> Result<Found> {
    let runtime = match runtime::ready() {
        Ok(runtime) => runtime,
        Err(error) => return Ok(Err(error.message().to_owned())),
    };
    let driver = &runtime.driver;
    let mut devices = Vec::new();
    for device in runtime.devices() {
        devices.push(device.properties(driver)?.clone());
    }
    Ok(Ok(Driver {
        kind: driver.kind(),
        cuda: driver.version().ok().map(libraries::cuda_version),
        release: if driver.kind() == Kind::Cuda { release() } else { None },
        devices,
        connections: topology::connections(runtime)?,
    }))
}

fn host() -> std::result::Result<Config, String> {
    Config::read(|name| std::env::var(name).ok())
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Runs the subcommand.
pub fn run(options: &Options, output: &Output) -> Result<()> {
    let (found, libraries) = (find()?, libraries::all());
    if output.json {
        output.value(&as_json(&found, &libraries))
    } else {
        output.text(&as_text(options, &found, &libraries))
    }
}

fn as_json(found: &Found, libraries: &[Library]) -> Value {
    let driver = match found {
        Ok(driver) => json!({ "kind": kind_name(driver.kind), "cuda": driver.cuda, "release": driver.release }),
        Err(reason) => json!({ "error": reason }),
    };
    let devices: Vec<Value> = found
        .iter()
        .flat_map(|driver| driver.devices.iter().zip(&driver.connections))
        .map(|(one, connections)| {
            json!({
                "name": one.name,
                "uuid": uuid_text(&one.uuid),
                "pci": one.pci_bus_id_text,
                "memory": one.total_memory,
                "multiprocessors": one.multi_processor_count,
                "capability": [one.major, one.minor],
                "clock_khz": one.clock_rate,
                "memory_clock_khz": one.memory_clock_rate,
                "memory_bus_bits": one.memory_bus_width,
                "l2_bytes": one.l2_cache_size,
                "peers": connections.peers,
                "paths": connections.paths,
                "nvlinks": connections.links,
            })
        })
        .collect();
    let libraries: Vec<Value> = libraries
        .iter()
        .map(|library| match &library.found {
            Ok(version) => json!({
                "name": library.name, "found": true, "version": version.number,
                "path": version.path.as_ref().map(|path| path.to_string_lossy()),
            }),
            Err(reason) => json!({ "name": library.name, "found": false, "reason": reason }),
        })
        .collect();
    let host = match host() {
        Ok(config) => json!({
            "model": config.model.key, "devices": config.visible.len(), "memory": config.memory,
            "peers": config.peers, "processors": processors(),
        }),
        Err(reason) => json!({ "error": reason }),
    };
    json!({
        "plinth": env!("CARGO_PKG_VERSION"),
        "driver": driver,
        "devices": devices,
        "libraries": libraries,
        "host_device": host,
        "settings": settings::set(),
    })
}

fn as_text(options: &Options, found: &Found, libraries: &[Library]) -> String {
    let mut text = format!("plinth {}\n", env!("CARGO_PKG_VERSION"));
    match found {
        Ok(driver) => text += &driver_text(options, driver),
        Err(reason) => {
            text += &format!("{}\n", paragraph(&format!("No device: {reason}."), 0));
            text += "plinth doctor says what to do.\n";
        }
    }
    text += &format!("\n{}{}", heading("Libraries"), libraries_text(options, libraries));
    text += &format!("\n{}{}", heading("Host device"), host_text());
    text += &format!("\n{}{}", heading("Settings"), settings_text());
    text
}

fn driver_text(options: &Options, driver: &Driver) -> String {
    let mut text = match driver.kind {
        Kind::Cuda => {
            format!("NVIDIA driver {}, CUDA {}\n", or_dash(driver.release.as_ref()), or_dash(driver.cuda.as_ref()))
        }
        Kind::Host => "The host device: GPUs simulated on this CPU; no GPU is used\n".to_owned(),
    };
    let mut names = vec!["device", "name", ">memory", ">SMs", ">capability", "PCI"];
    if options.long {
        names.push("UUID");
    }
    let mut devices = Columns::new(&names);
    for (number, one) in driver.devices.iter().enumerate() {
        let mut row = vec![
            number.to_string(),
            one.name.clone(),
            bytes(one.total_memory),
            one.multi_processor_count.to_string(),
            format!("{}.{}", one.major, one.minor),
            one.pci_bus_id_text.clone(),
        ];
        if options.long {
            row.push(uuid_text(&one.uuid));
        }
        devices.row(row);
    }
    text += &format!("\n{}{}", heading("Devices"), devices.text());
    if driver.devices.len() > 1 {
        text += &format!("\n{}{}", heading("Peer access"), peers_text(driver));
    }
    text
}

fn peers_text(driver: &Driver) -> String {
    let differs = |one: &Connections| one.links.is_some() || one.paths.iter().any(Option::is_some);
    let peers = || driver.connections.iter().flat_map(|one| &one.peers).flatten();
    if !driver.connections.iter().any(differs) {
        if peers().all(|peer| *peer) {
            return "Each device can access the memory of every other.\n".to_owned();
        } else if !peers().any(|peer| *peer) {
            return "No device can access the memory of another.\n".to_owned();
        }
    }
    let numbers: Vec<String> = (0..driver.devices.len()).map(|number| number.to_string()).collect();
    let mut names = vec!["device"];
    names.extend(numbers.iter().map(String::as_str));
    let with_links = driver.connections.iter().any(|one| one.links.is_some());
    if with_links {
        names.push(">NVLinks up");
    }
    let mut table = Columns::new(&names);
    for (number, one) in driver.connections.iter().enumerate() {
        let mut row = vec![number.to_string()];
        for (peer, path) in one.peers.iter().zip(&one.paths) {
            row.push(match (peer, path) {
                (None, _) => "-".to_owned(),
                (Some(true), None) => "yes".to_owned(),
                (Some(false), None) => "no".to_owned(),
                (Some(true), Some(path)) => format!("yes, {path}"),
                (Some(false), Some(path)) => format!("no, {path}"),
            });
        }
        if with_links {
            row.push(or_dash(one.links));
        }
        table.row(row);
    }
    let mut text = table.text();
    if driver.connections.iter().flat_map(|one| &one.paths).any(Option::is_some) {
        text += "Paths on PCI Express, from near to far: board, switch, switches, bridge, node, system.\n";
    }
    text
}

/// Returns the table of libraries: one line for each, and with `--long` paths and reasons.
fn libraries_text(options: &Options, libraries: &[Library]) -> String {
    let mut names = vec!["library", "version", "used for"];
    if options.long {
        names.push("path, or why it is unavailable");
    }
    let mut table = Columns::new(&names);
    let mut unusable = String::new();
    for library in libraries {
        let (version, place) = match &library.found {
            Ok(version) => (version.number.clone(), or_dash(version.path.as_ref().map(|path| path.display()))),
            Err(reason) if is_missing(reason) => ("not found".to_owned(), reason.clone()),
            Err(reason) => {
                unusable += &format!("{}\n", paragraph(&format!("{}: {reason}.", library.name), 0));
                ("unusable".to_owned(), reason.clone())
            }
        };
        let mut row = vec![library.name.to_owned(), version, library.purpose.to_owned()];
        if options.long {
            row.push(place);
        }
        table.row(row);
    }
    let mut text = table.text();
    if !options.long {
        text += &unusable;
        text += "Each is needed only for what it is used for. plinth info --long shows where they are searched.\n";
    }
    text
}

/// Returns whether a library is unavailable because no file was found, rather than because it cannot be used.
fn is_missing(reason: &str) -> bool {
    ["not found", "was found", "No such file"].iter().any(|words| reason.contains(words))
}

fn host_text() -> String {
    match host() {
        Ok(config) => format!(
            "{} like {}, with {} each, on {} processors; {}{}\n",
            config.visible.len(),
            config.model.name,
            bytes(config.memory),
            processors(),
            if config.peers { "with peer access" } else { "without peer access" },
            if config.costs == Costs::Spin { "; calls take as long as on a GPU" } else { "" },
        ),
        Err(reason) => format!("Invalid configuration: {reason}.\n"),
    }
}

fn settings_text() -> String {
    let set = settings::set();
    if set.is_empty() {
        return "No variable of plinth, the driver or NCCL is set.\n".to_owned();
    }
    let mut table = Columns::new(&["variable", "purpose", "value"]);
    for (name, value) in &set {
        let purpose = settings::purpose(name).unwrap_or("unknown to plinth");
        table.row([name.as_str(), purpose, value]);
    }
    table.text()
}

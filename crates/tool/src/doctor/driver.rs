//! The driver: whether it is there and starts, and if not, what stands in its way.

use super::{
    super::{Kind, libraries::cuda_version},
    Finding, Machine, Weight,
};
use plinth::{
    driver::{Code, Driver, codes, cuda},
    error::Error,
    status::Status,
};
use std::io;

const ABOUT: &str = "driver";

/// What there is to say, and the driver if it starts and has a device.
pub fn check(wanted: Kind, machine: &Machine) -> (Vec<Finding>, Option<Driver>) {
    if wanted == Kind::Host {
        let says = "GPUs are not looked for: the host device, on the CPU, was chosen";
        return (vec![Finding::fine(ABOUT, says)], None);
    }
    let mut findings = Vec::new();
    let driver = match start(machine) {
        Ok((driver, devices)) => {
            let version = driver.version().map_or_else(|_| "unknown".to_owned(), cuda_version);
            let release = machine.module().unwrap_or_else(|| "of an unknown release".to_owned());
            let plural = if devices == 1 { "" } else { "s" };
            findings.push(Finding::fine(
                ABOUT,
                format!("Driver {release}, CUDA {version}, shows {devices} device{plural}"),
            ));
            Some(driver)
        }
        Err(mut finding) => {
            if wanted == Kind::Auto {
                // Programs go on without.
                finding.weight = Weight::Note;
            }
            findings.push(finding);
            None
        }
    };
    findings.extend(nodes(machine, driver.is_some()));
    (findings, driver)
}

fn start(machine: &Machine) -> Result<(Driver, i32), Finding> {
    let driver = cuda::load(false).map_err(|error| not_loaded(&error, machine))?;
    driver.init().map_err(|failure| not_started(failure.code, Error::from(failure).message(), machine))?;
    let count = driver.device_count();
    match count.map_err(|failure| not_started(failure.code, Error::from(failure).message(), machine))? {
        0 => Err(not_started(codes::CUDA_ERROR_NO_DEVICE, "it shows this process no device", machine)),
        count => Ok((driver, count)),
    }
}

fn problem(says: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding::new(Weight::Problem, ABOUT, says, advice)
}

/// How a container is given GPUs.
fn give_gpus(container: &str) -> &'static str {
    match container {
        "Kubernetes" => {
            "Ask for GPUs in the container's resource limits (nvidia.com/gpu: 1), on nodes that have NVIDIA's \
             device plugin"
        }
        "Podman" => "Start it with --device nvidia.com/gpu=all, with NVIDIA's container toolkit on the host",
        _ => "Start it with --gpus all, with NVIDIA's container toolkit on the host",
    }
}

/// Why libcuda cannot be loaded.
fn not_loaded(error: &Error, machine: &Machine) -> Finding {
    if machine.variable("PLINTH_CUDA_LIBRARY").is_some_and(|path| !path.is_empty()) {
        return problem(error.message(), "Take PLINTH_CUDA_LIBRARY away, or let it name the libcuda.so.1 of a driver");
    }
    if error.status() == Status::DRIVER_TOO_OLD {
        return problem(error.message(), "Install a newer driver");
    }
    let visible = machine.variable("NVIDIA_VISIBLE_DEVICES").filter(|list| !matches!(*list, "" | "void" | "none"));
    match (machine.container(), visible, machine.module(), machine.cards()) {
        (Some(container), None, ..) => problem(
            format!(
                "This {container} container was given no GPU: there is no libcuda, and NVIDIA_VISIBLE_DEVICES is \
                 not set"
            ),
            give_gpus(container),
        ),
        (Some(container), Some(_), ..) => problem(
            format!("This {container} container was given GPUs, but no libcuda"),
            "Let NVIDIA_DRIVER_CAPABILITIES contain compute (or all), and see that the host has NVIDIA's container \
             toolkit",
        ),
        (None, _, Some(release), _) => problem(
            format!(
                "The kernel has NVIDIA's module {release}, but libcuda.so.1 is not where the system finds libraries"
            ),
            format!(
                "Install the driver's user part of the same release, {release} (Debian: libcuda1; Ubuntu: \
                 libnvidia-compute)"
            ),
        ),
        (None, _, None, 0) => problem(
            "There is no NVIDIA card in this machine, and no driver",
            "Set PLINTH_DEVICE=host, or auto, to run on the CPU with the built-in host device",
        ),
        (None, _, None, cards) => problem(
            format!("There are {cards} NVIDIA cards in this machine, but there is no driver"),
            "Install NVIDIA's driver, and load its module (modprobe nvidia)",
        ),
    }
}

/// Why a driver that is there does not start, or shows no device.
fn not_started(found: Code, message: &str, machine: &Machine) -> Finding {
    let says = format!("The driver is there, but does not work: {message}");
    match found {
        codes::CUDA_ERROR_STUB_LIBRARY => problem(
            "The libcuda that was found is the stub that the toolkit has for linking",
            "Take the toolkit's stubs folder out of LD_LIBRARY_PATH",
        ),
        codes::CUDA_ERROR_NO_DEVICE => no_device(machine),
        codes::CUDA_ERROR_SYSTEM_NOT_READY => problem(
            says,
            "Cards that are joined by NVSwitch need NVIDIA's fabric manager: start nvidia-fabricmanager, of the \
             driver's release",
        ),
        codes::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            problem(says, "The kernel's module and libcuda are of two releases: reboot, or load the module again")
        }
        codes::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => problem(
            says,
            "The forward compatibility package (cuda-compat) works on data centre cards only: take it out of \
             LD_LIBRARY_PATH",
        ),
        codes::CUDA_ERROR_DEVICE_UNAVAILABLE => {
            problem(says, "Another process has the card for itself: end it, or let nvidia-smi -c 0")
        }
        codes::CUDA_ERROR_OPERATING_SYSTEM | codes::CUDA_ERROR_UNKNOWN => problem(
            says,
            "Load the module nvidia-uvm (modprobe nvidia-uvm; nvidia-modprobe -u makes its file), and look into \
             dmesg for NVRM",
        ),
        _ => problem(says, "See what nvidia-smi says, and dmesg of NVRM"),
    }
}

fn no_device(machine: &Machine) -> Finding {
    let hidden = machine.variable("CUDA_VISIBLE_DEVICES");
    match (hidden, machine.container(), machine.cards()) {
        (Some(list), ..) => problem(
            format!("The driver works, but CUDA_VISIBLE_DEVICES={list:?} leaves no device of it"),
            "Take the variable away, or name devices that there are: numbers from 0, or UUIDs; the list ends at its \
             first wrong name",
        ),
        (None, Some(container), _) => problem(
            format!("The driver is there, but this {container} container was given no GPU"),
            give_gpus(container),
        ),
        (None, None, 0) => {
            problem("The driver is there, but no NVIDIA card", "See whether the card is on the bus: lspci -d 10de:")
        }
        (None, None, cards) => problem(
            format!("The driver is there, and {cards} cards, but it can use none of them"),
            "Look into dmesg for NVRM: the card may be too old for the driver, or fallen off the bus",
        ),
    }
}

/// The files under /dev.
fn nodes(machine: &Machine, works: bool) -> Vec<Finding> {
    let nodes = machine.nodes();
    let weight = if works { Weight::Warning } else { Weight::Problem };
    let mut findings = Vec::new();
    let refused =
        |opened: &io::Result<()>| opened.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let closed: Vec<&str> = nodes.iter().filter(|(_, opened)| refused(opened)).map(|(name, _)| name.as_str()).collect();
    if !closed.is_empty() {
        findings.push(Finding::new(
            weight,
            "/dev/nvidia",
            format!("This user may not open {}", closed.join(", ")),
            "Join the group that owns the files (often video or render), or give them mode 666",
        ));
    }
    let has = |wanted: &str| nodes.iter().any(|(name, _)| name == wanted);
    if !nodes.is_empty() && !has("/dev/nvidia-uvm") {
        findings.push(Finding::new(
            weight,
            "/dev/nvidia",
            "/dev/nvidia-uvm is missing, without which CUDA does not start",
            "Run nvidia-modprobe -u -c 0, or give the file to the container",
        ));
    }
    if findings.is_empty() && !nodes.is_empty() {
        findings.push(Finding::fine("/dev/nvidia", format!("All {} files of the driver can be opened", nodes.len())));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{super::machine::Files, *};

    fn missing() -> Error {
        Error::new(Status::NO_DEVICE, "no NVIDIA driver was found")
    }

    fn says(finding: &Finding, words: &[&str]) {
        let all = format!("{} {}", finding.says, finding.advice.as_deref().unwrap_or_default());
        for word in words {
            assert!(all.contains(word), "{word} is not in: {all}");
        }
        assert_eq!(finding.weight, Weight::Problem);
    }

    #[test]
    fn a_missing_driver_is_told_by_what_else_is_there() {
        let files = Files::new("driver");
        let bare = Machine::at(&files.0, &[]);
        says(&not_loaded(&missing(), &bare), &["no NVIDIA card", "PLINTH_DEVICE=host"]);
        files.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        files.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
        says(&not_loaded(&missing(), &bare), &["1 NVIDIA cards", "Install NVIDIA's driver"]);
        files.write("sys/module/nvidia/version", "580.159.04\n");
        says(&not_loaded(&missing(), &bare), &["580.159.04", "libcuda1"]);
        files.write(".dockerenv", "");
        says(&not_loaded(&missing(), &bare), &["Docker container was given no GPU", "--gpus all"]);
        let given = Machine::at(&files.0, &[("NVIDIA_VISIBLE_DEVICES", "all")]);
        says(&not_loaded(&missing(), &given), &["but no libcuda", "NVIDIA_DRIVER_CAPABILITIES"]);
        let void = Machine::at(&files.0, &[("NVIDIA_VISIBLE_DEVICES", "void")]);
        says(&not_loaded(&missing(), &void), &["was given no GPU"]);
        let old = Error::new(Status::DRIVER_TOO_OLD, "the CUDA driver has no cuX");
        says(&not_loaded(&old, &bare), &["cuX", "newer driver"]);
        let named = Machine::at(&files.0, &[("PLINTH_CUDA_LIBRARY", "/nowhere")]);
        says(&not_loaded(&missing(), &named), &["PLINTH_CUDA_LIBRARY"]);
    }

    #[test]
    fn a_driver_that_does_not_start_is_told_by_its_code() {
        let files = Files::new("codes");
        let bare = Machine::at(&files.0, &[]);
        says(&not_started(codes::CUDA_ERROR_SYSTEM_NOT_READY, "m", &bare), &["fabric manager"]);
        says(&not_started(codes::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "m", &bare), &["two releases"]);
        says(&not_started(codes::CUDA_ERROR_UNKNOWN, "m", &bare), &["nvidia-uvm"]);
        says(&not_started(12345, "a message", &bare), &["a message", "nvidia-smi"]);
        says(&not_started(codes::CUDA_ERROR_NO_DEVICE, "", &bare), &["no NVIDIA card", "lspci"]);
        let hidden = Machine::at(&files.0, &[("CUDA_VISIBLE_DEVICES", "7")]);
        says(&not_started(codes::CUDA_ERROR_NO_DEVICE, "", &hidden), &["CUDA_VISIBLE_DEVICES=\"7\""]);
    }

    #[test]
    fn files_that_are_missing_are_told() {
        let files = Files::new("nodes");
        let machine = Machine::at(&files.0, &[]);
        assert_eq!(nodes(&machine, false), []);
        files.write("dev/nvidia0", "");
        files.write("dev/nvidiactl", "");
        let found = nodes(&machine, false);
        assert_eq!(found.len(), 1);
        says(&found[0], &["nvidia-uvm is missing"]);
        files.write("dev/nvidia-uvm", "");
        let found = nodes(&machine, true);
        assert_eq!((found.len(), found[0].weight), (1, Weight::Fine));
    }
}

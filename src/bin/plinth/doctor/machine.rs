//! System information from Linux, under a root directory that tests can choose.

use std::{
    collections::HashMap,
    env, fs, io,
    path::{Path, PathBuf},
};

/// A machine, described by its files and its environment.
pub struct Machine {
    root: PathBuf,
    environment: HashMap<String, String>,
}

impl Machine {
    /// Describes the machine that the tool runs on.
    pub fn this() -> Machine {
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Machine {
            root: "/".into(),
            environment: env::vars_os().map(|(name, value)| (lossy(name), lossy(value))).collect(),
        }
    }

    /// Describes a machine by the files under a root.
    #[cfg(test)]
    pub fn at(root: &Path, environment: &[(&str, &str)]) -> Machine {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Machine { root: root.to_owned(), environment: environment.iter().map(owned).collect() }
    }

    /// Returns the value of a variable, if it is set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    /// Returns the path of a file of the machine.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the text of a file.
    pub fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// Returns the number of visible NVIDIA GPUs on the PCI bus; a container or virtual machine may see only some.
    pub fn cards(&self) -> usize {
        let Ok(entries) = fs::read_dir(self.path("/sys/bus/pci/devices")) else { return 0 };
        let is = |path: &Path, file: &str, prefix: &str| {
            fs::read_to_string(path.join(file)).is_ok_and(|text| text.trim().starts_with(prefix))
        };
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| is(path, "vendor", "0x10de") && is(path, "class", "0x03")).count()
    }

    /// Returns the release of NVIDIA's kernel module, if it is loaded.
    pub fn module(&self) -> Option<String> {
        self.read("/sys/module/nvidia/version").map(|text| text.trim().to_owned())
    }

    /// Returns the kind of the container, if this is one.
    pub fn container(&self) -> Option<&'static str> {
        let control = self.read("/proc/1/cgroup").unwrap_or_default();
        if self.variable("KUBERNETES_SERVICE_HOST").is_some() || control.contains("kubepods") {
            Some("Kubernetes")
        } else if self.path("/.dockerenv").exists() || control.contains("docker") {
            Some("Docker")
        } else if self.path("/run/.containerenv").exists() {
            Some("Podman")
        } else {
            None
        }
    }

    /// Returns the driver's device files, each with the result of opening it.
    pub fn nodes(&self) -> Vec<(String, io::Result<()>)> {
        let Ok(entries) = fs::read_dir(self.path("/dev")) else { return Vec::new() };
        let is_node = |name: &str| match name.strip_prefix("nvidia") {
            Some(rest) => {
                matches!(rest, "ctl" | "-uvm") || (!rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
            }
            None => false,
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| is_node(name)).collect();
        names.sort();
        let open = |path: PathBuf| fs::OpenOptions::new().read(true).write(true).open(path).map(drop);
        names.into_iter().map(|name| (format!("/dev/{name}"), open(self.path(&format!("/dev/{name}"))))).collect()
    }
}

/// The files of a simulated machine, deleted at the end of the test.
#[cfg(test)]
pub struct Files(pub PathBuf);

#[cfg(test)]
impl Files {
    /// Creates a machine without files.
    pub fn new(name: &str) -> Files {
        let root = env::temp_dir().join(format!("plinth-doctor-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Files(root)
    }

    /// Adds a file.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[cfg(test)]
impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_described_by_its_files() {
        let files = Files::new("machine");
        let bare = Machine::at(&files.0, &[]);
        assert_eq!((bare.cards(), bare.module(), bare.container(), bare.nodes().len()), (0, None, None, 0));
        files.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
        files.write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
        // The audio device of a GPU, and a GPU of another vendor.
        files.write("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
        files.write("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
        files.write("sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086\n");
        files.write("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n");
        files.write("sys/module/nvidia/version", "580.159.04\n");
        files.write(".dockerenv", "");
        for node in ["nvidia0", "nvidiactl", "nvidia-modeset", "nvidia-uvm", "null"] {
            files.write(&format!("dev/{node}"), "");
        }
        let machine = Machine::at(&files.0, &[]);
        assert_eq!(machine.cards(), 1);
        assert_eq!(machine.module().as_deref(), Some("580.159.04"));
        assert_eq!(machine.container(), Some("Docker"));
        let nodes = machine.nodes();
        let names: Vec<_> = nodes.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]);
        assert!(nodes.iter().all(|(_, opened)| opened.is_ok()));
        assert_eq!(Machine::at(&files.0, &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]).container(), Some("Kubernetes"));
    }
}

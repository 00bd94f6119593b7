//! The system's limits: shared memory, locked memory, files, processes, addresses.

use super::{super::output::bytes, Finding, Machine, Weight};

/// Below this NCCL's buffers, and the workers that load data, find no room.
const SHARED: u64 = 1 << 30;
/// Network cards that read memory by themselves want to lock what NCCL shows them.
const LOCKED: u64 = 1 << 30;
/// A device or a process that memory is shared with takes a few files each.
const FILES: u64 = 4096;
/// Threads count as processes.
const PROCESSES: u64 = 1024;

/// What there is to say.
pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = vec![shared_memory(free_at(machine, "/dev/shm"))];
    findings.extend(limits(&machine.read("/proc/self/limits").unwrap_or_default()));
    findings.extend(overcommit(machine));
    findings
}

/// Free bytes of the file system at a path.
fn free_at(machine: &Machine, path: &str) -> Option<u64> {
    let told = rustix::fs::statvfs(machine.path(path)).ok()?;
    Some(told.f_bavail * told.f_frsize)
}

fn shared_memory(free: Option<u64>) -> Finding {
    let about = "/dev/shm";
    match free {
        None => Finding::new(
            Weight::Warning,
            about,
            "There is no /dev/shm, where NCCL and data loaders of several processes share memory",
            "Mount a tmpfs there",
        ),
        Some(free) if free < SHARED => Finding::new(
            Weight::Warning,
            about,
            format!(
                "{} are free in /dev/shm, which is little for NCCL and for data loaders of several processes",
                bytes(free)
            ),
            "Docker: --shm-size=8g or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm; else remove \
             what is left there",
        ),
        Some(free) => Finding::fine(about, format!("{} are free in /dev/shm", bytes(free))),
    }
}

/// The soft limit of a line of /proc/self/limits; `None` where it has none, or there is no such line.
fn soft(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn limits(text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut low = |about, says: String, advice: &str| findings.push(Finding::new(Weight::Warning, about, says, advice));
    if let Some(limit) = soft(text, "Max locked memory").filter(|limit| *limit < LOCKED) {
        low(
            "memlock",
            format!("A process may lock {}: NCCL over InfiniBand or RoCE needs more", bytes(limit)),
            "ulimit -l unlimited, by /etc/security/limits.conf; Docker: --ulimit memlock=-1. Without such a network \
             it does not matter",
        );
    }
    if let Some(limit) = soft(text, "Max open files").filter(|limit| *limit < FILES) {
        low(
            "nofile",
            format!(
                "A process may open {limit} files; memory that is shared with many processes takes one for each piece"
            ),
            "ulimit -n 65536; Docker: --ulimit nofile=65536",
        );
    }
    if let Some(limit) = soft(text, "Max processes").filter(|limit| *limit < PROCESSES) {
        low(
            "nproc",
            format!(
                "This user may have {limit} processes and threads; fork and the driver's own threads fail beyond that"
            ),
            "ulimit -u 65536; Docker: --pids-limit -1",
        );
    }
    if let Some(limit) = soft(text, "Max address space") {
        findings.push(Finding::new(
            Weight::Problem,
            "addresses",
            format!(
                "A process may have {} of addresses; CUDA reserves more than the memory of the machine and all cards",
                bytes(limit)
            ),
            "ulimit -v unlimited",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::fine("limits", "Locked memory, open files, processes and addresses are enough"));
    }
    findings
}

fn overcommit(machine: &Machine) -> Option<Finding> {
    let mode = machine.read("/proc/sys/vm/overcommit_memory")?;
    (mode.trim() == "2").then(|| {
        Finding::new(
            Weight::Warning,
            "overcommit",
            "Linux promises no more memory than there is (vm.overcommit_memory=2): fork fails in a process that \
             uses much, and CUDA may, too",
            "sysctl vm.overcommit_memory=0",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{super::machine::Files, *};

    const ENOUGH: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max processes             65536                65536                processes
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
Max address space         unlimited            unlimited            bytes
";

    #[test]
    fn limits_are_read_as_linux_writes_them() {
        assert_eq!(soft(ENOUGH, "Max open files"), Some(1 << 20));
        assert_eq!(soft(ENOUGH, "Max locked memory"), None);
        let fine = limits(ENOUGH);
        assert_eq!((fine.len(), fine[0].weight), (1, Weight::Fine));
        let low = ENOUGH.replace("1048576 ", "1024 ").replace("unlimited", "8388608").replace("65536", "512");
        let found = limits(&low);
        let about: Vec<_> = found.iter().map(|finding| finding.about).collect();
        assert_eq!(about, ["memlock", "nofile", "nproc", "addresses"]);
        assert!(found[0].says.contains("8.00 MiB"), "{}", found[0].says);
        assert_eq!(found[3].weight, Weight::Problem);
    }

    #[test]
    fn little_shared_memory_is_told() {
        assert_eq!(shared_memory(None).weight, Weight::Warning);
        assert!(shared_memory(Some(64 << 20)).says.contains("64.00 MiB"));
        assert_eq!(shared_memory(Some(8 << 30)).weight, Weight::Fine);
        let files = Files::new("limits");
        let machine = Machine::at(&files.0, &[]);
        assert_eq!(free_at(&machine, "/dev/shm"), None);
        assert!(free_at(&machine, "/").is_some());
        assert_eq!(overcommit(&machine), None);
        files.write("proc/sys/vm/overcommit_memory", "2\n");
        assert!(overcommit(&machine).is_some());
    }
}

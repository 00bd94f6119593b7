//! Checks of system limits: shared memory, locked memory, files, processes, address space.

use super::{super::output::bytes, Finding, Machine, Severity};

/// With less, NCCL's buffers and the shared memory of data loaders do not fit.
const SHARED: u64 = 1 << 30;
/// NCCL registers buffers with RDMA network adapters, which locks them.
const LOCKED: u64 = 1 << 30;
/// Each device, and each process that shares memory, needs a few files.
const FILES: u64 = 4096;
/// Threads count as processes.
const PROCESSES: u64 = 1024;

/// Returns the findings; with `gpus` also those that matter only to programs on GPUs.
pub fn check(machine: &Machine, gpus: bool) -> Vec<Finding> {
    let mut findings = vec![shared_memory(free_at(machine, "/dev/shm"))];
    findings.extend(limits(&machine.read("/proc/self/limits").unwrap_or_default(), gpus));
    findings.extend(overcommit(machine));
    findings
}

/// Returns the free bytes of the file system at a path.
fn free_at(machine: &Machine, path: &str) -> Option<u64> {
    let stats = rustix::fs::statvfs(machine.path(path)).ok()?;
    Some(stats.f_bavail * stats.f_frsize)
}

fn shared_memory(free: Option<u64>) -> Finding {
    let about = "/dev/shm";
    match free {
        None => Finding::new(
            Severity::Warning,
            about,
            "There is no /dev/shm, in which NCCL and data loaders with several processes share memory",
            "Mount a tmpfs at /dev/shm",
        ),
        Some(free) if free < SHARED => Finding::new(
            Severity::Warning,
            about,
            format!(
                "{} are free in /dev/shm, which is little for NCCL and for data loaders with several processes",
                bytes(free)
            ),
            "Docker: --shm-size=8g or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm; otherwise \
                         remove unused files in /dev/shm",
        ),
        Some(free) => Finding::fine(about, format!("{} are free in /dev/shm", bytes(free))),
    }
}

/// Returns the soft limit of a line of /proc/self/limits; `None` if it is unlimited or there is no such line.
fn soft(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn limits(text: &str, gpus: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut low =
        |about, says: String, advice: &str| findings.push(Finding::new(Severity::Warning, about, says, advice));
    if let Some(limit) = soft(text, "Max locked memory").filter(|limit| gpus && *limit < LOCKED) {
        low(
            "memlock",
            format!("A process may lock {}: NCCL over InfiniBand or RoCE needs more", bytes(limit)),
            "Raise the limit of locked memory: ulimit -l unlimited, or /etc/security/limits.conf; Docker: --ulimit memlock=-1. It does not matter \
                         without such a network",
        );
    }
    if let Some(limit) = soft(text, "Max open files").filter(|limit| *limit < FILES) {
        low(
            "nofile",
            format!("A process may open {limit} files; memory shared with many processes needs one file per segment"),
            "Raise the limit of open files: ulimit -n 65536; Docker: --ulimit nofile=65536",
        );
    }
    if let Some(limit) = soft(text, "Max processes").filter(|limit| *limit < PROCESSES) {
        low(
            "nproc",
            format!("This user may have {limit} processes and threads; beyond that fork and the driver's threads fail"),
            "Raise the limit of processes: ulimit -u 65536; Docker: --pids-limit -1",
        );
    }
    if let Some(limit) = soft(text, "Max address space") {
        findings.push(Finding::new(
            Severity::Problem,
            "addresses",
            format!(
                "The address space is limited to {}; CUDA reserves more than the memory of the machine and all GPUs",
                bytes(limit)
            ),
            "Remove the limit of the address space: ulimit -v unlimited",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::fine("limits", "The limits of memory, open files, processes and address space suffice"));
    }
    findings
}

fn overcommit(machine: &Machine) -> Option<Finding> {
    let mode = machine.read("/proc/sys/vm/overcommit_memory")?;
    (mode.trim() == "2").then(|| {
        Finding::new(
            Severity::Warning,
            "overcommit",
            "Linux does not overcommit memory (vm.overcommit_memory=2): fork fails in a process that uses much \
                         memory, and CUDA may fail too",
            "Let Linux overcommit memory: sysctl vm.overcommit_memory=0",
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
    fn limits_are_parsed_in_the_format_of_linux() {
        assert_eq!(soft(ENOUGH, "Max open files"), Some(1 << 20));
        assert_eq!(soft(ENOUGH, "Max locked memory"), None);
        let fine = limits(ENOUGH, true);
        assert_eq!((fine.len(), fine[0].severity), (1, Severity::Fine));
        let low = ENOUGH.replace("1048576 ", "1024 ").replace("unlimited", "8388608").replace("65536", "512");
        let found = limits(&low, true);
        let about: Vec<_> = found.iter().map(|finding| finding.about).collect();
        assert_eq!(about, ["memlock", "nofile", "nproc", "addresses"]);
        assert!(found[0].says.contains("8.00 MiB"), "{}", found[0].says);
        assert_eq!(found[3].severity, Severity::Problem);
        assert_eq!(limits(&low, false).len(), 3);
    }

    #[test]
    fn little_shared_memory_is_reported() {
        assert_eq!(shared_memory(None).severity, Severity::Warning);
        assert!(shared_memory(Some(64 << 20)).says.contains("64.00 MiB"));
        assert_eq!(shared_memory(Some(8 << 30)).severity, Severity::Fine);
        let files = Files::new("limits");
        let machine = Machine::at(&files.0, &[]);
        assert_eq!(free_at(&machine, "/dev/shm"), None);
        assert!(free_at(&machine, "/").is_some());
        assert_eq!(overcommit(&machine), None);
        files.write("proc/sys/vm/overcommit_memory", "2\n");
        assert!(overcommit(&machine).is_some());
    }
}

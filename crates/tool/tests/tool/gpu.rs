//! The tool on GPUs, simulated by libraries that stand for the driver's.

use super::{contains, folder, output, tool};
use plinth_driver::table::CALLS;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Builds a libcuda of CUDA 12.8 whose cuInit returns `FAKE_CODE`, with `FAKE_DEVICES` devices.
fn fake_cuda(name: &str) -> PathBuf {
    const SPECIAL: &str = "
        #include <stdlib.h>
        static int setting(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
        int cuInit(unsigned flags) { return setting(\"FAKE_CODE\"); }
        int cuDriverGetVersion(int *version) { *version = 12080; return 0; }
        int cuDeviceGetCount(int *count) { *count = setting(\"FAKE_DEVICES\"); return 0; }\n";
    let plain = CALLS.iter().filter(|call| !SPECIAL.contains(&format!("{}(", call.symbol)));
    let calls: String = plain.map(|call| format!("int {}(void) {{ return 0; }}\n", call.symbol)).collect();
    compile(&folder(name).join("libcuda.so.1"), &format!("{SPECIAL}{calls}"))
}

/// Compiles a shared library.
fn compile(library: &Path, text: &str) -> PathBuf {
    let source = library.with_extension("c");
    fs::write(&source, text).unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    let status = compiler.to_command().args(["-w", "-shared", "-fPIC", "-o"]).args([library, &source]).status();
    assert!(status.unwrap().success());
    library.to_owned()
}

/// Builds an NVML in which a GPU has two processes: the parent of the caller uses 42 per cent of it, and one that is not
/// in this container. Samples of an hour ago must not be used.
fn fake_nvml(folder: &Path) -> PathBuf {
    let text = r#"
        #include <string.h>
        #include <time.h>
        #include <unistd.h>
        typedef unsigned long long u64;
        struct utilization { unsigned gpu, memory; };
        struct process { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; };
        struct sample { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; };
        int nvmlInit_v2(void) { return 0; }
        int nvmlShutdown(void) { return 0; }
        int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { *device = "GPU"; return 0; }
        int nvmlDeviceGetUtilizationRates(void *device, struct utilization *out) { out->gpu = 57; out->memory = 8; return 0; }
        int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *out) {
            if (*count < 2) { *count = 2; return 7; }
            *count = 2;
            memset(out, 0, 2 * sizeof *out);
            out[0].pid = getppid(); out[0].used = 3ull << 30;
            out[1].pid = 400000000; out[1].used = 1ull << 30;
            return 0;
        }
        int nvmlDeviceGetProcessUtilization(void *device, struct sample *out, unsigned *count, u64 after) {
            u64 now = (u64)time(0) * 1000000;
            struct sample all[] = {{getppid(), now - 3600000000ull, 99}, {getppid(), now - 1, 11}, {getppid(), now, 42}};
            unsigned first = 0;
            while (first < 3 && all[first].time <= after) first++;
            if (*count < 3 - first || !out) { *count = 3 - first; return 7; }
            *count = 3 - first;
            memcpy(out, all + first, *count * sizeof *all);
            return 0;
        }
    "#;
    compile(&folder.join("libnvidia-ml.so.1"), text)
}

#[test]
fn top_shows_the_utilization_of_gpus_by_process() {
    let cuda = fake_cuda("top");
    let nvml = fake_nvml(cuda.parent().unwrap());
    let top = |arguments: &[&str]| {
        let mut command = tool(arguments);
        command.env("PLINTH_CUDA_LIBRARY", &cuda).env("PLINTH_NVML_LIBRARY", &nvml).env("FAKE_DEVICES", "1");
        let (status, stdout, stderr) = output(&mut command);
        assert_eq!((status, stderr.as_str()), (0, ""));
        stdout
    };
    let value: Value = serde_json::from_str(&top(&["top", "--once", "--json", "--device", "cuda"])).unwrap();
    let device = &value["devices"][0];
    assert_eq!((&device["simulated"], &device["utilization_percent"]), (&false.into(), &57.into()), "{value:#}");
    let [ours, foreign] = device["processes"].as_array().unwrap().as_slice() else { panic!("{value:#}") };
    assert_eq!((&ours["pid"], &ours["utilization_percent"]), (&std::process::id().into(), &42.into()), "{value:#}");
    assert!(ours["command"].is_array() && ours["user"].is_string(), "{value:#}");
    assert_eq!((&foreign["utilization_percent"], &foreign["command"]), (&0.into(), &Value::Null), "{value:#}");
    let printed = top(&["top", "--once", "--device", "cuda"]);
    contains(&printed, &["42 %  3.00 GiB", "(in another container)", "CUDA 12.8"]);
    assert!(!printed.contains("simulated"), "{printed}");
}

#[test]
fn doctor_explains_a_driver_that_does_not_start() {
    let library = fake_cuda("fake");
    let doctor = |code: &str, devices: &str, visible: &str| {
        let mut command = tool(&["doctor", "--device", "cuda", "--no-trial"]);
        command.env("PLINTH_CUDA_LIBRARY", &library).env("FAKE_CODE", code).env("FAKE_DEVICES", devices);
        let (status, stdout, _) = output(command.env("CUDA_VISIBLE_DEVICES", visible));
        (status, stdout)
    };
    let (status, printed) = doctor("802", "0", "0");
    assert_eq!(status, 1);
    contains(&printed, &["CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"]);
    for (code, devices) in [("100", "0"), ("0", "0")] {
        let (status, printed) = doctor(code, devices, "9");
        assert_eq!(status, 1);
        contains(&printed, &["CUDA_VISIBLE_DEVICES=\"9\" excludes all its devices"]);
    }
    let (_, printed) = doctor("0", "1", "0");
    contains(&printed, &["CUDA 12.8, with 1 device."]);
    assert!(!printed.contains("problem  driver"), "{printed}");
}

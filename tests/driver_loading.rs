//! Loading of libcuda, and the errors on machines on which it is missing, a stub, or too old.
//!
//! Each case runs in its own process, with a libcuda that the C compiler builds for it.

mod toolkit;

use plinth::internal::runtime;
use plinth_driver::{codes, table::CALLS};
use std::{
    ffi::OsStr,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const CHILD: &str = "PLINTH_TEST_CHILD";

/// Not a test itself: the entry point of the processes that the tests start. Prints the result of initialisation.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match runtime::ready() {
        Ok(runtime) => {
            println!("outcome 0 {} devices, version {:?}", runtime.devices().len(), runtime.driver.version())
        }
        Err(error) => println!("outcome {} {}", error.status().0, error.message()),
    }
}

/// Not a test itself. Prints the number of devices, and whether the count loaded the driver.
#[test]
fn counting_child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match runtime::device::count() {
        Ok(count) => println!("outcome {count} devices, loaded: {}", runtime::usable().is_some()),
        Err(error) => println!("outcome {} {}", error.status().0, error.message()),
    }
}

fn outcome(environment: &[(&str, &Path)]) -> String {
    outcome_of("child", environment.iter().map(|(name, value)| (*name, value.as_os_str())))
}

fn outcome_of<'a>(child: &str, environment: impl Iterator<Item = (&'a str, &'a OsStr)>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", child, "--nocapture"]).env(CHILD, "1").env_remove("PLINTH_DEVICE");
    command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("PLINTH_NVML_BASED_CUDA_CHECK");
    let output = command.envs(environment).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let start = text.find("outcome ").unwrap_or_else(|| panic!("no outcome in {text}"));
    text[start..].lines().next().unwrap().to_owned()
}

/// Builds a libcuda whose calls do nothing and succeed. `special` replaces some of their definitions.
fn build(name: &str, omit: &[&str], special: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("fake.c"), folder.join("libcuda.so.1"));
    let mut text = String::from("#include <stddef.h>\n#include <string.h>\n");
    for call in CALLS.iter().filter(|call| !omit.contains(&call.symbol)) {
        match special.iter().find(|(symbol, _)| *symbol == call.symbol) {
            Some((_, definition)) => writeln!(text, "{definition}").unwrap(),
            None => writeln!(text, "unsigned {}(void) {{ return 0; }}", call.symbol).unwrap(),
        }
    }
    for (_, definition) in special.iter().filter(|(symbol, _)| CALLS.iter().all(|call| call.symbol != *symbol)) {
        writeln!(text, "{definition}").unwrap();
    }
    fs::write(&source, text).unwrap();
    compile(&source, &library);
    library
}

fn compile(source: &Path, library: &Path) {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    let status = compiler.to_command().args(["-w", "-shared", "-fPIC", "-o"]).args([library, source]).status();
    assert!(status.unwrap().success());
}

const COUNT: (&str, &str) = ("cuDeviceGetCount", "unsigned cuDeviceGetCount(int *n) { *n = 3; return 0; }");
const VERSION: (&str, &str) = ("cuDriverGetVersion", "unsigned cuDriverGetVersion(int *v) { *v = 12345; return 0; }");

#[test]
fn the_error_without_a_driver_mentions_the_host_device() {
    let nothing = Path::new("/nonexistent/libcuda.so.1");
    let text = outcome(&[("PLINTH_CUDA_LIBRARY", nothing)]);
    assert!(text.starts_with("outcome 7 "), "{text}");
    assert!(text.contains("PLINTH_DEVICE=host") && text.contains("/nonexistent/libcuda.so.1"), "{text}");
}

#[test]
fn a_complete_driver_is_found_on_the_library_path() {
    let library = build("whole", &[], &[COUNT, VERSION]);
    let text = outcome(&[("LD_LIBRARY_PATH", library.parent().unwrap())]);
    assert_eq!(text, "outcome 0 3 devices, version Ok(12345)");
}

#[test]
fn a_missing_required_call_is_named() {
    let library = build("old", &["cuLaunchHostFunc"], &[COUNT]);
    let text = outcome(&[("PLINTH_CUDA_LIBRARY", &library)]);
    assert!(text.starts_with("outcome 8 the CUDA driver has no cuLaunchHostFunc, which came with CUDA 10.0"), "{text}");
}

#[test]
fn missing_optional_calls_are_accepted() {
    let optional: Vec<&str> = CALLS.iter().filter(|call| !call.required).map(|call| call.symbol).collect();
    assert!(optional.len() > 10);
    let library = build("optional", &optional, &[COUNT, VERSION]);
    assert!(outcome(&[("PLINTH_CUDA_LIBRARY", &library)]).starts_with("outcome 0 3 devices"));
}

#[test]
fn the_toolkits_stub_is_recognised() {
    let library = build("stub", &[], &[("cuInit", "unsigned cuInit(unsigned f) { return 34; }")]);
    let text = outcome(&[("PLINTH_CUDA_LIBRARY", &library)]);
    assert!(text.starts_with("outcome 9 ") && text.contains("stubs folder"), "{text}");
}

#[test]
fn a_driver_without_devices_is_no_device() {
    let none = ("cuInit", "unsigned cuInit(unsigned f) { return 100; }");
    let zero = ("cuDeviceGetCount", "unsigned cuDeviceGetCount(int *n) { *n = 0; return 0; }");
    for (name, special) in [("nodevice", none), ("zero", zero)] {
        let text = outcome(&[("PLINTH_CUDA_LIBRARY", &build(name, &[], &[special]))]);
        assert!(text.starts_with("outcome 7 ") && text.contains("PLINTH_DEVICE=host"), "{text}");
    }
}

#[test]
fn a_failure_with_an_unknown_code_is_a_driver_error() {
    let library = build("strange", &[], &[("cuInit", "unsigned cuInit(unsigned f) { return 77777; }")]);
    let text = outcome(&[("PLINTH_CUDA_LIBRARY", &library)]);
    assert_eq!(text, "outcome 25 the CUDA driver did not start: cuInit failed with CUDA error 77777");
}

/// `cuGetProcAddress` is called with base name and version, and its result takes precedence over the exported symbol.
#[test]
fn calls_are_resolved_through_the_driver() {
    let resolver = "
        static unsigned answer(int *v) { *v = 424; return 0; }
        unsigned cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long long flags, int *status) {
          *out = NULL;
          if (strcmp(name, \"cuDriverGetVersion\") == 0 && version == 2020 && flags == 0) *out = (void *)answer;
          if (strstr(name, \"_v2\")) __builtin_trap();
          return *out ? 0 : 500;
        }";
    let library = build("resolver", &[], &[COUNT, VERSION, ("cuGetProcAddress_v2", resolver)]);
    assert_eq!(outcome(&[("PLINTH_CUDA_LIBRARY", &library)]), "outcome 0 3 devices, version Ok(424)");
}

#[test]
fn an_invalid_kind_of_device_is_named() {
    let text = outcome(&[("PLINTH_DEVICE", Path::new("gpu"))]);
    assert_eq!(text, "outcome 10 PLINTH_DEVICE is \"gpu\"; it can be cuda, host or auto");
}

/// Builds an NVML with three GPUs. The last one is divided into MIG instances if `mig` is set.
fn build_nvml(name: &str, mig: bool) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("nvml.c"), folder.join("libnvidia-ml.so.1"));
    let text = format!(
        "#include <stdio.h>\n\
         unsigned nvmlInit_v2(void) {{ return 0; }}\n\
         unsigned nvmlShutdown(void) {{ return 0; }}\n\
         unsigned nvmlDeviceGetCount_v2(unsigned *n) {{ *n = 3; return 0; }}\n\
         unsigned nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {{ *d = (void *)(i + 1ul); return 0; }}\n\
         unsigned nvmlDeviceGetUUID(void *d, char *t, unsigned n) {{ \
         snprintf(t, n, \"GPU-%lu0000000-0000\", (unsigned long)d); return 0; }}\n\
         unsigned nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *next) {{ \
         *now = *next = {} && (unsigned long)d == 3; return 0; }}\n",
        u32::from(mig)
    );
    fs::write(&source, text).unwrap();
    compile(&source, &library);
    library
}

/// The driver cannot be initialized here, so a number is NVML's, and an error is the driver's.
#[test]
fn nvml_counts_the_devices_and_the_driver_is_not_initialized() {
    let driver = build("counted", &[], &[("cuInit", "unsigned cuInit(unsigned f) { return 77777; }"), VERSION]);
    let (nvml, mig) = (build_nvml("nvml", false), build_nvml("nvml_mig", true));
    let count = |nvml: &Path, more: &[(&str, &str)]| {
        let libraries = [("PLINTH_CUDA_LIBRARY", driver.as_os_str()), ("PLINTH_NVML_LIBRARY", nvml.as_os_str())];
        outcome_of(
            "counting_child",
            libraries.into_iter().chain(more.iter().map(|(name, value)| (*name, OsStr::new(*value)))),
        )
    };
    let visible = |list: &str| count(&nvml, &[("CUDA_VISIBLE_DEVICES", list)]);
    let nvmls = |number: usize| format!("outcome {number} devices, loaded: false");
    assert_eq!(count(&nvml, &[]), nvmls(3));
    assert_eq!(visible("2,0"), nvmls(2));
    assert_eq!(visible("GPU-2,1"), nvmls(0));
    assert_eq!(visible("GPU-2,0,9,1"), nvmls(2));
    assert_eq!(visible(""), nvmls(0));
    assert_eq!(count(&nvml, &[("PYTORCH_NVML_BASED_CUDA_CHECK", "1")]), nvmls(3));
    assert_eq!(
        count(&nvml, &[("PLINTH_NVML_BASED_CUDA_CHECK", "1"), ("PYTORCH_NVML_BASED_CUDA_CHECK", "0")]),
        nvmls(3)
    );
    let drivers = "outcome 25 the CUDA driver did not start: cuInit failed with CUDA error 77777";
    assert_eq!(count(&mig, &[]), drivers);
    assert_eq!(visible("MIG-1"), drivers);
    assert_eq!(count(Path::new("/nonexistent/libnvidia-ml.so.1"), &[]), drivers);
    assert_eq!(count(&nvml, &[("PLINTH_NVML_BASED_CUDA_CHECK", "0")]), drivers);
    assert_eq!(count(&nvml, &[("PYTORCH_NVML_BASED_CUDA_CHECK", "0")]), drivers);
}

/// GPUs that CUDA cannot use are no devices, whatever NVML reports.
#[test]
fn without_a_usable_driver_nvml_is_not_asked() {
    let nvml = build_nvml("nvml_only", false);
    let none = [("PLINTH_CUDA_LIBRARY", OsStr::new("/nonexistent")), ("PLINTH_NVML_LIBRARY", nvml.as_os_str())];
    assert_eq!(outcome_of("counting_child", none.into_iter()), "outcome 0 devices, loaded: false");
    let stub = ["cuInit", "cuDriverGetVersion"].map(|call| (call, format!("unsigned {call}(void) {{ return 34; }}")));
    let stub = build("stub_counted", &[], &stub.each_ref().map(|(call, text)| (*call, text.as_str())));
    let both = [("PLINTH_CUDA_LIBRARY", stub.as_os_str()), ("PLINTH_NVML_LIBRARY", nvml.as_os_str())];
    assert!(outcome_of("counting_child", both.into_iter()).starts_with("outcome 9 "));
}

/// plinth names every error of the toolkit's cuda.h, with its number.
#[test]
fn every_error_code_of_cuda_has_its_name() {
    let header = fs::read_to_string(toolkit::file("include/cuda.h")).unwrap();
    let enumeration =
        header.split_once("typedef enum cudaError_enum {").unwrap().1.split_once("} CUresult;").unwrap().0;
    let mut codes_of_header = 0;
    for line in enumeration.lines() {
        let Some((name, number)) = line.split_once('=') else { continue };
        let (name, number) = (name.trim(), number.split(['/', ',']).next().unwrap().trim());
        let named = codes::lookup(number.parse().unwrap()).map(|(known, _)| known.trim_end_matches('\0'));
        assert_eq!(named, Some(name), "error {number} of cuda.h");
        codes_of_header += 1;
    }
    assert!(codes_of_header >= 100, "{codes_of_header} codes were found in cuda.h");
}

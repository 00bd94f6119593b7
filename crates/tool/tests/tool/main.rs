//! The command-line tool, run as its users run it, on the host device.

mod gpu;

use plinth::internal::{
    memory::{
        self, history,
        snapshot::{self, Snapshot},
    },
    runtime::{self, DeviceKind},
};
use plinth_driver::Stream;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Returns a command that runs the tool on the host device, without variables of plinth or NVIDIA from the environment.
fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plinth"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["PLINTH_", "NCCL_", "CUDA_VISIBLE", "CLICOLOR", "NO_COLOR"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.args(arguments).env("PLINTH_DEVICE", "host");
    command
}

fn output(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Returns what the tool prints; it must succeed and print nothing on standard error.
fn text(arguments: &[&str]) -> String {
    let (status, stdout, stderr) = output(&mut tool(arguments));
    assert_eq!((status, stderr.as_str()), (0, ""), "{arguments:?}: {stdout}");
    // Standard output is not a terminal here, so there are no colours.
    assert!(!stdout.contains('\x1b'), "{stdout}");
    stdout
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tool-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn contains(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{word} is not in:\n{text}");
    }
}

#[test]
fn info_shows_devices_libraries_and_settings() {
    let printed = text(&["info"]);
    let heads = ["Devices", "Peer access", "Libraries", "Host device", "Settings"];
    contains(&printed, &heads);
    contains(
        &printed,
        &[
            "The host device: GPUs simulated on this CPU; no GPU is used",
            "NVIDIA H200",
            "4.00 GiB",
            "132",
            "9.0",
            "libcuda",
            "NVRTC",
            "NCCL",
        ],
    );
    contains(&printed, &["PLINTH_DEVICE", "the kind of device"]);
}

#[test]
fn info_is_short_unless_asked() {
    let missing = |arguments: &[&str]| {
        let mut command = tool(arguments);
        let (status, stdout, _) = output(command.env("PLINTH_CUBLAS_LIBRARY", "/nowhere/libcublas.so"));
        assert_eq!(status, 0);
        stdout
    };
    let (short, long) = (missing(&["info"]), missing(&["info", "--long"]));
    assert!(short.lines().any(|line| line == "cuBLAS    not found  its handles"), "{short}");
    let libraries = |text: &str| text.split("Libraries\n").nth(1).unwrap().split("\n\n").next().unwrap().to_owned();
    assert!(libraries(&short).lines().all(|line| line.len() <= 100), "{short}");
    assert!(!libraries(&short).contains("/nowhere/") && libraries(&short).lines().count() == 10, "{short}");
    assert!(!short.contains("-f55f-"), "{short}");
    contains(&long, &["/nowhere/libcublas.so: cannot open", "UUID"]);
}

#[test]
fn info_prints_json() {
    let value = json(&["info", "--json"]);
    assert_eq!(value["driver"]["kind"], "host");
    assert_eq!(value["devices"].as_array().unwrap().len(), 2);
    let device = &value["devices"][1];
    assert_eq!(device["memory"], 4_u64 << 30);
    assert_eq!(device["capability"], serde_json::json!([9, 0]));
    assert_eq!(device["peers"], serde_json::json!([true, null]));
    assert_eq!(device["uuid"].as_str().unwrap().len(), 36);
    let names: Vec<_> =
        value["libraries"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["libcuda", "NVML", "NCCL", "NVRTC", "cuBLAS", "cuSOLVER", "cuFFT", "cudart"]);
    for library in value["libraries"].as_array().unwrap() {
        assert!(library["found"] == (library["version"].is_string()), "{library}");
        assert!(library["found"] != (library["reason"].is_string()), "{library}");
    }
    assert_eq!(value["settings"]["PLINTH_DEVICE"], "host");
    assert_eq!(value["host_device"]["model"], "h200");
}

#[test]
fn info_shows_invalid_settings() {
    let mut command = tool(&["info"]);
    command.env("PLINTH_HOST_DEVICES", "none").env("PLINTH_OTHER", "1");
    let (status, stdout, _) = output(&mut command);
    assert_eq!(status, 0);
    contains(&stdout, &["No device: PLINTH_HOST_DEVICES is \"none\"", "Invalid configuration", "unknown to plinth"]);
}

#[test]
fn a_missing_library_is_reported_with_the_reason() {
    let mut command = tool(&["info", "--json"]);
    command.env("PLINTH_NCCL_LIBRARY", "/nowhere/libnccl.so").env("PLINTH_CUDA_LIBRARY", "/nowhere/libcuda.so");
    command.env("PLINTH_NVML_LIBRARY", "/nowhere/libnvidia-ml.so");
    command.env("PLINTH_CUBLAS_LIBRARY", "/nowhere/libcublas.so");
    let (_, stdout, _) = output(&mut command);
    let value: Value = serde_json::from_str(&stdout).unwrap();
    for library in [0, 1, 2, 4] {
        let library = &value["libraries"][library];
        assert_eq!(library["found"], false);
        contains(library["reason"].as_str().unwrap(), &["/nowhere/"]);
    }
}

#[test]
fn top_shows_readings() {
    contains(
        &text(&["top", "--once"]),
        &["Host device", "busy", "NVIDIA H200", "4.00 GiB", "process", "plinth top --once"],
    );
    // Memory of several processes is not that of this one.
    let (_, printed, _) = output(tool(&["top"]).env("PLINTH_HOST_MEMORY_NAME", "tool-test"));
    contains(&printed, &["of all processes with PLINTH_HOST_MEMORY_NAME=tool-test"]);
    let process = printed.lines().find(|line| line.ends_with("plinth top")).unwrap();
    assert_eq!(process.split_whitespace().nth(5), Some("0"), "{printed}");
    // Without a terminal it ends after one reading.
    contains(&text(&["top"]), &["busy"]);
    let value = json(&["top", "--once", "--json"]);
    let device = &value["devices"][0];
    assert_eq!(device["memory_total"], 4_u64 << 30);
    assert!(device["memory_used"].is_u64() && device["time_us"].as_u64().unwrap() > 0);
    let process = &device["processes"][0];
    assert_eq!((&device["simulated"], &process["name"]), (&true.into(), &"plinth".into()));
    assert_eq!(process["command"].as_array().unwrap()[1..], ["top", "--once", "--json"]);
    assert!(process["cpu_percent"].is_number() && process["utilization_percent"].is_number(), "{process}");
    assert!(process["user"].is_string() && process["machine_memory"].as_u64().unwrap() > 1 << 16, "{process}");
    let (status, _, stderr) = output(&mut tool(&["top", "--interval", "0"]));
    assert_eq!(status, 2);
    contains(&stderr, &["plinth: --interval 0 is invalid"]);
    let (status, _, stderr) = output(&mut tool(&["top", "--once", "--interval", "1e19"]));
    assert_eq!(status, 2);
    contains(&stderr, &["a day"]);
}

#[test]
fn top_repeats_at_its_interval() {
    let mut child = tool(&["top", "--json", "--interval", "0.05"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let times = lines.take(3).map(|line| {
        let value: Value = serde_json::from_str(&line.unwrap()).unwrap();
        value["devices"][0]["time_us"].as_u64().unwrap()
    });
    let times: Vec<u64> = times.collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(times[0] + 50_000 <= times[1] && times[1] + 50_000 <= times[2], "{times:?}");
}

#[test]
fn doctor_finds_no_problem_on_the_host_device() {
    let printed = text(&["doctor"]);
    contains(&printed, &["the host device, on the CPU, was chosen", "Memory of device 1 was allocated and freed"]);
    let value = json(&["doctor", "--json"]);
    assert_eq!(value["works"], true);
    let trials =
        |value: &Value| value["findings"].as_array().unwrap().iter().filter(|one| one["about"] == "trial").count();
    assert_eq!(trials(&value), 2);
    assert_eq!(trials(&json(&["doctor", "--json", "--no-trial"])), 0);
    contains(&printed, &["Programs use the host device: 2 devices like NVIDIA H200"]);
    // Only GPUs need NCCL, and locked memory for it.
    assert!(!printed.contains("NCCL") && !printed.contains("memlock"), "{printed}");
    let (_, printed, _) = output(tool(&["doctor"]).env("PLINTH_CXX", "/nowhere/c++"));
    contains(&printed, &["note     host device Install a C++ compiler (Debian: g++), or set PLINTH_CXX to one."]);
}

#[test]
fn doctor_reports_problems() {
    let mut command = tool(&["doctor", "--device", "cuda"]);
    let (status, stdout, _) = output(command.env("PLINTH_CUDA_LIBRARY", "/nowhere/libcuda.so.1"));
    assert_eq!(status, 1);
    contains(&stdout, &["problem", "/nowhere/libcuda.so.1", "Unset PLINTH_CUDA_LIBRARY", "plinth does not work"]);
    // What to do comes first, and that programs run without a GPU comes last.
    assert!(stdout.starts_with("problem  driver      Unset PLINTH_CUDA_LIBRARY"), "{stdout}");
    assert!(stdout.ends_with("set PLINTH_DEVICE=host to use the host device, on the CPU.\n"), "{stdout}");
    // With auto the same is not a problem, because a program falls back to the host device.
    let mut command = tool(&["doctor", "--device", "auto", "--json"]);
    let (status, stdout, _) = output(command.env("PLINTH_CUDA_LIBRARY", "/nowhere/libcuda.so.1"));
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &value["works"]), (0, &Value::Bool(true)));
}

#[test]
fn doctor_checks_the_settings() {
    let (status, stdout, _) = output(tool(&["doctor"]).env("PLINTH_ALLOC_CONF", "nonsense:1"));
    assert_eq!(status, 1);
    contains(&stdout, &["nonsense", "Correct the variable"]);
    for name in [
        "PLINTH_COMMUNICATOR_ENGINE",
        "PLINTH_COMMUNICATOR_NCCL_FROM",
        "PLINTH_COMM_CONF",
        "PLINTH_FAULT_INJECTION",
        "PLINTH_GROUP_TUNING",
        "PLINTH_IPC",
        "PLINTH_KERNEL_CACHE_MAX_BYTES",
        "PLINTH_MEMORY_DEBUG",
        "PLINTH_NVML_BASED_CUDA_CHECK",
        "PLINTH_SANITIZER",
        "PLINTH_USE_KERNEL_CACHE",
    ] {
        let (status, stdout, _) = output(tool(&["doctor", "--no-trial"]).env(name, "nonsense"));
        assert_eq!(status, 1, "{name}");
        contains(&stdout, &["problem  settings", name]);
    }
    let (status, stdout, _) = output(tool(&["doctor"]).env("PLINTH_DEVISE", "cuda"));
    assert_eq!(status, 0);
    contains(&stdout, &["PLINTH_DEVISE is not a variable of plinth", "Did you mean PLINTH_DEVICE?"]);
}

/// Writes a trace: blocks of 1 MiB on two streams, at most `most` of them live at once.
fn trace(path: &Path, blocks: u32, most: u32) {
    let mut bytes = Vec::new();
    let mut event = |id: u32, operation: u16, stream: u16| {
        bytes.extend(id.to_le_bytes());
        bytes.extend(operation.to_le_bytes());
        bytes.extend(stream.to_le_bytes());
        bytes.extend((1_u64 << 20).to_le_bytes());
    };
    for id in 0..blocks {
        if id >= most {
            event(id - most, 1, 0);
        }
        event(id, 0, (id % 2) as u16);
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_trace_is_replayed() {
    let path = folder("replay").join("trace");
    trace(&path, 1000, 64);
    let path = path.to_str().unwrap();
    let value = json(&["replay", path, "--rounds", "3", "--json"]);
    assert_eq!(value["events"], 1936);
    assert_eq!((&value["streams"], &value["peak_live"]), (&2.into(), &(64_u64 << 20).into()));
    assert!(value["first"]["peak_held"].as_u64().unwrap() >= 64 << 20);
    assert!(value["first"]["nanoseconds"].as_u64() > value["worst"]["nanoseconds"].as_u64());
    assert_eq!(value["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(value["out_of_memory"], Value::Null);
    let printed = text(&["replay", path, "--rounds", "3", "--on", "1"]);
    contains(
        &printed,
        &[
            "1936 events on 2 streams, on the host device, as NVIDIA H200",
            "median of 3 more",
            "64.00 MiB",
            "The longest operation",
        ],
    );
}

#[test]
fn a_compressed_trace_is_replayed() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/traces/resnet_train.trace.xz");
    let (status, stdout, _) =
        output(tool(&["replay", path, "--rounds", "1", "--json"]).env("PLINTH_HOST_MEMORY", "16GiB"));
    let value: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((status, &value["events"]), (0, &19936.into()));
    // A file that ends early is not replayed in part.
    let part = folder("xz").join("part.xz");
    let whole = fs::read(path).unwrap();
    fs::write(&part, &whole[..whole.len() / 2]).unwrap();
    let (status, _, stderr) = output(&mut tool(&["replay", part.to_str().unwrap()]));
    assert_eq!(status, 2);
    contains(&stderr, &["part.xz: decompressing it failed"]);
}

#[test]
fn a_replay_reports_where_memory_ran_out() {
    let path = folder("limit").join("trace");
    trace(&path, 200, 100);
    let path = path.to_str().unwrap();
    let (status, stdout, _) = output(&mut tool(&["replay", path, "--limit", "0.5"]));
    assert_eq!(status, 1);
    contains(&stdout, &["Out of memory", "requests 1.00 MiB while", "are live"]);
    assert!(stdout.ends_with(".\n") && !stdout.contains(".."), "{stdout}");
    let (status, stdout, _) = output(&mut tool(&["replay", path, "--limit", "0.5", "--json"]));
    let value: Value = serde_json::from_str(&stdout).unwrap();
    let out = &value["out_of_memory"];
    assert_eq!(status, 1);
    assert_eq!(out["live"].as_u64().unwrap(), out["event"].as_u64().unwrap() << 20);
    assert!((40..=50).contains(&out["event"].as_u64().unwrap()), "{out}");
}

#[test]
fn other_programs_are_forecast() {
    let path = folder("what_if").join("trace");
    trace(&path, 1000, 64);
    let path = path.to_str().unwrap();
    let scenarios = [
        "scale=2",
        "limit=least",
        "limit=80MiB memory=4GiB",
        "scale=3@2MiB pools=streams",
        "settings=expandable_segments:False pools=@transient",
    ];
    let mut arguments = vec!["replay", path, "--rounds", "2", "--json"];
    arguments.extend(scenarios.iter().flat_map(|scenario| ["--what-if", scenario]));
    let value = json(&arguments);
    let forecasts = value.as_array().unwrap();
    let live: Vec<u64> = forecasts.iter().map(|one| one["peak_live"].as_u64().unwrap() >> 20).collect();
    assert_eq!(live, [64, 128, 64, 64, 64, 64]);
    for (forecast, scenario) in forecasts.iter().zip([""].iter().chain(&scenarios)) {
        let (first, live) = (forecast["peak_held_first"].as_u64().unwrap(), forecast["peak_live"].as_u64().unwrap());
        assert_eq!((&forecast["scenario"], &forecast["runs"]), (&Value::from(*scenario), &true.into()));
        assert!(first >= live && first <= live * 2, "{forecast}");
    }
    let least = forecasts[2]["least_limit"].as_u64().unwrap();
    assert!((64 << 20..=70 << 20).contains(&least), "{least}");
    assert_eq!(forecasts[3]["limit"], 80 << 20);
    // What the forecast says is what the replay does.
    let replayed = json(&["replay", path, "--rounds", "2", "--json"]);
    assert_eq!(forecasts[0]["peak_held_first"], replayed["first"]["peak_held"]);
    let (status, stdout, _) = output(&mut tool(&["replay", path, "--what-if", "limit=40MiB"]));
    assert_eq!(status, 1);
    contains(&stdout, &["as recorded", "it runs", "limit=40MiB", "out of memory at event"]);
    for (wrong, words) in [
        ("scale=x", "\"x\" is not a positive number"),
        ("limit=9TiB memory=1GiB", "more than the device has"),
        ("settings=nonsense:1", "nonsense"),
        ("speed=2", "is not one of scale=FACTOR"),
    ] {
        let (status, _, stderr) = output(&mut tool(&["replay", path, "--what-if", wrong]));
        assert_eq!(status, 2, "{wrong}: {stderr}");
        contains(&stderr, &["plinth: ", words]);
    }
    // One block of no bytes, and one of more than any device has.
    fs::write(path, [0; 16]).unwrap();
    assert_eq!(json(&["replay", path, "--what-if", "limit=least", "--json"])[1]["least_limit"], 1);
    fs::write(path, [&[0; 14][..], &[0, 1]].concat()).unwrap();
    contains(&output(&mut tool(&["replay", path, "--what-if", "scale=2"])).1, &["out of memory at event 0"]);
}

#[test]
fn invalid_traces_are_refused() {
    let folder = folder("refused");
    for (name, bytes, words) in [
        ("short", &b"sixteen bytes and more"[..], "22 bytes are not a multiple of 16"),
        ("gz", b"\x1f\x8brest", "is compressed by gzip"),
        ("xz", b"\xfd7zXZ\0rest", "decompressing it failed"),
        ("free", &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "event 0: block 0 is freed, but is not allocated"),
    ] {
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        let (status, stdout, stderr) = output(&mut tool(&["replay", path.to_str().unwrap()]));
        assert_eq!((status, stdout.as_str()), (2, ""));
        contains(&stderr, &["plinth: ", path.to_str().unwrap(), words]);
    }
    let (status, _, stderr) = output(&mut tool(&["replay", "/nowhere/trace"]));
    assert_eq!(status, 2);
    contains(&stderr, &["/nowhere/trace: No such file"]);
    let path = folder.join("good");
    trace(&path, 10, 5);
    let (status, _, stderr) = output(&mut tool(&["replay", path.to_str().unwrap(), "--on", "7"]));
    assert_eq!(status, 2);
    contains(&stderr, &["there is no device 7; this process sees devices 0 to 1"]);
}

/// Takes a snapshot of this process after one allocation ran out of memory.
fn take_snapshot() -> Snapshot {
    runtime::choose_kind(DeviceKind::Host).unwrap();
    memory::recorder::record_history(history::Options {
        enabled: history::Enabled::All,
        context: history::Context::All,
        max_entries: 10_000,
        annotations: true,
        ..history::Options::default()
    })
    .unwrap();
    history::annotate("a step", true);
    let kept: Vec<u64> = (0..3).map(|_| memory::caching_alloc(20 << 20, 0, Stream::DEFAULT).unwrap()).collect();
    for (address, name) in [(kept[0], "freed block"), (kept[1], "live block")] {
        memory::set_memory_name(address, name).unwrap();
    }
    memory::caching_free(kept[0]).unwrap();
    memory::caching_alloc(1 << 45, 0, Stream::DEFAULT).unwrap_err();
    let mut taken = snapshot::take(true).unwrap();
    // The library leaves out the names of default streams; the reader does not.
    taken.stream_names.insert(0, "named stream".into());
    memory::caching_free(kept[1]).unwrap();
    memory::caching_free(kept[2]).unwrap();
    taken
}

#[test]
fn a_snapshot_is_viewed() {
    let folder = folder("view");
    let (path, page) = (folder.join("memory.json"), folder.join("memory.html"));
    let taken = take_snapshot();
    snapshot::file::replace(&path, |out| snapshot::json::write(&taken, out)).unwrap();
    let (path, page) = (path.to_str().unwrap(), page.to_str().unwrap());
    let written = fs::read_to_string(path).unwrap();
    contains(&written, &["\"name\":\"live block\"", "\"name\":\"freed block\""]);
    let value = json(&["view", path, "--json"]);
    let device = &value["devices"][0];
    assert_eq!(device["active"], 40_u64 << 20);
    assert!(device["segments"].as_u64().unwrap() >= 1 && device["blocks"].as_u64().unwrap() >= 2);
    assert_eq!(
        device["bytes"].as_u64().unwrap(),
        device["active"].as_u64().unwrap() + device["free"].as_u64().unwrap()
    );
    assert_eq!(value["pools"][0]["stream_name"], "named stream");
    assert_eq!(value["stacks"][0]["bytes"], 40_u64 << 20);
    assert_eq!(value["peaks"][0]["live"], 60_u64 << 20);
    let out = &value["out_of_memory"][0];
    assert_eq!((&out["request"], &out["live"]), (&(1_u64 << 45).into(), &(40_u64 << 20).into()));
    let printed = text(&["view", path, "--html", page, "--frames", "60"]);
    contains(
        &printed,
        &[
            "Devices",
            "Pools and streams",
            "\"named stream\" 0x0",
            "Allocated bytes by stack",
            "40.00 MiB",
            "Peak",
            "60.00 MiB",
            "Out of memory",
            "32.00 TiB",
        ],
    );
    contains(&printed, &["take_snapshot", &format!("The page is {page}.")]);
    // The file preserves everything: the page equals the library's own, byte for byte.
    let mut expected = Vec::new();
    snapshot::page::write(&taken, &mut expected).unwrap();
    assert!(fs::read(page).unwrap() == expected, "the pages differ");
}

#[test]
fn a_snapshot_is_opened_in_a_browser() {
    let folder = folder("open");
    let (path, page, log) = (folder.join("memory.json"), folder.join("memory.html"), folder.join("log"));
    snapshot::file::replace(&path, |out| snapshot::json::write(&Snapshot::default(), out)).unwrap();
    // A browser that only writes down what it is to open.
    let browser = folder.join("xdg-open");
    fs::write(&browser, format!("#!/bin/sh\necho \"$@\" >{}\n", log.display())).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = tool(&["view", path.to_str().unwrap(), "--open"]);
    command.env("DISPLAY", ":0").env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
    let (status, stdout, stderr) = output(&mut command);
    assert_eq!((status, stderr.as_str()), (0, ""));
    contains(&stdout, &[&format!("The page is {}.", page.display())]);
    contains(&fs::read_to_string(&page).unwrap(), &["<html"]);
    let mut opened = String::new();
    for _ in 0..500 {
        opened = fs::read_to_string(&log).unwrap_or_default();
        if opened.ends_with('\n') {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(opened.trim_end(), page.to_str().unwrap());
    // Without a browser or a display the page is named.
    for (display, reason) in [(":0", "opening a browser: "), ("", "there is no display")] {
        let mut command = tool(&["view", path.to_str().unwrap(), "--open"]);
        for name in ["WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME"] {
            command.env_remove(name);
        }
        let (status, _, stderr) = output(command.env("DISPLAY", display).env("PATH", folder.join("empty")));
        assert_eq!(status, 3);
        contains(&stderr, &[reason, page.to_str().unwrap()]);
    }
}

#[test]
fn completions_and_manual_pages_are_written() {
    for (shell, words) in [("bash", "complete -F"), ("zsh", "#compdef plinth"), ("fish", "complete -c plinth")] {
        contains(&text(&["completions", shell]), &[words, "doctor", "interval"]);
    }
    let folder = folder("man");
    text(&["man-pages", folder.to_str().unwrap()]);
    for (page, words) in [("plinth.1", "Exit status"), ("plinth-top.1", "halve it"), ("plinth-view.1", "html")] {
        contains(&fs::read_to_string(folder.join(page)).unwrap(), &[".TH plinth", words]);
    }
    let (status, _, stderr) = output(&mut tool(&["man-pages", "/nowhere"]));
    assert_eq!(status, 2);
    contains(&stderr, &["/nowhere: No such file"]);
}

#[test]
fn invalid_snapshots_are_refused() {
    let folder = folder("no-snapshot");
    for (bytes, words) in [
        (&b"\x80\x04rest"[..], "it is a pickle"),
        (b"<!doctype html>", "it is an HTML page"),
        (b"{\"segments\": []}", "it is not a snapshot written by plinth: missing field"),
        (
            br#"{"stacks": [[]], "plinth": {"version": "0", "time_us": 0}, "segments": [{"device": 0, "address": 4096,
                "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": true, "blocks": [{
                "address": 4096, "size": 18446744073709551615, "requested_size": 1, "state": "active_allocated",
                "frames": 0}]}]}"#,
            "its sizes are impossible",
        ),
        (b"hello", "it is not JSON"),
        (b"", "it is not JSON"),
    ] {
        let path = folder.join("file");
        fs::write(&path, bytes).unwrap();
        let (status, stdout, stderr) = output(&mut tool(&["view", path.to_str().unwrap()]));
        assert_eq!((status, stdout.as_str()), (2, ""));
        contains(&stderr, &[words]);
    }
}

#[test]
fn snapshots_of_others_neither_control_the_terminal_nor_wait() {
    let folder = folder("hostile");
    let (path, pipe) = (folder.join("memory.json"), folder.join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let contents = r#"{"stacks": [[], [{"name": "f", "filename": "PIPE", "line": 2}]], "segments": [{"device": 0,
        "address": 4096, "stream": 0, "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": true,
        "blocks": [{"address": 4096, "size": 512, "requested_size": 1, "state": "active_allocated", "frames": 1}]}],
        "plinth": {"version": "0\u001b[2J", "time_us": 0, "stream_names": [{"stream": 0, "name": "a\u001b\nb"}]}}"#;
    let contents = contents.replace("PIPE", pipe.to_str().unwrap());
    fs::write(&path, &contents).unwrap();
    contains(&text(&["view", path.to_str().unwrap()]), &["plinth 0 [2J,", "\"a  b\" 0x0", "f (pipe:2)\n"]);
    fs::write(&path, contents.replace("large", r"\u001b[2J")).unwrap();
    let (status, _, stderr) = output(&mut tool(&["view", path.to_str().unwrap()]));
    assert!(status == 2 && stderr.contains("unknown variant ` [2J`"), "{stderr}");
}

#[test]
fn arguments_are_explained() {
    contains(&text(&["--help"]), &["info", "top", "doctor", "replay", "view", "Exit status:"]);
    contains(&text(&["--version"]), &[env!("CARGO_PKG_VERSION")]);
    let (status, _, stderr) = output(&mut tool(&["inof"]));
    assert_eq!(status, 2);
    contains(&stderr, &["unrecognized subcommand 'inof'"]);
    let (status, _, stderr) = output(tool(&["top"]).env("PLINTH_DEVICE", "gpu"));
    assert_eq!(status, 2);
    contains(&stderr, &["PLINTH_DEVICE is \"gpu\""]);
}

#[test]
fn failed_output_is_reported() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (status, _, stderr) = output(tool(&["info"]).stdout(full));
    assert_eq!(status, 3);
    contains(&stderr, &["plinth: writing the output: No space left"]);
    // A reader that closes the pipe, as `head` does, is not a failure.
    let mut child = tool(&["info"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &[][..]));
}

#[test]
fn colours_are_used_only_on_request() {
    let (_, coloured, _) = output(tool(&["info"]).env("CLICOLOR_FORCE", "1"));
    assert!(coloured.contains("\x1b["), "{coloured}");
}

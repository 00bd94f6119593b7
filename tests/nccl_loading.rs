//! Loading of NCCL, and the errors if it is missing or too old.
//!
//! Each case runs in its own process, with a libnccl that the C compiler builds for it.

use plinth_driver::{
    nccl::{load, table::CALLS},
    status::Status,
};
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const CHILD: &str = "PLINTH_TEST_CHILD";

/// Not a test itself: the entry point of the processes that the tests start. Prints the result of loading.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    match load::load() {
        Ok(nccl) => {
            println!("outcome found NCCL {}, on the host device: {}", nccl.version(), nccl.works_on_host_device())
        }
        Err(error) if error.status() == Status::NCCL_UNAVAILABLE => println!("outcome none {}", error.message()),
        Err(error) => println!("outcome wrong {error:?}"),
    }
}

fn outcome(environment: &[(&str, &Path)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(CHILD, "1");
    for variable in ["PLINTH_NCCL_LIBRARY", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"] {
        command.env_remove(variable);
    }
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let start = text.find("outcome ").unwrap_or_else(|| panic!("no outcome in {text}"));
    text[start..].lines().next().unwrap().to_owned()
}

/// Builds a libnccl in a folder, whose calls do nothing and succeed.
fn build(folder: &str, omit: &[&str], more: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).unwrap();
    let (source, library) = (folder.join("fake.c"), folder.join("libnccl.so.2"));
    let mut text = String::from("int ncclGetVersion(int *version) { *version = 22803; return 0; }\n");
    for call in CALLS.iter().filter(|call| call.symbol != "ncclGetVersion" && !omit.contains(&call.symbol)) {
        writeln!(text, "int {}(void) {{ return 0; }}", call.symbol).unwrap();
    }
    fs::write(&source, text + more).unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new().target(&target).host(&target).opt_level(0).cargo_metadata(false).get_compiler();
    let status = compiler.to_command().args(["-w", "-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(status.unwrap().success());
    library
}

#[test]
fn a_missing_file_is_named() {
    let text = outcome(&[("PLINTH_NCCL_LIBRARY", Path::new("/nonexistent/libnccl.so.2"))]);
    assert!(text.starts_with("outcome none ") && text.contains("PLINTH_NCCL_LIBRARY cannot be loaded"), "{text}");
    assert!(text.contains("/nonexistent/libnccl.so.2"), "{text}");
}

#[test]
fn the_specified_file_is_loaded() {
    let library = build("nccl_named", &[], "");
    assert_eq!(outcome(&[("PLINTH_NCCL_LIBRARY", &library)]), "outcome found NCCL 2.28.3, on the host device: false");
    let stand_in = build("nccl_stand_in", &[], "int plinth_nccl_on_host_device = 1;");
    assert_eq!(outcome(&[("PLINTH_NCCL_LIBRARY", &stand_in)]), "outcome found NCCL 2.28.3, on the host device: true");
}

#[test]
fn it_is_found_on_the_library_path() {
    let library = build("nccl_system", &[], "");
    assert!(outcome(&[("LD_LIBRARY_PATH", library.parent().unwrap())]).starts_with("outcome found NCCL 2.28.3"));
}

#[test]
fn it_is_found_in_folders_of_python_packages() {
    build("nccl_packages/nvidia/nccl/lib", &[], "");
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl_packages");
    assert!(outcome(&[("PYTHONPATH", &packages)]).starts_with("outcome found NCCL 2.28.3"));
    build("nccl_environment/lib/python3.12/site-packages/nvidia/nccl/lib", &[], "");
    let environment = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl_environment");
    assert!(outcome(&[("VIRTUAL_ENV", &environment)]).starts_with("outcome found NCCL 2.28.3"));
}

#[test]
fn a_missing_required_call_is_named() {
    let library = build("nccl_old", &["ncclCommInitRankConfig"], "");
    assert_eq!(
        outcome(&[("PLINTH_NCCL_LIBRARY", &library)]),
        "outcome none NCCL 2.28.3 has no ncclCommInitRankConfig, which came with 2.14.0; a newer NCCL is needed"
    );
}

#[test]
fn missing_optional_calls_are_accepted() {
    let optional: Vec<&str> = CALLS.iter().filter(|call| !call.required).map(|call| call.symbol).collect();
    assert!(!optional.is_empty());
    let library = build("nccl_optional", &optional, "");
    assert!(outcome(&[("PLINTH_NCCL_LIBRARY", &library)]).starts_with("outcome found "));
}

#[test]
fn another_library_is_rejected() {
    let none: Vec<&str> = CALLS.iter().map(|call| call.symbol).collect();
    let library = build("nccl_other", &none, "");
    let text = outcome(&[("PLINTH_NCCL_LIBRARY", &library)]);
    assert!(text.starts_with("outcome none ") && text.contains("has no nccl"), "{text}");
}

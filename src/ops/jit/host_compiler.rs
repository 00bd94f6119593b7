//! The machine's own C++ compiler, which makes kernels for the host device.
//!
//! `PLINTH_CXX` names one, and then only that is tried; else `CXX`, else `c++`, `g++` and `clang++`. It runs as a process of its
//! own, in a folder that is gone afterwards.

use crate::{
    driver::Image,
    error::{Error, Result},
    status::Status,
    temporary::Folder,
};
use once_cell::sync::OnceCell;
use std::{
    env, fs,
    path::Path,
    process::{Command, Output, Stdio},
};

/// The variable that names the compiler.
const VARIABLE: &str = "PLINTH_CXX";

/// How kernels are compiled. Sums and products are not fused, so that results are the same on every machine; a GPU fuses them.
/// But for its entry a kernel keeps what it has for itself: a table or a helper of another kernel, or of the program, may have the
/// same name.
const OPTIONS: [&str; 10] = [
    "-x",
    "c++",
    "-std=c++17",
    "-O2",
    "-fPIC",
    "-shared",
    "-w",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
];

/// A log longer than this helps nobody.
const LONGEST_LOG: usize = 64 << 10;

/// A compiler that was found.
#[derive(Debug)]
pub struct HostCompiler {
    /// The program, and what goes before all other arguments.
    command: Vec<String>,
    /// What it says of itself.
    version: String,
}

/// The compiler of the process, found by now at the latest.
pub fn get() -> Result<&'static HostCompiler> {
    static FOUND: OnceCell<HostCompiler> = OnceCell::new();
    FOUND.get_or_try_init(find)
}

fn find() -> Result<HostCompiler> {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
    if let Some(named) = set(VARIABLE) {
        return try_one(&named).map_err(|reason| {
            Error::new(
                Status::COMPILER_UNAVAILABLE,
                format!("the host device needs a C++ compiler, and {VARIABLE} cannot be used ({named}: {reason})"),
            )
        });
    }
    let mut tried = Vec::new();
    for command in set("CXX").into_iter().chain(["c++", "g++", "clang++"].map(str::to_owned)) {
        match try_one(&command) {
            Ok(found) => return Ok(found),
            Err(reason) => tried.push(format!("{command}: {reason}")),
        }
    }
    Err(Error::new(
        Status::COMPILER_UNAVAILABLE,
        format!(
            "the host device needs a C++ compiler, and none is found ({}); install one, or name it in {VARIABLE}",
            tried.join("; ")
        ),
    ))
}

fn try_one(command: &str) -> std::result::Result<HostCompiler, String> {
    let command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    let output = run(&command, Path::new("/"), &["--version"])?;
    if !output.status.success() {
        return Err(format!("--version ends with {}", output.status));
    }
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(HostCompiler { command, version })
}

fn run(command: &[String], folder: &Path, arguments: &[&str]) -> std::result::Result<Output, String> {
    let (program, first) = command.split_first().ok_or("no program is named")?;
    Command::new(program)
        .args(first)
        .args(arguments)
        .current_dir(folder)
        // Its messages are passed on, and should not depend on where they are made.
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.raw_os_error() {
            // The system has forgotten how it ended, since the program does not want to know of its children.
            Some(libc::ECHILD) => "its end cannot be waited for; this process ignores SIGCHLD".to_owned(),
            _ => error.to_string(),
        })
}

/// What the processor is, in so far as a compiler may ask: with -march=native it does.
fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| told.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    format!("{} {} {} {}", env::consts::ARCH, line("model name"), line("flags"), line("Features"))
}

impl HostCompiler {
    /// What tells it from other compilers.
    pub fn identity(&self) -> String {
        format!("{} {} {} {}", self.command.join(" "), OPTIONS.join(" "), self.version, processor())
    }

    /// Compiles a source to a shared library.
    pub fn compile(&self, source: &str) -> Result<Image> {
        let system = |what: &str, error: String| Error::new(Status::SYSTEM, format!("{what}: {error}"));
        let folder = Folder::new().map_err(|error| system("making a folder for a compiler", error.to_string()))?;
        fs::write(folder.path().join("kernel.cpp"), source)
            .map_err(|error| system("writing a source for a compiler", error.to_string()))?;
        let arguments: Vec<&str> = OPTIONS.into_iter().chain(["-o", "kernel.so", "kernel.cpp"]).collect();
        let output = run(&self.command, folder.path(), &arguments)
            .map_err(|error| system(&format!("running {}", self.command.join(" ")), error))?;
        if !output.status.success() {
            let mut log = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            if log.len() > LONGEST_LOG {
                let end = (0..=LONGEST_LOG).rev().find(|at| log.is_char_boundary(*at)).unwrap_or(0);
                log.truncate(end);
            }
            return Err(Error::new(Status::COMPILATION_FAILED, log));
        }
        let bytes = fs::read(folder.path().join("kernel.so"))
            .map_err(|error| system("reading what a compiler made", error.to_string()))?;
        Ok(Image::from_compiler(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_is_none_is_told() {
        assert!(try_one("/nowhere/c++").unwrap_err().contains("No such file"));
        assert!(try_one("false").unwrap_err().contains("ends with"));
        assert_eq!(try_one(" ").unwrap_err(), "no program is named");
    }

    #[test]
    fn sources_become_libraries_and_errors_logs() {
        let compiler = get().unwrap();
        let image = compiler.compile("extern \"C\" int one() { return 1; }").unwrap();
        assert_eq!(image.bytes()[..4], *b"\x7fELF");
        let error = compiler.compile("#line 7 \"mine\"\nint f() { return nothing; }").unwrap_err();
        assert_eq!(error.status(), Status::COMPILATION_FAILED);
        assert!(error.message().contains("mine:7:"), "{error}");
    }
}

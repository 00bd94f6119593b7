//! The machine's C++ compiler, which compiles kernels for the host device.
//!
//! `PLINTH_CXX` names the compiler, and then no other is tried; otherwise `CXX`, `c++`, `g++` and `clang++` are tried
//! in this order. It is searched in the folders of `PATH` that have absolute paths, and runs as a child process in a
//! temporary folder. A process with more rights than its user runs no compiler: its user could change what the compiler
//! writes, and the process would execute it.

use crate::{
    driver::{
        Image,
        environment::{Environment, is_relative},
    },
    error::{Error, Result},
    status::Status,
    temporary,
};
use once_cell::sync::OnceCell;
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The environment variable that names the compiler.
const VARIABLE: &str = "PLINTH_CXX";

/// The compiler's options. Multiplication and addition are not fused, so that results are the same on every machine; a
/// GPU fuses them. A kernel exports only its entry, because tables and helpers of other kernels or of the program may
/// have the same names.
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

/// The maximum length of a log in an error message.
const MAX_LOG: usize = 64 << 10;

/// A working compiler.
#[derive(Debug)]
pub struct HostCompiler {
    /// The program and its leading arguments.
    command: Vec<String>,
    /// The output of `--version`.
    version: String,
}

/// Returns the compiler of the process; searches it on the first call.
pub fn get() -> Result<&'static HostCompiler> {
    static FOUND: OnceCell<HostCompiler> = OnceCell::new();
    FOUND.get_or_try_init(|| find(&Environment::of_process()))
}

fn find(environment: &Environment) -> Result<HostCompiler> {
    if environment.is_secure() {
        return Err(Error::new(
            Status::COMPILER_UNAVAILABLE,
            "the host device's C++ compiler is not run in a process that has more rights than its user (set-user-ID, \
             set-group-ID or file capabilities); run the program without them",
        ));
    }
    let set = |name: &str| environment.value(name)?.into_string().ok().filter(|value| !value.trim().is_empty());
    if let Some(command) = set(VARIABLE) {
        return try_one(&command, environment).map_err(|reason| {
            Error::new(
                Status::COMPILER_UNAVAILABLE,
                format!("the host device needs a C++ compiler, and {VARIABLE} cannot be used ({command}: {reason})"),
            )
        });
    }
    let mut tried = Vec::new();
    for command in set("CXX").into_iter().chain(["c++", "g++", "clang++"].map(str::to_owned)) {
        match try_one(&command, environment) {
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

fn try_one(command: &str, environment: &Environment) -> std::result::Result<HostCompiler, String> {
    let mut command: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    if let Some(program) = command.first_mut() {
        *program = resolve(program, environment)?;
    }
    let output = run(&command, Path::new("/"), &["--version"])?;
    if !output.status.success() {
        return Err(format!("--version ends with {}", output.status));
    }
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(HostCompiler { command, version })
}

/// Returns the absolute path of a program, which may be a name in a folder of `PATH`.
fn resolve(program: &str, environment: &Environment) -> std::result::Result<String, String> {
    if is_relative(program.as_ref()) {
        return Err("the path is relative; name an absolute path".to_owned());
    }
    if program.starts_with('/') {
        return Ok(program.to_owned());
    }
    let is_executable = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = environment.folders("PATH").into_iter().map(|folder| folder.join(program)).find(is_executable);
    found
        .and_then(|path| path.into_os_string().into_string().ok())
        .ok_or_else(|| "it is in none of the folders of PATH with an absolute path".to_owned())
}

fn run(command: &[String], folder: &Path, arguments: &[&str]) -> std::result::Result<Output, String> {
    let (program, first) = command.split_first().ok_or("no program is named")?;
    Command::new(program)
        .args(first)
        .args(arguments)
        .current_dir(folder)
        // The compiler's messages are returned to the caller and must not depend on the locale.
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.raw_os_error() {
            // The exit status is lost, because the process ignores SIGCHLD.
            Some(libc::ECHILD) => "its end cannot be waited for; this process ignores SIGCHLD".to_owned(),
            _ => error.to_string(),
        })
}

/// Returns a description of the processor, as far as a compiler can query it; -march=native does.
fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| cpuinfo.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
    format!("{} {} {} {}", env::consts::ARCH, line("model name"), line("flags"), line("Features"))
}

impl HostCompiler {
    /// Returns a string that distinguishes the compiler from others.
    pub fn identity(&self) -> String {
        format!("{} {} {} {}", self.command.join(" "), OPTIONS.join(" "), self.version, processor())
    }

    /// Compiles a source to a shared library.
    pub fn compile(&self, source: &str) -> Result<Image> {
        let system = |what: &str, error: String| Error::new(Status::SYSTEM, format!("{what}: {error}"));
        let folder =
            temporary::folder().map_err(|error| system("making a folder for a compiler", error.to_string()))?;
        fs::write(folder.path().join("kernel.cpp"), source)
            .map_err(|error| system("writing a source for a compiler", error.to_string()))?;
        let arguments: Vec<&str> = OPTIONS.into_iter().chain(["-o", "kernel.so", "kernel.cpp"]).collect();
        let output = run(&self.command, folder.path(), &arguments)
            .map_err(|error| system(&format!("running {}", self.command.join(" ")), error))?;
        if !output.status.success() {
            let mut log = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
            if log.len() > MAX_LOG {
                let end = (0..=MAX_LOG).rev().find(|at| log.is_char_boundary(*at)).unwrap_or(0);
                log.truncate(end);
            }
            return Err(Error::new(Status::COMPILATION_FAILED, log));
        }
        let bytes = fs::read(folder.path().join("kernel.so"))
            .map_err(|error| system("reading what a compiler made", error.to_string()))?;
        // SAFETY: the compiler succeeded and wrote the file into a folder of this process. The generated source declares
        // the parameters of its kernel.
        #[allow(unsafe_code)]
        Ok(unsafe { Image::new(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_compiler_is_reported() {
        let reason = |command: &str| try_one(command, &Environment::of_process()).unwrap_err();
        assert!(reason("/nowhere/c++").contains("No such file"));
        assert!(reason("false").contains("ends with"));
        assert_eq!(reason(" "), "no program is named");
    }

    #[test]
    fn a_process_with_more_rights_than_its_user_runs_no_compiler() {
        let error = find(&Environment::new(true, &|_| Some("/usr/bin/c++".into()))).unwrap_err();
        assert_eq!(error.status(), Status::COMPILER_UNAVAILABLE);
        assert!(error.message().contains("set-user-ID"), "{error}");
    }

    #[test]
    fn programs_are_found_by_absolute_paths() {
        let of =
            |program: &str, path: &'static str| resolve(program, &Environment::new(false, &move |_| Some(path.into())));
        assert_eq!(of("/any/where", ""), Ok("/any/where".to_owned()));
        assert_eq!(of("sh", "relative:.::/nowhere:/bin"), Ok("/bin/sh".to_owned()));
        for path in ["", ".", ":", "bin", "./bin:../bin"] {
            assert!(of("sh", path).unwrap_err().contains("PATH"), "{path:?}");
        }
        for program in ["./sh", "bin/sh", "../bin/sh"] {
            assert!(of(program, "/bin").unwrap_err().contains("relative"), "{program}");
        }
    }

    #[test]
    fn sources_compile_and_errors_have_logs() {
        let compiler = get().unwrap();
        let image = compiler.compile("extern \"C\" int one() { return 1; }").unwrap();
        assert_eq!(image.bytes()[..4], *b"\x7fELF");
        let error = compiler.compile("#line 7 \"mine\"\nint f() { return nothing; }").unwrap_err();
        assert_eq!(error.status(), Status::COMPILATION_FAILED);
        assert!(error.message().contains("mine:7:"), "{error}");
    }
}

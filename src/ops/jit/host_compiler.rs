//! The machine's C++ compiler, which compiles kernels for the host device.
//!
//! `PLINTH_CXX` names the compiler, and then no other is tried; otherwise `CXX`, `c++`, `g++` and `clang++` are tried
//! in this order. It is searched in the folders of `PATH` that have absolute paths, and runs as a child process in a
//! temporary folder. A process with more rights than its user runs no compiler: its user could change what the compiler
//! writes, and the process would execute it.

use super::{
    digest::{Digest, sha256},
    host_headers::{HEADERS, files},
};
use crate::{
    driver::{
        Image,
        environment::{Environment, is_relative},
    },
    error::{Error, Result},
    host::{config::Checks, cuda_kernel, kernels, shared_memory},
    status::Status,
    temporary,
};

use object::{LittleEndian, Object, ObjectSymbol, SymbolKind, read::elf::ElfFile64};
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
    "-w",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fwrapv",
    "-fvisibility=hidden",
];

/// The dynamic shared memory of a block, in bytes: the most that a model of the host device has.
const MAX_SHARED: usize = 227 << 10;

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
    /// Returns a string that distinguishes the compiler, and the headers, from others.
    pub fn identity(&self) -> String {
        static OWN_HEADERS: OnceCell<Digest> = OnceCell::new();
        let headers = OWN_HEADERS.get_or_init(|| sha256(HEADERS.0));
        format!("{} {} {} {} {headers:?}", self.command.join(" "), OPTIONS.join(" "), self.version, processor())
    }

    /// Compiles a source of the jiterator to a shared library.
    pub fn compile(&self, source: &str, options: &[String]) -> Result<Image> {
        let folder = Folder::with_headers()?;
        folder.write("kernel.cpp", source)?;
        let mut arguments = OPTIONS.to_vec();
        arguments.extend(options.iter().map(String::as_str));
        arguments.extend(["-Iinclude", "-shared", "-o", "kernel.so", "kernel.cpp"]);
        self.run(&folder, &arguments)?;
        folder.image("kernel.so")
    }

    /// Compiles a kernel in CUDA C++ to a shared library. Its objects in dynamic shared memory (`extern __shared__`) are
    /// undefined in what the compiler makes; an assembler source defines all of them at one address.
    pub fn compile_kernel(&self, source: &KernelSource) -> Result<Image> {
        let folder = Folder::with_headers()?;
        folder.write("kernel.cu", source.text)?;
        let mut arguments = OPTIONS.to_vec();
        // A frame that is larger than a page does not skip the page below the stack; the switch between stacks does not
        // go with shadow stacks.
        arguments.extend(["-fstack-clash-protection", "-Iinclude", "-include", "plinth_host/kernel.h"]);
        // The sections show which variables the kernel uses: see `shared_memory::static_bytes`.
        arguments.extend(["-ffunction-sections", "-fdata-sections"]);
        if cfg!(target_arch = "x86_64") {
            arguments.push("-fcf-protection=none");
        }
        arguments.extend(source.options.iter().map(String::as_str));
        if source.checks != Checks::default() {
            arguments.push("-g1");
        }
        // Places of macros are in the program's text, not in the headers that define them.
        if !self.is_clang() {
            arguments.push("-ftrack-macro-expansion=0");
        }
        if source.checks.shared {
            arguments.extend(["-DPLINTH_HOST_CHECKS", "-fsanitize=thread", "-S", "-o", "kernel.s", "kernel.cu"]);
            self.run(&folder, &arguments)?;
            folder
                .write("kernel.s", &with_gaps(&String::from_utf8_lossy(&folder.read("kernel.s")?), self.is_clang()))?;
            self.run(&folder, &["-c", "-o", "kernel.o", "kernel.s"])?;
        } else {
            arguments.extend(["-c", "-o", "kernel.o", "kernel.cu"]);
            self.run(&folder, &arguments)?;
        }
        let object = folder.read("kernel.o")?;
        let static_bytes = shared_memory::static_bytes(&object);
        if static_bytes > u64::from(kernels::DEFAULT_SHARED) {
            return Err(Error::new(
                Status::COMPILATION_FAILED,
                format!(
                    "the kernel has {static_bytes} bytes of static shared memory, and a block can have {}; use dynamic \
                     shared memory (extern __shared__) for more",
                    kernels::DEFAULT_SHARED
                ),
            ));
        }
        folder.write("shared.s", &shared_memory_source(&undefined_thread_locals(&object), static_bytes))?;
        self.run(&folder, &["-shared", "-Wl,-z,defs", "-o", "kernel.so", "kernel.o", "shared.s"])?;
        folder.image("kernel.so")
    }

    fn is_clang(&self) -> bool {
        self.version.contains("clang")
    }

    fn run(&self, folder: &Folder, arguments: &[&str]) -> Result<()> {
        let output = run(&self.command, folder.0.path(), arguments)
            .map_err(|error| system(&format!("running {}", self.command.join(" ")), error))?;
        if output.status.success() {
            return Ok(());
        }
        let mut log = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        if log.is_empty() {
            log = format!("{} ended with {}", self.command.join(" "), output.status);
        }
        if log.len() > MAX_LOG {
            let end = (0..=MAX_LOG).rev().find(|at| log.is_char_boundary(*at)).unwrap_or(0);
            log.truncate(end);
        }
        Err(Error::new(Status::COMPILATION_FAILED, log))
    }
}

/// A kernel in CUDA C++ for [`HostCompiler::compile_kernel`].
pub struct KernelSource<'a> {
    /// The text, which exports the kernel.
    pub text: &'a str,
    /// Further options of the compiler.
    pub options: &'a [String],
    /// What the kernel checks while it runs.
    pub checks: Checks,
}

/// Adds a gap behind each variable in thread-local memory to an assembler source, so that an index beyond its end finds no
/// other variable.
fn with_gaps(source: &str, is_clang: bool) -> String {
    let mut text = String::with_capacity(source.len() + source.len() / 8);
    let mut is_shared = false;
    for line in source.lines() {
        text += line;
        text.push('\n');
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [".section", name, ..] => is_shared = name.starts_with(".tbss"),
            [".text" | ".data" | ".bss" | ".previous", ..] => is_shared = false,
            // gcc states the size before the bytes, which are one directive; clang after them.
            [".zero", ..] if is_shared && !is_clang => text += "\t.zero\t256\n",
            [".size", ..] if is_shared && is_clang => text += "\t.zero\t256\n",
            _ => {}
        }
    }
    text
}

/// Names that an object file uses and does not define.
#[derive(Debug, Default)]
struct Undefined {
    /// Thread-local variables.
    variables: Vec<String>,
    /// The functions that initialize them, which a variable without a constructor need not have.
    initializers: Vec<String>,
}

/// Returns the thread-local variables that an object file uses and does not define.
fn undefined_thread_locals(object: &[u8]) -> Undefined {
    let mut names = Undefined::default();
    let Ok(object) = ElfFile64::<LittleEndian>::parse(object) else { return names };
    for symbol in object.symbols().filter(ObjectSymbol::is_undefined) {
        let Ok(name) = symbol.name() else { continue };
        if symbol.kind() == SymbolKind::Tls {
            names.variables.push(name.to_owned());
        } else if name.starts_with("_ZTH") {
            names.initializers.push(name.to_owned());
        }
    }
    names
}

/// Returns an assembler source that defines variables as the dynamic shared memory of the running block, their initializers
/// as functions that do nothing, and the size of the static shared memory.
fn shared_memory_source(names: &Undefined, static_bytes: u64) -> String {
    let label = |name: &String| format!(".globl \"{name}\"\n.hidden \"{name}\"\n\"{name}\":\n");
    let mut text = String::from(".section .note.GNU-stack,\"\"\n.text\n");
    text.extend(names.initializers.iter().map(label));
    text += "ret\n";
    let size = cuda_kernel::STATIC_SHARED.to_string_lossy();
    text += &format!(".section .rodata\n.balign 4\n.globl {size}\n{size}:\n.long {static_bytes}\n");
    if !names.variables.is_empty() {
        text += ".section .tbss,\"awT\"\n.balign 1024\n";
        text.extend(names.variables.iter().map(label));
        text += &format!(".zero {MAX_SHARED}\n");
    }
    text
}

/// Returns the option that defines `__CUDA_ARCH__` for a compute capability: 90 for 9.0.
pub fn architecture_option(capability: i32) -> String {
    format!("-D__CUDA_ARCH__={}", capability * 10)
}

fn system(what: &str, error: impl std::fmt::Display) -> Error {
    Error::new(Status::SYSTEM, format!("{what}: {error}"))
}

/// The temporary folder in which a compiler runs.
struct Folder(temporary::Folder);

impl Folder {
    fn new() -> Result<Folder> {
        Ok(Folder(temporary::folder().map_err(|error| system("making a folder for a compiler", error))?))
    }

    /// Creates a folder that has the headers of CUDA C++ in `include`.
    fn with_headers() -> Result<Folder> {
        let folder = Folder::new()?;
        for (name, text) in files(&HEADERS.decompress()?) {
            folder.write(&format!("include/{name}"), text)?;
        }
        Ok(folder)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.path().join(name);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder.and_then(|()| fs::write(&path, text)).map_err(|error| system("writing a source for a compiler", error))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        fs::read(self.0.path().join(name)).map_err(|error| system("reading what a compiler made", error))
    }

    /// Returns the shared library that the compiler made.
    fn image(&self, name: &str) -> Result<Image> {
        let bytes = self.read(name)?;
        // SAFETY: the compiler succeeded and wrote the file into a folder of this process. The source that this library
        // generated around the program's text declares the parameters of its kernel.
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
    fn variables_in_shared_memory_have_gaps() {
        let text = "\t.section\t.tbss,\"awT\",@nobits\na:\n\t.zero\t4\n\t.bss\nb:\n\t.zero\t4\n";
        assert_eq!(with_gaps(text, false), text.replacen("\t.zero\t4\n", "\t.zero\t4\n\t.zero\t256\n", 1));
    }

    #[test]
    fn undefined_thread_locals_are_found() {
        let folder = Folder::new().unwrap();
        let text = "extern thread_local int one[]; __thread int two; extern int three;\n\
                    namespace n { extern __thread int four; }\n\
                    int sum() { return one[0] + two + three + n::four; }";
        folder.write("a.cpp", text).unwrap();
        get().unwrap().run(&folder, &["-fPIC", "-c", "-o", "a.o", "a.cpp"]).unwrap();
        let mut names = undefined_thread_locals(&folder.read("a.o").unwrap());
        names.variables.sort_unstable();
        assert_eq!(names.variables, ["_ZN1n4fourE", "one"]);
        assert_eq!(names.initializers, ["_ZTH3one"]);
    }

    #[test]
    fn sources_compile_and_errors_have_logs() {
        let compiler = get().unwrap();
        let image = compiler.compile("extern \"C\" int one() { return 1; }", &[]).unwrap();
        assert_eq!(image.bytes()[..4], *b"\x7fELF");
        let error = compiler.compile("#line 7 \"mine\"\nint f() { return nothing; }", &[]).unwrap_err();
        assert_eq!(error.status(), Status::COMPILATION_FAILED);
        assert!(error.message().contains("mine:7:"), "{error}");
    }
}

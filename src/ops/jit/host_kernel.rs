//! Kernels in CUDA C++ for the host device: their compilation with the machine's C++ compiler, against the headers of
//! `kernels/host/`, and the cache on disk.

use super::{
    digest::Digest,
    headers,
    host_compiler::{self, HostCompiler, KernelSource},
    nvrtc_source::{Compiled, Source, compile_cached, digest, parse_capability},
};
use crate::{
    driver::Image,
    error::{Context, Error, Result},
    host::{
        self,
        config::Checks,
        kernels::{self, HostKernel, ProgramKernel, Run},
    },
    status::Status,
};
use std::{
    env,
    path::{Path, PathBuf},
};

/// The most bytes that all parameters of a kernel have, as in CUDA.
pub const MAX_PARAMETER_BYTES: usize = 32764;

/// Registers a function that runs on the host device in place of a kernel.
pub fn register(name: String, parameter_sizes: Vec<usize>, function: ProgramKernel) -> Result<()> {
    if name.is_empty() || name.starts_with("plinth_") {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!("a kernel cannot have the name {name:?}: it is empty, or a name of the library"),
        ));
    }
    // Functions that were found refer to the kernel as long as the process lives.
    kernels::register(Box::leak(Box::new(HostKernel {
        name: name.leak(),
        parameter_sizes: parameter_sizes.leak(),
        run: Run::Program(function),
    })));
    Ok(())
}

/// Removes the registration of a function, if there is one.
pub fn unregister(name: &str) {
    kernels::unregister(name);
}

/// Returns an image in which a name is that of a registered kernel.
fn registered(name: &str) -> Option<Compiled> {
    kernels::find_registered(name.as_bytes())?;
    // The host device finds registered kernels in every image.
    Some(Compiled { image: Image::without_kernels(), lowered: name.to_owned(), is_cached: false })
}

/// What follows the program's text: the inline assembler's name gets its meaning back, and the kernel is exported.
fn export(name: &str) -> String {
    format!("\n\n#line 1 \"kernel_name\"\n#undef asm\nPLINTH_HOST_EXPORT({name:?}, {name})\n")
}

/// Compiles a source for a device of a compute capability, or takes the image from the cache, unless the program has
/// registered a function for the kernel.
pub fn compile(source: &Source, capability: (i32, i32), use_cached: bool) -> Result<Compiled> {
    if let Some(registered) = registered(source.name) {
        return Ok(registered);
    }
    let compiler = host_compiler::get()?;
    let options = options(source, capability)?;
    let checks = host::checks();
    let key = || key(source, compiler, &options, checks);
    compile_cached(source.name, "host", use_cached, key, || {
        let text = format!("{}{}", source.text, export(source.name));
        let image = compiler
            .compile_kernel(&KernelSource { text: &text, options: &options, checks })
            .context(|| format!("compiling {} for the host device", source.name))?;
        Ok((image, source.name.to_owned()))
    })
}

/// Returns the key of everything that the image depends on; `None` if the program's headers cannot be known.
fn key(source: &Source, compiler: &HostCompiler, options: &[String], checks: Checks) -> Option<Digest> {
    // The compiler's own folders are as old as its version, but not those in which others install headers. A process in
    // which the environment is not trusted runs no compiler.
    let list = |name| env::var_os(name).unwrap_or_default();
    let lists = [list("CPATH"), list("CPLUS_INCLUDE_PATH"), "/usr/local/include".into()];
    let installed = lists.iter().flat_map(env::split_paths);
    let folders: Vec<PathBuf> = source.include_dirs.iter().map(PathBuf::from).chain(installed).collect();
    let headers = headers::digest(source.text, &folders, source.options)?;
    let (identity, checks) = (compiler.identity(), format!("{checks:?}"));
    let texts = [identity.as_str(), env!("CARGO_PKG_VERSION"), source.name, source.text, &checks];
    // The digest of the headers has what the working directory contributes.
    let options = options.iter().map(String::as_str).filter(|option| !option.starts_with("-iquote"));
    Some(digest(&headers, texts.into_iter().chain(options)))
}

/// Translates options of NVRTC to options of a C++ compiler for the machine.
fn options(source: &Source, capability: (i32, i32)) -> Result<Vec<String>> {
    let architecture = match source.capability {
        Some(text) => {
            let name = parse_capability(text)?.name;
            name.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
        }
        None => capability.0 * 10 + capability.1,
    };
    let mut translated = vec![host_compiler::architecture_option(architecture)];
    let mut standard = "c++17".to_owned();
    let mut rest = source.options.iter();
    while let Some(option) = rest.next() {
        let mut value = |names: [&str; 2]| -> Option<String> {
            let given = names.iter().find_map(|name| option.strip_prefix(name))?;
            let given = given.strip_prefix('=').unwrap_or(given).trim_start();
            if given.is_empty() { rest.next().cloned() } else { Some(given.to_owned()) }
        };
        if let Some(folder) = value(["--include-path", "-I"]) {
            translated.push(format!("-I{}", absolute(&folder)));
        } else if let Some(name) = value(["--define-macro", "-D"]) {
            translated.push(format!("-D{name}"));
        } else if let Some(name) = value(["--undefine-macro", "-U"]) {
            translated.push(format!("-U{name}"));
        } else if let Some(name) = value(["--std", "-std"]) {
            // The headers need C++17, which accepts what was written for an older standard.
            if !["c++03", "c++11", "c++14"].contains(&name.as_str()) {
                standard = name;
            }
        } else if let Some(header) = value(["--pre-include", "-include"]) {
            let path = absolute(&header);
            translated.extend(["-include".to_owned(), if Path::new(&path).is_file() { path } else { header }]);
        } else if !IGNORED.iter().any(|known| {
            let rest = option.trim_start_matches('-').strip_prefix(known);
            option.starts_with('-') && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        }) {
            return Err(Error::new(
                Status::INVALID_VALUE,
                format!("{option} is not an option that the host device knows; see docs/compile_kernel.md"),
            ));
        }
    }
    // A name in quotes is also searched for in the working directory, as NVRTC does.
    if !source.options.iter().any(|option| option.ends_with("no-source-include")) {
        translated.push(format!("-iquote{}", absolute(".")));
    }
    translated.extend(source.include_dirs.iter().map(|folder| format!("-I{}", absolute(folder))));
    translated.push(format!("-std={standard}"));
    Ok(translated)
}

/// The options of NVRTC that do not matter here, without their leading hyphens: code generation for GPUs, and debug
/// information, which is always there.
const IGNORED: &[&str] = &[
    "G",
    "device-debug",
    "lineinfo",
    "generate-line-info",
    "use_fast_math",
    "ftz",
    "prec-sqrt",
    "prec-div",
    "fmad",
    "maxrregcount",
    "dopt",
    "Ofast-compile",
    "ptxas-options",
    "extra-device-vectorization",
    "restrict",
    "default-device",
    "device-as-default-execution-space",
    "device-int128",
    "w",
    "disable-warnings",
    "diag-suppress",
    "split-compile",
    "minimal",
    "rdc",
    "relocatable-device-code",
    "dlto",
    "builtin-initializer-list",
    "builtin-move-forward",
    "no-source-include",
    "diag-error",
    "diag-warn",
    "display-error-number",
    "no-display-error-number",
    "brief-diagnostics",
    "optimization-info",
    "extensible-whole-program",
    "ewp",
    "gen-opt-lto",
    "jump-table-density",
    "frandom-seed",
    "random-seed",
    "no-cache",
    "time",
];

/// Returns a path that means the same in the folder in which the compiler runs.
fn absolute(path: &str) -> String {
    std::path::absolute(Path::new(path)).map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(options: &[&str]) -> Result<Vec<String>> {
        let owned: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        super::options(
            &Source { text: "", name: "f", capability: None, include_dirs: &["/a".to_owned()], options: &owned },
            (9, 0),
        )
    }

    #[test]
    fn options_are_translated() {
        let found = translated(&["-DN=3", "--define-macro", "M", "-I", "/b", "--std=c++20", "--use_fast_math", "-G"]);
        let mut found = found.unwrap();
        assert!(found.remove(4).starts_with("-iquote/"));
        assert_eq!(found, ["-D__CUDA_ARCH__=900", "-DN=3", "-DM", "-I/b", "-I/a", "-std=c++20"]);
        assert_eq!(translated(&["-std=c++11"]).unwrap().last().unwrap(), "-std=c++17");
        assert!(translated(&["--no-such-option"]).unwrap_err().message().contains("--no-such-option"));
    }
}

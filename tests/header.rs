//! Generates the C headers from src/ffi, and checks that those in include/ are current. Checks lists that exist twice for
//! equality.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// A header of include/plinth: its name, and the parts of src/ffi that it is made of.
///
/// A part `x` is `x.rs`, the exported functions and their types, from which cbindgen generates C; or `x.h`, C that
/// cbindgen cannot generate; or both. The `//!` comment of a part becomes its introduction in the header; the comment's
/// first line is a title. The first part's introduction opens the header. A header may use only types of headers before
/// it in the list.
struct Header {
    name: &'static str,
    parts: &'static [&'static str],
}

const fn header(name: &'static str, parts: &'static [&'static str]) -> Header {
    Header { name, parts }
}

/// The headers, in the order in which plinth.h includes them.
const HEADERS: &[Header] = &[
    header("base", &["base", "status", "version"]),
    header("log", &["log"]),
    header("tensor", &["tensor"]),
    header("device", &["device", "device_context", "properties", "sync_debug"]),
    header("stream", &["stream"]),
    header("green_context", &["green_context"]),
    header("event", &["event"]),
    header("allocator", &["allocator", "allocator_settings", "out_of_memory"]),
    header("mem_pool", &["pool", "pool_checkpoint"]),
    header("pluggable_allocator", &["backend", "pluggable"]),
    header("memory", &["memory", "pointer"]),
    header("names", &["names"]),
    header("host_memory", &["host_memory", "host_memory_stats"]),
    header("memory_sleep", &["memory_sleep"]),
    header("memory_registration", &["memory_registration"]),
    header("memory_share", &["memory_share"]),
    header("memory_stats", &["memory_stats"]),
    header("memory_history", &["memory_history", "trace"]),
    header("snapshot", &["snapshot"]),
    header("ipc", &["ipc"]),
    header("generator", &["generator"]),
    header("random", &["random"]),
    header("graph", &["graph", "graph_times"]),
    header("graph_build", &["graph_build", "graph_nodes", "graph_condition"]),
    header("graph_callable", &["graph_callable"]),
    header("kernel", &["compile_kernel", "kernel_launch", "host_kernel"]),
    header("jiterator", &["jiterator"]),
    header("comm", &["comm"]),
    header("store", &["store"]),
    header("communicator", &["communicator", "communicator_parts", "communicator_work"]),
    header("nccl", &["nccl"]),
    header("blas", &["blas", "precision"]),
    header("cufft", &["cufft"]),
    header("telemetry", &["telemetry"]),
    header("nvtx", &["nvtx"]),
    header("sanitizer", &["sanitizer"]),
    header("testing", &["testing"]),
];

const GENERATED: &str = "/* Generated from src/ffi by `make header`; changes made here are lost. */\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A part of the C API, in the form in which it is written to a header.
struct Part {
    title: String,
    /// The paragraphs below the title.
    text: Vec<String>,
    /// The declarations.
    code: String,
}

/// Reads a part of src/ffi.
fn part(name: &str) -> Part {
    let rust = root().join(format!("src/ffi/{name}.rs"));
    let by_hand = fs::read_to_string(root().join(format!("src/ffi/{name}.h"))).unwrap_or_default();
    let source = if rust.exists() { fs::read_to_string(&rust).unwrap() } else { by_hand.clone() };
    let mut comment = source
        .lines()
        .take_while(|line| line.starts_with("//!"))
        .map(|line| line.strip_prefix("//! ").unwrap_or("").to_owned());
    let title = comment.next().unwrap_or_else(|| panic!("src/ffi/{name} has no opening comment"));
    let text = comment.skip_while(String::is_empty).collect();
    let mut generated = if rust.exists() { declarations(&rust) } else { String::new() };

    // Each paragraph of the hand-written C is put at the part's start, except that an initializer follows its struct.
    let mut first = String::new();
    let by_hand = by_hand.lines().skip_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join("\n");
    for paragraph in by_hand.trim().split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        match initialized(paragraph) {
            None => first += &format!("{paragraph}\n\n"),
            Some(name) => {
                let end = format!("}} {name};\n");
                assert!(generated.contains(&end), "there is no struct {name} for its initializer");
                generated = generated.replacen(&end, &format!("{end}\n{paragraph}\n"), 1);
            }
        }
    }
    let code = format!("{first}{generated}").trim().to_owned();
    Part { title: title.trim_end_matches('.').to_owned(), text, code }
}

/// Returns the struct whose initializer a paragraph of C defines: plinth_event_t, for PLINTH_EVENT_INIT.
fn initialized(paragraph: &str) -> Option<String> {
    let name = paragraph.lines().find_map(|line| line.strip_prefix("#define "))?.split_whitespace().next()?;
    Some(name.strip_suffix("_INIT")?.to_lowercase() + "_t")
}

/// Returns cbindgen's output for a file.
fn declarations(source: &Path) -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut bindings = Vec::new();
    cbindgen::Builder::new().with_config(config).with_src(source).generate().unwrap().write(&mut bindings);
    String::from_utf8(bindings).unwrap()
}

/// Returns the words of C code without those of its comments.
fn words(code: &str) -> BTreeSet<&str> {
    let mut words = BTreeSet::new();
    let mut rest = code;
    while !rest.is_empty() {
        let (before, after) = rest.split_once("/*").unwrap_or((rest, ""));
        words.extend(before.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()));
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    words
}

/// Returns the types and constants that C code declares.
fn declared(code: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for line in code.lines() {
        let name = if let Some(name) = line.strip_prefix("#define ") {
            name.split_whitespace().next()
        } else if let Some(name) = line.strip_prefix("} ") {
            name.strip_suffix(';')
        } else if line.starts_with("typedef ") && line.ends_with(';') {
            // In a function pointer type, the name is in `(*name)`.
            match line.split_once("(*") {
                Some((_, name)) => name.split(')').next(),
                None => line.trim_end_matches(';').rsplit([' ', '*']).next(),
            }
        } else {
            None
        };
        names.extend(name);
    }
    names
}

/// Formats a comment for doxygen.
fn comment(lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!(" * {line}").trim_end().to_owned() + "\n").collect();
    format!("/*!\n{lines} */\n")
}

/// Returns the lines that begin the doxygen group of a header or part.
fn group(name: &str, part: &Part) -> Vec<String> {
    let mut lines = vec![format!("@defgroup plinth_{name} {}", part.title), String::new()];
    lines.extend(part.text.iter().cloned());
    lines
}

/// Generates all headers: file names below include, and texts.
fn generate() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut contents = String::new();
    let mut includes = String::new();
    // The header of each type and constant.
    let mut homes: BTreeMap<String, &str> = BTreeMap::new();
    for header in HEADERS {
        let name = header.name;
        let parts: Vec<Part> = header.parts.iter().map(|name| part(name)).collect();
        let title = &parts[0].title;

        let mut body = String::new();
        for (part_name, part) in header.parts.iter().zip(&parts) {
            if body.is_empty() {
                body += &format!("{}\n", part.code);
            } else {
                let mut lines = group(part_name, part);
                lines.extend([String::new(), "@{".to_owned()]);
                body += &format!("\n{}\n{}\n\n/*! @}} */\n", comment(&lines), part.code);
            }
        }

        let own = declared(&body);
        let used: BTreeSet<&str> = words(&body)
            .into_iter()
            .filter(|word| !own.contains(word))
            .filter_map(|word| homes.get(word).copied())
            .collect();
        let used: String = HEADERS
            .iter()
            .filter(|other| used.contains(other.name) || (other.name == "base" && name != "base"))
            .map(|other| format!("#include \"{}.h\"\n", other.name))
            .collect();
        let used =
            if name == "base" { "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n" } else { &used };

        let mut opening = group(name, &parts[0]);
        opening.extend([String::new(), "SPDX-License-Identifier: MIT OR Apache-2.0".to_owned()]);
        let guard = format!("PLINTH_{}_H", name.to_uppercase());
        let text = format!(
            "{}\n{GENERATED}\n#ifndef {guard}\n#define {guard}\n\n{used}\n\
             /*!\n * @file plinth/{name}.h\n * @brief {title}.\n */\n\n\
             /*!\n * @addtogroup plinth_{name}\n * @{{\n */\n\n\
             {body}\n\
             /*! @}} */\n\n#endif /* {guard} */\n",
            comment(&opening)
        );
        for declared in own {
            assert_eq!(homes.insert(declared.to_owned(), name), None, "{declared} is declared twice");
        }
        files.push((format!("plinth/{name}.h"), text));
        contents += &format!(" * - @ref plinth_{name} \"plinth/{name}.h\": {title}\n");
        includes += &format!("#include \"plinth/{name}.h\"\n");
    }
    let umbrella = fs::read_to_string(root().join("src/ffi/plinth.h")).unwrap();
    let umbrella = umbrella
        .replace("@GENERATED@\n", GENERATED)
        .replace(" * @CONTENTS@\n", &contents)
        .replace("@INCLUDES@\n", &includes);
    files.push(("plinth.h".to_owned(), umbrella));
    files
}

/// Returns the Rust files of the C API: names without extension, and texts.
fn sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("src/ffi")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            files.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    files
}

fn source() -> String {
    sources().into_iter().map(|(_, text)| text).collect()
}

#[test]
fn every_module_is_in_one_header() {
    let parts: Vec<&str> = HEADERS.iter().flat_map(|header| header.parts).copied().collect();
    for (name, text) in sources() {
        let uses = parts.iter().filter(|part| **part == name).count();
        let exports = text.contains("#[unsafe(no_mangle)]") || name == "tensor";
        assert_eq!(uses, usize::from(exports), "src/ffi/{name}.rs is a part of {uses} headers");
    }
}

/// With PLINTH_WRITE_HEADER=1 (`make header`) the headers are written instead of compared.
#[test]
fn the_headers_are_current() {
    let (include, files) = (root().join("include"), generate());
    let write = std::env::var_os("PLINTH_WRITE_HEADER").is_some();
    if write {
        let _ = fs::remove_dir_all(include.join("plinth"));
        fs::create_dir(include.join("plinth")).unwrap();
    }
    for (name, text) in &files {
        if write {
            fs::write(include.join(name), text).unwrap();
        }
        let checked_in = fs::read_to_string(include.join(name)).unwrap_or_default();
        assert!(checked_in == *text, "include/{name} is not current: run `make header`");
    }
    for entry in fs::read_dir(include.join("plinth")).unwrap() {
        let name = format!("plinth/{}", entry.unwrap().file_name().to_str().unwrap());
        assert!(files.iter().any(|(file, _)| *file == name), "include/{name} belongs to no module: run `make header`");
    }
}

/// Each header includes the headers whose types it uses. tools/check_header.sh checks it in every version of C and C++.
#[test]
fn every_header_compiles_alone() {
    // In a separate folder, because `make header` writes include at the same time.
    let include = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header");
    fs::create_dir_all(include.join("plinth")).unwrap();
    let files = generate();
    for (name, text) in &files {
        fs::write(include.join(name), text).unwrap();
    }
    for (name, _) in &files {
        let mut compiler = Command::new("cc")
            .args(["-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"])
            .arg("-I")
            .arg(&include)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let source = format!("#include <{name}>\nextern int unit;\n");
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        assert!(compiler.wait().unwrap().success(), "{name} does not compile alone");
    }
}

#[test]
fn every_exported_function_is_in_the_header_and_guarded() {
    let header: String = generate().into_iter().map(|(_, text)| text).collect();
    let sources = source();
    let marker = "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn ";
    let mut exported = BTreeSet::new();
    for body in sources.split(marker).skip(1) {
        let name: String = body.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let end = body.find("\n}\n").unwrap();
        // plinth_version adds three constants and cannot fail. Observers get the name of the call from that of the closure.
        let guarded = [
            "guard(|| ",
            "guard::convert(|| ",
            "release(|| ",
            "guard_short(|| ",
            "release_short(|| ",
            "    alloc(",
            "    free(",
            "guard::text(",
            "guard::value(",
        ];
        assert!(
            name == "plinth_version" || guarded.iter().any(|call| body[..end].contains(call)),
            "{name} has no guard"
        );
        assert!(header.contains(&format!(" {name}(")) || header.contains(&format!("*{name}(")), "{name} not in header");
        assert!(name.starts_with("plinth_"), "{name}");
        exported.insert(name);
    }
    assert_eq!(sources.matches("no_mangle").count(), exported.len(), "an export is declared in another form");
    let listed = fs::read_to_string(root().join("tests/symbols.txt")).unwrap();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    if std::env::var_os("PLINTH_WRITE_HEADER").is_some() {
        let text: Vec<&str> = exported.iter().map(String::as_str).collect();
        fs::write(root().join("tests/symbols.txt"), text.join("\n") + "\n").unwrap();
    } else {
        assert_eq!(exported, listed, "tests/symbols.txt is not the list of exports: run `make header`");
    }
}

/// Every parameter has documentation in the comment of its function.
#[test]
fn every_parameter_is_documented() {
    for function in source().split("#[unsafe(no_mangle)]\n").collect::<Vec<_>>().windows(2) {
        let comment = &function[0][function[0].rfind("\n\n").unwrap_or(0)..];
        let signature = &function[1][..function[1].find('{').unwrap()];
        let arguments = &signature[signature.find('(').unwrap() + 1..signature.rfind(')').unwrap()];
        for argument in arguments.split(',').filter(|argument| !argument.trim().is_empty()) {
            let name = argument.split(':').next().unwrap().trim();
            assert!(comment.contains(&format!("@param {name} ")), "{name} is not documented:{signature}");
        }
        assert_eq!(comment.contains("@return"), signature.contains("->"), "@return of{signature}");
    }
}

/// src/ffi/status.rs repeats the status constants, because cbindgen reads literal items only.
#[test]
fn the_status_constants_match_the_list_of_statuses() {
    let source = fs::read_to_string(root().join("src/ffi/status.rs")).unwrap();
    let expected: Vec<(String, String)> = plinth_driver::status::STATUSES
        .iter()
        .map(|info| {
            let (name, text) = (info.name.trim_end_matches('\0'), info.text.trim_end_matches('\0'));
            (format!("/// {text}"), format!("pub const {name}: plinth_status_t = {};", info.status.0))
        })
        .collect();
    let lines: Vec<&str> = source.lines().collect();
    let found: Vec<(String, String)> = lines
        .windows(2)
        .filter(|pair| pair[1].starts_with("pub const PLINTH_") && pair[1].contains("plinth_status_t"))
        .map(|pair| (pair[0].to_string(), pair[1].to_string()))
        .collect();
    assert_eq!(found, expected);
}

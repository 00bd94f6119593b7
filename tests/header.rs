//! The C header is what the sources make it, and every list that stands in two places says the same in both.

use std::{collections::BTreeSet, fs, path::Path};

/// The modules of the C surface, in the order in which the header shows them.
const SECTIONS: &[&str] = &[
    "status",
    "version",
    "device",
    "device_context",
    "properties",
    "sync_debug",
    "stream",
    "green_context",
    "event",
    "memory",
    "host_memory",
    "host_memory_stats",
    "allocator",
    "allocator_settings",
    "ipc",
    "pool",
    "memory_stats",
    "memory_history",
    "pointer",
    "backend",
    "graph",
    "graph_build",
    "graph_condition",
    "graph_times",
    "graph_callable",
    "out_of_memory",
    "pluggable",
    "trace",
    "snapshot",
    "generator",
    "random",
    "comm",
    "communicator",
    "communicator_work",
    "nccl",
    "jiterator",
    "compile_kernel",
    "store",
    "blas",
    "cufft",
    "telemetry",
    "nvtx",
    "sanitizer",
    "testing",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generate() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    // Only the C surface is shown to the generator, section after section.
    let mut builder = cbindgen::Builder::new().with_config(config);
    for section in SECTIONS {
        builder = builder.with_src(root().join(format!("src/ffi/{section}.rs")));
    }
    let mut bindings = Vec::new();
    builder.generate().unwrap().write(&mut bindings);
    String::from_utf8(bindings).unwrap()
}

fn sources() -> String {
    let mut text = String::new();
    for entry in fs::read_dir(root().join("src/ffi")).unwrap() {
        text += &fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    text
}

#[test]
fn every_module_has_its_section() {
    for entry in fs::read_dir(root().join("src/ffi")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let exports = fs::read_to_string(&path).unwrap().contains("#[unsafe(no_mangle)]");
        assert_eq!(SECTIONS.contains(&name), exports, "{name}");
    }
}

/// With PLINTH_WRITE_HEADER=1 (`make header`) the header is written instead of compared.
#[test]
fn the_header_is_current() {
    let path = root().join("include/plinth.h");
    let generated = generate();
    if std::env::var_os("PLINTH_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    let checked_in = fs::read_to_string(&path).unwrap();
    assert!(checked_in == generated, "include/plinth.h is not what the sources make it: run `make header`");
}

#[test]
fn every_exported_function_is_in_the_header_and_guarded() {
    let (header, sources) = (generate(), sources());
    let marker = "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn ";
    let mut exported = BTreeSet::new();
    for body in sources.split(marker).skip(1) {
        let name: String = body.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let end = body.find("\n}\n").unwrap();
        // plinth_version adds three constants: there is nothing to guard.
        let guarded = [
            "guard(|| ",
            "guard(testing::",
            "guard(memory::",
            "guard(blas::",
            "guard(seed::",
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
    assert_eq!(sources.matches("no_mangle").count(), exported.len(), "an exported function is written in another way");
    let listed = fs::read_to_string(root().join("tests/symbols.txt")).unwrap();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    if std::env::var_os("PLINTH_WRITE_HEADER").is_some() {
        let text: Vec<&str> = exported.iter().map(String::as_str).collect();
        fs::write(root().join("tests/symbols.txt"), text.join("\n") + "\n").unwrap();
    } else {
        assert_eq!(exported, listed, "tests/symbols.txt is not the list of exports: run `make header`");
    }
}

/// Parameters are named in the comments, so that nothing in the header is left to guessing.
#[test]
fn every_parameter_is_documented() {
    for function in sources().split("#[unsafe(no_mangle)]\n").collect::<Vec<_>>().windows(2) {
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

/// The status constants are written out in src/ffi/status.rs, because the header generator reads literal items only.
#[test]
fn the_status_constants_are_the_list_of_statuses() {
    let source = fs::read_to_string(root().join("src/ffi/status.rs")).unwrap();
    let expected: Vec<(String, String)> = plinth::status::STATUSES
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

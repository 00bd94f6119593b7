//! Checks the layers of the library's folders: each imports only lower ones. Inside a folder, import cycles of files are small.
//!
//! The test reads `use` declarations and paths in the code. It ignores `#[cfg(test)]` modules, which may use anything.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The folders and files of src/, from the lowest layer to the highest. Those of one layer do not import each other.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["runtime"],
    &["observe"],
    &["stream"],
    &["memory"],
    &["ops"],
    &["graph", "collectives"],
    &["sanitizer"],
    &["init"],
    &["ffi"],
    &["internal"],
];

/// The largest permitted number of files in an import cycle.
const LARGEST_CYCLE: usize = 6;

/// Modules by path, such as ["memory", "arena"], with the text of their files.
type Modules = BTreeMap<Vec<String>, String>;

fn read_modules(folder: &Path, module: &[String], modules: &mut Modules) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let is_test = name == "tests" || name.ends_with("_tests");
        if path.is_dir() && !is_test {
            read_modules(&path, &[module, &[name]].concat(), modules);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !is_test {
            let is_folder = name == "mod" || name == "lib";
            let module = if is_folder { module.to_vec() } else { [module, &[name]].concat() };
            modules.insert(module, code_of(&path));
        }
    }
}

/// Returns the text of a file without comments and without its test modules, which are at its end.
fn code_of(path: &PathBuf) -> String {
    let text = fs::read_to_string(path).unwrap();
    let end = ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test"].iter().filter_map(|mark| text.find(mark)).min();
    let code = &text[..end.unwrap_or(text.len())];
    code.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

/// Returns the paths of a use tree: "a::{b, c::d}" has a::b and a::c::d.
fn expand(tree: &str) -> Vec<String> {
    let Some((prefix, rest)) = tree.split_once('{') else { return vec![tree.trim().to_string()] };
    let inner = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let (mut paths, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[start..at].trim();
                if !part.is_empty() {
                    paths.extend(expand(part).iter().map(|path| format!("{}{path}", prefix.trim())));
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    paths
}

/// Returns the paths in code: those of its use declarations, and those that begin with crate, super or self.
fn paths_of(code: &str) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    let mut rest = String::new();
    let mut pieces = code.split_inclusive(';');
    for piece in &mut pieces {
        let start =
            ["\nuse ", "pub use ", "pub(crate) use ", "    use "].iter().filter_map(|word| piece.rfind(word)).max();
        match start.and_then(|start| piece[start..].find("use ").map(|at| start + at)) {
            Some(start) => {
                paths.extend(expand(piece[start + 4..].trim_end_matches(';')));
                rest.push_str(&piece[..start]);
            }
            None => rest.push_str(piece),
        }
    }
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in rest.match_indices(root) {
            let before = rest[..at].chars().next_back().unwrap_or(' ');
            if !before.is_alphanumeric() && !['_', ':'].contains(&before) {
                let is_part = |letter: char| letter.is_alphanumeric() || ['_', ':'].contains(&letter);
                paths.insert(rest[at..].chars().take_while(|letter| is_part(*letter)).collect());
            }
        }
    }
    paths
}

/// Resolves a path in a module to the module that it names, or that contains its item.
fn resolve(modules: &Modules, module: &[String], path: &str) -> Option<Vec<String>> {
    let path = path.split(" as ").next().unwrap_or("").trim();
    let mut parts = path.split("::").map(str::trim).filter(|part| !part.is_empty()).peekable();
    let mut found = module.to_vec();
    match parts.peek().copied() {
        Some("crate") => {
            parts.next();
            found.clear();
        }
        Some("super" | "self") => {
            while let Some(part @ ("super" | "self")) = parts.peek().copied() {
                if part == "super" {
                    found.pop()?;
                }
                parts.next();
            }
        }
        Some(child) if modules.contains_key(&[module, &[child.to_string()]].concat()) => {}
        _ => return None,
    }
    for part in parts {
        let deeper = [&found[..], &[part.to_string()]].concat();
        if !modules.contains_key(&deeper) {
            break;
        }
        found = deeper;
    }
    Some(found)
}

fn imports() -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let mut modules = Modules::new();
    read_modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &[], &mut modules);
    assert!(modules.len() > 150, "only {} modules were found", modules.len());
    let targets = |module: &Vec<String>, code: &String| {
        let found = paths_of(code).into_iter().filter_map(|path| resolve(&modules, module, &path));
        found.filter(|target| target != module).collect::<BTreeSet<_>>()
    };
    modules.iter().map(|(module, code)| (module.clone(), targets(module, code))).collect()
}

fn layer_of(folder: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&folder))
}

#[test]
fn each_folder_is_in_a_layer() {
    for module in imports().keys().filter(|module| !module.is_empty()) {
        assert!(layer_of(&module[0]).is_some(), "{} is in no layer: add it to LAYERS", module[0]);
    }
}

#[test]
fn imports_go_to_lower_layers() {
    let mut wrong = Vec::new();
    for (module, targets) in imports() {
        for target in targets {
            let (Some(from), Some(to)) = (module.first(), target.first()) else { continue };
            if from != to && layer_of(to) >= layer_of(from) {
                wrong.push(format!("src/{} imports src/{}", module.join("/"), target.join("/")));
            }
        }
    }
    assert!(wrong.is_empty(), "these imports do not go to a lower layer:\n{}", wrong.join("\n"));
}

#[test]
fn import_cycles_are_small() {
    let imports = imports();
    let reached_from = |start: &Vec<String>| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![start.clone()]);
        while let Some(module) = next.pop() {
            for target in imports.get(&module).into_iter().flatten() {
                // The crate's root is not a dependency.
                if !target.is_empty() && reached.insert(target.clone()) {
                    next.push(target.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|module| (module.clone(), reached_from(module))).collect();
    for (module, targets) in &reached {
        let cycle: Vec<String> =
            targets.iter().filter(|target| reached[*target].contains(module)).map(|path| path.join("/")).collect();
        assert!(
            cycle.len() <= LARGEST_CYCLE,
            "{} files form an import cycle, more than {LARGEST_CYCLE}:\n{}",
            cycle.len(),
            cycle.join("\n")
        );
    }
}

#[test]
fn paths_are_found() {
    let code = "pub use a::{self, b::{C, d}};\nfn f() { crate::x::y(1); }\nuse super::z as q;\n";
    let found: Vec<String> = paths_of(code).into_iter().collect();
    assert_eq!(found, ["a::b::C", "a::b::d", "a::self", "crate::x::y", "super::z as q"]);
}

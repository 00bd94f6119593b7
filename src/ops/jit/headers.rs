//! The headers that a CUDA C++ source may read.
//!
//! NVRTC does not report which headers it read. So this module finds every file that the compiler could read, as a
//! superset: it follows each `#include`, also one that a condition or a comment disables, to every folder of the search
//! path that has such a file, and to the folder of the file that has the directive. An include whose name a macro
//! computes, and an option that reads or writes other files, cannot be followed: such a source is not cached. A macro that
//! passes its parameter to `__has_include`, as CUDA's headers have, is followed to the names that are passed to it.
//!
//! The digest has the name and the text of each file. So a kernel is compiled again if any of the files changes, is added
//! in a folder that the compiler searches first, or is removed.

use super::digest::Digest;
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The maximum size of all files together. A source that reaches more is not cached.
const MAX_BYTES: u64 = 256 << 20;

/// The directives and operators that name a file.
const DIRECTIVES: [&str; 4] = ["include", "include_next", "import", "embed"];
const OPERATORS: [&str; 3] = ["__has_include", "__has_include_next", "__has_embed"];

/// Operators, and the macros that pass a parameter to one.
type Operators = BTreeSet<String>;

/// Returns the digest of the files that a source may read; `None` if they cannot be known.
pub fn digest(source: &str, include_dirs: &[PathBuf], options: &[String]) -> Option<Digest> {
    let mut operators: Operators = OPERATORS.into_iter().map(str::to_owned).collect();
    loop {
        let known = operators.len();
        let mut search = Search {
            folders: include_dirs.to_vec(),
            operators,
            hash: Sha256::new(),
            visited: BTreeSet::new(),
            bytes: 0,
        };
        let mut names = included_by_options(options, &mut search.folders)?;
        names.extend(included(source, &mut search.operators)?);
        // A source in memory is in the working directory.
        search.follow(&names, Path::new("."))?;
        if search.operators.len() == known {
            return Some(search.hash.finalize().into());
        }
        // Files that were read before such a macro was found may use it.
        operators = search.operators;
    }
}

/// The files that were found so far.
struct Search {
    folders: Vec<PathBuf>,
    operators: Operators,
    hash: Sha256,
    visited: BTreeSet<PathBuf>,
    bytes: u64,
}

impl Search {
    /// Adds the files of these names, as a file in a folder includes them. Returns `None` if they cannot be known.
    fn follow(&mut self, names: &BTreeSet<String>, folder: &Path) -> Option<()> {
        for name in names {
            // An absolute name replaces the folder that it is joined to.
            let folders = [folder, Path::new(".")].into_iter().chain(self.folders.iter().map(PathBuf::as_path));
            let candidates: Vec<PathBuf> = folders.map(|folder| folder.join(name)).collect();
            for path in candidates {
                self.add(&path)?;
            }
        }
        Some(())
    }

    /// Adds a file and what it includes, if the file exists.
    fn add(&mut self, path: &Path) -> Option<()> {
        // One name for each file: headers that include each other by "../" would have a name for each route.
        let Some((folder, name)) = path.parent().zip(path.file_name()) else { return Some(()) };
        let Ok(folder) = folder.canonicalize() else { return Some(()) };
        let path = &folder.join(name);
        if !path.is_file() || !self.visited.insert(path.clone()) {
            return Some(());
        }
        let content = fs::read(path).ok()?;
        self.bytes += content.len() as u64;
        if self.bytes > MAX_BYTES {
            return None;
        }
        let name = path.as_os_str().as_encoded_bytes();
        for part in [name, &content] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
        let names = included(&String::from_utf8_lossy(&content), &mut self.operators)?;
        self.follow(&names, &folder)
    }
}

/// Returns the files that options include, and adds the folders that options add to the search path. Returns `None` for
/// options that read or write other files.
fn included_by_options(options: &[String], folders: &mut Vec<PathBuf>) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        if option.contains("pch") || option.contains("time-trace") || option.starts_with('@') {
            return None;
        }
        // The longer names first: -include begins with -I in no case, but --include-path and -include do look alike.
        let value = |names: [&str; 2]| names.into_iter().find_map(|name| option.strip_prefix(name));
        let (value, is_folder) = match (value(["--include-path", "-I"]), value(["--pre-include", "-include"])) {
            (Some(value), _) => (value, true),
            (None, Some(value)) => (value, false),
            (None, None) => continue,
        };
        let value = match value.strip_prefix('=').unwrap_or(value).trim_start() {
            "" => rest.next()?.as_str(),
            value => value,
        };
        if is_folder {
            folders.push(PathBuf::from(value));
        } else {
            names.insert(value.to_owned());
        }
    }
    Some(names)
}

/// Returns the names that a text includes, whether its conditions hold or not; `None` if it computes a name. Adds the
/// macros that it defines as operators.
fn included(text: &str, operators: &mut Operators) -> Option<BTreeSet<String>> {
    // The compiler joins such lines first, and %: is another spelling of #.
    let joined = text.replace("\\\r\n", "").replace("\\\n", "").replace("%:", "#");
    let mut names = BTreeSet::new();
    for (at, _) in joined.match_indices('#') {
        let word = skip_blanks(&joined[at + 1..]);
        let Some(directive) = DIRECTIVES.iter().filter(|name| is_word(word, name)).max_by_key(|name| name.len()) else {
            continue;
        };
        let operand = skip_blanks(&word[directive.len()..]);
        match quoted(operand) {
            Some(name) => drop(names.insert(name.to_owned())),
            // Not at the start of a line it is part of a comment or of a text, or a macro's operator.
            None if !is_line_start(&joined[..at]) || operand.starts_with(['\n', '\r']) || operand.is_empty() => {}
            None => return None,
        }
    }
    let mut found = Operators::new();
    for operator in operators.iter() {
        for (at, _) in joined.match_indices(operator.as_str()) {
            let before = &joined[..at];
            // `#ifdef __has_include` has no operand.
            let Some(operand) = skip_blanks(&joined[at + operator.len()..]).strip_prefix('(') else { continue };
            let definition = defined_macro(before);
            if before.ends_with(is_identifier_part) || definition.is_some_and(str::is_empty) {
                continue;
            }
            match (quoted(skip_blanks(operand)), definition) {
                (Some(name), _) => drop(names.insert(name.to_owned())),
                (None, Some(definition)) => drop(found.insert(macro_of_parameter(definition, operand)?.to_owned())),
                (None, None) => return None,
            }
        }
    }
    operators.extend(found);
    Some(names)
}

/// Returns what follows `#define` in the last line of a text, if the line is such a directive.
fn defined_macro(before: &str) -> Option<&str> {
    let line = skip_blanks(before.rsplit('\n').next()?);
    skip_blanks(line.strip_prefix('#')?).strip_prefix("define").map(skip_blanks)
}

/// Returns the name of the macro with this definition, if an operand is one of its parameters.
fn macro_of_parameter<'a>(definition: &'a str, operand: &str) -> Option<&'a str> {
    let (name, rest) = definition.split_once('(')?;
    let (parameters, _) = rest.split_once(')')?;
    let operand = operand.split_once(')')?.0.trim();
    parameters.split(',').any(|parameter| parameter.trim() == operand).then_some(name)
}

fn is_identifier_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns whether a text begins with this identifier.
fn is_word(text: &str, word: &str) -> bool {
    let rest = text.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(is_identifier_part))
}

/// Skips blanks and comments, but no end of a line.
fn skip_blanks(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches([' ', '\t', '\x0b', '\x0c']);
        match text.strip_prefix("/*").and_then(|comment| comment.split_once("*/")) {
            Some((_, rest)) => text = rest,
            None => return text,
        }
    }
}

/// Returns whether only blanks and comments precede in the line.
fn is_line_start(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or("");
    skip_blanks(line).is_empty() || line.trim_end().ends_with("*/")
}

/// Returns the name in `"name"` or `<name>`.
fn quoted(text: &str) -> Option<&str> {
    let (rest, end) = match text.strip_prefix('"') {
        Some(rest) => (rest, '"'),
        None => (text.strip_prefix('<')?, '>'),
    };
    let name = &rest[..rest.find(end)?];
    (!name.contains('\n')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary;

    fn names(text: &str) -> Option<Vec<String>> {
        let mut operators = OPERATORS.into_iter().map(str::to_owned).collect();
        included(text, &mut operators).map(|names| names.into_iter().collect())
    }

    #[test]
    fn every_include_is_found() {
        assert_eq!(
            names(
                "#include <a>\n  # /* x */ include/**/\"b.h\" // c\n#if 0\n#\tinclude <c/d.h>\n#endif\n#inc\\\nlude \"e\"\n\
                 /* #include <f> */ const char *t = \"#include <g>\";\n/* y */ #include_next <h>\n%: embed \"i\" limit(3)\n\
                 #ifdef __has_include\n#if __has_include(<j>) && __has_include ( \"k\" )\n#endif\n#endif\n"
            )
            .unwrap(),
            ["a", "b.h", "c/d.h", "e", "f", "g", "h", "i", "j", "k"]
        );
        assert_eq!(names("int includes; #define include 1\n// no #include here\n#includes <x>").unwrap(), [""; 0]);
    }

    #[test]
    fn computed_names_are_unknown() {
        assert_eq!(names("#include NAME\n"), None);
        assert_eq!(names("/* x */ # include NAME\n"), None);
        assert_eq!(names("#if __has_include(NAME)\n#endif"), None);
        assert_eq!(names("#define HAS(x) __has_include(NAME)\n"), None);
        assert_eq!(names("#define HAS __has_include(NAME)\n"), None);
    }

    #[test]
    fn a_macro_may_pass_its_parameter() {
        let folder = temporary::folder().unwrap();
        let folders = [folder.path().to_owned()];
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let now = |source: &str| digest(source, &folders, &[]);
        let source = "#include \"use.h\"\n#include \"has.h\"\n";
        write("use.h", "#if HAS(<later.h>) && XHAS(<other.h>)\n#endif");
        write("has.h", "#ifdef __has_include\n# define HAS(_X) __has_include(_X)\n#else\n# define HAS(_X) 0\n#endif");
        let before = now(source);
        assert!(before.is_some());
        write("other.h", "");
        assert_eq!(now(source), before);
        write("later.h", "");
        assert_ne!(now(source), before);
        write("use.h", "#if HAS(NAME)\n#endif");
        assert_eq!(now(source), None);
    }

    #[test]
    fn every_file_that_can_be_read_changes_the_digest() {
        let folder = temporary::folder().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), text).unwrap();
        };
        let folders = [path("first"), path("second")];
        let source = "#include <a.h>\n#if 0\n#include \"d.h\"\n#endif";
        let now = |options: &[String]| digest(source, &folders, options);
        write("second/a.h", "#include \"deep/b.h\"");
        write("second/deep/b.h", "#include \"c.h\"\n#include <a.h>");
        write("second/deep/c.h", "3");
        let before = now(&[]);
        assert!(before.is_some());
        assert_eq!(now(&[]), before);
        let mut seen = vec![before];
        let mut expect_new = |what: &str| {
            let digest = now(&[]);
            assert!(digest.is_some() && !seen.contains(&digest), "{what}");
            seen.push(digest);
        };
        write("second/deep/c.h", "4");
        expect_new("a nested header changed");
        write("first/a.h", "5");
        expect_new("a header comes before another");
        write("second/d.h", "6");
        expect_new("a header appeared");
        fs::remove_file(path("second/deep/c.h")).unwrap();
        expect_new("a header disappeared");
        write("first/a.h", "#include NAME");
        assert_eq!(now(&[]), None);
    }

    #[test]
    fn options_can_include_too() {
        let folder = temporary::folder().unwrap();
        let header = folder.path().join("pre.h");
        fs::write(&header, "1").unwrap();
        let shown = folder.path().display().to_string();
        for options in [
            vec![format!("-include={}/pre.h", shown)],
            vec!["--pre-include".to_owned(), format!("{shown}/pre.h")],
            vec![format!("-I{shown}"), "-include".to_owned(), "pre.h".to_owned()],
            vec!["-I".to_owned(), shown.clone(), "--pre-include=pre.h".to_owned()],
            vec![format!("--include-path={shown}"), "-include=pre.h".to_owned()],
        ] {
            fs::write(&header, "1").unwrap();
            let before = digest("", &[], &options);
            fs::write(&header, "2").unwrap();
            assert!(before.is_some());
            assert_ne!(digest("", &[], &options), before, "{options:?}");
        }
        for option in ["--pch", "--create-pch=x", "-fdevice-time-trace=x", "-include"] {
            assert_eq!(digest("", &[], &[option.to_owned()]), None, "{option}");
        }
    }
}

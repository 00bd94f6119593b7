//! Checks that the files of licenses/ name the crates that Cargo.lock makes part of the library and of the tool.
//! `make licenses` rewrites them.

use std::{collections::BTreeSet, fs, process::Command};

/// Returns the crates that binaries of a package contain, as `name version`. `kinds` is cargo tree's kinds of edges.
fn crates(package: &str, kinds: &str) -> BTreeSet<String> {
    let targets = ["--target", "x86_64-unknown-linux-gnu", "--target", "aarch64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--prefix", "none", "--format", "{p}", "--package", package, "--edges", kinds])
        .args(targets)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    // name vVERSION (path of a crate of the workspace, or a mark of repetition)
    let names = lines.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" ").replace(" v", " "));
    let names: BTreeSet<_> = names.filter(|name| !name.is_empty()).collect();
    assert!(names.len() > 10, "{lines}");
    names
}

/// Fails if a list lacks a crate that is used, or names one that is not in Cargo.lock in this version. The programs that
/// write the lists ask for the whole workspace, so a list may have crates that only tests use.
fn assert_current(file: &str, listed: &BTreeSet<String>, used: &BTreeSet<String>) {
    let lock = fs::read_to_string("Cargo.lock").unwrap();
    let locked = between(&lock, "name = \"", "\"\n").into_iter().zip(between(&lock, "\nversion = \"", "\"\n"));
    let locked: BTreeSet<_> = locked.map(|(name, version)| format!("{name} {version}")).collect();
    let (missing, gone): (Vec<_>, Vec<_>) = (used.difference(listed).collect(), listed.difference(&locked).collect());
    assert!(missing.is_empty() && gone.is_empty(), "{file}: missing {missing:?}, gone {gone:?}; run `make licenses`");
}

/// Returns what stands between each occurrence of `before` and the next `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before).skip(1).map(|rest| rest.split(after).next().unwrap()).collect()
}

#[test]
fn the_bills_of_materials_are_current() {
    for package in ["plinth", "plinth-tool"] {
        let file = format!("licenses/{package}.cdx.json");
        let text = fs::read_to_string(&file).unwrap();
        let urls = between(&text, "\"purl\": \"pkg:cargo/", "\"");
        let listed = urls.iter().map(|url| url.split('?').next().unwrap().replace('@', " ")).collect();
        assert_current(&file, &listed, &crates(package, "normal,build"));
    }
}

#[test]
fn the_licences_of_others_are_current() {
    let file = "licenses/THIRD-PARTY.txt";
    let text = fs::read_to_string(file).unwrap();
    let listed = between(&text, "\n- ", "\n").into_iter().map(String::from).collect();
    let ours = |name: &String| name.starts_with("plinth ") || name.starts_with("plinth-");
    let used = crates("plinth-tool", "normal").into_iter().filter(|name| !ours(name)).collect();
    assert_current(file, &listed, &used);
}

//! Checks that c_tests/forked_calls.h calls each exported function in a forked child, and that docs/errors.md lists the
//! functions that are not refused there. The C program forked_calls checks that each call behaves as its class says.

use std::{collections::BTreeMap, fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Returns the class of each function in the table of calls.
fn classes() -> BTreeMap<String, &'static str> {
    const MACROS: &[(&str, &str)] = &[
        ("REFUSED", "refused"),
        ("REFUSED_VALUE", "refused"),
        ("RELEASED", "released"),
        ("RELEASED_VALUE", "released"),
        ("WORKS", "works"),
        ("WORKS_VOID", "works"),
    ];
    let table = read("c_tests/forked_calls.h");
    let (_, calls) = table.split_once("/* Calls that are refused. */").unwrap();
    let mut classes = BTreeMap::new();
    for (at, _) in calls.match_indices("(plinth_") {
        let name = calls[at + 1..].split('(').next().unwrap();
        let before = calls[..at].rsplit(|letter: char| !letter.is_ascii_uppercase() && letter != '_').next().unwrap();
        let (_, class) =
            MACROS.iter().find(|(known, _)| *known == before).unwrap_or_else(|| panic!("{name} has no class"));
        assert_eq!(classes.insert(name.to_string(), *class), None, "{name} is called twice");
    }
    classes
}

#[test]
fn each_function_has_one_class() {
    let listed: Vec<String> = classes().into_keys().collect();
    let mut exported: Vec<String> = read("tests/symbols.txt").lines().map(str::to_string).collect();
    exported.sort();
    assert_eq!(listed, exported);
}

#[test]
fn the_page_lists_the_functions_that_are_not_refused() {
    let page = read("docs/errors.md");
    for (class, row) in [("released", "| does nothing and succeeds | "), ("works", "| works | ")] {
        let cell = page.split_once(row).unwrap().1.split(['|', ';']).next().unwrap();
        let listed: Vec<&str> = cell.split('`').filter(|word| word.starts_with("plinth_")).collect();
        let called: Vec<String> =
            classes().into_iter().filter(|(_, found)| *found == class).map(|(name, _)| name).collect();
        assert_eq!(listed, called, "{class}");
    }
}

//! Checks that docs/from_torch.md lists each name of torch.cuda once, and that the functions it names exist.

use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The cells of a row of one of the tables: torch's names, plinth's, and the remark.
fn rows(page: &str) -> Vec<[String; 3]> {
    let tables = page.split("| torch.cuda | plinth | |\n|---|---|---|\n").skip(1);
    let lines = tables.flat_map(|table| table.lines().take_while(|line| line.starts_with('|')));
    lines
        .map(|line| {
            let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
            assert_eq!(cells.len(), 5, "a row has three cells: {line}");
            [cells[1].clone(), cells[2].clone(), cells[3].clone()]
        })
        .collect()
}

fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_lists_each_name_of_torch_once() {
    let list = read("tests/docs/torch_cuda.txt");
    let expected: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(expected.len() > 200);
    let page = read("docs/from_torch.md");
    let rows = rows(&page);
    let mut listed: Vec<&str> = rows.iter().flat_map(|[names, ..]| quoted(names)).collect();
    listed.sort_unstable();
    assert_eq!(listed, expected);
}

#[test]
fn each_name_has_functions_that_exist_or_a_reason() {
    let symbols = read("tests/symbols.txt");
    let symbols: BTreeSet<&str> = symbols.lines().collect();
    let page = read("docs/from_torch.md");
    let mut wrong = Vec::new();
    for [names, plinth, remark] in rows(&page) {
        if plinth == "none" {
            if remark.is_empty() {
                wrong.push(format!("{names}: no reason"));
            }
        } else if quoted(&plinth).count() == 0 {
            wrong.push(format!("{names}: neither a function nor none"));
        }
        for name in quoted(&plinth).chain(quoted(&remark)).filter(|name| name.starts_with("plinth_")) {
            if name != "plinth_status_t" && !symbols.contains(name) {
                wrong.push(format!("{names}: there is no {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

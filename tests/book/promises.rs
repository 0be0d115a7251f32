//! What SECURITY.md promises, and what the page of faults says was tried, is held by tests that
//! exist. The promises about the build itself, which no other test sees, are checked here as well.

use super::{files, no_faults, root};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::fs;
use std::path::Path;

/// The pages whose tables list promises and their tests, and the head of the column with the tests.
const PAGES: [(&str, &str, usize); 2] = [("SECURITY.md", "held by", 15), ("docs/faults.md", "test", 25)];
/// This file lists the checks of the conformance suite, once for all platforms.
const CONFORMANCE: &str = "crates/platforms/tests/suite/conformance";

/// A row of a table: its first cell, and the code between backquotes in its last one.
#[derive(Debug, Default)]
struct Row {
    first: String,
    cells: usize,
    code: Vec<String>,
}

/// The rows of the tables whose last column has this head.
fn rows(text: &str, head: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut row, mut last, mut in_head, mut is_meant) = (Row::default(), String::new(), false, false);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::TableHead) => in_head = true,
            Event::Start(Tag::TableRow) => row = Row::default(),
            Event::Start(Tag::TableCell) => {
                row.cells += 1;
                row.code.clear();
                last.clear();
            }
            Event::Text(text) => last.push_str(&text),
            Event::Code(code) => {
                last.push_str(&code);
                row.code.push(code.to_string());
            }
            Event::End(TagEnd::TableCell) if row.cells == 1 => row.first.clone_from(&last),
            Event::End(TagEnd::TableHead) => {
                is_meant = in_head && last == head;
                in_head = false;
            }
            Event::End(TagEnd::TableRow) if is_meant => rows.push(std::mem::take(&mut row)),
            _ => {}
        }
    }
    rows
}

/// Whether a file has a test of this name that runs: one with the attribute, or a check in the list
/// of the conformance suite.
fn has_test(file: &str, name: &str) -> bool {
    let Ok(source) = fs::read_to_string(root().join(file)) else { return false };
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let declares = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|line| line.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(|line| declares(line)) else { return false };
    if file.starts_with(CONFORMANCE) {
        let list = fs::read_to_string(root().join(CONFORMANCE).join("mod.rs")).unwrap();
        return list.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
    }
    let above = lines[..at].iter().rev();
    above.take_while(|line| line.starts_with('#') || line.starts_with("///")).any(|line| *line == "#[test]")
}

/// What is wrong with the tests that a row names.
fn faults_of(row: &Row) -> Vec<String> {
    let (mut file, mut tests, mut faults) = (None, 0, Vec::new());
    for code in &row.code {
        if code.contains('/') {
            file = Some(code);
            continue;
        }
        tests += 1;
        match file {
            Some(file) if has_test(file, code) => {}
            Some(file) => faults.push(format!("{}: {file} has no test {code}", row.first)),
            None => faults.push(format!("{}: {code} is in no file", row.first)),
        }
    }
    if tests == 0 {
        faults.push(format!("{}: no test is named", row.first));
    }
    faults
}

#[test]
fn every_promise_names_tests_that_exist() {
    let table = "| promise | held by |\n|---|---|\n| A | `tests/book/promises.rs`: `rows`, `every_promise_names_tests_that_exist` |\n| B | nothing |\n";
    let found: Vec<String> = rows(table, "held by").iter().flat_map(faults_of).collect();
    assert_eq!(found, ["A: tests/book/promises.rs has no test rows", "B: no test is named"]);
    for (page, head, least) in PAGES {
        let rows = rows(&fs::read_to_string(root().join(page)).unwrap(), head);
        assert!(rows.len() >= least, "promises are not found any more in {page}: {}", rows.len());
        let faults: Vec<String> = rows.iter().flat_map(faults_of).collect();
        no_faults(&format!("{page} relies on tests that do not exist"), &faults);
    }
}

/// Words of a program that uses a network. Only cargo does, for what `Cargo.lock` names.
const NETWORK: [&str; 9] =
    ["std::net", "TcpStream", "UdpSocket", "http:", "https:", "ureq", "curl", "wget", "\"git\""];
/// What build scripts may start: the variables in which cargo names itself and the compiler.
const MAY_START: [&str; 2] = ["variable(\"CARGO\")", "rustc()"];
/// What build scripts may use: nothing that has a network client.
const MAY_USE: [&str; 6] = ["base64", "flate2", "liblzma", "plotly", "sha2", "twox-hash"];

/// The forbidden things that a build script does.
fn faults_of_build_script(path: &Path, source: &str) -> Vec<String> {
    let network = NETWORK.iter().filter(|word| source.contains(**word)).map(|word| format!("names {word}"));
    let starts = source.split("Command::new(").skip(1);
    let others = starts.filter(|rest| !MAY_START.iter().any(|program| rest.starts_with(program)));
    let started = others.map(|rest| format!("starts {}", rest.split(')').next().unwrap_or_default()));
    network.chain(started).map(|fault| format!("{} {fault}", path.display())).collect()
}

/// The names below `[build-dependencies]` in a manifest.
fn build_dependencies(manifest: &str) -> Vec<&str> {
    let after = manifest.lines().skip_while(|line| line.trim() != "[build-dependencies]").skip(1);
    let lines = after.take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', '=', ' ']).next());
    names.filter(|name| !name.is_empty() && !name.starts_with('#')).collect()
}

#[test]
fn build_scripts_reach_nothing_and_start_only_the_compiler() {
    let bad = "use std::net::TcpStream; Command::new(\"sh\"); Command::new(variable(\"CARGO\"))";
    let found = faults_of_build_script(Path::new("x"), bad);
    assert_eq!(found, ["x names std::net", "x names TcpStream", "x starts \"sh\""]);
    assert_eq!(
        build_dependencies("[build-dependencies]\na.workspace = true\n\n# b\nc = \"1\"\n[x]\nd = 1"),
        ["a", "c"]
    );
    let mut faults = Vec::new();
    let (mut scripts, mut modules) = (0, 0);
    for manifest in files("crates", "/Cargo.toml") {
        let text = fs::read_to_string(root().join(&manifest)).unwrap();
        let used = build_dependencies(&text);
        let others = used.iter().filter(|name| !MAY_USE.contains(name));
        faults.extend(others.map(|name| format!("{} builds with {name}", manifest.display())));
        let named = text.lines().find(|line| line.split('=').next().is_some_and(|key| key.trim() == "build"));
        if let Some(other) = named.filter(|line| *line != "build = \"build.rs\"") {
            faults.push(format!("{} has {other}, which is not looked at", manifest.display()));
        }
        let script = manifest.with_file_name("build.rs");
        if let Ok(source) = fs::read_to_string(root().join(&script)) {
            scripts += 1;
            faults.extend(faults_of_build_script(&script, &source));
        }
        // The modules of a build script are in a directory beside it.
        let directory = manifest.with_file_name("build");
        if root().join(&directory).is_dir() {
            for module in files(&directory.display().to_string(), ".rs") {
                let source = fs::read_to_string(root().join(&module)).unwrap();
                modules += 1;
                faults.extend(faults_of_build_script(&module, &source));
            }
        }
    }
    assert!(scripts >= 2, "build scripts are not found any more: {scripts}");
    assert!(modules >= 1, "modules of build scripts are not found any more: {modules}");
    no_faults("what is built as it comes from elsewhere", &faults);
}

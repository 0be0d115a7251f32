//! Checks the book: its reference is the binary's own output, and what the other pages say about
//! commands, files and names is true.
//!
//! `WEIGH_BLESS=1 cargo test --package weighbridge --test suite book::` rewrites the reference and
//! the lists in SUMMARY.md that follow from it.

mod claims;
mod lines;
mod measured;
mod page;
#[path = "book/promises.rs"]
mod promises;
#[path = "book/specification.rs"]
mod specification;

use crate::support::Stage;
use page::Page;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// The command that writes the generated pages.
const BLESS: &str = "`WEIGH_BLESS=1 cargo test --package weighbridge --test suite book::`";
/// Beginning of the refusal of an environment whose image has to be built first. By then everything
/// else about the environment was accepted.
const NO_IMAGE: &str = "is not here yet: get it with `weigh image build";
/// The end of each of clap's errors about a command line.
const USAGE: &str = "For more information, try '--help'";
/// An option that does not exist.
const NO_OPTION: &str = "--no-such-option";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every file below a directory of the checkout whose name ends with `ending`, in order.
fn files(directory: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from(directory)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name());
            match entry.file_type().unwrap().is_dir() {
                true => open.push(path),
                false if path.to_string_lossy().ends_with(ending) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}

/// Every page of the book, and the pages beside it.
fn pages() -> BTreeMap<PathBuf, Page> {
    let beside = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(PathBuf::from);
    let page = |path: PathBuf| {
        let text = fs::read_to_string(root().join(&path)).unwrap();
        let page = Page::parse(&path, &text);
        (path, page)
    };
    files("docs", ".md").into_iter().chain(beside).map(page).collect()
}

fn is_generated(path: &Path) -> bool {
    path.starts_with("docs/reference") || path == Path::new("docs/reference.md")
}

fn no_faults(what: &str, faults: &[String]) {
    assert!(faults.is_empty(), "{what}:\n  {}", faults.join("\n  "));
}

/// The commands that a `--help` text lists, each with its description.
fn commands(help: &str) -> Vec<(String, String)> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let mut found: Vec<(String, String)> = Vec::new();
    for line in list.take_while(|line| !line.is_empty()) {
        match line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) {
            Some(rest) => {
                let (name, summary) = rest.split_once(' ').unwrap_or((rest, ""));
                found.push((name.into(), summary.trim().into()));
            }
            None => {
                let (_, summary) = found.last_mut().unwrap();
                write!(summary, " {}", line.trim()).unwrap();
            }
        }
    }
    found.retain(|(name, _)| name != "help");
    found
}

/// Output in a block of code, without blanks at line ends.
fn block(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
    format!("```text\n{}\n```\n", lines.join("\n"))
}

/// The pages of the reference, by path.
fn reference(stage: &Stage) -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    let help = stage.stdout("--help");
    let mut index = format!(
        "# Every command\n\nWhat `weigh --help` says. Each command has a page below, with every option. `weigh man DIR` writes the same as manual \
         pages, `weigh completions SHELL` completes it.\n\n{}\n",
        block(&help)
    );
    for (command, summary) in commands(&help) {
        let help = stage.stdout(&format!("{command} --help"));
        let mut text = format!("# weigh {command}\n\n{}", block(&help));
        for (inner, _) in commands(&help) {
            let help = stage.stdout(&format!("{command} {inner} --help"));
            write!(text, "\n## weigh {command} {inner}\n\n{}", block(&help)).unwrap();
        }
        pages.insert(format!("docs/reference/{command}.md").into(), text);
        writeln!(index, "- [weigh {command}](reference/{command}.md): {summary}").unwrap();
    }
    index += "\n[Every platform and key](reference/platforms.md) and [every workload and parameter](reference/workloads.md) are what `weigh list --details` says.\n";
    pages.insert("docs/reference.md".into(), index);
    let lists = [
        (
            "platforms",
            "Every platform and key",
            "[Choosing a platform](../platforms.md) says what they are for. On x86-64:",
        ),
        ("workloads", "Every workload and parameter", "[Workloads](../catalogue.md) says what they are for."),
    ];
    for (what, title, before) in lists {
        let list = stage.stdout(&format!("list {what} --details"));
        let text =
            format!("# {title}\n\nWhat `weigh list {what} --details` says. {before}\n\n{}", block(&list));
        pages.insert(format!("docs/reference/{what}.md").into(), text);
    }
    if !cfg!(target_arch = "x86_64") {
        // Other architectures have other machine types and CPU models.
        pages.remove(Path::new("docs/reference/platforms.md"));
    }
    pages
}

/// SUMMARY.md with these entries in place of those that link to `directory`.
fn summary_with(summary: &str, directory: &str, entries: &[String]) -> String {
    let lists = |line: &&str| line.contains(&format!("]({directory}/"));
    let mut lines: Vec<&str> = Vec::new();
    let mut is_written = false;
    for line in summary.lines() {
        if !lists(&line) {
            lines.push(line);
        } else if !is_written {
            is_written = true;
            lines.extend(entries.iter().map(String::as_str));
        }
    }
    lines.join("\n") + "\n"
}

/// Writes the reference, and the entries of SUMMARY.md that follow from it.
fn bless(stage: &Stage, wanted: &BTreeMap<PathBuf, String>) {
    fs::create_dir_all(root().join("docs/reference")).unwrap();
    for path in files("docs/reference", ".md").iter().filter(|path| !wanted.contains_key(*path)) {
        // The page of platforms belongs to another architecture.
        if !path.ends_with("platforms.md") {
            fs::remove_file(root().join(path)).unwrap();
        }
    }
    for (path, text) in wanted {
        fs::write(root().join(path), text).unwrap();
    }
    let names = commands(&stage.stdout("--help"));
    let mut reference: Vec<String> =
        names.iter().map(|(name, _)| format!("  - [weigh {name}](reference/{name}.md)")).collect();
    reference.push("  - [Every platform and key](reference/platforms.md)".into());
    reference.push("  - [Every workload and parameter](reference/workloads.md)".into());
    let decision = |path: &PathBuf| {
        let text = fs::read_to_string(root().join(path)).unwrap();
        let title = text.lines().next().unwrap().trim_start_matches("# ");
        format!("  - [{title}]({})", path.strip_prefix("docs").unwrap().display())
    };
    let decisions: Vec<String> = files("docs/design", ".md").iter().map(decision).collect();
    let file = root().join("docs/SUMMARY.md");
    let summary = summary_with(&fs::read_to_string(&file).unwrap(), "reference", &reference);
    fs::write(file, summary_with(&summary, "design", &decisions)).unwrap();
}

/// The reference is the binary's own output: a change of the command line shows in review, and a
/// new command has its page.
#[test]
fn the_reference_matches_the_output_of_the_binary() {
    let stage = Stage::with_fakes();
    let wanted = reference(&stage);
    assert!(wanted.len() > 14 && wanted.contains_key(Path::new("docs/reference/run.md")));
    if std::env::var_os("WEIGH_BLESS").is_some_and(|value| value == "1") {
        bless(&stage, &wanted);
        return;
    }
    let differs = |(path, text): (&PathBuf, &String)| {
        let there = fs::read_to_string(root().join(path)).unwrap_or_default();
        let line = there.lines().zip(text.lines()).find(|(there, now)| there != now);
        let line = line.map_or("its length".into(), |(there, now)| format!("`{there}` is now `{now}`"));
        (there != *text).then(|| format!("{}: {line}", path.display()))
    };
    let faults: Vec<String> = wanted.iter().filter_map(differs).collect();
    no_faults(&format!("{BLESS} writes these pages again"), &faults);
}

/// Pages of the book that SUMMARY.md does not name.
fn unnamed(summary: &Page, pages: &[PathBuf]) -> Vec<String> {
    let named: BTreeSet<PathBuf> = summary.links.iter().map(|link| Path::new("docs").join(link)).collect();
    let missing = |path: &&PathBuf| !named.contains(*path) && !path.ends_with("SUMMARY.md");
    pages.iter().filter(missing).map(|path| path.display().to_string()).collect()
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_somewhere() {
    let pages = pages();
    assert!(pages.len() > 60, "{}", pages.len());
    let summary = &pages[Path::new("docs/SUMMARY.md")];
    no_faults(
        &format!("SUMMARY.md does not name these; {BLESS} adds decisions"),
        &unnamed(summary, &files("docs", ".md")),
    );
    let is_file = |path: &Path| root().join(path).is_file();
    let broken: Vec<String> = pages.values().flat_map(|page| page.broken_links(&pages, &is_file)).collect();
    no_faults("links that lead nowhere", &broken);
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    assert!(links > 150, "links are not found any more: {links}");
}

/// A command line of the book in which existing files replace those of the reader, without anything
/// that a test host lacks.
fn lent(words: &[String], stage: &Stage) -> Vec<String> {
    let here = stage.here();
    let file = here.join("lent");
    fs::write(&file, "").unwrap();
    let lent = |key: &str| {
        ["binary", "kernel", "image", "criu", "device", "identity", "config", "known-hosts"].contains(&key)
    };
    let environment = |text: &str| -> String {
        let key = |part: &str| match part.split_once('=') {
            Some((before, _)) if lent(before.rsplit(':').next().unwrap_or_default()) => {
                format!("{before}={}", file.display())
            }
            Some((before, value)) if before.ends_with("rootfs") && value != "probe" => {
                format!("{before}=host")
            }
            _ => part.to_string(),
        };
        let one = |text: &str| text.split(',').map(key).collect::<Vec<_>>().join(",");
        text.split(';').map(one).collect::<Vec<_>>().join(";")
    };
    let mut before = "";
    let mut result = Vec::new();
    for word in words {
        if before == "--" || word == "--" {
            before = "--";
            result.push(word.clone());
            continue;
        }
        result.push(match before {
            "--on" | "--baseline" | "--loader" => environment(word),
            _ if words[0] == "gate" && word.contains(':') => environment(word),
            "--image" if word == "debian" || word.starts_with("oci:") => "probe".into(),
            "--workload" => {
                let page = fs::read_to_string(root().join("docs/workloads.md")).unwrap();
                let page = Page::parse(Path::new("docs/workloads.md"), &page);
                let (_, example) = page.blocks.iter().find(|(language, _)| language == "toml").unwrap();
                fs::write(here.join("example.toml"), example).unwrap();
                "example.toml".into()
            }
            _ => word.clone(),
        });
        before = word;
    }
    result
}

/// Why the binary refuses a command line of the book, as far as that shows without carrying it out.
fn refusal(stage: &Stage, line: &str) -> Option<String> {
    let words = match lines::words(line) {
        Ok(words) => lent(&words, stage),
        Err(why) => return Some(why),
    };
    let said = |words: &[String]| {
        let cache = stage.here().join("cache");
        let output = stage.weigh().env("WEIGH_CACHE", cache).args(words).output().unwrap();
        // Undo the wrapping and drawing of the message.
        let said = String::from_utf8_lossy(&output.stderr).replace(['│', '×'], " ");
        (output.status.success(), said.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    match words.first().map(String::as_str) {
        None => None,
        // These are parsed completely, down to keys of environments and parameters of workloads,
        // but nothing is done.
        Some("run" | "plan" | "gate" | "start" | "density") => {
            let mut words = words.clone();
            if !words.iter().any(|word| word == "--dry-run") {
                words.insert(1, "--dry-run".into());
            }
            let needs_root = words.iter().any(|word| word == "cold") && !rustix::process::geteuid().is_root();
            let (done, said) = said(&words);
            (!done && !said.contains(NO_IMAGE) && !needs_root).then_some(said)
        }
        // These read what does not exist, and undo what nobody did.
        Some("show" | "compare" | "analyse" | "resume" | "list" | "clean" | "completions" | "man") => {
            let (done, said) = said(&words);
            (!done && said.contains(USAGE)).then_some(said)
        }
        // These would do something. An option that does not exist prevents that, and is the only
        // error of a correct line.
        Some(_) => {
            let (_, said) = said(&[&words[..], &[NO_OPTION.to_string()]].concat());
            (!said.contains(&format!("unexpected argument '{NO_OPTION}'"))).then_some(said)
        }
    }
}

/// The command lines of the book, each with the page on which it appears first.
fn book_lines(pages: &BTreeMap<PathBuf, Page>) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for (path, page) in pages {
        for (_, text) in &page.blocks {
            let lines = if is_generated(path) { lines::examples(text) } else { lines::command_lines(text) };
            for line in lines {
                found.entry(line).or_insert_with(|| path.clone());
            }
        }
    }
    found
}

#[test]
fn every_command_line_is_taken() {
    let stage = Stage::with_fakes();
    let lines = book_lines(&pages());
    assert!(lines.len() > 80, "command lines are not found any more: {}", lines.len());
    let tell = |(line, path): (&String, &PathBuf)| {
        refusal(&stage, line).map(|why| format!("{}: {line}\n    {why}", path.display()))
    };
    let faults: Vec<String> = lines.iter().filter_map(tell).collect();
    no_faults("command lines that weigh does not take", &faults);
    assert!(!stage.here().join("weigh-runs").exists(), "something was measured");
}

/// The names in the output of `weigh list`: platforms, aliases, workloads.
fn names(stage: &Stage, what: &str) -> (Vec<String>, Vec<String>) {
    let list: Value = stage.json(&format!("list {what} --json"));
    let is_alias = |entry: &&Value| entry["summary"].as_str().unwrap().starts_with("alias of ");
    let (aliases, names): (Vec<&Value>, Vec<&Value>) = list.as_array().unwrap().iter().partition(is_alias);
    let name = |entry: &Value| entry["name"].as_str().unwrap().to_string();
    (names.into_iter().map(name).collect(), aliases.into_iter().map(name).collect())
}

/// Names that are not among these words.
fn absent<'a>(names: &'a [String], words: &[String]) -> Vec<&'a str> {
    names.iter().filter(|name| !words.contains(name)).map(String::as_str).collect()
}

#[test]
fn every_platform_and_workload_is_described() {
    let stage = Stage::with_fakes();
    let pages = pages();
    let (platforms, aliases) = names(&stage, "platforms");
    let (workloads, _) = names(&stage, "workloads");
    assert!(platforms.len() > 15 && aliases.len() > 3 && workloads.len() > 50);
    let choosing = &pages[Path::new("docs/platforms.md")];
    let none: [&str; 0] = [];
    assert_eq!(
        absent(&platforms, &choosing.heading_words),
        none,
        "platforms without a heading in docs/platforms.md"
    );
    let catalogue = &pages[Path::new("docs/catalogue.md")];
    assert_eq!(absent(&workloads, &catalogue.words), none, "workloads that docs/catalogue.md does not name");
    let written = pages.values().filter(|page| !is_generated(&page.path));
    let words: Vec<String> = written.flat_map(|page| page.words.iter().cloned()).collect();
    assert_eq!(absent(&aliases, &words), none, "aliases that no page names");
}

/// The messages that a page quotes: between backquotes, after `**Message:**` and before the next
/// bold word.
fn quoted(page: &str) -> Vec<&str> {
    let told = page.split("**Message:**").skip(1).map(|rest| rest.split("**").next().unwrap_or_default());
    told.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

/// Source as it is compiled: strings that continue on the next line are joined.
fn unbroken(source: &str) -> String {
    let mut pieces = source.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_string();
    pieces.fold(first, |text, piece| text + piece.trim_start())
}

/// A user who searches for what the screen shows must find it: messages are quoted exactly as in
/// the source.
#[test]
fn quoted_messages_are_in_the_source() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let messages = quoted(&page);
    assert!(messages.len() > 30, "{messages:?}");
    let text = |path: &PathBuf| unbroken(&fs::read_to_string(root().join(path)).unwrap());
    let sources: Vec<String> = files("crates", ".rs").iter().map(text).collect();
    let unknown = |message: &&&str| !sources.iter().any(|source| source.contains(**message));
    let faults: Vec<String> = messages.iter().filter(unknown).map(ToString::to_string).collect();
    no_faults("docs/troubleshooting.md quotes what nothing says", &faults);
}

mod checkers {
    use super::*;

    fn page(path: &str, text: &str) -> (PathBuf, Page) {
        (path.into(), Page::parse(Path::new(path), text))
    }

    /// The reported fault of each of these links; nothing for correct ones.
    #[test]
    fn links_that_lead_nowhere_are_reported() {
        let pages: BTreeMap<PathBuf, Page> = [
            page("docs/README.md", "# Title\n"),
            page("docs/a/one.md", "# A heading, with `code`!\n\n## Twice\n\n## Twice\n"),
            page("docs/a/this.md", "# Own\n"),
            page("README.md", "# Out\n"),
        ]
        .into();
        let is_file = |path: &Path| pages.contains_key(path) || path == Path::new("docs/picture.svg");
        let cases = [
            ("one.md", ""),
            ("../picture.svg", ""),
            ("https://example.org/nothing", ""),
            ("one.md#a-heading-with-code", ""),
            ("one.md#twice-1", ""),
            ("one.md#twice-2", "has no such heading"),
            ("#twice", "has no such heading"),
            ("#own", ""),
            ("two.md", "is no file"),
            ("../a", "is no file"),
            ("../../README.md", "leads out of the book"),
            ("../README.md", "is index.html in the book"),
            ("../../../x", "leads out of the repository"),
            ("/etc/passwd", "leads out of the repository"),
        ];
        for (link, expected) in cases {
            let (_, this) = page("docs/a/this.md", &format!("# Own\n\n| [text]({link}) |\n|---|\n"));
            let broken = this.broken_links(&pages, &is_file);
            assert_eq!(broken.is_empty(), expected.is_empty(), "{link}: {broken:?}");
            assert!(broken.iter().all(|fault| fault.ends_with(expected)), "{link}: {broken:?}");
        }
        let (_, outside) = page("README.md", "[book](docs/README.md), [gone](docs/gone.md)");
        assert_eq!(outside.broken_links(&pages, &is_file), ["README.md: docs/gone.md is no file"]);
    }

    #[test]
    fn pages_that_the_summary_forgets_are_reported() {
        let (_, summary) = page("docs/SUMMARY.md", "- [One](a/one.md)\n");
        let there = ["docs/SUMMARY.md", "docs/a/one.md", "docs/two.md"].map(PathBuf::from);
        assert_eq!(unnamed(&summary, &there), ["docs/two.md"]);
    }

    #[test]
    fn entries_of_the_summary_are_replaced_in_their_place() {
        let summary = "# S\n- [a](a.md)\n  - [x](design/x.md)\n  - [y](design/y.md)\n- [b](b.md)\n";
        let now = summary_with(summary, "design", &["  - [z](design/z.md)".into()]);
        assert_eq!(now, "# S\n- [a](a.md)\n  - [z](design/z.md)\n- [b](b.md)\n");
    }

    #[test]
    fn commands_of_a_help_are_found() {
        let help = "Says\n\nCommands:\n  run     Does this\n          and that\n  help    Print\n\nOptions:\n  -h  x\n";
        assert_eq!(commands(help), [("run".to_string(), "Does this and that".to_string())]);
    }

    #[test]
    fn command_lines_are_found_as_a_shell_takes_them() {
        let block = "apt-get install x\nweigh run a \\\n  --on 'b;c'   # says why; (really)\n    - sudo weigh clean\nweighty\n$ weigh show | head\n";
        let found = lines::command_lines(block);
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(lines::words(&found[0]).unwrap(), ["run", "a", "--on", "b;c"]);
        assert_eq!(lines::words(&found[1]).unwrap(), ["clean"]);
        assert_eq!(lines::words(&found[2]).unwrap(), ["show"]);
        assert!(lines::words("weigh run --on native;docker").is_err());
        assert!(lines::words("weigh run --on 'native").is_err());
        assert_eq!(
            lines::examples("Usage: x\n\nExamples:\n  weigh run a\n  weigh start\n\nweigh is"),
            ["weigh run a", "weigh start"]
        );
    }

    /// Each line, with what the binary must say about it; nothing for lines that it accepts.
    #[test]
    fn command_lines_that_are_wrong_are_refused() {
        let stage = Stage::with_fakes();
        let cases = [
            ("weigh", ""),
            ("weigh run stream --on 'native;docker:net=nat'", ""),
            ("weigh run stream --on native --dry-run", ""),
            ("weigh run stream --on native,docker:net=nat", ""),
            ("weigh run stream --on native,net=nat", "the keys of an environment follow a colon"),
            (
                "weigh run syscall --on runc:binary=/opt/no/runc,label=new --baseline runc:binary=/opt/no/runc,label=new",
                "",
            ),
            ("weigh run lzma --on qemu:init=full,root=disk", ""),
            ("weigh run -- xz --no-such-option-of-xz", ""),
            ("weigh start --on native --guests 1,8", ""),
            ("weigh image build debian", ""),
            ("weigh selftest --tools --pair stream", ""),
            ("weigh doctor --json", ""),
            ("weigh compare before after --gate 3", ""),
            ("weigh run stream --oops", "--oops"),
            ("weigh run no-such-workload", "no-such-workload"),
            ("weigh run stream --on dokcer", "dokcer"),
            ("weigh run stream --on docker:net=nta", "nta"),
            ("weigh run stream --param no-such-parameter=1", "no-such-parameter"),
            ("weigh run stream --size huge", "huge"),
            ("weigh run stream --blocks 3 --quick", "--quick"),
            ("weigh run redis --on native --loader ssh:host=a,colour=red", "colour"),
            ("weigh compare a b --with", "--with"),
            ("weigh compare", "RUN"),
            ("weigh show last --format papyrus", "papyrus"),
            ("weigh doctor --yaml", "--yaml"),
            ("weigh image build debian twice", "twice"),
            ("weigh selftest --quick", "--quick"),
            ("weigh frobnicate", "frobnicate"),
        ];
        for (line, expected) in cases {
            let refused = refusal(&stage, line);
            assert_eq!(refused.is_none(), expected.is_empty(), "{line}: {refused:?}");
            assert!(refused.unwrap_or_default().contains(expected), "{line}");
        }
    }

    #[test]
    fn names_without_a_description_are_reported() {
        let (_, page) = page("docs/platforms.md", "## `one`, `two`\n\n`three`\n");
        let names = ["one", "two", "three"].map(String::from);
        assert_eq!(absent(&names, &page.heading_words), ["three"]);
        assert_eq!(absent(&names, &page.words), [""; 0]);
    }

    #[test]
    fn messages_are_quoted_and_sources_are_joined() {
        let text = "**Message:** `a b`, or `c`. **Cause:** `d`.\n\n**Remedy:** `e`. **Message:** `f`.";
        assert_eq!(quoted(text), ["a b", "c", "f"]);
        assert_eq!(unbroken("\"a \\\n      b\""), "\"a b\"");
    }
}

//! The state of the host, which the tests compare before and after.

use super::{engine, processes};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The names of weighbridge runs elsewhere, with the containers and links that they made. They come
/// from the ledgers of every `weigh` process whose state directory is not below `place`, from other
/// tests' places, and from the mark of the tests of single platforms.
fn others(place: &Path) -> Vec<String> {
    let mut names = vec!["weighbridge-test-".to_string()];
    for process in list(Path::new("/proc")) {
        let Ok(program) = std::fs::read_to_string(process.join("comm")) else { continue };
        if program.trim() != "weigh" {
            continue;
        }
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let state = environment.split('\0').find_map(|variable| variable.strip_prefix("WEIGH_STATE="));
        let state = Path::new(state.unwrap_or("/var/lib/weighbridge"));
        if !state.starts_with(place) {
            names.push(state.display().to_string());
            let ledgers = list(&state.join("ledger"));
            let runs = ledgers.iter().filter_map(|path| path.file_stem()?.to_str());
            names.extend(runs.map(str::to_string));
        }
    }
    let stages = [processes::place(), processes::DISK.into(), std::env::temp_dir()]
        .into_iter()
        .flat_map(|parent| list(&parent));
    let stages = stages.filter(|path| path.file_name() != place.file_name());
    let stages = stages.filter_map(|path| Some(path.to_str()?.to_string()));
    names.extend(stages.filter(|path| path.contains("weigh-test-")));
    let is_other = |text: &str| names.iter().any(|name| text.contains(name));
    let links = list(Path::new("/sys/class/net")).into_iter();
    let links =
        links.filter(|link| is_other(&std::fs::read_to_string(link.join("ifalias")).unwrap_or_default()));
    let links = links.filter_map(|link| Some(link.file_name()?.to_str()?.to_string()));
    let containers: serde_json::Value =
        serde_json::from_str(&engine::list(engine::LISTS[0].0)).unwrap_or_default();
    let containers = containers.as_array().into_iter().flatten();
    let containers = containers.filter(|one| is_other(&one.to_string()));
    let containers = containers.filter_map(|one| Some(one["Id"].as_str()?.to_string()));
    let found: Vec<String> = links.chain(containers).collect();
    names.extend(found);
    names
}

pub fn list(directory: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Links, rules, mounts, cgroups, containers, images, volumes, networks, processes, and files of
/// this tool.
pub struct HostState {
    lines: BTreeSet<String>,
    /// Parts of the names of things that belong to other runs of weighbridge.
    others: Vec<String>,
    /// The name of the test's directories.
    name: String,
}

impl HostState {
    /// Captures the host now. What runs outside of `place` made is recorded as such.
    pub fn capture(place: &Path) -> Self {
        let mut lines = BTreeSet::new();
        let mut add = |kind: &str, text: String| {
            lines.extend(
                text.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("{kind}: {line}")),
            );
        };
        // Counters and times are stripped, so that only the presence of things is compared.
        add("link", words(&output("ip", &["-o", "-br", "link"]), &[0]));
        // An engine's bridge gets its link-local address when it is first up, and keeps it.
        let addresses = words(&output("ip", &["-o", "-br", "address"]), &[0, 2, 3, 4]);
        let lasting = |line: &str| {
            line.split_whitespace().filter(|word| !word.starts_with("fe80:")).collect::<Vec<_>>().join(" ")
        };
        add("address", addresses.lines().map(lasting).collect::<Vec<_>>().join("\n"));
        add("netns", output("ip", &["netns", "list"]));
        add(
            "rule",
            output("iptables-save", &[])
                .lines()
                .filter(|l| l.starts_with("-A"))
                .collect::<Vec<_>>()
                .join("\n"),
        );
        // Counters of rules show traffic, not the presence of rules.
        let unnumbered = |text: String| {
            let word = |before: &str, word: &str| match before {
                "packets" | "bytes" => "n".to_string(),
                _ => word.to_string(),
            };
            let line = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let before = std::iter::once("").chain(words.iter().copied());
                before.zip(&words).map(|(before, this)| word(before, this)).collect::<Vec<_>>().join(" ")
            };
            text.lines()
                .filter(|line| !line.trim().starts_with("# "))
                .map(line)
                .collect::<Vec<_>>()
                .join("\n")
        };
        add("nft", unnumbered(output("nft", &["list", "ruleset"])));
        for (path, member) in engine::LISTS {
            add(&format!("engine's {path}"), named(&engine::list(path), member).join("\n"));
        }
        for setting in ["mm/hugepages/hugepages-2048kB/nr_hugepages", "mm/ksm/run"] {
            let value = std::fs::read_to_string(format!("/sys/kernel/{setting}")).unwrap_or_default();
            add("setting", format!("{setting} {}", value.trim()));
        }
        add("mount", mounts());
        add("cgroup", cgroups(Path::new("/sys/fs/cgroup")).join("\n"));
        add("process", processes().join("\n"));
        // The first caller of the runtime makes the directory itself, which stays.
        add(
            "runc",
            list(Path::new("/run/runc")).iter().map(|path| path.display().to_string() + "\n").collect(),
        );
        for directory in ["/run", "/tmp", "/var/tmp", "/var/lib", "/dev/shm"] {
            let ours = list(Path::new(directory)).into_iter().filter(|path| path != Path::new("/run/runc"));
            // Other programs make and remove files there all the time: only our own names count.
            let names = ours.map(|path| path.display().to_string());
            let left = names.filter(|name| ["weigh", "runc"].iter().any(|word| name.contains(word)));
            let tests = ["weigh-test-", "weigh-runner-"];
            let left = left.filter(|name| !tests.iter().any(|prefix| name.contains(prefix)));
            add("file", left.collect::<Vec<_>>().join("\n"));
        }
        Self { lines, others: others(place), name: place.file_name().unwrap().to_string_lossy().into() }
    }

    /// What exists only before or only after, and belongs to no other run.
    pub fn difference(&self, after: &Self) -> Vec<String> {
        // Another test may have removed its place since its process was seen.
        let elsewhere = |line: &str| line.contains("/weigh-test-") && !line.contains(&self.name);
        let known =
            |line: &str| self.others.iter().chain(&after.others).any(|name| line.contains(name.as_str()));
        let is_own = |line: &&String| !elsewhere(line) && !known(line);
        let gone = self.lines.difference(&after.lines).filter(is_own).map(|line| format!("gone  {line}"));
        let new = after.lines.difference(&self.lines).filter(is_own).map(|line| format!("new   {line}"));
        gone.chain(new).collect()
    }

    /// The lines that contain a name.
    pub fn lines_with(&self, name: &str) -> Vec<String> {
        self.lines.iter().filter(|line| line.contains(name)).cloned().collect()
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    std::process::Command::new(program)
        .args(arguments)
        .stderr(std::process::Stdio::null())
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// Some words of each line: whether a link is up changes a little after its last container ends.
fn words(text: &str, wanted: &[usize]) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        wanted.iter().filter_map(|index| words.get(*index)).copied().collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The names in a list of the engine's. It wraps its list of volumes in an object.
fn named(list: &str, member: &str) -> Vec<String> {
    let list: serde_json::Value = serde_json::from_str(list).unwrap_or_default();
    let items = list.as_array().or_else(|| list["Volumes"].as_array());
    items.into_iter().flatten().filter_map(|item| item[member].as_str()).map(Into::into).collect()
}

fn mounts() -> String {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines()
        // The engine binds the host's network namespace there with its first container and keeps
        // it.
        .filter(|line| !line.contains(" /run/docker/netns/default "))
        // ip(8) keeps named namespaces here. It makes the place with the first of them, whoever
        // makes that.
        .filter(|line| !line.contains(" /run/netns "))
        .map(|line| line.split(' ').skip(3).take(2).collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

fn cgroups(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for path in list(directory) {
        if path.is_dir() && !path.is_symlink() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The group of a system service, named by random numbers: these come and go with its
            // work. (A container of an engine has 64 digits.)
            let random = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            // The engine makes its own parent group with its first container and keeps it.
            if !path.ends_with("docker") && !random {
                found.push(path.display().to_string());
            }
            found.extend(cgroups(&path));
        }
    }
    found
}

/// Processes of guests and of their helpers, found by their program or by the names of runs.
fn processes() -> Vec<String> {
    let mut found = Vec::new();
    let built = format!("{}-", assert_cmd::cargo::cargo_bin("weigh").display());
    for path in list(Path::new("/proc")) {
        let Ok(bytes) = std::fs::read(path.join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
        let program =
            line.split(' ').next().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
        const PROGRAMS: [&str; 8] =
            ["weigh-probe", "weigh-kernels", "runc", "crun", "youki", "runsc", "conmon", "incusd"];
        const MARKS: [&str; 4] = ["/.weighbridge/", "weighbridge-", "weigh-test-", "[lxc monitor]"];
        // Cargo and the tests of the programs run what cargo built; guests have copies.
        if line.starts_with(&built) || program == "build-script-build" {
            continue;
        }
        if PROGRAMS.contains(&program) || MARKS.iter().any(|mark| line.contains(mark)) {
            found.push(format!("{} {line}", path.display()));
        }
    }
    found
}

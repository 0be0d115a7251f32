//! The facts of a guest, by parity key.

use super::Facts;
use super::network::Route;
use crate::serve::route;
use crate::staging;
use std::net::Ipv4Addr;
use std::path::{Component, Path};
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::CgroupView;
use weigh_model::{Plan, WorkloadPlan};
use weigh_platforms::{Capabilities, Guest, SessionError};
use weigh_protocol::{GuestFacts, MountFacts, ProgramFacts, Questions};

/// Digits of a digest that are shown: 64 bits, enough unless files were made to collide.
const DIGITS: usize = 16;
/// In cgroup v1 a group without a limit shows the largest number of pages that it can count
/// (Documentation/admin-guide/cgroup-v1/memory.rst); no machine has this much memory.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// What to ask a plan's guests about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// Programs by their name in the plan and by the name asked for, in which paths relative to the
    /// working directory are made absolute.
    programs: Vec<(String, String)>,
    /// Paths whose mounts count: the root, `/tmp`, the working directory.
    paths: Vec<String>,
    /// Whether a server is measured, so that its network counts.
    network: bool,
    /// Whether commands make files in a guest, so that the file system that holds them counts.
    stores: bool,
    /// The address at which clients on another machine reach this host, if they run there.
    outside: Option<Ipv4Addr>,
}

impl Subject {
    /// The measured programs of a plan, and the paths whose mounts count.
    pub fn of(plan: &Plan) -> Self {
        let directory = plan.guest.working_directory.as_deref();
        let network = plan.workloads.iter().any(|workload| workload.staging.server.is_some());
        let stores = staging::wants_scratch(plan.workloads.iter().flat_map(in_guests));
        let paths = vec!["/".into(), "/tmp".into()];
        let mut subject = Self { programs: Vec::new(), paths, network, stores, outside: None };
        let in_guest = plan.workloads.iter().flat_map(|workload| {
            let own = workload.staging.server.as_ref().map_or(&workload.command, |server| &server.command);
            std::iter::once(own).chain(workload.commands.values())
        });
        for program in in_guest.filter_map(|command| command.first()) {
            if !subject.programs.iter().any(|(known, _)| known == program) {
                subject.programs.push((program.clone(), absolute(program, directory)));
            }
        }
        let directory = directory.map(|path| path.display().to_string());
        subject.paths.extend(directory.filter(|path| path != "/" && path != "/tmp"));
        subject
    }

    /// The same, with clients that reach this host from another machine by this address.
    pub fn seen_from(self, outside: Option<Ipv4Addr>) -> Self {
        Self { outside, ..self }
    }

    /// The same without programs, whose digests are costly and change the guest's page cache.
    pub fn without_programs(&self) -> Self {
        Self { programs: Vec::new(), ..self.clone() }
    }
}

/// The commands of a workload that are executed in guests.
fn in_guests(workload: &WorkloadPlan) -> impl Iterator<Item = &Vec<String>> {
    let around = [&workload.prepare, &workload.cleanup, &workload.staging.setup];
    let (own, around) = match &workload.staging.server {
        Some(server) => (&server.command, [&None, &None, &workload.staging.setup]),
        None => (&workload.command, around),
    };
    around.into_iter().flatten().chain([own]).chain(workload.commands.values())
}

/// Makes a program with a slash absolute, by the working directory; one without is looked up.
fn absolute(program: &str, working_directory: Option<&Path>) -> String {
    if !program.contains('/') || program.starts_with('/') {
        return program.into();
    }
    let whole = working_directory.unwrap_or(Path::new("/")).join(program);
    whole
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect::<std::path::PathBuf>()
        .display()
        .to_string()
}

/// Gathers the facts of a guest that is awake and idle. Its server may listen on `port`.
///
/// # Errors
/// The guest is lost.
pub fn gather(
    guest: &mut dyn Guest,
    capabilities: &Capabilities,
    subject: &Subject,
    port: Option<u16>,
) -> Result<Facts, SessionError> {
    let programs: Vec<String> = subject.programs.iter().map(|(_, asked)| asked.clone()).collect();
    let files = subject.stores.then(|| files_of(guest));
    let paths: Vec<String> = subject.paths.iter().chain(&files).cloned().collect();
    let mut about = Questions { programs, paths, ..Questions::default() };
    let way = port.filter(|_| subject.network).and_then(|port| match subject.outside {
        None => route::reach(guest, capabilities, port),
        Some(address) => route::reach_from_outside(guest, capabilities, (address, port).into()).ok(),
    });
    let route = way.map(|way| Route { way, on_host: route::is_on_host(guest, capabilities) });
    if let Some(route) = &route {
        route.ask(&mut about);
    }
    let inside = guest.session().describe(about)?;
    let mut facts = from_inside(&inside, subject, capabilities.shares_kernel);
    let at = |path: &str| inside.mounts.iter().find(|mount| mount.path == path);
    if let Some(mount) = files.as_deref().and_then(|files| at(files).or_else(|| at(staging::BARE))) {
        facts.insert("mounts:scratch".into(), words(mount));
    }
    if let Some(route) = &route {
        facts.extend(route.facts(&inside, guest.hops()));
    }
    let limit = inside.memory_limit_bytes.into_iter().chain(limit_from_outside(&guest.accounts()));
    if let Some(bytes) = limit.chain(inside.memory_total_bytes).min() {
        facts.insert("memory".into(), format!("{bytes} bytes"));
    }
    facts.insert("network".into(), capabilities.network.into());
    facts.extend(guest.facts());
    facts.extend(guest.read_back()?);
    Ok(facts)
}

/// The directory for commands' files, or the existing part of its path.
fn files_of(guest: &dyn Guest) -> String {
    let own = guest.scratch().and_then(Path::parent);
    own.unwrap_or(Path::new(staging::USUAL)).display().to_string()
}

/// The tightest limit of the guest's control groups, which many guests cannot see themselves.
fn limit_from_outside(accounts: &Accounts) -> Option<u64> {
    let limit = |group: &CgroupView| {
        let read = |directory: &Path, file: &str| {
            std::fs::read_to_string(directory.join(file)).ok()?.trim().parse::<u64>().ok()
        };
        let v2 = group.v2.as_deref().and_then(|directory| read(directory, "memory.max"));
        let v1 = group.v1_directory("memory").and_then(|directory| read(directory, "memory.limit_in_bytes"));
        let v1 = v1.filter(|bytes| *bytes < UNLIMITED_BYTES);
        v2.into_iter().chain(v1).min()
    };
    accounts.groups.iter().filter_map(limit).min()
}

/// The facts that the probe saw, except those that need the host's view.
fn from_inside(inside: &GuestFacts, subject: &Subject, shares_kernel: bool) -> Facts {
    let mut facts = Facts::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(key.into(), value);
        }
    };
    // If a machine shows its kernel's files but not this one, its kernel lacks the feature.
    let own_kernel = !shares_kernel && inside.boot.is_some();
    let or_none = |value: Option<String>| value.or_else(|| own_kernel.then(|| "none".into()));
    put("kernel", Some(inside.kernel.clone()));
    put("architecture", Some(inside.architecture.clone()));
    put("cpu-model", inside.cpu_model.clone());
    put("cpus", (!inside.cpus.is_empty()).then(|| inside.cpus.len().to_string()));
    put("operating-system", inside.operating_system.clone());
    put("transparent-huge-pages", or_none(inside.transparent_huge_pages.clone()));
    put("clock-source", or_none(inside.clock_source.clone()));
    put("mitigations", or_none(mitigations(&inside.mitigations)));
    put("aslr", inside.aslr.clone());
    put("user", Some(if inside.user == 0 { "root".into() } else { format!("user {}", inside.user) }));
    for mount in inside.mounts.iter().filter(|mount| subject.paths.contains(&mount.path)) {
        put(&format!("mounts:{}", mount.path), Some(words(mount)));
    }
    let mut libraries: Vec<String> = Vec::new();
    for program in &inside.programs {
        let name = subject.programs.iter().find(|(_, asked)| *asked == program.name).map(|(name, _)| name);
        put(&format!("binary:{}", name.unwrap_or(&program.name)), program.digest.as_deref().map(short));
        libraries.extend(library(program));
    }
    libraries.sort();
    libraries.dedup();
    put("libc", (!libraries.is_empty()).then(|| libraries.join(", ")));
    facts
}

/// The mitigations that concern this CPU; the kernel also lists those that do not.
fn mitigations(all: &[(String, String)]) -> Option<String> {
    let concerns = all.iter().filter(|(_, text)| text != "Not affected");
    let words: Vec<String> = concerns.map(|(name, text)| format!("{name}: {text}")).collect();
    match words.len() {
        _ if all.is_empty() => None,
        0 => Some("not affected".into()),
        _ => Some(words.join("; ")),
    }
}

/// Type and options of a mount, without options that differ in every guest and decide nothing:
/// names of places on the host, such as an overlay's layers, and the bounds that the kernel derives
/// for its first file system from the available memory.
fn words(mount: &MountFacts) -> String {
    let bounds: &[&str] = if mount.kind == "rootfs" { &["size=", "nr_inodes="] } else { &[] };
    let of_this_guest =
        |option: &str| option.contains('/') || bounds.iter().any(|bound| option.starts_with(bound));
    let options: Vec<&str> = mount.options.split(',').filter(|option| !of_this_guest(option)).collect();
    format!("{} {}", mount.kind, options.join(","))
}

fn library(program: &ProgramFacts) -> Option<String> {
    let libc = program.libc.as_deref()?;
    let is_digest = libc.len() == 64 && libc.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some(if is_digest { short(libc) } else { libc.into() })
}

fn short(digest: &str) -> String {
    format!("sha256:{}", digest.get(..DIGITS).unwrap_or(digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::common::{fixed, plan};

    fn subject(commands: &[&str], directory: Option<&str>) -> Subject {
        let mut plan = plan(&["null"], commands, fixed(2));
        plan.guest.working_directory = directory.map(Into::into);
        Subject::of(&plan)
    }

    #[test]
    fn programs_and_paths_of_a_plan_are_asked_for_once() {
        let subject = subject(&["fio", "./bench", "bin/x", "/bin/sh", "fio2"], Some("/home/u"));
        let asked: Vec<&str> = subject.programs.iter().map(|(_, asked)| asked.as_str()).collect();
        assert_eq!(asked, ["fio", "/home/u/bench", "/home/u/bin/x", "/bin/sh", "fio2"]);
        assert_eq!(subject.paths, ["/", "/tmp", "/home/u"]);
        assert_eq!(subject.without_programs().programs, []);
        assert_eq!(self::subject(&["x"], Some("/tmp")).paths, ["/", "/tmp"]);
        assert_eq!(self::subject(&["./x"], None).programs[0].1, "/x");
    }

    fn inside() -> GuestFacts {
        let program = |name: &str, digest: char, libc: &str| ProgramFacts {
            name: name.into(),
            path: None,
            digest: Some(digest.to_string().repeat(64)),
            libc: Some(libc.into()),
        };
        GuestFacts {
            kernel: "6.1".into(),
            architecture: "x86_64".into(),
            boot: Some("boot".into()),
            cpus: vec![1, 3],
            user: 1000,
            mitigations: vec![
                ("meltdown".into(), "Not affected".into()),
                ("spectre_v2".into(), "Vulnerable".into()),
            ],
            programs: vec![
                program("/w/bench", 'a', &"c".repeat(64)),
                program("fio", 'b', "static"),
                program("/bin/sh", 'd', &"c".repeat(64)),
            ],
            mounts: vec![MountFacts {
                path: "/".into(),
                kind: "overlay".into(),
                options: "ro,relatime,lowerdir=/a:/b,index=off".into(),
            }],
            ..GuestFacts::default()
        }
    }

    #[test]
    fn facts_have_their_words() {
        let facts = from_inside(&inside(), &subject(&["./bench", "fio"], Some("/w")), true);
        let expected = [
            ("architecture", "x86_64"),
            ("binary:./bench", "sha256:aaaaaaaaaaaaaaaa"),
            ("binary:/bin/sh", "sha256:dddddddddddddddd"),
            ("binary:fio", "sha256:bbbbbbbbbbbbbbbb"),
            ("cpus", "2"),
            ("kernel", "6.1"),
            ("libc", "sha256:cccccccccccccccc, static"),
            ("mitigations", "spectre_v2: Vulnerable"),
            ("mounts:/", "overlay ro,relatime,index=off"),
            ("user", "user 1000"),
        ];
        let found: Vec<(&str, &str)> =
            facts.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(found, expected, "what could not be read is absent");
        for (key, _) in expected {
            assert_eq!(weigh_model::check_parity_word(key), Ok(()), "{key}");
        }
    }

    #[test]
    fn the_file_system_counts_where_a_command_uses_files() {
        let of = |command: &str, setup: Option<&str>| {
            let mut plan = plan(&["null"], &[command], fixed(2));
            plan.workloads[0].staging.setup = setup.map(|word| vec![word.into()]);
            Subject::of(&plan).stores
        };
        assert!(of("{scratch}/x", None) && of("x", Some("{scratch}/y")));
        assert!(!of("x", None) && !of("x", Some("y")));
    }

    #[test]
    fn options_that_decide_nothing_are_left_out() {
        let of = |kind: &str, options: &str| {
            words(&MountFacts { path: "/".into(), kind: kind.into(), options: options.into() })
        };
        assert_eq!(of("rootfs", "ro,size=1015188k,nr_inodes=253797"), "rootfs ro");
        assert_eq!(of("tmpfs", "rw,size=65536k"), "tmpfs rw,size=65536k", "somebody chose it");
        assert_eq!(of("hostfs", "ro,/srv/root"), "hostfs ro");
    }

    #[test]
    fn a_kernel_of_its_own_without_a_feature_has_none() {
        let facts = from_inside(&inside(), &Subject::default(), false);
        assert_eq!(facts["transparent-huge-pages"], "none");
        assert_eq!(facts["clock-source"], "none");
        let blind = GuestFacts { boot: None, ..inside() };
        let facts = from_inside(&blind, &Subject::default(), false);
        assert!(!facts.contains_key("clock-source"), "a guest that shows nothing says nothing");
    }

    #[test]
    fn limits_are_read_off_the_control_groups() {
        let directory = tempfile::tempdir().unwrap();
        let (v2, v1) = (directory.path().join("v2"), directory.path().join("v1"));
        for path in [&v2, &v1] {
            std::fs::create_dir(path).unwrap();
        }
        let group = CgroupView {
            v2: Some(v2.clone()),
            v1: vec![(vec!["memory".into()], v1.clone())],
            ..CgroupView::default()
        };
        let limit = || limit_from_outside(&Accounts::of_group(group.clone()));
        assert_eq!(limit(), None);
        std::fs::write(v2.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit(), None);
        std::fs::write(v1.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(limit(), None);
        std::fs::write(v1.join("memory.limit_in_bytes"), "1048576\n").unwrap();
        assert_eq!(limit(), Some(1 << 20));
    }
}

//! `weigh doctor`: which platforms are ready, and what disturbs measurements on this host.

use crate::error::Failure;
use crate::host::HostSession;
use crate::selftest::LastSelftest;
use crate::ui;
use serde::Serialize;
use std::thread;
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_host::cgroup::{CgroupError, Hierarchy};
use weigh_host::energy::EnergyMeter;
use weigh_host::virtualisation::{self, Virtualisation};
use weigh_host::{facts, noise};
use weigh_model::{EnvironmentSpec, NoiseLimits, Observed};
use weigh_observe::{Observer, Sensors};
use weigh_platforms::{self as platforms, Availability, remedy};
use weigh_report::Document;
use weigh_report::document::{Audience, Block, Item, ListKind, Section, Tone};
use weigh_report::quantity::{plain_percent, share};

/// How long the host is observed: long enough that a tick of the kernel's CPU time accounting, ten
/// milliseconds, is one per cent of it.
const LOOK: Duration = Duration::from_secs(1);

/// Aliases that promise a feature of a platform, which a guest has to prove.
const PROVEN: &[&str] = &["kvm"];

#[derive(Serialize)]
struct Diagnosis {
    platforms: Vec<PlatformState>,
    host: weigh_model::HostFacts,
    /// Why guests cannot be limited here, if they cannot.
    limits: Option<noise::Finding>,
    noise: Vec<noise::Finding>,
    /// What the host provides for virtual machines under KVM; null if that is not known.
    virtualisation: Option<Virtualisation>,
    /// Whether the energy of the host can be measured, or why not.
    energy: String,
    /// What the host does now, without guests.
    now: HostObservation,
    /// The last selftest of this host; null if none is known.
    selftest: Option<LastSelftest>,
    leftovers: Vec<String>,
}

/// A look at the host through the sensors of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct HostObservation {
    /// Duration, seconds.
    window_s: f64,
    /// The CPUs that were observed.
    cpus: Vec<u32>,
    /// Share of their time that the hypervisor certainly took.
    steal_share: f64,
    /// Share of their time that processes of the host certainly took.
    foreign_share: f64,
    /// Share of the time in which some task waited for a CPU; null if the kernel does not report
    /// it.
    cpu_pressure_share: Option<f64>,
    /// Context switches of the whole host, per second.
    context_switches_per_s: f64,
    /// New warnings in the kernel's log.
    kernel_log: Vec<String>,
    /// How a run would judge this window by its noise limits.
    state: Judgement,
    /// The command that shows what disturbs; absent if nothing does or if the hypervisor does.
    command: Option<&'static str>,
}

/// How a run would judge a unit that was measured now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Judgement {
    Quiet,
    Disturbed,
    Void,
}

impl HostObservation {
    /// Observes the host while no guest runs.
    fn now(cpus: Vec<u32>) -> Self {
        let mut sensors = Observer::new();
        let nobody = sensors.attach(&Accounts::default(), &cpus);
        sensors.begin(nobody);
        thread::sleep(LOOK);
        let seen = sensors.end(nobody);
        sensors.detach(nobody);
        Self::of(&seen, cpus, &NoiseLimits::default())
    }

    fn of(seen: &Observed, cpus: Vec<u32>, limits: &NoiseLimits) -> Self {
        let window_s = seen.window_ns as f64 / 1e9;
        let steal_share = seen.steal.certain_share(seen.window_ns, cpus.len());
        let foreign_share = seen.foreign.certain_share(seen.window_ns, cpus.len());
        let state = match steal_share.max(foreign_share) {
            most if most > limits.void_share => Judgement::Void,
            most if most > limits.warn_share => Judgement::Disturbed,
            _ => Judgement::Quiet,
        };
        let per_window = |amount: f64| if window_s > 0.0 { amount / window_s } else { 0.0 };
        Self {
            window_s,
            cpus,
            steal_share,
            foreign_share,
            cpu_pressure_share: seen.pressure.map(|p| per_window(p.cpu_some_ns as f64 / 1e9)),
            context_switches_per_s: per_window(seen.context_switches as f64),
            kernel_log: seen.kernel_log.clone(),
            state,
            command: (state != Judgement::Quiet && foreign_share > limits.warn_share)
                .then_some(noise::BUSIEST),
        }
    }

    /// The findings, and what they mean for a run.
    fn items(&self, limits: &NoiseLimits, root: bool) -> Vec<Item> {
        let cpus: Vec<String> = self.cpus.iter().map(ToString::to_string).collect();
        let pressure = self.cpu_pressure_share.map_or(String::new(), |waiting| {
            format!("; some task waited for a CPU {} of the time", share(waiting))
        });
        let seen = format!(
            "in {:.1} s the hypervisor took {} of CPU{} {} and other processes {}{pressure}",
            self.window_s,
            share(self.steal_share),
            if cpus.len() == 1 { "" } else { "s" },
            cpus.join(","),
            share(self.foreign_share)
        );
        let more = |limit| format!("others took more than {}", plain_percent(limit));
        let (meaning, advice) = match self.state {
            Judgement::Quiet => {
                (format!("quiet: others took less than {}", plain_percent(limits.warn_share)), None)
            }
            Judgement::Disturbed => (
                format!("{}: a run would flag its cells DISTURBED", more(limits.warn_share)),
                Some(self.advice().to_string()),
            ),
            Judgement::Void => (
                format!("{}: a run would void its units", more(limits.void_share)),
                Some(format!("{}, or measure with --no-void and accept wide intervals", self.advice())),
            ),
        };
        let command = self.command.map(|command| Item::command(prompt(command, root)));
        let meaning = Item::line(meaning).with_below(advice.map(Item::line).into_iter().chain(command));
        let warned = self.kernel_log.iter().map(|line| Item::line(format!("the kernel warned: {line}")));
        [Item::line(seen), meaning].into_iter().chain(warned).collect()
    }

    fn advice(&self) -> &'static str {
        match self.command {
            Some(_) => "stop other programs on this host; the command below lists them",
            None => "no command stops the hypervisor's other guests: use a machine of your own",
        }
    }
}

#[derive(Serialize)]
struct PlatformState {
    name: &'static str,
    ready: bool,
    detail: String,
    remedy: Option<String>,
    /// The command of the remedy, for root's shell; absent if no command helps.
    command: Option<String>,
}

fn state_of(name: &'static str, found: Availability) -> PlatformState {
    match found {
        Availability::Ready { detail } => PlatformState::ready(name, detail),
        Availability::Missing { reason, remedy } => PlatformState::missing(name, reason, remedy),
    }
}

impl PlatformState {
    fn ready(name: &'static str, detail: String) -> Self {
        Self { name, ready: true, detail, remedy: None, command: None }
    }

    /// A missing platform. Without a remedy it failed in an unusual way, and a run of it alone
    /// leaves logs that say more.
    fn missing(name: &'static str, detail: String, remedy: Option<String>) -> Self {
        let remedy = remedy.unwrap_or_else(|| {
            format!("a run of it leaves logs: `weigh run --on {name} --blocks 1 --out weigh-{name} -- true`")
        });
        let command = remedy::command(&remedy).map(Into::into);
        Self { name, ready: false, detail, remedy: Some(remedy), command }
    }
}

/// Observes the host for a second, launches a guest on every platform, and prints the findings.
///
/// # Errors
/// The host is in use by another run, or its state directory cannot be written.
pub fn run(json: bool) -> Result<(), Failure> {
    let session = HostSession::open("weigh doctor", None)?;
    // Observe the host before the guests start, whose work is not noise.
    let now = HostObservation::now(facts::allowed_cpus());
    let leftovers =
        session.leftovers.iter().map(|(run, changes)| format!("{run}: {changes} changes")).collect();
    let platforms: Vec<_> = platforms::local().collect();
    let found = platforms::availabilities(&session.host, &platforms);
    let states = platforms
        .iter()
        .zip(found)
        .map(|(platform, found)| state_of(platform.name(), found))
        .chain(PROVEN.iter().map(|name| proven(name, &session.host)))
        .collect();
    session.close()?;
    let host = facts::host_facts();
    let limits = limits(host.root, Hierarchy::detect().usable());
    let diagnosis = Diagnosis {
        selftest: LastSelftest::of(&host),
        platforms: states,
        host,
        limits,
        noise: noise::findings(),
        virtualisation: virtualisation::look(),
        energy: match EnergyMeter::open() {
            Ok(_) => "`weigh run --energy` measures it".into(),
            Err(reason) => reason.to_string(),
        },
        now,
        leftovers,
    };
    ui::print(&if json { ui::json(&diagnosis) } else { ui::shown(&document(&diagnosis)) });
    Ok(())
}

/// What prevents runs from limiting the CPUs and the memory of guests.
fn limits(root: bool, groups: Result<(), CgroupError>) -> Option<noise::Finding> {
    let finding = |what: &str, remedy: &str, command: Option<&str>| noise::Finding {
        what: what.into(),
        remedy: remedy.into(),
        command: command.map(Into::into),
    };
    if !root {
        let remedy = "run weigh as root: it then limits the memory of guests and can use more platforms";
        return Some(finding(
            "weigh does not run as root, so it cannot limit guests",
            remedy,
            Some("sudo weigh doctor"),
        ));
    }
    match groups {
        Ok(()) => None,
        Err(CgroupError::NotMounted) => {
            let remedy = "mount them, so that weigh can limit the memory of guests";
            let command = Some("mount -t cgroup2 none /sys/fs/cgroup");
            Some(finding("no control groups are mounted", remedy, command))
        }
        Err(error) => {
            let remedy = "start the container with `--privileged`: weigh then limits the memory of guests and can use more platforms";
            Some(finding(&error.to_string(), remedy, None))
        }
    }
}

/// Whether this host has the feature that an alias promises. Its platform boots a guest to prove
/// it, or remembers an earlier proof.
fn proven(alias: &'static str, host: &platforms::Host) -> PlatformState {
    let spec = EnvironmentSpec::new(alias, Default::default());
    let (platform, environment) = match platforms::resolve(&spec) {
        Ok(resolved) => resolved,
        Err(error) => return PlatformState::missing(alias, error.to_string(), None),
    };
    match platform.make_explicit(host, &environment) {
        Ok(_) => PlatformState::ready(alias, format!("a guest started as {environment}")),
        Err(error) => state_of(alias, error.into()),
    }
}

/// A command that this user can copy, with sudo if it changes the host.
fn prompt(command: &str, root: bool) -> String {
    const FOR_ALL: [&str; 5] = ["export", "sudo", "top", "unset", "weigh"];
    let first = command.split(' ').next().unwrap_or_default();
    // Root builds images, and everybody can use them.
    let for_all = FOR_ALL.contains(&first) && !command.starts_with("weigh image");
    match root || for_all {
        true => format!("$ {command}"),
        false if command.contains(['>', '|']) => format!("$ sudo sh -c '{command}'"),
        false => format!("$ sudo {command}"),
    }
}

/// A finding, with its remedy and the command for it.
fn finding(finding: &noise::Finding, root: bool) -> Item {
    let remedy = Item::line(finding.remedy.clone());
    let command = finding.command.iter().map(|command| Item::command(prompt(command, root)));
    Item::line(finding.what.clone()).with_below([remedy].into_iter().chain(command))
}

fn bullets(items: impl IntoIterator<Item = Item>) -> Block {
    Block::list(ListKind::Bullets, items)
}

fn platforms_of(diagnosis: &Diagnosis) -> Section {
    let item = |(at, state): (usize, &PlatformState)| {
        let (word, tone) = if state.ready { ("ready", Tone::Same) } else { ("missing", Tone::Worse) };
        let row = |detail: String| Item::new(format!("{word:7}  {:12}", state.name), vec![detail]).tone(tone);
        // An ordinary user's first ten platforms need root, and a page of that would bury the rest.
        let before = diagnosis.platforms[..at].iter();
        let alike = before.filter(|_| !state.ready).find(|earlier| earlier.remedy == state.remedy);
        if let Some(earlier) = alike {
            return row(format!("{}; remedy: as for {}", state.detail, earlier.name));
        }
        let remedy = state.remedy.iter().map(|remedy| Item::line(format!("remedy: {remedy}")));
        let command = state.command.iter().map(|command| Item::command(prompt(command, diagnosis.host.root)));
        row(state.detail.clone()).with_below(remedy.chain(command))
    };
    let items = diagnosis.platforms.iter().enumerate().map(item);
    Section::new("Platforms").with(Audience::ALL, Block::list(ListKind::Claims, items))
}

fn host_of(diagnosis: &Diagnosis) -> Section {
    let host = &diagnosis.host;
    let cache = host.last_level_cache_bytes.map_or("of unknown size".into(), weigh_model::format_bytes);
    let lines = [
        format!("{} on Linux {} ({})", host.operating_system, host.kernel, host.architecture),
        format!(
            "{}, {} CPUs, {:.1} GiB, last-level cache {cache}",
            host.cpu(),
            host.cpus.len(),
            host.memory_bytes as f64 / f64::from(1 << 30)
        ),
        format!("control groups: {}", host.cgroups),
        format!("energy: {}", diagnosis.energy),
    ];
    let limits = diagnosis.limits.iter().map(|limits| finding(limits, host.root));
    Section::new("Host").with(Audience::ALL, bullets(lines.into_iter().map(Item::line).chain(limits)))
}

/// The facts about virtual machines under KVM on this host, then the findings about what slows them
/// down.
fn machines(diagnosis: &Diagnosis) -> Vec<Item> {
    let Some(found) = &diagnosis.virtualisation else { return Vec::new() };
    let facts = found.facts.iter().cloned().map(Item::line);
    facts.chain(found.findings.iter().map(|slow| finding(slow, diagnosis.host.root))).collect()
}

/// The last selftest of this host: whether the method keeps its promises here.
fn selftest(diagnosis: &Diagnosis) -> Item {
    let ask =
        |why: String, command: &str| [Item::line(why), Item::command(prompt(command, diagnosis.host.root))];
    let Some(last) = &diagnosis.selftest else {
        let why = "it shows in three minutes whether the method keeps its promises on this host";
        return Item::line("none is known".into()).with_below(ask(why.into(), "weigh selftest"));
    };
    if !last.passed {
        let why = "trust no verdict of this host until a longer one passes";
        return Item::line(format!("FAILED on {}: {}", last.day(), last.statement))
            .with_below(ask(why.into(), "weigh selftest --long"));
    }
    let item = Item::line(format!("passed on {}: {}", last.day(), last.statement));
    let outdated = last.outdated(&diagnosis.host);
    if outdated.is_empty() {
        return item;
    }
    item.with_below(ask(format!("since then {}", outdated.join(", ")), "weigh selftest"))
}

/// Arranges a diagnosis for display.
fn document(diagnosis: &Diagnosis) -> Document {
    let root = diagnosis.host.root;
    let settings = match diagnosis.noise.as_slice() {
        [] => vec![Item::line("nothing found".into())],
        found => found.iter().map(|found| finding(found, root)).collect(),
    };
    let leftovers = match diagnosis.leftovers.is_empty() {
        true => None,
        false => Some(Item::command(prompt("weigh clean", root))),
    };
    let leftovers = diagnosis.leftovers.iter().cloned().map(Item::line).chain(leftovers);
    let sections = [
        platforms_of(diagnosis),
        host_of(diagnosis),
        Section::new("Virtual machines").with(Audience::ALL, bullets(machines(diagnosis))),
        Section::new("Noise now")
            .with(Audience::ALL, bullets(diagnosis.now.items(&NoiseLimits::default(), root))),
        Section::new("Settings that add noise").with(Audience::ALL, bullets(settings)),
        Section::new("Selftest").with(Audience::ALL, bullets([selftest(diagnosis)])),
        Section::new("Left over from earlier runs").with(Audience::ALL, bullets(leftovers)),
    ];
    let mut document = Document::default();
    sections.into_iter().for_each(|section| document.add(section));
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_model::{CpuTime, Pressure};

    fn look(steal_ms: u64, foreign_ms: u64) -> HostObservation {
        let time = |ms: u64| CpuTime { ns: ms * 1_000_000, uncertainty_ns: 0 };
        let seen = Observed {
            window_ns: 1_000_000_000,
            steal: time(steal_ms),
            foreign: time(foreign_ms),
            pressure: Some(Pressure { cpu_some_ns: 30_000_000, ..Pressure::default() }),
            context_switches: 1200,
            kernel_log: vec!["something broke".into()],
            ..Observed::default()
        };
        HostObservation::of(&seen, vec![0, 1], &NoiseLimits::default())
    }

    #[test]
    fn a_look_is_judged_by_the_limits_of_a_run() {
        assert_eq!(look(1, 9).state, Judgement::Quiet);
        assert_eq!(look(12, 0).state, Judgement::Disturbed);
        assert_eq!(look(0, 12).state, Judgement::Disturbed);
        assert_eq!(look(0, 41).state, Judgement::Void);
        assert_eq!(look(41, 0).state, Judgement::Void);
    }

    fn diagnosis(now: HostObservation) -> Diagnosis {
        let mut host = facts::host_facts();
        host.root = true;
        let missing = PlatformState::missing("lxc", "x".into(), Some("`apt-get install lxc`".into()));
        let finding =
            noise::Finding { what: "w".into(), remedy: "r".into(), command: Some("echo 0 > /x".into()) };
        Diagnosis {
            platforms: vec![PlatformState::ready("native", "y".into()), missing],
            host,
            limits: None,
            noise: vec![finding],
            virtualisation: None,
            energy: "none".into(),
            now,
            selftest: None,
            leftovers: vec!["r: 2 changes".into()],
        }
    }

    /// Renders a diagnosis as a terminal of a hundred columns shows it.
    fn rendered(diagnosis: &Diagnosis) -> String {
        let options = weigh_report::Options::default();
        weigh_report::render_document(&document(diagnosis), weigh_report::Format::Table, &options).unwrap()
    }

    fn shown(now: HostObservation) -> String {
        rendered(&diagnosis(now))
    }

    #[test]
    fn a_remedy_of_several_platforms_is_told_once() {
        let mut diagnosis = diagnosis(look(0, 0));
        let missing = |name, remedy: &str| PlatformState::missing(name, "y".into(), Some(remedy.into()));
        diagnosis.platforms.push(missing("incus", "`apt-get install lxc`"));
        diagnosis.platforms.push(missing("runc", "`apt-get install runc`"));
        let text = rendered(&diagnosis);
        assert_eq!(text.matches("$ apt-get install lxc").count(), 1, "{text}");
        assert!(text.contains("y; remedy: as for lxc\n"), "{text}");
        assert!(text.contains("$ apt-get install runc"), "{text}");
    }

    #[test]
    fn a_selftest_that_failed_or_is_old_is_reported() {
        let mut diagnosis = diagnosis(look(0, 0));
        let none = rendered(&diagnosis);
        assert!(none.contains("none is known") && none.contains("$ weigh selftest\n"), "{none}");
        let with = |diagnosis: &mut Diagnosis, passed, kernel: &str| {
            let then = weigh_model::HostFacts { kernel: kernel.into(), ..diagnosis.host.clone() };
            diagnosis.selftest = Some(LastSelftest::now(&then, passed, "19 of 20"));
            rendered(diagnosis)
        };
        let kernel = diagnosis.host.kernel.clone();
        let passed = with(&mut diagnosis, true, &kernel);
        assert!(passed.contains("passed on 2") && passed.contains(": 19 of 20"), "{passed}");
        assert!(!passed.contains("$ weigh selftest"), "{passed}");
        let old = with(&mut diagnosis, true, "2.6.39");
        assert!(old.contains("the kernel was 2.6.39") && old.contains("$ weigh selftest\n"), "{old}");
        let last = LastSelftest::now(&diagnosis.host, true, "19 of 20");
        diagnosis.selftest = Some(LastSelftest { at: "2020-02-03T04:05:06Z".into(), ..last });
        let aged = rendered(&diagnosis);
        assert!(aged.contains("passed on 2020-02-03") && aged.contains("$ weigh selftest\n"), "{aged}");
        assert!(aged.contains(" days have passed"), "{aged}");
        let failed = with(&mut diagnosis, false, &kernel);
        assert!(failed.contains("FAILED on 2") && failed.contains("$ weigh selftest --long"), "{failed}");
    }

    #[test]
    fn a_look_at_noise_is_explained() {
        let text = shown(look(2, 60));
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let at = lines.iter().position(|line| *line == "Noise now").unwrap();
        assert_eq!(
            [lines[at + 1], lines[at + 2]].join(" "),
            "in 1.0 s the hypervisor took 0.10 % of CPUs 0,1 and other processes 3.0 %; some task waited for a CPU 3.0 % of \
             the time"
        );
        assert_eq!(lines[at + 3], "others took more than 2 %: a run would void its units");
        assert!(lines[at + 4].starts_with("stop other programs on this host"), "{text}");
        assert!(lines.contains(&"the kernel warned: something broke"), "{text}");
        assert!(shown(look(0, 0)).contains("\n  quiet: others took less than 0.5 %"));
    }

    #[test]
    fn a_disturbance_is_visible_unless_the_hypervisor_makes_it() {
        assert_eq!(look(0, 0).command, None);
        assert_eq!(look(2, 60).command, Some(noise::BUSIEST));
        let stolen = look(60, 2);
        assert_eq!(stolen.command, None);
        assert!(shown(stolen).contains("no command"));
    }

    #[test]
    fn commands_can_be_copied() {
        for (command, of_user) in [
            ("apt-get install lxc", "$ sudo apt-get install lxc"),
            ("echo 1 > /sys/x", "$ sudo sh -c 'echo 1 > /sys/x'"),
            ("usermod -aG docker \"$USER\"", "$ sudo usermod -aG docker \"$USER\""),
            ("sudo weigh doctor", "$ sudo weigh doctor"),
            ("weigh image build debian", "$ sudo weigh image build debian"),
            ("weigh run --on lxc -- true", "$ weigh run --on lxc -- true"),
            ("unset DOCKER_HOST", "$ unset DOCKER_HOST"),
        ] {
            assert_eq!(prompt(command, false), of_user);
            assert_eq!(prompt(command, true), format!("$ {command}"));
        }
    }

    #[test]
    fn missing_platforms_have_a_command_or_say_that_none_helps() {
        let lxc =
            PlatformState::missing("lxc", "x".into(), Some("install it with `apt-get install lxc`".into()));
        assert_eq!(lxc.command.as_deref(), Some("apt-get install lxc"));
        let odd = PlatformState::missing("runc", "it died".into(), None);
        assert!(odd.command.is_some_and(|command| command.starts_with("weigh run --on runc ")));
        let nowhere = limits(false, Ok(())).expect("an ordinary user has no limits");
        assert_eq!(nowhere.command.as_deref(), Some("sudo weigh doctor"));
        let missing = limits(true, Err(CgroupError::NotMounted));
        assert!(missing.is_some_and(|found| found.command.is_some()));
        assert_eq!(limits(true, Ok(())), None);
        let (path, source) = ("/sys/fs/cgroup".into(), std::io::ErrorKind::ReadOnlyFilesystem.into());
        let unwritable = limits(true, Err(CgroupError::ReadOnly { path, source })).unwrap();
        assert!(unwritable.what.contains("not writable") && unwritable.remedy.contains("--privileged"));
        assert_eq!(unwritable.command, None);
    }

    #[test]
    fn a_command_stands_on_a_line_of_its_own() {
        let text = shown(look(0, 60));
        assert!(
            text.contains("\n  ready    native        y") && text.contains("\n  missing  lxc           x"),
            "{text}"
        );
        assert!(text.contains("\n    r\n    $ echo 0 > /x"), "what is to be done stands below: {text}");
        let commands: Vec<&str> =
            text.lines().map(str::trim).filter_map(|line| line.strip_prefix("$ ")).collect();
        assert_eq!(
            commands,
            ["apt-get install lxc", noise::BUSIEST, "echo 0 > /x", "weigh selftest", "weigh clean"]
        );
    }
}

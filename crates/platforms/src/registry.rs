//! The platforms by name, and environment strings checked against them.

use crate::{ALL, Availability, Host, KeySpec, Platform, PlatformError, Values};
use std::path::Path;
use std::sync::Mutex;
use weigh_host::ledger::{PlatformUndo, UndoError, UndoOutcome};
use weigh_model::{EnvironmentSpec, SpecError, did_you_mean, nearest};

/// Short names of environments.
pub const ALIASES: &[(&str, &str)] = &[
    ("docker-host", "docker:net=host"),
    ("docker-nat", "docker:net=nat"),
    ("kvm", "qemu:accel=kvm"),
    ("kvm-tuned", "qemu:accel=kvm,tune=on"),
    ("tcg", "qemu:accel=tcg"),
    #[cfg(target_arch = "x86_64")]
    ("microvm", "qemu:machine=microvm"),
];

/// The key that every platform takes: distinguishes two environments that are otherwise alike.
const LABEL: KeySpec = KeySpec::text("label")
    .about("a word that tells this environment from another one that is otherwise alike");

/// Every platform, in the order in which tables show them.
pub fn all() -> &'static [&'static dyn Platform] {
    ALL
}

/// The platforms whose guests can be tried here as they are: all but the fakes, those that must be
/// told something, such as a machine's address, and those whose guests are on other people's
/// machines.
pub fn local() -> impl Iterator<Item = &'static dyn Platform> {
    all().iter().copied().filter(|platform| {
        let bare = bare(platform.name());
        let can = platform.capabilities(&bare);
        !can.fake && !can.elsewhere && platform.check(&bare).is_ok()
    })
}

/// The platforms that a run without `--on` tries: all of [`local`] but those whose guests run one
/// program, because most workloads are others.
pub fn defaults() -> impl Iterator<Item = &'static dyn Platform> {
    local().filter(|platform| platform.capabilities(&bare(platform.name())).fork)
}

/// The environment of a platform without any key.
fn bare(platform: &str) -> EnvironmentSpec {
    EnvironmentSpec::new(platform, Default::default())
}

/// Checks platforms, and returns whether each can be used, in the order of `platforms`. As many as
/// this process has CPUs, and at least two, are checked side by side: each waits most of the time.
/// The last ones begin first, because `ALL` ends with the virtual machines, which take longest.
pub fn availabilities(host: &Host, platforms: &[&'static dyn Platform]) -> Vec<Availability> {
    let workers = weigh_host::facts::allowed_cpus().len().max(2).min(platforms.len());
    let left = Mutex::new(platforms.iter().enumerate());
    let next = || left.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next_back();
    let check_some = || {
        let mut checked = Vec::new();
        while let Some((place, platform)) = next() {
            checked.push((place, platform.availability(host)));
        }
        checked
    };
    let mut checked = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(check_some)).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("checking does not panic"));
        results.flatten().collect::<Vec<_>>()
    });
    checked.sort_by_key(|(place, _)| *place);
    checked.into_iter().map(|(_, availability)| availability).collect()
}

/// Returns the platform of that name. Aliases are not platforms.
pub fn find(name: &str) -> Option<&'static dyn Platform> {
    all().iter().copied().find(|platform| platform.name() == name)
}

/// Returns the value of a key: as given, else the platform's default.
pub fn setting<'a>(platform: &dyn Platform, environment: &'a EnvironmentSpec, key: &str) -> &'a str {
    let default = || platform.keys().iter().find(|spec| spec.name == key).map_or("", |spec| spec.default);
    environment.get(key).unwrap_or_else(default)
}

/// Checks an environment: it names a platform or an alias, which is expanded, and the platform
/// takes every key and value.
///
/// Keys that are not given stay absent; [`setting`] knows their defaults.
///
/// # Errors
/// The first word that is wrong, underlined, with the nearest valid word.
pub fn resolve(spec: &EnvironmentSpec) -> Result<(&'static dyn Platform, EnvironmentSpec), SpecError> {
    let (platform, alias) = platform_of(spec)?;
    for (key, value) in &spec.keys {
        if let Some(of_alias) = alias.as_ref().and_then(|alias| alias.get(key)) {
            let message = format!("`{}` already means {key}={of_alias}", spec.platform);
            return Err(spec.key_error(key, message, format!("write `{}:{key}={value}`", platform.name())));
        }
        check_value(spec, key_of(platform, spec, key)?, value)?;
    }
    crate::common_keys::check(spec)?;
    platform.check(spec)?;
    let Some(mut expanded) = alias else { return Ok((platform, spec.clone())) };
    expanded.keys.extend(spec.keys.clone());
    Ok((platform, EnvironmentSpec::new(platform.name(), expanded.keys)))
}

/// Returns the named platform and, if the name is an alias, its expansion.
fn platform_of(
    spec: &EnvironmentSpec,
) -> Result<(&'static dyn Platform, Option<EnvironmentSpec>), SpecError> {
    if let Some(platform) = find(&spec.platform) {
        return Ok((platform, None));
    }
    if let Some((_, text)) = ALIASES.iter().find(|(alias, _)| *alias == spec.platform) {
        let expanded = EnvironmentSpec::parse(text)?;
        if let Some(platform) = find(&expanded.platform) {
            return Ok((platform, Some(expanded)));
        }
    }
    let names = all().iter().map(|platform| platform.name());
    let aliases = ALIASES.iter().map(|(alias, _)| *alias);
    let is_key = all().iter().any(|platform| platform.keys().iter().any(|key| key.name == spec.platform));
    let help = match nearest(&spec.platform, names.clone().chain(aliases)) {
        _ if is_key => format!("`{0}` is a key, which takes a value: `{0}=VALUE`", spec.platform),
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("the platforms are {}", names.collect::<Vec<_>>().join(", ")),
    };
    Err(spec.platform_error(format!("there is no platform `{}`", spec.platform), help))
}

fn key_of<'a>(
    platform: &'a dyn Platform,
    spec: &EnvironmentSpec,
    key: &str,
) -> Result<&'a KeySpec, SpecError> {
    let keys = platform.keys().iter().chain([&LABEL]);
    if let Some(found) = keys.clone().find(|known| known.name == key) {
        return Ok(found);
    }
    let names: Vec<_> = keys.map(|known| known.name).collect();
    let near = nearest(key, names.iter().copied());
    let help = did_you_mean(near, || format!("its keys are {}", names.join(", ")));
    Err(spec.key_error(key, format!("{} has no key `{key}`", platform.name()), help))
}

fn check_value(spec: &EnvironmentSpec, key: &KeySpec, value: &str) -> Result<(), SpecError> {
    let name = key.name;
    match key.values {
        Values::Text => Ok(()),
        Values::Words(words) if words.contains(&value) => Ok(()),
        Values::Words(words) => {
            let near = nearest(value, words.iter().copied());
            let help = did_you_mean(near, || format!("write one of {}", words.join(", ")));
            Err(spec.value_error(name, format!("{name} cannot be `{value}`"), help))
        }
        Values::Number if value.parse::<u64>().is_ok() => Ok(()),
        Values::Number => {
            let message = format!("{name} must be a whole number, not `{value}`");
            Err(spec.value_error(name, message, format!("as in `{name}=2`")))
        }
        Values::Path if Path::new(value).exists() => Ok(()),
        Values::Path => Err(spec.value_error(name, format!("there is no {value}"), "")),
    }
}

/// Undoes what platforms, and the networks and disks of their guests, recorded in a ledger, by the
/// platform's name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Undoers;

impl PlatformUndo for Undoers {
    fn undo(
        &self,
        platform: &str,
        what: &str,
        id: &str,
        detail: &serde_json::Value,
    ) -> Result<UndoOutcome, UndoError> {
        use crate::vm::setting::{self, MERGING, PAGES};
        if platform == weigh_network::PLATFORM {
            return weigh_network::undo(what, id, detail)
                .map_err(|error| UndoError::Platform(Box::new(error)));
        }
        let undone = if platform == crate::vm::disk::PLATFORM {
            crate::vm::disk::undo(what, id).map(|()| UndoOutcome::Restored)
        } else if [PAGES, MERGING].contains(&what) {
            setting::undo(what, detail)
        } else {
            let unknown = || format!("this version of weighbridge has no platform {platform}");
            let found = find(platform).ok_or_else(|| UndoError::Platform(unknown().into()))?;
            match has_own_name(platform, what, id) {
                true => found.undo(what, id, detail).map(|()| UndoOutcome::Restored),
                false => Err(PlatformError::foreign(what, id)),
            }
        };
        undone.map_err(|error| UndoError::Platform(crate::with_causes(&error).into()))
    }

    fn is_elsewhere(&self, platform: &str) -> bool {
        find(platform).is_some_and(|found| found.capabilities(&bare(platform)).elsewhere)
    }
}

/// Whether the ledger entry of a platform names something by a name that only weighbridge gives.
fn has_own_name(platform: &str, what: &str, id: &str) -> bool {
    let name = match (platform, what) {
        ("podman", "store") | ("ssh", _) => id.rsplit('/').next().unwrap_or_default(),
        // This monitor takes no name. The path of its socket goes through the machine's directory.
        ("cloud-hypervisor", _) => id.trim_start_matches("../").split('/').next().unwrap_or_default(),
        _ => id,
    };
    let prefix = match (platform, what) {
        // The names of links have little room.
        (_, "link") | ("podman", "network") => "wb",
        (_, "image") => "weighbridge/",
        _ => "weighbridge-",
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    name.strip_prefix(prefix).is_some_and(|rest| rest.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn refused(text: &str) -> (String, String) {
        let spec = EnvironmentSpec::parse(text).unwrap();
        let Err(error) = resolve(&spec) else { panic!("{text} is taken") };
        assert_eq!(error.text, text, "the text of an error is the user's");
        (error.text[error.span].into(), error.help.unwrap_or_default())
    }

    /// Every file of `src/` that holds a platform is in the list.
    #[test]
    fn every_platform_is_listed() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let registry = include_str!("lib.rs");
        let list = &registry[registry.find("const ALL").unwrap()..];
        // In pieces, or this file would be one of them.
        const MARKS: [[&str; 2]; 3] = [["impl Platform", " for "], ["Oci::", "new("], ["Vmm::", "new("]];
        let mut found = [0; MARKS.len()];
        for file in std::fs::read_dir(source).unwrap() {
            let path = file.unwrap().path();
            let text = if path.is_dir() { String::new() } else { std::fs::read_to_string(&path).unwrap() };
            let Some(mark) = MARKS.iter().position(|mark| text.contains(&mark.concat())) else { continue };
            let module = path.file_stem().unwrap().to_str().unwrap();
            assert!(list.contains(&format!("&{module}::")), "{} is not in the list ALL", path.display());
            found[mark] += 1;
        }
        assert!(found.iter().all(|files| *files > 0), "the test looks for what is nowhere: {found:?}");
    }

    #[test]
    fn names_and_keys_are_unique_and_described() {
        let mut names: BTreeSet<&str> = ALIASES.iter().map(|(alias, _)| *alias).collect();
        for platform in all() {
            assert!(names.insert(platform.name()), "{} twice", platform.name());
            assert!(!platform.summary().is_empty());
            let mut keys = BTreeSet::from(["label"]);
            for key in platform.keys() {
                assert!(keys.insert(key.name), "{}: {} twice", platform.name(), key.name);
                assert!(!key.summary.is_empty(), "{}: {} says nothing", platform.name(), key.name);
                if let Values::Words(words) = key.values {
                    assert!(words.contains(&key.default), "{}: default of {}", platform.name(), key.name);
                }
            }
        }
    }

    #[test]
    fn aliases_lead_to_environments_that_resolve() {
        for (alias, expansion) in ALIASES {
            let expansion = EnvironmentSpec::parse(expansion).unwrap();
            if find(&expansion.platform).is_none() {
                continue;
            }
            let (_, resolved) = resolve(&EnvironmentSpec::parse(alias).unwrap()).unwrap();
            assert_eq!(resolved.to_string(), expansion.to_string());
            let (_, labelled) =
                resolve(&EnvironmentSpec::parse(&format!("{alias}:label=b")).unwrap()).unwrap();
            assert_eq!(labelled.get("label"), Some("b"));
            let (key, value) = expansion.keys.iter().next().unwrap();
            assert_eq!(refused(&format!("{alias}:{key}={value}")).0, *key);
        }
    }

    #[test]
    fn wrong_words_are_underlined_and_the_nearest_is_named() {
        assert_eq!(refused("nul"), ("nul".into(), "did you mean `null`?".into()));
        let (word, help) = refused("vax");
        assert_eq!(word, "vax");
        assert!(help.contains("null"), "{help}");
        assert_eq!(refused("null:efect=1"), ("efect".into(), "did you mean `effect`?".into()));
        assert_eq!(refused("null:fault=hnag"), ("hnag".into(), "did you mean `hang`?".into()));
        assert_eq!(refused("null:seed=-1").0, "-1");
        assert_eq!(refused("null:time=soon").0, "soon");
        assert!(refused("null:colour=red").1.contains("label"));
    }

    #[test]
    fn fakes_are_never_among_the_defaults() {
        assert!(find("null").is_some());
        assert!(defaults().all(|platform| platform.name() != "null"));
    }

    /// A ledger may be damaged, or somebody else's work.
    #[test]
    fn nothing_of_others_is_undone_whatever_a_ledger_says() {
        let detail = serde_json::json!({
            "socket": "/nowhere", "address": "/nowhere", "namespace": "kube-system", "snapshotter": "native",
            "directory": "/nowhere", "state": "/nowhere", "subnet": "10.204.0.0/24", "uri": "qemu:///nowhere",
            "context": "a", "kubeconfig": null, "host": "x",
        });
        let foreign = [
            ("containerd", &["container", "namespace"][..]),
            ("docker", &["container", "image", "network", "volume"]),
            ("podman", &["container", "network", "store"]),
            ("runc", &["container"]),
            ("lxc", &["link"]),
            ("incus", &["link"]),
            ("qemu", &["machine"]),
            ("firecracker", &["machine"]),
            ("cloud-hypervisor", &["machine"]),
            ("libvirt", &["domain"]),
            ("pod", &["pod", "namespace", "fleet"]),
            ("ssh", &["directory", "fleet"]),
        ];
        for (platform, whats) in foreign {
            for what in whats {
                for id in ["", "no-such-thing", "--all", "/no/such/thing"] {
                    let said = Undoers.undo(platform, what, id, &detail).map_err(|error| error.to_string());
                    let is_refused = matches!(&said, Err(why) if why.contains("a name of weighbridge's"));
                    assert!(is_refused, "{platform}: {what} `{id}`: {said:?}");
                }
            }
        }
        for (platform, what, id) in [
            ("docker", "container", "weighbridge-x?force=1"),
            ("docker", "image", "debian:latest"),
            ("docker", "image", "weighbridge/../containers/x"),
            ("docker", "network", "wbridge"),
            ("lxc", "link", "eth0"),
            ("lxc", "link", "wb/../eth0"),
            ("pod", "pod", "weighbridge-x,etcd"),
            ("podman", "store", "/var/lib/weighbridge-engine-x/.."),
            ("runc", "container", "weighbridge-x/../y"),
            ("ssh", "directory", "/tmp/weighbridge-x/.."),
            ("ssh", "directory", "/tmp/weighbridge-x/"),
        ] {
            assert!(!has_own_name(platform, what, id), "{platform}: {what} `{id}`");
        }
    }

    /// The names that platforms give, of a run whose name has all characters that it may have.
    #[test]
    fn names_of_weighbridge_are_undone() {
        for (platform, what, id) in [
            ("containerd", "namespace", "weighbridge-20261126T140000Z-a_b..c"),
            ("docker", "container", "weighbridge-20261126T140000Z-a_b..c-7"),
            ("docker", "image", "weighbridge/20261126t140000z-a-b-c:root-0123456789ab"),
            ("docker", "network", "weighbridge-20261126T140000Z-a_b..c"),
            ("podman", "network", "wbp0123456789"),
            ("podman", "store", "/var/my state/weighbridge-engine-20261126T140000Z-a_b..c-01234567"),
            ("lxd", "link", "wbl0123456789ab"),
            ("firecracker", "machine", "weighbridge-0123456789abcdef-7"),
            ("cloud-hypervisor", "machine", "../weighbridge-0123456789abcdef-7/api"),
            ("pod", "fleet", "weighbridge-fleet-20261126t140000z-1f-0"),
            ("ssh", "directory", "/my $HOME/weighbridge-20261126T140000Z-a_b..c-012345"),
            ("ssh", "fleet", "/tmp/weighbridge-fleet-20261126T140000Z-1f-0"),
        ] {
            assert!(has_own_name(platform, what, id), "{platform}: {what} `{id}`");
        }
    }

    /// A node or a machine that does not answer holds up no other; changes of this host keep their
    /// order.
    #[test]
    fn what_is_on_other_machines_is_undone_at_once() {
        let elsewhere = all().iter().map(|platform| platform.name());
        let elsewhere: Vec<&str> = elsewhere.filter(|name| Undoers.is_elsewhere(name)).collect();
        assert_eq!(elsewhere, ["pod", "ssh"]);
        assert!(!Undoers.is_elsewhere(weigh_network::PLATFORM) && !Undoers.is_elsewhere(""));
    }

    #[test]
    fn settings_know_their_defaults() {
        let spec = EnvironmentSpec::parse("null:seed=7").unwrap();
        let null = find("null").unwrap();
        assert_eq!((setting(null, &spec, "seed"), setting(null, &spec, "time")), ("7", "10ms"));
    }
}

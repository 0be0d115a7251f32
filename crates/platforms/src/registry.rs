//! The platforms by name, and environment strings checked against them.

use crate::{ALL, KeySpec, Platform, Values};
use std::path::Path;
use weigh_host::ledger::PlatformUndo;
use weigh_model::{EnvironmentSpec, SpecError, nearest};

/// Short names of environments.
pub const ALIASES: &[(&str, &str)] = &[("docker-host", "docker:net=host"), ("docker-nat", "docker:net=nat")];

/// The key that every platform takes: tells two environments apart that are otherwise alike.
const LABEL: KeySpec = KeySpec {
    name: "label",
    values: Values::Text,
    default: "",
    summary: "a word that tells this environment from another one that is otherwise alike",
};

/// Every platform, in the order in which tables show them.
pub fn all() -> &'static [&'static dyn Platform] {
    ALL
}

/// The platforms that a run without `--on` tries: all but the fakes.
pub fn defaults() -> impl Iterator<Item = &'static dyn Platform> {
    all().iter().copied().filter(|platform| {
        !platform.capabilities(&EnvironmentSpec::new(platform.name(), Default::default())).fake
    })
}

/// The platform of that name. Aliases are not platforms.
pub fn find(name: &str) -> Option<&'static dyn Platform> {
    all().iter().copied().find(|platform| platform.name() == name)
}

/// The value of a key: as given, else the platform's default.
pub fn setting<'a>(platform: &dyn Platform, environment: &'a EnvironmentSpec, key: &str) -> &'a str {
    let default = || platform.keys().iter().find(|spec| spec.name == key).map_or("", |spec| spec.default);
    environment.get(key).unwrap_or_else(default)
}

/// Checks an environment: the platform exists, or the alias, which is expanded; every key and value is one it takes.
///
/// Keys that are not given stay absent; [`setting`] knows their defaults.
///
/// # Errors
/// The first word that is wrong, underlined, with the nearest valid word.
pub fn resolve(spec: &EnvironmentSpec) -> Result<(&'static dyn Platform, EnvironmentSpec), SpecError> {
    let (platform, alias) = platform_of(spec)?;
    for (key, value) in &spec.keys {
        if let Some(of_alias) = alias.as_ref().and_then(|alias| alias.get(key)) {
            let message = format!("`{}` means {key}={of_alias} already", spec.platform);
            return Err(spec.key_error(
                key,
                message,
                Some(format!("write `{}:{key}={value}`", platform.name())),
            ));
        }
        check_value(spec, key_of(platform, spec, key)?, value)?;
    }
    platform.check(spec)?;
    let Some(mut expanded) = alias else { return Ok((platform, spec.clone())) };
    expanded.keys.extend(spec.keys.clone());
    Ok((platform, EnvironmentSpec::new(platform.name(), expanded.keys)))
}

/// The platform that is named, and what its name stands for when it is an alias.
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
    let help = match nearest(&spec.platform, names.clone().chain(aliases)) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("the platforms are {}", names.collect::<Vec<_>>().join(", ")),
    };
    Err(spec.platform_error(format!("there is no platform `{}`", spec.platform), Some(help)))
}

fn key_of<'a>(
    platform: &'a dyn Platform,
    spec: &EnvironmentSpec,
    key: &str,
) -> Result<&'a KeySpec, SpecError> {
    let mut keys = platform.keys().iter().chain([&LABEL]);
    if let Some(found) = keys.clone().find(|known| known.name == key) {
        return Ok(found);
    }
    let help = match nearest(key, keys.clone().map(|known| known.name)) {
        Some(word) => format!("did you mean `{word}`?"),
        None => {
            let first = keys.next().map_or("", |known| known.name);
            keys.fold(format!("its keys are {first}"), |text, known| text + ", " + known.name)
        }
    };
    Err(spec.key_error(key, format!("{} has no key `{key}`", platform.name()), Some(help)))
}

fn check_value(spec: &EnvironmentSpec, key: &KeySpec, value: &str) -> Result<(), SpecError> {
    let name = key.name;
    match key.values {
        Values::Text => Ok(()),
        Values::Words(words) if words.contains(&value) => Ok(()),
        Values::Words(words) => {
            let help = match nearest(value, words.iter().copied()) {
                Some(word) => format!("did you mean `{word}`?"),
                None => format!("write one of {}", words.join(", ")),
            };
            Err(spec.value_error(name, format!("{name} cannot be `{value}`"), Some(help)))
        }
        Values::Number if value.parse::<u64>().is_ok() => Ok(()),
        Values::Number => {
            let message = format!("{name} is a whole number, `{value}` is not");
            Err(spec.value_error(name, message, Some(format!("as in `{name}=2`"))))
        }
        Values::Path if Path::new(value).exists() => Ok(()),
        Values::Path => Err(spec.value_error(name, format!("there is no {value}"), None)),
    }
}

/// Undoes what platforms recorded in a ledger, by the platform's name.
#[derive(Debug, Clone, Copy, Default)]
pub struct Undoers;

impl PlatformUndo for Undoers {
    fn undo(&self, platform: &str, what: &str, id: &str, detail: &serde_json::Value) -> Result<(), String> {
        match find(platform) {
            Some(platform) => platform.undo(what, id, detail),
            None => Err(format!("this version of weighbridge has no platform {platform}")),
        }
    }
}

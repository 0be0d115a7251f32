//! Reads the settings of a gate that are kept beside the code of a runtime.

use crate::cli::Size;
use crate::error::{Failure, file_failure};
use crate::ui;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use toml::Spanned;
use weigh_model::{GateLimits, WorkloadKey, WorkloadPlan, did_you_mean, nearest, parse_duration};
use weigh_workloads::{Fault, parse_toml};

/// The default path of the file.
pub const FILE: &str = ".weigh/gate.toml";

/// The content of the file, for what the command line leaves open and in its terms.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    #[serde(default)]
    pub workloads: Vec<String>,
    /// Whether starts are measured.
    #[serde(default)]
    pub start: bool,
    #[serde(default)]
    pub param: Vec<String>,
    pub size: Option<Size>,
    pub iterations: Option<NonZeroU32>,
    limit: Option<Spanned<f64>>,
    pub blocks: Option<u32>,
    pub budget: Option<Spanned<String>>,
    #[serde(default)]
    limits: BTreeMap<Spanned<String>, Spanned<f64>>,
}

/// For faults that have no help of their own.
const EXAMPLE: &str = "write it as in `workloads = [\"spin\"]`, `limit = 3`, or `limits = { duration = 5 }`";

/// The settings, with their text for errors.
#[derive(Debug, Default)]
pub struct GateFile {
    name: String,
    text: String,
    pub settings: Settings,
}

impl GateFile {
    /// Reads the file that the user names, or [`FILE`] if it exists.
    ///
    /// # Errors
    /// The file cannot be read, or is wrong (the place is underlined).
    pub fn read(named: Option<&Path>) -> Result<Self, Failure> {
        let path = named.unwrap_or(Path::new(FILE));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            Err(error) => return Err(file_failure("read", path, error)),
        };
        let name = path.display().to_string();
        let settings = parse_toml(&text, |_| None).map_err(|fault| {
            let help = fault.help.or_else(|| Some(EXAMPLE.into()));
            Fault { help, ..fault }.in_file(path, &text)
        })?;
        let file = Self { name, text, settings };
        for limit in file.settings.limit.iter().chain(file.settings.limits.values()) {
            file.check(limit)?;
        }
        if let Some(budget) = &file.settings.budget {
            parse_duration(budget.get_ref()).map_err(|error| {
                Failure::input(error.to_string()).at(&file.name, &file.text, budget.span())
            })?;
        }
        Ok(file)
    }

    fn check(&self, limit: &Spanned<f64>) -> Result<(), Failure> {
        match limit.get_ref() {
            percent if *percent > -100.0 && percent.is_finite() => Ok(()),
            percent => Err(Failure::input(format!("a limit cannot be {percent} %"))
                .at(&self.name, &self.text, limit.span())
                .hint("give a percentage above -100, as in limit = 3")),
        }
    }

    /// The limits. The limit of the command line holds for all that have none of their own. `named`
    /// says that the command line names what is measured, which may be less than the file has limits
    /// for.
    ///
    /// # Errors
    /// A limit is for a metric that no workload has with a verdict, unless `named`.
    pub fn limits(
        &self,
        percent: Option<f64>,
        workloads: &[WorkloadPlan],
        named: bool,
    ) -> Result<GateLimits, Failure> {
        let metrics = workloads.iter().flat_map(|workload| {
            let primary = workload.metrics.iter().filter(|metric| metric.spec.primary);
            let key = WorkloadKey::of(workload);
            primary.flat_map(move |metric| GateLimits::keys(&workload.id, &key, &metric.spec.name))
        });
        let known: Vec<String> = metrics.collect();
        let mut unused = self.settings.limits.keys().filter(|key| !known.contains(key.get_ref()));
        if named {
            let unused: Vec<&str> = unused.map(|key| key.get_ref().as_str()).collect();
            if !unused.is_empty() {
                let name = &self.name;
                ui::note(&format!(
                    "note: limits in {name} of what is not measured now: {}",
                    unused.join(", ")
                ));
            }
        } else if let Some(key) = unused.next() {
            let near = nearest(key.get_ref(), known.iter().map(String::as_str));
            let hint = did_you_mean(near, || format!("what is measured: {}", listed(&known)));
            return Err(Failure::input(format!("the gate compares no metric `{}`", key.get_ref()))
                .at(&self.name, &self.text, key.span())
                .hint(hint));
        }
        let own = self.settings.limit.as_ref().map(|limit| *limit.get_ref());
        let of = self.settings.limits.iter();
        Ok(GateLimits {
            limit: percent.or(own).unwrap_or(DEFAULT_PERCENT) / 100.0,
            of: of.map(|(key, limit)| (key.get_ref().clone(), limit.get_ref() / 100.0)).collect(),
        })
    }
}

/// The default largest change, per cent.
const DEFAULT_PERCENT: f64 = 3.0;

/// Lists the keys that name a workload, each once.
fn listed(known: &[String]) -> String {
    let mut keys: Vec<&str> = known.iter().filter(|key| key.contains('.')).map(String::as_str).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.join(", ")
}

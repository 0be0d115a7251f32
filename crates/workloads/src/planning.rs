//! Makes plans from a workload, a size and the user's parameters.

use crate::template::fill;
use crate::workload::{ParamKind, ParamSpec, Size, Workload};
use std::collections::BTreeMap;
use std::ops::Range;
use weigh_model::{HostFacts, Pace, ServerPlan, Staging, WorkloadKey, WorkloadPlan, nearest, parse_bytes};

/// Assumed size of the last-level cache if the kernel does not report it: that of a large server,
/// so that arrays sized by it are too large rather than cached.
const ASSUMED_CACHE_BYTES: u64 = 32 << 20;
/// The most combinations of swept parameters.
const MOST_COMBINATIONS: usize = 256;
/// Deadline of an iteration, seconds, if the manifest gives neither a deadline nor an expected
/// time.
const DEADLINE_S: f64 = 600.0;

/// A parameter that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParamError {
    /// Name as given.
    pub param: String,
    /// Value as given; several are joined with commas.
    pub value: String,
    /// What is wrong and what to do.
    pub message: String,
    /// The name or word that was probably intended.
    pub nearest: Option<String>,
    /// Whether the name is at fault, not the value.
    pub name_is_wrong: bool,
}

impl ParamError {
    /// The byte range of the fault within `param=value`.
    pub fn span(&self) -> Range<usize> {
        let name = self.param.len();
        if self.name_is_wrong { 0..name } else { name + 1..name + 1 + self.value.len().max(1) }
    }

    /// The name is at fault.
    fn of_name(param: &str, values: &[String], message: String) -> Self {
        Self { name_is_wrong: true, ..Self::of_value(param, &values.join(","), message) }
    }

    /// The value is at fault.
    fn of_value(param: &str, value: &str, message: String) -> Self {
        Self { param: param.into(), value: value.into(), message, nearest: None, name_is_wrong: false }
    }
}

/// Checks that a parameter has values, all different.
pub(crate) fn check_values(name: &str, values: &[String]) -> Result<(), ParamError> {
    if values.is_empty() {
        return Err(ParamError::of_name(name, values, format!("`{name}` has no value; write {name}=value")));
    }
    let Some((_, value)) = values.iter().enumerate().find(|(i, value)| values[..*i].contains(value)) else {
        return Ok(());
    };
    let message = format!("the value `{value}` of `{name}` is given twice");
    Err(ParamError::of_value(name, &values.join(","), message))
}

impl Workload {
    /// Makes one plan, or one per combination if a parameter has several values.
    ///
    /// `size` is `quick`, `standard` or `paper`. Values in bytes may be given as `llc*4`: the plan
    /// holds the number for this host, so that every guest, and every host that runs the plan
    /// later, does the same work.
    ///
    /// # Errors
    /// A parameter that the workload does not have or that follows from the size, a value that is
    /// not of the parameter's kind, a value given twice, or a size that does not exist.
    pub fn plan(
        &self,
        size: &str,
        params: &BTreeMap<String, Vec<String>>,
        host: &HostFacts,
    ) -> Result<Vec<WorkloadPlan>, ParamError> {
        let size = Size::parse(size).ok_or_else(|| {
            let message = format!("`{size}` is not a size; the sizes are quick, standard and paper");
            let nearest = nearest(size, Size::ALL.map(Size::as_str)).map(Into::into);
            ParamError { nearest, ..ParamError::of_value("size", size, message) }
        })?;
        for (name, values) in params {
            self.check_param(name, values)?;
        }
        let cache = host.last_level_cache_bytes.unwrap_or(ASSUMED_CACHE_BYTES);
        let mut plans = Vec::new();
        for combination in combinations(params)? {
            plans.push(self.plan_one(size, params, &combination, cache)?);
        }
        Ok(plans)
    }

    fn check_param(&self, name: &str, values: &[String]) -> Result<(), ParamError> {
        let Some(spec) = self.params.iter().find(|spec| spec.name == name) else {
            let known: Vec<&str> =
                self.params.iter().filter(|p| p.settable).map(|p| p.name.as_str()).collect();
            let known_words = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            let message = format!("{} has no parameter `{name}`; it has: {known_words}", self.name);
            let nearest = nearest(name, known).map(Into::into);
            return Err(ParamError { nearest, ..ParamError::of_name(name, values, message) });
        };
        if !spec.settable {
            let message = format!("`{name}` of {} follows from the size; choose another size", self.name);
            return Err(ParamError::of_name(name, values, message));
        }
        check_values(name, values)
    }

    fn plan_one(
        &self,
        size: Size,
        given: &BTreeMap<String, Vec<String>>,
        chosen: &BTreeMap<&str, &str>,
        cache: u64,
    ) -> Result<WorkloadPlan, ParamError> {
        let mut substituted = BTreeMap::new();
        let mut share = None;
        for spec in &self.params {
            let default = || self.default_of(spec, size);
            let value = chosen.get(spec.name.as_str()).copied().map_or_else(default, Ok)?;
            share = share.or_else(|| (spec.kind == ParamKind::Rate).then(|| share_of(value)).flatten());
            substituted.insert(spec.name.as_str(), spec.substitute(value, cache)?);
        }
        let fill_all = |words: &[String]| -> Vec<String> {
            words.iter().map(|word| fill(word, |name| substituted.get(name).map(String::as_str))).collect()
        };
        let swept = given.iter().filter(|(_, values)| values.len() > 1);
        let swept = swept.map(|(name, _)| (name.clone(), chosen[name.as_str()].to_string())).collect();
        let shown = WorkloadKey { params: swept, ..WorkloadKey::named(&self.name) };
        // The manifest knows the time of its own values, not of the user's.
        let expected_s = if given.is_empty() { self.expected_s(size) } else { None };
        Ok(WorkloadPlan {
            id: shown.to_string(),
            name: self.name.clone(),
            params: chosen.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            size: size.as_str().into(),
            command: fill_all(&self.command),
            commands: BTreeMap::new(),
            input: None,
            ignore_failure: false,
            prepare: self.prepare.as_deref().map(fill_all),
            cleanup: self.cleanup.as_deref().map(fill_all),
            warmup: self.warmup,
            iterations: self.iterations,
            trial_s: None,
            sliced: self.sliced,
            deadline_s: self.deadline_s(size),
            expected_s,
            check: self.check.clone(),
            metrics: self.metrics_at(size).cloned().collect(),
            operations: self.operations.clone(),
            tool_duration: self.tool_duration.clone(),
            random_read_bytes: self.random_read_bytes.clone(),
            start: None,
            neighbours: None,
            staging: self.staging_of(&fill_all, share),
        })
    }

    /// The value of a parameter that the user did not give.
    fn default_of<'s>(&self, spec: &'s ParamSpec, size: Size) -> Result<&'s str, ParamError> {
        let Some(required) = &spec.required else { return Ok(&spec.defaults[size as usize]) };
        let free = self
            .substitute
            .as_ref()
            .map(|other| format!("; the workload {other} measures the same and needs nothing"));
        let message = format!(
            "{} needs `--param {}=...`, {}: {required}{}",
            self.name,
            spec.name,
            spec.summary,
            free.unwrap_or_default()
        );
        Err(ParamError::of_name(&spec.name, &[], message))
    }

    /// What surrounds the command, with every parameter decided.
    fn staging_of(&self, fill_all: &impl Fn(&[String]) -> Vec<String>, share: Option<f64>) -> Staging {
        let Staging { setup, teardown, setup_deadline_s, packages, server } = &self.staging;
        let fill = |command: &Option<Vec<String>>| command.as_deref().map(fill_all);
        Staging {
            setup: fill(setup),
            teardown: fill(teardown),
            setup_deadline_s: *setup_deadline_s,
            packages: packages.clone(),
            server: server.as_ref().map(|server| ServerPlan {
                command: fill_all(&server.command),
                ready: fill(&server.ready),
                fill: fill(&server.fill),
                null: fill(&server.null),
                null_load: fill(&server.null_load),
                pace: share
                    .zip(server.pace.as_ref())
                    .map(|(share, pace)| Pace { share, saturate: fill_all(&pace.saturate) }),
                ..server.clone()
            }),
        }
    }

    /// The manifest's deadline; otherwise thirty times the expected time, which an emulated machine
    /// needs, and at least a minute.
    fn deadline_s(&self, size: Size) -> f64 {
        let from_expected = self.expected_s(size).map(|expected| (30.0 * expected).max(60.0));
        self.deadline_s.or(from_expected).unwrap_or(DEADLINE_S)
    }
}

impl ParamSpec {
    /// The text that replaces the parameter in the command for `value`.
    pub(crate) fn substitute(&self, value: &str, cache: u64) -> Result<String, ParamError> {
        let wrong = |message: String| ParamError::of_value(&self.name, value, message);
        match self.kind {
            ParamKind::Text if value.is_empty() => {
                Err(wrong(format!("the value of `{}` is empty", self.name)))
            }
            ParamKind::Text => Ok(value.into()),
            ParamKind::Count => count(value).map(|count| count.to_string()).ok_or_else(|| {
                wrong(format!(
                    "`{value}` is not a value of `{}`; write a whole number, as in 1000000 or 1e6",
                    self.name
                ))
            }),
            ParamKind::Number => match value.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => Ok(number.to_string()),
                _ => Err(wrong(format!(
                    "`{value}` is not a value of `{}`; write a number, as in 0.5",
                    self.name
                ))),
            },
            ParamKind::Rate if share_of(value).is_some() => Ok("{rate}".into()),
            ParamKind::Rate => match value.parse::<f64>() {
                Ok(number) if number.is_finite() && number > 0.0 => Ok(number.to_string()),
                _ => Err(wrong(format!(
                    "`{value}` is not a value of `{}`; write operations per second, as in 5000, or a share of what the slowest \
                     environment reaches in the closed loop, as in 50%",
                    self.name
                ))),
            },
            ParamKind::BytesOrNone if value == "0" => Ok("0".into()),
            ParamKind::Bytes | ParamKind::BytesOrNone => match value.strip_prefix("llc*") {
                Some(multiple) => multiple
                    .parse::<u64>()
                    .ok()
                    .filter(|multiple| *multiple > 0)
                    .and_then(|multiple| cache.checked_mul(multiple))
                    .map(|bytes| bytes.to_string())
                    .ok_or_else(|| {
                        wrong(format!(
                            "`{value}` is not a multiple of the last-level cache; write it as in llc*4"
                        ))
                    }),
                None => match parse_bytes(value) {
                    Ok(0) => Err(wrong(format!("`{}` must be above 0", self.name))),
                    Ok(bytes) => Ok(bytes.to_string()),
                    Err(error) => Err(wrong(error.to_string())),
                },
            },
        }
    }
}

/// `50%` as a fraction: above 0, at most 1.
fn share_of(text: &str) -> Option<f64> {
    let percent: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
    (percent > 0.0 && percent <= 100.0).then_some(percent / 100.0)
}

/// `1000`, `1_000`, `1e6`, `2^20`.
fn count(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    if let Ok(number) = digits.parse() {
        return Some(number);
    }
    if let Some((base, exponent)) = digits.split_once('^') {
        return base.parse::<u64>().ok()?.checked_pow(exponent.parse().ok()?);
    }
    let (mantissa, exponent) = digits.split_once(['e', 'E'])?;
    mantissa.parse::<u64>().ok()?.checked_mul(10u64.checked_pow(exponent.parse().ok()?)?)
}

/// Every combination of values, the last parameter changing fastest.
pub(crate) fn combinations(
    params: &BTreeMap<String, Vec<String>>,
) -> Result<Vec<BTreeMap<&str, &str>>, ParamError> {
    let mut all = vec![BTreeMap::new()];
    for (name, values) in params {
        if all.len().saturating_mul(values.len()) > MOST_COMBINATIONS {
            let message = format!(
                "the lists give more than {MOST_COMBINATIONS} combinations; sweep fewer values at once"
            );
            return Err(ParamError::of_value(name, &values.join(","), message));
        }
        all = all
            .into_iter()
            .flat_map(|one| {
                values.iter().map(move |value| {
                    let mut one: BTreeMap<&str, &str> = one.clone();
                    one.insert(name, value);
                    one
                })
            })
            .collect();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Library;
    use crate::library::tests::host;

    fn plan(name: &str, size: &str, params: &[(&str, &[&str])]) -> Result<Vec<WorkloadPlan>, ParamError> {
        plan_on(&host(Some(8 << 20)), name, size, params)
    }

    fn plan_on(
        host: &HostFacts,
        name: &str,
        size: &str,
        params: &[(&str, &[&str])],
    ) -> Result<Vec<WorkloadPlan>, ParamError> {
        let params = params
            .iter()
            .map(|(name, values)| ((*name).into(), values.iter().map(|value| (*value).into()).collect()))
            .collect();
        Library::load(&[], &[]).unwrap().get(name).unwrap().plan(size, &params, host)
    }

    fn option(plan: &WorkloadPlan, name: &str) -> String {
        let at = plan.command.iter().position(|word| word == name).unwrap();
        plan.command[at + 1].clone()
    }

    #[test]
    fn sizes_by_cache_are_decided_by_the_plan() {
        let array = |host: &HostFacts, value: &[&str]| {
            let params: Vec<(&str, &[&str])> =
                if value.is_empty() { Vec::new() } else { vec![("array-bytes", value)] };
            option(&plan_on(host, "stream", "quick", &params).unwrap()[0], "--array-bytes")
        };
        assert_eq!(array(&host(Some(8 << 20)), &[]), (32u64 << 20).to_string());
        assert_eq!(array(&host(None), &[]), (128u64 << 20).to_string(), "32 MiB of cache are assumed");
        assert_eq!(array(&host(Some(1 << 20)), &["llc*7"]), (7u64 << 20).to_string());
        assert_eq!(array(&host(None), &["64MiB"]), (64u64 << 20).to_string());
    }

    #[test]
    fn a_size_decides_parameters_and_metrics() {
        let metrics = |size: &str| {
            let plans = plan("memory-latency", size, &[]).unwrap();
            plans[0].metrics.iter().map(|metric| metric.spec.name.clone()).collect::<Vec<_>>()
        };
        assert!(!metrics("quick").contains(&"latency_256MiB".to_string()));
        assert!(metrics("standard").contains(&"latency_256MiB".to_string()));
        assert!(metrics("paper").contains(&"latency_1GiB".to_string()));
        for (size, nops) in [("quick", "1000000000"), ("standard", "10000000000")] {
            assert_eq!(option(&plan("noploop", size, &[]).unwrap()[0], "--nops"), nops);
        }
        let error = plan("noploop", "big", &[]).unwrap_err();
        assert!(error.to_string().contains("quick, standard and paper"), "{error}");
        assert_eq!(plan("noploop", "quik", &[]).unwrap_err().nearest.as_deref(), Some("quick"));
    }

    #[test]
    fn set_parameters_are_in_the_plan_and_swept_ones_in_the_id() {
        let one = plan("stream", "quick", &[("threads", &["2"])]).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].id, "stream");
        assert_eq!(one[0].params, [("threads".to_string(), "2".to_string())].into());
        assert_eq!(one[0].expected_s, None, "nobody knows how long the user's values take");

        let swept = plan(
            "stream",
            "quick",
            &[("threads", &["1", "2"]), ("array-bytes", &["64MiB", "1GB"]), ("repetitions", &["5"])],
        )
        .unwrap();
        let ids: Vec<_> = swept.iter().map(|plan| plan.id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "stream{array-bytes=64MiB,threads=1}",
                "stream{array-bytes=64MiB,threads=2}",
                "stream{array-bytes=1GB,threads=1}",
                "stream{array-bytes=1GB,threads=2}"
            ]
        );
        assert_eq!(option(&swept[3], "--array-bytes"), "1000000000");
        assert_eq!(swept[3].params["repetitions"], "5");
        assert_eq!(swept[3].params["array-bytes"], "1GB");
    }

    #[test]
    fn wrong_parameters_are_underlined() {
        let fault = |params: &[(&str, &[&str])]| {
            let error = plan("stream", "quick", params).unwrap_err();
            let text = format!("{}={}", error.param, error.value);
            (text[error.span()].to_string(), error.to_string(), error.nearest.unwrap_or_default())
        };
        let (at, message, nearest) = fault(&[("thread", &["2"])]);
        assert_eq!((at.as_str(), nearest.as_str()), ("thread", "threads"));
        assert!(message.contains("stream has no parameter `thread`; it has: array-bytes"), "{message}");
        let (at, message, _) = fault(&[("threads", &["1", "two"])]);
        assert_eq!(at, "two");
        assert!(message.contains("`two` is not a value of `threads`"), "{message}");
        assert!(fault(&[("array-bytes", &["llc*x"])]).1.contains("llc*4"));
        assert!(fault(&[("array-bytes", &["llc*99999999999999"])]).1.contains("llc*4"));
        assert!(fault(&[("array-bytes", &["12 parsecs"])]).1.contains("parsecs"));
        assert!(fault(&[("array-bytes", &["0"])]).1.contains("above 0"));
        let there = plan("block", "quick", &[("file-bytes", &["0"]), ("path", &["/dev/vda"])]).unwrap();
        assert!(there[0].command.windows(2).any(|pair| pair == ["--file-bytes", "0"]));
        assert_eq!(fault(&[("threads", &["1", "1"])]).0, "1,1");
        let many: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(fault(&[("threads", &many)]).1.contains("256 combinations"));
        let error = plan("memory-latency", "quick", &[("sizes", &["1GiB"])]).unwrap_err();
        assert!(error.to_string().contains("follows from the size"), "{error}");
        assert!(
            !plan("memory-latency", "quick", &[("xyz", &["1"])]).unwrap_err().to_string().contains("sizes")
        );
    }

    #[test]
    fn a_rate_is_a_number_or_follows_from_the_pilot() {
        let pace = |plan: &WorkloadPlan| plan.staging.server.as_ref().unwrap().pace.clone();
        let plans = plan("redis-open", "quick", &[("rate", &["25%", "2500"]), ("clients", &["7"])]).unwrap();
        assert_eq!(plans[0].id, "redis-open{rate=25%}");
        assert_eq!(option(&plans[0], "--rate"), "{rate}", "the run fills it in");
        let paced = pace(&plans[0]).unwrap();
        assert_eq!(paced.share, 0.25);
        assert!(!paced.saturate.iter().any(|word| word.contains("rate")), "{:?}", paced.saturate);
        assert!(paced.saturate.windows(2).any(|pair| pair == ["--clients", "7"]), "{:?}", paced.saturate);
        assert_eq!((option(&plans[1], "--rate").as_str(), pace(&plans[1])), ("2500", None));
        for name in ["redis-open", "nginx-open"] {
            for size in ["quick", "standard", "paper"] {
                assert_eq!(pace(&plan(name, size, &[]).unwrap()[0]).unwrap().share, 0.5, "{name} {size}");
            }
        }
        for wrong in ["0", "0%", "101%", "-5", "half", "%", "NaN%", "inf"] {
            let error = plan("redis-open", "quick", &[("rate", &[wrong])]).unwrap_err();
            assert!(error.to_string().contains("as in 50%"), "{wrong}: {error}");
        }
    }

    #[test]
    fn numbers_have_several_spellings() {
        assert_eq!(count("1_000"), Some(1000));
        assert_eq!(count("2e6"), Some(2_000_000));
        assert_eq!(count("2^33"), Some(1 << 33));
        for bad in ["", "e3", "1e30", "2^64", "-1", "1.5", "1e", "^2"] {
            assert_eq!(count(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_deadline_follows_from_the_expected_duration() {
        let noploop = plan("noploop", "quick", &[]).unwrap();
        assert_eq!(noploop[0].deadline_s, 60.0);
        let stream = plan("stream", "paper", &[]).unwrap();
        assert_eq!(stream[0].deadline_s, 30.0 * stream[0].expected_s.unwrap());
    }
}

//! Validates that the parts of a manifest fit together.

use super::staging;
use super::{
    Fault, Manifest, ManifestCheck, ManifestMetric, ManifestNumber, ManifestOperations, ManifestParam,
};
use crate::parsers;
use crate::template::{Piece, pieces};
use crate::workload::{ParamKind, ParamSpec, Size, Workload};
use regex::RegexBuilder;
use std::ops::Range;
use toml::Spanned;
use weigh_model::{
    Extraction, MetricSource, MetricSpec, Operations, RUN_WORDS, Unit, did_you_mean, nearest, parse_duration,
};

/// Prefixes of the names of metrics that the statistics add, and what they are.
const RESERVED: [(&str, &str); 3] = [
    ("cpu_per_", "the CPU time that is charged to an environment"),
    ("energy_per_", "the energy of the host"),
    ("energy_above_idle_per_", "the energy of the host above that of an idle one"),
];

/// The parameter of the kind `rate`.
const RATE: &str = "rate";

/// Any cache size serves to check that a default can be read.
const SOME_CACHE_BYTES: u64 = 1 << 20;

pub(super) fn workload(text: &str, mut manifest: Manifest) -> Result<Workload, Fault> {
    check_name(&manifest.name)?;
    check_texts(&manifest)?;
    let params = std::mem::take(&mut manifest.params)
        .into_iter()
        .map(|(name, param)| param_spec(&name, param))
        .collect::<Result<Vec<_>, _>>()?;
    check_commands(text, &staging::commands(&manifest), &params)?;
    let serves = staging::serves(&manifest.serves)?;
    let substitute = manifest
        .substitute
        .as_ref()
        .map(|name| check_name(name).map(|()| name.get_ref().clone()))
        .transpose()?;
    let staging = staging::staging(&manifest)?;
    let expected_s = expected_of(&manifest)?;
    check_pace(&manifest, &params)?;
    let (check_statement, check) = check_of(manifest.check)?;
    let operations = manifest.operations.map(operations_of).transpose()?;
    let number = |number: Option<Spanned<ManifestNumber>>, what: &str, unit| {
        number.map(|number| number_of(number.span(), number.into_inner(), what, unit)).transpose()
    };
    let tool_duration = number(manifest.tool_duration, "`[tool_duration]`", "s")?;
    let random_read_bytes = number(manifest.random_reads, "`[random_reads]`", "B")?;
    let (metrics, metric_sizes) = metrics_of(manifest.metric)?;
    let deadline_s = manifest.deadline.map(|deadline| seconds(&deadline)).transpose()?;
    let iterations = manifest.iterations.unwrap_or(Spanned::new(0..0, 1));
    if *iterations.get_ref() == 0 {
        return Err(Fault::new(iterations.span(), "nothing would be measured", "write 1 or more"));
    }
    let words = |command: Spanned<Vec<Spanned<String>>>| -> Vec<String> {
        command.into_inner().into_iter().map(Spanned::into_inner).collect()
    };
    Ok(Workload {
        name: manifest.name.into_inner(),
        summary: manifest.summary.into_inner(),
        description: manifest.description.into_inner().trim().to_string(),
        command: words(manifest.command),
        prepare: manifest.prepare.map(words),
        cleanup: manifest.cleanup.map(words),
        warmup: manifest.warmup.map_or(1, Spanned::into_inner),
        iterations: iterations.into_inner(),
        sliced: manifest.sliced,
        deadline_s,
        expected_s,
        default_set: manifest.default_set,
        params,
        check_statement,
        check,
        metrics,
        metric_sizes,
        operations,
        tool_duration,
        random_read_bytes,
        staging,
        serves,
        substitute,
    })
}

fn expected_of(manifest: &Manifest) -> Result<[Option<f64>; 3], Fault> {
    let mut expected_s = [None; 3];
    if let Some(expected) = &manifest.expected {
        let sizes = [&expected.quick, &expected.standard, &expected.paper];
        for (place, expected) in expected_s.iter_mut().zip(sizes) {
            *place = expected.as_ref().map(positive).transpose()?;
        }
    }
    Ok(expected_s)
}

fn check_texts(manifest: &Manifest) -> Result<(), Fault> {
    for line in [&manifest.summary, &manifest.description] {
        if line.get_ref().trim().is_empty() {
            return Err(Fault::new(line.span(), "this text is empty", "say what the workload measures"));
        }
    }
    if manifest.summary.get_ref().contains('\n') {
        let message = "the summary has several lines";
        return Err(Fault::new(manifest.summary.span(), message, "move the rest to `description`"));
    }
    Ok(())
}

/// The counted operation.
fn operations_of(operations: Spanned<ManifestOperations>) -> Result<Operations, Fault> {
    let span = operations.span();
    let ManifestOperations { name, json, regex, parser, field } = operations.into_inner();
    let number = ManifestNumber { json, regex, parser, field };
    check_word(name.get_ref(), name.span(), "an operation")?;
    let from = number_of(span, number, "`[operations]`", "1")?;
    Ok(Operations { name: name.into_inner(), from })
}

/// A number of the output that is not a metric. A field of a parser must have the unit `unit`;
/// otherwise it is another quantity.
fn number_of(
    span: Range<usize>,
    number: ManifestNumber,
    what: &str,
    unit: &str,
) -> Result<Extraction, Fault> {
    let sources = Sources {
        json: number.json,
        regex: number.regex,
        parser: number.parser,
        field: number.field,
        groups: 1,
        ..Sources::default()
    };
    let field = sources.field.as_ref().map(Spanned::span);
    let (extraction, own_unit) = sources.extraction(span.clone(), what)?;
    if let Some(own) = own_unit.filter(|own| *own != unit) {
        let message = format!("this field is in `{own}`, and {what} is in `{unit}`");
        return Err(Fault::new(field.unwrap_or(span), message, "use another field"));
    }
    Ok(extraction)
}

fn check_name(name: &Spanned<String>) -> Result<(), Fault> {
    let word = name.get_ref();
    let sound = word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if sound {
        return Ok(());
    }
    Err(Fault::new(
        name.span(),
        format!("`{word}` cannot be the name of a workload"),
        "use letters, digits and -",
    ))
}

/// Checks the name of a parameter or metric. These names are part of ids, files and options, so
/// they have no braces, commas, dots or equal signs.
fn check_word(word: &str, span: Range<usize>, what: &str) -> Result<(), Fault> {
    let sound = word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if sound {
        return Ok(());
    }
    Err(Fault::new(
        span,
        format!("`{word}` cannot be the name of {what}"),
        "use letters, digits, - and _, a letter first",
    ))
}

/// Checks that a rate that can be a share has a command that saturates the server, and vice versa.
fn check_pace(manifest: &Manifest, params: &[ParamSpec]) -> Result<(), Fault> {
    let saturate = manifest.server.as_ref().and_then(|server| server.get_ref().saturate.as_ref());
    let rate = params.iter().find(|param| param.kind == ParamKind::Rate);
    match (rate, saturate) {
        (Some(rate), _) if rate.name != RATE => {
            let message = format!("`{}` is of the kind `rate` but has another name", rate.name);
            Err(Fault::of_text(message, format!("call it `{RATE}`, the word that the run fills in")))
        }
        (Some(_), None) => {
            let message = "a `rate` needs to know how the server is saturated";
            let help = "add `saturate` to [server]: the load generator's command in a closed loop; or write kind = \"number\"";
            Err(Fault::of_text(message, help))
        }
        (None, Some(saturate)) => Err(Fault::new(
            saturate.span(),
            "no parameter says what share of it is the rate",
            "add `[params.rate]` with kind = \"rate\" and default = \"50%\", or remove `saturate`",
        )),
        _ => Ok(()),
    }
}

fn param_spec(name: &Spanned<String>, param: Spanned<ManifestParam>) -> Result<ParamSpec, Fault> {
    check_word(name.get_ref(), name.span(), "a parameter")?;
    let param = param.into_inner();
    let sizes = [param.quick, param.standard, param.paper];
    let mut spec = ParamSpec {
        name: name.get_ref().clone(),
        summary: param.summary.into_inner(),
        kind: param.kind,
        defaults: Default::default(),
        settable: param.settable,
        required: param.required.as_ref().map(|why| why.get_ref().clone()),
    };
    if let Some(required) = &param.required {
        if sizes.iter().chain([&param.default]).any(Option::is_some) {
            let message = format!("`{}` has a value too", spec.name);
            return Err(Fault::new(required.span(), message, "keep `required` or the value"));
        }
        return Ok(spec);
    }
    if param.default.is_some()
        && let Some(size) = sizes.iter().flatten().next()
    {
        let help = "keep `default` (all sizes alike) or the three sizes";
        return Err(Fault::new(size.span(), format!("`{}` has a `default` too", spec.name), help));
    }
    for (size, value) in Size::ALL.into_iter().zip(&sizes) {
        let Some(value) = value.as_ref().or(param.default.as_ref()) else {
            let message = format!("the parameter `{}` has no value for the size {size}", spec.name);
            return Err(Fault::new(
                name.span(),
                message,
                "give `quick`, `standard` and `paper`, or one `default`",
            ));
        };
        let written = match value.get_ref() {
            toml::Value::String(text) => text.clone(),
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            other => {
                let message = format!("a parameter cannot have a value of the type {}", other.type_str());
                return Err(Fault::new(value.span(), message, "write a number or a text"));
            }
        };
        spec.substitute(&written, SOME_CACHE_BYTES)
            .map_err(|error| Fault::new(value.span(), error.message, ""))?;
        spec.defaults[size as usize] = written;
    }
    Ok(spec)
}

fn check_commands(text: &str, commands: &[staging::Command<'_>], params: &[ParamSpec]) -> Result<(), Fault> {
    let mut used: Vec<&str> = Vec::new();
    for (command, side) in commands {
        if command.get_ref().first().is_none_or(|program| program.get_ref().is_empty()) {
            return Err(Fault::new(
                command.span(),
                "the command has no program",
                "write [\"program\", \"argument\"]",
            ));
        }
        for word in command.get_ref() {
            let pieces = pieces(word.get_ref()).map_err(|_| {
                Fault::new(
                    word.span(),
                    "a brace without its partner",
                    "write `{param}`, or `{{` and `}}` for braces",
                )
            })?;
            for piece in pieces {
                let Piece::Placeholder(name) = piece else { continue };
                if RUN_WORDS.contains(&name) && !params.iter().any(|param| param.name == name) {
                    let span = within(text, word.span(), &format!("{{{name}}}"));
                    staging::check_run_word(name, *side, span)?;
                    continue;
                }
                let Some(param) = params.iter().find(|param| param.name == name) else {
                    let help = match nearest(name, params.iter().map(|param| param.name.as_str())) {
                        Some(meant) => format!("did you mean `{{{meant}}}`?"),
                        None => format!("add `[params.{name}]`, or write `{{{{{name}}}}}` for the text"),
                    };
                    let span = within(text, word.span(), &format!("{{{name}}}"));
                    return Err(Fault::new(span, format!("there is no parameter `{name}`"), help));
                };
                used.push(&param.name);
            }
        }
    }
    match params.iter().find(|param| !used.contains(&param.name.as_str())) {
        None => Ok(()),
        Some(param) => {
            let span = text.find(&format!("params.{}", param.name)).map(|at| at..at + 7 + param.name.len());
            let message = format!("the parameter `{}` is used in no command", param.name);
            let help = format!("write `{{{}}}` where it belongs, or remove it", param.name);
            Err(Fault { span, message, help: Some(help) })
        }
    }
}

/// The place of `part` within the written form of a value, or the whole value.
fn within(text: &str, span: Range<usize>, part: &str) -> Range<usize> {
    match text.get(span.clone()).and_then(|written| written.find(part)) {
        Some(at) => span.start + at..span.start + at + part.len(),
        None => span,
    }
}

fn check_of(check: Option<Spanned<ManifestCheck>>) -> Result<(String, Option<Extraction>), Fault> {
    let Some(check) = check else {
        let message = "the manifest has no `[check]`";
        let help = "add one with a `statement`, and `json`, `regex` or `parser`; a statement alone means exit status 0";
        return Err(Fault::of_text(message, help));
    };
    let span = check.span();
    let check = check.into_inner();
    if check.statement.get_ref().trim().is_empty() {
        return Err(Fault::new(
            check.statement.span(),
            "the statement is empty",
            "say how a wrong result is caught",
        ));
    }
    let sources = Sources {
        json: check.json,
        regex: check.regex,
        parser: check.parser,
        field: check.field,
        ..Sources::default()
    };
    let extraction = match sources.count() {
        0 => None,
        _ => Some(sources.extraction(span, "the check")?.0),
    };
    Ok((check.statement.into_inner(), extraction))
}

fn metrics_of(metrics: Vec<Spanned<ManifestMetric>>) -> Result<(Vec<MetricSource>, Vec<Vec<Size>>), Fault> {
    let mut found: Vec<MetricSource> = Vec::new();
    let mut all_sizes = Vec::new();
    for metric in metrics {
        let name = &metric.get_ref().name;
        check_word(name.get_ref(), name.span(), "a metric")?;
        if let Some((prefix, what)) = RESERVED.iter().find(|(prefix, _)| name.get_ref().starts_with(prefix)) {
            let message = format!("`{prefix}...` is {what}");
            return Err(Fault::new(name.span(), message, "choose another name"));
        }
        if found.iter().any(|other| other.spec.name == *name.get_ref()) {
            let message = format!("the metric `{}` is there twice", name.get_ref());
            return Err(Fault::new(name.span(), message, "rename or remove one"));
        }
        let (source, sizes) = metric_of(metric)?;
        found.push(source);
        all_sizes.push(sizes);
    }
    for size in Size::ALL {
        let primary = found.iter().zip(&all_sizes).any(|(m, sizes)| m.spec.primary && sizes.contains(&size));
        if !primary {
            let message = format!("no metric is primary at the size {size}, so nothing would get a verdict");
            let help = "set `primary = true` on the metric that the workload is about";
            return Err(Fault::of_text(message, help));
        }
    }
    Ok((found, all_sizes))
}

fn metric_of(metric: Spanned<ManifestMetric>) -> Result<(MetricSource, Vec<Size>), Fault> {
    let span = metric.span();
    let metric = metric.into_inner();
    let (unit, factor) = Unit::normalise(metric.unit.get_ref());
    if unit.symbol().is_empty() {
        let help = "write `1` for a number without a unit";
        return Err(Fault::new(metric.unit.span(), "the unit is empty", help));
    }
    let from_kernel = [
        (metric.duration, Extraction::Duration),
        (metric.user_time, Extraction::UserTime),
        (metric.system_time, Extraction::SystemTime),
        (metric.cpu_time, Extraction::CpuTime),
        (metric.maximum_resident_set, Extraction::MaximumResidentSet),
    ];
    let sources = Sources {
        json: metric.json,
        regex: metric.regex,
        parser: metric.parser,
        field: metric.field,
        histogram: metric.histogram,
        quantile: metric.quantile,
        is_metric: true,
        from_kernel: from_kernel.into_iter().filter_map(|(set, from)| Some((set?, from))).collect(),
        groups: 1,
    };
    let (from, own_unit) = sources.extraction(span, &format!("the metric `{}`", metric.name.get_ref()))?;
    if let Some(own) = own_unit.filter(|own| own != metric.unit.get_ref()) {
        let message = format!("this source gives `{own}`, not `{}`", metric.unit.get_ref());
        return Err(Fault::new(metric.unit.span(), message, format!("write unit = \"{own}\"")));
    }
    let spec =
        MetricSpec { name: metric.name.into_inner(), unit, better: metric.better, primary: metric.primary };
    Ok((MetricSource { spec, from, factor }, metric.sizes.unwrap_or(Size::ALL.to_vec())))
}

/// The keys that say where a value is.
#[derive(Default)]
struct Sources {
    json: Option<Spanned<String>>,
    regex: Option<Spanned<String>>,
    parser: Option<Spanned<String>>,
    field: Option<Spanned<String>>,
    histogram: Option<Spanned<String>>,
    quantile: Option<Spanned<f64>>,
    from_kernel: Vec<(Spanned<bool>, Extraction)>,
    /// Whether a quantile is allowed.
    is_metric: bool,
    /// Groups that a regular expression needs: one to read a value, none for a check.
    groups: usize,
}

impl Sources {
    fn count(&self) -> usize {
        let texts = [&self.json, &self.regex, &self.parser, &self.histogram];
        let field_alone = self.field.is_some() && self.parser.is_none();
        let quantile_alone = self.quantile.is_some() && self.histogram.is_none() && self.parser.is_none();
        let alone = usize::from(field_alone) + usize::from(quantile_alone);
        texts.into_iter().flatten().count() + self.from_kernel.len() + alone
    }

    /// The only source, and its unit if it has one of its own.
    fn extraction(self, span: Range<usize>, what: &str) -> Result<(Extraction, Option<&'static str>), Fault> {
        if self.count() != 1 {
            let (message, help) = if self.count() == 0 {
                (
                    format!("{what} has no source"),
                    "add one of json, regex, parser with field; a metric may also have histogram with quantile, duration, user_time, system_time, cpu_time, maximum_resident_set",
                )
            } else {
                (format!("{what} has several sources"), "keep one")
            };
            return Err(Fault::new(span, message, help));
        }
        if let Some(pointer) = self.json {
            return Ok((Extraction::Json { pointer: pointer_of(pointer)? }, None));
        }
        if let Some(pattern) = self.regex {
            return regex_of(pattern, self.groups).map(|extraction| (extraction, None));
        }
        if let Some(parser) = self.parser {
            return match (self.quantile, self.is_metric) {
                (Some(quantile), true) => parsed_quantile(&parser, self.field, &quantile),
                _ => parser_of(parser, self.field, self.groups == 0),
            };
        }
        if let Some(histogram) = self.histogram {
            return quantile_of(histogram, self.quantile);
        }
        if let Some(quantile) = self.quantile {
            return Err(Fault::new(quantile.span(), "a quantile without its histogram", "add `histogram`"));
        }
        if let Some(field) = self.field {
            return Err(Fault::new(field.span(), "a field without its parser", "add `parser`"));
        }
        let (set, extraction) = self.from_kernel.into_iter().next().expect("exactly one source was counted");
        if !*set.get_ref() {
            return Err(Fault::new(
                set.span(),
                format!("{what} has no source"),
                "write true, or use another source",
            ));
        }
        let unit = if extraction == Extraction::MaximumResidentSet { "B" } else { "s" };
        Ok((extraction, Some(unit)))
    }
}

fn pointer_of(pointer: Spanned<String>) -> Result<String, Fault> {
    if pointer.get_ref().starts_with('/') {
        return Ok(pointer.into_inner());
    }
    let help = "as in \"/metrics/rate/value\" (RFC 6901)";
    Err(Fault::new(pointer.span(), "this is not a JSON pointer", help))
}

/// A quantile of a histogram, whose values are times.
fn quantile_of(
    histogram: Spanned<String>,
    quantile: Option<Spanned<f64>>,
) -> Result<(Extraction, Option<&'static str>), Fault> {
    let Some(quantile) = quantile else {
        return Err(Fault::new(histogram.span(), "a histogram without a quantile", "add `quantile = 0.99`"));
    };
    let quantile = between_0_and_1(&quantile)?;
    Ok((Extraction::Quantile { histogram: pointer_of(histogram)?, quantile }, Some("s")))
}

/// A quantile of a histogram that a parser makes.
fn parsed_quantile(
    parser: &Spanned<String>,
    field: Option<Spanned<String>>,
    quantile: &Spanned<f64>,
) -> Result<(Extraction, Option<&'static str>), Fault> {
    let found = parser_named(parser)?;
    let known: Vec<&str> = found.histograms.iter().map(|(field, _)| *field).collect();
    let field = field_among(parser, field, found.name, &known)?;
    let histogram = parsers::histogram_name(found.name, &field);
    Ok((Extraction::Quantile { histogram, quantile: between_0_and_1(quantile)? }, Some("s")))
}

fn between_0_and_1(quantile: &Spanned<f64>) -> Result<f64, Fault> {
    if *quantile.get_ref() > 0.0 && *quantile.get_ref() < 1.0 {
        return Ok(*quantile.get_ref());
    }
    let help = "write 0.99 for the 99th percentile";
    Err(Fault::new(quantile.span(), "a quantile lies between 0 and 1", help))
}

fn regex_of(pattern: Spanned<String>, groups: usize) -> Result<Extraction, Fault> {
    let compiled = RegexBuilder::new(pattern.get_ref()).multi_line(true).build().map_err(|error| {
        Fault::new(
            pattern.span(),
            format!("the regular expression is not valid: {error}"),
            "single quotes keep backslashes as they are",
        )
    })?;
    if compiled.captures_len() <= groups {
        return Err(Fault::new(
            pattern.span(),
            "the regular expression has no group",
            "put the number in parentheses",
        ));
    }
    Ok(Extraction::Regex { pattern: pattern.into_inner() })
}

fn parser_of(
    parser: Spanned<String>,
    field: Option<Spanned<String>>,
    is_check: bool,
) -> Result<(Extraction, Option<&'static str>), Fault> {
    let found = parser_named(&parser)?;
    let known: Vec<&str> = if is_check {
        found.checks.iter().map(|(field, _)| *field).collect()
    } else {
        found.fields.iter().map(|(field, ..)| *field).collect()
    };
    let field = field_among(&parser, field, found.name, &known)?;
    let unit = found.fields.iter().find(|(name, ..)| *name == field).map(|(_, unit, _)| *unit);
    Ok((Extraction::Parser { parser: parser.into_inner(), field }, unit))
}

fn parser_named(parser: &Spanned<String>) -> Result<&'static parsers::Parser, Fault> {
    parsers::find(parser.get_ref()).ok_or_else(|| {
        let known: Vec<&str> = parsers::names().collect();
        let near = nearest(parser.get_ref(), known.iter().copied());
        let help = did_you_mean(near, || format!("the parsers are: {}", known.join(", ")));
        Fault::new(parser.span(), format!("there is no parser `{}`", parser.get_ref()), help)
    })
}

/// Checks that the parser has this field.
fn field_among(
    parser: &Spanned<String>,
    field: Option<Spanned<String>>,
    name: &str,
    known: &[&str],
) -> Result<String, Fault> {
    let fields = format!("the fields are: {}", known.join(", "));
    let Some(field) = field else {
        return Err(Fault::new(parser.span(), "a parser without a field", fields));
    };
    if known.contains(&field.get_ref().as_str()) {
        return Ok(field.into_inner());
    }
    let help = did_you_mean(nearest(field.get_ref(), known.iter().copied()), || fields);
    Err(Fault::new(field.span(), format!("the parser `{name}` has no field `{}`", field.get_ref()), help))
}

pub(super) fn seconds(text: &Spanned<String>) -> Result<f64, Fault> {
    let duration =
        parse_duration(text.get_ref()).map_err(|error| Fault::new(text.span(), error.to_string(), ""))?;
    positive(&Spanned::new(text.span(), duration.as_secs_f64()))
}

fn positive(seconds: &Spanned<f64>) -> Result<f64, Fault> {
    if seconds.get_ref().is_finite() && *seconds.get_ref() > 0.0 {
        return Ok(*seconds.get_ref());
    }
    Err(Fault::new(seconds.span(), "this must be above 0", "write seconds"))
}

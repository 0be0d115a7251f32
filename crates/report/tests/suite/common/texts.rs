//! The six formats as texts on which a rule can be checked: without markup, and with every record
//! (row or sentence) on one line.

use super::Shown;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use weigh_model::{Better, neighbours};
use weigh_report::{Format, Report, quantity};
use weigh_stats::{Cell, Interval};

/// The names of the formats in reports of breaches.
pub const FORMATS: [&str; 6] = ["table", "markdown", "latex", "html", "json", "csv"];

/// A report in every format.
pub struct Texts {
    /// The four formats for people.
    pub readable: Vec<(&'static str, String)>,
    /// The JSON, for programs.
    pub json: Value,
    /// The CSV: one row per cell, by column name.
    pub csv: Vec<Vec<(String, String)>>,
    /// Workloads whose guests were all up in every environment, which the tables of neighbours
    /// report.
    pub all_up: Vec<String>,
}

/// Workloads whose guests were all up, according to their metric of guests that were up.
pub fn all_up(report: &Report) -> Vec<String> {
    let counted = |workload: &str| {
        let cells = report.analysis.cells.iter();
        let mut up = cells.filter(|c| c.workload == workload && c.metric.name == neighbours::UP).peekable();
        up.peek().is_some() && up.all(Cell::all_guests_were_up)
    };
    let workloads: BTreeSet<&String> = report.analysis.cells.iter().map(|cell| &cell.workload).collect();
    workloads.into_iter().filter(|workload| counted(workload)).cloned().collect()
}

impl Texts {
    pub fn of(report: &Report) -> Self {
        let csv = report.text(Format::Csv);
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let header = reader.headers().expect("a header").clone();
        Self {
            all_up: all_up(report),
            readable: vec![
                (FORMATS[0], report.table(1000)),
                (FORMATS[1], from_markdown(&report.text(Format::Markdown))),
                (FORMATS[2], from_latex(&report.text(Format::Latex))),
                (FORMATS[3], from_html(&report.text(Format::Html))),
            ],
            json: serde_json::from_str(&report.text(Format::Json)).expect("JSON"),
            csv: reader
                .records()
                .map(|row| {
                    let row = row.expect("rows are equally long");
                    header.iter().zip(row.iter()).map(|(k, v)| (k.to_string(), v.to_string())).collect()
                })
                .collect(),
        }
    }

    /// The cell in JSON; null if it is missing.
    pub fn json_cell(&self, cell: &Cell) -> &Value {
        let same = |row: &&Value| {
            row["workload"] == cell.workload.as_str()
                && row["metric"] == cell.metric.name.as_str()
                && row["environment"] == cell.environment.as_str()
        };
        self.json["cells"].as_array().and_then(|cells| cells.iter().find(same)).unwrap_or(&Value::Null)
    }

    /// The flags of the cell in JSON.
    pub fn json_flags(&self, cell: &Cell) -> Vec<&str> {
        self.json_cell(cell)["flags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Asserts that every format for people contains this text.
    pub fn say(&self, part: &str) {
        self.readable.iter().for_each(|(format, text)| assert!(text.contains(part), "{format} hides {part}"));
    }

    /// A field of the cell in CSV; empty if it is missing.
    pub fn csv_field(&self, cell: &Cell, column: &str) -> &str {
        let row = self.csv.iter().find(|row| {
            field(row, "workload") == cell.workload
                && field(row, "metric") == cell.metric.name
                && field(row, "environment") == cell.environment
        });
        row.map_or("", |row| field(row, column))
    }

    /// The full text of every format, to search it for words that must not occur.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        let mut all = self.readable.clone();
        all.push((FORMATS[4], self.json.to_string()));
        let cells =
            self.csv.iter().map(|row| row.iter().map(|(_, v)| v.as_str()).collect::<Vec<_>>().join(","));
        all.push((FORMATS[5], cells.collect::<Vec<_>>().join("\n")));
        all
    }
}

pub fn field<'a>(row: &'a [(String, String)], column: &str) -> &'a str {
    row.iter().find(|(name, _)| name == column).map(|(_, value)| value.as_str()).expect("a column")
}

/// An effect as it is shown.
pub struct EffectText {
    pub estimate: String,
    pub interval: String,
}

pub fn effect(interval: Interval) -> EffectText {
    let effect = quantity::Effect::from(interval);
    EffectText { estimate: effect.estimate.to_string(), interval: effect.interval() }
}

/// The rows of a cell: lines with its environment, estimate and interval that are not sentences of
/// an answer.
pub fn rows<'a>(text: &'a str, cell: &Cell) -> Vec<&'a str> {
    let Some(overhead) = cell.overhead else { return Vec::new() };
    let effect = effect(overhead);
    text.lines()
        .filter(|line| {
            line.contains(&effect.interval)
                && line.contains(&effect.estimate)
                && line.contains(&cell.environment)
                && !line.contains("against")
        })
        .collect()
}

/// Ratios in a text: a sign, a number and per cent.
pub fn ratios(line: &str) -> Vec<String> {
    static RATIO: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[+-]\d[\d.e+]* %").expect("a pattern"));
    RATIO.find_iter(line).map(|found| found.as_str().to_string()).collect()
}

/// Whether a line explains the number or heads a table, and shows no result.
pub fn explains(line: &str) -> bool {
    line.contains("half the rate is +100 %")
        || ["environment", "median", "verdict", "could see"].iter().all(|heading| line.contains(heading))
}

pub fn is_rate(cell: &Cell) -> bool {
    cell.metric.better == Better::Higher
}

fn replace(text: &str, pattern: &str, with: &str) -> String {
    Regex::new(pattern).expect("a pattern").replace_all(text, with).into_owned()
}

pub fn from_markdown(text: &str) -> String {
    let text = replace(text, r"\\([\\`*_\[\]|~#+.-])", "$1");
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&#64;", "@")
        .replace("&#58;", ":")
        .replace("&amp;", "&")
}

pub fn from_latex(text: &str) -> String {
    let text = text
        .replace(r"{\percent}", "{%}")
        .replace(r"{\micro\second}", "{µs}")
        .replace(r"{\nano\second}", "{ns}")
        .replace(r"{\milli\second}", "{ms}")
        .replace(r"{\second}", "{s}")
        .replace(r"\textmu{}", "µ")
        .replace(r"\textgreater{}", ">")
        .replace(r"\textless{}", "<")
        .replace(r"\textquotesingle{}", "'")
        .replace(r"\textasciigrave{}", "`")
        .replace(r"$\neq$", "≠")
        .replace(r"$\pm$", "±")
        .replace(r"$\times$", "×")
        .replace(r"$\cdot$", "·");
    let text = replace(&text, r"\\qty\{([^}]*)\}\{([^}]*)\}", "$1 $2");
    let text = replace(&text, r"\\num\{([^}]*)\}\\,", "$1 ");
    let text = replace(&text, r"\\num\{([^}]*)\}", "$1");
    let text = text.replace(r"$\rightarrow$", "→").replace("{-}", "-").replace('~', " ").replace("{}", "");
    replace(&text, r"\\([_%&#${}])", "$1")
}

pub fn from_html(page: &str) -> String {
    let body = page.split_once("</style>").map_or(page, |(_, rest)| rest);
    // The row of a drawing describes it.
    let body = replace(body, r"(?s)<svg.*?</svg>|<script.*?</script>", "");
    let body = replace(&body, r"\s+", " ");
    let body = replace(&body, r"</dt><dd>", ": ");
    let body = replace(&body, r"</?(tr|li|dt|section|h1|h2|caption|p)\b[^>]*>|<span class=.clause.>", "\n");
    let body = replace(&body, r"<[^>]*>", " ");
    let body = body.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#x27;", "'");
    body.replace('−', "-").replace("&amp;", "&").replace('\u{a0}', " ")
}

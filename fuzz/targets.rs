//! What reads bytes that weighbridge did not write: a function for each. Whatever the bytes are, it
//! returns, soon and with bounded memory.
//!
//! The fuzzers of this directory call these functions, and the test `fuzz` replays what they found.

#[path = "../crates/weigh/src/live/http.rs"]
#[allow(dead_code, reason = "only heads of requests are read here")]
mod http;

use serde::ser::{Serialize, SerializeTuple, Serializer};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use weigh_host::ledger;
use weigh_host::state::StateDirectory;
use weigh_images::oci::Reference;
use weigh_model::{EnvironmentSpec, HostFacts, ImageSpec, Plan, WorkloadPlan};
use weigh_platforms::{RunOptions, Session};
use weigh_protocol::{Command, Decoder, Reply, Request, encode};
use weigh_report::{Format, Report};
use weigh_store::RunDirectory;
use weigh_store::import::{NamedFile, Tool, parse_tool, recognise};
use weigh_workloads::{Ended, Library, RawResult, Resources, extract, parsers};

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, as its corpus is called.
pub const ALL: &[Target] = &[
    ("archive", archive),
    ("console", console),
    ("environment", environment),
    ("frames", frames),
    ("http_head", http_head),
    ("image_manifest", image_manifest),
    ("import", import),
    ("layers", layers),
    ("ledger", ledger_file),
    ("messages", messages),
    ("plan", plan),
    ("qmp", qmp),
    ("samples", samples),
    ("session", session),
    ("study", study),
    ("tool_files", tool_files),
    ("tool_log", tool_log),
    ("tool_output", tool_output),
    ("transfer", transfer),
    ("workload_manifest", workload_manifest),
];

/// A host for plans.
static HOST: LazyLock<HostFacts> =
    LazyLock::new(|| serde_json::from_str(HOST_TEXT).expect("the text is that of a host"));
const HOST_TEXT: &str = r#"{"identity": "3f2a", "kernel": "6.12.0", "architecture": "x86_64",
    "operating_system": "Debian", "cpu_model": "a CPU", "cpus": [0, 1], "memory_bytes": 8589934592,
    "last_level_cache_bytes": null, "cgroups": "v2", "boot": "91cc", "root": true}"#;

/// Bytes that are serialised as they are.
struct Raw<'a>(&'a [u8]);

impl Serialize for Raw<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|byte| tuple.serialize_element(byte))?;
        tuple.end()
    }
}

/// The frame of a payload.
pub fn framed(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    // What is too long for a frame is none.
    let _ = encode(&Raw(payload), &mut frame);
    frame
}

/// A directory that goes when the target is done, in memory where there is such a place.
fn directory() -> tempfile::TempDir {
    let place = Path::new("/dev/shm");
    let made = if place.is_dir() { tempfile::tempdir_in(place) } else { tempfile::tempdir() };
    made.expect("there is room for a directory")
}

/// Bytes that come over a channel in pieces: the length of the pieces is the first byte.
pub fn frames(data: &[u8]) {
    let Some((piece, data)) = data.split_first() else { return };
    let mut decoder = Decoder::new();
    let mut noise = 0;
    for piece in data.chunks(usize::from(*piece) + 1) {
        decoder.push(piece);
        loop {
            match decoder.next_message::<Reply>() {
                Ok(Some(reply)) => assert_same(&reply),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        noise += decoder.take_noise().len();
        assert!(noise + decoder.pending() <= data.len(), "bytes come from nowhere");
    }
}

fn assert_same(reply: &Reply) {
    let (mut frame, mut again) = (Vec::new(), Decoder::new());
    if encode(reply, &mut frame).is_ok() {
        again.push(&frame);
        assert_eq!(again.next_message().as_ref(), Ok(&Some(reply.clone())), "a message reads back as itself");
    }
}

/// The content of a frame whose check sum is right.
pub fn messages(data: &[u8]) {
    let frame = framed(data);
    let mut decoder = Decoder::new();
    decoder.push(&frame);
    if let Ok(Some(reply)) = decoder.next_message::<Reply>() {
        assert_same(&reply);
    }
    let mut decoder = Decoder::new();
    decoder.push(&frame);
    let _ = decoder.next_message::<Request>();
}

/// A probe that says this, whatever it is asked: pieces after their lengths (two bytes), each a
/// frame, or with the highest bit set as it is.
pub fn session(data: &[u8]) {
    const MOST: usize = 48 << 10;
    const SOON: Duration = Duration::from_millis(500);
    let mut said = Vec::new();
    let mut rest = data;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let word = u16::from_le_bytes(*length);
        let (piece, after) = after.split_at(after.len().min(usize::from(word & 0x7FFF)));
        if word & 0x8000 == 0 {
            said.extend(framed(piece))
        } else {
            said.extend_from_slice(piece)
        }
        rest = after;
    }
    said.truncate(MOST);
    let Ok((ours, mut theirs)) = UnixStream::pair() else { return };
    let Ok(write) = ours.try_clone() else { return };
    let is_said = theirs.write_all(&said).and_then(|()| theirs.shutdown(std::net::Shutdown::Write));
    let mut session = Session::new(OwnedFd::from(ours), OwnedFd::from(write));
    if is_said.is_err() || session.hello(SOON).is_err() {
        return;
    }
    let command = Command {
        argv: vec!["true".into()],
        environment: Vec::new(),
        working_directory: None,
        input: weigh_protocol::Input::Empty,
        output_limit_bytes: 1000,
    };
    if let Ok(done) = session.run(&command, RunOptions::within(SOON)) {
        assert!(done.output.len().max(done.error.len()) <= 1000);
    }
    assert!(session.get("/x", 100).map_or(0, |bytes| bytes.len()) <= 100);
    let _ = session.put("/x", 0o644, &[1; 100]);
    let _ = session.clock();
    let _ = session.facts(&[], &[]);
    let _ = session.shutdown(SOON);
    session.take_noise();
}

/// A user's archive. Nothing is unpacked beside its directory.
pub fn archive(data: &[u8]) {
    unpacked(|base| {
        std::fs::write(base.join("archive"), data).expect("there is room");
        let _ = weigh_images::fuzz::archive(&base.join("archive"), &base.join("root"));
    });
}

/// A run directory that a machine of a fleet sends: plain files with a place in one.
pub fn transfer(data: &[u8]) {
    unpacked(|base| {
        let root = base.join("root");
        std::fs::create_dir(&root).expect("there is room");
        let _ = weigh_images::transfer::unpack(data, &root, weigh_store::longest_bytes);
        for entry in std::fs::read_dir(&root).expect("it is a directory").flatten() {
            let kind = entry.file_type().expect("it is there");
            let is_logs = kind.is_dir() && entry.file_name() == "logs";
            assert!(kind.is_file() || is_logs, "{:?} is no file of a run", entry.file_name());
        }
    });
}

/// Two layers, with a NUL, an `L` and a NUL between them.
pub fn layers(data: &[u8]) {
    let at = data.windows(3).position(|mark| mark == b"\0L\0").unwrap_or(data.len());
    let (first, second) = (&data[..at], data.get(at + 3..).unwrap_or_default());
    unpacked(|base| {
        let [lower, upper, root] = ["lower", "upper", "root"].map(|name| base.join(name));
        std::fs::write(&lower, first).expect("there is room");
        std::fs::write(&upper, second).expect("there is room");
        std::fs::create_dir(&root).expect("there is room");
        let _ = weigh_images::fuzz::layers(&[&lower, &upper], &root);
    });
}

fn unpacked(unpack: impl FnOnce(&Path)) {
    let base = directory();
    let base = base.path();
    std::fs::write(base.join("victim"), "untouched").expect("there is room");
    unpack(base);
    assert_eq!(std::fs::read(base.join("victim")).ok().as_deref(), Some(&b"untouched"[..]));
    let known = ["victim", "archive", "lower", "upper", "root"];
    for entry in std::fs::read_dir(base).expect("it is a directory").flatten() {
        assert!(known.iter().any(|name| entry.file_name() == *name), "{:?} leads out", entry.file_name());
    }
}

/// The manifest of an image, and a reference to one.
pub fn image_manifest(data: &[u8]) {
    weigh_images::fuzz::manifest(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(reference) = text.parse::<Reference>() {
        assert!(reference.to_string().parse::<Reference>().is_ok(), "{reference}");
    }
    let _ = ImageSpec::from(text.to_string());
}

/// A workload of a user's.
pub fn workload_manifest(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        weigh_workloads::fuzz_manifest(text, &HOST);
    }
}

/// Every built-in workload that can be planned.
static PLANS: LazyLock<Vec<WorkloadPlan>> = LazyLock::new(|| {
    let library = Library::load(&[], &[]).expect("the built-in manifests are right");
    let planned = |workload: &weigh_workloads::Workload| workload.plan("quick", &BTreeMap::new(), &HOST);
    library.workloads().iter().flat_map(|workload| planned(workload).unwrap_or_default()).collect()
});

/// What a tool printed: the name of its workload, a line end, and the output.
pub fn tool_output(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (name, output) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    for plan in PLANS.iter().filter(|plan| plan.name.as_bytes() == name) {
        let result = RawResult {
            status: Ended::Exited(0),
            output,
            error: output,
            duration_ns: 1_000_000_000,
            resources: Resources::default(),
        };
        if let Ok(extracted) = extract(plan, &result) {
            assert!(extracted.values.values().all(|value| value.is_finite() && *value >= 0.0));
        }
    }
}

/// The log of a tool that a study published: the name of its parser, a line end, and the log.
pub fn tool_log(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (name, log) = text.split_once('\n').unwrap_or((&text, ""));
    let fields = PLANS.iter().flat_map(|plan| &plan.metrics).filter_map(|metric| match &metric.from {
        weigh_model::Extraction::Parser { parser, field } if parser == name => Some(field),
        _ => None,
    });
    for field in fields {
        let _ = parsers::logged_runs(name, field, None, log);
        let _ = parsers::logged_runs(name, field, Some("a"), log);
    }
    let _ = parsers::stream_runs(log);
    let _ = parsers::fio_groups(log);
}

/// A plan, with the environments in it.
pub fn plan(data: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Plan>(data) else { return };
    let text = serde_json::to_vec(&plan).expect("a plan can be written");
    assert_eq!(serde_json::from_slice::<Plan>(&text).ok().as_ref(), Some(&plan), "it reads back as itself");
    for environment in &plan.environments {
        let _ = weigh_platforms::resolve(&environment.spec);
    }
    report_of(&plan, &[]);
}

/// An environment as a user writes it.
pub fn environment(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match EnvironmentSpec::parse(text) {
        Ok(spec) => {
            let again = EnvironmentSpec::parse(&spec.to_string()).expect("it can be read");
            assert_eq!(
                (&again.platform, &again.keys),
                (&spec.platform, &spec.keys),
                "it reads back as itself"
            );
            if let Err(error) = weigh_platforms::resolve(&spec) {
                assert!(error.text.get(error.span.clone()).is_some(), "{error:?}");
            }
        }
        Err(error) => assert!(error.text.get(error.span.clone()).is_some(), "{error:?}"),
    }
}

/// A run directory: its plan, a NUL, and the lines of its samples after the header.
pub fn samples(data: &[u8]) {
    let at = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (plan, lines) = (&data[..at], data.get(at + 1..).unwrap_or_default());
    let base = directory();
    let header = b"{\"record\":\"header\",\"format\":6}\n";
    let files = [
        ("plan.json", plan.to_vec()),
        ("host.json", HOST_TEXT.into()),
        ("samples.jsonl", [&header[..], lines].concat()),
    ];
    for (name, content) in files {
        std::fs::write(base.path().join(name), content).expect("there is room");
    }
    let Ok(run) = RunDirectory::open(base.path()) else { return };
    let Ok(read) = run.records() else { return };
    report_of(run.plan(), &read.records);
}

/// The report of a run in every format.
fn report_of(plan: &Plan, records: &[weigh_model::Record]) {
    let collected = weigh_stats::collect(plan, records);
    let analysis =
        weigh_stats::analyse(&collected.comparisons, &weigh_stats::Options::for_run(plan, &collected));
    let known = weigh_stats::RunFacts::of_run(plan, &collected);
    let report = Report {
        limits: weigh_stats::limits(&collected.comparisons),
        degradations: weigh_stats::degradations(&collected.comparisons, &known),
        isolations: weigh_stats::isolations(&collected.comparisons),
        sums: weigh_stats::sums(&collected.comparisons, &collected.alone, &known),
        courses: weigh_stats::courses(records, &collected.comparisons),
        plan: Some(plan.clone()),
        host: Some(HOST.clone()),
        circumstances: collected.circumstances.clone(),
        voids: collected.voids.clone(),
        failures: collected.failures.clone(),
        warnings: collected.warnings.iter().map(Into::into).collect(),
        blocks_done: Some(collected.blocks_done),
        ..Report::new("a run", analysis)
    };
    render(&report);
}

fn render(report: &Report) {
    let formats = [
        Format::Table,
        Format::Json,
        Format::Csv,
        Format::Markdown,
        Format::Latex,
        Format::Html,
        Format::Junit,
    ];
    for format in formats {
        let text = weigh_report::render(report, format, &weigh_report::Options::default());
        text.expect("no content of a report makes it fail");
    }
    let exchanged = [
        Format::Bencher,
        Format::GithubSmaller,
        Format::GithubBigger,
        Format::Go,
        Format::GoogleBenchmark,
        Format::OpenMetrics,
    ];
    for format in exchanged {
        // Some reports have no place in some of these.
        let _ = weigh_report::render(report, format, &weigh_report::Options::default());
    }
}

/// Samples that were measured elsewhere, as CSV and as JSON lines.
pub fn import(data: &[u8]) {
    for name in ["samples.csv", "samples.jsonl", "samples"] {
        let Ok(comparisons) = weigh_store::import::parse(Path::new(name), data) else { continue };
        let comparisons = comparisons.comparisons;
        let Some(first) = comparisons.first().and_then(|one| one.series.first()) else { continue };
        let options = weigh_stats::Options::new(&first.environment);
        render(&Report::new("samples", weigh_stats::analyse(&comparisons, &options)));
    }
}

/// Result files of other tools: by their content, and as every tool would read them; and beside a
/// second file of the same tool.
pub fn tool_files(data: &[u8]) {
    let file = |name: &str| NamedFile { environment: Some(name.into()), path: "file".into() };
    let recognised = recognise(data);
    for tool in Tool::ALL {
        let one = [(file("a"), data.to_vec())];
        let two = [(file("a"), data.to_vec()), (file("b"), data.to_vec())];
        for files in [&one[..], &two] {
            let Ok(samples) = parse_tool(tool, files) else { continue };
            if Some(tool) == recognised {
                let options = weigh_stats::Options::new(&samples.environments[0]);
                render(&Report::new("file", weigh_stats::analyse(&samples.comparisons, &options)));
            }
        }
    }
}

/// The ledger of another run. Nothing of it is undone.
pub fn ledger_file(data: &[u8]) {
    let base = directory();
    let state = StateDirectory::at(base.path());
    std::fs::create_dir_all(state.ledger_dir()).expect("there is room");
    std::fs::write(state.ledger_dir().join("a-run.jsonl"), data).expect("there is room");
    for (_, changes) in ledger::pending(&state).expect("it can be listed").runs {
        changes.iter().for_each(|change| drop(change.to_string()));
    }
}

/// What QEMU's monitor says.
pub fn qmp(data: &[u8]) {
    weigh_platforms::fuzz::qmp(data);
}

/// What a unikernel says.
pub fn console(data: &[u8]) {
    weigh_platforms::fuzz::console(data);
}

/// The head of a request to the live report.
pub fn http_head(data: &[u8]) {
    const SECRET: &str = "5f2ac1a0c64b1a3e9d07f1b0a9c3d8e4";
    if let Some(http::Answer::Page | http::Answer::State) = http::answer(data, SECRET) {
        let is_told = data.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
        assert!(is_told, "nothing is shown without the secret");
    }
}

/// The file of a study.
pub fn study(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(study) = weigh_studies::read_study(Path::new("study.toml"), text) else { return };
    let again = weigh_studies::read_study(Path::new("study.toml"), &study.to_toml());
    assert!(again.is_ok(), "what is written can be read");
}

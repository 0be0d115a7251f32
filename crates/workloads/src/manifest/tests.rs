//! Manifests with one fault each.

mod faults;

use super::*;
use faults::Good;
use weigh_model::Extraction;

const GOOD: &str = r#"
name = "openssl"
summary = "SHA-256 of zeros"
description = "Rate of one thread."
command = ["openssl", "speed", "-seconds", "{seconds}", "--tag={{{label}}}"]
prepare = ["mkdir", "/tmp/{label}"]
deadline = "2m"
expected = { quick = 1, standard = 3.5 }

[params.seconds]
summary = "seconds per block size"
kind = "count"
quick = 1
standard = "3"
paper = 10

[params.label]
summary = "a word"
default = "x"

[check]
statement = "a rate is reported"
regex = '^\+F:'

[[metric]]
name = "rate"
unit = "MB/s"
better = "higher"
primary = true
regex = '^\+F:([0-9.]+)$'

[operations]
name = "hash"
regex = '^(\d+) hashes$'

[tool_duration]
regex = '^in ([0-9.]+) s$'

[random_reads]
json = "/bytes"

[[metric]]
name = "latency_p99"
unit = "s"
better = "lower"
histogram = "/histograms/latency"
quantile = 0.99

[[metric]]
name = "user"
unit = "s"
better = "lower"
sizes = ["paper"]
user_time = true
"#;

fn read_text(text: &str) -> Result<Workload, FileError> {
    read(Path::new("x.toml"), text)
}

#[test]
fn a_good_manifest_is_read() {
    let workload = read_text(GOOD).unwrap();
    assert_eq!(workload.name(), "openssl");
    assert_eq!((workload.warmup, workload.iterations, workload.deadline_s), (1, 1, Some(120.0)));
    assert_eq!(workload.expected_s, [Some(1.0), Some(3.5), None]);
    let seconds = workload.params().iter().find(|param| param.name == "seconds").unwrap();
    assert_eq!(seconds.defaults, ["1", "3", "10"]);
    assert_eq!(workload.check, Some(Extraction::Regex { pattern: r"^\+F:".into() }));
    assert_eq!((workload.metrics[0].spec.unit.symbol(), workload.metrics[0].factor), ("B/s", 1e6));
    assert_eq!(workload.metric_sizes[2], [Size::Paper]);
    let p99 = Extraction::Quantile { histogram: "/histograms/latency".into(), quantile: 0.99 };
    assert_eq!((&workload.metrics[1].from, workload.metrics[1].factor), (&p99, 1.0));
    assert_eq!(workload.operation(), Some("hash"));
    let hashes = Extraction::Regex { pattern: r"^(\d+) hashes$".into() };
    assert_eq!(workload.operations.as_ref().unwrap().from, hashes);
    assert!(matches!(workload.tool_duration, Some(Extraction::Regex { .. })));
    assert_eq!(workload.random_read_bytes, Some(Extraction::Json { pointer: "/bytes".into() }));
    assert!(!workload.default_set());
}

fn wrong(from: &str, to: &str, at: &str, message: &str, help: &str) {
    Good { text: GOOD, read: read_text }.wrong(from, to, at, message, help);
}

#[test]
fn unknown_keys_are_underlined_with_the_nearest() {
    wrong("summary = \"SHA", "sumary = \"SHA", "sumary", "unknown key `sumary`", "`summary`");
    wrong("[[metric]]", "[[metrics]]", "metrics", "unknown key `metrics`", "`metric`");
    wrong("kind = \"count\"", "knd = \"count\"", "knd", "unknown key `knd`", "`kind`");
    wrong("better = \"higher\"", "beter = \"higher\"", "beter", "unknown key `beter`", "`better`");
    wrong("statement", "statment", "statment", "unknown key", "`statement`");
    wrong("quick = 1, st", "quik = 1, st", "quik", "unknown key", "`quick`");
    wrong(
        "name = \"openssl\"",
        "name = \"openssl\"\nzzz = 1",
        "zzz",
        "unknown key `zzz`",
        "the keys here are: name",
    );
}

#[test]
fn amounts_and_quantiles_are_underlined() {
    wrong("[operations]", "[operation]", "operation", "unknown key `operation`", "`operations`");
    wrong("[tool_duration]", "[tool_durations]", "tool_durations", "unknown key", "`tool_duration`");
    wrong("name = \"hash\"", "nam = \"hash\"", "nam", "unknown key `nam`", "`name`");
    wrong("name = \"hash\"", "name = \"a hash\"", "\"a hash\"", "name of an operation", "letters");
    wrong("regex = '^in ", "regx = '^in ", "regx", "unknown key `regx`", "`regex`");
    wrong("regex = '^in ([0-9.]+) s$'", "regex = 'in'", "'in'", "has no group", "parentheses");
    wrong("json = \"/bytes\"", "json = \"bytes\"", "\"bytes\"", "not a JSON pointer", "RFC 6901");
    wrong("json = \"/bytes\"", "jsn = \"/bytes\"", "jsn", "unknown key `jsn`", "`json`");
    let rate = "parser = \"stream\"\nfield = \"triad\"";
    wrong("json = \"/bytes\"", rate, "\"triad\"", "`[random_reads]` is in `B`", "another field");
    wrong("quantile = 0.99\n", "", "\"/histograms/latency\"", "without a quantile", "0.99");
    wrong("quantile = 0.99\n", "quantile = 99.0\n", "99.0", "between 0 and 1", "0.99");
    wrong("histogram = \"/histograms/latency\"\n", "", "0.99", "without its histogram", "`histogram`");
    wrong("\"/histograms/latency\"", "\"latency\"", "\"latency\"", "not a JSON pointer", "RFC 6901");
    wrong("histogram =", "histgram =", "histgram", "unknown key", "`histogram`");
    let in_ms = "name = \"latency_p99\"\nunit = \"ms\"";
    wrong("name = \"latency_p99\"\nunit = \"s\"", in_ms, "\"ms\"", "gives `s`, not `ms`", "unit = \"s\"");
    wrong("name = \"user\"", "name = \"cpu_per_x\"", "\"cpu_per_x\"", "charged", "another name");
}

#[test]
fn invalid_toml_is_underlined() {
    let text = GOOD.replacen("name = \"openssl\"", "name = openssl", 1);
    let error = read_text(&text).unwrap_err();
    assert_eq!(text[..error.span.clone().unwrap().start].lines().count(), 2, "{error}");
}

#[test]
fn a_missing_entry_is_named_with_an_example() {
    for (line, key) in [
        ("name = \"openssl\"\n", "name"),
        ("summary = \"SHA-256 of zeros\"\n", "summary"),
        ("description = \"Rate of one thread.\"\n", "description"),
        ("statement = \"a rate is reported\"\n", "statement"),
        ("unit = \"MB/s\"\n", "unit"),
        ("better = \"higher\"\n", "better"),
    ] {
        Good { text: GOOD, read: read_text }.missing(line, key);
    }
}

#[test]
fn wrong_types_are_underlined() {
    wrong("name = \"openssl\"", "name = 3", "3", "expected a string", "");
    wrong("\"2m\"", "\"two minutes\"", "\"two minutes\"", "two minutes", "");
    wrong("better = \"higher\"", "better = \"more\"", "\"more\"", "unknown variant `more`", "");
    wrong("quick = 1, st", "quick = 0, st", "0", "above 0", "");
    wrong("kind = \"count\"", "kind = \"weight\"", "\"weight\"", "unknown variant", "");
    wrong("quick = 1\n", "quick = [1]\n", "[1]", "a value of the type array", "");
    wrong("quick = 1\n", "quick = \"many\"\n", "\"many\"", "`many` is not a value of `seconds`", "");
    wrong("deadline = ", "iterations = 0\ndeadline = ", "0", "nothing would be measured", "");
    wrong("sizes = [\"paper\"]", "sizes = [\"papers\"]", "\"papers\"", "unknown variant `papers`", "");
}

#[test]
fn placeholders_need_a_parameter_and_parameters_a_placeholder() {
    wrong("{seconds}", "{second}", "{second}", "no parameter `second`", "`{seconds}`");
    wrong("{seconds}", "{print}", "{print}", "no parameter `print`", "`{{print}}`");
    wrong("{{{label}}}", "{label", "\"--tag={label\"", "a brace without its partner", "`{{`");
    wrong("mkdir", "mkdir{x}", "{x}", "no parameter `x`", "");
    let unused = GOOD.replace("{seconds}", "3");
    let error = read_text(&unused).unwrap_err();
    assert!(error.message.contains("`seconds` is used in no command"), "{error}");
    assert_eq!(&unused[error.span.unwrap()], "params.seconds");
    wrong("paper = 10", "", "seconds", "no value for the size paper", "`default`");
    wrong("paper = 10", "paper = 10\ndefault = 1", "1", "has a `default` too", "keep");
    wrong("[params.label]", "[params.\"a b\"]", "\"a b\"", "cannot be the name of a parameter", "letters");
}

#[test]
fn metrics_have_one_name_and_one_source() {
    wrong("name = \"user\"", "name = \"rate\"", "\"rate\"", "`rate` is there twice", "rename");
    wrong("name = \"rate\"", "name = \"p99.9\"", "\"p99.9\"", "cannot be the name of a metric", "letters");
    wrong("unit = \"MB/s\"", "unit = \"\"", "\"\"", "the unit is empty", "`1`");
    wrong("([0-9.]+)$'", "([0-9.]+$'", "'^\\+F:([0-9.]+$'", "is not valid: found open group", "quotes");
    wrong("([0-9.]+)$'", "[0-9.]+$'", "'^\\+F:[0-9.]+$'", "has no group", "parentheses");
    let primary = "primary = true";
    wrong(primary, "primary = false", "", "no metric is primary at the size quick", primary);
    let at_two_sizes = "primary = true\nsizes = [\"quick\", \"standard\"]";
    wrong(primary, at_two_sizes, "", "no metric is primary at the size paper", "");
    wrong("unit = \"s\"", "unit = \"ms\"", "\"ms\"", "this source gives `s`, not `ms`", "unit = \"s\"");
    let source = |to: &str, at: &str, message: &str| wrong("user_time = true", to, at, message, "");
    source("user_time = false", "false", "has no source");
    source("json = \"metrics\"", "\"metrics\"", "not a JSON pointer");
    source("parser = \"steam\"\nfield = \"triad\"", "\"steam\"", "no parser `steam`");
    source("parser = \"stream\"", "\"stream\"", "a parser without a field");
    source("parser = \"stream\"\nfield = \"traid\"", "\"traid\"", "has no field `traid`");
    source("field = \"triad\"", "\"triad\"", "a field without its parser");
    source("parser = \"stream\"\nfield = \"triad\"", "\"s\"", "this source gives `B/s`, not `s`");
    let whole = |to: &str, message: &str| {
        let text = GOOD.replacen("user_time = true", to, 1);
        let error = read_text(&text).unwrap_err();
        assert!(error.message.contains(message), "{error}");
        let found = &text[error.span.unwrap()];
        assert!(found.starts_with("[[metric]]"), "{found}");
    };
    whole("", "the metric `user` has no source");
    whole("user_time = true\nduration = true", "the metric `user` has several sources");
    whole("json = \"/a\"\nregex = '(a)'", "the metric `user` has several sources");
}

#[test]
fn a_manifest_needs_a_check_of_its_results() {
    let at = GOOD.find("[check]").unwrap()..GOOD.find("[[metric]]").unwrap();
    let without = GOOD.replace(&GOOD[at], "");
    let error = read_text(&without).unwrap_err();
    assert!(error.message.contains("no `[check]`") && error.help.unwrap().contains("exit status 0"));
    wrong("statement = \"a rate is reported\"", "statement = \" \"", "\" \"", "the statement is empty", "");
    let regex = "regex = '^\\+F:'\n";
    let by_status = GOOD.replace(regex, "");
    assert_eq!(read_text(&by_status).unwrap().check, None);
    let by_parser = GOOD.replace(regex, "parser = \"stream\"\nfield = \"validates\"\n");
    assert!(matches!(read_text(&by_parser).unwrap().check, Some(Extraction::Parser { .. })));
    let a_number = "parser = \"stream\"\nfield = \"triad\"\n";
    wrong(regex, a_number, "\"triad\"", "no field `triad`", "validates");
}

#[test]
fn names_and_texts_are_sound() {
    let (name, no_name) = ("\"openssl\"\nsum", "cannot be the name of a workload");
    wrong(name, "\"open ssl\"\nsum", "\"open ssl\"", no_name, "letters");
    wrong(name, "\"\"\nsum", "\"\"", no_name, "");
    wrong("\"SHA-256 of zeros\"", "\"\"", "\"\"", "this text is empty", "");
    wrong("\"SHA-256 of zeros\"", "\"a\\nb\"", "\"a\\nb\"", "several lines", "");
    wrong("[\"mkdir\", \"/tmp/{label}\"]", "[]", "[]", "the command has no program", "");
}

/// A workload that measures a server.
const SERVER: &str = r#"
name = "answers"
summary = "answers of a server"
description = "What a client sees."
command = ["client", "{address}:{port}", "--control", "{port2}", "--seed", "{seed}", "--clients", "{clients}"]
setup = ["make-data", "{scratch}", "{clients}"]
teardown = ["remove-data", "{scratch}"]
setup_deadline = "3m"
packages = ["libc6-dev", "g++"]
serves = ["felter-2014/fig-8"]
stand_in = "echo"

[server]
command = ["serve", "{listen}:{port}", "{scratch}"]
ports = 2
transport = ["tcp", "udp"]
ready = ["client", "--ping", "{address}:{port}"]
null = ["serve", "--nothing", "{listen}:{port}"]
loop = "open"

[params.clients]
summary = "clients"
kind = "count"
default = 8

[params.share]
summary = "share of writes"
kind = "number"
default = 0.5

[params.program]
summary = "path of the client"
required = "ask its author"

[check]
statement = "it ends well"

[[metric]]
name = "latency_p99"
unit = "s"
better = "lower"
primary = true
parser = "fake"
field = "latency"
quantile = 0.99
"#;

/// The same without what requires a parser with histograms.
fn server() -> String {
    let command = "[\"client\", \"{share}\", \"{program}\"";
    let quantile = "parser = \"fake\"\nfield = \"latency\"\nquantile = 0.99";
    SERVER
        .replace("[\"client\", \"{address}", &format!("{command}, \"{{address}}"))
        .replace(quantile, "duration = true")
}

#[test]
fn the_staging_of_a_command_is_read() {
    let workload = read(Path::new("m.toml"), &server()).unwrap();
    assert_eq!(
        (workload.serves(), workload.substitute()),
        (["felter-2014/fig-8".to_string()].as_slice(), Some("echo"))
    );
    let staging = &workload.staging;
    assert_eq!(staging.setup_deadline_s, Some(180.0));
    assert_eq!(staging.packages, ["libc6-dev", "g++"]);
    let server = staging.server.as_ref().unwrap();
    assert_eq!((server.ports, server.kind), (2, weigh_model::LoadLoop::Open));
    assert_eq!(server.transport, [weigh_model::Transport::Tcp, weigh_model::Transport::Udp]);
    assert_eq!((server.fill.as_ref(), server.null_load.as_ref()), (None, None));
    let given = |params: &[(&str, &str)]| {
        let params = params.iter().map(|(name, value)| ((*name).into(), vec![(*value).into()])).collect();
        workload.plan("quick", &params, &crate::library::tests::host(None))
    };
    let plan = given(&[("program", "/opt/c"), ("clients", "3")]).unwrap().remove(0);
    assert_eq!(plan.command[..4], ["client", "0.5", "/opt/c", "{address}:{port}"]);
    assert_eq!(plan.staging.setup.unwrap(), ["make-data", "{scratch}", "3"]);
    assert_eq!(plan.staging.server.unwrap().command, ["serve", "{listen}:{port}", "{scratch}"]);
    let missing = given(&[]).unwrap_err().to_string();
    assert_eq!(
        missing,
        "answers needs `--param program=...`, path of the client: ask its author; the workload echo measures the same and needs nothing"
    );
    let wrong = given(&[("program", "/opt/c"), ("share", "half")]).unwrap_err().to_string();
    assert!(wrong.contains("write a number, as in 0.5"), "{wrong}");
}

#[test]
fn words_of_the_run_have_their_side() {
    let fault = |from: &str, to: &str| {
        let text = server();
        assert!(text.contains(from), "{from}");
        let error = read(Path::new("m.toml"), &text.replacen(from, to, 1)).unwrap_err();
        (
            error.text[error.span.clone().unwrap_or(0..0)].to_string(),
            error.message,
            error.help.unwrap_or_default(),
        )
    };
    for (from, to, at, says) in [
        ("{listen}:{port}\", \"{s", "{address}:{port}\", \"{s", "{address}", "only the loader's commands"),
        ("{address}:{port}\", \"--c", "{listen}:{port}\", \"--c", "{listen}", "only the server's commands"),
        ("{port2}", "{port3}", "{port3}", "how many ports"),
        ("ports = 2", "ports = 4", "4", "how many it listens on"),
        ("felter-2014/fig-8", "felter-2014", "\"felter-2014\"", "felter-2014/fig-6"),
        ("\"g++\"", "\"G++\"", "\"G++\"", "apt(8)"),
        ("loop = ", "lop = ", "lop", "`loop`"),
        ("null = ", "null_load = ", "[\"serve\", \"--nothing\", \"{listen}:{port}\"]", ""),
        ("required = \"ask its author\"", "required = \"x\"\ndefault = 1", "\"x\"", "keep `required`"),
    ] {
        let (found, message, help) = fault(from, to);
        if from == "null = " {
            assert!(message.contains("{listen}"), "{message}");
            continue;
        }
        assert_eq!(found, at, "{message}; {help}");
        assert!(help.contains(says), "{message}; {help}");
    }
    // Without a server only the directory and the seed are filled in.
    let error =
        read(Path::new("m.toml"), &GOOD.replace("/tmp/{label}", "{scratch}/{label}/{port}")).unwrap_err();
    assert!(error.message.contains("`{port}`"), "{}", error.message);
    assert!(read(Path::new("m.toml"), &GOOD.replace("/tmp/{label}", "{scratch}/{label}/{seed}")).is_ok());
    // A parameter of the same name is the manifest's own.
    let own = GOOD.replace("[params.label]", "[params.port]").replace("{label}", "{port}");
    let plan = read(Path::new("m.toml"), &own).unwrap();
    let plan = plan.plan("quick", &Default::default(), &crate::library::tests::host(None)).unwrap().remove(0);
    assert_eq!(plan.prepare.unwrap(), ["mkdir", "/tmp/x"]);
}

#[test]
fn a_parser_without_histograms_gives_no_quantile() {
    let text =
        SERVER.replace("\"fake\"", "\"stream\"").replace("\"--clients\"", "\"{share}\", \"{program}\"");
    let error = read(Path::new("m.toml"), &text).unwrap_err();
    assert!(error.message.contains("the parser `stream` has no field `latency`"), "{}", error.message);
}

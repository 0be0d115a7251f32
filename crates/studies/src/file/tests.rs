//! A study that is correct, and others that are wrong in one place each.

#[path = "../../../workloads/src/manifest/tests/faults.rs"]
mod faults;
mod numbers;

use super::*;
use crate::check::Point;
use crate::study::{Measurand, Origin, Place, PublishedValue};
use faults::Good;

/// A study with every key.
pub(crate) const GOOD: &str = r##"
name = 'mine-2026'
title = 'What a build server costs'
authors = 'A and B'
published = 'internal note, 2026'
host = '2 CPUs, 4 GB'
method = 'one after the other'

[[experiment]]
name = 'table-1/build'
also = ['fig-1', 'fig-2/left']
title = 'Building'
source = 'section 2, table 1'
statistic = 'mean of 10 runs; standard deviation'
baseline = 'native'

[experiment.measure]
command = 'run'
arguments = ['xz', '--param', 'threads=1']
quick = ['--param', 'clients=1,10']
paper = ['--param=clients=1,2,4']
needs = 'a server'

[[experiment.instead]]
original = 'a "compiler" of 2014'
here = 'compression by xz: C:\new'

[[experiment.arm]]
id = 'native'
label = 'Native'
on = 'native'
[[experiment.arm]]
id = 'docker'
label = 'Docker'
on = 'docker:storage=volume,net=host'
note = 'as it comes'
[[experiment.arm]]
id = 'jail'
label = 'FreeBSD jail'
reach = 'ssh'
[[experiment.arm]]
id = 'lxc'
label = 'LXC'
on = 'lxc'
today = true

[[experiment.quantity]]
id = 'rate'
label = 'rate (MB/s)'
workload = 'xz'
metric = 'rate'
params = { threads = 1, mode = 'fast', ratio = 0.5 }
statistic = 'median'
unit = 'MB/s'
better = 'higher'
stands_in = true
[[experiment.quantity]]
id = 'requests'
label = 'requests/s'
workload = 'redis'
metric = 'throughput'
sweep = 'clients'
unit = 'req/s'
better = 'higher'
[[experiment.quantity]]
id = 'latency'
label = 'latency (ms)'
workload = 'redis'
metric = 'latency_p50'
sweep = 'clients'
unit = 'ms'
better = 'lower'
[[experiment.quantity]]
id = 'efficiency'
label = 'efficiency'
workload = 'pi'
metric = 'efficiency'
unit = '%'
better = 'higher'
[[experiment.quantity]]
id = 'footprint'
label = 'one more guest (MB)'
workload = 'footprint'
metric = 'footprint'
unit = 'MB'
better = 'lower'
from = 'limits'
[[experiment.quantity]]
id = 'equal-pages'
label = 'equal pages (MB)'
workload = 'footprint'
metric = 'equal'
unit = 'MB'
better = 'lower'
from = 'duplicates'
[[experiment.quantity]]
id = 'old'
label = 'another library (us)'
unit = 'us'
better = 'lower'
from = 'text'
why = 'it is not to be had'

[[experiment.published]]
quantity = 'rate'
source = 'table 1, p. 2'
n = 10
spread = 'sd'
values = { native = [76.2, 0.93], docker = [73.5] }
[[experiment.published]]
quantity = 'requests'
source = 'p. 3'
values = { native = [110_000], docker = [105000] }
at = { clients = 4 }
[[experiment.published]]
quantity = 'requests'
source = 'p. 3'
spread = 'box'
values = { native = [1, 2, 3.0, 4, 5] }
at = { clients = '100' }

[[experiment.claim]]
id = 'docker-costs-little'
says = 'Docker is 4 % slower'
source = 'section 2, p. 3'
check = 'docker overhead of rate <= 8 % and native requests@all >= 1 x docker'
[[experiment.claim]]
id = 'efficient'
says = 'all are efficient'
source = 'section 2, p. 3'
check = '''lxc efficiency > 98 %'''

[[experiment.view]]
id = 'table-1'
title = 'Table 1'
form = 'table'
quantities = ['rate', 'efficiency']
arms_down = true
[[experiment.view]]
id = 'fig-2'
title = 'Figure 2'
form = 'lines'
quantities = ['requests']
x = 'clients'
x_label = 'clients'
y_label = 'requests/s'
[[experiment.view]]
id = 'fig-3'
title = 'Figure 3'
form = 'lines'
quantities = ['requests']
x = 'latency'

[[experiment.reanalyse]]
quantity = 'rate'
parser = 'stream'
value = 'triad'
folders = ['results/raw', '.']
files = { native = ['linux.log'], docker = ['docker-0.log', 'docker-1.log'] }
n = 10
[[experiment.reanalyse]]
quantity = 'rate'
parser = 'stream'
value = 'triad'
section = 'Thursday'
runs = [11, 20]
folders = ['results/other']
files = { jail = ['jail.log'] }
sections = { jail = 'Friday' }
note = 'by hand'

[[experiment]]
name = 'text'
title = 'Start'
source = 'section 3'
statistic = 'only described'
baseline = 'native'
measure = { command = 'start' }
arm = [{ id = 'native', label = 'Native', on = 'native' }]
quantity = [{ id = 'start', label = 'start (s)', workload = 'start', metric = 'start_to_init', unit = 's', better = 'lower' }]
view = [{ id = 'text', title = 'Start', form = 'bars', quantities = ['start'] }]
"##;

fn read_text(text: &str) -> Result<Study, FileError> {
    read_study(Path::new("x.toml"), text)
}

#[test]
fn a_good_study_is_read() {
    let study = read_text(GOOD).unwrap();
    assert_eq!((study.name.as_str(), study.experiments.len()), ("mine-2026", 2));
    let build = study.experiment("table-1/build").unwrap();
    assert_eq!(build.also, ["fig-1", "fig-2/left"]);
    assert_eq!(build.measure.quick, ["--param", "clients=1,10"]);
    assert_eq!((build.measure.standard.len(), build.measure.needs.as_deref()), (0, Some("a server")));
    let places: Vec<String> = build
        .arms
        .iter()
        .map(|arm| match &arm.place {
            Place::On(environment) => environment.to_string(),
            Place::Ssh => "by ssh".into(),
        })
        .collect();
    assert_eq!(places, ["native", "docker:net=host,storage=volume", "by ssh", "lxc"]);
    assert!(build.arm("lxc").unwrap().today && !build.arm("docker").unwrap().today);
    let params =
        [("mode", "fast"), ("ratio", "0.5"), ("threads", "1")].map(|(key, value)| (key.into(), value.into()));
    let rate = Measurand {
        workload: "xz".into(),
        metric: "rate".into(),
        params: params.into(),
        statistic: Statistic::Median,
        best_over: None,
    };
    assert_eq!(build.quantity("rate").unwrap().from, Origin::Cells(rate));
    let why = "it is not to be had".to_string();
    assert_eq!(build.quantity("old").unwrap().from, Origin::Text { why });
    let (block, value) = build.published_value("rate", "native", None).unwrap();
    assert_eq!((block.n, *value), (Some(10), PublishedValue::Single { value: 76.2, spread: Some(0.93) }));
    assert_eq!(build.published_points("requests"), ["4", "100"]);
    let (_, value) = build.published_value("requests", "native", Some("100")).unwrap();
    assert_eq!((value.center(), value.numbers()), (3.0, vec![1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(build.claims[0].check.conditions()[1].every(), Some(&Point::All));
    assert_eq!(build.views[1].x.as_deref(), Some("clients"));
}

#[test]
fn a_written_file_is_read_as_the_same() {
    let study = read_text(GOOD).unwrap();
    let text = study.to_toml();
    assert_eq!(read_text(&text).unwrap(), study, "{text}");
    assert!(text.contains("values = { docker = [73.5], native = [76.2, 0.93] }\n"), "{text}");
    assert!(text.contains("at = { clients = \"4\" }\n"), "{text}");
}

#[test]
fn a_folder_is_read_as_one_file() {
    let (head, experiments) = GOOD.split_once("[[experiment]]").unwrap();
    let (first, second) = experiments.split_once("[[experiment]]").unwrap();
    let first = first.replace("experiment.", "");
    let (a, b) = (Path::new("a.toml"), Path::new("b.toml"));
    let read = |second: &str| read_folder((Path::new("study.toml"), head), &[(a, &first), (b, second)]);
    assert_eq!(read(second).unwrap(), read_text(GOOD).unwrap());
    let fault = |from: &str, to: &str| {
        let error = read(&second.replacen(from, to, 1)).unwrap_err();
        assert_eq!(error.file, b);
        (error.text[error.span.unwrap()].to_string(), error.message)
    };
    let (at, message) = fault("'text'", "'table-1/build'");
    assert_eq!(
        (at.as_str(), message.as_str()),
        ("'table-1/build'", "the experiment `table-1/build` is defined twice")
    );
    let (at, message) = fault("'text'", "'fig-1'");
    assert_eq!((at.as_str(), message.contains("also called")), ("'fig-1'", true), "{message}");
    let (at, message) = fault("'text'", "'text'\nalso = ['x', 'table-1/build']");
    assert_eq!(
        (at.as_str(), message.contains("of another experiment")),
        ("'table-1/build'", true),
        "{message}"
    );
    let error = read_folder((Path::new("study.toml"), GOOD), &[]).unwrap_err();
    assert_eq!(
        (error.file.as_path(), error.message.as_str()),
        (Path::new("study.toml"), "the experiments of this study have files of their own")
    );
}

fn wrong(from: &str, to: &str, at: &str, message: &str, help: &str) {
    Good { text: GOOD, read: read_text }.wrong(from, to, at, message, help);
}

#[test]
fn unknown_keys_are_underlined_with_the_nearest() {
    for (key, misspelt) in [
        ("authors", "author"),
        ("also", "als"),
        ("command", "comand"),
        ("original", "orginal"),
        ("reach", "reech"),
        ("metric", "mertic"),
        ("spread", "spred"),
        ("says", "say"),
        ("section", "secton"),
    ] {
        let (from, to) = (format!("{key} ="), format!("{misspelt} ="));
        wrong(&from, &to, misspelt, &format!("unknown key `{misspelt}`"), &format!("`{key}`"));
    }
    wrong("x_label =", "caption =", "caption", "unknown key `caption`", "the keys here are: id, title");
    wrong("[[experiment.arm]]\nid = 'lxc'", "[[experiment.amr]]\nid = 'lxc'", "amr", "key `amr`", "`arm`");
}

#[test]
fn single_brackets_are_reported() {
    let text = GOOD.replacen("[[experiment.instead]]", "[experiment.instead]", 1);
    let error = read_text(&text).unwrap_err();
    assert_eq!((&text[error.span.unwrap()], error.help.as_deref()), ("instead", Some("write `[[instead]]`")));
    let text = "name = \"x\"\n[experiment]\n";
    let error = read_text(text).unwrap_err();
    assert_eq!(
        (&text[error.span.unwrap()], error.message.as_str()),
        ("experiment", "`experiment` is a list")
    );
}

#[test]
fn a_missing_entry_is_named_with_an_example() {
    for (line, key) in [
        ("title = 'What a build server costs'\n", "title"),
        ("host = '2 CPUs, 4 GB'\n", "host"),
        ("baseline = 'native'\n", "baseline"),
        ("command = 'run'\n", "command"),
        ("here = 'compression by xz: C:\\new'\n", "here"),
        ("label = 'Native'\n", "label"),
        ("unit = 'MB/s'\n", "unit"),
        ("better = 'higher'\n", "better"),
        ("source = 'table 1, p. 2'\n", "source"),
        ("values = { native = [76.2, 0.93], docker = [73.5] }\n", "values"),
        ("says = 'Docker is 4 % slower'\n", "says"),
        ("form = 'table'\n", "form"),
    ] {
        Good { text: GOOD, read: read_text }.missing(line, key);
    }
}

#[test]
fn wrong_types_and_words_are_underlined() {
    wrong("authors = 'A and B'", "authors = 3", "3", "expected a string", "");
    wrong("command = 'run'", "command = 'walk'", "'walk'", "unknown variant `walk`", "");
    wrong("better = 'higher'", "better = 'more'", "'more'", "unknown variant `more`", "");
    wrong("statistic = 'median'", "statistic = 'p99'", "'p99'", "unknown variant `p99`", "");
    wrong("spread = 'sd'", "spread = 'se'", "'se'", "unknown variant `se`", "");
    wrong("form = 'bars'", "form = 'pie'", "'pie'", "unknown variant `pie`", "");
    wrong("from = 'limits'", "from = 'cell'", "'cell'", "unknown variant `cell`", "");
    wrong("n = 10", "n = 0", "0", "`n` is 0", "");
    wrong("n = 10", "n = -1", "-1", "invalid value", "");
    wrong("[76.2, 0.93]", "['76.2']", "'76.2'", "expected", "");
}

#[test]
fn invalid_toml_is_underlined() {
    let text = GOOD.replacen("authors = 'A and B'", "authors = A and B", 1);
    let error = read_text(&text).unwrap_err();
    assert_eq!(error.line_and_column(), Some((4, 11)), "{error}");
    assert_eq!(error.to_string().split(':').next(), Some("x.toml"));
}

#[test]
fn names_are_sound_and_defined_once() {
    wrong("'mine-2026'", "'Mine'", "'Mine'", "cannot be the name of a study", "felter-2014");
    wrong("'table-1/build'", "'table 1'", "'table 1'", "the name of an experiment", "table-1/pxz");
    wrong("'fig-1'", "'fig-1/'", "'fig-1/'", "the name of an experiment", "table-1/pxz");
    wrong("'fig-1'", "'table-1/build'", "'table-1/build'", "is defined twice", "rename");
    wrong("id = 'lxc'", "id = 'LXC'", "'LXC'", "the name of an arm", "kvm-tuned");
    wrong("id = 'lxc'", "id = 'of'", "'of'", "`of` cannot be the name of an arm", "another");
    wrong("id = 'lxc'", "id = '32'", "'32'", "another meaning in checks", "another");
    wrong("id = 'lxc'", "id = 'jail'", "'jail'", "the arm `jail` is defined twice", "rename");
    wrong("id = 'latency'", "id = 'rate'", "'rate'", "the quantity `rate` is defined twice", "");
    wrong("id = 'efficient'", "id = 'docker-costs-little'", "'docker-costs-little'", "the claim", "");
    wrong("id = 'fig-3'", "id = 'fig-2'", "'fig-2'", "the view `fig-2` is defined twice", "");
    wrong("name = 'text'", "name = 'table-1/build'", "'table-1/build'", "is defined twice", "");
}

#[test]
fn empty_texts_are_refused() {
    for text in [
        "'A and B'",
        "'section 2, table 1'",
        "'table 1, p. 2'",
        "'section 2, p. 3'",
        "'a server'",
        "'as it comes'",
    ] {
        wrong(text, "' '", "' '", "this text is empty", "write something");
    }
}

#[test]
fn an_arm_is_measured_in_one_place() {
    wrong(
        "reach = 'ssh'\n",
        "",
        "[[experiment.arm]]",
        "the arm `jail` has neither `on` nor `reach`",
        "`reach = \"ssh\"`",
    );
    wrong("reach = 'ssh'", "reach = 'ssh'\non = 'native'", "'ssh'", "has `on` and `reach`", "keep one");
    wrong("reach = 'ssh'", "reach = 'rsh'", "'rsh'", "not a way to reach", "ssh");
    wrong(
        "'docker:storage=volume,net=host'",
        "'docker:net'",
        "'docker:net'",
        "`net` has no value",
        "key=value",
    );
    wrong("baseline = 'native'", "baseline = 'nativ'", "'nativ'", "there is no arm `nativ`", "`native`");
}

#[test]
fn options_that_are_added_are_refused() {
    for option in ["--on", "--baseline", "--size", "--out", "--seed", "--blocks", "--quick", "--precision"] {
        let message = format!("adds `{option}` itself");
        wrong(
            "'--param', 'threads=1'",
            &format!("'{option}'"),
            &format!("'{option}'"),
            &message,
            "remove it",
        );
        let with_value = format!("'{option}=3'");
        wrong("'--param=clients=1,2,4'", &with_value, &with_value, &message, "remove it");
    }
}

#[test]
fn the_documented_study_is_read() {
    let source = include_str!("../library.rs");
    let example = source.split("/// ```toml\n").nth(1).unwrap().split("/// ```\n").next().unwrap();
    let lines = example.lines().map(|line| line.strip_prefix("///").unwrap());
    let text: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let study =
        read_text(&text.join("\n")).unwrap_or_else(|error| panic!("{:?} {error}", error.line_and_column()));
    assert_eq!(study.name, "mine-2026");
    assert_eq!(study.experiments[0].claims[0].check.to_string(), "jail overhead of rate <= 8 %");
}

#[test]
fn claims_are_underlined_within_the_check() {
    wrong("overhead of rate", "overhaed of rate", "of", "`of` where a comparison belongs", ">=");
    wrong("<= 8 %", "<= 8", "and", "`and` where `%` belongs", "per cent");
    wrong("docker overhead", "doker overhead", "doker", "there is no arm `doker`", "`docker`");
    wrong("overhead of rate", "overhead of rats", "rats", "there is no quantity `rats`", "`rate`");
    wrong(">= 1 x docker'", ">= 1 x doctor'", "doctor", "there is no arm `doctor`", "`docker`");
    wrong(">= 1 x docker'", ">= 1 x docker latency@all'", "latency@all", "`latency` in ms", "one unit");
    wrong("requests@all", "requests", "requests", "`requests` is swept", "`@last`");
    wrong("overhead of rate <", "overhead of rate@4 <", "rate@4", "no point `@4`", "add `sweep`");
    wrong("lxc efficiency > 98 %", "lxc rate > 98 %", "rate", "`rate` is in MB/s", "only shares");
    // The place is empty, at the end.
    wrong("lxc efficiency > 98 %", "lxc efficiency >", "", "the check ends where an arm belongs", "");
    // Text written with an escape is not in the file as it is, so all of it is underlined.
    let escaped = r#""\u006cxx efficiency > 98 %""#;
    wrong("'''lxc efficiency > 98 %'''", escaped, escaped, "there is no arm `lxx`", "`lxc`");
}

#[test]
fn views_of_missing_quantities_and_axes_are_refused() {
    wrong("['rate', 'efficiency']", "[]", "[]", "the view shows no quantity", "name the quantities");
    wrong("['rate', 'efficiency']", "['rat']", "'rat'", "there is no quantity `rat`", "`rate`");
    wrong("arms_down = true", "x = 'rate'", "'rate'", "in the form `lines`", "lines");
    wrong("form = 'bars'", "form = 'lines'", "['start']", "a line chart needs an x axis", "add `x`");
    wrong("x = 'clients'\n", "x = 'threads'\n", "'threads'", "not over `threads`", "x = \"clients\"");
    wrong("x = 'latency'", "x = 'rate'", "'rate'", "not over `rate`", "");
    wrong("quantities = ['requests']", "quantities = ['rate']", "'rate'", "is not swept", "add `sweep`");
    wrong(
        "x = 'clients'\n",
        "x = 'clients'\narms_down = false\n",
        "false",
        "`arms_down` is for tables only",
        "table",
    );
}

#[test]
fn an_experiment_has_arms_quantities_and_views() {
    let without = |key: &str| {
        let at = GOOD.rfind(&format!("\n{key} = [")).unwrap();
        let end = at + 1 + GOOD[at + 1..].find('\n').unwrap();
        let text = format!("{}{}", &GOOD[..at], &GOOD[end..]);
        let error = read_text(&text).unwrap_err();
        assert_eq!(&text[error.span.clone().unwrap()], "'text'");
        assert_eq!(error.message, format!("the experiment `text` has no {key}"));
    };
    ["arm", "quantity", "view"].into_iter().for_each(without);
    let head = GOOD.split("[[experiment]]").next().unwrap();
    let error = read_text(head).unwrap_err();
    assert_eq!((error.message.as_str(), error.span), ("the study has no experiment", None));
}

//! Tests with files as people write them.

use super::*;
use proptest::prelude::*;
use weigh_model::{Better, MetricSpec, Observation, Series, Unit, WorkloadKey};

const HEADER: &str = "environment,workload,metric,unit,better,value,block\n";

fn csv(text: &str) -> Result<Imported, ImportError> {
    parse(Path::new("samples.csv"), text.as_bytes())
}

fn json(text: &str) -> Result<Imported, ImportError> {
    parse(Path::new("samples.jsonl"), text.as_bytes())
}

/// Returns the message, the place as `line:column`, the text at the place, and the help.
fn fault(result: Result<Imported, ImportError>) -> (String, String, String, String) {
    let error = result.unwrap_err();
    let (place, text) = error.place.map_or_else(Default::default, |place| {
        let from = place.column as usize - 1;
        let text = place.text.chars().skip(from).take(place.length as usize).collect();
        (format!("{}:{}", place.line, place.column), text)
    });
    (error.message, place, text, error.help.unwrap_or_default())
}

#[test]
fn rows_become_comparisons_in_base_units() {
    let text = "value,metric,better,unit,workload,environment,note,block\n\
                12.5,triad,higher,GB/s,stream,native,x,0\n\
                12.25,triad,higher,GB/s,stream,\"docker:net=nat,storage=overlay\",,0\n\
                12600,triad,higher,MB/s,stream,native,,1\n\
                3,p50,lower,ms,echo,native,,0\n";
    let imported = csv(text).unwrap();
    assert_eq!(imported.ignored, ["note"]);
    let [triad, p50] = imported.comparisons.as_slice() else { panic!("two comparisons") };
    assert_eq!((triad.workload.as_str(), triad.metric.name.as_str()), ("stream", "triad"));
    assert_eq!(
        (triad.metric.unit.symbol(), triad.metric.better, triad.metric.primary),
        ("B/s", Better::Higher, true)
    );
    let [native, docker] = triad.series.as_slice() else { panic!("two series") };
    assert_eq!((native.tried, native.failed), (2, 0));
    assert_eq!(
        native.observations,
        [Observation { block: Some(0), value: 12.5e9 }, Observation { block: Some(1), value: 12.6e9 }]
    );
    assert_eq!(docker.environment, "docker:net=nat,storage=overlay");
    assert_eq!((p50.metric.unit.symbol(), p50.series[0].observations[0].value), ("s", 0.003));
}

#[test]
fn json_lines_and_csv_give_the_same_comparisons() {
    let lines = "{\"environment\":\"native\",\"workload\":\"a \\\"b\\\"\",\"metric\":\"t\",\"unit\":\"s\",\"better\":\"lower\",\"value\":1.5,\"block\":3,\"host\":\"h\"}\n\n\
                 {\"block\":3,\"value\":2,\"better\":\"lower\",\"unit\":\"s\",\"metric\":\"t\",\"workload\":\"a \\\"b\\\"\",\"environment\":\"e2\"}";
    let rows =
        format!("{HEADER}native,\"a \"\"b\"\"\",t,s,lower,1.5,3\r\ne2,\"a \"\"b\"\"\",t,s,lower,2,3\r\n");
    let from_lines = json(lines).unwrap();
    assert_eq!(from_lines.comparisons, csv(&rows).unwrap().comparisons);
    assert_eq!(from_lines.ignored, ["host"]);
    // The ending does not matter if the content shows the format.
    assert_eq!(parse(Path::new("samples"), lines.as_bytes()).unwrap(), from_lines);
    assert_eq!(parse(Path::new("-"), rows.as_bytes()).unwrap().comparisons, from_lines.comparisons);
}

#[test]
fn without_blocks_rows_are_loose_and_may_repeat() {
    for text in [
        "environment,workload,metric,unit,better,value\nn,w,m,s,lower,2\nn,w,m,s,lower,1\n".to_string(),
        format!("{HEADER}n,w,m,s,lower,2,\nn,w,m,s,lower,1, \n"),
    ] {
        let imported = csv(&text).unwrap();
        let values: Vec<_> =
            imported.comparisons[0].series[0].observations.iter().map(|o| (o.block, o.value)).collect();
        assert_eq!(values, [(None, 2.0), (None, 1.0)], "in the order of the file");
    }
}

#[test]
fn blocks_are_put_in_order() {
    let text = format!("{HEADER}n,w,m,s,lower,2,9\nn,w,m,s,lower,1,0\n");
    let observations = &csv(&text).unwrap().comparisons[0].series[0].observations;
    assert_eq!(observations.iter().map(|o| o.block).collect::<Vec<_>>(), [Some(0), Some(9)]);
}

#[test]
fn a_byte_order_mark_and_empty_lines_change_nothing() {
    let text = format!("\u{feff}{HEADER}\n\nn,w,m,s,lower,2,0\n\n\nn,w,m,s,lower,x,1\n");
    let (message, place, text, _) = fault(csv(&text));
    assert_eq!((message.as_str(), place.as_str(), text.as_str()), ("`x` is not a number", "7:15", "x"));
    let lines = "\u{feff}{\"environment\":\"n\"}";
    assert_eq!(fault(json(lines)).1, "1:19");
}

#[test]
fn missing_columns_are_reported_with_the_likely_misspelling() {
    let (message, place, text, help) = fault(csv("environment,workload,metric,unit,better,vlaue\n"));
    assert_eq!(message, "there is no column `value`");
    assert_eq!((place.as_str(), text.as_str()), ("1:41", "vlaue"));
    assert!(help.contains("rename `vlaue`"), "{help}");
    let (message, _, text, _) = fault(csv("Environment,workload,metric,unit,better,value\n"));
    assert_eq!((message.as_str(), text.as_str()), ("there is no column `environment`", "Environment"));
    let (message, _, _, help) = fault(csv("a,b\n1,2\n"));
    assert_eq!(message, "there is no column `environment`");
    assert!(help.contains("environment,workload,metric,unit,better,value"), "{help}");
    assert!(fault(csv("environment;workload;value\n")).3.contains("commas"));
    // A misspelt optional column would silently unpair the samples.
    let (message, _, text, _) =
        fault(csv("environment,workload,metric,unit,better,value,blok\nn,w,m,s,lower,1,0\n"));
    assert_eq!((message.as_str(), text.as_str()), ("there is no column `block`", "blok"));
    let (message, _, text, _) = fault(csv("value,environment,value,workload,metric,unit,better\n"));
    assert_eq!((message.as_str(), text.as_str()), ("the column `value` is given twice", "value"));
}

#[test]
fn json_faults_have_their_places() {
    let row = r#"{"environment":"n","workload":"w","metric":"m","unit":"s","better":"lower","value":1}"#;
    let wrong = |from: &str, to: &str| fault(json(&format!("{row}\n{}\n", row.replace(from, to))));
    let (message, place, _, help) = wrong("\"unit\":", "\"units\":");
    assert_eq!((message.as_str(), place.as_str()), ("missing field `unit`", "2:86"));
    assert!(help.contains("`units`"), "{help}");
    let (message, place, text, _) = wrong("lower", "less");
    assert_eq!(
        (message.as_str(), place.as_str(), text.as_str()),
        ("`less` is not a direction", "2:59", "\"better\"")
    );
    let (message, place, _, _) = wrong("\"value\":1", "\"value\":\"1\"");
    assert!(message.contains("expected f64") && place.starts_with("2:"), "{message} {place}");
    assert!(wrong("}", "").0.contains("EOF"));
    let (message, ..) = fault(json(&row.replace("}", ",\"blocks\":1}")));
    assert_eq!(message, "there is no key `block`");
    assert!(fault(json(&row.replace("}", ",\"block\":-1}"))).0.contains("expected u32"));
    assert!(
        fault(json("[]")).0.contains("expected struct") || fault(json("[]")).0.contains("invalid length")
    );
    assert_eq!(fault(json("\n \n")).0, "the file holds no row");
}

#[test]
fn values_must_be_positive_numbers() {
    for (value, expected) in [
        ("1,5", "this row has 8 fields"),
        ("\"1,5\"", "`1,5` is not a number"),
        ("", "`` is not a number"),
        ("0", "0 is not a positive number"),
        ("-3", "-3 is not a positive number"),
        ("nan", "NaN is not a positive number"),
        ("1e999", "inf is not a positive number"),
    ] {
        let (message, place, ..) =
            fault(csv(&format!("{HEADER}n,w,m,s,lower,1,0\nn,w,m,s,lower,{value},1\n")));
        assert!(message.starts_with(expected), "{value}: {message}");
        assert!(place.starts_with("3:"), "{value}: {place}");
    }
}

#[test]
fn contradictions_name_both_lines() {
    let two = |first: &str, second: &str| fault(csv(&format!("{HEADER}{first}\n{second}\n")));
    let (message, place, text, _) = two("n,w,m,s,lower,1,4", "n,w,m,s,lower,2,4");
    assert_eq!(message, "block 4 of `w` in `n` has a second value of `m` (line 2)");
    assert_eq!((place.as_str(), text.as_str()), ("3:17", "4"));
    let (message, place, text, _) = two("n,w,m,s,lower,1,4", "n,w,m,s,higher,2,5");
    assert!(message.contains("better `higher` here") && message.ends_with("(line 2)"), "{message}");
    assert_eq!((place.as_str(), text.as_str()), ("3:9", "higher"));
    let (message, place, text, _) = two("n,w,m,s,lower,1,4", "n,w,m,B,lower,2,5");
    assert!(message.contains("is in `B` here and was in `s` before"), "{message}");
    assert_eq!((place.as_str(), text.as_str()), ("3:7", "B"));
    let (message, ..) = two("n,w,m,s,lower,1,4", "n,w,m,s,lower,2,");
    assert_eq!(message, "this row has no block, earlier rows have one (line 2)");
    let (message, ..) = two("n,w,m,s,lower,1,", "e,v,m,s,lower,2,3");
    assert_eq!(message, "this row has a block, earlier rows have none (line 2)");
    // The same metric name in two workloads names two metrics.
    assert!(csv(&format!("{HEADER}n,w,m,s,lower,1,4\nn,v,m,B,higher,2,4\n")).is_ok());
}

#[test]
fn the_first_repetition_in_the_file_is_reported() {
    let text = format!(
        "{HEADER}n,w,m,s,lower,1,0\nn,v,m,s,lower,1,7\nn,v,m,s,lower,1,7\nn,w,m,s,lower,1,0\nn,w,m,s,lower,1,0\n"
    );
    let (message, place, ..) = fault(csv(&text));
    assert!(message.contains("block 7 of `v`"), "{message}");
    assert_eq!(place, "4:17");
}

#[test]
fn other_rows_that_cannot_be_used() {
    let one = |row: &str| fault(csv(&format!("{HEADER}{row}\n")));
    assert_eq!(one(",w,m,s,lower,1,0").0, "the environment is empty");
    assert!(one("n,w,m,,lower,1,0").3.contains("`1`"));
    assert_eq!(one("n,w,m,s,Lower,1,0").0, "`Lower` is not a direction");
    assert_eq!(one("n,w,m,s,lower,1,first").0, "`first` is not a block");
    assert_eq!(one("n,w,m,s,lower,1").0, "this row has 6 fields, the first line names 7");
    let latin_1 = [HEADER.as_bytes(), b"n\xe9,w,m,s,lower,1,0\n"].concat();
    let (message, place, _, help) = fault(parse(Path::new("x.csv"), &latin_1));
    assert_eq!((message.as_str(), place.as_str()), ("the environment is not UTF-8 text", "2:1"));
    assert!(help.contains("UTF-8"));
    assert_eq!(fault(csv("")).0, "the file is empty");
    assert_eq!(fault(csv(HEADER)).0, "the file names its columns and holds no row");
    assert_eq!(fault(parse(Path::new("x.csv.gz"), b"\x1f\x8b\x08")).0, "the file is compressed");
    let gone = read(Path::new("/nonexistent/x.csv")).unwrap_err();
    assert!(gone.to_string().starts_with("/nonexistent/x.csv: cannot read it"), "{gone}");
}

#[test]
fn an_error_prints_file_line_and_column() {
    let error = csv(&format!("{HEADER}n,w,m,s,less,1,0\n")).unwrap_err();
    assert_eq!(error.to_string(), "samples.csv:2:9: `less` is not a direction");
}

fn word() -> impl Strategy<Value = String> {
    // Nothing that starts or ends in a space: those are trimmed.
    "[a-z,\"'{}=:é\n]([ a-z,\"'{}=:é\n]{0,6}[a-z,\"{}])?"
        .prop_filter("trimmed to nothing", |word| word.trim() == word)
}

prop_compose! {
    fn comparisons()(
        paired in any::<bool>(),
        cells in proptest::collection::btree_map((word(), word()), (word(), any::<bool>(), proptest::collection::btree_map(word(), proptest::collection::btree_map(any::<u32>(), 1e-300f64..1e300, 1..6), 1..4)), 1..4),
    ) -> Vec<Comparison> {
        cells.into_iter().map(|((workload, metric), (unit, lower, environments))| Comparison {
            key: WorkloadKey::named(&workload),
            workload,
            metric: MetricSpec {
                name: metric,
                unit: Unit::normalise(&unit).0,
                better: if lower { Better::Lower } else { Better::Higher },
                primary: true,
            },
            series: environments.into_iter().map(|(environment, values)| Series {
                environment,
                tried: values.len() as u32,
                failed: 0,
                observations: values.into_iter().map(|(block, value)| Observation { block: paired.then_some(block), value }).collect(),
            }).collect(),
        }).collect()
    }
}

/// The samples as CSV, with their blocks if they have any.
fn written(comparisons: &[Comparison]) -> Vec<u8> {
    let series = || comparisons.iter().flat_map(|c| c.series.iter().map(move |series| (c, series)));
    let paired = series().any(|(_, series)| series.observations.iter().any(|one| one.block.is_some()));
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    let columns = HEADER.trim().split(',');
    writer.write_record(columns.take(if paired { 7 } else { 6 })).unwrap();
    for (comparison, series) in series() {
        let metric = &comparison.metric;
        let better = if metric.better == Better::Lower { "lower" } else { "higher" };
        let unit = metric.unit.symbol();
        for one in &series.observations {
            let (value, block) = (one.value.to_string(), one.block.map(|block| block.to_string()));
            let row = [series.environment.as_str(), &comparison.workload, &metric.name, unit, better, &value];
            writer.write_record(row.into_iter().chain(block.as_deref())).unwrap();
        }
    }
    writer.into_inner().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn samples_are_read_as_they_were_written(comparisons in comparisons()) {
        let imported = parse(Path::new("x.csv"), &written(&comparisons)).unwrap();
        prop_assert_eq!(imported.comparisons, comparisons);
        prop_assert!(imported.ignored.is_empty());
    }

    #[test]
    fn no_bytes_make_it_panic(mut rows in proptest::collection::vec("[a-z,\"\r\n0-9;\u{feff}é]{0,30}", 0..6), cut in 0usize..200) {
        rows.insert(0, HEADER.into());
        rows.push("n,w,m,s,lower,1,0\n".into());
        let text = rows.concat();
        let bytes = &text.as_bytes()[..cut.min(text.len())];
        let _ = parse(Path::new("x.csv"), bytes);
        let _ = parse(Path::new("x.jsonl"), bytes);
    }
}

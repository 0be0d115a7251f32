//! Quantities, what was published of them, and the logs that it can be computed from.

use super::*;

#[test]
fn a_quantity_without_a_valid_source_is_refused() {
    let here = "[[experiment.quantity]]";
    wrong("workload = 'xz'\n", "", here, "the quantity `rate` has no workload", "`from = \"text\"`");
    wrong("metric = 'latency_p50'\n", "", here, "the quantity `latency` has no metric", "add `metric`");
    wrong("why = 'it is not to be had'\n", "", here, "`old` does not say why", "add `why`");
    wrong("from = 'limits'", "why = 'so'", "'so'", "`footprint` is measured", "`from = \"text\"`");
    wrong("from = 'text'", "from = 'text'\nmetric = 'x'", "'x'", "`metric` has no meaning", "remove");
    wrong(
        "sweep = 'clients'",
        "sweep = 'clients'\nbest_over = 'clients'",
        "'clients'",
        "the best of the quantity `requests` cannot be taken over `clients`",
        "without `sweep`",
    );
    wrong("mode = 'fast'", "mode = [1]", "[1]", "can have this value", "a number or a text");
    wrong(
        "sweep = 'clients'",
        "sweep = 'clients'\nparams = { clients = 1 }",
        "'clients'",
        "that `params` fixes",
        "`params`",
    );
}

#[test]
fn a_substitute_that_is_not_named_is_reported() {
    let at = GOOD.find("[[experiment.instead]]").unwrap()..GOOD.find("[[experiment.arm]]").unwrap();
    let text = GOOD.replace(&GOOD[at], "");
    let error = read_text(&text).unwrap_err();
    assert_eq!(&text[error.span.clone().unwrap()], "'rate'");
    assert!(error.message.contains("which is not named"), "{}", error.message);
    assert!(error.help.unwrap().contains("`[[instead]]`"));
}

#[test]
fn published_numbers_can_have_been_printed() {
    wrong("quantity = 'rate'", "quantity = 'rte'", "'rte'", "there is no quantity `rte`", "`rate`");
    wrong(
        "values = { native = [76.2",
        "values = { natve = [76.2",
        "natve",
        "there is no arm `natve`",
        "`native`",
    );
    wrong("docker = [73.5]", "lxc = [73.5]", "lxc", "is of today", "`today`");
    wrong(
        "{ native = [76.2, 0.93], docker = [73.5] }",
        "{}",
        "{}",
        "no value is published",
        "native = [76.2]",
    );
    wrong("[76.2, 0.93]", "[76.2, 0.93, 1]", "[76.2, 0.93, 1]", "and this one has 3", "[value, spread]");
    wrong("[76.2, 0.93]", "[]", "[]", "and this one has 0", "[value, spread]");
    wrong("[76.2, 0.93]", "[0]", "0", "above 0", "ratios");
    wrong("[76.2, 0.93]", "[-76.2]", "-76.2", "above 0", "ratios");
    wrong("[76.2, 0.93]", "[inf]", "inf", "above 0", "ratios");
    wrong("[76.2, 0.93]", "[76.2, -1]", "-1", "a spread cannot be negative", "as printed");
    wrong("[76.2, 0.93]", "[76.2, nan]", "nan", "a spread cannot be negative", "as printed");
    wrong("spread = 'sd'\n", "", "[76.2, 0.93]", "a spread of unknown kind", "ci95");
    wrong(
        "[1, 2, 3.0, 4, 5]",
        "[1, 2, 3, 4]",
        "[1, 2, 3, 4]",
        "a box has 5 numbers, and this one has 4",
        "median",
    );
    wrong("[1, 2, 3.0, 4, 5]", "[1, 2, 3, 2.5, 5]", "2.5", "not in ascending order", "min, p05");
    wrong("[1, 2, 3.0, 4, 5]", "[1, 0, 3, 4, 5]", "0", "above 0", "");
    wrong("at = { clients = 4 }\n", "", "[[experiment.published]]", "have no point", "a value of `clients`");
    wrong(
        "at = { clients = 4 }",
        "at = { threads = 4 }",
        "{ threads = 4 }",
        "over `clients` alone",
        "`clients`",
    );
    wrong(
        "at = { clients = 4 }",
        "at = { clients = 4, threads = 1 }",
        "{ clients = 4, threads = 1 }",
        "alone",
        "",
    );
    wrong("n = 10", "at = { clients = 4 }", "{ clients = 4 }", "is not swept", "add `sweep`");
    wrong("at = { clients = '100' }", "at = { clients = 4 }", "native", "published twice", "remove one");
}

#[test]
fn logs_are_named_by_arm() {
    let study = read_text(GOOD).unwrap();
    let logs = &study.experiment("table-1/build").unwrap().reanalyse;
    assert_eq!((logs[0].folders.len(), logs[0].n, logs[0].runs), (2, Some(10), None));
    assert_eq!(logs[0].files["docker"], ["docker-0.log", "docker-1.log"]);
    assert_eq!((logs[1].section.as_deref(), logs[1].runs), (Some("Thursday"), Some((11, 20))));
    assert_eq!(logs[1].note.as_deref(), Some("by hand"));
    assert_eq!((logs[1].section_of("jail"), logs[1].section_of("lxc")), (Some("Friday"), Some("Thursday")));
}

#[test]
fn logs_that_cannot_be_are_refused() {
    let files = "files = { native = ['linux.log'], docker = ['docker-0.log', 'docker-1.log'] }";
    let with = |files: &str| format!("files = {{ {files} }}");
    wrong(files, &with("nativ = ['a']"), "nativ", "no arm `nativ`", "`native`");
    wrong(files, &with("native = []"), "[]", "no log is named for `native`", "name one");
    wrong(files, &with("native = ['../a']"), "'../a'", "not below the directory", "without `..`");
    wrong(files, &with("native = ['/etc/a']"), "'/etc/a'", "not below the directory", "within it");
    wrong(files, "files = {}", "{}", "no log is named", "linux.log");
    wrong("files = { jail", "files = { native", "native", "are named twice", "remove one");
    wrong("['results/raw', '.']", "[]", "[]", "no folder is named", "folders = [\".\"]");
    let sections = "sections = { jail = 'Friday' }";
    wrong(sections, "sections = { lxc = 'a' }", "lxc", "no log is named for `lxc`", "`files`");
    wrong("runs = [11, 20]", "runs = [0, 20]", "[0, 20]", "no runs 0 to 20", "from 1");
    wrong("runs = [11, 20]", "runs = [21, 20]", "[21, 20]", "no runs 21 to 20", "from 1");
}

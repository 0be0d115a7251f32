//! Rules on the conditions of a measurement: clocks, parity, acceleration.

use super::*;

// 12. Unproven guest clocks.

fn rule_12(report: &Report, texts: &Texts, found: &mut Breaches) {
    const VERDICTS: [&str; 6] =
        ["SLOWER", "FASTER", "EQUIVALENT", "BELOW MARGIN", "INCONCLUSIVE", "no difference found"];
    for cell in report.analysis.cells.iter().filter(|cell| cell.flags.contains(&Flag::ClockUnproven)) {
        let what = format!("a verdict by the clock of {}", cell.environment);
        let silent =
            |line: &str| line.contains("CLOCK UNPROVEN") && !VERDICTS.iter().any(|word| line.contains(word));
        found.rows(texts, cell, &what, silent);
        let json = texts.json_cell(cell);
        let said = texts.json_flags(cell).contains(&"CLOCK_UNPROVEN");
        found.json(said && json["verdict"].is_null(), &what);
        let said = texts.csv_field(cell, "flags").contains("CLOCK_UNPROVEN");
        found.csv(said && texts.csv_field(cell, "verdict").is_empty(), &what);
    }
    for clock in &report.circumstances.clocks {
        for (state, trials) in &clock.states {
            let (word, key) = match state {
                ClockState::Shared => ("shared", "shared"),
                ClockState::Proven => ("proven", "proven"),
                ClockState::Warned => ("warned", "warned"),
                ClockState::Bracket => ("host's bracket", "bracket"),
                ClockState::Wrong => ("wrong", "wrong"),
            };
            let total: u32 = clock.states.values().sum();
            let words = if *trials == total {
                word.to_string()
            } else {
                format!("{word} in {trials} of {total} trials")
            };
            let what = format!("the clock of {}: {words}", clock.environment);
            found.readable(texts, &what, |text| text.contains(&words));
            let known = texts.json["environments"].as_array().expect("a list");
            let row = known.iter().find(|row| row["name"] == clock.environment.as_str());
            found.json(row.is_some_and(|row| row["clock"]["states"][key] == *trials), &what);
            let of = |row: &&Vec<(String, String)>| field(row, "environment") == clock.environment;
            let csv = texts.csv.iter().filter(of).all(|row| field(row, "clock").contains(&words));
            found.csv(csv, &what);
        }
    }
}

#[test]
fn rule_12_an_unproven_clock_gives_no_verdict_and_is_reported() {
    holds(rule_12);
    let truth = machines::report();
    let judged = but(&truth, |report| {
        let cell = cell_mut(report, |cell| cell.flags.contains(&Flag::ClockUnproven));
        cell.verdict = Some(Verdict::Slower);
    });
    finds(rule_12, &truth, &judged);
    finds(rule_12, &truth, &but(&truth, |report| report.circumstances.clocks.clear()));
    let table = truth.table(100);
    assert!(table.contains("no verdict in 1 of 3: lu rate (the guest's clock is unproven)"), "{table}");
}

// 14. Unequal configurations unsaid.

/// Facts in which an environment differs: key, value, the baseline's.
fn differing(report: &Report, environment: &EnvironmentFacts) -> Vec<(String, String, String)> {
    let baseline =
        report.environments.iter().find(|e| e.name == report.analysis.baseline).expect("a baseline");
    let words = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "none".to_string(),
        Some(Value::String(text)) if text == "503533568 bytes" => "480.2 MiB".into(),
        Some(Value::String(text)) if text == "536870912 bytes" => "512 MiB".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let keys: BTreeSet<&String> = baseline.facts.keys().chain(environment.facts.keys()).collect();
    keys.into_iter()
        .map(|key| (key.clone(), words(environment.facts.get(key)), words(baseline.facts.get(key))))
        .filter(|(_, here, there)| here != there)
        .collect()
}

fn rule_14(report: &Report, texts: &Texts, found: &mut Breaches) {
    let allow = report.plan.as_ref().map_or(&[][..], |plan| &plan.allow_unequal);
    for environment in &report.environments {
        let differs = differing(report, environment);
        let intended = differs.iter().filter(|(key, _, _)| environment.intended.contains_key(key)).count();
        for (key, here, there) in &differs {
            let reason = environment.intended.get(key);
            let what = format!("{key} of {}", environment.name);
            for (format, text) in &texts.readable {
                let line = |line: &str| {
                    [&environment.name, key, here, there].iter().all(|part| line.contains(part.as_str()))
                        && reason.is_none_or(|reason| line.contains(reason))
                };
                // In the terminal the name is only on the first of several lines.
                let said = text.lines().any(line)
                    || *format == "table" && text.contains(&format!("≠ {key} {here} (baseline: {there}): "));
                found.expect(said, format, what.clone());
            }
            let standing = match (reason, allow.contains(key)) {
                (Some(_), _) => "intended",
                (None, true) => "allowed",
                (None, false) => "fault",
            };
            let rows = texts.json["environments"].as_array().expect("a list");
            let row = rows.iter().find(|row| row["name"] == environment.name.as_str());
            let said = row.and_then(|row| row["differences"].as_array()).is_some_and(|found| {
                found.iter().any(|d| d["key"] == key.as_str() && d["standing"] == standing)
            });
            found.json(said, &what);
            let mark = match standing {
                "intended" if intended == 1 => format!("≠ {key}"),
                "intended" => "≠ ".into(),
                "allowed" => "unequal by request: ".into(),
                _ => "UNEQUAL: ".into(),
            };
            let own = |cell: &&Cell| cell.environment == environment.name && cell.overhead.is_some();
            for cell in compared(report).filter(own) {
                let named = |line: &str| {
                    line.contains(&mark) && (standing == "intended" || line.contains(key.as_str()))
                };
                found.rows(texts, cell, &format!("`{mark}` for {key}"), named);
                let column = if standing == "allowed" { "unequal_allowed" } else { "unequal" };
                let csv = texts.csv_field(cell, column).split(';').any(|k| k == key);
                found.csv(csv, &what);
            }
        }
    }
}

#[test]
fn rule_14_inequality_is_reported_beside_the_ratio() {
    holds(rule_14);
    let truth = machines::report();
    let silent = but(&truth, |report| {
        let baseline = report.environments[0].facts.clone();
        for environment in &mut report.environments {
            environment.facts = baseline.clone();
            environment.intended = BTreeMap::new();
        }
    });
    finds(rule_14, &truth, &silent);
    // One inequality alone, allowed by name.
    let same_memory = but(&truth, |report| {
        let memory = report.environments[0].facts["memory"].clone();
        report.environments.iter_mut().for_each(|e| drop(e.facts.insert("memory".into(), memory.clone())));
    });
    finds(rule_14, &truth, &same_memory);
    // A difference that nothing implies and nobody allowed is a prominent fault.
    let fault = but(&truth, |report| report.plan.as_mut().expect("a plan").allow_unequal.clear());
    assert_eq!(Breaches::of(rule_14, &fault, &Texts::of(&fault)), []);
    Texts::of(&fault).say("uml differs from native in memory, which nothing implies");
    Texts::of(&fault).say("NEITHER IMPLIED NOR ALLOWED");
}

#[test]
fn rule_14_one_instance_for_all_blocks_is_reported() {
    let report = but(&common::standard(), |report| report.plan.as_mut().expect("a plan").guest.reuse = true);
    let texts = Texts::of(&report);
    texts.say("REUSED INSTANCES");
    assert_eq!(texts.json["reuse"], true);
}

// 17. Emulation shown under the name KVM.

fn rule_17(report: &Report, texts: &Texts, found: &mut Breaches) {
    for environment in &report.environments {
        let Some(ran) = environment.facts.get("acceleration").and_then(Value::as_str) else { continue };
        let what = format!("{} ran with {ran}", environment.name);
        let said = |text: &str| text.contains(&environment.name) && text.contains(ran);
        for (format, text) in texts.all() {
            found.expect(said(&text), format, what.clone());
            let honest = ran.contains("kvm") || !text.contains("kvm");
            found.expect(honest, format, format!("{what}, shown as kvm"));
        }
        for row in texts.csv.iter().filter(|row| field(row, "environment") == environment.name) {
            found.csv(field(row, "acceleration") == ran, &what);
        }
    }
}

#[test]
fn rule_17_emulation_is_never_shown_as_kvm() {
    holds(rule_17);
    let truth = machines::report();
    let claimed = but(&truth, |report| {
        report.title = report.title.replace(machines::QEMU, "kvm");
        let cells = report.analysis.cells.iter_mut().map(|cell| &mut cell.environment);
        let names = cells.chain(report.environments.iter_mut().map(|environment| &mut environment.name));
        names.filter(|name| *name == machines::QEMU).for_each(|name| *name = "kvm".into());
    });
    finds(rule_17, &truth, &claimed);
    // A run filed under a false name is not shown without saying so.
    Texts::of(&claimed).say("MISNAMED");
    Texts::of(&claimed).say("kvm ran with acceleration tcg, which differs from its name");
    // Nor is KVM on a host that is emulated itself.
    let emulated = but(&truth, |report| {
        report.host.as_mut().expect("a host").hypervisor = Some(weigh_model::EMULATOR.into());
    });
    Texts::of(&emulated).say("EMULATED HOST");
    assert!(!truth.table(100).contains("EMULATED HOST"));
}

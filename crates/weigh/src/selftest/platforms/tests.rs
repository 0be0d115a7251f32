use super::*;

fn design() -> Design {
    let spec = |label: &str| EnvironmentSpec::parse(&format!("native{label}")).unwrap();
    let named = |label: &str| (format!("native{label}"), spec(label));
    Design {
        seed: 3,
        blocks: BLOCKS,
        forms: vec![Form::Slices, Form::Whole],
        slices: SliceChoice::Auto,
        cpus: vec![0],
        targets: vec![Target { itself: named(""), others: [named(":label=b"), named(":label=c")] }],
        digests: BTreeMap::new(),
    }
}

/// Makes a comparison that found an effect, with ten pairs spread evenly over `spread` on
/// either side.
fn measured(form: Form, injected: f64, found: f64, spread: f64) -> Measured {
    let log_ratios: Vec<f64> =
        (0..10).map(|block| found.ln_1p() + spread * (f64::from(block) - 4.5) / 4.5).collect();
    let found = mean_effect(&log_ratios, 0.95).unwrap();
    Measured {
        comparison: 1,
        form,
        injected,
        pairs: 10,
        p: if holds(found, 0.0) { 0.5 } else { 0.001 },
        found,
        smallest_detectable: spread,
        log_ratios,
        control: None,
    }
}

fn judged(measured: Vec<Measured>) -> PlatformsJudgement {
    let of = PlatformResults {
        platform: "native".into(),
        measured,
        sliced: Some(Ok(5000)),
        ..PlatformResults::default()
    };
    judge(&design(), vec![of], None)
}

/// Makes comparisons without and with the effect in both forms. Those in slices find the given
/// values.
fn all(same: f64, more: f64, spread: f64) -> Vec<Measured> {
    let of = |form, same, more| [measured(form, 0.0, same, spread), measured(form, EFFECT, more, spread)];
    [of(Form::Slices, same, more), of(Form::Whole, 0.0, EFFECT)].concat()
}

fn text(judgement: &PlatformsJudgement) -> String {
    let options = weigh_report::Options::default();
    weigh_report::render_document(&document(judgement), weigh_report::Format::Table, &options).unwrap()
}

#[test]
fn truths_that_are_found_are_inside() {
    let judgement = judged(all(0.001, 0.029, 0.005));
    assert_eq!(judgement.platforms[0].verdict, PlatformVerdict::Inside, "{}", text(&judgement));
    assert!(judgement.ended().is_ok());
    let shown = text(&judgement);
    for words in ["slices of 5ms", "whole trials", "+2.90 % [", "INSIDE"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert!(!shown.contains("OUTSIDE"), "{shown}");
}

#[test]
fn slices_that_lose_an_effect_or_invent_one_are_reported() {
    for broken in [all(0.0, 0.0, 0.005), all(0.0, 0.02, 0.005), all(0.01, 0.03, 0.005)] {
        let judgement = judged(broken);
        assert_eq!(judgement.platforms[0].verdict, PlatformVerdict::Outside, "{}", text(&judgement));
        let failure = judgement.ended().unwrap_err();
        assert_eq!(failure.kind(), ExitKind::Failed);
        assert!(text(&judgement).contains("OUTSIDE"));
    }
}

#[test]
fn noise_that_hides_the_effect_proves_nothing() {
    let judgement = judged(all(0.0, 0.03, 0.2));
    assert_eq!(judgement.platforms[0].verdict, PlatformVerdict::Inconclusive, "{}", text(&judgement));
    assert!(judgement.ended().is_ok());
    assert!(text(&judgement).contains("not found"));
}

#[test]
fn the_bounds_are_those_of_all_comparisons_together() {
    let one = judged(vec![measured(Form::Whole, 0.0, 0.0, 0.01)]);
    let four = judged(all(0.0, EFFECT, 0.01));
    let width = |judgement: &PlatformsJudgement| judgement.platforms[0].comparisons[0].bounds.high;
    assert!(width(&four) > 1.2 * width(&one), "{} {}", width(&four), width(&one));
    let judged = &one.platforms[0].comparisons[0];
    assert!(judged.bounds.high > 1.5 * judged.measured.found.high);
}

#[test]
fn platforms_without_a_number_are_reported() {
    let broken = PlatformResults {
        platform: "docker".into(),
        failed: vec!["docker in slices: no daemon".into()],
        ..PlatformResults::default()
    };
    let judgement = judge(&design(), vec![broken.clone()], None);
    assert_eq!(judgement.ended().unwrap_err().kind(), ExitKind::NothingMeasured);
    assert!(text(&judgement).contains("no daemon"));
    let good = PlatformResults {
        platform: "native".into(),
        measured: all(0.0, EFFECT, 0.01),
        ..PlatformResults::default()
    };
    let judgement = judge(&design(), vec![good, broken], None);
    let failure = judgement.ended().unwrap_err();
    assert_eq!(failure.kind(), ExitKind::Failed);
}

#[test]
fn a_plan_has_the_platform_three_times_and_the_work_in_both_forms() {
    let design = design();
    let plan = design.plan(&design.targets[0], &HostFacts::default()).unwrap();
    let spins: Vec<&String> = plan.environments.iter().map(|e| &e.variables["WEIGH_SPIN"]).collect();
    assert_eq!(spins, ["0.000", "0.000", "0.030"]);
    assert_eq!((plan.baseline.as_str(), plan.slices), ("native", SliceChoice::Auto));
    // One with unintended differences is left out, and the others are measured.
    assert!(plan.leave_out_unequal);
    let sliced: Vec<bool> = plan.workloads.iter().map(|workload| workload.sliced.is_some()).collect();
    assert_eq!(sliced, [true, false]);
    let whole = Design { forms: vec![Form::Whole], ..design };
    let plan = whole.plan(&whole.targets[0], &HostFacts::default()).unwrap();
    assert_eq!((plan.workloads.len(), plan.slices), (1, SliceChoice::Off));
}

#[test]
fn the_json_reads_back_as_it_was() {
    let judgement = judged(all(0.0, EFFECT, 0.01));
    let json = serde_json::to_string(&judgement).unwrap();
    assert_eq!(serde_json::from_str::<PlatformsJudgement>(&json).unwrap(), judgement);
}

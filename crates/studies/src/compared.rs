//! What the ratios of a claim compare: in the words of its check, and in a sentence that a reader
//! takes away.

use crate::check::{Point, Term};
use crate::study::{Experiment, Quantity};
use std::fmt;
use weigh_model::{Better, Unit};
use weigh_report::Scale;
use weigh_report::quantity::Effect;
use weigh_report::study::CheckedRatio;

/// The largest number of ratios of which each has a sentence.
const FEW: usize = 3;

/// A published ratio this close to 1 is no difference.
const NO_DIFFERENCE: f64 = 5e-4;

/// What one ratio compares, at one point if its quantity is swept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Compared {
    /// The value of one term, relative to that of another.
    Values(Term, Term),
    /// The cost of a term, relative to that of the baseline arm.
    Cost(Term),
    /// The value of a share, per cent.
    Share(Term),
}

impl Compared {
    /// Whether the number is a fraction of a cost (+ is worse) rather than a ratio.
    pub(crate) fn is_cost(&self) -> bool {
        matches!(self, Self::Cost(_))
    }
}

impl fmt::Display for Compared {
    /// The words of a check.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(left, right) => write!(f, "{left} / {right}"),
            Self::Cost(of) => {
                let point = of.point.as_ref().map(|point| format!("@{point}")).unwrap_or_default();
                write!(f, "{} overhead of {}{point}", of.arm, of.quantity)
            }
            Self::Share(of) => write!(f, "{of}, per cent"),
        }
    }
}

/// A ratio of a claim: the number that was measured, the one that follows from what the study
/// prints, or both.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub(crate) compared: Compared,
    pub(crate) seen: Option<CheckedRatio>,
    /// In the form of [`CheckedRatio::estimate`].
    pub(crate) published: Option<f64>,
}

/// What a reader takes away from the ratios of a claim: sentences without a full stop at the end.
/// Of many ratios it has the smallest and the largest. It is empty if nothing was measured and the
/// study prints no ratio.
pub(crate) fn takeaway(experiment: &Experiment, findings: &[Finding]) -> String {
    let sentences = |shown: &[&Finding]| {
        let sentences: Vec<String> = shown.iter().map(|finding| finding.sentence(experiment)).collect();
        sentences.join(". ")
    };
    if findings.len() <= FEW {
        return sentences(&findings.iter().collect::<Vec<_>>());
    }
    let mut by_size: Vec<&Finding> = findings.iter().collect();
    by_size.sort_by(|one, other| one.size().total_cmp(&other.size()));
    let ends = [by_size[0], by_size[by_size.len() - 1]];
    format!("{}. Of {} ratios these are the smallest and the largest", sentences(&ends), findings.len())
}

impl Finding {
    /// The number by which findings are sorted.
    fn size(&self) -> f64 {
        let measured = self.seen.as_ref().map(|seen| seen.estimate);
        measured.or(self.published).unwrap_or(f64::NAN)
    }

    fn sentence(&self, experiment: &Experiment) -> String {
        let one = f64::from(self.compared.is_cost());
        let published = self.published.map(|published| published + one);
        let seen = self.seen.as_ref();
        let seen = seen.map(|seen| Range {
            estimate: seen.estimate + one,
            low: seen.low + one,
            high: seen.high + one,
        });
        let sides = match &self.compared {
            Compared::Share(of) => return share(experiment, of, seen, published),
            Compared::Cost(of) => {
                Sides { words: COSTS, ..Sides::of(experiment, of, &of.on(&experiment.baseline)) }
            }
            Compared::Values(left, right) => Sides::of(experiment, left, right),
        };
        let said = match (seen, published) {
            (Some(seen), Some(published)) => {
                format!(
                    "{}; {}",
                    sides.measured(seen, is_still(seen, published)),
                    sides.beside(seen, published)
                )
            }
            (Some(seen), None) => sides.measured(seen, false),
            (None, Some(published)) => sides.published(published),
            (None, None) => return String::new(),
        };
        format!("{}{said}", sides.about)
    }
}

/// A measured ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    estimate: f64,
    low: f64,
    high: f64,
}

impl Range {
    fn exact(estimate: f64) -> Self {
        Self { estimate, low: estimate, high: estimate }
    }

    fn includes(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The number with its interval; a published number has none.
    fn number(self, unit: &str) -> String {
        let scale = self.scale();
        let Self { estimate, low, high } = self;
        let number = format!("{}{unit}", scale.format(estimate));
        match low < high {
            true => format!("{number} [{}, {}]", scale.format(low), scale.format(high)),
            false => number,
        }
    }

    /// The fractions as per cent with their interval, where all of them are above 0.
    fn percent(self) -> String {
        let effect = Effect::new(self.estimate, self.low, self.high);
        let signed = if self.low < self.high { effect.to_string() } else { effect.estimate.to_string() };
        signed.replace('+', "")
    }

    fn scale(self) -> Scale {
        let half = (self.estimate - self.low).abs().min((self.high - self.estimate).abs());
        Scale::new(&Unit::normalise("1").0, [self.estimate], Some(half / self.estimate.abs()))
    }
}

/// Whether a difference that the study found is there in what was measured, too.
fn is_still(seen: Range, published: f64) -> bool {
    !seen.includes(1.0) && !is_no_difference(published) && (seen.low > 1.0) == (published > 1.0)
}

fn is_no_difference(published: f64) -> bool {
    (published - 1.0).abs() < NO_DIFFERENCE
}

/// The words for the values of a quantity.
#[derive(Debug, Clone, Copy)]
struct Words {
    is: &'static str,
    was: &'static str,
    more: &'static str,
    less: &'static str,
    /// What follows `more` and `less`.
    of_it: &'static str,
    as_much: &'static str,
}

const HAS: Words = Words { is: "has", was: "had", more: "more", less: "less", of_it: "", as_much: "as much" };
const COSTS: Words = Words { is: "costs", was: "cost", ..HAS };
const TAKES: Words = Words { is: "takes", was: "took", ..HAS };
const TAKES_TIME: Words = Words { of_it: " time", as_much: "as long", ..TAKES };
const REACHES: Words = Words { is: "reaches", was: "reached", ..HAS };
const IS: Words =
    Words { is: "is", was: "was", more: "higher", less: "lower", of_it: "", as_much: "as high" };

impl Words {
    fn of(quantity: &Quantity) -> Self {
        let is_time = Unit::normalise(&quantity.unit).0.symbol() == "s";
        match quantity.better {
            _ if quantity.is_share() => HAS,
            Better::Higher => REACHES,
            Better::Lower if is_time => TAKES_TIME,
            Better::Lower => TAKES,
        }
    }

    /// A ratio to the other side, and the word before that side.
    fn amount(self, ratio: Range) -> (String, &'static str) {
        let Range { estimate, low, high } = ratio;
        let Self { more, less, of_it, as_much, .. } = self;
        if estimate >= 2.0 {
            (format!("{} {as_much}", ratio.number(" times")), "as")
        } else if estimate >= 1.0 {
            let above = Range { estimate: estimate - 1.0, low: low - 1.0, high: high - 1.0 };
            (format!("{} {more}{of_it}", above.percent()), "than")
        } else if estimate > 0.5 {
            let below = Range { estimate: 1.0 - estimate, low: 1.0 - high, high: 1.0 - low };
            (format!("{} {less}{of_it}", below.percent()), "than")
        } else {
            (format!("{} {as_much}", ratio.percent()), "as")
        }
    }

    /// An interval that includes equality, and the word before the other side.
    fn between(self, ratio: Range) -> (String, &'static str) {
        let Self { more, less, of_it, as_much, .. } = self;
        if ratio.low > 0.5 && ratio.high < 2.0 {
            let effect = Effect::new(ratio.estimate - 1.0, ratio.low - 1.0, ratio.high - 1.0);
            let unsigned = |end: String| end.trim_start_matches(['+', '-']).to_string();
            let (low, high) = (unsigned(effect.low.to_string()), unsigned(effect.high.to_string()));
            (format!("between {low} % {less} and {high} % {more}{of_it}"), "than")
        } else {
            let scale = ratio.scale();
            (
                format!(
                    "between {} and {} times {as_much}",
                    scale.format(ratio.low),
                    scale.format(ratio.high)
                ),
                "as",
            )
        }
    }

    /// A published ratio.
    fn found(self, published: f64) -> String {
        if is_no_difference(published) {
            "no difference".into()
        } else {
            self.amount(Range::exact(published)).0
        }
    }
}

/// The two sides of a ratio in words.
struct Sides {
    /// What both sides have in common, with a colon; may be empty.
    about: String,
    left: String,
    right: String,
    words: Words,
}

impl Sides {
    fn of(experiment: &Experiment, left: &Term, right: &Term) -> Self {
        let [arm, other_arm] = [left, right].map(|term| arm(experiment, term));
        let [point, other_point] = [left, right].map(|term| point(experiment, term));
        let [of, other_of] = [left, right].map(|term| label(experiment, term));
        if left.quantity != right.quantity {
            let (about, owner, other_owner) = match left.arm == right.arm {
                true => (format!("{arm}: "), String::new(), String::new()),
                false => (String::new(), format!(" of {arm}"), format!(" of {other_arm}")),
            };
            let side = |of: String, point: String, owner: String| format!("\"{of}\"{point}{owner}");
            let (left, right) = (side(of, point, owner), side(other_of, other_point, other_owner));
            return Self { about, left, right, words: IS };
        }
        let words = experiment.quantity(&left.quantity).map_or(HAS, Words::of);
        if left.point == right.point {
            return Self { about: format!("{of}{point}: "), left: arm, right: other_arm, words };
        }
        let right = match left.arm == right.arm {
            true => other_point.trim_start().to_string(),
            false => format!("{other_arm}{other_point}"),
        };
        Self { about: format!("{of}: "), left: format!("{arm}{point}"), right, words }
    }

    fn measured(&self, seen: Range, is_still: bool) -> String {
        let Self { left, right, words, .. } = self;
        let (amount, than) = if seen.includes(1.0) { words.between(seen) } else { words.amount(seen) };
        let still = if is_still { " still" } else { "" };
        format!("{left}{still} {} {amount} {than} {right}", words.is)
    }

    /// What the study found, beside what was measured.
    fn beside(&self, seen: Range, published: f64) -> String {
        let found = self.words.found(published);
        let is_farther = published.ln().abs() > seen.estimate.ln().abs();
        if seen.includes(published) {
            format!("the study found {found}, which the interval includes")
        } else if seen.includes(1.0) {
            format!("the study found {found}, which the interval excludes")
        } else if is_no_difference(published) {
            format!("the study found {found}")
        } else if !is_still(seen, published) {
            format!("the study found the reverse, {found}")
        } else if is_farther {
            format!("the study found a larger difference, {found}")
        } else {
            format!("the study found a smaller difference, {found}")
        }
    }

    /// What the study found, where nothing was measured.
    fn published(&self, published: f64) -> String {
        let Self { left, right, words, .. } = self;
        if is_no_difference(published) {
            return format!("no difference between {left} and {right} in the study");
        }
        let (amount, than) = words.amount(Range::exact(published));
        format!("{left} {} {amount} {than} {right} in the study", words.was)
    }
}

/// The sentence about a share by itself.
fn share(experiment: &Experiment, of: &Term, seen: Option<Range>, published: Option<f64>) -> String {
    let about = format!("{}{}: {}", label(experiment, of), point(experiment, of), arm(experiment, of));
    let percent = |share: Range| share.number(" %");
    match (seen, published) {
        (Some(seen), Some(published)) => {
            format!("{about} has {}; the study found {}", percent(seen), percent(Range::exact(published)))
        }
        (Some(seen), None) => format!("{about} has {}", percent(seen)),
        (None, Some(published)) => format!("{about} had {} in the study", percent(Range::exact(published))),
        (None, None) => String::new(),
    }
}

/// The study's name of the arm of a term. A name with a comma is quoted.
fn arm(experiment: &Experiment, of: &Term) -> String {
    let label = experiment.arms.iter().find(|arm| arm.id == of.arm).map_or(&of.arm, |arm| &arm.label);
    if label.contains(',') { format!("\"{label}\"") } else { label.clone() }
}

/// The study's name of the quantity of a term, with the unit.
fn label(experiment: &Experiment, of: &Term) -> String {
    experiment.quantity(&of.quantity).map_or(&of.quantity, |quantity| &quantity.label).clone()
}

/// The point of a term behind its quantity or its arm: ` at clients=10`; empty if there is none.
fn point(experiment: &Experiment, of: &Term) -> String {
    let Some(point) = &of.point else { return String::new() };
    let over = experiment.quantity(&of.quantity).and_then(Quantity::over).map_or("", String::as_str);
    match point {
        Point::At(value) => format!(" at {over}={value}"),
        Point::First | Point::Last | Point::All | Point::Some => format!(" at the {point} value of {over}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::GOOD;
    use std::path::Path;

    fn term(arm: &str, quantity: &str, point: Option<&str>) -> Term {
        let point = point.map(|point| Point::At(point.into()));
        Term { arm: arm.into(), quantity: quantity.into(), point }
    }

    fn values(left: (&str, &str, Option<&str>), right: (&str, &str, Option<&str>)) -> Compared {
        let of = |(arm, quantity, point): (&str, &str, Option<&str>)| term(arm, quantity, point);
        Compared::Values(of(left), of(right))
    }

    fn finding(compared: &Compared, seen: Option<[f64; 3]>, published: Option<f64>) -> Finding {
        let seen = seen.map(|[estimate, low, high]| CheckedRatio {
            what: compared.to_string(),
            estimate,
            low,
            high,
            is_overhead: compared.is_cost(),
            n: 12,
        });
        Finding { compared: compared.clone(), seen, published }
    }

    fn said(findings: &[Finding]) -> String {
        let study = crate::read_study(Path::new("x.toml"), GOOD).unwrap();
        takeaway(study.experiment("table-1/build").unwrap(), findings)
    }

    #[track_caller]
    fn says(compared: &Compared, seen: Option<[f64; 3]>, published: Option<f64>, expected: &str) {
        assert_eq!(said(&[finding(compared, seen, published)]), expected);
    }

    fn latency() -> Compared {
        values(("docker", "latency", Some("4")), ("native", "latency", Some("4")))
    }

    #[test]
    fn what_was_measured_stands_beside_what_the_study_found() {
        let more = Some([1.12, 1.08, 1.16]);
        let about_equal = Some([1.02, 0.98, 1.06]);
        let measured = "Docker takes 12 % [8, 16] more time than Native";
        let still = "Docker still takes 12 % [8, 16] more time than Native";
        let open = "Docker takes between 2 % less and 6 % more time than Native";
        for (seen, published, outcome, study) in [
            (more, 1.21, still, "a larger difference, 21.0 % more time"),
            (more, 1.05, still, "a smaller difference, 5.0 % more time"),
            (more, 1.1, still, "10.0 % more time, which the interval includes"),
            (more, 0.9, measured, "the reverse, 10.0 % less time"),
            (more, 1.0, measured, "no difference"),
            (about_equal, 1.21, open, "21.0 % more time, which the interval excludes"),
            (about_equal, 1.05, open, "5.0 % more time, which the interval includes"),
            (about_equal, 1.0, open, "no difference, which the interval includes"),
        ] {
            let expected = format!("latency (ms) at clients=4: {outcome}; the study found {study}");
            says(&latency(), seen, Some(published), &expected);
        }
        says(&latency(), more, None, &format!("latency (ms) at clients=4: {measured}"));
        let study = "latency (ms) at clients=4: Docker took 21.0 % more time than Native in the study";
        says(&latency(), None, Some(1.21), study);
        let study = "latency (ms) at clients=4: no difference between Docker and Native in the study";
        says(&latency(), None, Some(1.0), study);
    }

    #[test]
    fn the_words_follow_the_quantity_and_the_size_of_the_difference() {
        let of = |quantity| values(("docker", quantity, None), ("native", quantity, None));
        let twice = Some([2.5, 2.3, 2.7]);
        for (quantity, seen, expected) in [
            ("rate", twice, "rate (MB/s): Docker reaches 2.50 times [2.30, 2.70] as much as Native"),
            ("rate", Some([0.8, 0.76, 0.84]), "rate (MB/s): Docker reaches 20 % [16, 24] less than Native"),
            (
                "rate",
                Some([0.09, 0.08, 0.1]),
                "rate (MB/s): Docker reaches 9.0 % [8.0, 10.0] as much as Native",
            ),
            ("old", twice, "another library (us): Docker takes 2.50 times [2.30, 2.70] as long as Native"),
            (
                "old",
                Some([1.2, 0.4, 3.6]),
                "another library (us): Docker takes between 0.400 and 3.60 times as long as Native",
            ),
            (
                "footprint",
                Some([1.12, 1.08, 1.16]),
                "one more guest (MB): Docker takes 12 % [8, 16] more than Native",
            ),
            ("efficiency", Some([1.12, 1.08, 1.16]), "efficiency: Docker has 12 % [8, 16] more than Native"),
        ] {
            says(&of(quantity), seen, None, expected);
        }
        let cost = Compared::Cost(term("docker", "rate", None));
        let expected = "rate (MB/s): Docker still costs 12 % [8, 16] more than Native; the study found a larger difference, 21.0 % more";
        says(&cost, Some([0.12, 0.08, 0.16]), Some(0.21), expected);
        let share = Compared::Share(term("native", "efficiency", None));
        let expected = "efficiency: Native has 98.0 % [97.0, 99.0]; the study found 95.0 %";
        says(&share, Some([98.0, 97.0, 99.0]), Some(95.0), expected);
        says(&share, None, Some(95.0), "efficiency: Native had 95.0 % in the study");
    }

    #[test]
    fn sides_that_differ_in_more_than_the_platform_are_told_apart() {
        let twice = Some([2.5, 2.3, 2.7]);
        let times = "2.50 times [2.30, 2.70]";
        let of = |arm, point| (arm, "latency", Some(point));
        let expected = format!("latency (ms): Native at clients=100 takes {times} as long as at clients=4");
        says(&values(of("native", "100"), of("native", "4")), twice, None, &expected);
        let expected =
            format!("latency (ms): Docker at clients=100 takes {times} as long as Native at clients=4");
        says(&values(of("docker", "100"), of("native", "4")), twice, None, &expected);
        let pages = ("native", "equal-pages", None);
        let expected = format!("Native: \"one more guest (MB)\" is {times} as high as \"equal pages (MB)\"");
        says(&values(("native", "footprint", None), pages), twice, None, &expected);
        let expected =
            format!("\"one more guest (MB)\" of Docker is {times} as high as \"equal pages (MB)\" of Native");
        says(&values(("docker", "footprint", None), pages), twice, None, &expected);
    }

    #[test]
    fn of_many_ratios_the_ends_are_told() {
        assert_eq!(said(&[]), "");
        let of = |estimate: f64| finding(&latency(), Some([estimate, estimate * 0.9, estimate * 1.1]), None);
        let few = said(&[3.0, 2.0, 5.0].map(of));
        assert_eq!(few.matches("latency (ms) at clients=4: Docker takes ").count(), 3, "{few}");
        let many = said(&[3.0, 2.0, 5.0, 4.0].map(of));
        assert!(many.contains("takes 2.00 times [1.80, 2.20] as long as Native. latency"), "{many}");
        assert!(
            many.contains("takes 5.00 times [4.50, 5.50] as long as Native. Of 4 ratios these are"),
            "{many}"
        );
        assert!(!many.contains("3.00") && !many.contains("4.00"), "{many}");
    }

    /// What a built-in study prints is told with its own names.
    #[test]
    fn a_claim_that_was_not_measured_tells_what_the_study_found() {
        let library = crate::library().unwrap();
        let experiment = library.find("felter-2014/table-1/pxz").unwrap()[0].experiment;
        let compared = values(("kvm", "pxz", None), ("native", "pxz", None));
        let findings = [finding(&compared, None, Some(59.2 / 76.2))];
        let expected = "PXZ (MB/s): KVM-untuned reached 22.3 % less than Native in the study";
        assert_eq!(takeaway(experiment, &findings), expected);
    }
}

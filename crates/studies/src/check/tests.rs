//! Checks that are read, printed and read again, and checks that are wrong in one place each.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> Check {
    text.parse().unwrap_or_else(|error: CheckError| panic!("{text}: {error}"))
}

fn term(arm: &str, quantity: &str, point: Option<Point>) -> Term {
    Term { arm: arm.into(), quantity: quantity.into(), point }
}

#[test]
fn every_form_is_read_as_it_is_meant() {
    let pxz = |arm: &str| term(arm, "pxz", None);
    let one = |text: &str| match read(text).conditions() {
        [condition] => condition.clone(),
        several => panic!("{several:?}"),
    };
    let ratio = |relation, right| Condition::Ratio { left: pxz("kvm"), relation, factor: 1.8, right };
    assert_eq!(one("kvm pxz >= 1.8 x native"), ratio(Relation::AtLeast, pxz("native")));
    assert_eq!(
        one("kvm pxz < 1.8 x native lu@4"),
        ratio(Relation::Below, term("native", "lu", Some(Point::At("4".into()))))
    );
    let overhead = Condition::Overhead { of: pxz("docker"), relation: Relation::AtMost, percent: 8.0 };
    assert_eq!(one("docker overhead of pxz <= 8 %"), overhead);
    assert_eq!(one("docker   overhead of pxz <= 8%"), overhead);
    let within = Condition::Within { left: pxz("lxc"), percent: 5.0, right: pxz("native") };
    assert_eq!(one("lxc pxz within 5 % of native"), within);
    let first = term("a", "pxz", Some(Point::All));
    let rest = vec![(Relation::Above, "b".into()), (Relation::AtLeast, "c".into())];
    assert_eq!(one("a pxz@all > b >= c"), Condition::Order { first, rest });
    let absolute = Condition::Absolute { of: pxz("kvm"), relation: Relation::Above, percent: 98.0 };
    assert_eq!(one("kvm pxz > 98 %"), absolute);
    assert_eq!(
        read("a q > b and c overhead of q < -2.5 % and a q@some within 1 % of b").conditions().len(),
        3
    );
}

#[test]
fn points_are_words_or_values() {
    for (text, point) in [
        ("first", Point::First),
        ("last", Point::Last),
        ("all", Point::All),
        ("some", Point::Some),
        ("100", Point::At("100".into())),
        ("64MiB", Point::At("64MiB".into())),
    ] {
        let check = read(&format!("a q@{text} > b"));
        assert_eq!(check.conditions()[0].terms("n")[1], term("b", "q", Some(point)));
    }
}

#[test]
fn a_check_lists_the_values_it_needs() {
    let check = read("docker overhead of pxz <= 8 % and docker pxz > kvm > jail and kvm pxz >= 2 x kvm lu");
    let terms: Vec<String> = check.terms("native").iter().map(ToString::to_string).collect();
    assert_eq!(terms, ["docker pxz", "native pxz", "kvm pxz", "jail pxz", "kvm lu"]);
}

#[test]
fn a_condition_at_all_points_is_one_at_each() {
    let check = read("kvm q@all >= 2 x docker and kvm q@some >= 2 x docker q@1 and kvm q@last > docker");
    let [all, some, last] = check.conditions() else { panic!("{check}") };
    assert_eq!((all.every(), some.every(), last.every()), (Some(&Point::All), Some(&Point::Some), None));
    assert_eq!(all.at("8").to_string(), "kvm q@8 >= 2 x docker");
    assert_eq!(some.at("8").to_string(), "kvm q@8 >= 2 x docker q@1");
    assert_eq!(last.at("8"), *last);
}

#[test]
fn faults_are_located() {
    let wrong = |text: &str, at: &str, message: &str, help: &str| {
        let error = text.parse::<Check>().expect_err(text);
        assert_eq!(&text[error.span.clone()], at, "{text}: {error:?}");
        assert!(error.message.contains(message), "{text}: {}", error.message);
        assert!(error.help.contains(help), "{text}: {}", error.help);
        assert_eq!(error.text, text);
    };
    wrong("", "", "the check ends where an arm belongs", "as in");
    wrong("kvm", "", "the check ends where a quantity belongs", "pxz@100");
    wrong("kvm pxz", "", "ends where a comparison belongs", ">=");
    wrong("kvm pxz => 2 x native", "=>", "`=>` where a comparison belongs", ">=");
    wrong("kvm pxz >= 1.8x native", "1.8x", "where an arm belongs", "");
    wrong("kvm pxz >= 1.8 native", "1.8", "neither a factor nor a share", "`1.8 x`");
    wrong("kvm pxz >= 1.8 x", "", "ends where an arm belongs", "");
    wrong("kvm pxz >= 0 x native", "0", "above 0", "positive");
    wrong("kvm pxz >= -1 x native", "-1", "above 0", "positive");
    wrong("kvm overhead pxz <= 3 %", "pxz", "`pxz` where `of` belongs", "`overhead of`");
    wrong("kvm overhead of pxz <= 3", "", "ends where `%` belongs", "per cent sign");
    wrong("kvm overhead of pxz <= three %", "three", "where a number of per cent belongs", "1.8");
    wrong("kvm pxz within 5 % native", "native", "`native` where `of` belongs", "an arm");
    wrong("kvm pxz within 0 % of native", "0", "above 0", "");
    wrong("KVM pxz > native", "KVM", "`KVM` where an arm belongs", "");
    wrong("kvm of > native", "of", "`of` where a quantity belongs", "");
    wrong("kvm pxz@ > native", "", "`` is not a point of a sweep", "first, last, all");
    wrong("kvm pxz@a/b > native", "a/b", "not a point of a sweep", "first, last, all");
    wrong("kvm pxz > docker > lxc < native", "<", "two directions", "`and`");
    wrong("kvm pxz > docker lu", "lu", "only arms belong", "`> 1 x docker lu`");
    wrong("kvm pxz > native and", "", "ends where an arm belongs", "");
    wrong("kvm overhead of pxz > 2 % or kvm pxz > native", "or", "after the end of a condition", "`and`");
    wrong("kvm q@1 > 2 x native q@all", "q@all", "`@all` on the right side only", "left side");
    wrong("kvm q@some > 2 x native q@all", "q@all", "on the right side only", "");
    wrong("kvm pxz > 1e3 x native", "x", "only arms belong", "");
    wrong("kvm pxz >\u{a0}1.8 ü native", "1.8", "neither", "");
}

#[test]
fn relations_hold_as_they_are_written() {
    assert!(Relation::AtLeast.holds(1.0, 1.0) && Relation::AtMost.holds(1.0, 1.0));
    assert!(!Relation::Above.holds(1.0, 1.0) && !Relation::Below.holds(1.0, 1.0));
    assert!(Relation::Above.holds(2.0, 1.0) && !Relation::Below.holds(2.0, 1.0));
    assert!(!Relation::AtLeast.holds(f64::NAN, 1.0) && !Relation::AtMost.holds(f64::NAN, 1.0));
}

fn identifier() -> impl Strategy<Value = String> {
    "[a-z0-9][a-z0-9-]{0,8}"
        .prop_filter("a word of the language", |word| !RESERVED.contains(&word.as_str()) && !is_number(word))
}

fn any_point() -> impl Strategy<Value = Option<Point>> {
    let value = "[A-Za-z0-9._-]{1,6}"
        .prop_filter("a word", |word| !["first", "last", "all", "some"].contains(&word.as_str()))
        .prop_map(Point::At);
    proptest::option::of(prop_oneof![
        Just(Point::First),
        Just(Point::Last),
        Just(Point::All),
        Just(Point::Some),
        value
    ])
}

fn any_term() -> impl Strategy<Value = Term> {
    (identifier(), identifier(), any_point()).prop_map(|(arm, quantity, point)| Term { arm, quantity, point })
}

fn any_relation() -> impl Strategy<Value = Relation> {
    prop_oneof![Just(Relation::AtLeast), Just(Relation::AtMost), Just(Relation::Above), Just(Relation::Below)]
}

/// Two sides that may stand in one condition.
fn two_terms() -> impl Strategy<Value = (Term, Term)> {
    (any_term(), any_term(), any::<bool>()).prop_map(|(left, mut right, same)| {
        if same {
            right = left.on(&right.arm);
        } else if right.point.as_ref().is_some_and(Point::is_several) {
            right.point.clone_from(&left.point);
        }
        (left, right)
    })
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let above_0 = || (f64::MIN_POSITIVE..1e12).boxed();
    let any_percent = || (-1e9..1e9f64).boxed();
    prop_oneof![
        (two_terms(), any_relation(), above_0())
            .prop_map(|((left, right), relation, factor)| Condition::Ratio { left, relation, factor, right }),
        (any_term(), any_relation(), any_percent()).prop_map(|(of, relation, percent)| Condition::Overhead {
            of,
            relation,
            percent
        }),
        (two_terms(), above_0()).prop_map(|((left, right), percent)| Condition::Within {
            left,
            percent,
            right
        }),
        (any_term(), proptest::collection::vec((any::<bool>(), identifier()), 1..4), any::<bool>()).prop_map(
            |(first, rest, upward)| {
                let relation = |strict| match (upward, strict) {
                    (true, true) => Relation::Above,
                    (true, false) => Relation::AtLeast,
                    (false, true) => Relation::Below,
                    (false, false) => Relation::AtMost,
                };
                Condition::Order {
                    first,
                    rest: rest.into_iter().map(|(strict, arm)| (relation(strict), arm)).collect(),
                }
            }
        ),
        (any_term(), any_relation(), any_percent()).prop_map(|(of, relation, percent)| Condition::Absolute {
            of,
            relation,
            percent
        }),
    ]
}

proptest! {
    #[test]
    fn a_printed_check_is_read_as_the_same(conditions in proptest::collection::vec(any_condition(), 1..4)) {
        let check = Check { conditions };
        prop_assert_eq!(read(&check.to_string()), check);
    }

    #[test]
    fn any_text_is_read_or_located(text in "[a-z0-9@%<>= .x-]{0,40}|\\PC{0,20}") {
        match text.parse::<Check>() {
            Ok(check) => prop_assert_eq!(read(&check.to_string()), check),
            Err(error) => prop_assert!(text.get(error.span).is_some()),
        }
    }
}

//! Known digits, and errors that must be noticed.

use super::*;
use crate::marks::tests::marks_of;
use std::time::Duration;

fn options(line: &str) -> Options {
    KERNEL.options_of(line)
}

fn first(digits: usize) -> String {
    let team = Team::new(2).unwrap();
    pool::run(&team, || {
        let decimals = decimal::convert(&series::sum(digits).finish(digits), digits);
        String::from_utf8(decimals.text[..digits].to_vec()).unwrap()
    })
    .unwrap()
}

#[test]
fn the_first_digits_are_those_of_pi() {
    let hundred = "1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421170679";
    assert_eq!(first(100), hundred);
    // Various lengths, including those at which the number of pieces changes.
    let long = first(3000);
    assert!(long.starts_with(hundred));
    // Digits 762 to 767 are the six nines.
    assert_eq!(&long[761..767], "999999");
    for digits in [101, 255, 256, 257, 511, 512, 513, 700, 761, 764, 1024, 1025, 2999] {
        assert_eq!(first(digits), long[..digits], "{digits}");
    }
}

#[test]
fn digits_are_verified_on_any_number_of_threads() {
    for (digits, last) in [(1000, "2164201989"), (10_000, "5256375678")] {
        for threads in [1, 2, 3] {
            let outcome = run(&options(&format!("--digits {digits} --threads {threads}"))).unwrap();
            assert!(outcome.check.passed, "{:?}", outcome.check);
            assert_eq!(outcome.facts["last_digits"], last);
            assert!(outcome.check.statement.contains("published"), "{:?}", outcome.check);
            assert!(outcome.value("total_time") > outcome.value("computation_time"));
            let efficiency = outcome.value("efficiency").unwrap();
            // CPU time is that of the process, in which other tests run at the same time.
            assert!(efficiency > 0.0, "{efficiency}");
        }
    }
    let outcome = run(&options("--digits 12345")).unwrap();
    assert!(outcome.check.passed && !outcome.check.statement.contains("published"), "{:?}", outcome.check);
}

#[test]
fn a_wrong_number_fails_the_check() {
    let spoiled = |spoil: fn(&mut Pi)| {
        let outcome = measure(&options("--digits 5000"), |stage| {
            if let Stage::Number(pi) = stage {
                spoil(pi);
            }
        })
        .unwrap();
        (outcome.check.passed, outcome.check.statement)
    };
    assert!(spoiled(|_| ()).0);
    // Imitates an error in the series: all digits after it are wrong.
    let (passed, statement) = spoiled(|pi| {
        let error = &pi.value >> 9000;
        pi.value += error;
    });
    assert!(!passed && statement.contains("do not agree"), "{statement}");
    let (passed, statement) = spoiled(|pi| pi.products_hold = false);
    assert!(!passed && statement.contains("do not hold"), "{statement}");
}

#[test]
fn a_wrong_digit_fails_the_check() {
    for place in [0, 1234, 4999] {
        let outcome = measure(&options("--digits 5000"), |stage| {
            if let Stage::Digits(decimals) = stage {
                decimals.text[place] ^= 1;
            }
        })
        .unwrap();
        assert!(!outcome.check.passed, "{place}: {:?}", outcome.check);
    }
}

#[test]
fn a_wrong_step_of_the_conversion_is_counted() {
    let team = Team::new(1).unwrap();
    let wrong = pool::run(&team, || {
        let pi = series::sum(2000).finish(2000);
        decimal::convert(&pi, 2000).wrong_steps
    });
    assert_eq!(wrong.unwrap(), 0);
}

#[test]
fn impossible_counts_are_refused_in_words() {
    assert!(run(&options("--digits 99")).err().unwrap().to_string().contains("the least is 100"));
    assert!(run(&options("--digits 1e12")).err().unwrap().to_string().contains("too many"));
}

#[test]
fn endless_computations_count_without_and_with_their_verification() {
    let (mut marks, printed) = marks_of(Duration::ZERO, 3);
    let outcome = compute_endlessly(&options("--digits 1000"), &mut marks, |_| ()).unwrap();
    assert!(outcome.check.passed && outcome.operations == 3000, "{outcome:?}");
    let (short, long) = ("mark\nmark computation_time=1\n", "mark\nmark total_time=1\n");
    assert_eq!(printed.text(), format!("{short}{long}{short}"));

    let (mut marks, printed) = marks_of(Duration::ZERO, 9);
    let outcome = compute_endlessly(&options("--digits 1000"), &mut marks, |stage| {
        if let Stage::Digits(decimals) = stage {
            decimals.text[500] ^= 1;
        }
    });
    assert!(!outcome.unwrap().check.passed);
    assert_eq!(printed.text(), short, "wrong digits end the work");
}

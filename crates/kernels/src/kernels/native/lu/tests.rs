//! Known answers, wrong answers, and systems without an answer.

use super::*;
use crate::marks::tests::marks_of;
use std::time::Duration;

fn options(line: &str) -> Options {
    KERNEL.options_of(line)
}

#[test]
fn systems_of_every_order_are_solved() {
    for n in [1, 2, 3, 7, 8, 64, 65, 129, 300] {
        for threads in [1, 2] {
            let outcome = run(&options(&format!("--n {n} --threads {threads} --repetitions 2"))).unwrap();
            assert!(outcome.check.passed, "{n} on {threads}: {:?}", outcome.check);
            assert!(outcome.value("rate").unwrap() > 0.0);
        }
    }
}

#[test]
fn a_system_with_a_known_answer_gives_it() {
    // x = (1, -2, 3), and without an exchange of rows the first pivot is 0.
    let columns = [[0.0, 2.0, 4.0], [1.0, -1.0, 0.0], [3.0, 5.0, -2.0], [7.0, 19.0, -2.0]];
    let mut system = System::map(3, 1, false).unwrap();
    system.fill(&|j: usize, values: &mut [f64]| values.copy_from_slice(&columns[j]));
    let answer = system.solve();
    for (value, expected) in answer.iter().zip([1.0, -2.0, 3.0]) {
        assert!((value - expected).abs() < 1e-12, "{answer:?}");
    }
}

#[test]
fn a_singular_matrix_fails_the_check() {
    // The second column is twice the first.
    let column = |_, j: usize, values: &mut [f64]| {
        values.iter_mut().enumerate().for_each(|(i, value)| *value = (i + 1) as f64 * (j + 1) as f64);
        if j == values.len() {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = i as f64 * i as f64);
        }
    };
    let outcome = measure(&options("--n 2 --repetitions 1"), column, |_| ()).unwrap();
    assert!(!outcome.check.passed, "{:?}", outcome.check);
    assert!(outcome.check.statement.contains("singular"), "{:?}", outcome.check);
}

#[test]
fn a_corrupted_answer_fails_the_check() {
    let spoiled = |spoil: fn(&mut [f64])| {
        measure(&options("--n 200 --threads 2 --repetitions 1"), random_column, spoil).unwrap().check.passed
    };
    assert!(spoiled(|_| ()));
    assert!(!spoiled(|answer| answer[150] *= 1.0 + 1e-6));
    assert!(!spoiled(|answer| answer.swap(3, 4)));
    assert!(!spoiled(|answer| answer[0] = f64::NAN));
    assert!(!spoiled(|answer| answer.fill(0.0)));
}

#[test]
fn endless_solutions_are_all_checked() {
    // For small orders a piece has sixteen systems.
    for (n, threads, systems) in [(1, 1, 16), (100, 2, 16), (300, 1, 1)] {
        let line = options(&format!("--n {n} --threads {threads}"));
        let (mut marks, printed) = marks_of(Duration::ZERO, 2);
        let outcome = solve_endlessly(&line, &mut marks, |_| ()).unwrap();
        assert!(outcome.check.passed, "{n}: {:?}", outcome.check);
        let piece = format!("mark\nmark rate={}\n", flops(n) * f64::from(systems));
        assert_eq!(printed.text(), piece.repeat(2));
        assert_eq!(outcome.facts["repetitions"], 2 * systems);
    }
    let (mut marks, _) = marks_of(Duration::ZERO, 2);
    let spoil = |answer: &mut [f64]| answer[150] *= 1.0 + 1e-6;
    let outcome = solve_endlessly(&options("--n 200 --threads 2"), &mut marks, spoil).unwrap();
    assert!(!outcome.check.passed, "{:?}", outcome.check);
}

#[test]
fn the_worst_repetition_counts() {
    let residual = |scaled| Residual { scaled, absolute: 0.0 };
    assert_eq!(residual(1.0).worse(residual(2.0)).scaled, 2.0);
    assert_eq!(residual(3.0).worse(residual(2.0)).scaled, 3.0);
    assert!(residual(1.0).worse(residual(f64::NAN)).scaled.is_nan());
    assert!(residual(f64::NAN).worse(residual(1.0)).scaled.is_nan());
}

#[test]
fn operations_are_counted_as_linpack_counts_them() {
    assert_eq!(flops(3), 36.0);
    let outcome = run(&options("--n 300 --repetitions 3")).unwrap();
    let expected = flops(WARM_UP_ORDER) + 3.0 * flops(300);
    assert!((outcome.operations as f64 - expected).abs() <= 1.0, "{}", outcome.operations);
}

#[test]
fn columns_depend_on_the_seed_and_their_place_alone() {
    let column = |seed, j| {
        let mut values = [0.0; 4];
        random_column(seed, j, &mut values);
        values
    };
    assert_eq!(column(1, 5), column(1, 5));
    assert_ne!(column(1, 5), column(1, 6));
    assert_ne!(column(1, 5), column(2, 5));
    assert!((0..1000).flat_map(|j| column(3, j)).all(|value| (-0.5..0.5).contains(&value)));
}

#[test]
fn impossible_orders_are_refused_in_words() {
    assert!(run(&options("--n 0")).err().unwrap().to_string().contains("the least is 1"));
    let message = run(&options("--n 1e18")).err().unwrap().to_string();
    assert!(message.contains("too large"), "{message}");
    let message = run(&options("--n 8e6")).err().unwrap().to_string();
    assert!(message.starts_with("cannot map"), "{message}");
}

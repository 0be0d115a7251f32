//! Models of several shapes, products against a loop, and states that are wrong.

use super::*;

fn options(line: &str) -> Options {
    KERNEL.options_of(line)
}

#[test]
fn models_of_every_shape_continue_the_prompt() {
    for line in [
        "--layers 1 --width 2 --heads 1 --vocabulary 1 --prompt 1 --tokens 1",
        "--layers 2 --width 24 --heads 3 --vocabulary 77 --prompt 5 --tokens 9 --threads 2",
        "--layers 3 --width 64 --heads 4 --vocabulary 300 --prompt 1 --tokens 12 --threads 1",
    ] {
        let outcome = run(&options(line)).unwrap();
        KERNEL.assert_complete(&outcome);
    }
    let outcome = run(&options("--width 64 --heads 4 --vocabulary 10 --prompt 7 --tokens 3")).unwrap();
    assert_eq!(outcome.operations, 21);
    assert_eq!(outcome.facts["weights"], 4 * 12 * 64 * 64 + 10 * 64);
}

/// GPT-2 small has 124 million weights, of which 786,432 are positions, which are not weights here,
/// and some are biases.
#[test]
fn the_standard_size_is_that_of_gpt_2_small() {
    let shape = Shape { layers: 12, width: 768, heads: 12, vocabulary: 50_257 };
    assert_eq!(shape.weights(), 123_532_032);
}

#[test]
fn a_wrong_state_fails_the_check() {
    let line = options("--layers 2 --width 64 --heads 4 --vocabulary 300 --prompt 20 --tokens 4");
    let passes = |spoil: fn(&mut State)| measure(&line, spoil).unwrap().check;
    assert!(passes(|_| ()).passed);
    let exchanged = |state: &mut State| {
        let (first, rest) = state.values[0].split_at_mut(64);
        first.swap_with_slice(&mut rest[..64]);
    };
    let spoiled = passes(exchanged);
    assert!(!spoiled.passed && spoiled.statement.contains("at position"), "{spoiled:?}");
    assert!(!passes(|state| state.keys[1][7] = f32::NAN).passed);
    // A token is forgotten, so that the others stand at other positions.
    let forgotten = |state: &mut State| {
        for part in state.keys.iter_mut().chain(&mut state.values) {
            part.truncate(19 * 64);
        }
    };
    assert!(!passes(forgotten).passed);
}

#[test]
fn products_are_those_of_a_plain_loop() {
    let shape = Shape { layers: 1, width: 6, heads: 1, vocabulary: 1 };
    let mut random = generator(1, 2);
    let mut draw =
        |count: usize| -> Vec<f32> { (0..count).map(|_| (random.next_u64() >> 40) as f32 / 1e7).collect() };
    for (inputs, outputs, tokens, threads) in [(6, 5, 1, 1), (6, 7, 1, 3), (6, 18, 4, 1), (24, 6, 3, 2)] {
        let (matrix, from) = (draw(inputs * outputs), draw(inputs * tokens));
        let mut to = vec![0.0; outputs * tokens];
        Model { shape, weights: &[], threads }.multiply(&matrix, inputs, &from, &mut to);
        for (token, to) in to.chunks(outputs).enumerate() {
            for (row, value) in to.iter().enumerate() {
                let expected: f32 =
                    (0..inputs).map(|at| matrix[row * inputs + at] * from[token * inputs + at]).sum();
                assert!((value / expected - 1.0).abs() < 1e-5, "{value} {expected}");
            }
        }
    }
}

#[test]
fn rotations_depend_on_the_distance_alone() {
    let model =
        Model { shape: Shape { layers: 1, width: 8, heads: 2, vocabulary: 1 }, weights: &[], threads: 1 };
    let product = |one: usize, other: usize| {
        let mut query = [0.3, -0.2, 0.9, 0.4, 1.0, 0.1, -0.7, 0.5];
        let mut key = [0.8, 0.6, -0.1, 0.2, 0.3, -0.9, 0.4, 0.7];
        model.rotate(&mut query, one);
        model.rotate(&mut key, other);
        query.iter().zip(key).map(|(query, key)| query * key).sum::<f32>()
    };
    assert!((product(5, 2) - product(13, 10)).abs() < 1e-4);
    assert!((product(5, 2) - product(13, 2)).abs() > 1e-2);
}

#[test]
fn impossible_sizes_are_refused_in_words() {
    let message = |line: &str| run(&options(line)).err().unwrap().to_string();
    assert!(message("--width 10 --heads 4").contains("no even multiple"));
    assert!(message("--width 12 --heads 4").contains("no even multiple"));
    assert!(message("--tokens 0").contains("the least is 1"));
    assert!(message("--width 4e9 --heads 1").contains("too large"));
    assert!(message("--prompt 1e18").contains("too large"));
    assert!(message("--layers 1e12 --width 512 --heads 1").starts_with("cannot map"));
}

use super::*;

/// Bonnie++ 2.00a with `-q -f -n 0`: no per-character tests, no small files.
const WHOLE: &str = include_str!("../../../testdata/bonnie-2.00a.csv");
/// The same with a file so small that everything took less than half a second.
const FAST: &str = include_str!("../../../testdata/bonnie-2.00a-too-fast.csv");

#[test]
fn rates_have_their_units() {
    let words: Vec<&str> = WHOLE.trim().split(',').collect();
    let number = |place: usize| words[place].parse::<f64>().unwrap();
    assert_eq!(PARSER.value(WHOLE, "block_output"), Some(number(11) * 1024.0));
    assert_eq!(PARSER.value(WHOLE, "rewrite"), Some(number(13) * 1024.0));
    assert_eq!(PARSER.value(WHOLE, "block_input"), Some(number(17) * 1024.0));
    assert_eq!(PARSER.value(WHOLE, "seeks"), Some(number(19)));
    assert_eq!(PARSER.value(WHOLE, "file_bytes"), Some(192.0 * 1048576.0));
    assert_eq!(PARSER.passes(WHOLE, "rates_measured"), Some(true));
    assert_eq!((PARSER.value(WHOLE, "putc"), PARSER.passes(WHOLE, "putc")), (None, None));
}

#[test]
fn a_test_too_fast_to_measure_gives_no_number() {
    assert_eq!(PARSER.passes(FAST, "rates_measured"), Some(false));
    for (field, ..) in PARSER.fields.iter().filter(|(field, ..)| *field != "file_bytes") {
        assert_eq!(PARSER.value(FAST, field), None, "{field}");
    }
    let seeks = WHOLE.trim().split(',').nth(19).unwrap();
    let one = WHOLE.replace(&format!(",{seeks},"), ",+++++,");
    assert_eq!(PARSER.passes(&one, "rates_measured"), Some(true), "the others are");
    assert!(refused(&one, "seeks").unwrap().contains("half a second"));
    assert_eq!((refused(&one, "rewrite"), refused(&one, "file_bytes")), (None, None));
    assert!(PARSER.value(&one, "block_output").is_some() && PARSER.value(&one, "seeks").is_none());
}

#[test]
fn the_format_before_has_two_fields_less() {
    let words: Vec<&str> = WHOLE.trim().split(',').collect();
    let before = [&["1.97"], &words[1..7], &words[9..]].concat().join(",");
    for (field, ..) in PARSER.fields {
        assert_eq!(PARSER.value(&before, field), PARSER.value(WHOLE, field), "{field}");
    }
}

#[test]
fn truncated_and_foreign_output_gives_nothing() {
    let half = &WHOLE[..WHOLE.len() / 2];
    let newer = WHOLE.replacen("1.98", "1.99", 1);
    for text in
        ["", "\n", half, &newer, "1.98,2.00a\n", "Version 2.00a       ------Sequential Output------\n"]
    {
        assert_eq!(
            (PARSER.value(text, "block_output"), PARSER.passes(text, "rates_measured")),
            (None, None),
            "{text}"
        );
    }
    assert_eq!(
        ["7", "300M", "25G", "2T", "x", "3k"].map(file_bytes).map(|bytes| bytes.map(|bytes| bytes / K / K)),
        [Some(7.0), Some(300.0), Some(25_600.0), Some(2_097_152.0), None, None]
    );
}

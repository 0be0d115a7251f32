use super::*;

/// dd of the coreutils 9.1.
const WHOLE: &str = include_str!("../../../testdata/dd-9.1.txt");
/// The same, on a file system that became full.
const FULL: &str = include_str!("../../../testdata/dd-9.1-full.txt");

#[test]
fn the_rate_is_that_of_all_bytes() {
    let (bytes, seconds) = (PARSER.value(WHOLE, "bytes").unwrap(), PARSER.value(WHOLE, "duration").unwrap());
    assert_eq!((bytes, PARSER.value(WHOLE, "blocks")), (67_108_864.0, Some(65_536.0)));
    assert_eq!(PARSER.value(WHOLE, "rate"), Some(bytes / seconds));
    assert_eq!(PARSER.passes(WHOLE, "complete"), Some(true));
    assert_eq!((PARSER.value(WHOLE, "speed"), PARSER.passes(WHOLE, "speed")), (None, None));
}

#[test]
fn a_partial_write_does_not_pass() {
    assert_eq!(PARSER.passes(FULL, "complete"), Some(false));
    let part = WHOLE.replace("65536+0 records", "65535+1 records");
    assert_eq!(PARSER.passes(&part, "complete"), Some(false));
    for line in ["records in", "records out", "copied"] {
        let cut: String =
            WHOLE.lines().filter(|text| !text.contains(line)).map(|text| format!("{text}\n")).collect();
        assert_eq!((PARSER.value(&cut, "rate"), PARSER.passes(&cut, "complete")), (None, None), "{line}");
    }
    assert_eq!(PARSER.passes("", "complete"), None);
}

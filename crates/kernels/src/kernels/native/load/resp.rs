//! The keys and values that `load` writes and reads, and the protocol around them.
//!
//! RESP2, the serialization protocol of Redis (redis.io, "Redis serialization protocol
//! specification").

/// Length of every key of `load`: that of felter-2014.
pub(in crate::kernels) const KEY_BYTES: usize = 10;

/// The number of keys that this length allows: one letter, nine digits.
pub(in crate::kernels) const MOST_KEYS: u64 = 1_000_000_000;

/// The byte that fills values.
pub(in crate::kernels) const FILLER: u8 = b'x';

/// The key of that number.
pub(in crate::kernels) fn key(number: u32) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    let mut rest = number;
    for digit in key[1..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Appends the value of `key` with `bytes` bytes: the key, and filler.
pub(in crate::kernels) fn put_value(out: &mut Vec<u8>, key: &[u8], bytes: usize) {
    let end = out.len() + bytes;
    out.extend_from_slice(&key[..key.len().min(bytes)]);
    out.resize(end, FILLER);
}

/// Whether `value` is a value of `key`.
pub(in crate::kernels) fn belongs(value: &[u8], key: &[u8]) -> bool {
    value.strip_prefix(key).is_some_and(|filler| filler.iter().all(|byte| *byte == FILLER))
}

/// Appends a number in decimal digits.
pub(in crate::kernels) fn put_number(out: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

/// The first line of `input` without its end, and where the next line begins. `None` while the line
/// is incomplete.
pub(in crate::kernels) fn line(input: &[u8]) -> Option<(&[u8], usize)> {
    let end = input.iter().position(|byte| *byte == b'\n')?;
    let line = &input[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

/// A whole number in decimal digits. `None` for anything else, and for lengths beyond any reply.
pub(in crate::kernels) fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() || digits.len() > 12 {
        return None;
    }
    digits.iter().try_fold(0usize, |number, digit| {
        digit.is_ascii_digit().then(|| number * 10 + usize::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ten_characters_and_differ() {
        assert_eq!(&key(0), b"k000000000");
        assert_eq!(&key(1_234_567), b"k001234567");
        assert_eq!(&key((MOST_KEYS - 1) as u32), b"k999999999");
    }

    #[test]
    fn values_belong_to_their_keys() {
        let mut value = Vec::new();
        put_value(&mut value, &key(7), 13);
        assert_eq!(value, b"k000000007xxx");
        assert!(belongs(&value, &key(7)) && belongs(&value[..10], &key(7)));
        assert!(!belongs(&value, &key(8)) && !belongs(&value[..9], &key(7)));
        value[12] = b'y';
        assert!(!belongs(&value, &key(7)));
    }

    #[test]
    fn numbers_and_lines() {
        for value in [0, 9, 10, 123_456_789] {
            let mut out = Vec::new();
            put_number(&mut out, value);
            assert_eq!(number(&out), Some(value));
        }
        for wrong in ["", "-1", "1a", "1234567890123"] {
            assert_eq!(number(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(line(b"+OK\r\nrest"), Some((b"+OK".as_slice(), 5)));
        assert_eq!(line(b"+OK\r"), None);
    }
}

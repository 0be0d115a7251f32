//! GET and SET of a key-value server, in RESP.

use super::protocol::{Protocol, Reply, Step, excerpt};
use super::resp::{self, KEY_BYTES};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::ops::Range;

/// The longest line that is accepted: an error message.
const LONGEST_LINE: usize = 4096;

/// What requests are drawn from.
#[derive(Debug, Clone)]
pub(super) struct Mix {
    /// The number of keys.
    pub(super) keys: u32,
    /// How many of 100 requests read.
    pub(super) reads_percent: u32,
    /// Mean length of a value. Lengths are spread evenly from the length of a key to the same
    /// distance above the mean.
    pub(super) value_bytes: usize,
}

impl Mix {
    fn longest_value(&self) -> usize {
        2 * self.value_bytes - KEY_BYTES
    }
}

/// One thread's requests.
pub(super) struct Redis {
    mix: Mix,
    /// Keys that are still to be written, each once; if absent, keys are drawn at random.
    fill: Option<Range<u32>>,
    random: Pcg64Mcg,
}

/// What a request expects.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    /// A confirmation that the value was stored.
    Stored,
    /// The value of that key.
    Value(u32),
}

impl Redis {
    pub(super) fn new(mix: Mix, fill: Option<Range<u32>>, random: Pcg64Mcg) -> Self {
        Self { mix, fill, random }
    }

    /// A number below `end`, uniformly distributed.
    fn below(&mut self, end: u32) -> u32 {
        let high_bits = self.random.next_u64() >> 32;
        ((high_bits * u64::from(end)) >> 32) as u32
    }

    fn set(&mut self, key: u32, out: &mut Vec<u8>) -> Expected {
        let spread = self.mix.longest_value() - KEY_BYTES;
        let bytes = KEY_BYTES + self.below(spread as u32 + 1) as usize;
        let key = resp::key(key);
        out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$10\r\n");
        out.extend_from_slice(&key);
        out.extend_from_slice(b"\r\n$");
        resp::put_number(out, bytes);
        out.extend_from_slice(b"\r\n");
        resp::put_value(out, &key, bytes);
        out.extend_from_slice(b"\r\n");
        Expected::Stored
    }
}

impl Protocol for Redis {
    type Expected = Expected;
    type Partial = ();

    fn request(&mut self, out: &mut Vec<u8>) -> Expected {
        if let Some(fill) = &mut self.fill {
            // The loops make as many requests as there are keys.
            let key = fill.next().unwrap_or(fill.end.saturating_sub(1));
            return self.set(key, out);
        }
        let key = self.below(self.mix.keys);
        if self.below(100) < self.mix.reads_percent {
            out.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$10\r\n");
            out.extend_from_slice(&resp::key(key));
            out.extend_from_slice(b"\r\n");
            Expected::Value(key)
        } else {
            self.set(key, out)
        }
    }

    fn reply(&mut self, _: &mut (), input: &[u8], expected: &Expected) -> Step {
        let Some((line, body)) = resp::line(input) else {
            return match input.len() {
                0..LONGEST_LINE => Step::more(0),
                _ => malformed(input),
            };
        };
        match (line.split_first(), expected) {
            (Some((b'-', message)), _) => {
                Step::done(body, Reply::Wrong(format!("error {}", excerpt(message))))
            }
            (Some((b'+', b"OK")), Expected::Stored) => Step::done(body, Reply::Right),
            (Some((b'$', b"-1")), Expected::Value(key)) => {
                Step::done(body, Reply::Wrong(format!("no value of {}", excerpt(&resp::key(*key)))))
            }
            (Some((b'$', digits)), Expected::Value(key)) => {
                let Some(bytes) = resp::number(digits).filter(|bytes| *bytes <= 512 << 20) else {
                    return malformed(input);
                };
                let Some(value) = input[body..].get(..bytes + 2) else { return Step::more(0) };
                let Some(value) = value.strip_suffix(b"\r\n") else { return malformed(input) };
                let right = bytes <= self.mix.longest_value() && resp::belongs(value, &resp::key(*key));
                let reply = if right {
                    Reply::Right
                } else {
                    let key = resp::key(*key);
                    Reply::Wrong(format!("{} for the value of {}", excerpt(value), excerpt(&key)))
                };
                Step::done(body + bytes + 2, reply)
            }
            // Any other one-line reply can be separated from what follows it.
            (Some((b'+' | b':', _)), _) => {
                Step::done(body, Reply::Wrong(format!("{} for a request of another kind", excerpt(line))))
            }
            _ => malformed(input),
        }
    }
}

fn malformed(input: &[u8]) -> Step {
    Step::done(0, Reply::Malformed(excerpt(input)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redis(fill: Option<Range<u32>>) -> Redis {
        let mix = Mix { keys: 1000, reads_percent: 50, value_bytes: 50 };
        Redis::new(mix, fill, Pcg64Mcg::new(1))
    }

    fn reply(input: &str, expected: Expected) -> (usize, Option<Reply>) {
        let step = redis(None).reply(&mut (), input.as_bytes(), &expected);
        (step.consumed, step.reply)
    }

    #[test]
    fn requests_have_the_mix_and_the_mean_that_were_asked_for() {
        let mut redis = redis(None);
        let (mut reads, mut value_bytes) = (0, Vec::new());
        for _ in 0..20_000 {
            let mut out = Vec::new();
            match redis.request(&mut out) {
                Expected::Value(key) => {
                    reads += 1;
                    let key = excerpt(&resp::key(key));
                    assert_eq!(out, format!("*2\r\n$3\r\nGET\r\n$10\r\n{key}\r\n").as_bytes());
                }
                Expected::Stored => {
                    let text = String::from_utf8(out).unwrap();
                    let parts: Vec<_> = text.split("\r\n").collect();
                    assert_eq!((parts.len(), parts[0], parts[2]), (8, "*3", "SET"));
                    assert_eq!(parts[5], format!("${}", parts[6].len()));
                    assert!(resp::belongs(parts[6].as_bytes(), parts[4].as_bytes()));
                    value_bytes.push(parts[6].len());
                }
            }
        }
        assert!((9_500..10_500).contains(&reads), "{reads}");
        let mean = value_bytes.iter().sum::<usize>() as f64 / value_bytes.len() as f64;
        assert!((mean - 50.0).abs() < 2.0, "{mean}");
        assert_eq!((value_bytes.iter().min(), value_bytes.iter().max()), (Some(&10), Some(&90)));
    }

    #[test]
    fn a_fill_writes_every_key_once() {
        let mut redis = redis(Some(3..6));
        let mut out = Vec::new();
        (0..3).for_each(|_| assert!(matches!(redis.request(&mut out), Expected::Stored)));
        let text = String::from_utf8(out).unwrap();
        for key in ["k000000003", "k000000004", "k000000005"] {
            assert!(text.contains(&format!("$10\r\n{key}\r\n")), "{text}");
        }
    }

    #[test]
    fn replies_are_judged_by_kind_and_content() {
        let right = |consumed| (consumed, Some(Reply::Right));
        assert_eq!(reply("+OK\r\n+OK\r\n", Expected::Stored), right(5));
        assert_eq!(reply("$12\r\nk000000007xx\r\n", Expected::Value(7)), right(19));
        for part in ["+O", "+OK\r"] {
            assert_eq!(reply(part, Expected::Stored), (0, None), "{part}");
        }
        for part in ["$1", "$12\r\n", "$12\r\nk000000007xx\r"] {
            assert_eq!(reply(part, Expected::Value(7)), (0, None), "{part}");
        }
        let wrong = |input: &str, expected| match reply(input, expected) {
            (consumed, Some(Reply::Wrong(why))) if consumed == input.len() => why,
            other => panic!("{input}: {other:?}"),
        };
        assert!(wrong("$-1\r\n", Expected::Value(7)).contains("no value of k000000007"));
        assert!(wrong("$12\r\nk000000008xx\r\n", Expected::Value(7)).contains("k000000008"));
        assert!(wrong("+OK\r\n", Expected::Value(7)).contains("another kind"));
        assert!(wrong("-OOM used memory\r\n", Expected::Stored).contains("OOM"));
        for input in ["HTTP/1.1 400\r\n", "$x\r\n", "$2\r\nabcd\r\n"] {
            assert!(matches!(reply(input, Expected::Value(7)).1, Some(Reply::Malformed(_))), "{input}");
        }
        assert!(matches!(reply("$2\r\nab\r\n", Expected::Stored).1, Some(Reply::Malformed(_))));
    }
}

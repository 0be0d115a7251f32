//! How long weighbridge waits for what it starts. The deadlines suit machines that run at native
//! speed. An emulated machine, or a nested one, needs a multiple of them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The environment variable that scales the deadlines.
pub const VARIABLE: &str = "WEIGH_DEADLINES";

/// The largest factor. With a larger one, hours would pass before a guest that never answers is
/// given up.
const LARGEST: u32 = 100;

static FACTOR: AtomicU32 = AtomicU32::new(1);

/// The factor is malformed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{VARIABLE} is `{0}`, not a whole number from 1 to {LARGEST} followed by `x`, as in 10x")]
pub struct MalformedFactor(String);

/// Scales all deadlines of this process by what the user wrote, as `10x` or `10`.
///
/// # Errors
/// [`MalformedFactor`] if it is no whole number from 1 to 100.
pub fn set(text: &str) -> Result<(), MalformedFactor> {
    FACTOR.store(parse(text)?, Ordering::Relaxed);
    Ok(())
}

/// Returns how long to wait here for what takes at most `deadline` on a machine at native speed.
pub fn scaled(deadline: Duration) -> Duration {
    deadline.saturating_mul(FACTOR.load(Ordering::Relaxed))
}

/// Returns how long killed processes may take to be gone.
pub fn death() -> Duration {
    scaled(Duration::from_secs(10))
}

fn parse(text: &str) -> Result<u32, MalformedFactor> {
    let digits = text.trim().strip_suffix('x').unwrap_or(text.trim());
    match digits.parse() {
        Ok(factor @ 1..=LARGEST) => Ok(factor),
        _ => Err(MalformedFactor(text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Invocation;

    #[test]
    fn factors_are_whole_numbers_within_limits() {
        assert_eq!(parse("10x"), Ok(10));
        assert_eq!(parse("1"), Ok(1));
        assert_eq!(parse(" 100x "), Ok(100));
        for wrong in ["", "x", "0x", "101x", "-1", "2.5x", "10xx", "ten"] {
            assert_eq!(parse(wrong), Err(MalformedFactor(wrong.into())), "{wrong}");
        }
        let message = parse("2.5x").unwrap_err().to_string();
        assert!(message.starts_with("WEIGH_DEADLINES is `2.5x`"), "{message}");
    }

    /// The factor is global to the process, so this test runs in its own.
    #[test]
    #[ignore = "run by a_command_may_take_longer_by_the_factor"]
    fn a_process_with_a_factor() {
        let factor = std::env::var(VARIABLE).unwrap();
        set(&factor).unwrap();
        assert_eq!(death(), Duration::from_secs(10) * parse(&factor).unwrap());
        Invocation::new("sleep").arg("0.5").deadline(Duration::from_millis(100)).run_ok().unwrap();
    }

    #[test]
    fn a_command_may_take_longer_by_the_factor() {
        let in_time = |factor: &str| {
            let process = Invocation::new(std::env::current_exe().unwrap());
            let process = process.args(["--exact", "deadlines::tests::a_process_with_a_factor", "--ignored"]);
            process.env(VARIABLE, factor).run().unwrap().status.success()
        };
        assert!(in_time("100x"), "half a second is less than 10 s");
        assert!(!in_time("1x"), "half a second is more than 100 ms");
    }
}

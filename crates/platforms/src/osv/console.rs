//! The output of a unikernel's console, and what follows from it.
//!
//! OSv prints its version, its boot time and the command line that it executes, a line each; then
//! the program prints. There is one stream and no exit status. `weigh-kernels` prints a line of
//! JSON, which says whether its check passed; a program that prints none has failed. (Source:
//! `loader.cc` and `core/app.cc` of OSv.)

use weigh_protocol::Status;

/// What OSv prints just before it starts the program.
const COMMAND_LINE: &str = "Cmdline:";
/// What OSv prints about a program that it cannot execute.
const CANNOT: &str = "cannot execute";
/// Exit code of `weigh-kernels` when its check failed.
const CHECK_FAILED: i32 = 3;
/// How much of a console's output is kept, bytes.
const KEPT: usize = 1 << 20;

/// A console that is read while the machine runs.
#[derive(Debug, Default)]
pub(super) struct Console {
    text: Vec<u8>,
    /// When the program began and its result arrived, on the host's monotonic clock, nanoseconds.
    began_ns: Option<u64>,
    result_ns: Option<u64>,
}

impl Console {
    /// Takes bytes that were read at a given time of the host's clock.
    pub(super) fn hear(&mut self, bytes: &[u8], now_ns: u64) {
        // A serial console ends its lines with CR and LF.
        self.text.extend(bytes.iter().filter(|byte| **byte != b'\r'));
        let excess = self.text.len().saturating_sub(KEPT);
        self.text.drain(..excess);
        if self.began_ns.is_none() && self.command_line().is_some() {
            self.began_ns = Some(now_ns);
        }
        if self.result_ns.is_none() && self.result().is_some() {
            self.result_ns = Some(now_ns);
        }
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        // The last piece is not a whole line yet.
        let end = self.text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.text[..end].split(|byte| *byte == b'\n')
    }

    fn command_line(&self) -> Option<&[u8]> {
        self.lines().find(|line| line.starts_with(COMMAND_LINE.as_bytes()))
    }

    /// The line with the program's result, once it is complete.
    pub(super) fn result(&self) -> Option<&[u8]> {
        let is_result = |line: &&[u8]| line.starts_with(b"{") && value(line).is_some();
        self.lines().find(is_result)
    }

    /// Time from the program's start to its result; `None` if either was not seen.
    pub(super) fn duration_ns(&self) -> Option<u64> {
        Some(self.result_ns?.saturating_sub(self.began_ns?))
    }

    /// When the result arrived.
    pub(super) fn result_ns(&self) -> Option<u64> {
        self.result_ns
    }

    /// The version, from OSv's first line.
    pub(super) fn version(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.text).into_owned();
        // Firmware may have printed something on the same line.
        let at = text.find("OSv v")?;
        Some(text[at..].lines().next()?.trim().into())
    }

    /// How the program ended, as far as the console shows.
    pub(super) fn status(&self) -> Status {
        let passed = self.result().and_then(value).and_then(|value| value["check"]["passed"].as_bool());
        Status::Exited(match passed {
            Some(true) => 0,
            Some(false) => CHECK_FAILED,
            None => 1,
        })
    }

    /// Everything but the result, for a human reader.
    pub(super) fn rest(&self) -> Vec<u8> {
        let result = self.result();
        let said = self.text.split(|byte| *byte == b'\n').filter(|line| Some(*line) != result);
        said.collect::<Vec<_>>().join(&b'\n')
    }

    /// Why there is no result, in a sentence.
    pub(super) fn complaint(&self) -> String {
        let rest = String::from_utf8_lossy(&self.rest()).into_owned();
        let lines: Vec<&str> = rest.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match lines.iter().find(|line| line.contains(CANNOT)) {
            Some(line) => (*line).into(),
            None if lines.is_empty() => "its console said nothing".into(),
            None => lines[lines.len().saturating_sub(3)..].join("; "),
        }
    }
}

fn value(line: &[u8]) -> Option<serde_json::Value> {
    let value: serde_json::Value = serde_json::from_slice(line).ok()?;
    value.get("check")?.get("passed")?.as_bool()?;
    Some(value)
}

/// Feeds a console in pieces, for fuzzing.
pub fn fuzz(said: &[u8]) {
    let mut console = Console::default();
    for (now_ns, piece) in (0..).zip(said.chunks(97)) {
        console.hear(piece, now_ns);
    }
    let _ = (console.result(), console.duration_ns(), console.version(), console.status(), console.rest());
    console.complaint();
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str =
        "SeaBIOS (version 1)\r\nBooting from ROM..OSv v0.57.0-69-g053fc914\r\nBooted up in 193.02 ms\r\n";
    const COMMAND: &str = "Cmdline: /weigh-kernels noploop\r\n";
    const RESULT: &str = "{\"kernel\":\"noploop\",\"metrics\":{},\"check\":{\"passed\":true}}\r\n";

    fn heard(parts: &[(&str, u64)]) -> Console {
        let mut console = Console::default();
        for (text, now_ns) in parts {
            console.hear(text.as_bytes(), *now_ns);
        }
        console
    }

    #[test]
    fn a_run_is_read_off_the_console() {
        let console =
            heard(&[(BOOT, 10), (COMMAND, 20), (&RESULT[..30], 25), (&RESULT[30..], 50), ("bye\r\n", 60)]);
        assert_eq!(console.version().as_deref(), Some("OSv v0.57.0-69-g053fc914"));
        assert_eq!(console.duration_ns(), Some(30));
        assert_eq!(console.status(), Status::Exited(0));
        assert_eq!(console.result().unwrap(), RESULT.trim().as_bytes());
        let rest = String::from_utf8(console.rest()).unwrap();
        assert!(rest.contains("Booted up") && rest.contains("bye") && !rest.contains("metrics"), "{rest}");
    }

    #[test]
    fn boot_is_no_part_of_a_duration() {
        assert_eq!(heard(&[(BOOT, 10), (RESULT, 50)]).duration_ns(), None, "nobody knows when it began");
        assert_eq!(heard(&[(BOOT, 10), (COMMAND, 20)]).duration_ns(), None);
    }

    #[test]
    fn failures_are_reported() {
        let failed = RESULT.replace("true", "false");
        assert_eq!(heard(&[(COMMAND, 1), (&failed, 2)]).status(), Status::Exited(3));
        let missing = "run_main(): cannot execute /weigh-kernels. Powering off.\r\n";
        let console = heard(&[(BOOT, 1), (COMMAND, 2), (missing, 3)]);
        assert_eq!(console.status(), Status::Exited(1));
        assert!(console.complaint().contains("cannot execute /weigh-kernels"));
        // Lines that only look like a result, and a truncated result.
        for text in ["{\"a\":1}\r\n", "{not json}\r\n", RESULT.trim_end()] {
            assert!(heard(&[(COMMAND, 1), (text, 2)]).result().is_none(), "{text}");
        }
        assert!(!heard(&[]).complaint().is_empty());
    }

    #[test]
    fn a_console_that_never_stops_is_cut() {
        let mut console = Console::default();
        for _ in 0..40 {
            console.hear(&vec![b'x'; 100_000], 1);
        }
        console.hear(format!("\n{COMMAND}{RESULT}").as_bytes(), 2);
        assert!(console.text.len() <= KEPT);
        assert!(console.result().is_some());
    }
}

//! Files of plain values, one per line, as scripts of studies write them.

use super::Parser;

/// Columns separated by commas, the last of which is the value: `runsc_kvm,4096,1.26e-05`. The
/// others name the run. The fields state the unit that the study used, because such files do not.
pub(super) const CSV: Parser = Parser {
    name: "csv",
    fields: &[
        ("seconds", "s", last_column),
        ("milliseconds", "s", |line| Some(last_column(line)? / 1e3)),
        ("nanoseconds", "s", |line| Some(last_column(line)? / 1e9)),
        ("bytes", "B", last_column),
        ("bytes_per_second", "B/s", last_column),
        ("operations_per_second", "op/s", last_column),
    ],
    ..Parser::PLAIN
};

/// Boot times of virtual machines: microseconds from the start of the VMM and, if the VMM reported
/// it, milliseconds from its call to the guest.
pub(super) const BOOT_TIMES: Parser = Parser {
    name: "boot-times",
    fields: &[
        ("from_start", "s", |line| Some(number(line.split_whitespace().next()?)? / 1e6)),
        ("from_call", "s", |line| Some(number(line.split_whitespace().nth(1)?)? / 1e3)),
    ],
    ..Parser::PLAIN
};

/// What a client timed: a name, the start and the end in milliseconds since the epoch, and their
/// difference.
pub(super) const CLIENT_TIMES: Parser = Parser {
    name: "client-times",
    fields: &[("duration", "s", |line| Some(number(line.split_whitespace().nth(3)?)? / 1e3))],
    ..Parser::PLAIN
};

fn last_column(line: &str) -> Option<f64> {
    number(line.rsplit_once(',')?.1)
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

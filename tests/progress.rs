//! What a user sees of a run in progress: on terminals of several widths, and without a terminal.

use crate::support::{Stage, words};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::{Command, ExitStatus};

/// Lines of the terminals: everything that is ever printed fits.
const LINES: u16 = 60;
const BLOCKS: usize = 6;

/// Three environments that are compared with a fourth, whose commands take real time.
fn line(out: &str) -> String {
    let fake = |more: &str| format!("null:real=yes,time=60ms,sd=0.01{more}");
    let named = ["", ",label=b", ",label=an-environment-with-a-name-of-many-words", ",effect=0.1"];
    let (on, baseline) = (named.map(fake).join(";"), fake(""));
    format!(
        "run --no-void --on {on} --baseline {baseline} --blocks {BLOCKS} --seed 1 --warmup 0 --iterations 1 \
         --out {out} -- work"
    )
}

/// A run on a terminal.
struct Watched {
    /// Pictures of the screen, each a list of lines without trailing blanks.
    pictures: Vec<Vec<String>>,
    bytes: Vec<u8>,
    status: ExitStatus,
}

impl Watched {
    fn last(&self) -> &[String] {
        self.pictures.last().unwrap()
    }
}

fn picture(screen: &vt100::Parser, columns: u16) -> Vec<String> {
    let rows: Vec<String> = screen.screen().rows(0, columns).map(|row| row.trim_end().to_string()).collect();
    let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
    rows[..used].to_vec()
}

fn watch(stage: &Stage, columns: u16, out: &str, environment: &[(&str, &str)]) -> Watched {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
    let master = openpt(flags | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ioctl_tiocgptpeer(&master, flags | OpenptFlags::CLOEXEC).unwrap();
    let size = Winsize { ws_row: LINES, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();

    let mut command = Command::new(assert_cmd::cargo::cargo_bin("weigh"));
    command.args(words(&line(out))).current_dir(stage.here());
    command.env("WEIGH_STATE", stage.state()).env("XDG_CONFIG_HOME", stage.config().parent().unwrap());
    command.env("TERM", "xterm").env("LC_ALL", "C.UTF-8").env_remove("COLUMNS").env_remove("NO_COLOR");
    command.envs(environment.iter().copied());
    let stream = || terminal.try_clone().unwrap();
    command.stdin(stream()).stdout(stream()).stderr(stream());
    let mut run = command.spawn().unwrap();
    // The terminal closes when the last process has closed it.
    drop((command, terminal));

    let mut bytes = Vec::new();
    // Reading a terminal that nobody has open any more gives EIO.
    let _closed = File::from(master).read_to_end(&mut bytes);
    let mut screen = vt100::Parser::new(LINES, columns, 0);
    let mut pictures = Vec::new();
    for (at, part) in String::from_utf8(bytes.clone()).unwrap().split("\x1b[").enumerate() {
        // A redraw begins when the cursor moves up (ECMA-48, 8.3.22): before that the picture is
        // complete.
        if part.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with('A') {
            pictures.push(picture(&screen, columns));
        }
        screen.process(if at == 0 { b"" } else { b"\x1b[" });
        screen.process(part.as_bytes());
    }
    pictures.push(picture(&screen, columns));
    Watched { pictures, bytes, status: run.wait().unwrap() }
}

const SPINNER: &str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏";

/// The lines that are redrawn, if they are all there: that of the blocks, that of the cell, and the
/// rows.
fn board(picture: &[String]) -> Option<&[String]> {
    let first = picture.iter().position(|line| line.starts_with("block ") && line.contains(" of "))?;
    Some(&picture[first..])
}

fn is_cell(line: &str) -> bool {
    line.starts_with(|first: char| SPINNER.contains(first)) && line.contains(" s ")
}

#[test]
fn a_terminal_of_any_width_shows_the_run_in_lines_that_fit_and_is_clean_in_the_end() {
    let stage = Stage::with_fakes();
    for columns in [40, 80, 200] {
        let watched = watch(&stage, columns, &format!("r{columns}"), &[]);
        assert!(watched.status.success(), "{:?}", watched.last());
        let boards: Vec<&[String]> = watched.pictures.iter().filter_map(|picture| board(picture)).collect();
        assert!(boards.len() >= 2, "{columns}: {:?}", watched.pictures);
        let (mut full, mut drawn) = (0, false);
        for lines in boards {
            assert!(is_cell(&lines[1]), "{columns}: the cell stands under the blocks: {lines:?}");
            // If a line were too long, its rest would be a line that is none of these.
            let rows: Vec<&String> = lines[2..].iter().filter(|line| !line.contains(" time)")).collect();
            assert!(
                rows.iter().all(|row| row.starts_with("  ") && row.contains("] n ")),
                "{columns}: {lines:?}"
            );
            assert!(rows.len() == 3 || rows.is_empty(), "{columns}: a row for each cell: {lines:?}");
            full += rows.len() / 3;
            if columns >= 80 && !rows.is_empty() {
                assert!(lines[0].contains('['), "there is a bar: {lines:?}");
                assert!(rows.iter().all(|row| row.contains('●')), "and one for each interval: {lines:?}");
                drawn |= rows.iter().any(|row| row.contains('━'));
            }
        }
        assert!(
            full > 0 && (drawn || columns < 80),
            "{columns}: intervals were seen: {:?}",
            watched.pictures
        );
        for line in watched.last() {
            assert!(
                board(std::slice::from_ref(line)).is_none()
                    && !line.starts_with(|c: char| SPINNER.contains(c)),
                "{line}"
            );
        }
        let text = watched.last().join("\n");
        assert!(text.contains("report: ") && text.contains("time: "), "{text}");
    }
    // Fakes change nothing on the host; what others do there meanwhile does not matter.
    assert!(!stage.state().exists(), "the state directory is left");
}

#[test]
fn a_terminal_gets_no_colour_and_no_letters_that_it_does_not_want() {
    let stage = Stage::with_fakes();
    let plain = watch(&stage, 80, "plain", &[("NO_COLOR", "1"), ("LC_ALL", "C")]);
    assert!(plain.status.success());
    assert!(plain.bytes.is_ascii(), "{:?}", plain.pictures);
    let colours = String::from_utf8(plain.bytes).unwrap();
    // Sequences that set colours end in m (ECMA-48, 8.3.117).
    let ends = colours
        .split("\x1b[")
        .skip(1)
        .map(|rest| rest.trim_start_matches(|c: char| !c.is_ascii_alphabetic()));
    assert!(ends.clone().count() > 0 && ends.clone().all(|end| !end.starts_with('m')), "{colours:?}");
    assert!(plain.pictures.iter().any(|picture| board(picture).is_some()));

    // If the cursor cannot be moved, plain lines are written.
    let dumb = watch(&stage, 80, "dumb", &[("TERM", "dumb"), ("NO_COLOR", "1")]);
    assert!(dumb.status.success());
    let text = String::from_utf8(dumb.bytes).unwrap();
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(text.contains(&format!("block {BLOCKS}/{BLOCKS}; ")), "{text}");
    // Fakes change nothing on the host; what others do there meanwhile does not matter.
    assert!(!stage.state().exists(), "the state directory is left");
}

#[test]
fn without_a_terminal_there_are_a_few_plain_lines() {
    let stage = Stage::with_fakes();
    let run = "run --no-void --on null;null:label=b --baseline null --blocks 300 --out r -- work";
    let text = stage.run(run).ends_with(0).stderr;
    assert_eq!(text.chars().find(|c| c.is_control() && *c != '\n'), None, "{text:?}");
    let tried: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("trying null")).collect();
    assert_eq!(tried, ["", ":label=b"], "one for each environment of the pilot: {text}");
    let blocks: Vec<&str> = text.lines().filter(|line| line.starts_with("block ")).collect();
    assert!(blocks[0].starts_with("block 1/300, about "), "{text}");
    assert!(blocks.last().unwrap().starts_with("block 300/300; widest: "), "{text}");
    // Three hundred blocks take a second or two; on a busy machine there is one more line every
    // five seconds.
    assert!(blocks.len() < 15, "{text}");
    // Fakes change nothing on the host; what others do there meanwhile does not matter.
    assert!(!stage.state().exists(), "the state directory is left");
}

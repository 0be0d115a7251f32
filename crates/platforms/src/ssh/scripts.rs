//! The scripts that run on the other machine: short, for any POSIX shell, and each removes what it
//! made whatever ends it.
//!
//! `sshd(8)` gives a command to the account's login shell, which may not be `sh`. So a script is
//! one word in single quotes, without line breaks, which every shell reads alike; what varies is
//! passed as arguments.

/// How often the scripts check whether something is gone, five times a second.
const LOOKS: &str = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";

/// Prints the process `$1` and all its descendants, as far as `ps` shows them.
const TREE: &str = r#"
tree() { ps -A -o pid= -o ppid= | awk -v r="$1" "{ k[\$2] = k[\$2] \" \" \$1 } function w(n, a, i, c) { print n; c = split(k[n], a, \" \"); for (i = 1; i <= c; i++) w(a[i]) } END { w(r) }"; };
"#;

/// Functions that end guests. `$d` is the run's directory, which is on the command line of
/// everything that runs for it: a process number that has been reused is never signalled. A script
/// that does not end when told to may be too slow to end what it started, so its children are
/// killed with it. Where others may write, they may have put a directory or a link of that name
/// there, and nothing is ended in either.
const FUNCTIONS: &str = r#"
gone() { for i in LOOKS; do [ -e "$1" ] || return 0; sleep 0.2 2>/dev/null || sleep 1; done; return 1; };
ours() { a=$(tr "\000" " " < "/proc/$1/cmdline" 2>/dev/null) || a=$(ps -o args= -p "$1" 2>/dev/null); case "$a" in *"$d"*) return 0;; esac; return 1; };
send() { s=$1; shift; for x in "$@"; do if [ "$x" != "$$" ] && ours "$x"; then kill -s "$s" "$x" 2>/dev/null; fi; done; };
end() { w=; p=; [ -e "$1" ] || return 0; if [ -f "$1/pid" ]; then read w p < "$1/pid"; fi;
if [ -n "$w" ] && [ "$w" != "$$" ]; then send TERM $w $p; gone "$1" && return 0; t=; if ours "$w"; then t=$(tree "$w"); fi; send KILL $p $w; [ -z "$t" ] || kill -9 $t 2>/dev/null; fi; rm -rf "$1"; [ -e "$1" ] && sleep 1 && rm -rf "$1"; [ ! -e "$1" ]; };
end_all() { if [ -L "$d" ]; then rm -f "$d"; return; fi; if [ -e "$d" ] && [ ! -O "$d" ]; then echo "$d is not a directory of this account" >&2; return 1; fi;
for g in "$d"/guest-*; do [ -d "$g" ] && end "$g"; done; end "$d"; };
"#;

/// Holds the directory `$1` of a run while its standard input is open: makes it, prints `kept`,
/// waits. Whatever exists under that name belongs to the same run, whose connection was lost, and
/// is removed first.
const KEEP: &str = r#"
umask 077; d=$1; cd / || exit 1; end_all 2>/dev/null;
mkdir "$d" || exit 3; exec 3<&0; trap "exit 1" HUP INT TERM; trap "end_all || exit 4" EXIT; echo "$$" > "$d/pid" || exit 3;
echo "kept"; cat <&3 >/dev/null & wait "$!"; exit 0
"#;

/// Prints facts about the machine, a line each.
const ASK: &str = r#"
uname -s; uname -m; uname -r; id -u; getconf _NPROCESSORS_ONLN 2>/dev/null || echo 0; echo "${SSH_CONNECTION%% *}"; sh -c ". /etc/os-release; echo \$PRETTY_NAME" 2>/dev/null || uname -sr
"#;

/// Writes standard input to the program `$1`.
const TAKE: &str = r#"umask 077; cat > "$1.new" && chmod 700 "$1.new" && mv "$1.new" "$1""#;

/// Runs the probe of guest `$2` on the first `$3` CPUs, or on all, and talks over the standard
/// streams. The probe ends with its channel, and ends its command.
const GUEST: &str = r#"
umask 077; d=$1; g="$1/$2"; c=$3; cd / || exit 1; mkdir "$g" || exit 3; p=;
exec 3<&0; trap "exit 1" HUP INT TERM; trap "kill \$p 2>/dev/null; wait \$p; rm -rf \"\$g\"" EXIT;
if [ -n "$c" ]; then taskset -c "0-$((c-1))" "$d/probe" <&3 3<&- & p=$!; else "$d/probe" <&3 3<&- & p=$!; fi;
echo "$$ $p" > "$g/pid"; exec 3<&- </dev/null; wait "$p"; s=$?; p=; exit "$s"
"#;

/// Runs a command where there is no probe. `$3` marks the lines that are not the command's output,
/// `$4` is the working directory, `$5` the program and `$6` the `PATH` to look it up in; the
/// command line follows. The end of standard input ends the command and what it started, as far as
/// `ps` shows it.
const RUN: &str = r#"
umask 022; d=$1; g="$1/$2"; n=$3; f=$5; l=$6; cd "$4" 2>/dev/null || { echo "$n refused the working directory $4 cannot be used there"; exit 0; };
(PATH=$l; command -v "$f") >/dev/null 2>&1 || { echo "$n refused there is no program $f"; exit 0; };
shift 6; mkdir "$g" || exit 3; p=; k=; exec 3<&0;
trap "k=1; kill -9 \$(tree \$p) 2>/dev/null" HUP INT TERM; trap "rm -rf \"\$g\"" EXIT;
echo "$n started"; "$@" </dev/null 3<&- & p=$!; echo "$$" > "$g/pid"; (cat <&3 >/dev/null; kill -s TERM "$$") >/dev/null 2>&1 & c=$!; exec 3<&-;
wait "$p"; s=$?; if [ -n "$k" ]; then wait "$p"; s=137; fi; kill "$c" 2>/dev/null;
times > "$g/times"; { read a; read u y; } < "$g/times"; echo; echo "$n ended $s $u $y"
"#;

/// Prints facts about the machine for a fleet, a line each: its system, architecture, boot and
/// identity; its kernel, CPUs, memory in KiB and models of CPU. A line for what it does not know is
/// empty.
const FLEET_ASK: &str = r#"
uname -s; uname -m; cat /proc/sys/kernel/random/boot_id 2>/dev/null || echo; cat /etc/machine-id 2>/dev/null || cat /var/lib/dbus/machine-id 2>/dev/null || echo;
uname -r; nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo; sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo 2>/dev/null || echo;
sed -n -e 's/^model name[^:]*: *//p' -e 's/^CPU part[^:]*: */part /p' /proc/cpuinfo 2>/dev/null | sort -u | tr '\n' ' '; echo
"#;

/// Makes the directory `$1` of a fleet, which must not exist, and writes standard input into it:
/// the first `$2` bytes are the plan, the others are the program `weigh`. Prints that program's
/// version, or why it does not run. `dd` reads byte by byte: of more, a pipe may give it less than
/// it asks for.
const FLEET_EQUIP: &str = r#"
umask 077; mkdir "$1" || exit 3; dd bs=1 count="$2" > "$1/plan.json" 2>/dev/null || { echo "the plan could not be written to $1" >&2; exit 3; };
cat > "$1/weigh.new" && chmod 700 "$1/weigh.new" && mv "$1/weigh.new" "$1/weigh" && { "$1/weigh" --version || :; } 2>&1
"#;

/// Unpacks an unfinished run from standard input into the directory `$1` of a fleet.
const FLEET_SEND: &str =
    r#"umask 077; cd "$1" && rm -rf run.new && mkdir run.new && tar -C run.new -xf - && mv run.new run"#;

/// Runs `weigh` in the directory `$1` of a fleet with the arguments after it. The end of standard
/// input ends the run as Ctrl-C does: after its trial. The output of `weigh` goes to standard
/// output. The file `ending` records that the run was told to end, because a second signal would
/// end it at once. The file `pid` stays if a signal killed `weigh`, for [`FLEET_END`] to clean up.
const FLEET_RUN: &str = r#"
umask 022; d=$1; shift; cd "$d" || exit 3; exec 3<&0;
"$d/weigh" "$@" </dev/null 3<&- 2>&1 & p=$!; echo "$$ $p" > "$d/pid";
(cat <&3 >/dev/null; [ -e "$d/ending" ] || { : > "$d/ending"; kill -s TERM "$p"; }) >/dev/null 2>&1 & c=$!; exec 3<&- </dev/null;
wait "$p"; s=$?; kill "$c" 2>/dev/null; [ "$s" -ge 128 ] || rm -f "$d/pid"; exit "$s"
"#;

/// Ends the run in the directory `$1` of a fleet after its trial, or after `$2` seconds at once;
/// `weigh clean` then undoes there what the run left behind. If that fails, the script ends, unless
/// `$3` is `collect`: what was measured is worth having, and the file `pid` stays for another attempt.
const FLEET_END: &str = r#"
d=$1; [ -e "$d" ] || exit 0; if [ ! -d "$d" ] || [ -L "$d" ] || [ ! -O "$d" ]; then echo "$d is not a directory of this account" >&2; exit 3; fi;
if [ -f "$d/pid" ]; then w=; p=; read w p < "$d/pid";
if [ -n "$p" ] && ours "$p"; then [ -e "$d/ending" ] || { : > "$d/ending"; send TERM "$p"; }; i=0; while ours "$p" && [ "$i" -lt "$2" ]; do sleep 1; i=$((i+1)); done;
send KILL "$p" "$w"; i=0; while ours "$p" && [ "$i" -lt 10 ]; do sleep 1; i=$((i+1)); done; fi;
if "$d/weigh" clean >&2; then rm -f "$d/pid"; elif [ "$3" != collect ]; then exit 4; fi; fi;
"#;

/// Precedes [`FLEET_END`] in a script that ends with [`FLEET_COLLECT`].
const FLEET_ABSENT: &str = r#"[ -e "$1" ] || { echo; exit 0; };"#;

/// Sends the run in the directory `$1` of a fleet as an archive, after [`FLEET_END`]; sends
/// [`NO_RUN`] if there is none, because a connection that ended early may look like success.
const FLEET_COLLECT: &str = r#"[ -d "$d/run" ] || { echo; exit 0; }; exec tar -C "$d/run" -cf - ."#;

/// What [`Script::FleetCollect`] sends if there is no run: a line end. An archive begins with the
/// name of a file.
pub(crate) const NO_RUN: u8 = b'\n';

/// After [`FLEET_END`], waits up to `$4` seconds until the run in the directory has been collected
/// and removed.
const FLEET_LINGER: &str = r#"i=0; while [ -e "$d" ] && [ "$i" -lt "$4" ]; do sleep 1; i=$((i+1)); done"#;

/// Removes the directory `$1` of a fleet, if it is this account's own. If that is interrupted, no half
/// of its run is left to be collected.
const FLEET_REMOVE: &str = r#"
[ -e "$1" ] || exit 0; if [ ! -d "$1" ] || [ -L "$1" ] || [ ! -O "$1" ]; then echo "$1 is not a directory of this account" >&2; exit 3; fi; [ ! -e "$1/run" ] || mv "$1/run" "$1/removed"; rm -rf "$1"
"#;

/// A script with its arguments as the command of an `ssh`, or of a container.
pub(crate) enum Script<'a> {
    /// [`KEEP`] for a directory.
    Keep(&'a str),
    /// [`ASK`].
    Ask,
    /// [`TAKE`] to a path.
    Take(&'a str),
    /// [`GUEST`] in a directory, with the guest's name, on that many CPUs.
    Guest(&'a str, &'a str, Option<usize>),
    /// Ends a guest in a directory and removes what is left of it.
    End(&'a str, &'a str),
    /// Ends all guests of a directory and removes it.
    EndAll(&'a str),
    /// [`RUN`] with its arguments.
    Run(&'a [String]),
    /// A program with its arguments.
    Exec(&'a [String]),
    /// [`FLEET_ASK`].
    FleetAsk,
    /// [`FLEET_EQUIP`] of a directory, with the length of its plan in bytes.
    FleetEquip(&'a str, usize),
    /// [`FLEET_SEND`] to a directory.
    FleetSend(&'a str),
    /// [`FLEET_RUN`] with its arguments, the first of which is the directory.
    FleetRun(&'a [String]),
    /// [`FLEET_END`] of a directory, with a limit in seconds.
    FleetEnd(&'a str, u64),
    /// [`FLEET_COLLECT`] from a directory; its run is ended first, with a limit in seconds.
    FleetCollect(&'a str, u64),
    /// [`FLEET_END`] of a directory with a limit in seconds, then [`FLEET_LINGER`] with another.
    FleetLeave(&'a str, u64, u64),
    /// [`FLEET_REMOVE`] of a directory.
    FleetRemove(&'a str),
}

impl Script<'_> {
    /// Returns the script as one line for the login shell.
    pub(crate) fn line(&self) -> String {
        let words: Vec<String> = self.words()[2..].iter().map(|word| quote(word)).collect();
        format!("exec sh -c {}", words.join(" "))
    }

    /// Returns the script as a program and its arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let with_functions = |text: &str| format!("{TREE}{}{text}", FUNCTIONS.replace("LOOKS", LOOKS));
        let (text, arguments) = match *self {
            Self::Keep(directory) => (with_functions(KEEP), vec![directory.into()]),
            Self::Ask => (ASK.into(), Vec::new()),
            Self::Take(path) => (TAKE.into(), vec![path.into()]),
            Self::Guest(directory, name, cpus) => {
                let cpus = cpus.map(|count| count.to_string()).unwrap_or_default();
                (GUEST.into(), vec![directory.into(), name.into(), cpus])
            }
            Self::End(directory, name) => {
                (with_functions(r#"d=$1; cd / && end "$d/$2""#), vec![directory.into(), name.into()])
            }
            Self::EndAll(directory) => (with_functions("d=$1; cd / && end_all"), vec![directory.into()]),
            Self::Run(arguments) => (format!("{TREE}{RUN}"), arguments.to_vec()),
            Self::Exec(arguments) => (r#"exec "$@""#.into(), arguments.to_vec()),
            Self::FleetAsk => (FLEET_ASK.into(), Vec::new()),
            Self::FleetEquip(directory, length) => {
                (FLEET_EQUIP.into(), vec![directory.into(), length.to_string()])
            }
            Self::FleetSend(directory) => (FLEET_SEND.into(), vec![directory.into()]),
            Self::FleetRun(arguments) => (FLEET_RUN.into(), arguments.to_vec()),
            Self::FleetEnd(directory, seconds) => {
                (with_functions(FLEET_END), vec![directory.into(), seconds.to_string()])
            }
            Self::FleetCollect(directory, seconds) => {
                let text = format!("{FLEET_ABSENT}{FLEET_END}{FLEET_COLLECT}");
                (with_functions(&text), vec![directory.into(), seconds.to_string(), "collect".into()])
            }
            Self::FleetLeave(directory, seconds, linger) => {
                let text = format!("{FLEET_END}{FLEET_LINGER}");
                let limits = [seconds.to_string(), "collect".into(), linger.to_string()];
                (with_functions(&text), std::iter::once(directory.to_string()).chain(limits).collect())
            }
            Self::FleetRemove(directory) => (FLEET_REMOVE.into(), vec![directory.into()]),
        };
        let text = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        // The word after the script is its `$0`.
        let words = ["sh", "-c", text.as_str(), "weighbridge"].map(String::from);
        words.into_iter().chain(arguments).collect()
    }
}

/// A word in single quotes.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::time::Duration;
    use weigh_host::command::{Invocation, Running};
    use weigh_protocol::COMMAND_PATH;

    /// Runs a script as a login shell would.
    fn shell(script: &Script<'_>) -> Invocation {
        Invocation::new("sh").args(["-c", &script.line()])
    }

    fn said(running: &mut Running, text: &str) {
        let mut output = std::fs::File::from(running.take_output().unwrap());
        let mut line = vec![0; text.len()];
        output.read_exact(&mut line).unwrap();
        assert_eq!(String::from_utf8(line).unwrap(), text);
    }

    /// A directory for a run, with a name that scripts must quote correctly.
    fn place(base: &tempfile::TempDir) -> String {
        base.path().join("it's a $place; with \"words\"").to_str().unwrap().into()
    }

    #[test]
    fn a_directory_is_kept_until_the_keepers_input_closes() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        let mut keeper = shell(&Script::Keep(&directory)).spawn().unwrap();
        let input: OwnedFd = keeper.take_input().unwrap();
        said(&mut keeper, "kept\n");
        assert!(std::path::Path::new(&directory).join("pid").exists());
        drop(input);
        assert!(keeper.wait(Duration::from_secs(10)).unwrap().unwrap().success());
        assert!(!std::path::Path::new(&directory).exists());
    }

    #[test]
    fn processes_and_files_of_a_dead_keeper_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        let mut keeper = shell(&Script::Keep(&directory)).spawn().unwrap();
        let _input = keeper.take_input().unwrap();
        said(&mut keeper, "kept\n");
        // A program that reads nothing takes the probe's place.
        let probe = format!("{directory}/probe");
        std::fs::write(&probe, "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n").unwrap();
        std::fs::set_permissions(&probe, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let mut guest = shell(&Script::Guest(&directory, "guest-1", None)).spawn().unwrap();
        let pid = format!("{directory}/guest-1/pid");
        assert!((0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))
        }));
        let numbers = std::fs::read_to_string(&pid).unwrap();
        shell(&Script::EndAll(&directory)).run_ok().unwrap();
        assert!(!std::path::Path::new(&directory).exists());
        assert!(guest.wait(Duration::from_secs(5)).unwrap().is_some());
        assert!(keeper.wait(Duration::from_secs(5)).unwrap().is_some());
        for number in numbers.split_whitespace() {
            let line = std::fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default();
            assert!(!line.contains("weighbridge") && !line.contains("probe"), "{number} lives: {line}");
        }
        shell(&Script::EndAll(&directory)).run_ok().unwrap();
    }

    #[test]
    fn processes_of_a_slow_shell_end_with_it() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        std::fs::create_dir(&directory).unwrap();
        let words = [&directory, "guest-1", "#", "/", "sleep", COMMAND_PATH, "sleep", "1003"];
        let mut run = shell(&Script::Run(&words.map(String::from))).spawn().unwrap();
        let _input = run.take_input().unwrap();
        said(&mut run, "# started\n");
        let pid = format!("{directory}/guest-1/pid");
        let written = || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
        assert!((0..100).any(|_| written() || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }));
        let children = format!("/proc/{0}/task/{0}/children", run.pid());
        let sleeps = |child: &str| {
            let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            line == b"sleep\x001003\0"
        };
        // The child is a copy of the shell until it executes the command.
        let asleep = (0..100).find_map(|_| {
            let now = std::fs::read_to_string(&children).unwrap();
            let found = now.split_whitespace().find(|child| sleeps(child)).map(String::from);
            if found.is_none() {
                std::thread::sleep(Duration::from_millis(50));
            }
            found
        });
        let asleep = asleep.unwrap();
        // The stopped shell reads nothing while the other side waits.
        let shell_pid = rustix::process::Pid::from_raw(run.pid().cast_signed()).unwrap();
        rustix::process::kill_process(shell_pid, rustix::process::Signal::STOP).unwrap();
        shell(&Script::EndAll(&directory)).run_ok().unwrap();
        assert!(!std::path::Path::new(&directory).exists());
        assert!(run.wait(Duration::from_secs(5)).unwrap().is_some());
        let is_gone = || !sleeps(&asleep);
        assert!((0..100).any(|_| is_gone() || {
            std::thread::sleep(Duration::from_millis(50));
            false
        }));
    }

    /// What a pod does before it is deleted.
    #[test]
    fn a_run_that_has_to_leave_is_ended_and_waits_to_be_collected() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        std::fs::create_dir(&directory).unwrap();
        let (weigh, pid) = (format!("{directory}/weigh"), format!("{directory}/pid"));
        std::fs::write(&weigh, "#!/bin/sh\n[ \"$1\" = clean ]\n").unwrap();
        std::fs::set_permissions(&weigh, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let run = Invocation::new("sh").args(["-c", "while :; do sleep 0.1; done", "run", &directory]);
        let mut run = run.spawn().unwrap();
        std::fs::write(&pid, format!("{0} {0}\n", run.pid())).unwrap();
        let words = Script::FleetLeave(&directory, 5, 60).words();
        let mut leave = Invocation::new(&words[0]).args(&words[1..]).spawn().unwrap();
        assert!(run.wait(Duration::from_secs(20)).unwrap().is_some(), "it was told to end");
        // The file goes once `weigh clean` has succeeded.
        assert!((0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            !std::path::Path::new(&pid).exists()
        }));
        assert!(leave.try_wait().unwrap().is_none(), "nobody has collected the run");
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(leave.wait(Duration::from_secs(20)).unwrap().unwrap().success());
    }

    #[test]
    fn a_reused_process_number_is_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        std::fs::create_dir_all(format!("{directory}/guest-1")).unwrap();
        let mut other = Invocation::new("sleep").arg("60").spawn().unwrap();
        let number = other.pid();
        std::fs::write(format!("{directory}/guest-1/pid"), format!("{number} {number}\n")).unwrap();
        shell(&Script::EndAll(&directory)).run_ok().unwrap();
        assert!(!std::path::Path::new(&directory).exists());
        assert!(other.try_wait().unwrap().is_none());
    }

    #[test]
    fn directories_of_others_are_left_alone() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        let other = base.path().join("other");
        std::fs::create_dir_all(other.join("guest-1")).unwrap();
        std::os::unix::fs::symlink(&other, &directory).unwrap();
        shell(&Script::EndAll(&directory)).run_ok().unwrap();
        assert!(std::fs::symlink_metadata(&directory).is_err() && other.join("guest-1").exists());
        if weigh_host::facts::is_root() {
            std::os::unix::fs::chown(&other, Some(65534), Some(65534)).unwrap();
            let ended = shell(&Script::EndAll(other.to_str().unwrap())).run_ok();
            assert!(ended.is_err() && other.join("guest-1").exists(), "{ended:?}");
        }
    }

    #[test]
    fn weigh_cleans_up_after_a_killed_run_of_a_fleet() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        std::fs::create_dir(&directory).unwrap();
        let weigh = format!("{directory}/weigh");
        let program =
            "#!/bin/sh\ncase $1 in clean) : > \"$0.cleaned\";; killed) kill -9 $$;; *) exit 4;; esac\n";
        std::fs::write(&weigh, program).unwrap();
        std::fs::set_permissions(&weigh, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        for (ending, is_cleaned) in [("failed", false), ("killed", true)] {
            let arguments = [directory.clone(), ending.into()];
            let mut run = shell(&Script::FleetRun(&arguments)).spawn().unwrap();
            let _input = run.take_input().unwrap();
            assert!(!run.wait(Duration::from_secs(10)).unwrap().unwrap().success());
            shell(&Script::FleetEnd(&directory, 1)).run_ok().unwrap();
            let cleaned = format!("{weigh}.cleaned");
            assert_eq!(std::path::Path::new(&cleaned).exists(), is_cleaned, "{ending}");
            assert!(!std::path::Path::new(&format!("{directory}/pid")).exists(), "{ending}");
        }
        // What was measured comes back although the machine cannot be cleaned yet.
        std::fs::write(&weigh, "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::write(format!("{directory}/pid"), "0 0\n").unwrap();
        std::fs::create_dir(format!("{directory}/run")).unwrap();
        assert!(shell(&Script::FleetEnd(&directory, 1)).run_ok().is_err());
        assert!(!shell(&Script::FleetCollect(&directory, 1)).run_ok().unwrap().output.is_empty());
        assert!(std::path::Path::new(&format!("{directory}/pid")).exists(), "for another attempt");
    }

    #[test]
    fn a_run_that_is_not_there_is_reported() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        let collected = || shell(&Script::FleetCollect(&directory, 1)).run_ok().unwrap().output;
        assert_eq!(collected(), [NO_RUN], "there is no directory");
        std::fs::create_dir(&directory).unwrap();
        assert_eq!(collected(), [NO_RUN], "the directory has no run");
        std::fs::create_dir(format!("{directory}/run")).unwrap();
        assert_eq!(collected()[0], b'.', "an archive");
    }

    #[test]
    fn no_half_of_a_removed_run_is_collected() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        std::fs::create_dir_all(format!("{directory}/run")).unwrap();
        // A program that removes nothing takes the place of rm.
        let programs = base.path().join("programs");
        std::fs::create_dir(&programs).unwrap();
        std::fs::write(programs.join("rm"), "#!/bin/sh\n").unwrap();
        let rm = programs.join("rm");
        std::fs::set_permissions(rm, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let path = format!("{}:/usr/bin:/bin", programs.display());
        shell(&Script::FleetRemove(&directory)).env("PATH", path).run_ok().unwrap();
        assert!(std::path::Path::new(&directory).exists());
        assert_eq!(shell(&Script::FleetCollect(&directory, 1)).run_ok().unwrap().output, [NO_RUN]);
        shell(&Script::FleetRemove(&directory)).run_ok().unwrap();
        assert!(!std::path::Path::new(&directory).exists());
    }

    #[test]
    fn a_program_that_does_not_run_is_quoted() {
        let base = tempfile::tempdir().unwrap();
        let directory = place(&base);
        let plan = "{\"name\": \"œ\"}\n";
        for (program, words) in [
            ("#!/bin/sh\necho weigh 1\n", "weigh 1"),
            ("#!/bin/sh\necho no library >&2\nexit 1\n", "no library"),
            ("#!/no/such/loader\n", "/weigh"),
        ] {
            // A pipe gives a reader what is there, however little that is.
            let mut equip = shell(&Script::FleetEquip(&directory, plan.len())).spawn().unwrap();
            let mut input = std::fs::File::from(equip.take_input().unwrap());
            for part in [&plan[..3], &plan[3..], program] {
                input.write_all(part.as_bytes()).unwrap();
            }
            drop(input);
            let mut said = String::new();
            std::fs::File::from(equip.take_output().unwrap()).read_to_string(&mut said).unwrap();
            assert!(equip.wait(Duration::from_secs(10)).unwrap().unwrap().success(), "{said}");
            assert!(said.contains(words), "`{words}` is not in `{said}`");
            assert_eq!(std::fs::read_to_string(format!("{directory}/plan.json")).unwrap(), plan);
            assert_eq!(std::fs::read_to_string(format!("{directory}/weigh")).unwrap(), program);
            // Whose directory this is, nobody knows.
            assert!(shell(&Script::FleetEquip(&directory, 0)).input("").run_ok().is_err());
            std::fs::remove_dir_all(&directory).unwrap();
        }
        assert!(shell(&Script::FleetEquip("/no/such/directory", 0)).input("").run_ok().is_err());
    }

    #[test]
    fn every_login_shell_gets_one_line() {
        let run = ["/d".to_string(), "it's".into()];
        for script in [
            Script::Keep("/d"),
            Script::Ask,
            Script::Take("/d/p"),
            Script::Guest("/d", "g", Some(2)),
            Script::End("/d", "g"),
            Script::EndAll("/d"),
            Script::Run(&run),
            Script::FleetAsk,
            Script::FleetEquip("/d", 7),
            Script::FleetSend("/d"),
            Script::FleetRun(&run),
            Script::FleetEnd("/d", 30),
            Script::FleetCollect("/d", 30),
            Script::FleetRemove("/d"),
        ] {
            let line = script.line();
            assert!(!line.contains('\n') && line.starts_with("exec sh -c '"), "{line}");
            let checked = Invocation::new("sh").args(["-n", "-c", &line]).run_ok();
            checked.unwrap();
        }
    }
}

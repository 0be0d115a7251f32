//! Tests of starting programs.

use super::*;
use std::os::unix::process::ExitStatusExt;

fn shell(script: &str) -> Invocation {
    Invocation::new("sh").arg("-c").arg(script)
}

fn alive(pid: u32) -> bool {
    crate::process::start_ticks(pid).is_some_and(|start| crate::process::is_alive(pid, start))
}

#[test]
fn output_error_status_and_input_are_kept() {
    let done = shell("cat; echo oops >&2; exit 3").input("hello").run().unwrap();
    assert_eq!((done.output.as_slice(), done.error.as_slice()), (&b"hello"[..], &b"oops\n"[..]));
    assert_eq!(done.status.code(), Some(3));
    let done = shell("kill -TERM $$").run().unwrap();
    assert_eq!(done.status.signal(), Some(15));
    let done = shell("echo $A; pwd").env("A", "b").current_dir("/").run().unwrap();
    assert_eq!(done.output, b"b\n/\n");
}

#[test]
fn run_ok_reports_the_command_its_status_and_its_output() {
    let error = shell("echo broken pipes >&2; exit 1").run_ok().unwrap_err().to_string();
    assert!(
        error.contains("broken pipes") && error.contains("sh -c") && error.contains("exit status: 1"),
        "{error}"
    );
    let error = Invocation::new("no-such-program-here").run().unwrap_err();
    assert!(matches!(error, CommandError::NotFound { .. }), "{error}");
    let error = shell("true").current_dir("/no/such/place").run().unwrap_err();
    assert!(matches!(error, CommandError::Start { .. }), "{error}");
}

#[test]
fn a_deadline_kills_the_whole_group() {
    let result =
        shell("trap '' TERM; sleep 60 & echo $! >&2; wait").deadline(Duration::from_millis(300)).run();
    let Err(CommandError::Deadline { error, after, .. }) = result else { panic!("{result:?}") };
    assert_eq!(after, Duration::from_millis(300));
    let sleeper: u32 = error.trim().parse().unwrap();
    assert!(crate::wait::until(Duration::from_secs(2), || !alive(sleeper)), "the grandchild lives on");
    // This is not a test of its own because the factor applies to the whole process.
    crate::deadlines::set("2x").unwrap();
    let result = shell("sleep 60").deadline(Duration::from_millis(50)).run();
    crate::deadlines::set("1x").unwrap();
    let Err(CommandError::Deadline { after, .. }) = result else { panic!("{result:?}") };
    assert_eq!(after, Duration::from_millis(100));
}

#[test]
fn a_grandchild_that_holds_the_output_does_not_hold_us() {
    let done = shell("sleep 30 & echo $!").run().unwrap();
    let sleeper: u32 = String::from_utf8(done.output).unwrap().trim().parse().unwrap();
    assert!(alive(sleeper), "a program may leave a daemon behind");
    crate::process::kill(crate::process::handle(sleeper).unwrap().unwrap()).unwrap();
}

#[test]
fn a_spawned_program_has_pipes_and_dies_with_its_handle() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("logs/x.log");
    let mut running =
        shell("echo noise >&2; read word; echo got $word; sleep 60").log_to(&path).spawn().unwrap();
    let pid = running.pid();
    let mut input = File::from(running.take_input().unwrap());
    let mut output = File::from(running.take_output().unwrap());
    assert!(running.take_output().is_none());
    input.write_all(b"it\n").unwrap();
    let mut answer = [0; 7];
    output.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"got it\n");
    assert!(running.try_wait().unwrap().is_none());
    assert!(running.wait(Duration::from_millis(20)).unwrap().is_none());
    running.kill_group();
    assert_eq!(running.wait(Duration::from_secs(5)).unwrap().unwrap().signal(), Some(9));
    assert_eq!(running.try_wait().unwrap().unwrap().signal(), Some(9));
    drop(running);
    assert!(!alive(pid));
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(log.starts_with("$ sh -c 'echo noise") && log.ends_with("noise\n"), "{log}");
}

#[test]
fn the_log_holds_the_command_line_and_how_it_ended() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("x.log");
    shell("printf out; echo 'e r' >&2; exit 7").log_to(&path).run().unwrap();
    let log = std::fs::read_to_string(&path).unwrap();
    assert!(log.contains("out\ne r\n# exit status: 7 after 0."), "{log}");
    shell("sleep 9").log_to(&path).deadline(Duration::from_millis(50)).run().unwrap_err();
    assert!(std::fs::read_to_string(&path).unwrap().contains("# killed at its deadline"));
}

#[test]
fn a_program_that_writes_without_end_is_killed() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("x.log");
    let started = Instant::now();
    for script in ["yes", "yes >&2", "yes & sleep 60"] {
        let result = shell(script).log_to(&path).deadline(Duration::from_secs(60)).run();
        let Err(error) = result else { panic!("{script} ended") };
        assert!(matches!(error, CommandError::Output { .. }), "{error}");
        assert!(error.to_string().contains("wrote more than 64 MiB"), "{error}");
    }
    assert!(started.elapsed() < Duration::from_secs(40));
    assert!(path.metadata().unwrap().len() < 4 << 20, "the log has the end of it");
}

#[test]
fn a_program_that_runs_fills_no_disk_by_its_log() {
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("x.log");
    let mut running = shell("yes >&2").log_to(&path).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert!(running.try_wait().unwrap().is_none(), "it goes on");
    drop(running);
    let length = path.metadata().unwrap().len();
    assert!(length <= crate::log::LONGEST_BYTES, "{length}");
    assert!(length > 1 << 20, "{length}");
}

#[test]
fn programs_are_found_and_words_quoted() {
    assert!(find_program("sh").unwrap().is_absolute());
    assert_eq!(find_program("no-such-program-here"), None);
    assert_eq!(find_program("/bin/sh"), Some(PathBuf::from("/bin/sh")));
    assert_eq!(find_program("/etc/passwd"), None);
    assert_eq!(
        Invocation::new("a").args(["b c", "", "d'e", "f=1"]).command_line(),
        r"a 'b c' '' 'd'\''e' f=1"
    );
}

#[test]
fn a_descriptor_that_is_passed_is_open_under_its_number() {
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let there = OwnedFd::from(there);
    let script = format!("echo heard >&{}", there.as_raw_fd());
    shell(&script).pass(there).run_ok().unwrap();
    let mut said = String::new();
    // The pipe ends, because nobody here holds its other end any more.
    let mut here = here;
    here.read_to_string(&mut said).unwrap();
    assert_eq!(said, "heard\n");
}

/// The child process of the test below. It starts a tool that changes something, and is killed
/// meanwhile.
#[test]
fn child_with_a_slow_tool() {
    let Ok(directory) = std::env::var("WEIGH_TEST_TOOL") else { return };
    let script = format!(
        "echo $$ > {directory}/pid; mv {directory}/pid {directory}/begun; sleep 60; touch {directory}/changed"
    );
    let _ = Invocation::new("sh").args(["-c", &script]).dies_with_caller().run();
}

#[test]
fn a_tool_changes_nothing_after_its_caller_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let test = "command::tests::child_with_a_slow_tool";
    let mut caller = Invocation::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .env("WEIGH_TEST_TOOL", directory.path())
        .log_to(&directory.path().join("log"))
        .spawn()
        .unwrap();
    assert!(crate::wait::until(Duration::from_secs(20), || directory.path().join("begun").exists()));
    // Kills only the caller, as `kill -9` would: the tool leads its own process group.
    let handle = crate::process::handle(caller.pid()).unwrap().unwrap();
    crate::process::kill(&handle).unwrap();
    assert!(caller.wait(Duration::from_secs(10)).unwrap().is_some());
    let tool = std::fs::read_to_string(directory.path().join("begun")).unwrap().trim().parse().unwrap();
    assert!(crate::wait::until(Duration::from_secs(10), || !alive(tool)), "the tool outlived its caller");
    assert!(!directory.path().join("changed").exists());
    drop(caller);
    // If nobody is killed, the tool does its work.
    let script = format!("touch {}/changed", directory.path().display());
    Invocation::new("sh").args(["-c", &script]).dies_with_caller().run_ok().unwrap();
    assert!(directory.path().join("changed").exists());
}

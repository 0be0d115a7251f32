//! What the tests of one run share although each is a process of its own: turns on the host, and
//! answers that do not change while tests run.

use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// Waits until no other test that has a turn runs on this machine, in any checkout. Dropping the file
/// ends the turn.
pub fn exclusive_turn() -> File {
    let file = turn();
    file.lock().unwrap();
    file
}

/// Waits until no test has an exclusive turn. Tests with shared turns run side by side.
pub fn shared_turn() -> File {
    let file = turn();
    file.lock_shared().unwrap();
    file
}

fn turn() -> File {
    let path = std::env::temp_dir().join("weigh-test-turn");
    // Whoever was first made it, perhaps another user.
    let file = File::open(&path).or_else(|_| {
        File::options().create(true).append(true).open(&path)?;
        File::open(&path)
    });
    file.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The nextest run that this test belongs to.
pub fn run() -> Option<String> {
    std::env::var("NEXTEST_RUN_ID").ok()
}

/// An answer that all tests of one nextest run need: the first asks, the others read its answer in
/// `directory`. Without nextest every process asks.
pub fn once_per_run(directory: &str, name: &str, ask: impl FnOnce() -> Value) -> Value {
    let Some(run) = run() else { return ask() };
    let path = Path::new(directory).join(format!("{name}.once.json"));
    let known = std::fs::read(&path).unwrap_or_default();
    let mut known: Value = serde_json::from_slice(&known).unwrap_or_default();
    if known["run"] == run.as_str() {
        return known["answer"].take();
    }
    let answer = ask();
    // Another test may read it meanwhile.
    let whole = path.with_extension(std::process::id().to_string());
    match std::fs::write(&whole, serde_json::json!({"run": run, "answer": answer}).to_string()) {
        // A test that gave up root may not write there: it keeps its answer.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
        written => written.and_then(|()| std::fs::rename(whole, path)).unwrap(),
    }
    answer
}

//! Why a machine ended, in words.

use super::qmp::Event;
use serde_json::Value;

/// The kernel's first words when it panics (kernel/panic.c).
const PANIC: &str = "Kernel panic - not syncing: ";

/// Describes the end from the kernel's console output and QEMU's events; `None` if they say
/// nothing.
pub(super) fn describe(console: &str, events: &[Event]) -> Option<String> {
    let mut told: Vec<String> = Vec::new();
    let panic = console.lines().find_map(|line| Some(line.split_once(PANIC)?.1.trim().to_string()));
    let mut add = |words: String| {
        if !told.contains(&words) {
            told.push(words);
        }
    };
    match panic {
        Some(why) => add(format!("its kernel panicked: {why}")),
        None if named(events, "GUEST_PANICKED").next().is_some() => add("its kernel panicked".into()),
        None => {}
    }
    for event in named(events, "BLOCK_IO_ERROR") {
        let disk = text(event, "node-name")
            .map_or_else(|| "one of its disks".into(), |name| format!("its disk {name}"));
        let failed = text(event, "operation")
            .map_or_else(|| "failed".into(), |operation| format!("failed to {operation}"));
        add(match text(event, "reason") {
            Some(why) => format!("{disk} {failed}: {why}"),
            None => format!("{disk} {failed}, and QEMU does not say how"),
        });
    }
    if let Some(event) = named(events, "SHUTDOWN").next() {
        add(match text(event, "reason") {
            Some("guest-shutdown") => "it powered itself off".into(),
            Some("guest-reset") => "it reset itself".into(),
            Some("guest-panic") => "it was ended because its kernel panicked".into(),
            Some("host-signal") => "a signal ended its QEMU".into(),
            Some(other) => format!("it ended by {}", other.replace('-', " ")),
            None => "it ended".into(),
        });
    }
    (!told.is_empty()).then(|| told.join("; "))
}

fn named<'a>(events: &'a [Event], name: &'a str) -> impl Iterator<Item = &'a Event> {
    events.iter().filter(move |event| event.name == name)
}

fn text<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    event.data.get(key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(name: &str, data: Value) -> Event {
        Event { name: name.into(), data, seen_ns: 0 }
    }

    #[test]
    fn a_panic_is_recognised_by_its_message() {
        // Linux 6.1 under QEMU 7.2, `panic=-1 reboot=t`.
        let console = "[    1.0] Run /.weighbridge/probe as init process\n\
                       [    1.1] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b\n\
                       [    1.1] CPU: 0 PID: 1 Comm: probe\n";
        let reset = event("SHUTDOWN", json!({"guest": true, "reason": "guest-reset"}));
        assert_eq!(
            describe(console, std::slice::from_ref(&reset)).unwrap(),
            "its kernel panicked: Attempted to kill init! exitcode=0x0000000b; it reset itself"
        );
        assert_eq!(describe("", &[reset]).unwrap(), "it reset itself");
        let panicked = event("GUEST_PANICKED", json!({"action": "shutdown"}));
        assert_eq!(describe("", &[panicked]).unwrap(), "its kernel panicked");
    }

    #[test]
    fn a_failing_disk_is_reported_once() {
        let error = event(
            "BLOCK_IO_ERROR",
            json!({"node-name": "disk", "operation": "write", "reason": "No space left on device"}),
        );
        assert_eq!(
            describe("", &[error.clone(), error]).unwrap(),
            "its disk disk failed to write: No space left on device"
        );
        let bare = event("BLOCK_IO_ERROR", json!({}));
        assert_eq!(describe("", &[bare]).unwrap(), "one of its disks failed, and QEMU does not say how");
    }

    #[test]
    fn without_a_known_cause_nothing_is_reported() {
        assert_eq!(describe("booting\n", &[event("RESUME", Value::Null)]), None);
        let signal = event("SHUTDOWN", json!({"guest": false, "reason": "host-signal"}));
        assert_eq!(describe("", &[signal]).unwrap(), "a signal ended its QEMU");
    }
}

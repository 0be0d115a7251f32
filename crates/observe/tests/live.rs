//! The sensors against what this host really does.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests start their own load")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weigh_host::accounts::Accounts;
use weigh_model::Observed;
use weigh_observe::{Observer, Sensors};

/// A loop that never ends, on one CPU.
struct Load(Child);

impl Load {
    fn on(cpu: u32) -> Self {
        let child = Command::new("taskset")
            .args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn window(accounts: &Accounts, cpus: &[u32], length: Duration) -> Observed {
    let mut observer = Observer::new();
    let instance = observer.attach(accounts, cpus);
    observer.begin(instance);
    std::thread::sleep(length);
    let observed = observer.end(instance);
    observer.detach(instance);
    observed
}

fn last_cpu() -> u32 {
    *weigh_host::facts::allowed_cpus().last().unwrap()
}

/// What is charged to a guest is not foreign; the same loop without an owner is.
#[test]
fn a_loop_is_foreign_unless_it_is_the_guests() {
    let cpu = last_cpu();
    let load = Load::on(cpu);
    std::thread::sleep(Duration::from_millis(100));
    let length = Duration::from_secs(1);
    let strange = window(&Accounts::default(), &[cpu], length);
    let own = window(&Accounts::of_processes(vec![load.0.id()]), &[cpu], length);
    // What it got of the CPU while other tests run too.
    let got = own.charge.guest_ns;
    assert!(got > 100_000_000, "{got}");
    assert!(strange.foreign.ns + strange.foreign.uncertainty_ns > got / 2, "{strange:?}");
    assert!(strange.foreign.ns >= own.foreign.ns, "{own:?}");
    assert_eq!(own.cpus, [cpu]);
    assert!(own.window_ns >= 1_000_000_000 && own.sensors_ns > 0 && own.context_switches > 0);
}

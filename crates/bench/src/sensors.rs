//! The sensors' cost: weighbridge's CPU time for beginning and ending a window, as a share of the
//! window.

use crate::guests::{request, with_host};
use crate::{Line, Outcome, median};
use std::sync::Arc;
use std::time::Duration;
use weigh_images::Root;
use weigh_observe::{Observer, Sensors};
use weigh_platforms::{Host, find};

const WINDOWS: usize = 100;
/// Pause between begin and end, so that caches are as cold as in a real window.
const NAP: Duration = Duration::from_millis(20);
/// Lengths of the windows that the cost is compared with, seconds.
const LENGTHS_S: [f64; 3] = [0.2, 1.0, 5.0];
/// The budget: a thousandth of one CPU while measuring.
const GOAL: f64 = 0.001;

pub fn measure() -> Outcome {
    with_host("bench-sensors", &weigh_model::ImageSpec::Host, windows)
}

fn windows(host: &Host, root: &Arc<Root>) -> Outcome {
    let name = "namespaces";
    let platform = find(name).ok_or_else(|| format!("no platform {name}"))?;
    let request = request(root, name, 0)?;
    platform.prepare(host, &request)?;
    let mut guest = platform.launch(host, &request)?;
    let mut observer = Observer::new();
    let instance = observer.attach(&guest.accounts(), &[]);
    let (mut costs, mut charged) = (Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        observer.begin(instance);
        std::thread::sleep(NAP);
        let seen = observer.end(instance);
        costs.push(seen.sensors_ns as f64 / 1e9);
        charged.push(seen.charge.weigh_ns as f64 / 1e9);
    }
    observer.detach(instance);
    guest.stop()?;
    let cost = median(&mut costs);
    let within = median(&mut charged);
    let line = |length: f64| Line {
        what: format!("window of {length} s"),
        value: format!("{:.4} % of one CPU", cost / length * 100.0),
        goal: "<= 0.1 %",
        met: cost / length <= GOAL,
    };
    let pair = Line {
        what: "begin and end together".into(),
        value: format!(
            "{:.0} us of CPU time (median of {WINDOWS}), {:.0} us of it inside of the window",
            cost * 1e6,
            within * 1e6
        ),
        goal: "<= 200 us",
        met: cost <= LENGTHS_S[0] * GOAL,
    };
    Ok(std::iter::once(pair).chain(LENGTHS_S.map(line)).collect())
}

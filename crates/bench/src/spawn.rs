//! Time from the call to the probe's first answer: raw namespaces against runc with the same root.

use crate::guests::{launch, request, with_host};
use crate::{Line, Outcome, median, ratio};
use std::sync::Arc;
use weigh_images::Root;
use weigh_model::ImageSpec;
use weigh_platforms::Host;

const PAIRS: u64 = 30;

pub fn measure() -> Outcome {
    if !weigh_host::facts::is_root() {
        return Err("runc needs root".into());
    }
    weigh_host::command::find_program("runc").ok_or("runc is not installed (apt-get install runc)")?;
    with_host("bench", &ImageSpec::Host, compare)
}

fn compare(host: &Host, root: &Arc<Root>) -> Outcome {
    let (mut ours, mut runc) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        for i in 0..2 {
            let is_ours = (pair + i) % 2 == 0;
            let name = if is_ours { "namespaces" } else { "runc" };
            let time = launch(host, &request(root, name, pair * 2 + i)?)?;
            if is_ours { ours.push(time) } else { runc.push(time) }
        }
    }
    let (value, text) = ratio(&ours, &runc)?;
    let what = format!(
        "namespaces {:.1} ms, runc {:.1} ms (medians)",
        median(&mut ours) * 1e3,
        median(&mut runc) * 1e3
    );
    Ok(vec![Line { what, value: text, goal: "<= 0.333", met: value <= 1.0 / 3.0 }])
}

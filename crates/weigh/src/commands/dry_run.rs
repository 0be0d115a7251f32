//! What `--dry-run` prints: the plan, the order of the first blocks, the host changes.

use crate::placement::{cpu_words, loader_cpus};
use crate::ui;
use std::sync::Arc;
use weigh_images::Root;
use weigh_model::{
    Effort, EnvironmentPlan, GateLimits, HostFacts, ImageSpec, Load, LoadLoop, Neighbours, Plan, ServerPlan,
    Shares, Started, WorkloadPlan, format_bytes, number_of,
};
use weigh_platforms::loader::RemoteMachine;
use weigh_platforms::{self as platforms, GuestRequest};
use weigh_runner::order;

/// The number of blocks whose order is printed.
const SHOWN_BLOCKS: u32 = 3;

/// The plan in lines for people.
pub fn describe(plan: &Plan, facts: &HostFacts) -> String {
    let mut lines =
        vec![format!("plan: {} (seed {})", plan.name, plan.seed), format!("baseline: {}", plan.baseline)];
    lines.extend(plan.environments.iter().map(|environment| format!("environment: {}", environment.name)));
    lines.extend(plan.workloads.iter().flat_map(|workload| describe_workload(plan, workload, facts)));
    if plan.surface {
        lines.push(
            "system calls: counted before the first block, in one more run of each workload in each environment, by perf events that slow \
             every system call of this host meanwhile"
                .into(),
        );
    }
    lines.push(format!("blocks: {}", blocks(plan)));
    lines.extend(plan.gate.as_ref().map(limits));
    lines.push(expected_time(plan));
    lines.extend(order(plan));
    lines.extend(all_host_changes(plan));
    lines.join("\n")
}

fn describe_workload(plan: &Plan, workload: &WorkloadPlan, facts: &HostFacts) -> Vec<String> {
    if let Some(start) = &workload.start {
        return vec![format!(
            "start: {}: {}, caches {}",
            workload.id,
            describe_start(start.what),
            start.caches
        )];
    }
    let measured = match workload.trial_s {
        Some(trial_s) => {
            format!(
                "as many measured per block as fit {}, {} at least",
                ui::human(trial_s),
                workload.iterations
            )
        }
        None => format!("{} measured per block", workload.iterations),
    };
    let mut lines = vec![format!(
        "workload: {} [{}], {} warm-up, {measured}: {}",
        workload.id,
        workload.size,
        workload.warmup,
        if workload.commands.is_empty() {
            workload.command.join(" ")
        } else {
            "a command of each environment".into()
        }
    )];
    lines.extend(workload.commands.iter().map(|(name, argv)| format!("  {name}: {}", argv.join(" "))));
    lines.extend(workload.input.iter().map(|input| format!("  standard input: {input}")));
    lines.extend(workload.neighbours.iter().map(|neighbours| format!("  {}", beside(neighbours))));
    if let Some(server) = &workload.staging.server {
        lines.extend(describe_server(plan, server, facts));
    }
    lines
}

fn expected_time(plan: &Plan) -> String {
    let once = plan.workloads.iter().map(|workload| workload.expected_s).sum::<Option<f64>>();
    let Some(once) = once else { return "expected time: known after the first run of each command".into() };
    let of_block = |w: &WorkloadPlan| f64::from(w.warmup + w.iterations) * w.expected_s.unwrap_or(0.0);
    let environments = plan.environments.len() as f64;
    let (pilot, block) =
        (once * environments, plan.workloads.iter().map(of_block).sum::<f64>() * environments);
    let total = |blocks: u32| ui::human(pilot + block * f64::from(blocks));
    format!("expected time: {} to {}", total(plan.effort.fewest_blocks()), total(plan.effort.most_blocks()))
}

fn order(plan: &Plan) -> Vec<String> {
    let mut lines = vec!["order (block: environments launched, then workload: environments):".to_string()];
    for block in 0..plan.effort.most_blocks().min(SHOWN_BLOCKS) {
        let order = order::of_block(plan, block);
        for (workload, environments) in order.workloads.iter().zip(&order.environments) {
            let names: Vec<&str> =
                environments.iter().map(|index| plan.environments[*index].name.as_str()).collect();
            lines.push(format!("  {}: {}: {}", block + 1, plan.workloads[*workload].id, names.join(", ")));
        }
    }
    lines
}

fn all_host_changes(plan: &Plan) -> Vec<String> {
    let mut lines = vec![
        "host changes, each recorded first and undone at the end:".to_string(),
        "  a scratch directory with the guest programs below the state directory".into(),
    ];
    for (environment, instance) in plan.environments.iter().zip(0..) {
        let changes = host_changes(plan, environment, instance);
        lines.extend(changes.map(|change| format!("  {}: {change}", environment.name)));
    }
    let serves = plan.workloads.iter().any(|workload| workload.staging.server.is_some());
    match plan.loader.as_ref().map(RemoteMachine::of) {
        Some(Ok(machine)) => {
            lines.extend(machine.changes().iter().map(|change| format!("  load generator: {change}")));
        }
        _ if serves => lines.push(
            "  load generator: make the control group weighbridge-<run>/loader, start a process in it, one at a time".into(),
        ),
        _ => {}
    }
    lines
}

/// Describes the guests beside the measured one.
fn beside(neighbours: &Neighbours) -> String {
    let others = neighbours.guests.saturating_sub(1);
    let of = neighbours.environment.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
    let stay = if neighbours.stay { "started once and kept" } else { "started for each trial" };
    let load = match &neighbours.load {
        _ if others == 0 => return "alone".into(),
        Load::Idle => "which do nothing".into(),
        Load::Again { command, .. } => format!("each again and again: {}", command.join(" ")),
        Load::Serve { server, client, .. } => {
            format!("each serves: {}; loaded from outside by: {}", server.join(" "), client.join(" "))
        }
        Load::Same => "each runs it too, again and again".into(),
    };
    let shares = match neighbours.shares {
        Shares::Equal => String::new(),
        Shares::Weights => format!("; its weight is {} times a neighbour's", Shares::WEIGHT),
        Shares::Limits => format!("; no guest gets more than 1/{} of the CPUs", neighbours.guests),
    };
    format!("beside {}{of}, {stay}, {load}{shares}", number_of(others, "more guest"))
}

/// Describes where a server listens, and from where it is loaded.
fn describe_server(plan: &Plan, server: &ServerPlan, facts: &HostFacts) -> Vec<String> {
    let transport: Vec<&str> = server.transport.iter().map(|transport| transport.as_str()).collect();
    let guests = match plan.guest.cpus.as_slice() {
        [] => "all CPUs".into(),
        some => cpu_words(some),
    };
    let mut lines = vec![format!(
        "  serves in the guest, on {guests}, at {} ({}): {}",
        number_of(server.ports, "unused port"),
        transport.join(", "),
        server.command.join(" ")
    )];
    let ready =
        server.ready.as_ref().map_or("a TCP connection to the first port".into(), |words| words.join(" "));
    lines.push(format!("  is up when this works: {ready}"));
    lines.extend(server.fill.iter().map(|fill| format!("  is filled by: {}", fill.join(" "))));
    let kind = if server.kind == LoadLoop::Closed { "a closed loop" } else { "an open loop" };
    lines.push(match &plan.loader {
        Some(machine) => format!(
            "  is loaded in {kind} from {machine}, on all its CPUs, at the address of this host there: on the host's own network, or translated to the guest's"
        ),
        None => {
            let cpus = cpu_words(&loader_cpus(&plan.guest.cpus, facts));
            format!(
                "  is loaded from outside in {kind}, on {cpus}, over the environment's own network: the host's loopback interface without one"
            )
        }
    });
    if let Some(pace) = &server.pace {
        lines.push(format!(
            "  its rate is {} % of what the slowest environment reaches with: {}",
            pace.share * 100.0,
            pace.saturate.join(" ")
        ));
    }
    if let Some(null) = &server.null {
        lines.push(format!("  headroom of the load generator is proven once against: {}", null.join(" ")));
    }
    lines
}

fn describe_start(what: Started) -> String {
    match what {
        Started::One => "one fresh guest per block, up to the first response of a service".into(),
        Started::AtOnce { guests } => format!("{guests} fresh guests at once per block"),
        Started::Staggered { guests, apart_us } => {
            format!("{guests} fresh guests per block, one every {} ms", apart_us as f64 / 1000.0)
        }
        Started::Churn { concurrency, guests } => {
            format!("{guests} fresh guests per block, each removed when it is up, {concurrency} at a time")
        }
        Started::Restored { guests: 1 } => "one guest per block, saved and restored".into(),
        Started::Restored { guests } => format!("one guest per block, saved and restored {guests} times"),
        Started::Exec { programs } => {
            format!(
                "one fresh guest per block, and {} programs run in it by the platform's client",
                programs + 1
            )
        }
        Started::Prompt { shells } => {
            format!("one fresh guest per block, and {} shells started in it on terminals", shells + 1)
        }
        Started::Copy { bytes, copies } => {
            let bytes = format_bytes(bytes);
            format!("one fresh guest per block, and {bytes} copied into it and back {} times", copies + 1)
        }
        Started::Footprint { guests, duplicates } => {
            let scanned = if duplicates { ", and their pages scanned for equal ones" } else { "" };
            format!(
                "{guests} fresh guests at once per block, idle until their memory stops changing{scanned}"
            )
        }
    }
}

/// Describes what launching an environment would change on the host. A dry run prepares nothing, so
/// the root is an empty one.
fn host_changes(
    plan: &Plan,
    environment: &EnvironmentPlan,
    instance: u64,
) -> impl Iterator<Item = String> + use<> {
    let nowhere = Root { host: plan.guest.image == ImageSpec::Host, ..Root::default() };
    let request = GuestRequest {
        cpus: plan.guest.cpus.clone(),
        memory_bytes: plan.guest.memory_bytes,
        ..GuestRequest::new(environment.spec.clone(), instance, Arc::new(nowhere))
    };
    let platform = platforms::find(&environment.spec.platform);
    platform.into_iter().flat_map(move |platform| platform.host_changes(&request))
}

/// The limits of a gate of two builds, as they were written.
fn limits(limits: &GateLimits) -> String {
    let percent = |limit: f64| (limit * 1e8).round() / 1e6;
    let own = limits.of.iter().map(|(metric, limit)| format!(", {metric} {} %", percent(*limit)));
    format!("limits: {} %{}", percent(limits.limit), own.collect::<String>())
}

fn blocks(plan: &Plan) -> String {
    match plan.effort {
        Effort::Quick { blocks } => format!("{blocks}, exploratory"),
        Effort::Fixed { blocks } => blocks.to_string(),
        Effort::Sequential { looks, .. } if plan.gate.is_some() => format!(
            "up to {}, looked at after {} and every {}: a workload ends when each of its changes is shown to lie above or below \
             its limit, or would hardly be shown to by the blocks that are left",
            looks.last(),
            looks.first(),
            looks.step()
        ),
        Effort::Sequential { looks, target } => format!(
            "up to {}, looked at after {} and every {}: an environment drops out when it is decided, and from 30 blocks on a \
             workload ends when every interval is within {} %",
            looks.last(),
            looks.first(),
            looks.step(),
            target * 100.0
        ),
        Effort::Lasting { seconds } => format!("as many as fit into {seconds} s"),
        Effort::Precision { minimum, maximum, step, target } => {
            format!(
                "{minimum} to {maximum}, looked at every {step}, until every interval is within {} %",
                target * 100.0
            )
        }
    }
}

//! `weigh selftest --platforms`: tests whether the method keeps its promises on platforms other
//! than native.

use super::run::{catch_signals, stay_off};
use super::selftest::{directory, forms, print_judgement, session, write};
use crate::cli::SelftestArgs;
use crate::error::Failure;
use crate::host::{HostView, LocalHost};
use crate::selftest::conduct::{SelftestRunner, analyse_as_run};
use crate::selftest::platforms::{BLOCKS, Design, LONG_BLOCKS, OTHERS, Target, document, judge};
use crate::{embedded, request, ui};
use weigh_model::{EnvironmentSpec, HostFacts, parse_environment_list};
use weigh_observe::Observer;

/// The word for every platform that is ready.
const ALL: &str = "all";

/// Measures every platform and shows what was found.
///
/// # Errors
/// A platform is invalid or not available here; a true effect lies outside its bounds; a platform
/// gave no number; the host cannot be used.
pub fn run(args: &SelftestArgs, facts: &HostFacts) -> Result<(), Failure> {
    let budget = super::selftest::budget(args)?;
    let targets = LocalHost::ask(|host| targets(&args.platforms, host))?;
    let (forms, slices) = forms(args.slices);
    let design = Design {
        seed: args.seed.unwrap_or_else(request::random_seed),
        blocks: if args.long { LONG_BLOCKS } else { BLOCKS },
        forms,
        slices,
        cpus: facts.cpus.last().copied().into_iter().collect(),
        targets,
        digests: embedded::digests(),
    };
    let directory = directory(args.out.as_deref())?;
    let interrupt = catch_signals()?;
    let session = session(&directory)?;
    stay_off(&design.cpus, facts);
    let mut progress = ui::Steps::new("platform");
    let conducted = SelftestRunner {
        host: &session.host,
        facts,
        directory: &directory,
        interrupt: &interrupt,
        budget,
        analyse: analyse_as_run,
    }
    .conduct_platforms(&design, &mut Observer::new(), &mut |done, of| progress.show(done, of));
    drop(progress);
    let closed = session.close();
    let (measured, cut_short) = conducted?;
    closed?;

    let judgement = judge(&design, measured, cut_short);
    let json = write(&directory.join("platforms.json"), &judgement)?;
    print_judgement(args.format, &json, &document(&judgement));
    ui::note(&format!("every platform is a run below {}", directory.display()));
    judgement.ended()
}

/// The named platforms, or all that are ready, each with the environments to compare it with.
fn targets(platforms: &[String], host: &mut LocalHost) -> Result<Vec<Target>, Failure> {
    let is_all = platforms.iter().any(|text| text == ALL);
    let mut specs = Vec::new();
    if is_all {
        for name in host.ready_platforms(None)? {
            specs.push(EnvironmentSpec::parse(&name)?);
        }
    } else {
        for text in platforms {
            specs.extend(parse_environment_list(text)?);
        }
    }
    for spec in &specs {
        weigh_platforms::resolve(spec)?;
        if spec.get("label").is_some() {
            return Err(Failure::input(format!("`{spec}` has a label"))
                .hint("leave it out: the selftest labels the environments itself"));
        }
    }
    let names: Vec<String> = specs.iter().map(ToString::to_string).collect();
    if let Some(twice) = request::first_repeated(&names) {
        return Err(Failure::input(format!("`{twice}` is named twice")).hint("name every platform once"));
    }
    let mut targets = Vec::new();
    for spec in specs {
        let mut explicit = |label: Option<&str>| {
            let spec = label.map_or_else(|| spec.clone(), |label| spec.with("label", label));
            request::make_explicit(&spec, !is_all, host)
        };
        let [(b, _), (c, _)] = OTHERS;
        if let (Some(itself), Some(b), Some(c)) = (explicit(None)?, explicit(Some(b))?, explicit(Some(c))?) {
            targets.push(Target { itself, others: [b, c] });
        }
    }
    Ok(targets)
}

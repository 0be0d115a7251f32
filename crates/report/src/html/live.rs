//! The page of a run in progress, as the run's own server sends it to a browser.
//!
//! It is the page of the file with a progress line, a label, and a second script, which polls
//! `state` and reloads the page when there is a newer one. Its policy also lets that script run and
//! lets it connect to the server that the page came from.

use super::embed;
use super::markup::Markup;
use crate::Report;
use crate::notes::Label;
use weigh_stats::WarningKind;

/// The script that keeps the page up to date.
pub(super) const SCRIPT: &str = include_str!("../../templates/live.js");

/// What the page of a run in progress shows besides the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivePage {
    /// The number of the page within its run, from 1. The script compares it with the one in
    /// `state`.
    pub version: u64,
    /// The time at which it was made, UTC, for people.
    pub made: String,
    /// Whether the run has ended, so that there will be no newer page.
    pub ended: bool,
}

/// The progress of the run, as the page shows it.
#[derive(Debug)]
pub(crate) struct LiveView {
    version: u64,
    ended: bool,
    sentence: String,
}

impl LivePage {
    pub(crate) fn view(&self, report: &Report) -> LiveView {
        LiveView { version: self.version, ended: self.ended, sentence: self.sentence(report) }
    }

    fn sentence(&self, report: &Report) -> String {
        let made = &self.made;
        match self.ended {
            true => {
                format!("The run has ended; this page is its report, made at {made} UTC, and stays as it is.")
            }
            false => format!(
                "In progress: {}. This page was made at {made} UTC; a newer one takes its place when there is one.",
                blocks(report)
            ),
        }
    }

    /// The label that warns that the run is still in progress.
    pub(crate) fn label(&self, report: &Report) -> Option<Label> {
        let meaning = format!(
            "{} are done, and this is what they say so far. Every number and verdict may still change, and the run ends as planned, \
             whatever they say",
            blocks(report)
        );
        (!self.ended).then(|| Label { word: "GOING ON".into(), meaning })
    }
}

/// Writes the progress of the run.
pub(super) fn line(page: &mut Markup, live: &LiveView) {
    let version = live.version.to_string();
    let attributes = [
        ("id", Some("live")),
        ("class", Some("faint")),
        ("data-version", Some(version.as_str())),
        ("data-ended", Some(if live.ended { "yes" } else { "no" })),
    ];
    page.element("p", &attributes, |page| page.text(&live.sentence));
}

/// `7 of 30 blocks`.
fn blocks(report: &Report) -> String {
    let done = report.blocks_done.unwrap_or(0);
    match report.blocks_planned {
        Some(planned) if done <= planned => format!("{done} of {planned} blocks"),
        _ => format!("{done} blocks"),
    }
}

/// The report without the advice to resume a run that is still in progress.
pub(crate) fn without_advice(report: &Report) -> Report {
    let mut report = report.clone();
    report.analysis.warnings.retain(|warning| !matches!(warning.kind, WarningKind::RunIncomplete { .. }));
    report
}

/// The page's policy, with one more script, and with permission to connect to the server that the
/// page came from.
pub(super) fn policy() -> String {
    const DIGEST: &str = include_str!(concat!(env!("OUT_DIR"), "/live.js.sha256"));
    format!("{} '{DIGEST}'; connect-src 'self'", embed::POLICY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_is_the_files_with_one_script_and_one_place_to_ask_more() {
        let policy = policy();
        let more = policy.strip_prefix(embed::POLICY).unwrap();
        assert!(more.starts_with(" 'sha256-") && more.ends_with("'; connect-src 'self'"), "{more}");
        assert_eq!(more.matches("sha256-").count(), 1);
        assert!(embed::POLICY.contains("script-src") && !embed::POLICY.contains("connect-src"));
        assert!(
            embed::POLICY.rsplit_once(';').unwrap().1.contains("script-src"),
            "the list of scripts is last"
        );
        assert!(!SCRIPT.to_lowercase().contains("</script") && !SCRIPT.contains("<!--"));
    }
}

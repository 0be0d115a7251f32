//! Writing a study as the text of one file.

use crate::study::{
    Arm, Claim, Experiment, Measure, Origin, Place, Published, Quantity, RawLogSource, Spread, Statistic,
    Study, View,
};
use serde::Serialize;
use std::collections::BTreeMap;

impl Study {
    /// The text of a file that reads back as the same study. Defaults and comments are left out.
    pub fn to_toml(&self) -> String {
        let mut out = Writer::default();
        out.line("name", &self.name);
        out.line("title", &self.title);
        out.line("authors", &self.authors);
        out.line("published", &self.published);
        out.line("host", &self.host);
        out.line("method", &self.method);
        for experiment in &self.experiments {
            experiment.write(&mut out);
        }
        out.text
    }
}

/// Writes TOML: tables have headers, and every value below them is on one line.
#[derive(Default)]
struct Writer {
    text: String,
}

impl Writer {
    fn header(&mut self, header: &str) {
        self.text.push_str(&format!("\n{header}\n"));
    }

    fn line<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) {
        let mut written = String::new();
        value
            .serialize(toml::ser::ValueSerializer::new(&mut written))
            .expect("texts, numbers, lists and maps of these are values of TOML");
        self.text.push_str(&format!("{key} = {written}\n"));
    }

    fn optional<T: Serialize>(&mut self, key: &str, value: Option<&T>) {
        if let Some(value) = value {
            self.line(key, value);
        }
    }

    fn list(&mut self, key: &str, values: &[String]) {
        if !values.is_empty() {
            self.line(key, values);
        }
    }

    fn when(&mut self, key: &str, truth: bool) {
        if truth {
            self.line(key, &true);
        }
    }
}

impl Experiment {
    fn write(&self, out: &mut Writer) {
        out.header("[[experiment]]");
        out.line("name", &self.name);
        out.list("also", &self.also);
        out.line("title", &self.title);
        out.line("source", &self.source);
        out.line("statistic", &self.statistic);
        out.line("baseline", &self.baseline);
        self.measure.write(out);
        for instead in &self.instead {
            out.header("[[experiment.instead]]");
            out.line("original", &instead.original);
            out.line("here", &instead.here);
        }
        self.arms.iter().for_each(|arm| arm.write(out));
        self.quantities.iter().for_each(|quantity| quantity.write(out));
        self.published.iter().for_each(|block| block.write(out, self));
        self.claims.iter().for_each(|claim| claim.write(out));
        self.views.iter().for_each(|view| view.write(out));
        self.reanalyse.iter().for_each(|logs| logs.write(out, self));
    }

    /// Writes the point of a quantity at which something was measured.
    fn write_point(&self, out: &mut Writer, quantity: &str, at: Option<&String>) {
        let sweep = self.quantity(quantity).and_then(|quantity| quantity.sweep.as_ref());
        if let Some((sweep, at)) = sweep.zip(at) {
            out.line("at", &BTreeMap::from([(sweep, at)]));
        }
    }
}

impl Measure {
    fn write(&self, out: &mut Writer) {
        out.header("[experiment.measure]");
        out.line("command", self.command.name());
        out.list("arguments", &self.arguments);
        out.list("quick", &self.quick);
        out.list("standard", &self.standard);
        out.list("paper", &self.paper);
        out.optional("needs", self.needs.as_ref());
    }
}

impl Arm {
    fn write(&self, out: &mut Writer) {
        out.header("[[experiment.arm]]");
        out.line("id", &self.id);
        out.line("label", &self.label);
        match &self.place {
            Place::On(environment) => out.line("on", &environment.to_string()),
            Place::Ssh => out.line("reach", "ssh"),
        }
        out.optional("note", self.note.as_ref());
        out.when("today", self.today);
    }
}

impl Quantity {
    fn write(&self, out: &mut Writer) {
        out.header("[[experiment.quantity]]");
        out.line("id", &self.id);
        out.line("label", &self.label);
        if let Some(measurand) = self.from.measurand() {
            out.line("workload", &measurand.workload);
            out.line("metric", &measurand.metric);
            if !measurand.params.is_empty() {
                out.line("params", &measurand.params);
            }
            if measurand.statistic != Statistic::default() {
                out.line("statistic", &measurand.statistic);
            }
        }
        out.optional("sweep", self.sweep.as_ref());
        out.optional("best_over", self.from.measurand().and_then(|measurand| measurand.best_over.as_ref()));
        out.line("unit", &self.unit);
        out.line("better", &self.better);
        out.when("stands_in", self.stands_in);
        out.optional("percentile", self.percentile.as_ref());
        match &self.from {
            Origin::Cells(_) => {}
            Origin::Limits(_) => out.line("from", "limits"),
            Origin::Duplicates(_) => out.line("from", "duplicates"),
            Origin::Text { why } => {
                out.line("from", "text");
                out.line("why", why);
            }
        }
    }
}

impl Published {
    fn write(&self, out: &mut Writer, experiment: &Experiment) {
        out.header("[[experiment.published]]");
        out.line("quantity", &self.quantity);
        out.line("source", &self.source);
        out.optional("n", self.n.as_ref());
        if self.spread != Spread::default() {
            out.line("spread", &self.spread);
        }
        let values: BTreeMap<&str, Vec<f64>> =
            self.values.iter().map(|(arm, value)| (arm.as_str(), value.numbers())).collect();
        out.line("values", &values);
        experiment.write_point(out, &self.quantity, self.at.as_ref());
    }
}

impl Claim {
    fn write(&self, out: &mut Writer) {
        out.header("[[experiment.claim]]");
        out.line("id", &self.id);
        out.line("says", &self.says);
        out.line("source", &self.source);
        out.line("check", &self.check.to_string());
    }
}

impl View {
    fn write(&self, out: &mut Writer) {
        out.header("[[experiment.view]]");
        out.line("id", &self.id);
        out.line("title", &self.title);
        out.line("form", &self.form);
        out.line("quantities", &self.quantities);
        out.optional("x", self.x.as_ref());
        out.when("arms_down", self.arms_down);
        out.optional("x_label", self.x_label.as_ref());
        out.optional("y_label", self.y_label.as_ref());
    }
}

impl RawLogSource {
    fn write(&self, out: &mut Writer, experiment: &Experiment) {
        out.header("[[experiment.reanalyse]]");
        out.line("quantity", &self.quantity);
        out.line("parser", &self.parser);
        out.line("value", &self.value);
        out.optional("section", self.section.as_ref());
        out.optional("sections", Some(&self.sections).filter(|sections| !sections.is_empty()));
        out.optional("runs", self.runs.as_ref());
        out.line("folders", &self.folders);
        out.line("files", &self.files);
        out.when("clients", self.clients);
        experiment.write_point(out, &self.quantity, self.at.as_ref());
        out.optional("n", self.n.as_ref());
        out.optional("note", self.note.as_ref());
    }
}

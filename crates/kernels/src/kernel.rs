//! What a kernel is, and the list of them.

use crate::kernels;
use crate::marks::{MarkInterval, Marks};
use crate::options::{OptionSpec, Options, UsageError};
use crate::outcome::Outcome;
use weigh_model::PieceStatistic;

/// A micro-benchmark: its description, as data, and the function that runs it.
pub struct Kernel {
    /// Name on the command line.
    pub name: &'static str,
    /// One line that says what it measures.
    pub summary: &'static str,
    /// The name of one operation, in the singular: the unit of work that its result counts.
    pub operation: &'static str,
    /// One sentence that says how it proves that the work was done.
    pub check: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// Metrics that the default options give, with their base units.
    pub metrics: &'static [(&'static str, &'static str)],
    pub(crate) run: fn(&Options) -> Result<Outcome, KernelError>,
    /// The endless form, and which statistic of its repetitions the whole form reports.
    pub(crate) endless: Option<(PieceStatistic, Endless)>,
}

/// The endless form of a kernel ([`crate::marks`]): it works until the marks tell it to end.
pub(crate) type Endless = fn(&Options, &mut Marks) -> Result<Outcome, KernelError>;

impl Kernel {
    /// Runs the kernel, which uses the machine for as long as the options ask.
    pub fn run(&self, options: &Options) -> Result<Outcome, KernelError> {
        (self.run)(options)
    }

    /// Whether the kernel has an endless form, which takes a clock of CPU time and a signal.
    pub fn is_endless(&self) -> bool {
        self.endless.is_some() && !cfg!(target_family = "wasm")
    }

    /// Runs the endless form until SIGTERM, and writes the marks to standard output.
    ///
    /// # Panics
    /// If the kernel has no endless form.
    pub fn run_endless(&self, options: &Options, every: MarkInterval) -> Result<Outcome, KernelError> {
        let (statistic, endless) = self.endless.expect("the caller looked whether there is one");
        let mut marks = Marks::new(every, statistic)?;
        let outcome = endless(options, &mut marks)?;
        marks.finish()?;
        Ok(outcome)
    }
}

#[cfg(test)]
impl Kernel {
    /// The options of a command line.
    pub(crate) fn options_of(&self, line: &str) -> Options {
        Options::parse(self.name, self.options, line.split_whitespace().map(str::to_owned)).unwrap()
    }

    /// Fails unless the check passed and every metric that the kernel declares is above 0.
    pub(crate) fn assert_complete(&self, outcome: &Outcome) {
        assert!(outcome.check.passed, "{:?}", outcome.check);
        for (name, _) in self.metrics {
            assert!(outcome.value(name).unwrap() > 0.0, "{name}");
        }
    }
}

/// Why a kernel gave no result.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The options contradict each other or the machine.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// The operating system refused something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried, as the object of "cannot".
        doing: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The kernel cannot run here.
    #[error("{0}")]
    Unable(String),
}

impl KernelError {
    /// A command line that cannot be executed as it stands.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        UsageError(message.into()).into()
    }

    /// For `map_err`: names the operation that failed.
    pub(crate) fn system<E: Into<std::io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Self {
        let doing = doing.into();
        move |source| Self::System { doing, source: source.into() }
    }
}

/// All kernels.
pub fn all() -> &'static [&'static Kernel] {
    kernels::ALL
}

/// The names of all kernels.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().iter().map(|kernel| kernel.name)
}

/// The kernel of that name. The error suggests the most similar name.
pub fn find(name: &str) -> Result<&'static Kernel, UsageError> {
    all().iter().copied().find(|kernel| kernel.name == name).ok_or_else(|| {
        #[cfg(target_family = "wasm")]
        if let Some((_, reason)) = kernels::WITHOUT_WEBASSEMBLY.iter().find(|(known, _)| *known == name) {
            return UsageError(format!("{name} has no WebAssembly form: {reason}"));
        }
        let near = weigh_model::nearest(name, names()).map(|near| format!("did you mean `{near}`? "));
        let known: Vec<_> = names().collect();
        UsageError(format!(
            "there is no kernel `{name}`; {}the kernels are: {}",
            near.unwrap_or_default(),
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_valid() {
        for kernel in all() {
            assert_eq!(names().filter(|name| *name == kernel.name).count(), 1);
            assert_eq!(
                Options::defaults(kernel.options).to_json().len(),
                kernel.options.len(),
                "{}",
                kernel.name
            );
        }
    }

    #[test]
    fn only_kernels_lack_a_webassembly_form() {
        for (name, reason) in kernels::WITHOUT_WEBASSEMBLY {
            assert!(names().any(|kernel| kernel == *name) && !reason.is_empty(), "{name}");
        }
        let have_one =
            names().filter(|name| kernels::WITHOUT_WEBASSEMBLY.iter().all(|(other, _)| other != name));
        assert_eq!(have_one.collect::<Vec<_>>(), ["stream", "gups", "pi", "memory-latency", "spin"]);
    }

    #[test]
    fn an_unknown_kernel_gets_the_nearest_name() {
        let message = find("steam").err().unwrap().to_string();
        assert!(message.contains("did you mean `stream`?"), "{message}");
    }
}

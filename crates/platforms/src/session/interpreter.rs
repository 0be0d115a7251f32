//! Commands that a program of the guest interprets.
//!
//! The session turns each command into that program's, so that the probe starts nothing else and
//! what is measured has no process more than its users' own.

use super::SessionError;
use std::path::Path;
use weigh_protocol::{Command, GuestFacts, Questions};

/// The builtin kernels, as commands name them.
pub(crate) const KERNELS: &str = "weigh-kernels";

/// A program that runs the builtin kernels, and only these, from a file that is no program of the
/// processor.
#[derive(Debug, Clone)]
pub(crate) struct Interpreter {
    /// Its command line, to which the arguments of the kernels are added.
    pub(crate) argv: Vec<String>,
    /// The file with the kernels, which is described in place of their program.
    pub(crate) module: String,
}

impl Interpreter {
    /// The arguments of the kernels after the interpreter's own.
    ///
    /// # Errors
    /// It is another program: the reason.
    pub(crate) fn argv(&self, argv: &[String]) -> Result<Vec<String>, String> {
        let (program, arguments) =
            argv.split_first().map_or(("", argv), |(first, rest)| (first.as_str(), rest));
        if Path::new(program).file_name() != Some(KERNELS.as_ref()) {
            return Err(format!(
                "the guest runs WebAssembly, and of that only the builtin kernels; `{program}` is another program"
            ));
        }
        Ok(self.argv.iter().chain(arguments).cloned().collect())
    }

    /// The command of the interpreter for a command of the guest.
    ///
    /// # Errors
    /// [`SessionError::Refused`] for another program, as a kernel refuses a file of another
    /// architecture.
    pub(super) fn command(&self, command: &Command) -> Result<Command, SessionError> {
        let argv = self.argv(&command.argv);
        let argv = argv.map_err(|reason| SessionError::Refused { reason, errno: libc::ENOEXEC })?;
        Ok(Command { argv, ..command.clone() })
    }

    /// Asks about the file with the kernels in place of their program.
    pub(super) fn ask(&self, about: &mut Questions) {
        for program in about.programs.iter_mut().filter(|program| program.as_str() == KERNELS) {
            program.clone_from(&self.module);
        }
    }

    /// Gives the file in the answer the name that was asked for.
    pub(super) fn name(&self, facts: &mut GuestFacts) {
        for program in facts.programs.iter_mut().filter(|program| program.name == self.module) {
            program.name = KERNELS.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weigh_protocol::{Input, ProgramFacts};

    fn interpreter() -> Interpreter {
        let argv = ["/opt/wasmtime", "run", "/work/kernels.cwasm"].map(String::from).to_vec();
        Interpreter { argv, module: "/work/kernels.wasm".into() }
    }

    fn command(argv: &[&str]) -> Command {
        Command {
            argv: argv.iter().map(|word| (*word).into()).collect(),
            environment: vec![("WEIGH_SPIN".into(), "0.05".into())],
            working_directory: None,
            input: Input::Empty,
            output_limit_bytes: 7,
        }
    }

    #[test]
    fn arguments_follow_those_of_the_interpreter() {
        for name in [KERNELS, "/work/run/weigh-kernels"] {
            let asked = command(&[name, "spin", "--work", "5e7"]);
            let through = interpreter().command(&asked).unwrap();
            let words = ["/opt/wasmtime", "run", "/work/kernels.cwasm", "spin", "--work", "5e7"];
            assert_eq!(through.argv, words);
            assert_eq!(through, Command { argv: through.argv.clone(), ..asked });
        }
    }

    #[test]
    fn other_programs_are_refused() {
        for argv in [&["fio", "job"][..], &["sh", "-c", "weigh-kernels spin"], &["/bin/weigh-kernels/x"], &[]]
        {
            match interpreter().command(&command(argv)) {
                Err(SessionError::Refused { reason, errno: libc::ENOEXEC }) => {
                    let program = argv.first().unwrap_or(&"");
                    assert!(reason.contains(&format!("`{program}` is another program")), "{reason}");
                }
                other => panic!("{argv:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn the_module_is_described_as_the_kernels() {
        let mut about = Questions { programs: vec!["sh".into(), KERNELS.into()], ..Questions::default() };
        interpreter().ask(&mut about);
        assert_eq!(about.programs, ["sh", "/work/kernels.wasm"]);
        let program = |name: &str| ProgramFacts { name: name.into(), ..ProgramFacts::default() };
        let programs = about.programs.iter().map(|name| program(name)).collect();
        let mut facts = GuestFacts { programs, ..GuestFacts::default() };
        interpreter().name(&mut facts);
        assert_eq!(facts.programs, [program("sh"), program(KERNELS)]);
    }
}

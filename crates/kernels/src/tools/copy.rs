//! `copy`: writes its input to a file, or a file to its output. This is the guest's end of a copy
//! between host and guest, so that guests need no other program for it.

use super::Tool;
use crate::kernel::KernelError;
use crate::options::{OptionSpec, Options};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, stdin, stdout};

pub(super) static TOOL: Tool = Tool {
    name: "copy",
    summary: "copies its standard input to a file, or a file to its standard output, and then prints its line",
    options: &[
        OptionSpec::text("to", "").help("file to write; one that exists is replaced"),
        OptionSpec::text("from", "").help("file to read"),
    ],
    takes_command: false,
    run,
};

fn run(options: &Options, _: &[String]) -> Result<Value, KernelError> {
    let (bytes, copied) = match (options.text("from"), options.text("to")) {
        ("", "") => return Err(KernelError::usage("name the file: `--to FILE` or `--from FILE`")),
        ("", to) => {
            let copied = File::create(to).and_then(|mut file| io::copy(&mut stdin().lock(), &mut file));
            (copied.map_err(KernelError::system(format!("write {to}")))?, format!("to {to}"))
        }
        (from, "") => {
            let copied = File::open(from).and_then(|mut file| io::copy(&mut file, &mut stdout().lock()));
            (copied.map_err(KernelError::system(format!("read {from}")))?, format!("from {from}"))
        }
        _ => return Err(KernelError::usage("name one file, either `--to FILE` or `--from FILE`")),
    };
    Ok(json!({
        "tool": "copy",
        "params": options.to_json(),
        "operations": bytes,
        "check": {"passed": true, "statement": format!("{bytes} bytes were copied {copied}")},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &[&str]) -> Result<(Value, bool), KernelError> {
        TOOL.run(line.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn one_file_is_named() {
        for line in [&[][..], &["--to", "a", "--from", "b"]] {
            assert!(run(line).unwrap_err().to_string().contains("--to FILE"));
        }
        let missing = run(&["--from", "/no/such/file"]).unwrap_err().to_string();
        assert!(missing.contains("cannot read /no/such/file"), "{missing}");
    }
}

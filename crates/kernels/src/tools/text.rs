//! `text`: the generated text of the `lzma` kernel as a file, for compressors that read one.

use super::Tool;
use crate::kernel::KernelError;
use crate::kernels::text::Writer;
use crate::options::{OptionSpec, Options};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;

/// Bytes that are written at a time.
const PIECE: usize = 1 << 20;

pub(super) static TOOL: Tool = Tool {
    name: "text",
    summary: "writes English-like text, the same for the same seed on every machine, to a file",
    options: &[
        OptionSpec::bytes("bytes", "12MiB").help("bytes of text"),
        OptionSpec::count("seed", "1").help("seed of the text"),
        OptionSpec::text("path", "").help("file to write; an existing one is replaced"),
    ],
    takes_command: false,
    run,
};

fn run(options: &Options, _command: &[String]) -> Result<Value, KernelError> {
    let path = options.text("path");
    if path.is_empty() {
        return Err(KernelError::usage("name the file to write: `--path FILE`"));
    }
    let bytes = options.at_least("bytes", 1)?;
    let failed = || KernelError::system(format!("write {bytes} bytes of text to {path}"));
    let mut file = File::create(path).map_err(failed())?;
    let mut writer = Writer::new(options.number("seed"));
    let mut digest = crc32fast::Hasher::new();
    let mut text = Vec::with_capacity(PIECE + 64);
    let mut written = 0u64;
    while written < bytes {
        while text.len() < PIECE {
            writer.word(&mut text);
        }
        let left = usize::try_from(bytes - written).unwrap_or(usize::MAX).min(PIECE);
        file.write_all(&text[..left]).map_err(failed())?;
        digest.update(&text[..left]);
        // The end of the last word begins the next piece.
        text.drain(..left);
        written += left as u64;
    }
    Ok(json!({
        "tool": "text",
        "params": options.to_json(),
        "bytes": bytes,
        "crc32": format!("{:08x}", digest.finalize()),
        "check": {"passed": true, "statement": format!("all {bytes} bytes were written")},
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::english_like;

    fn write(bytes: &str, path: &str) -> Result<(Value, bool), KernelError> {
        TOOL.run(["--bytes", bytes, "--path", path].map(str::to_owned).to_vec())
    }

    #[test]
    fn the_file_holds_the_text_of_the_lzma_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        // More than two pieces, and an odd end.
        let bytes = 2 * PIECE + 12_345;
        let (line, passed) = write(&bytes.to_string(), path.to_str().unwrap()).unwrap();
        let expected = english_like(1, bytes);
        assert!(passed && std::fs::read(&path).unwrap() == expected);
        assert_eq!(line["crc32"], format!("{:08x}", crc32fast::hash(&expected)));
    }

    #[test]
    fn a_missing_or_unwritable_path_is_reported() {
        assert!(TOOL.run(Vec::new()).unwrap_err().to_string().contains("--path FILE"));
        let error = write("10", "/nonexistent/text").unwrap_err().to_string();
        assert!(error.contains("cannot write 10 bytes of text to /nonexistent/text"), "{error}");
    }
}

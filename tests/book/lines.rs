//! Command lines of `weigh` in blocks of code, as a shell reads them.

/// What may precede a command: a prompt, a list item of a pipeline, a YAML key, sudo.
const BEFORE: [&str; 4] = ["$ ", "- ", "run: ", "sudo "];
/// Where a shell ends a command.
const ENDS: [&str; 7] = ["|", "||", "&&", ">", ">>", "<", "&"];

/// The command lines of a block that begin with `weigh`, each as one line.
pub fn command_lines(block: &str) -> Vec<String> {
    let joined = block.replace("\\\n", " ");
    let bare = |line: &str| {
        let mut line = line.trim().to_string();
        while let Some(rest) = BEFORE.iter().find_map(|before| line.strip_prefix(before)) {
            line = rest.trim_start().to_string();
        }
        line
    };
    joined.lines().map(bare).filter(|line| line.split_whitespace().next() == Some("weigh")).collect()
}

/// The examples in a `--help` text, which follow the word `Examples:`.
pub fn examples(help: &str) -> Vec<String> {
    let after = help.lines().skip_while(|line| line.trim() != "Examples:").skip(1);
    let block: Vec<&str> = after.take_while(|line| !line.trim().is_empty()).collect();
    command_lines(&block.join("\n"))
}

/// The words that the program receives, without its own name.
///
/// # Errors
/// Why a shell would read the line differently from how it looks.
pub fn words(line: &str) -> Result<Vec<String>, String> {
    if unquoted(line).contains([';', '(', '`']) {
        return Err("a shell ends the command at `;`, `(` or a backquote: put it in quotes".into());
    }
    let words = shlex::split(line).ok_or("its quotes are not closed")?;
    Ok(words.into_iter().skip(1).take_while(|word| !ENDS.contains(&word.as_str())).collect())
}

/// The part of a line that is neither in quotes nor in a comment.
fn unquoted(line: &str) -> String {
    let mut quote = None;
    let mut before = ' ';
    let mut kept = String::new();
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c == '#' && before.is_whitespace() => break,
            None => kept.push(c),
        }
        before = c;
    }
    kept
}

//! The answers to the redis commands that load generators send.

use super::serve::{Answer, Answered, ConnectionAction};
use crate::kernels::native::load::resp;

/// Most words of a command that is accepted.
const MOST_WORDS: usize = 1024 * 1024;

/// The longest line that is accepted.
const LONGEST_LINE: usize = 64 << 10;

/// A key-value server without keys and values: it makes up what is asked for.
pub(super) struct Redis {
    value_bytes: usize,
}

/// The first two words of a command, and where the next begins.
struct Command<'a> {
    name: &'a [u8],
    first: Option<&'a [u8]>,
    length: usize,
}

/// Why there is no command.
enum ParseError {
    /// The rest has not arrived yet.
    Incomplete,
    /// What arrived is no command.
    Invalid,
}

impl Redis {
    pub(super) fn new(value_bytes: usize) -> Self {
        Self { value_bytes }
    }

    fn reply(&self, command: &Command<'_>, out: &mut Vec<u8>) -> ConnectionAction {
        let is = |name: &[u8]| command.name.eq_ignore_ascii_case(name);
        if is(b"GET") {
            let key = command.first.unwrap_or_default();
            let bytes = self.value_bytes.max(key.len());
            out.push(b'$');
            resp::put_number(out, bytes);
            out.extend_from_slice(b"\r\n");
            resp::put_value(out, key, bytes);
            out.extend_from_slice(b"\r\n");
        } else if is(b"SET") {
            out.extend_from_slice(b"+OK\r\n");
        } else if is(b"PING") {
            out.extend_from_slice(b"+PONG\r\n");
        } else if is(b"CONFIG") {
            // redis-benchmark asks this before it starts.
            out.extend_from_slice(b"*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
        } else if is(b"COMMAND") {
            // redis-cli asks this for its completions.
            out.extend_from_slice(b"*0\r\n");
        } else if is(b"INCR") || is(b"EXISTS") || is(b"DBSIZE") {
            out.extend_from_slice(b":1\r\n");
        } else {
            out.extend_from_slice(b"+OK\r\n");
        }
        if is(b"QUIT") { ConnectionAction::Close } else { ConnectionAction::Keep }
    }
}

impl Answer for Redis {
    type Session = ();

    fn answer(&mut self, (): &mut (), input: &[u8], out: &mut Vec<u8>) -> Answered {
        let mut answered = Answered::default();
        while answered.then == ConnectionAction::Keep && answered.consumed < input.len() {
            match command(&input[answered.consumed..]) {
                Ok(command) => {
                    // An empty line is no command, and gets no reply.
                    if !command.name.is_empty() {
                        answered.then = self.reply(&command, out);
                        answered.requests += 1;
                    }
                    answered.consumed += command.length;
                }
                Err(ParseError::Incomplete) => break,
                Err(ParseError::Invalid) => {
                    out.extend_from_slice(b"-ERR Protocol error\r\n");
                    answered.then = ConnectionAction::Refuse;
                }
            }
        }
        answered
    }
}

/// The command at the beginning of `input`: an array of strings, or a line of words as a user types
/// it.
fn command(input: &[u8]) -> Result<Command<'_>, ParseError> {
    let line_at = |at: usize| match resp::line(&input[at..]) {
        Some((line, next)) => Ok((line, at + next)),
        None if input.len() - at > LONGEST_LINE => Err(ParseError::Invalid),
        None => Err(ParseError::Incomplete),
    };
    let (line, mut at) = line_at(0)?;
    let Some(words) = line.strip_prefix(b"*") else {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let (name, first) = (words.next().unwrap_or_default(), words.next());
        // A line of words must begin with letters only; otherwise this is another protocol.
        let sense = name.iter().all(u8::is_ascii_alphabetic) && !line.ends_with(b"HTTP/1.1");
        return if sense { Ok(Command { name, first, length: at }) } else { Err(ParseError::Invalid) };
    };
    let words = resp::number(words).filter(|words| *words <= MOST_WORDS).ok_or(ParseError::Invalid)?;
    let (mut name, mut first) = (&input[..0], None);
    for word in 0..words {
        let (header, begin) = line_at(at)?;
        let bytes = header.strip_prefix(b"$").and_then(resp::number).ok_or(ParseError::Invalid)?;
        let end = begin + bytes;
        if input.len() < end + 2 {
            return Err(ParseError::Incomplete);
        }
        match word {
            0 => name = &input[begin..end],
            1 => first = Some(&input[begin..end]),
            _ => {}
        }
        at = end + 2;
    }
    Ok(Command { name, first, length: at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(input: &str) -> (Answered, String) {
        let mut out = Vec::new();
        let answered = Redis::new(12).answer(&mut (), input.as_bytes(), &mut out);
        (answered, String::from_utf8(out).unwrap())
    }

    #[test]
    fn commands_get_replies_of_their_kind() {
        let pipeline = "*3\r\n$3\r\nSET\r\n$2\r\nab\r\n$5\r\nva\r\nl\r\n*2\r\n$3\r\nget\r\n$10\r\nk000000001\r\nPING\r\n\r\n";
        let (answered, out) = answer(pipeline);
        assert_eq!(
            answered,
            Answered { consumed: pipeline.len(), requests: 3, then: ConnectionAction::Keep }
        );
        assert_eq!(out, "+OK\r\n$12\r\nk000000001xx\r\n+PONG\r\n");
    }

    #[test]
    fn partial_commands_wait_and_others_are_refused() {
        let get = "*2\r\n$3\r\nGET\r\n$10\r\nk000000001\r\n";
        for length in 0..get.len() {
            assert_eq!(answer(&get[..length]), (Answered::default(), String::new()), "{length}");
        }
        assert_eq!(
            answer("QUIT\r\nPING\r\n").0,
            Answered { consumed: 6, requests: 1, then: ConnectionAction::Close }
        );
        for nonsense in ["GET / HTTP/1.1\r\n", "*x\r\n", "*1\r\n+PING\r\n", "\u{1}\u{2}\r\n"] {
            assert_eq!(answer(nonsense).0.then, ConnectionAction::Refuse, "{nonsense:?}");
        }
    }
}

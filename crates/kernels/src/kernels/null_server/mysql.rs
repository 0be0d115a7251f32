//! The answers of mysql: anybody may log in, and every query has the same row.
//!
//! MySQL Source Code Documentation, "Client/Server Protocol": packets, the connection phase with protocol 4.1, text result sets
//! with EOF packets. Statements that are to be prepared are refused in the way that has clients send them as text.

use super::serve::{Answer, Answered, Then};

/// Bytes before a packet: its length and its number.
const HEADER_BYTES: usize = 4;

/// The longest packet that is no nonsense.
const LONGEST_PACKET: usize = 1 << 20;

/// Capabilities of the server: long passwords, found rows, long flags, a database at log-in, protocol 4.1, transactions, secure
/// authentication, multiple statements and results, authentication plugins.
const CAPABILITIES: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000;

/// utf8_general_ci.
const CHARACTER_SET: u8 = 33;

/// The status of every answer: each statement is a transaction of its own.
const AUTOCOMMIT: [u8; 2] = [2, 0];

/// Length of the column `c` of sysbench's tables.
const COLUMN_BYTES: u8 = 120;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_CLOSE: u8 = 0x19;

/// A database without tables.
pub(super) struct Mysql {
    /// The answer to every query that reads.
    rows: Vec<u8>,
    ok: Vec<u8>,
    unprepared: Vec<u8>,
}

impl Mysql {
    pub(super) fn new() -> Self {
        let eof = [&[0xfe, 0, 0], AUTOCOMMIT.as_slice()].concat();
        let mut column = Vec::new();
        for text in ["def", "sbtest", "sbtest1", "sbtest1", "c", "c"] {
            column.push(text.len() as u8);
            column.extend_from_slice(text.as_bytes());
        }
        // Length of what follows, character set, length of the column, type of a fixed string, flags, decimals, two zeros.
        column.extend_from_slice(&[0x0c, CHARACTER_SET, 0, COLUMN_BYTES, 0, 0, 0, 0xfe, 0, 0, 0, 0, 0]);
        let row = [vec![COLUMN_BYTES], vec![b'x'; COLUMN_BYTES.into()]].concat();
        let mut rows = Vec::new();
        for (index, body) in [&[1], column.as_slice(), &eof, &row, &eof].into_iter().enumerate() {
            packet(&mut rows, index as u8 + 1, body);
        }
        let mut ok = Vec::new();
        packet(&mut ok, 1, &ok_body());
        let mut unprepared = Vec::new();
        // ER_UNSUPPORTED_PS.
        let refusal =
            b"\xff\x0f\x05#HY000This command is not supported in the prepared statement protocol yet";
        packet(&mut unprepared, 1, refusal);
        Self { rows, ok, unprepared }
    }

    fn reply(&self, command: &[u8], out: &mut Vec<u8>) -> Then {
        match command.first() {
            Some(&COM_QUIT) => return Then::Close,
            Some(&COM_QUERY) if reads(&command[1..]) => out.extend_from_slice(&self.rows),
            Some(&COM_STMT_PREPARE) => out.extend_from_slice(&self.unprepared),
            // Has no answer.
            Some(&COM_STMT_CLOSE) => {}
            Some(_) => out.extend_from_slice(&self.ok),
            None => return Then::Refuse,
        }
        Then::Keep
    }
}

fn reads(query: &[u8]) -> bool {
    let word = query.trim_ascii_start();
    [b"SELECT".as_slice(), b"SHOW"]
        .iter()
        .any(|read| word.get(..read.len()).is_some_and(|word| word.eq_ignore_ascii_case(read)))
}

/// No rows touched, no row made.
fn ok_body() -> Vec<u8> {
    [&[0, 0, 0], AUTOCOMMIT.as_slice(), &[0, 0]].concat()
}

fn packet(out: &mut Vec<u8>, number: u8, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_le_bytes()[..3]);
    out.push(number);
    out.extend_from_slice(body);
}

impl Answer for Mysql {
    /// Whether the client has logged in.
    type Session = bool;

    fn open(&mut self, out: &mut Vec<u8>) {
        let mut greeting = vec![10];
        greeting.extend_from_slice(b"8.0.0-null\0");
        greeting.extend_from_slice(&1u32.to_le_bytes());
        // The numbers that a password would be scrambled with: 8 here, 12 below, each part with a zero.
        greeting.extend_from_slice(b"abcdefgh\0");
        let capabilities = CAPABILITIES.to_le_bytes();
        greeting.extend_from_slice(&capabilities[..2]);
        greeting.push(CHARACTER_SET);
        greeting.extend_from_slice(&AUTOCOMMIT);
        greeting.extend_from_slice(&capabilities[2..]);
        greeting.push(21);
        greeting.extend_from_slice(&[0; 10]);
        greeting.extend_from_slice(b"ijklmnopqrst\0");
        greeting.extend_from_slice(b"mysql_native_password\0");
        packet(out, 0, &greeting);
    }

    fn answer(&mut self, logged_in: &mut bool, input: &[u8], out: &mut Vec<u8>) -> Answered {
        let mut answered = Answered::default();
        while answered.then == Then::Keep {
            let input = &input[answered.consumed..];
            let Some([first, second, third, number]) = input.first_chunk::<HEADER_BYTES>() else { break };
            let bytes = u32::from_le_bytes([*first, *second, *third, 0]) as usize;
            if bytes > LONGEST_PACKET {
                answered.then = Then::Refuse;
                break;
            }
            let Some(body) = input[HEADER_BYTES..].get(..bytes) else { break };
            if *logged_in {
                answered.then = self.reply(body, out);
            } else {
                packet(out, number.wrapping_add(1), &ok_body());
                *logged_in = true;
            }
            answered.consumed += HEADER_BYTES + bytes;
            answered.requests += 1;
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_get_a_row_and_everything_else_is_fine() {
        let mut mysql = Mysql::new();
        let mut greeting = Vec::new();
        mysql.open(&mut greeting);
        assert_eq!(greeting.len(), HEADER_BYTES + usize::from(greeting[0]), "the header says how long it is");
        let mut session = false;
        let mut say = |body: &[u8], number: u8| {
            let (mut input, mut out) = (Vec::new(), Vec::new());
            packet(&mut input, number, body);
            let part = mysql.answer(&mut session, &input[..input.len() - 1], &mut out);
            assert_eq!((part, out.len()), (Answered::default(), 0));
            let answered = mysql.answer(&mut session, &input, &mut out);
            (answered.then, out)
        };
        assert_eq!(say(b"log-in", 1).1[..5], [7, 0, 0, 2, 0], "an OK packet after the client's");
        let (_, rows) = say(b"\x03SELECT c FROM sbtest1 WHERE id=5", 0);
        assert_eq!(rows[..5], [1, 0, 0, 1, 1], "one column");
        assert!(rows.windows(121).any(|part| part[0] == 120 && part[1..] == [b'x'; 120]));
        assert_eq!(say(b"\x03UPDATE sbtest1 SET k=k+1", 0).1, say(b"\x0e", 0).1);
        assert_eq!(say(b"\x16SELECT 1", 0).1[4..7], [0xff, 0x0f, 0x05]);
        assert_eq!(say(b"\x01", 0).0, Then::Close);
    }
}

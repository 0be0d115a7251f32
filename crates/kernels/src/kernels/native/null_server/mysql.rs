//! The answers to mysql clients: anybody may log in, and every query returns the same rows, as text
//! or in the encoding of prepared statements.
//!
//! MySQL Source Code Documentation, "Client/Server Protocol": packets, the connection phase with
//! protocol 4.1, text and binary result sets with EOF packets, prepared statements. A load
//! generator that prepares its statements does so here, so that it works as hard as against a
//! database.

use super::serve::{Answer, Answered, ConnectionAction};

/// Bytes before a packet: its length and its number.
const HEADER_BYTES: usize = 4;

/// The longest packet that is accepted.
const LONGEST_PACKET: usize = 1 << 20;

/// The most statements that a connection may prepare; they are forgotten when it closes.
const MOST_STATEMENTS: usize = 1 << 16;

/// Capabilities of the server: long passwords, found rows, long flags, a database at log-in,
/// protocol 4.1, transactions, secure authentication, multiple statements and results,
/// authentication plugins.
const CAPABILITIES: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000 | 0x8_0000;

/// utf8_general_ci.
const CHARACTER_SET: u8 = 33;

/// The status of every answer: each statement is its own transaction.
const AUTOCOMMIT: [u8; 2] = [2, 0];

/// Length of the column `c` of sysbench's tables.
const COLUMN_BYTES: u8 = 120;

/// Rows in a range query of sysbench (`--range-size`).
const RANGE_ROWS: usize = 100;

/// Type of a parameter that is still unknown.
const NULL: u8 = 0x06;

/// Type of a string of fixed length.
const STRING: u8 = 0xfe;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;

/// The answer to a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    /// A confirmation.
    Done,
    /// A row.
    Row,
    /// The rows of a range.
    Range,
}

/// Result sets in one of the two encodings.
struct Sets {
    row: Vec<u8>,
    range: Vec<u8>,
}

/// A database without tables.
pub(super) struct Mysql {
    text: Sets,
    binary: Sets,
    ok: Vec<u8>,
    too_many: Vec<u8>,
}

/// What is remembered of a connection.
#[derive(Default)]
pub(super) struct Session {
    logged_in: bool,
    /// The prepared statements; the number of the first is 1.
    prepared: Vec<Reply>,
}

impl Mysql {
    pub(super) fn new() -> Self {
        let value = [vec![COLUMN_BYTES], vec![b'x'; COLUMN_BYTES.into()]].concat();
        // A binary row begins with a zero, and with the bits of the columns that are null.
        let binary = [&[0, 0], value.as_slice()].concat();
        let mut ok = Vec::new();
        packet(&mut ok, 1, &ok_body());
        let mut too_many = Vec::new();
        // ER_MAX_PREPARED_STMT_COUNT_REACHED.
        packet(&mut too_many, 1, b"\xff\xb5\x05#42000Can't create more than 65536 prepared statements");
        Self { text: Sets::new(&value), binary: Sets::new(&binary), ok, too_many }
    }

    fn reply(&self, prepared: &mut Vec<Reply>, command: &[u8], out: &mut Vec<u8>) -> ConnectionAction {
        let Some((name, said)) = command.split_first() else { return ConnectionAction::Refuse };
        match *name {
            COM_QUIT => return ConnectionAction::Close,
            COM_QUERY => out.extend_from_slice(self.answer_to(&self.text, Reply::to(said))),
            COM_STMT_PREPARE if prepared.len() == MOST_STATEMENTS => out.extend_from_slice(&self.too_many),
            COM_STMT_PREPARE => {
                let reply = Reply::to(said);
                prepared.push(reply);
                put_prepared(out, prepared.len() as u32, said, reply);
            }
            COM_STMT_EXECUTE => {
                let Some(reply) = executed(prepared, said) else { return ConnectionAction::Refuse };
                out.extend_from_slice(self.answer_to(&self.binary, reply));
            }
            // These have no answer.
            COM_STMT_SEND_LONG_DATA | COM_STMT_CLOSE => {}
            _ => out.extend_from_slice(&self.ok),
        }
        ConnectionAction::Keep
    }

    fn answer_to<'s>(&'s self, sets: &'s Sets, reply: Reply) -> &'s [u8] {
        match reply {
            Reply::Done => &self.ok,
            Reply::Row => &sets.row,
            Reply::Range => &sets.range,
        }
    }
}

impl Reply {
    fn to(query: &[u8]) -> Self {
        let word = query.trim_ascii_start();
        let reads = [b"SELECT".as_slice(), b"SHOW"]
            .iter()
            .any(|read| word.get(..read.len()).is_some_and(|word| word.eq_ignore_ascii_case(read)));
        match reads {
            false => Self::Done,
            true if has(query, b" BETWEEN ") && !has(query, b" SUM(") => Self::Range,
            true => Self::Row,
        }
    }
}

fn has(query: &[u8], word: &[u8]) -> bool {
    query.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

impl Sets {
    /// Makes result sets in which every row is this one.
    fn new(row: &[u8]) -> Self {
        let of = |rows: usize| {
            let mut set = Vec::new();
            let (column, eof) = (column(STRING), eof_body());
            let rows = std::iter::repeat_n(row, rows);
            let head = [[1].as_slice(), &column, &eof];
            for (index, body) in head.into_iter().chain(rows).chain([eof.as_slice()]).enumerate() {
                packet(&mut set, (index as u8).wrapping_add(1), body);
            }
            set
        };
        Self { row: of(1), range: of(RANGE_ROWS) }
    }
}

/// The answer to the execution of a prepared statement, looked up by its number.
fn executed(prepared: &[Reply], said: &[u8]) -> Option<Reply> {
    let number = u32::from_le_bytes(*said.first_chunk()?);
    prepared.get((number as usize).checked_sub(1)?).copied()
}

/// Appends the confirmation of a prepared statement: its number, its columns, its parameters. Each
/// question mark is a parameter: the strings of load generators contain none.
fn put_prepared(out: &mut Vec<u8>, number: u32, query: &[u8], reply: Reply) {
    let columns = u16::from(reply != Reply::Done);
    let parameters = query.iter().filter(|byte| **byte == b'?').count() as u16;
    let mut head = vec![0];
    head.extend_from_slice(&number.to_le_bytes());
    head.extend_from_slice(&columns.to_le_bytes());
    head.extend_from_slice(&parameters.to_le_bytes());
    // No warnings.
    head.extend_from_slice(&[0; 3]);
    packet(out, 1, &head);
    let mut next = 2u8;
    for (definition, count) in [(column(NULL), parameters), (column(STRING), columns)] {
        let end = (count > 0).then(eof_body);
        for body in std::iter::repeat_n(definition, count.into()).chain(end) {
            packet(out, next, &body);
            next = next.wrapping_add(1);
        }
    }
}

/// The definition of a column or parameter.
fn column(kind: u8) -> Vec<u8> {
    let mut column = Vec::new();
    for text in ["def", "sbtest", "sbtest1", "sbtest1", "c", "c"] {
        column.push(text.len() as u8);
        column.extend_from_slice(text.as_bytes());
    }
    // Length of what follows, character set, length of the column, type, flags, decimals, two
    // zeros.
    column.extend_from_slice(&[0x0c, CHARACTER_SET, 0, COLUMN_BYTES, 0, 0, 0, kind, 0, 0, 0, 0, 0]);
    column
}

/// The body of a confirmation: no rows affected, no row inserted.
fn ok_body() -> Vec<u8> {
    [&[0, 0, 0], AUTOCOMMIT.as_slice(), &[0, 0]].concat()
}

/// The body that ends columns, parameters or rows.
fn eof_body() -> Vec<u8> {
    [&[0xfe, 0, 0], AUTOCOMMIT.as_slice()].concat()
}

fn packet(out: &mut Vec<u8>, number: u8, body: &[u8]) {
    out.extend_from_slice(&(body.len() as u32).to_le_bytes()[..3]);
    out.push(number);
    out.extend_from_slice(body);
}

impl Answer for Mysql {
    type Session = Session;

    fn open(&mut self, out: &mut Vec<u8>) {
        let mut greeting = vec![10];
        greeting.extend_from_slice(b"8.0.0-null\0");
        greeting.extend_from_slice(&1u32.to_le_bytes());
        // The salt for scrambling a password: 8 bytes here, 12 below, each part followed by a zero.
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

    fn answer(&mut self, session: &mut Session, input: &[u8], out: &mut Vec<u8>) -> Answered {
        let mut answered = Answered::default();
        while answered.then == ConnectionAction::Keep {
            let input = &input[answered.consumed..];
            let Some([first, second, third, number]) = input.first_chunk::<HEADER_BYTES>() else { break };
            let bytes = u32::from_le_bytes([*first, *second, *third, 0]) as usize;
            if bytes > LONGEST_PACKET {
                answered.then = ConnectionAction::Refuse;
                break;
            }
            let Some(body) = input[HEADER_BYTES..].get(..bytes) else { break };
            if session.logged_in {
                answered.then = self.reply(&mut session.prepared, body, out);
            } else {
                packet(out, number.wrapping_add(1), &ok_body());
                session.logged_in = true;
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

    /// One connection of a client.
    struct Client {
        mysql: Mysql,
        session: Session,
    }

    impl Client {
        fn new() -> Self {
            let mut client = Self { mysql: Mysql::new(), session: Session::default() };
            assert_eq!(client.say(b"log-in", 1).1[..5], [7, 0, 0, 2, 0], "an OK packet after the client's");
            client
        }

        /// The reply to a command. Checks that a part of the command gets no reply.
        fn say(&mut self, body: &[u8], number: u8) -> (ConnectionAction, Vec<u8>) {
            let (mut input, mut out) = (Vec::new(), Vec::new());
            packet(&mut input, number, body);
            let part = self.mysql.answer(&mut self.session, &input[..input.len() - 1], &mut out);
            assert_eq!((part, out.len()), (Answered::default(), 0));
            let answered = self.mysql.answer(&mut self.session, &input, &mut out);
            (answered.then, out)
        }

        /// The bodies of the reply's packets; their numbers count from 1.
        fn bodies(&mut self, command: &[u8]) -> Vec<Vec<u8>> {
            let (then, out) = self.say(command, 0);
            assert_eq!(then, ConnectionAction::Keep);
            let (mut rest, mut bodies) = (out.as_slice(), Vec::new());
            while let [first, second, third, number, after @ ..] = rest {
                assert_eq!(usize::from(*number), (bodies.len() + 1) % 256);
                let (body, next) = after.split_at(u32::from_le_bytes([*first, *second, *third, 0]) as usize);
                bodies.push(body.to_vec());
                rest = next;
            }
            assert!(rest.is_empty());
            bodies
        }
    }

    #[test]
    fn the_greeting_holds_its_own_length() {
        let mut greeting = Vec::new();
        Mysql::new().open(&mut greeting);
        assert_eq!(greeting.len(), HEADER_BYTES + usize::from(greeting[0]));
    }

    #[test]
    fn queries_get_rows_and_everything_else_is_fine() {
        let mut client = Client::new();
        let rows = client.bodies(b"\x03SELECT c FROM sbtest1 WHERE id=5");
        assert_eq!((rows.len(), rows[0].as_slice()), (5, [1].as_slice()), "one column, one row");
        assert!(rows[3].len() == 121 && rows[3][0] == 120 && rows[3][1..] == [b'x'; 120]);
        let range = client.bodies(b"\x03select c FROM sbtest1 WHERE id between 5 AND 104 ORDER BY c");
        assert_eq!(range.len(), RANGE_ROWS + 4);
        assert_eq!(client.bodies(b"\x03SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN 5 AND 104").len(), 5);
        assert_eq!(client.say(b"\x03UPDATE sbtest1 SET k=k+1", 0).1, client.say(b"\x0e", 0).1);
        assert_eq!(client.say(b"\x01", 0).0, ConnectionAction::Close);
    }

    #[test]
    fn statements_are_prepared_and_executed_by_their_numbers() {
        let mut client = Client::new();
        // Number 1, no column, two parameters and their end.
        let update = client.bodies(b"\x16UPDATE sbtest1 SET c=? WHERE id=?");
        assert_eq!((update.len(), &update[0][..9]), (4, [0, 1, 0, 0, 0, 0, 0, 2, 0].as_slice()));
        // Number 2, one column, two parameters, both with their ends.
        let range = client.bodies(b"\x16SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ?");
        assert_eq!((range.len(), &range[0][..9]), (6, [0, 2, 0, 0, 0, 1, 0, 2, 0].as_slice()));
        assert_eq!(client.bodies(b"\x16COMMIT").len(), 1);
        let rows = client.bodies(b"\x17\x02\0\0\0\0\x01\0\0\0");
        assert_eq!((rows.len(), &rows[3][..3]), (RANGE_ROWS + 4, [0, 0, 120].as_slice()));
        assert_eq!(client.bodies(b"\x17\x01\0\0\0\0\x01\0\0\0"), [ok_body()]);
        assert_eq!(
            client.say(b"\x19\x01\0\0\0", 0),
            (ConnectionAction::Keep, Vec::new()),
            "closing has no answer"
        );
        for unknown in [b"\x17\x04\0\0\0", b"\x17\0\0\0\0"] {
            assert_eq!(client.say(unknown, 0).0, ConnectionAction::Refuse);
        }
    }
}

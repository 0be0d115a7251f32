//! The protocol between the two ends of a transfer.
//!
//! A client begins every TCP connection with an order, which the server sends back. Over TCP the
//! messages follow on the same connection, in one direction, until the sender closes its side; a
//! server that received them then reports how many bytes arrived. Over UDP the connection stays
//! open for control: the sender reports on it how many messages it sent, and a server that received
//! reports how many arrived. Every message begins with its stamp.

/// Bytes of an order.
pub(super) const ORDER_BYTES: usize = 32;

/// Bytes of an account.
pub(super) const ACCOUNT_BYTES: usize = 32;

/// Bytes of the stamp of a message over TCP: its number.
pub(super) const NUMBER_BYTES: usize = 8;

/// Bytes of the stamp of a message over UDP: the token of its stream, and its number.
pub(super) const STAMP_BYTES: usize = 16;

/// One message in this many is checked: over TCP its stamp, over UDP its whole content.
pub(super) const SAMPLE: u64 = 16;

/// The byte that fills messages.
pub(super) const FILLER: u8 = 0x5a;

/// The number of a datagram that only shows its sender's address.
pub(super) const HELLO: u64 = u64::MAX;

/// Largest message over TCP: bounds what an order can make a server allocate.
pub(super) const LARGEST_MESSAGE: u64 = 64 << 20;

/// The payload of the largest IPv4 datagram.
pub(super) const LARGEST_DATAGRAM: u64 = 65_507;

/// The longest transfer, ns: an hour.
pub(super) const LONGEST_NS: u64 = 3_600_000_000_000;

const MAGIC: [u8; 8] = *b"wbbulk 1";

/// A client's order for one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) udp: bool,
    /// Whether the server receives.
    pub(super) to_server: bool,
    pub(super) message_bytes: u32,
    pub(super) duration_ns: u64,
    /// Distinguishes the stream from others over UDP.
    pub(super) token: u64,
}

impl Order {
    pub(super) fn to_bytes(self) -> [u8; ORDER_BYTES] {
        let mut bytes = [0; ORDER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8] = u8::from(self.udp);
        bytes[9] = u8::from(self.to_server);
        bytes[12..16].copy_from_slice(&self.message_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.duration_ns.to_le_bytes());
        bytes[24..].copy_from_slice(&self.token.to_le_bytes());
        bytes
    }

    /// Parses an order. `None` if it is malformed or cannot be carried out.
    pub(super) fn from_bytes(bytes: &[u8; ORDER_BYTES]) -> Option<Self> {
        let order = Self {
            udp: bytes[8] == 1,
            to_server: bytes[9] == 1,
            message_bytes: u32::from_le_bytes(bytes[12..16].try_into().ok()?),
            duration_ns: word(bytes, 16)?,
            token: word(bytes, 24)?,
        };
        let (least, most) =
            if order.udp { (STAMP_BYTES, LARGEST_DATAGRAM) } else { (NUMBER_BYTES, LARGEST_MESSAGE) };
        let fits = (least as u64..=most).contains(&u64::from(order.message_bytes));
        (bytes[..8] == MAGIC && fits && order.duration_ns <= LONGEST_NS).then_some(order)
    }

    /// A message without its number.
    pub(super) fn message(self) -> Vec<u8> {
        let mut message = vec![FILLER; self.message_bytes as usize];
        if self.udp {
            message[..8].copy_from_slice(&self.token.to_le_bytes());
        }
        message
    }

    /// Writes the number into the stamp.
    pub(super) fn number(self, message: &mut [u8], number: u64) {
        let first = if self.udp { 8 } else { 0 };
        message[first..first + 8].copy_from_slice(&number.to_le_bytes());
    }
}

/// What one end sent or received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) bytes: u64,
    /// Over UDP; over TCP the receiver cannot see where messages end.
    pub(super) messages: u64,
    /// Time from the first to the last byte.
    pub(super) elapsed_ns: u64,
    /// Messages with a wrong stamp or length.
    pub(super) wrong: u64,
}

impl Account {
    pub(super) fn to_bytes(self) -> [u8; ACCOUNT_BYTES] {
        let mut bytes = [0; ACCOUNT_BYTES];
        for (place, number) in
            bytes.chunks_exact_mut(8).zip([self.bytes, self.messages, self.elapsed_ns, self.wrong])
        {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; ACCOUNT_BYTES]) -> Self {
        let number = |at| word(bytes, at).unwrap_or(0);
        Self { bytes: number(0), messages: number(8), elapsed_ns: number(16), wrong: number(24) }
    }
}

/// The number at `at`, if there are enough bytes.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: Order =
        Order { udp: true, to_server: false, message_bytes: 1472, duration_ns: 5, token: 77 };

    #[test]
    fn orders_and_accounts_survive() {
        assert_eq!(Order::from_bytes(&ORDER.to_bytes()), Some(ORDER));
        let account = Account { bytes: 1, messages: 2, elapsed_ns: 3, wrong: u64::MAX };
        assert_eq!(Account::from_bytes(&account.to_bytes()), account);
    }

    #[test]
    fn impossible_orders_are_refused() {
        for order in [
            Order { message_bytes: 15, ..ORDER },
            Order { message_bytes: 65_508, ..ORDER },
            Order { message_bytes: u32::MAX, udp: false, ..ORDER },
            Order { duration_ns: u64::MAX, ..ORDER },
        ] {
            assert_eq!(Order::from_bytes(&order.to_bytes()), None, "{order:?}");
        }
        let mut other = ORDER.to_bytes();
        other[0] = b'W';
        assert_eq!(Order::from_bytes(&other), None);
    }
}

//! DNS messages with one question, as bytes (RFC 1035 §4). Reading and writing them costs little, so
//! that the generator and the name server take as little as possible of the shared processors.

use std::net::Ipv4Addr;

/// Longest message without extensions.
pub(super) const MESSAGE: usize = 512;
/// Network of the machines that have names. It is a public one, because names must not lead to others;
/// packets stay within the namespaces.
pub(super) const MACHINES: &str = "44.128.0.0/15";
/// First address in it that a machine has, and how many have one.
const FIRST: Ipv4Addr = Ipv4Addr::new(44, 128, 0, 1);
const ADDRESSES: u32 = (1 << 17) - 2;
/// Lifetime of answers in seconds.
const TTL: u32 = 60;

const HEADER: usize = 12;
/// Type and class of a question for IPv4 addresses.
const ADDRESS: [u8; 4] = [0, 1, 0, 1];
/// The name of the question, by its place (RFC 1035 §4.1.4).
const NAME_OF_QUESTION: [u8; 2] = [0xc0, 12];
/// In the first byte of the flags.
const RESPONSE: u8 = 0x80;
const RECURSION_DESIRED: u8 = 0x01;
/// In the second one.
const RECURSION_AVAILABLE: u8 = 0x80;
const CODE: u8 = 0x0f;
/// The code for a name that does not exist, with which sidecars refuse.
const NXDOMAIN: u8 = 3;

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There are addresses.
    Address,
    /// The name does not exist.
    Refused,
    /// Something else, such as a failure.
    Other,
}

/// Address of a machine.
pub(super) fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + number % ADDRESSES)
}

/// Writes a query for the addresses of a name.
pub(super) fn query(id: u16, name: &str, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&id.to_be_bytes());
    into.extend_from_slice(&[RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        // Names of the bench are short.
        into.push(u8::try_from(label.len()).unwrap_or_default());
        into.extend_from_slice(label.as_bytes());
    }
    into.push(0);
    into.extend_from_slice(&ADDRESS);
}

/// Writes the answer to a query: the address with the number that is in the first label of the
/// name. Returns whether there is one.
pub(super) fn answer(query: &[u8], into: &mut Vec<u8>) -> bool {
    let Some(end) = end_of_question(query) else {
        return false;
    };
    if query[2] & RESPONSE != 0 {
        return false;
    }
    let is_for_address = query[end - ADDRESS.len()..end] == ADDRESS;
    into.clear();
    into.extend_from_slice(&query[..2]);
    into.extend_from_slice(&[RESPONSE | RECURSION_DESIRED, RECURSION_AVAILABLE]);
    into.extend_from_slice(&[0, 1, 0, u8::from(is_for_address), 0, 0, 0, 0]);
    into.extend_from_slice(&query[HEADER..end]);
    if is_for_address {
        let number = number_in_label(&query[HEADER..end]);
        into.extend_from_slice(&NAME_OF_QUESTION);
        into.extend_from_slice(&ADDRESS);
        into.extend_from_slice(&TTL.to_be_bytes());
        into.extend_from_slice(&[0, 4]);
        into.extend_from_slice(&address(number).octets());
    }
    true
}

/// Identifier and outcome of an answer.
pub(super) fn outcome(answer: &[u8]) -> Option<(u16, Outcome)> {
    let header: &[u8; HEADER] = answer.first_chunk()?;
    if header[2] & RESPONSE == 0 {
        return None;
    }
    let answers = u16::from_be_bytes([header[6], header[7]]);
    let outcome = match (header[3] & CODE, answers) {
        (0, 1..) => Outcome::Address,
        (NXDOMAIN, _) => Outcome::Refused,
        _ => Outcome::Other,
    };
    Some((u16::from_be_bytes([header[0], header[1]]), outcome))
}

/// Where the question with its type and class ends.
fn end_of_question(message: &[u8]) -> Option<usize> {
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1 + length;
        if length == 0 {
            break;
        }
    }
    let end = at + ADDRESS.len();
    (end <= message.len()).then_some(end)
}

fn number_in_label(question: &[u8]) -> u32 {
    let length = usize::from(question[0]);
    let digits = question[1..=length].iter().filter(|it| it.is_ascii_digit());
    digits.fold(0, |number: u32, digit| {
        number
            .wrapping_mul(10)
            .wrapping_add(u32::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_answered_with_the_machine_in_its_name() {
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        query(4711, "n300.new.example", &mut asked);
        assert_eq!(outcome(&asked), None);
        assert!(answer(&asked, &mut answered));
        assert_eq!(outcome(&answered), Some((4711, Outcome::Address)));
        assert!(answered.ends_with(&[44, 128, 1, 45]));
        assert!(!answer(&answered, &mut asked));
    }

    #[test]
    fn other_types_have_no_address_and_cut_messages_no_answer() {
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        query(1, "n1.example", &mut asked);
        assert!(!answer(&asked[..asked.len() - 1], &mut answered));
        assert!(!answer(&asked[..5], &mut answered));
        let kind = asked.len() - 3;
        asked[kind] = 28;
        assert!(answer(&asked, &mut answered));
        assert_eq!(outcome(&answered), Some((1, Outcome::Other)));
        answered[3] |= NXDOMAIN;
        assert_eq!(outcome(&answered), Some((1, Outcome::Refused)));
        assert_eq!(outcome(&answered[..11]), None);
    }
}

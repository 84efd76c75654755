//! Ack ids: the subscription, the slot in it, and the lease. They are opaque to clients, and as
//! long as the service's, so that a request that is too large there is too large here.

const DIGITS: &[u8; 16] = b"0123456789abcdef";
const SERIAL: usize = 16;
const SLOT: usize = 8;
const LEASE: usize = 16;
/// How long the service's ack ids are.
const LENGTH: usize = 176;
/// The rest of an ack id says nothing.
const FILLER: &str = match std::str::from_utf8(&[b'_'; LENGTH - SERIAL - SLOT - LEASE]) {
    Ok(filler) => filler,
    Err(_) => "",
};

/// The content of an ack id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct AckId {
    /// The subscription's serial: an id of another subscription, or of an earlier one of the same
    /// name, does not match.
    pub(super) serial: u64,
    pub(super) slot: u32,
    /// The number of the lease in its subscription.
    pub(super) lease: u64,
}

impl AckId {
    pub(super) fn text(self) -> String {
        let mut text = String::with_capacity(LENGTH);
        push(&mut text, self.serial, SERIAL);
        push(&mut text, u64::from(self.slot), SLOT);
        push(&mut text, self.lease, LEASE);
        text.push_str(FILLER);
        text
    }

    /// `None` if no emulator issued it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let bytes = text.strip_suffix(FILLER)?.as_bytes();
        if bytes.len() != SERIAL + SLOT + LEASE {
            return None;
        }
        let (serial, rest) = bytes.split_at(SERIAL);
        let (slot, lease) = rest.split_at(SLOT);
        Some(Self { serial: read(serial)?, slot: u32::try_from(read(slot)?).ok()?, lease: read(lease)? })
    }
}

fn push(text: &mut String, number: u64, digits: usize) {
    for digit in (0..digits).rev() {
        text.push(char::from(DIGITS[(number >> (4 * digit)) as usize & 15]));
    }
}

fn read(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_id_is_read_as_it_was_written() {
        for id in [
            AckId { serial: 0, slot: 0, lease: 1 },
            AckId { serial: u64::MAX, slot: u32::MAX, lease: 0x0123_4567_89ab_cdef },
        ] {
            assert_eq!(AckId::parse(&id.text()), Some(id));
            assert_eq!(id.text().len(), 176);
        }
    }

    #[test]
    fn rejects_malformed_ack_ids() {
        let text = AckId { serial: 1, slot: 2, lease: 3 }.text();
        let short = text.trim_end_matches('_');
        for other in
            ["", "ack", short, &text[1..], &format!("{text}0"), &text.replace('3', "g"), &"é".repeat(88)]
        {
            assert_eq!(AckId::parse(other), None, "{other}");
        }
    }
}

//! The part of the protocol-buffer encoding that a profile needs: numbers, strings and messages, by
//! field number.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// Wire types.
const VARINT: u64 = 0;
const LENGTH: u64 = 2;

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A number. Readers take a missing field as 0.
    pub(super) fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3 | VARINT);
            self.varint(value);
        }
    }

    /// A packed list of numbers.
    pub(super) fn numbers(&mut self, field: u64, values: &[u64]) {
        let mut inner = Self::default();
        for value in values {
            inner.varint(*value);
        }
        self.bytes(field, &inner.0);
    }

    pub(super) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// Seven bits per byte, the lowest first; the highest bit means that more follow.
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn the_encoding_is_that_of_its_specification() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.into_bytes(), [0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.bytes(2, b"testing");
        assert_eq!(message.into_bytes(), b"\x12\x07testing");
        let mut message = Message::default();
        message.message(3, |inner| inner.number(1, 150));
        assert_eq!(message.into_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let mut message = Message::default();
        message.numbers(6, &[3, 270, 86942]);
        assert_eq!(
            message.into_bytes(),
            [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]
        );
        let mut message = Message::default();
        message.number(1, 0);
        assert_eq!(message.into_bytes(), [0_u8; 0]);
        let mut message = Message::default();
        message.number(1, u64::MAX);
        assert_eq!(message.into_bytes().len(), 11);
    }
}

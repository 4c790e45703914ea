//! Writes the wire format of protocol buffers. Pure.

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A text field.
    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A message in a field.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// An integer field.
    pub(super) fn varint(&mut self, field: u32, value: u64) {
        self.key(field, 0);
        self.raw_varint(value);
    }

    /// A field of eight bytes: double, fixed64 and sfixed64.
    pub(super) fn fixed(&mut self, field: u32, bytes: [u8; 8]) {
        self.key(field, 1);
        self.0.extend(bytes);
    }

    /// The bytes.
    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn key(&mut self, field: u32, wire_type: u32) {
        self.raw_varint(u64::from(field << 3 | wire_type));
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn fields_are_as_the_specification_says() {
        let mut message = Message::default();
        message.varint(1, 150);
        message.text(2, "testing");
        message.message(3, |inner| inner.varint(1, 1));
        message.fixed(4, 1.0_f64.to_le_bytes());
        let expected = [
            &[0x08, 0x96, 0x01, 0x12, 0x07][..],
            b"testing",
            &[0x1a, 0x02, 0x08, 0x01, 0x21, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ];
        assert_eq!(message.finish(), expected.concat());
    }
}

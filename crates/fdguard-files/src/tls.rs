//! TLS records, recognized by their first five bytes.

use std::fmt;

use serde::Serialize;

/// Length of a record's head.
pub const HEAD: usize = 5;
/// The largest record that any version allows: 2^14 bytes, plus 2048 for encryption overhead.
const LONGEST: u16 = 18_432;
/// An encrypted alert of TLS 1.3: two bytes, one for the true type, sixteen for the authentication
/// tag.
const ALERT_13: u16 = 19;

/// Content type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// 0x14.
    ChangeCipher,
    /// 0x15.
    Alert,
    /// 0x16.
    Handshake,
    /// 0x17: data, or anything at all in TLS 1.3.
    Data,
}

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TlsRecord {
    /// Content type.
    pub kind: Kind,
    /// Minor version byte: 1 is TLS 1.0, 3 is TLS 1.2 and 1.3.
    pub minor: u8,
    /// Bytes that follow its header.
    pub length: u16,
}

impl TlsRecord {
    /// Parses the record that starts here, if it looks like one.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [kind, 3, minor @ 0..=4, high, low, ..] = *bytes else {
            return None;
        };
        let kind = match kind {
            0x14 => Kind::ChangeCipher,
            0x15 => Kind::Alert,
            0x16 => Kind::Handshake,
            0x17 => Kind::Data,
            _ => return None,
        };
        let length = u16::from_be_bytes([high, low]);
        (1..=LONGEST).contains(&length).then_some(Self {
            kind,
            minor,
            length,
        })
    }

    /// All of its bytes, including the header.
    #[must_use]
    pub fn total(&self) -> u64 {
        HEAD as u64 + u64::from(self.length)
    }

    /// Whether it is an alert: a plain one, or one with the only length of an encrypted alert of
    /// TLS 1.3.
    #[must_use]
    pub fn is_alert(&self) -> bool {
        self.kind == Kind::Alert || self.is_alert_of_13()
    }

    fn is_alert_of_13(&self) -> bool {
        self.kind == Kind::Data && self.minor == 3 && self.length == ALERT_13
    }

    /// The version, as far as the record shows it.
    #[must_use]
    pub fn version(&self) -> &'static str {
        match (self.kind, self.minor) {
            _ if self.is_alert_of_13() => "TLS 1.3",
            (_, 0) => "SSL 3.0",
            (_, 1) => "TLS 1.0",
            (_, 2) => "TLS 1.1",
            (Kind::Alert, 3) => "TLS 1.2",
            (_, 3) => "TLS 1.2 or 1.3",
            _ => "TLS",
        }
    }

    /// What the program was doing when this record landed in a file. Pass the offset only if a
    /// stale descriptor was used from the start of the file; it allows a more precise answer.
    #[must_use]
    pub fn operation(&self, from_start: Option<u64>) -> &'static str {
        match (self.is_alert(), from_start) {
            (true, Some(0)) => {
                "the TLS library sent close_notify on a descriptor number that had been reused for this file"
            }
            (true, Some(at)) if at % 29 == 5 => {
                "the TLS library read five bytes of this file as if they came from its connection, found no TLS record and sent an alert"
            }
            (true, _) => {
                "the TLS library sent an alert on a descriptor number that had been reused for this file"
            }
            (false, _) if self.kind == Kind::Data => {
                "the program sent data on a connection whose descriptor number had been reused for this file"
            }
            (false, _) => {
                "the TLS library was in a handshake on a descriptor number that had been reused for this file"
            }
        }
    }
}

impl fmt::Display for TlsRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version();
        let total = self.total();
        match self.kind {
            _ if self.is_alert() => write!(f, "a {version} alert ({total} bytes)"),
            Kind::Data => write!(f, "a {version} data record ({total} bytes)"),
            Kind::Handshake => write!(f, "a {version} handshake record ({total} bytes)"),
            Kind::ChangeCipher => write!(f, "a {version} change-cipher record ({total} bytes)"),
            Kind::Alert => write!(f, "a {version} alert ({total} bytes)"),
        }
    }
}

/// Positions of records in the first bytes of a file that a stale number was used on: at the start,
/// or five bytes further for each read of a header, and then consecutively.
#[must_use]
pub fn at_start(bytes: &[u8]) -> Vec<(u64, TlsRecord)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= HEAD) {
        let near = [0, HEAD].into_iter().find_map(|step| {
            let record = TlsRecord::parse(rest.get(step..)?)?;
            Some((at + step, record))
        });
        let Some((offset, record)) = near else { break };
        found.push((offset as u64, record));
        at = offset + HEAD + usize::from(record.length);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Kind, TlsRecord, at_start};

    const ALERT: [u8; 5] = [0x17, 3, 3, 0, 0x13];

    #[test]
    fn r42_alerts_are_told_from_data_and_versions_from_each_other() {
        let alert = TlsRecord::parse(&ALERT).unwrap();
        assert_eq!(alert.to_string(), "a TLS 1.3 alert (24 bytes)");
        let old = TlsRecord::parse(&[0x15, 3, 3, 0, 0x1a]).unwrap();
        assert_eq!(old.to_string(), "a TLS 1.2 alert (31 bytes)");
        let data = TlsRecord::parse(&[0x17, 3, 3, 0x04, 0x11]).unwrap();
        assert!(!data.is_alert());
        assert_eq!(
            data.to_string(),
            "a TLS 1.2 or 1.3 data record (1046 bytes)"
        );
        assert_eq!(
            TlsRecord::parse(&[0x16, 3, 1, 2, 0]).unwrap().kind,
            Kind::Handshake
        );
    }

    #[test]
    fn what_only_begins_like_a_record_is_none() {
        for wrong in [
            &[0x17, 3, 5, 0, 1][..],
            &[0x18, 3, 3, 0, 1],
            &[0x17, 3, 3, 0, 0],
            &[0x17, 3, 3, 0x48, 0x01],
            &[0x17, 3, 3, 0],
            b"",
        ] {
            assert_eq!(TlsRecord::parse(wrong), None, "{wrong:?}");
        }
        assert!(TlsRecord::parse(&[0x17, 3, 3, 0x48, 0x00]).is_some());
    }

    #[test]
    fn r42_each_read_of_a_head_moves_the_next_alert_by_29() {
        let mut bytes = b"SQLite format 3\0".to_vec();
        bytes.resize(200, 0);
        for k in 0..3 {
            let at = 5 + 29 * k;
            bytes[at..at + 5].copy_from_slice(&ALERT);
        }
        let offsets: Vec<u64> = at_start(&bytes).iter().map(|(at, _)| *at).collect();
        assert_eq!(offsets, [5, 34, 63]);
        assert!(at_start(b"SQLite format 3\0").is_empty());
    }
}

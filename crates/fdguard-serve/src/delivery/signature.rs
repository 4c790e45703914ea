//! HMAC-SHA256 (RFC 2104) over the time and the body of a message.

use fdguard_core::hex;
use sha2::{Digest as _, Sha256};

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// The secret that a webhook shares with fdguard. It is never shown.
#[derive(Clone)]
pub struct WebhookSecret(Vec<u8>);

impl std::fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookSecret")
    }
}

impl WebhookSecret {
    /// White space around it does not count.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        let text = text.trim_ascii();
        if text.len() < 16 {
            return Err("the secret is too short: it needs at least 16 characters".to_owned());
        }
        Ok(Self(text.to_vec()))
    }

    /// The value of the header: `sha256=` and the digits. The receiver computes the same over
    /// `TIME.BODY`, and rejects old times.
    pub(crate) fn sign(&self, time: i64, body: &[u8]) -> String {
        let time = format!("{time}.");
        let mac = hmac(&self.0, &[time.as_bytes(), body]);
        format!("sha256={}", hex::encode(&mac))
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let mut inner = Sha256::new();
    inner.update(block.map(|byte| byte ^ 0x36));
    for part in parts {
        inner.update(part);
    }
    let mut outer = Sha256::new();
    outer.update(block.map(|byte| byte ^ 0x5c));
    outer.update(inner.finalize());
    outer.finalize().into()
}

#[cfg(test)]
mod tests {
    use fdguard_core::hex;

    use super::{WebhookSecret, hmac};

    #[test]
    fn the_test_cases_of_rfc_4231() {
        let long = [0xaa; 131];
        for (key, data, expected) in [
            (
                &[0x0b; 20][..],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &long,
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex::encode(&hmac(key, &[data])), expected);
            let (front, back) = data.split_at(3);
            assert_eq!(hex::encode(&hmac(key, &[front, back])), expected);
        }
    }

    #[test]
    fn a_signature_depends_on_secret_time_and_body_and_shows_none_of_them() {
        let secret = WebhookSecret::new(b"0123456789abcdef\n").unwrap();
        let other = WebhookSecret::new(b"0123456789abcdeF").unwrap();
        let signature = secret.sign(100, b"{}");
        assert!(signature.starts_with("sha256=") && signature.len() == 7 + 64);
        assert_ne!(signature, other.sign(100, b"{}"));
        assert_ne!(signature, secret.sign(101, b"{}"));
        assert_ne!(signature, secret.sign(100, b"{ }"));
        assert_eq!(format!("{secret:?}"), "WebhookSecret");
        assert!(WebhookSecret::new(b"short").is_err());
    }
}

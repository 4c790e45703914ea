//! Names that nobody guesses.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::Error;

/// 64 random bits in hex.
pub(super) fn random() -> Result<String, Error> {
    let mut bytes = [0; 8];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            // The kernel gives so few whole or not at all.
            Ok(_eight) => return Ok(format!("{:016x}", u64::from_ne_bytes(bytes))),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io("random bits")(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_are_sixteen_hex_digits_and_all_different() {
        let ids: std::collections::BTreeSet<String> =
            (0..1000).map(|_| super::random().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        let is_hex = |id: &String| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(ids.iter().all(is_hex));
    }
}

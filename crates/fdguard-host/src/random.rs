//! Unguessable names and secrets.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::Error;

/// 64 random bits in hex: a name.
pub(crate) fn id() -> Result<String, Error> {
    Ok(format!("{:016x}", u64::from_ne_bytes(bytes()?)))
}

/// 128 random bits in hex: a secret.
pub(crate) fn nonce() -> Result<String, Error> {
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes()?)))
}

fn bytes<const COUNT: usize>() -> Result<[u8; COUNT], Error> {
    let mut bytes = [0; COUNT];
    loop {
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            // The kernel returns so few bytes completely or not at all.
            Ok(_all) => return Ok(bytes),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::io("cannot read random bytes")(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_are_sixteen_hex_digits_and_all_different() {
        let ids: std::collections::BTreeSet<String> =
            (0..1000).map(|_| super::id().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        let is_hex = |id: &String| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(ids.iter().all(is_hex));
    }
}

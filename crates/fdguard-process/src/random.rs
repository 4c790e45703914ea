//! The random source of fdguard: the kernel's.

use std::io;

use fdguard_core::hex;
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes, at most 256: the kernel returns so few completely or not at all.
pub fn bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    const { assert!(COUNT <= 256) };
    let mut bytes = [0; COUNT];
    retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
    Ok(bytes)
}

/// 64 random bits in hexadecimal digits: a name.
pub fn id() -> io::Result<String> {
    Ok(hex::encode(&bytes::<8>()?))
}

/// 128 random bits in hexadecimal digits: a secret.
pub fn nonce() -> io::Result<String> {
    Ok(hex::encode(&bytes::<16>()?))
}

#[cfg(test)]
mod tests {
    use super::{id, nonce};

    #[test]
    fn ids_are_sixteen_hex_digits_and_all_different() {
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| id().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        let is_hex = |id: &String| id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(ids.iter().all(is_hex));
        assert_eq!(nonce().unwrap().len(), 32);
    }
}

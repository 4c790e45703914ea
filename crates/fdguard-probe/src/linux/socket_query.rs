//! Queries a socket: each function is one system call on a descriptor that fdguard owns.

#![expect(
    unsafe_code,
    reason = "no safe wrapper asks for raw options, raw addresses and the namespace of a socket"
)]

use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

/// `SIOCGSKNS`: a descriptor of the socket's network namespace.
const SIOCGSKNS: libc::c_ulong = 0x894c;
/// Linux 5.14: a number for the socket's network namespace, which needs no privilege.
const SO_NETNS_COOKIE: libc::c_int = 71;

/// The network namespace of the socket. Requires `CAP_NET_ADMIN` in it.
pub(super) fn namespace(socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: takes two numbers and touches no memory of this process.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    if result < 0 {
        return Err(last_error());
    }
    // SAFETY: the kernel just opened this number, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// The cookie of its network namespace: equal cookies are the same namespace.
pub(super) fn namespace_cookie(socket: BorrowedFd<'_>) -> Option<u64> {
    option(socket, libc::SOL_SOCKET, SO_NETNS_COOKIE).map(u64::from_ne_bytes)
}

/// The TCP state by its number in the kernel; absent for other protocols.
pub(super) fn tcp_state(socket: BorrowedFd<'_>) -> Option<u8> {
    // The state is the first byte of `struct tcp_info`, which the kernel truncates to the requested
    // length.
    let info: [u8; 1] = option(socket, libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Some(info[0])
}

/// A number from the socket layer: `SO_TYPE`, `SO_PROTOCOL`, `SO_ACCEPTCONN`.
pub(super) fn number(socket: BorrowedFd<'_>, name: libc::c_int) -> Option<u32> {
    option(socket, libc::SOL_SOCKET, name).map(u32::from_ne_bytes)
}

/// The address of this end, as the kernel lays it out.
pub(super) fn local_name(socket: BorrowedFd<'_>) -> Option<Vec<u8>> {
    name(|address, length| {
        // SAFETY: the kernel writes at most `length` bytes, the size of the buffer behind
        // `address`.
        unsafe { libc::getsockname(socket.as_raw_fd(), address, length) }
    })
}

/// The address of the other end, as the kernel lays it out; absent while there is none.
pub(super) fn remote_name(socket: BorrowedFd<'_>) -> Option<Vec<u8>> {
    name(|address, length| {
        // SAFETY: the kernel writes at most `length` bytes, the size of the buffer behind
        // `address`.
        unsafe { libc::getpeername(socket.as_raw_fd(), address, length) }
    })
}

fn name(
    call: impl Fn(*mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int,
) -> Option<Vec<u8>> {
    // `struct sockaddr_storage` with its alignment.
    let mut buffer = [0_u64; 16];
    let mut length: libc::socklen_t = 128;
    if call(buffer.as_mut_ptr().cast(), &raw mut length) != 0 {
        return None;
    }
    let mut bytes: Vec<u8> = buffer.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.truncate(usize::try_from(length).ok()?);
    Some(bytes)
}

/// An option of exactly this many bytes.
fn option<const N: usize>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> Option<[u8; N]> {
    let mut value = [0_u8; N];
    let mut length = libc::socklen_t::try_from(N).ok()?;
    // SAFETY: the kernel writes at most `length` bytes, the size of the array.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0 && usize::try_from(length) == Ok(N)).then_some(value)
}

fn last_error() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}

"""Class and target of a descriptor, with the names that `fdguard snap` uses."""

import os
import re
import socket
import stat
from typing import Tuple

from .look import Descriptor

TCP_STATES = (
    "ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT UNBOUND CLOSE_WAIT LAST_ACK LISTEN CLOSING".split()
)
# Kernel names of anonymous inodes that differ from the class name.
ANONYMOUS = {"perf_event": "perf-event"}
PLAIN = "eventpoll eventfd timerfd signalfd inotify fanotify pidfd io_uring bpf-map bpf-prog userfaultfd".split()
SQLITE_ENDINGS = (("-wal", "sqlite-wal"), ("-shm", "sqlite-shm"), ("-journal", "sqlite-journal"))


def name(one: Descriptor) -> Tuple[str, str]:
    """Class and target."""
    if one.link.startswith("anon_inode:"):
        return _anonymous(one.link), one.link
    if one.link.startswith("socket:"):
        return _socket(one)
    if one.link.startswith("pipe:"):
        return "pipe", one.link
    if one.link.startswith("/memfd:"):
        return "memfd", one.link
    try:
        mode = os.fstat(one.fd).st_mode
    except OSError:
        return "other:closed", one.link
    return _file(one, mode), one.link


def _anonymous(link: str) -> str:
    raw = link[len("anon_inode:") :].strip("[]")
    known = ANONYMOUS.get(raw, raw)
    return known if known in PLAIN or raw in ANONYMOUS else f"other:{raw}"


def _file(one: Descriptor, mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISFIFO(mode):
        return "fifo"
    if stat.S_ISBLK(mode):
        return "blockdev"
    if stat.S_ISCHR(mode):
        if one.link.endswith("/ptmx"):
            return "pty-master"
        return "tty" if re.match(r"/dev/(pts/|tty|console)", one.link) else "chardev"
    if not stat.S_ISREG(mode):
        return "pidfd" if one.link.startswith("pidfd:") else f"other:{one.link.partition(':')[0]}"
    if one.link.endswith(" (deleted)"):
        return "deleted"
    return _regular(one)


def _regular(one: Descriptor) -> str:
    for ending, known in SQLITE_ENDINGS:
        if one.link.endswith(ending):
            return known
    try:
        # Use its own descriptor: opening and closing the file again would drop the program's POSIX
        # locks.
        head = os.pread(one.fd, 16, 0)
    except OSError:
        return "regular"
    return "sqlite-db" if head == b"SQLite format 3\0" else "regular"


def _socket(one: Descriptor) -> Tuple[str, str]:
    try:
        borrowed = socket.socket(fileno=one.fd)
    except OSError:
        return "other:socket", one.link
    try:
        return _socket_class(borrowed), _ends(borrowed) or one.link
    finally:
        # The descriptor belongs to the test: keep it open.
        borrowed.detach()


def _socket_class(borrowed: socket.socket) -> str:
    family = borrowed.family
    if family == socket.AF_UNIX:
        return "unix"
    if family in (socket.AF_INET, socket.AF_INET6):
        if borrowed.type == socket.SOCK_STREAM:
            return f"tcp:{_tcp_state(borrowed)}"
        return "udp" if borrowed.type == socket.SOCK_DGRAM else "raw"
    named = {"AF_NETLINK": "netlink", "AF_PACKET": "packet", "AF_VSOCK": "vsock"}
    for attribute, known in named.items():
        if family == getattr(socket, attribute, None):
            return known
    return "other:socket"


def _tcp_state(borrowed: socket.socket) -> str:
    try:
        state = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return TCP_STATES[state - 1]
    except (OSError, IndexError):
        return "UNKNOWN"


def _ends(borrowed: socket.socket) -> str:
    """Both ends of an internet socket, the path of a unix one."""
    local = _address(borrowed.getsockname)
    remote = _address(borrowed.getpeername)
    return f"{local}->{remote}" if local and remote else local


def _address(ask) -> str:
    try:
        address = ask()
    except OSError:
        return ""
    if isinstance(address, bytes):
        return "@" + address.lstrip(b"\0").decode(errors="replace")
    if isinstance(address, str):
        return address
    if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[0], str):
        return ""
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

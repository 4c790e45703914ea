"""The warm interpreter: imports common modules, then forks a session for each request. It never runs a command and has one thread."""

import sys

_path, sys.path = sys.path, [entry for entry in sys.path if entry]  # Not from the host's current directory.
_USED = (
    "__future__ _ast array ast base64 bisect builtins code codecs collections contextlib copy csv dataclasses datetime decimal enum errno fcntl "
    "fnmatch functools gc glob hashlib heapq inspect io itertools json linecache locale math operator os pathlib pprint random re shlex shutil signal "
    "socket stat statistics string struct subprocess sys tempfile termios textwrap threading time tokenize traceback types typing urllib.parse uuid warnings"
).split()
for _name in _USED:
    try:
        __import__(_name)
    except ImportError:
        pass  # The interpreter lacks it, so sessions lack it, too.
sys.path = _path

import array
import atexit
import builtins
import fcntl
import gc
import io
import json
import os
import select
import signal
import socket
import termios
import threading
import time
import weakref

# Modules that the driver and the interpreter need: never replaced by a file in the session's
# directory.
_NEEDED = {"builtins", "codecs", "io", "os", "sys", "_ast", "__future__", "signal", "fcntl", "linecache", "types"}
_CONTROL, _PROGRAM = 3, 4
_HIGH = 64
_FDS = 5
_KEEPER = os.fsencode(sys.argv[2])


def _raised(fd):
    """A duplicate above the descriptor numbers that are handed out."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)


def _received(link):
    """The request (None if the other side is gone) and its descriptors."""
    text, ancillary, _, _ = link.recvmsg(1 << 20, socket.CMSG_SPACE(_FDS * array.array("i").itemsize), socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return text, fds


def _become_keeper(link, program, main):
    """Started by an exec in advance: it waits for its part of a request."""
    link, program = _raised(link), _raised(program)
    os.dup2(link, _CONTROL)
    os.dup2(program, _PROGRAM)
    os.execve(_KEEPER, [_KEEPER, b"__keeper", b"ahead", b"main=%d" % main], {})


def _stream(fd, mode, old, name, **more):
    new = io.open(fd, mode, encoding=old.encoding, newline="\n" if mode == "w" else None, closefd=False, **more)
    new.buffer.raw.name = name
    return new


def _streams():
    """Recreates the standard streams as at interpreter startup: a terminal is line-buffered."""
    sys.stdin = sys.__stdin__ = _stream(0, "r", sys.__stdin__, "<stdin>", errors=sys.__stdin__.errors)
    sys.stdout = sys.__stdout__ = _stream(1, "w", sys.__stdout__, "<stdout>", errors=sys.__stdout__.errors)
    sys.stderr = sys.__stderr__ = _stream(2, "w", sys.__stderr__, "<stderr>", errors="backslashreplace")
    sys.stderr.reconfigure(line_buffering=True)


def _environment(variables):
    os.environ.clear()
    for name, value in variables:
        os.environb[name.encode("latin-1")] = value.encode("latin-1")
    time.tzset()


def _forget_shadowed():
    """Forgets imported modules that a session in this directory would find there."""
    for name in _USED:
        if name not in _NEEDED and (os.path.exists(name + ".py") or os.path.isdir(name)):
            sys.modules.pop(name, None)


def _become_session(link, program):
    """Does everything that an exec of a new interpreter would do. Returns what failed, as `STEP ERRNO`."""
    step = "group"
    try:
        os.setsid()
        text, fds = _received(link)
        if not text:
            os._exit(0)
        request = json.loads(text)
        step = "descriptors"
        program, begun = kept = [_raised(program), _raised(link.detach())]
        given = [_raised(fd) for fd in fds]
        for number, fd in enumerate(given):
            os.dup2(fd, number)
        low = len(given)
        for high in [*sorted(kept), 1024]:
            os.closerange(low, high)
            low = high + 1
        if request["terminal"]:
            step = "terminal"
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        step = "folder"
        os.chdir(request["folder"].encode("latin-1"))
        step = "environment"
        _environment(request["environment"])
        _streams()
        _forget_shadowed()
        gc.enable()
    except OSError as error:
        os.write(program, b"%s %d\n" % (step.encode(), error.errno or 0))
        os._exit(1)
    os.write(program, b"ready\n")
    # No descendant starts before the keeper is the reaper of all orphans.
    if os.read(program, 1) != b"g":
        os._exit(1)
    os.close(program)
    os.close(begun)
    return request["ready"].encode()


def _forked_ahead(listener):
    """Forks a keeper, which forks a session; both wait for their part of a request. Gives our ends of the pairs with them, and in the
    session alone, later, none and what it says when it is ready."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    (_, keepers), (_, sessions) = pairs
    if os.fork() != 0:
        keepers.close()
        sessions.close()
        return [ours for ours, _ in pairs], None
    try:
        # Only the interpreter may hold these, so that waiters notice its end.
        for ours in [listener, *(ours for ours, _ in pairs)]:
            ours.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ours, theirs = socket.socketpair()
        main = os.fork()
        if main == 0:
            keepers.close()
            ours.close()
            return None, _become_session(sessions, theirs.detach())
        sessions.close()
        theirs.close()
        _become_keeper(keepers.detach(), ours.detach(), main)
    except BaseException:
        # On any error: neither of the two may continue and take requests.
        os._exit(127)


def _waits(link):
    """Whether the fork at the other end is running."""
    try:
        return link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _hand_over(text, fds, waiting):
    """Gives each of both its part. One that is gone is missed by the other, which then ends and says so. Gives the link that closes when the session begins."""
    keeper, session = waiting
    words, _, text = text.partition(b"\0\0")
    for link, part, given in (keeper, words, fds[:1]), (session, text, fds[1:]):
        try:
            link.sendmsg([part], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)])
        except OSError:
            pass
    keeper.close()
    return session


def _awaited(listener, starts):
    """The next request and its descriptors; None once the starting session has begun or has failed."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    if starts:
        poll.register(starts, select.POLLIN)
    if listener.fileno() not in dict(poll.poll()):
        return None, ()
    text, fds = _received(listener)
    if not text:
        os._exit(0)
    return text, fds


def _serve(listener):
    """Handles requests. In a session it returns the ready message."""
    # Keepers are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    text, fds, waiting, starts = None, (), None, None
    listener.send(b"ready")
    while True:
        if waiting and not all(map(_waits, waiting)):
            for link in waiting:
                link.close()
            waiting = None
        # Both are forked in advance, but not while a session is starting.
        if not waiting and (fds or not starts):
            try:
                waiting, ready = _forked_ahead(listener)
            except OSError:
                ready = None  # No process or memory available: the caller sees that its keeper is gone, and the next caller tries again.
            if ready is not None:
                return ready
        if fds and waiting:
            starts, waiting = _hand_over(text, fds, waiting), None
        for fd in fds:
            os.close(fd)
        text, fds = _awaited(listener, starts)
        if not fds:
            starts = None


def _take_apart(shared):
    """Ends the modules that the session made or imported: what their variables hold is finished, files are written."""
    own = [(name, weakref.ref(module)) for name, module in list(sys.modules.items()) if isinstance(module, type(sys)) and id(module) not in shared]
    for name, _ in own:
        del sys.modules[name]
    vars(builtins).pop("_", None)
    gc.collect()
    # Modules that are still referenced: a shared package, or a stored function.
    for _, module in own:
        if module() is not None:
            vars(module()).clear()
    gc.collect()


def _leave(code, shared):
    """Ends as an interpreter does, but takes only apart what the session made: for what it shares with us all that memory would be copied first."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        _take_apart(shared)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit((code or 0) & 0xFF)


_driver = {"__name__": "__fdguard__"}
exec(compile(sys.argv[1], "<session>", "exec"), _driver)
gc.disable()
gc.collect()
# What is here now is never looked at again by a session's collector, and so stays one memory for
# all.
gc.freeze()
_ready = _serve(socket.socket(fileno=_CONTROL))
_shared = {id(module) for module in sys.modules.values()}
try:
    _driver["_fdguard_drive"](_CONTROL, _ready)
except SystemExit as _end:
    _code = _end.code
    del _end
    _leave(_code, _shared)

"""The warm interpreter: imports what sessions often use, then forks a session for each request. It never runs a command and has one thread."""

import sys

_path, sys.path = sys.path, [entry for entry in sys.path if entry]  # Not from the folder that the host happens to be in.
_USED = (
    "__future__ _ast array ast base64 bisect builtins code codecs collections contextlib copy csv dataclasses datetime decimal enum errno fcntl "
    "fnmatch functools gc glob hashlib heapq inspect io itertools json linecache locale math operator os pathlib pprint random re shlex shutil signal "
    "socket stat statistics string struct subprocess sys tempfile termios textwrap threading time tokenize traceback types typing urllib.parse uuid warnings"
).split()
for _name in _USED:
    try:
        __import__(_name)
    except ImportError:
        pass  # An interpreter that lacks it: sessions miss it too.
sys.path = _path

import array
import atexit
import builtins
import fcntl
import gc
import io
import json
import os
import signal
import socket
import termios
import threading
import time
import weakref

# Never a file of the session's folder: what the driver and the interpreter themselves stand on.
_NEEDED = {"builtins", "codecs", "io", "os", "sys", "_ast", "__future__", "signal", "fcntl", "linecache", "types"}
_CONTROL, _PROGRAM = 3, 4
_HIGH = 64
_FDS = 5


def _raised(fd):
    """A copy out of the way of the numbers that are given out."""
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _HIGH)


def _become_keeper(request, control, program, main):
    control, program = _raised(control), _raised(program)
    os.dup2(control, _CONTROL)
    os.dup2(program, _PROGRAM)
    words = [word.encode("latin-1") for word in request["keeper"]]
    os.execve(words[0], words + [b"main=%d" % main], {})


def _stream(fd, mode, old, name, **more):
    new = io.open(fd, mode, encoding=old.encoding, newline="\n" if mode == "w" else None, closefd=False, **more)
    new.buffer.raw.name = name
    return new


def _streams():
    """As an interpreter makes them when it starts: a terminal is written line by line."""
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
    """A module that was imported here, and that a session in this folder would find there, is not imported yet."""
    for name in _USED:
        if name not in _NEEDED and (os.path.exists(name + ".py") or os.path.isdir(name)):
            sys.modules.pop(name, None)


def _become_session(request, fds, program):
    """Everything that an exec of a new interpreter would have done. Says what failed, as `STEP ERRNO`."""
    step = "group"
    try:
        os.setsid()
        step = "descriptors"
        program = _raised(program)
        given = [_raised(fd) for fd in fds]
        for number, fd in enumerate(given):
            os.dup2(fd, number)
        os.closerange(len(given), program)
        os.closerange(program + 1, 1024)
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
    # No descendant is born before the keeper is the parent of all orphans.
    if os.read(program, 1) != b"g":
        os._exit(1)
    os.close(program)
    return request["ready"].encode()


def _answer(request, fds, listener):
    """Forks the keeper, which forks the session. Returns in the session alone, with what it says when it is ready."""
    if os.fork() != 0:
        return None
    try:
        listener.detach()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        ours, theirs = (end.detach() for end in socket.socketpair())
        main = os.fork()
        if main == 0:
            return _become_session(request, fds[1:], theirs)
        os.close(theirs)
        _become_keeper(request, fds[0], ours, main)
    except BaseException:
        # Whatever went wrong: neither of both may go on and take requests.
        os._exit(127)


def _serve(listener):
    """Takes requests; returns in a session."""
    # Keepers are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    room = socket.CMSG_SPACE(_FDS * array.array("i").itemsize)
    listener.send(b"ready")
    while True:
        text, ancillary, _, _ = listener.recvmsg(1 << 20, room, socket.MSG_CMSG_CLOEXEC)
        if not text:
            os._exit(0)
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        ready = None
        if len(fds) == _FDS:
            ready = _answer(json.loads(text), fds, listener)
        if ready is not None:
            return ready
        for fd in fds:
            os.close(fd)


def _take_apart(shared):
    """Ends the modules that the session made or imported: what their variables hold is finished, files are written."""
    own = [(name, weakref.ref(module)) for name, module in list(sys.modules.items()) if isinstance(module, type(sys)) and id(module) not in shared]
    for name, _ in own:
        del sys.modules[name]
    vars(builtins).pop("_", None)
    gc.collect()
    # Those that somebody refers to still: a package that is shared, or a function that is kept.
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
# What is here now is never looked at again by a session's collector, and so stays one memory for all.
gc.freeze()
_ready = _serve(socket.socket(fileno=_CONTROL))
_shared = {id(module) for module in sys.modules.values()}
try:
    _driver["_fdguard_drive"](_CONTROL, _ready)
except SystemExit as _end:
    _code = _end.code
    del _end
    _leave(_code, _shared)

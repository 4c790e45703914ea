"""Driver of a Python session: takes commands from the side channel, runs them in one namespace, and reports their ends."""


def _fdguard_drive(channel, ready):
    import __future__
    import _ast
    import builtins
    import linecache
    import os
    import signal
    import sys
    # By their names here: a command may replace those that it finds.
    from builtins import compile, exec, isinstance, len, open, str, type
    from fcntl import F_DUPFD_CLOEXEC, fcntl
    from os import _exit, getcwdb, getpid, read, write
    # Not those of `signal`, which are Python and use what a command may replace.
    from _signal import SIGINT
    from _signal import signal as on_signal
    from types import ModuleType

    # High and not inherited: a program that closes or reuses number 3 does not cut us off. As high
    # as the limit of descriptors allows.
    side = channel
    os.set_inheritable(channel, False)
    for least in (64, 32, 16, 8):
        try:
            side = fcntl(channel, F_DUPFD_CLOEXEC, least)
        except OSError:
            continue
        os.close(channel)
        break
    me = getpid()
    module = ModuleType("__main__")
    module.__builtins__ = builtins
    sys.modules["__main__"] = module
    sys.argv = [""]
    known_flags = 0
    for name in __future__.all_feature_names:
        known_flags |= getattr(__future__, name).compiler_flag
    flags = 0
    number = 0

    def quiet(_signal, _frame):
        """Ignores an interrupt between commands."""

    def hang_up(_signal, _frame):
        raise SystemExit(129)

    handler = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, quiet)
    # Python's own handlers are forgotten by an exec: children get the default.
    signal.signal(signal.SIGQUIT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, hang_up)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")

    def flush():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass  # The command closed or replaced it.

    def tell(nonce, status):
        try:
            folder = getcwdb()
        except OSError:
            folder = b""
        if b"\n" in folder:
            folder = b""
        try:
            write(side, nonce + b" %d " % status + folder + b"\n")
        except OSError as error:
            write(2, b"the session channel was closed: %s\n" % str(error).encode())
            _exit(1)

    def receive():
        try:
            head = read(side, 40)
            text = read(side, 1 << 18)
        except OSError as error:
            write(2, b"the session channel was closed: %s\n" % str(error).encode())
            _exit(1)
        if not head:
            _exit(1)
        if head[32:33] == b"f":
            with open(text, "rb") as file:
                text = file.read()
        return head[:32], text

    def shown(error):
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file_name__:
            trace = trace.tb_next
        error = error.with_traceback(trace)
        if sys.excepthook is sys.__excepthook__:
            # The built-in one of older versions knows no source but files.
            import traceback

            traceback.print_exception(type(error), error, trace)
        else:
            sys.excepthook(type(error), error, trace)

    def show(error):
        try:
            shown(error)
        except Exception:
            # The command closed or replaced what shows it.
            try:
                write(2, b"%s: the traceback cannot be shown\n" % type(error).__name__.encode())
            except OSError:
                pass

    def parts(text, name):
        """The statements, and the last expression, whose value is shown."""
        nonlocal flags
        tree = compile(text, name, "exec", _ast.PyCF_ONLY_AST | flags, True)
        last = None
        if tree.body and isinstance(tree.body[-1], _ast.Expr):
            last = _ast.Interactive([tree.body.pop()])
        for part, mode in ((tree, "exec"), (last, "single")):
            if part is not None and part.body:
                code = compile(part, name, mode, flags, True)
                flags |= code.co_flags & known_flags
                yield code

    def remember(name, source):
        """Makes the source lines of commands available to tracebacks."""
        try:
            linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        except Exception:
            pass  # The command replaced it.

    def run(text):
        nonlocal number
        number += 1
        name = "<command-%d>" % number
        try:
            source = text.decode()
            remember(name, source)
            for code in parts(source, name):
                exec(code, module.__dict__)
        except SystemExit:
            raise
        except BaseException as error:
            show(error)
            return 1
        return 0

    def calm():
        """Ignores interrupts from here on; the commands' handler is kept for the next command."""
        nonlocal handler
        while True:
            try:
                previous = on_signal(SIGINT, quiet)
                break
            except KeyboardInterrupt:
                pass
        if previous is not quiet:
            handler = previous

    def guarded(text):
        """Runs a command with the commands' interrupt handler; an interrupt at any moment ends only the command."""
        status = 1
        try:
            on_signal(SIGINT, handler)
            status = run(text)
        except KeyboardInterrupt as error:
            calm()
            show(error)
        return status

    tell(ready, 0)
    while True:
        nonce, text = receive()
        try:
            status = guarded(text)
        except KeyboardInterrupt:
            status = 1
        finally:
            calm()
        if getpid() != me:
            # A child that the command forked came back here: its command is over, and the loop is
            # not its own.
            flush()
            _exit(status)
        flush()
        tell(nonce, status)


__file_name__ = _fdguard_drive.__code__.co_filename

"""Calls the walk from every kind of Python code and compares with what Python itself says.

    cases.py LIBRARY            run all cases, with and without the GIL
    cases.py LIBRARY cost       print what a walk costs
    cases.py LIBRARY refusal    print the number of the refusal
    cases.py LIBRARY daemons    end while daemon threads walk
"""

import asyncio
import concurrent.futures
import contextlib
import ctypes
import functools
import os
import signal
import sys
import threading

ROOM = 1 << 18
DEPTH = 64
LIBRARIES = {"with the GIL": ctypes.PyDLL(sys.argv[1]), "without the GIL": ctypes.CDLL(sys.argv[1])}
for library in LIBRARIES.values():
    library.fdguard_walk_test.argtypes = [ctypes.c_char_p] + [ctypes.c_size_t] * 3
    library.fdguard_walk_test.restype = ctypes.c_ssize_t
    library.fdguard_hash.restype = ctypes.c_uint64
    library.fdguard_cost.argtypes = [ctypes.c_int, ctypes.c_uint64]
    library.fdguard_cost.restype = ctypes.c_uint64
    library.fdguard_version.restype = ctypes.c_long
    library.fdguard_signals.restype = ctypes.c_uint64
LIBRARY = LIBRARIES["with the GIL"]
looks = 0


def utf8(text):
    return text.encode("utf-8", "surrogateescape")


def oracle(frame):
    frames = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        frames.append((utf8(code.co_filename), utf8(name), frame.f_lineno or 0, code.co_firstlineno))
        frame = frame.f_back
    return frames


def decode(buffer, length):
    if length < 0:
        raise AssertionError(f"walk answered {length}")
    flags, *rest = buffer.raw[:length].split(b"\0")
    assert rest.pop() == b""
    frames = [tuple(rest[i : i + 4]) for i in range(0, len(rest), 4)]
    return flags.decode(), [(f, n, int(line), int(first)) for f, n, line, first in frames]


def check(buffer, length, want, depth=DEPTH):
    global looks
    looks += 1
    flags, got = decode(buffer, length)
    expected = "100" if len(want) > depth else "000"
    if got != want[:depth] or flags != expected:
        lines = [f"flags {flags}, expected {expected}"]
        for i in range(max(len(got), len(want[:depth]))):
            g, w = (side[i] if i < len(side) else None for side in (got, want))
            lines.append(f"  {'ok ' if g == w else '!! '} got {g}\n      want {w}")
        raise AssertionError("\n".join(lines))


def look(*_):
    buffer = ctypes.create_string_buffer(ROOM)
    length, want = LIBRARY.fdguard_walk_test(buffer, ROOM, DEPTH, ROOM), oracle(sys._getframe())
    check(buffer, length, want)
    return 1


# The cases. Each calls look at least once.


def nested():
    def inner():
        def innermost():
            return look()

        return innermost()

    return inner()


def over_several_lines():
    return look(
        1,
        look(
            2,
        ),
        [
            3
        ],
    )


def lambdas():
    return (lambda: (lambda x: look(x))(1))()


def comprehensions():
    assert [look() for _ in range(2)] == [1, 1]
    assert {i: look() for i in range(2)} == {0: 1, 1: 1}
    assert {look() for _ in range(2)} == {1}
    assert [[look() for _ in range(2)] for _ in range(2)]


def generators():
    def numbers():
        look()
        yield 1
        look()
        yield from others()

    def others():
        yield look()
        try:
            yield 3
        finally:
            look()

    assert list(numbers()) == [1, 1, 3]
    half = numbers()
    next(half), next(half), next(half)
    half.close()
    assert sum(look() for _ in range(3)) == 3
    assert max(map(look, (x for x in (look(), look())))) == 1


def coroutines():
    async def deep(n):
        if n:
            await deep(n - 1)
            await asyncio.sleep(0)
            return look()
        return look()

    async def numbers():
        for i in range(2):
            look()
            yield i
            await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def context():
        look()
        yield
        look()

    async def main():
        await deep(5)
        await asyncio.gather(deep(2), deep(3))
        assert [i async for i in numbers() if look()] == [0, 1]
        async for _ in numbers():
            look()
        async with context():
            look()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, look)
        done = loop.create_future()
        loop.call_soon(lambda: done.set_result(look()))
        await done
        await asyncio.wait_for(deep(3), 10)

    asyncio.run(main())


def decorators():
    def twice(function):
        @functools.wraps(function)
        def wrapper(*args):
            function(*args)
            return function(*args)

        return wrapper

    @twice
    @functools.lru_cache(maxsize=0)
    def decorated(x):
        return look(x)

    decorated(1)

    @look_at
    def at_definition():
        pass


def look_at(function):
    look()
    return function


def classes():
    class Meta(type):
        def __new__(cls, name, bases, names):
            look()
            return super().__new__(cls, name, bases, names)

    class Outer(metaclass=Meta):
        look()

        class Inner:
            found = look()

            def __init__(self):
                look()

            @property
            def value(self):
                return look()

            @staticmethod
            def static():
                return look()

            @classmethod
            def made(cls):
                look()
                return cls()

            def __len__(self):
                return look()

            def __lt__(self, other):
                look()
                return False

            def __getattr__(self, name):
                return look()

            def __del__(self):
                look()

    inner = Outer.Inner.made()
    inner.value, inner.static(), len(inner), inner.missing
    sorted([inner, Outer.Inner()])


def executed():
    text = "def f():\n\n    return look()\n\nf()\nx = [\n    f()\n    for _ in range(2)]\n"
    exec(compile(text, "/no/such/file.py", "exec"), {"look": look})
    eval(compile("look()", "<eval>", "eval"), {"look": look})
    exec("look()")
    exec(compile("look()", "", "exec"), {"look": look})


def statements():
    with contextlib.ExitStack() as stack:
        stack.callback(look)
        look()
    try:
        try:
            look()
            raise ValueError
        except ValueError:
            look()
            raise KeyError
        finally:
            look()
    except KeyError as error:
        assert look()
    for i in range(
        look() + 1
    ):
        while look():
            if (look() and
                    look()):
                break
    assert look(), look()
    x = (look()
         + look()
         + look())
    f"{look()} {look()!r}"
    y = {
        "a": look(),
        "b": look(
        ),
    }
    del x, y


def names():
    space = {"look": look}
    for file in ["/tmp/é.py", "/tmp/Ω.py", "/tmp/日本.py", "/tmp/😀.py", "/tmp/\udcff\udc80.py", "/tmp/" + "x" * 3000]:
        for name in ["f", "é", "µ", "Ωmega", "日本", "𝔘", "n" * 900]:
            exec(compile(f"def {name}():\n  return look()\n{name}()", file, "exec"), space)

    class Text(str):
        pass

    for file in ["/tmp/ascii.py", "/tmp/é.py", "/tmp/日本.py", "/tmp/😀.py"]:
        exec(compile("look()", "x", "exec").replace(co_filename=Text(file)), space)


def too_long_names_are_cut():
    buffer = ctypes.create_string_buffer(ROOM)
    space = {"walk": lambda: LIBRARY.fdguard_walk_test(buffer, ROOM, DEPTH, ROOM)}
    exec(compile("n = walk()", "é" * 5000, "exec"), space)
    _, got = decode(buffer, space["n"])
    assert got[1][0] == "é".encode() * 2048, got[1]


def long_functions():
    for count in [10, 300, 5000]:
        lines = ["def f(x=0):"]
        for i in range(count):
            lines += [f"    x = (x + {i}) & 255", ""] if i % 3 else ["    y = [x,", "         x]"]
            if i % (count // 5) == 0:
                lines.append("    look()")
        lines += [""] * 300 + ["    return look()", "f()"]
        exec(compile("\n".join(lines), f"/tmp/long{count}.py", "exec"), {"look": look})
    far = "\n" * 70_000 + "def f():\n" + "\n" * 1000 + "    look()\n" + "\n" * 9000 + "    look()\nf()"
    exec(compile(far, "/tmp/far.py", "exec"), {"look": look})


def recursion():
    def down(n):
        return down(n - 1) if n else look()

    for depth in [1, 10, 50, 60, 61, 62, 63, 64, 65, 300]:
        down(depth)

    def through_c(n):
        return next(map(through_c, [n - 1])) if n else look()

    for depth in [1, 50, 60, 61, 62, 63, 64, 65, 200]:
        through_c(depth)

    def by_generators(n):
        yield from by_generators(n - 1) if n else [look()]

    for depth in [1, 60, 61, 62, 63, 64, 65, 200]:
        list(by_generators(depth))


def other_depths():
    buffer = ctypes.create_string_buffer(ROOM)
    for depth in range(1, 9):
        length, want = LIBRARY.fdguard_walk_test(buffer, ROOM, depth, ROOM), oracle(sys._getframe())
        check(buffer, length, want, depth)
    flags, got = decode(buffer, LIBRARY.fdguard_walk_test(buffer, ROOM, 0, ROOM))
    assert (flags, got) == ("100", [])


def small_arenas():
    buffer = ctypes.create_string_buffer(ROOM)
    shown = set()
    for arena in range(4, 600):
        length, want = LIBRARY.fdguard_walk_test(buffer, ROOM, DEPTH, arena), oracle(sys._getframe())
        flags, got = decode(buffer, length)
        assert got == want[: len(got)], arena
        assert flags == ("000" if len(got) == len(want) else "001"), arena
        shown.add(len(got))
    assert 0 in shown and len(shown) > 1
    assert LIBRARY.fdguard_walk_test(buffer, ROOM, DEPTH, 3) == -101


def threads():
    failures = []

    def guarded():
        try:
            for _ in range(5):
                nested(), generators(), classes()
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=guarded) for _ in range(4)]
    [thread.start() for thread in started]
    [thread.join() for thread in started]
    assert not failures, failures
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert list(pool.map(look, range(20))) == [1] * 20


def hammering():
    """Two threads that walk while the others' code is made and dropped."""
    failures = []

    def hammer(mark):
        try:
            for i in range(300):
                name = f"f_{mark}_{i}"
                text = "\n" * (i % 50) + f"def {name}():\n    return [look() for _ in range(2)]\n{name}()"
                exec(compile(text, f"/tmp/{mark}/{i}.py", "exec"), {"look": look})
        except BaseException as error:
            failures.append(error)

    started = [threading.Thread(target=hammer, args=(mark,)) for mark in "ab"]
    [thread.start() for thread in started]
    [thread.join() for thread in started]
    assert not failures, failures


def signals():
    """Python's handlers run between instructions, here in deep recursion."""
    seen = []

    def handler(number, frame):
        seen.append(look())
        # One at a time: a look may take longer than the timer, and handlers would nest.
        signal.setitimer(signal.ITIMER_REAL, 0.002)

    def down(n):
        return down(n - 1) + 1 if n else 0

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    while len(seen) < 20:
        down(200)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def signals_in_c():
    """A handler in C comes anywhere, also where a frame is being pushed: it must not crash."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    handler = ctypes.cast(LIBRARY.fdguard_on_signal, ctypes.c_void_p)
    libc.signal(signal.SIGPROF, handler)

    def down(n):
        return (sum([down(i) for i in (n - 1,)]) if n % 3 else max(map(down, (n - 1,)))) + 1 if n else 0

    # The program goes on between two signals, however long the handler takes on this machine.
    pause = max(0.0002, 3e-9 * deep_walk(100))
    # The kernel looks at this timer at each tick; the real-time one comes as often as asked.
    libc.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_PROF, max(0.0005, pause), max(0.0005, pause))
    signal.setitimer(signal.ITIMER_REAL, pause, pause)
    goal = LIBRARY.fdguard_signals(0) + 3000
    while LIBRARY.fdguard_signals(0) < goal:
        down(100), list(x for x in range(100)), class_of(3)
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    libc.signal(signal.SIGPROF, None)
    libc.signal(signal.SIGALRM, None)


def deep_walk(n):
    """What a walk with rendering takes at this depth, in nanoseconds."""
    return deep_walk(n - 1) if n else LIBRARY.fdguard_cost(1, 20) / 20


def class_of(n):
    return type("T", (), {"f": lambda self: n})().f()


def traced():
    """Under a trace function lines come from elsewhere in Python; here they do not."""
    seen = []

    def trace(frame, event, argument):
        if event == "line" and frame.f_code is statements.__code__:
            seen.append(event)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        statements()
    finally:
        sys.settrace(before)
    assert seen


def profiled():
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        nested(), generators(), statements()
    finally:
        sys.setprofile(before)


def hashes():
    def here():
        return LIBRARY.fdguard_hash()

    same = {here() for _ in range(100)}
    assert len(same) == 1, same
    assert here() != here(), "two places of one line"
    assert 0 not in same

    def other():
        return LIBRARY.fdguard_hash()

    assert len({here(), other(), here(), (lambda: here())()}) == 4


def forked():
    child = os.fork()
    if child == 0:
        try:
            nested(), threads()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def subinterpreters():
    """What runs in one is shown from 3.12 on; before, what entered it."""
    try:
        import _interpreters as module
    except ImportError:
        try:
            import _xxsubinterpreters as module
        except ImportError:
            print("skip subinterpreters: no module for them", file=sys.stderr)
            return
    text = (
        "import ctypes\n"
        f"lib = ctypes.{type(LIBRARY).__name__}({sys.argv[1]!r})\n"
        "lib.fdguard_walk_test.restype = ctypes.c_ssize_t\n"
        "buffer = ctypes.create_string_buffer(1 << 18)\n"
        "def inside():\n"
        "    return lib.fdguard_walk_test(buffer, ctypes.c_size_t(1 << 18), ctypes.c_size_t(64), ctypes.c_size_t(1 << 18))\n"
        "n = inside()\n"
        "fields = buffer.raw[:n].split(b'\\0')[1:]\n"
        "import os\n"
        "os.write(PIPE, repr(fields[1::4]).encode())\n"
    )
    reader, writer = os.pipe()
    # One that shares the GIL: ctypes refuses others.
    made = module.create("legacy") if sys.version_info >= (3, 13) else module.create(isolated=False)
    module.run_string(made, text.replace("PIPE", str(writer)))
    os.close(writer)
    said = eval(os.read(reader, 1 << 16))
    os.close(reader)
    module.destroy(made)
    if sys.version_info >= (3, 12):
        assert said == [b"inside", b"<module>"], said
    else:
        assert said[0] == b"subinterpreters" and said[-1] == b"<module>", said


def thread_without_python():
    """A thread of C that has never seen Python."""
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    answer = ctypes.c_void_p()
    function = ctypes.cast(LIBRARY.fdguard_hash, ctypes.c_void_p)
    assert libc.pthread_create(ctypes.byref(thread), None, function, None) == 0
    assert libc.pthread_join(thread, ctypes.byref(answer)) == 0
    assert answer.value is None


def callbacks():
    """Python called by C called by Python, in this thread and in one that C has made."""
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    failures = []

    def called(_):
        try:
            nested()
        except BaseException as error:
            failures.append(error)
        return None

    callback = kind(called)
    callback(None)
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    assert libc.pthread_create(ctypes.byref(thread), None, callback, None) == 0
    assert libc.pthread_join(thread, None) == 0
    assert not failures, failures


CASES = [
    nested,
    over_several_lines,
    lambdas,
    comprehensions,
    generators,
    coroutines,
    decorators,
    classes,
    executed,
    statements,
    names,
    too_long_names_are_cut,
    long_functions,
    recursion,
    other_depths,
    small_arenas,
    threads,
    hammering,
    signals,
    signals_in_c,
    traced,
    profiled,
    hashes,
    forked,
    subinterpreters,
    thread_without_python,
    callbacks,
]


def cost():
    def down(n, what, times):
        return down(n - 1, what, times) if n else LIBRARY.fdguard_cost(what, times)

    here = len(oracle(sys._getframe()))
    for _ in range(3):
        for depth in [here + 1, 10, 30, 60]:
            walk, both = (
                min(down(depth - here - 1, what, times) for _ in range(5)) / times
                for what, times in ((0, 20_000), (1, 2_000))
            )
            print(f"depth {depth:2}: walk {walk:6.0f} ns, with rendering {both:7.0f} ns", flush=True)
    print(f"one process_vm_readv {LIBRARY.fdguard_cost(2, 20_000) / 20_000:.0f} ns")


def daemons():
    """They stay in C, so nothing tells them that the interpreter is going, or gone."""

    def forever(n):
        return forever(n - 1) if n else LIBRARIES["without the GIL"].fdguard_cost(0, 1 << 40)

    for n in range(3):
        threading.Thread(target=forever, args=(n * 20,), daemon=True).start()
    nested(), names(), coroutines()


def main():
    global LIBRARY
    version = LIBRARY.fdguard_version()
    assert version == sys.hexversion or version | 0xFF == sys.hexversion | 0xFF, hex(version)
    failed = 0
    for way, LIBRARY in LIBRARIES.items():
        for case in CASES:
            try:
                case()
            except BaseException as error:
                failed += 1
                print(f"FAILED {case.__name__} {way}: {type(error).__name__}: {error}", flush=True)
    broken = LIBRARY.fdguard_signals(1)
    print(f"{looks} looks, {len(CASES)} cases, {failed} failed; {broken} of 6000 signals in C ended early")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[2:] == ["cost"]:
        cost()
    elif sys.argv[2:] == ["refusal"]:
        print(LIBRARY.fdguard_refusal())
    elif sys.argv[2:] == ["daemons"]:
        daemons()
    else:
        # Module level, on a line of its own.
        look(); look()
        sys.exit(main())

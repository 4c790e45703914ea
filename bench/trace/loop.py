"""Opens a file or a socket and closes it, so many times; says how much processor time that took, in nanoseconds.
With `-` it reads numbers from its input and does that for each."""
import os, socket, sys, time


def a_file():
    open("/dev/null", "rb", buffering=0).close()


def a_socket():
    socket.socket().close()


def work(count):
    for turn in range(count):
        if turn % 2:
            a_file()
        else:
            a_socket()


def spend(count):
    before = time.process_time_ns()
    work(count)
    print("SPENT", time.process_time_ns() - before, file=sys.stderr, flush=True)


work(100)
if sys.argv[1] == "-":
    print("READY", os.getpid(), 0, file=sys.stderr, flush=True)
    for line in sys.stdin:
        spend(int(line))
else:
    spend(int(sys.argv[1]))

"""Opens a file or a socket and closes it, so many times; says how much processor time that took, in nanoseconds."""
import socket, sys, time


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


work(100)
before = time.process_time_ns()
work(int(sys.argv[1]))
print("SPENT", time.process_time_ns() - before, file=sys.stderr)

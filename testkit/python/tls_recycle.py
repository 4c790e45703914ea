"""A worker waits in SSLSocket.recv, a stranger closes its socket, SQLite opens its file at that number, and the peer sends something:
OpenSSL then reads the database, takes it for a broken record, and writes its alert into it. Every step waits for the one before.

    tls_recycle.py FOLDER     prints INTACT or CORRUPT, and what the worker saw
"""
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading

FOLDER = sys.argv[1]
BOARD = os.path.join(FOLDER, "board.db")
KEY, CERTIFICATE = (os.path.join(FOLDER, name) for name in ("key.pem", "certificate.pem"))
POLL, PPOLL = "7 ", "271 "


def certificate():
    if not os.path.exists(CERTIFICATE):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-keyout", KEY, "-out", CERTIFICATE],
            check=True, stderr=subprocess.DEVNULL, close_fds=True,
        )


def serve(listener, go):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True) as connection:
        connection.sendall(b"hello")
        go.wait()
        try:
            connection.sendall(b"something")
            connection.recv(1)
        except OSError:
            pass


def connect(address):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = context.wrap_socket(socket.create_connection(address))
    connection.settimeout(60)
    while connection.recv(5) != b"hello":
        pass
    return connection


def work(connection, saw):
    saw.append(threading.get_native_id())
    try:
        saw.append(f"{len(connection.recv(100))} bytes")
    except (OSError, ValueError) as error:
        saw.append(type(error).__name__)


def wait_until_polling(saw):
    while True:
        if saw:
            with open(f"/proc/self/task/{saw[0]}/syscall") as file:
                if file.read().startswith((POLL, PPOLL)):
                    return


def fill_holes(below):
    """The next number that is given out is not below this one."""
    while (fd := os.open("/dev/null", os.O_RDONLY)) < below:
        pass
    os.close(fd)


def main():
    certificate()
    with sqlite3.connect(BOARD) as new:
        new.execute("CREATE TABLE task(id INTEGER PRIMARY KEY, title TEXT)")
        new.executemany("INSERT INTO task(title) VALUES (?)", [(f"task {n}",) for n in range(50)])
    new.close()
    listener = socket.create_server(("127.0.0.1", 0))
    go = threading.Event()
    server = threading.Thread(target=serve, args=(listener, go))
    server.start()
    connection, saw = connect(listener.getsockname()), []
    number = connection.fileno()
    worker = threading.Thread(target=work, args=(connection, saw))
    worker.start()
    wait_until_polling(saw)
    fill_holes(number)
    connection.close()
    board = sqlite3.connect(BOARD)
    board.execute("SELECT count(*) FROM task").fetchone()
    go.set()
    worker.join()
    server.join()
    board.close()
    with open(BOARD, "rb") as file:
        head = file.read(29)
    is_intact = head.startswith(b"SQLite format 3\0")
    if is_intact:
        fresh = sqlite3.connect(BOARD)
        is_intact = fresh.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        fresh.close()
    print("INTACT" if is_intact else f"CORRUPT {head.hex(' ')}", "worker saw", saw[1], flush=True)


main()

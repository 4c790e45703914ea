"""An interrupt walks the pool of an httpx client and closes the raw sockets that another thread waits on; then two SQLite connections
are opened, and the server answers.

    httpx_pool.py FOLDER     prints INTACT or CORRUPT
"""
import os
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading

import httpx

FOLDER = sys.argv[1]
BOARD = os.path.join(FOLDER, "board.db")
KEY, CERTIFICATE = (os.path.join(FOLDER, name) for name in ("key.pem", "certificate.pem"))
POLL, PPOLL = "7 ", "271 "


def certificate():
    if not os.path.exists(CERTIFICATE):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=localhost", "-keyout", KEY, "-out", CERTIFICATE],
            check=True, stderr=subprocess.DEVNULL,
        )


def serve(listener, asked, go):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE, KEY)
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True) as connection:
        connection.recv(4096)
        asked.set()
        go.wait()
        try:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            connection.recv(1)
        except OSError:
            pass


def work(client, url, saw):
    saw.append(threading.get_native_id())
    try:
        saw.append(str(client.get(url).status_code))
    except Exception as error:
        saw.append(type(error).__name__)


def wait_until_waiting(saw):
    while True:
        with open(f"/proc/self/task/{saw[0]}/syscall") as file:
            if file.read().startswith((POLL, PPOLL)):
                return


def fill_holes(below):
    while (fd := os.open("/dev/null", os.O_RDONLY)) < below:
        pass
    os.close(fd)


def interrupt(client):
    """Closes what the pool holds, as an application does that wants its thread back."""
    for connection in client._transport._pool.connections:
        stream = connection._connection._network_stream
        fill_holes(stream._sock.fileno())
        stream._sock.close()


def main():
    certificate()
    with sqlite3.connect(BOARD) as new:
        new.execute("CREATE TABLE task(id INTEGER PRIMARY KEY, title TEXT)")
    new.close()
    listener = socket.create_server(("127.0.0.1", 0))
    asked, go, saw = threading.Event(), threading.Event(), []
    server = threading.Thread(target=serve, args=(listener, asked, go))
    server.start()
    client = httpx.Client(verify=False, timeout=30)
    url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
    worker = threading.Thread(target=work, args=(client, url, saw))
    worker.start()
    asked.wait()
    wait_until_waiting(saw)
    interrupt(client)
    boards = [sqlite3.connect(BOARD) for _ in range(2)]
    for board in boards:
        board.execute("SELECT count(*) FROM task").fetchone()
    go.set()
    worker.join()
    server.join()
    for board in boards:
        board.close()
    with open(BOARD, "rb") as file:
        head = file.read(29)
    is_intact = head.startswith(b"SQLite format 3\0")
    print("INTACT" if is_intact else f"CORRUPT {head.hex(' ')}", "worker saw", saw[1], flush=True)


main()

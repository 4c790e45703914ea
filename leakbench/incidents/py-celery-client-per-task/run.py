"""A Celery task asks a pricing service over TCP with a client of its own. When the
answer is "pending" the task returns early and leaves the client in the table of
pending requests, which nothing empties. The pool's worker process leaks."""
import os
import signal
import socket
import sys
import threading
import time

from celery import Celery
from celery.signals import worker_process_init, worker_ready

SECONDS = float(os.environ.get("LB_SECONDS", "20"))
RATE = float(os.environ.get("LB_RATE", "4"))
WORK = os.environ["LB_WORK"]

app = Celery("prices", broker="memory://")
app.conf.update(worker_prefetch_multiplier=0, task_ignore_result=True, worker_send_task_events=False,
                broker_transport_options={"polling_interval": 0.01}, broker_connection_retry_on_startup=True,
                worker_hijack_root_logger=False, worker_redirect_stdouts=False)
listener = socket.create_server(("127.0.0.1", 0), backlog=128)
pending = {}


class Client:
    def __init__(self, address):
        self.sock = socket.create_connection(address)

    def ask(self, question):
        self.sock.sendall(question.encode() + b"\n")
        return self.sock.recv(100).decode()

    def close(self):
        self.sock.close()


@app.task
def price(item):
    client = Client(listener.getsockname())
    answer = client.ask(item)
    if answer == "pending":
        pending[item] = client
        return None
    client.close()
    return answer


@app.task
def journal(n):
    with open(os.path.join(WORK, f"journal-{n % 5}"), "a") as f:
        f.write(f"{n}\n")


def service():
    """The pricing service, in the parent: it keeps each connection until its client closes it."""
    def answer(conn):
        with conn:
            while data := conn.recv(100):
                conn.sendall(b"pending" if data.startswith(b"rare") else b"4.20")
    while True:
        conn, _ = listener.accept()
        threading.Thread(target=answer, args=(conn,), daemon=True).start()


def produce():
    begin, i = time.monotonic(), 0
    while time.monotonic() - begin < 1.0:
        price.delay("usual")
        journal.delay(i)
        i += 1
        time.sleep(0.06)
    print("PHASE run", flush=True)
    begin, n = time.monotonic(), 0
    while n < RATE * SECONDS:
        price.delay(f"rare-{n}")
        n += 1
        while time.monotonic() < begin + n / RATE:
            price.delay("usual")
            journal.delay(i)
            i += 1
            time.sleep(0.06)
    print(f"DONE leaked={n}", flush=True)
    time.sleep(1.5)
    os.kill(os.getpid(), signal.SIGTERM)


@worker_process_init.connect
def child_started(**_):
    print("CHILD", os.getpid(), flush=True)


@worker_ready.connect
def parent_ready(**_):
    for f in (service, produce):
        threading.Thread(target=f, daemon=True).start()


print("READY", os.getpid(), flush=True)
worker = app.Worker(pool="prefork", concurrency=1, loglevel="CRITICAL", quiet=True, without_gossip=True,
                    without_mingle=True, without_heartbeat=True)
worker.start()
sys.exit(worker.exitcode)

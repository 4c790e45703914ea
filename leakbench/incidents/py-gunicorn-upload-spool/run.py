"""A gunicorn worker spools each upload to an unnamed temporary file. An upload that
may be resumed is parked by its id and never evicted, so its deleted file stays open.
The client is a thread of the worker; the worker is the process that leaks."""
import http.client
import os
import signal
import tempfile
import threading
import time

from gunicorn.app.base import BaseApplication

SECONDS = float(os.environ.get("LB_SECONDS", "20"))
RATE = float(os.environ.get("LB_RATE", "4"))
WORK = os.environ["LB_WORK"]
SOCKET = os.path.join(WORK, "gunicorn.sock")
parked = {}


def receive(environ):
    spool = tempfile.TemporaryFile(dir=WORK)
    spool.write(environ["wsgi.input"].read())
    spool.seek(0)
    return spool


def application(environ, start_response):
    body = receive(environ)
    if environ["PATH_INFO"].startswith("/resumable/"):
        parked[environ["PATH_INFO"]] = body
    else:
        body.close()
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]


class UnixConnection(http.client.HTTPConnection):
    def connect(self):
        import socket
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)


def post(path):
    c = UnixConnection("localhost")
    c.request("POST", path, body=b"x" * 5000)
    c.getresponse().read()
    c.close()


def traffic():
    begin = time.monotonic()
    while time.monotonic() - begin < 1.0:
        post("/direct")
        time.sleep(0.02)
    print("PHASE run", flush=True)
    begin, n = time.monotonic(), 0
    while n < RATE * SECONDS:
        post(f"/resumable/{n}")
        n += 1
        while time.monotonic() < begin + n / RATE:
            post("/direct")
            time.sleep(0.02)
    print(f"DONE leaked={len(parked)}", flush=True)
    time.sleep(1.5)
    os.kill(os.getppid(), signal.SIGTERM)


def worker_started(worker):
    print("CHILD", os.getpid(), flush=True)
    threading.Thread(target=traffic, daemon=True).start()


class Server(BaseApplication):
    def load_config(self):
        for name, value in {"bind": "unix:" + SOCKET, "workers": 1, "loglevel": "critical", "timeout": 600,
                            "post_worker_init": worker_started, "worker_tmp_dir": WORK}.items():
            self.cfg.set(name, value)

    def load(self):
        return application


print("READY", os.getpid(), flush=True)
Server().run()

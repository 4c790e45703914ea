"""A Flask application for gunicorn that leaks one file per request. Answers with the worker's pid and how many
files that worker holds; the short pause lets the other workers take their share of the requests."""

import os
import time

from flask import Flask

app = Flask(__name__)
held = []


@app.get("/")
def index():
    held.append(open("/etc/passwd"))  # LEAK
    time.sleep(0.1)
    return f"WORKER {os.getpid()} {len(held)} {os.getppid()}"

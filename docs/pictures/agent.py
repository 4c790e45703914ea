"""An agent host that opens a log for each session and never closes one."""
import json
import time


class Session:
    def __init__(self, name):
        self.log = open(f"logs/{name}.log", "w")

    def answer(self, prompt):
        self.log.write(json.dumps({"prompt": prompt}) + "\n")


sessions = []
for number in range(60):
    session = Session(f"agent-{number:02}")
    session.answer("hello")
    sessions.append(session)
    time.sleep(0.1)

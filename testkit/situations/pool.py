"""Workers of multiprocessing that leak one file per task and end by TERM or by KILL.

    pool.py PERIOD TASKS term|kill

Prints a line WORKER PID COUNT for each worker.
"""

import collections
import multiprocessing
import os
import sys
import time

held = []


def task(period):
    held.append(os.open("/etc/passwd", os.O_RDONLY))  # LEAK
    time.sleep(period)
    return os.getpid()


def pool(period, tasks):
    """Its workers end by TERM: that is how a pool ends."""
    with multiprocessing.get_context("fork").Pool(3) as workers:
        done = collections.Counter(workers.imap_unordered(task, [period] * tasks, chunksize=1))
    return done


def work(period, tasks, report):
    for _ in range(tasks):
        task(period)
    report.put(os.getpid())
    time.sleep(600)


def killed(period, tasks):
    """Workers without a pool: a killed one would take the pool's lock with it."""
    context = multiprocessing.get_context("fork")
    report = context.SimpleQueue()
    workers = [context.Process(target=work, args=(period, tasks // 3, report)) for _ in range(3)]
    for worker in workers:
        worker.start()
    done = {report.get(): tasks // 3 for _ in workers}
    for worker in workers:
        worker.kill()
        worker.join()
    return done


def main():
    period, tasks, end = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    done = killed(period, tasks) if end == "kill" else pool(period, tasks)
    for pid, count in done.items():
        print("WORKER", pid, count, flush=True)


if __name__ == "__main__":
    main()

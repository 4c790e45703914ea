"""An asyncio scheduler runs each job as a child with a timeout. On a timeout it gives
up on the job but neither kills nor awaits the child, so the transport keeps the two
pipes and the process handle open. The children end when the scheduler does."""
import asyncio
import os
import sys

SECONDS = float(os.environ.get("LB_SECONDS", "20"))
RATE = float(os.environ.get("LB_RATE", "2"))
WORK = os.environ["LB_WORK"]
STUCK = "read line"
QUICK = "echo done"
timed_out = []
leash, _held = os.pipe()


async def run_job(script, limit):
    job = await asyncio.create_subprocess_exec("/bin/sh", "-c", script, stdin=leash, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    try:
        out, _ = await asyncio.wait_for(job.communicate(), limit)
    except asyncio.TimeoutError:
        timed_out.append(job)
        return None
    return out


async def quick_jobs():
    while True:
        await run_job(QUICK, 10)
        await asyncio.sleep(0.05)


async def echo(reader, writer):
    writer.write(await reader.read(100))
    await writer.drain()
    writer.close()


async def connections(path):
    while True:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"ping")
        await reader.read(100)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)


async def main():
    print("READY", os.getpid(), flush=True)
    loop = asyncio.get_running_loop()
    if sys.version_info < (3, 12):  # later versions choose it themselves
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(loop)
        asyncio.set_child_watcher(watcher)
    path = os.path.join(WORK, "echo.sock")
    server = await asyncio.start_unix_server(echo, path)
    tasks = [loop.create_task(quick_jobs()), loop.create_task(connections(path))]
    await asyncio.sleep(1.0)
    print("PHASE run", flush=True)
    begin, n = loop.time(), 0
    while n < RATE * SECONDS:
        await run_job(STUCK, 0.1)
        n += 1
        await asyncio.sleep(max(0, begin + n / RATE - loop.time()))
    print(f"DONE leaked={3 * len(timed_out)}", flush=True)
    await asyncio.sleep(1.5)
    assert tasks and server
    os._exit(0)


asyncio.run(main())

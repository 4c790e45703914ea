"""A server of Server-Sent Events in one process. Ends well at SIGTERM.

    stream.py close|forget

`close` closes a stream whose client went away, `forget` keeps it: both stop sending to it.
"""

import asyncio
import signal
import sys

forgotten = []


async def handle(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    gone = asyncio.ensure_future(reader.read())
    number = 0
    while not gone.done():
        number += 1
        writer.write(b"data: %d\n\n" % number)
        await writer.drain()
        try:
            await asyncio.wait([gone], timeout=0.1)
        except asyncio.CancelledError:
            # The end of the program, which some versions would report as a mistake.
            return
    if sys.argv[1] == "close":
        writer.close()
    else:
        forgotten.append(writer)


async def main():
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    server = await asyncio.start_server(handle, "127.0.0.1", 0)  # ACCEPT
    print("READY", server.sockets[0].getsockname()[1], flush=True)
    await end.wait()  # ACCEPT


asyncio.run(main())  # ACCEPT

"""An asyncio server that starts `sleep` per request and forgets it. Ends at SIGTERM."""

import asyncio
import signal


async def handle(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    null = asyncio.subprocess.DEVNULL
    await asyncio.create_subprocess_exec(  # START
        "sleep", "60", stdin=null, stdout=asyncio.subprocess.PIPE, stderr=null
    )
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def main():
    end = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print("READY", server.sockets[0].getsockname()[1], flush=True)
    await end.wait()


asyncio.run(main())

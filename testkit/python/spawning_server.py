"""A server that starts a child for each request. `forget`: and forgets it; `wait`: and waits for it. A word of the request after
that is the port."""
import asyncio
import sys

kept = []


async def handle(reader, writer):
    words = ["sleep", "1000"] if sys.argv[1] == "forget" else ["true"]
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)  # START request
    if sys.argv[1] == "wait":
        await child.communicate()
    else:
        kept.append(child)
    writer.write(b"ok")
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(handle, "127.0.0.1", int(sys.argv[2]))
    async with server:
        await server.serve_forever()


asyncio.run(main())

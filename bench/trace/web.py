"""A web server of asyncio that opens one file for each request, one connection each."""
import asyncio, os, sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


async def serve(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    with open("/dev/null", "rb", buffering=0):
        writer.write(ANSWER)
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print("READY", os.getpid(), server.sockets[0].getsockname()[1], file=sys.stderr, flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())

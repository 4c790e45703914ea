"""HTTP/1.1 over asyncio streams, as far as the host needs it. One connection for each request."""

import asyncio
import ssl
from typing import AsyncIterator, Awaitable, Dict, Optional, Tuple, TypeVar

from .address import Address
from .errors import ConnectionFailed
from .requests import Request

T = TypeVar("T")

# Bytes of a line. A result is one line of a stream, with all its output.
LONGEST_LINE = 1 << 30


class AsyncExchange:
    """One request and its answer. Close it in any case."""

    def __init__(self, address: Address, token: Optional[str], request: Request) -> None:
        self._address, self._token, self._request = address, token, request
        self._writer: Optional[asyncio.StreamWriter] = None
        self._headers: Dict[str, str] = {}
        self.status = 0

    async def send(self) -> None:
        """Sends the request and reads the head of the answer."""
        try:
            self._reader, writer = await self._in_time(self._connect())
            self._writer = writer
            writer.write(self._head() + self._request.content())
            await self._in_time(writer.drain())
            self.status, self._headers = await self._in_time(self._answer_head())
        except BaseException:
            self.close()
            raise

    async def content(self) -> bytes:
        return b"".join([piece async for piece in self._pieces()])

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of a stream, until its end."""
        rest = b""
        async for piece in self._pieces():
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield line

    def close(self) -> None:
        """Closes the connection at once: the host interrupts a command that still runs."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def _connect(self) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = self._address
        if address.path is not None:
            return await asyncio.open_unix_connection(address.path, limit=LONGEST_LINE)
        secure = ssl.create_default_context() if address.is_tls else None
        return await asyncio.open_connection(address.host, address.port, limit=LONGEST_LINE, ssl=secure)

    def _head(self) -> bytes:
        headers = {"host": self._address.host_header, **self._request.headers(self._token)}
        headers["content-length"] = str(len(self._request.content()))
        lines = [f"{self._request.method} {self._request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    async def _answer_head(self) -> Tuple[int, Dict[str, str]]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(first.split()[1]), headers

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The content as it comes, without the framing of chunks."""
        if self._headers.get("transfer-encoding") == "chunked":
            while True:
                size = await self._in_time(self._reader.readuntil(b"\r\n"))
                count = int(size.split(b";")[0], 16)
                piece = await self._in_time(self._reader.readexactly(count + 2))
                if count == 0:
                    return
                yield piece[:-2]
        elif "content-length" in self._headers:
            yield await self._in_time(self._reader.readexactly(int(self._headers["content-length"])))
        else:
            yield await self._in_time(self._reader.read())

    async def _in_time(self, waiting: Awaitable[T]) -> T:
        try:
            return await asyncio.wait_for(waiting, self._request.patience)
        except asyncio.TimeoutError as error:
            raise ConnectionFailed(f"the host at {self._address} did not answer in time") from error
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
            raise ConnectionFailed(f"no answer from the host at {self._address}: {error}") from error


async def ask(address: Address, token: Optional[str], request: Request) -> Tuple[int, bytes]:
    """Sends a request and returns status and content of the answer."""
    exchange = AsyncExchange(address, token, request)
    await exchange.send()
    try:
        return exchange.status, await exchange.content()
    finally:
        exchange.close()

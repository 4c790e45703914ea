"""The asyncio client: `AsyncHost`, `AsyncSession`, `AsyncScope` and `AsyncStream`, with the methods of
`Host`, `Session`, `Scope` and `Stream`. Cancelling a task that waits in `run` interrupts the command."""

import asyncio
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Coroutine, Dict, Generator, Generic, List, Mapping
from typing import Optional, Sequence, Type, TypeVar, Union

from . import requests
from .address import Address, default_token
from .asyncio_http import AsyncExchange, ask
from .errors import ConnectionFailed, HostError, ProblemError
from .events import Parser
from .host import GONE, LEASE, client_name
from .private_host import PrivateHost
from .requests import Limits, Pty, Repl, Request
from .values import (
    AbortedCall,
    AcceptedClose,
    CallInfo,
    CallResult,
    Chunk,
    CleanUp,
    Health,
    Problem,
    Receipt,
    Result,
    ScopeView,
    SessionInfo,
    Ticket,
)

O = TypeVar("O", bound="_Opened")


class _Opened:
    """Something that `async with` closes."""

    async def close(self) -> object:
        raise NotImplementedError

    async def __aenter__(self: O) -> O:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self.close()
        except ProblemError as problem:
            if problem.code not in GONE:
                raise


class Opening(Generic[O]):
    """What a method that opens something returns: `await` it, or use it with `async with`."""

    def __init__(self, open: Callable[[], Coroutine[Any, Any, O]]) -> None:
        self._open = open
        self._opened: Optional[O] = None

    def __await__(self) -> Generator[Any, None, O]:
        return self._open().__await__()

    async def __aenter__(self) -> O:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)


class AsyncHost:
    """As `Host`. A private host starts with `async with`, or with `await host.start()`."""

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        tied: bool = True,
        program: Optional[str] = None,
        options: Sequence[str] = (),
        log: Optional[str] = None,
    ) -> None:
        self._private: Optional[PrivateHost] = None
        self._tie: Optional[_Tie] = None
        self._lock: Optional[asyncio.Lock] = None
        self._launch = (program, options, log)
        self._is_tied = tied and url is not None
        self._address = None if url is None else Address.of(url)
        self._token = None if url is None else token or default_token()

    async def start(self) -> "AsyncHost":
        """Starts the private host. Does nothing at a running host, or the second time."""
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            if self._address is None:
                # A thread, because starting takes some milliseconds of blocking calls. If this task
                # is cancelled, the host ends when the thread drops it.
                self._private = await asyncio.to_thread(PrivateHost, *self._launch)
                self._address = Address(path=self._private.path)
                self._token = self._private.token
        return self

    async def __aenter__(self) -> "AsyncHost":
        return await self.start()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()

    async def close(self) -> None:
        tie, self._tie = self._tie, None
        if tie is not None:
            await tie.close()
        if self._private is not None:
            await asyncio.to_thread(self._private.close)

    @property
    def url(self) -> str:
        """The address, for other clients of the same host."""
        address = self._at()
        return str(address) if address.path is not None else f"http://{address}"

    @property
    def token(self) -> Optional[str]:
        return self._token

    def session(
        self,
        program: Union[str, Repl] = "bash",
        *,
        channel: Union[None, str, Pty] = None,
        folder: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        limits: Optional[Limits] = None,
        output_cap: Optional[int] = None,
        ready_within_ms: Optional[int] = None,
    ) -> "Opening[AsyncSession]":
        async def open() -> AsyncSession:
            request = requests.open_session(
                program, channel, folder, environment, limits, output_cap, ready_within_ms, await self._client()
            )
            return AsyncSession(self, requests.read(SessionInfo, await self._ask(request)))

        return Opening(open)

    def scope(self, name: str, root: str, *, archive_to: Optional[str] = None) -> "Opening[AsyncScope]":
        async def open() -> AsyncScope:
            request = requests.open_scope(name, root, archive_to, await self._client())
            return AsyncScope(self, requests.read(ScopeView, await self._ask(request)))

        return Opening(open)

    async def sessions(self) -> List[SessionInfo]:
        return requests.read_list(SessionInfo, await self._ask(requests.list_sessions()), "sessions")

    async def scopes(self) -> List[ScopeView]:
        return requests.read_list(ScopeView, await self._ask(requests.list_scopes()), "scopes")

    async def ticket(self, ticket: str) -> Ticket:
        return requests.read(Ticket, await self._ask(requests.get_ticket(ticket)))

    async def archive(self, files: Sequence[str], to: str, *, wait_ms: Optional[int] = None) -> Dict[str, Any]:
        document: Dict[str, Any] = await self._ask(requests.archive(files, to, wait_ms))
        return document

    async def call(
        self,
        url: str,
        *,
        method: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[str] = None,
        body_base64: Optional[str] = None,
        timeout_ms: Optional[int] = None,
    ) -> CallResult:
        request = requests.call(url, method, headers, body, body_base64, timeout_ms)
        return requests.read(CallResult, await self._ask(request))

    async def calls(self) -> List[CallInfo]:
        return requests.read_list(CallInfo, await self._ask(requests.list_calls()), "calls")

    async def abort_call(self, call: str) -> AbortedCall:
        return requests.read(AbortedCall, await self._ask(requests.abort_call(call)))

    async def health(self) -> Health:
        return requests.read(Health, await self._ask(requests.health()))

    async def metrics(self) -> str:
        return (await self._content(requests.metrics())).decode()

    async def openapi(self) -> Dict[str, Any]:
        document: Dict[str, Any] = await self._ask(requests.openapi())
        return document

    def _at(self) -> Address:
        if self._address is None:
            raise HostError("the private host is not running: use `async with`, or `await host.start()`")
        return self._address

    async def _ask(self, request: Request) -> Any:
        return requests.parse(await self._content(request))

    async def _content(self, request: Request) -> bytes:
        status, content = await ask(self._at(), self._token, request)
        if status >= 400:
            raise requests.refusal(status, content)
        return content

    async def _exchange(self, request: Request) -> AsyncExchange:
        exchange = AsyncExchange(self._at(), self._token, request)
        await exchange.send()
        if exchange.status >= 400:
            try:
                raise requests.refusal(exchange.status, await exchange.content())
            finally:
                exchange.close()
        return exchange

    async def _client(self) -> Optional[str]:
        if not self._is_tied:
            return None
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            if self._tie is None or self._tie.is_broken:
                self._tie = await _Tie.open(self)
            return self._tie.client


class _Tie:
    """A client whose connection stays open: the host ends its sessions when the connection closes."""

    def __init__(self, host: AsyncHost, client: str, exchange: AsyncExchange) -> None:
        self._host, self.client, self._exchange = host, client, exchange
        self.is_broken = False
        self._task: "asyncio.Task[None]" = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, host: AsyncHost) -> "_Tie":
        client: str = (await host._ask(requests.open_client(client_name(), LEASE)))["id"]
        return cls(host, client, await host._exchange(requests.attach_client(client)))

    async def _read(self) -> None:
        try:
            async for _ in self._exchange.lines():
                pass
        except HostError:
            pass
        finally:
            self.is_broken = True
            self._exchange.close()

    async def close(self) -> None:
        try:
            await self._host._content(requests.end_client(self.client))
        except HostError:
            pass
        self._task.cancel()
        await asyncio.wait([self._task])


class AsyncSession(_Opened):
    """As `Session`."""

    def __init__(self, host: AsyncHost, info: SessionInfo) -> None:
        self._host = host
        self.id = info.id
        self.pid = info.pid
        self.receipt: Optional[Receipt] = None

    async def run(self, code: str, *, timeout_ms: Optional[int] = None) -> Result:
        return requests.read(Result, await self._host._ask(requests.run(self.id, code, timeout_ms)))

    def stream(self, code: str, *, timeout_ms: Optional[int] = None) -> "Opening[AsyncStream]":
        async def open() -> AsyncStream:
            request = requests.run(self.id, code, timeout_ms, requests.EVENTS)
            return AsyncStream(await self._host._exchange(request))

        return Opening(open)

    async def interrupt(self) -> bool:
        return bool((await self._host._ask(requests.interrupt_session(self.id)))["was_running"])

    async def reset(self) -> Receipt:
        return requests.read(Receipt, await self._host._ask(requests.reset_session(self.id)))

    async def info(self) -> SessionInfo:
        return requests.read(SessionInfo, await self._host._ask(requests.get_session(self.id)))

    async def close(self) -> Receipt:
        if self.receipt is None:
            self.receipt = requests.read(Receipt, await self._host._ask(requests.close_session(self.id)))
        return self.receipt


class AsyncStream(_Opened):
    """As `Stream`: `async for` over the output, then `await stream.result()`."""

    def __init__(self, exchange: AsyncExchange) -> None:
        self._exchange = exchange
        self._chunks = self._read()
        self._result: Optional[Result] = None

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self._chunks

    async def _read(self) -> AsyncIterator[Chunk]:
        parser = Parser()
        async for line in self._exchange.lines():
            event = parser.feed(line)
            if event is None:
                continue
            document = requests.parse(event.data.encode())
            if event.name == "output":
                yield Chunk.of(document)
            elif event.name == "problem":
                raise ProblemError(requests.read(Problem, document))
            elif event.name == "done":
                self._result = requests.read(Result, document)
                await self.close()
                return
        raise ConnectionFailed("the host ended the stream before the command")

    async def result(self) -> Result:
        """The result. Reads the rest of the output if that has not been done."""
        async for _ in self._chunks:
            pass
        if self._result is None:
            raise HostError("the stream was closed before the command ended")
        return self._result

    async def close(self) -> None:
        self._exchange.close()


class AsyncScope(_Opened):
    """As `Scope`."""

    def __init__(self, host: AsyncHost, view: ScopeView) -> None:
        self._host = host
        self.id = view.id
        self.clean_up: Union[None, CleanUp, AcceptedClose] = None

    async def add_session(
        self, session: Union[AsyncSession, str], *, role: Optional[str] = None, whose: Optional[str] = None
    ) -> ScopeView:
        name = session if isinstance(session, str) else session.id
        return await self._add(requests.add_session(self.id, name, role, whose))

    async def add_program(
        self,
        command: Sequence[str],
        *,
        log: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        role: Optional[str] = None,
    ) -> ScopeView:
        return await self._add(requests.add_program(self.id, command, log, environment, role))

    async def add_process(self, pid: int, *, role: Optional[str] = None, whose: Optional[str] = None) -> ScopeView:
        return await self._add(requests.add_process(self.id, pid, role, whose))

    async def add_file(self, path: str, end: str) -> ScopeView:
        return await self._add(requests.add_file(self.id, path, end))

    async def add_directory(self, name: str) -> ScopeView:
        return await self._add(requests.add_directory(self.id, name))

    async def view(self) -> ScopeView:
        return requests.read(ScopeView, await self._host._ask(requests.get_scope(self.id)))

    async def close(self) -> Union[CleanUp, AcceptedClose]:
        if self.clean_up is None:
            document = await self._host._ask(requests.close_scope(self.id))
            kind: Type[Any] = AcceptedClose if "ticket" in document else CleanUp
            self.clean_up = requests.read(kind, document)
        assert self.clean_up is not None
        return self.clean_up

    async def _add(self, request: Request) -> ScopeView:
        return requests.read(ScopeView, await self._host._ask(request))

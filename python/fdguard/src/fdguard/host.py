"""The blocking client: `Host`, `Session`, `Scope` and `Stream`. Every method may be called from any
thread, for example `Session.interrupt` while another thread waits in `Session.run`."""

import os
import sys
import threading
from types import TracebackType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Type, Union

from . import requests
from .address import Address, default_token
from .blocking_http import Exchange, ask
from .errors import ConnectionFailed, HostError, ProblemError
from .events import Parser
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

# Seconds that a client may be without its connection, between its registration and the attach.
LEASE = 60
# What a closed session answers: somebody else, its host or its program ended it.
GONE = ("unknown", "ended")


def client_name() -> str:
    return f"python {os.getpid()} {os.path.basename(sys.argv[0]) if sys.argv else ''}".strip()[:200]


class Host:
    """A host: a private one that ends with this process, or a running one at `url`.

    `url` is `http://HOST:PORT` or `unix:PATH`. Without `token`, the default token of `fdguard host`
    is used. Sessions and scopes at a running host end with this object, or with this process,
    unless `tied` is False. `program`, `options` (of `fdguard host`) and `log` (a file for its
    events) are for a private host.
    """

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
        self._lock = threading.Lock()
        if url is None:
            self._private = PrivateHost(program, options, log)
            self._address = Address(path=self._private.path)
            self._token: Optional[str] = self._private.token
        else:
            self._address = Address.of(url)
            self._token = token or default_token()
        # A private host ends with this process, and everything in it.
        self._is_tied = tied and self._private is None

    def __enter__(self) -> "Host":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends a private host with all its sessions; at a running host, the sessions of this object."""
        with self._lock:
            tie, self._tie = self._tie, None
        if tie is not None:
            tie.close()
        if self._private is not None:
            self._private.close()

    @property
    def url(self) -> str:
        """The address, for other clients of the same host."""
        return str(self._address) if self._address.path is not None else f"http://{self._address}"

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
    ) -> "Session":
        """Starts an interpreter (`bash`, `python` or a `Repl`) and returns when it is ready.

        `channel="pipes"` separates stdout and stderr; the default is a terminal (`Pty()`)."""
        request = requests.open_session(
            program, channel, folder, environment, limits, output_cap, ready_within_ms, self._client()
        )
        return Session(self, requests.read(SessionInfo, self._ask(request)))

    def scope(self, name: str, root: str, *, archive_to: Optional[str] = None) -> "Scope":
        """Opens a scope: everything that is added to it ends with it. `root` must be below a root of
        the host (`options=["--root", DIR]`)."""
        request = requests.open_scope(name, root, archive_to, self._client())
        return Scope(self, requests.read(ScopeView, self._ask(request)))

    def sessions(self) -> List[SessionInfo]:
        return requests.read_list(SessionInfo, self._ask(requests.list_sessions()), "sessions")

    def scopes(self) -> List[ScopeView]:
        return requests.read_list(ScopeView, self._ask(requests.list_scopes()), "scopes")

    def ticket(self, ticket: str) -> Ticket:
        """The state of a close that was requested from inside its scope."""
        return requests.read(Ticket, self._ask(requests.get_ticket(ticket)))

    def archive(self, files: Sequence[str], to: str, *, wait_ms: Optional[int] = None) -> Dict[str, Any]:
        """Moves log files without losing a line. Returns the document `fdguard.archive/1`."""
        document: Dict[str, Any] = self._ask(requests.archive(files, to, wait_ms))
        return document

    def call(
        self,
        url: str,
        *,
        method: Optional[str] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Optional[str] = None,
        body_base64: Optional[str] = None,
        timeout_ms: Optional[int] = None,
    ) -> CallResult:
        """Makes an HTTP request that `abort_call` can abort."""
        request = requests.call(url, method, headers, body, body_base64, timeout_ms)
        return requests.read(CallResult, self._ask(request))

    def calls(self) -> List[CallInfo]:
        return requests.read_list(CallInfo, self._ask(requests.list_calls()), "calls")

    def abort_call(self, call: str) -> AbortedCall:
        return requests.read(AbortedCall, self._ask(requests.abort_call(call)))

    def health(self) -> Health:
        return requests.read(Health, self._ask(requests.health()))

    def metrics(self) -> str:
        """The metrics for Prometheus."""
        return self._content(requests.metrics()).decode()

    def openapi(self) -> Dict[str, Any]:
        document: Dict[str, Any] = self._ask(requests.openapi())
        return document

    def _ask(self, request: Request) -> Any:
        return requests.parse(self._content(request))

    def _content(self, request: Request) -> bytes:
        status, content = ask(self._address, self._token, request)
        if status >= 400:
            raise requests.refusal(status, content)
        return content

    def _exchange(self, request: Request) -> Exchange:
        exchange = Exchange(self._address, self._token, request)
        if exchange.status >= 400:
            try:
                raise requests.refusal(exchange.status, exchange.content())
            finally:
                exchange.close()
        return exchange

    def _client(self) -> Optional[str]:
        """The id under which sessions are opened, so that they end with this process."""
        if not self._is_tied:
            return None
        with self._lock:
            if self._tie is None or self._tie.is_broken:
                self._tie = _Tie(self)
            return self._tie.client


class _Tie:
    """A client whose connection stays open: the host ends its sessions when the connection closes."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.client: str = host._ask(requests.open_client(client_name(), LEASE))["id"]
        self.is_broken = False
        self._exchange = host._exchange(requests.attach_client(self.client))
        # Reads the heartbeats: a stream that nobody reads would be closed.
        threading.Thread(target=self._read, name="fdguard-tie", daemon=True).start()

    def _read(self) -> None:
        try:
            while self._exchange.line():
                pass
        except (HostError, ValueError, AttributeError):
            pass
        finally:
            # The host is gone, or this object was closed.
            self.is_broken = True
            self._exchange.close()

    def close(self) -> None:
        """Ends the client and its sessions, then the stream and with it the thread."""
        try:
            self._host._content(requests.end_client(self.client))
        except HostError:
            pass
        self._exchange.shut_down()


class _Opened:
    """What a `with` block closes, unless it is gone already."""

    def close(self) -> object:
        raise NotImplementedError

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self.close()
        except ProblemError as problem:
            if problem.code not in GONE:
                raise


class Session(_Opened):
    """An interpreter that keeps its state between commands. `receipt` is set when it is closed."""

    def __init__(self, host: Host, info: SessionInfo) -> None:
        self._host = host
        self.id = info.id
        self.pid = info.pid
        self.receipt: Optional[Receipt] = None

    def __enter__(self) -> "Session":
        return self

    def run(self, code: str, *, timeout_ms: Optional[int] = None) -> Result:
        """Runs code and waits for it. The host interrupts it after `timeout_ms` (60000), or when this
        call is left by an exception such as KeyboardInterrupt. A failure of the code is a result."""
        return requests.read(Result, self._host._ask(requests.run(self.id, code, timeout_ms)))

    def stream(self, code: str, *, timeout_ms: Optional[int] = None) -> "Stream":
        """The same, with the output while it comes: iterate over the returned `Stream`."""
        return Stream(self._host._exchange(requests.run(self.id, code, timeout_ms, requests.EVENTS)))

    def interrupt(self) -> bool:
        """Interrupts the running command: its `run` returns with what it has. False: none was running."""
        return bool(self._host._ask(requests.interrupt_session(self.id))["was_running"])

    def reset(self) -> Receipt:
        """Replaces the interpreter with a new one in the same directory."""
        return requests.read(Receipt, self._host._ask(requests.reset_session(self.id)))

    def info(self) -> SessionInfo:
        return requests.read(SessionInfo, self._host._ask(requests.get_session(self.id)))

    def close(self) -> Receipt:
        """Ends the interpreter and everything it started, and returns what is left."""
        if self.receipt is None:
            self.receipt = requests.read(Receipt, self._host._ask(requests.close_session(self.id)))
        return self.receipt


class Stream:
    """A running command: iterate over its output, then read `result`. Closing it early interrupts
    the command."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._result: Optional[Result] = None

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Chunk]:
        parser = Parser()
        try:
            while self._result is None:
                line = self._exchange.line()
                if not line:
                    raise ConnectionFailed("the host ended the stream before the command")
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
        finally:
            self.close()

    @property
    def result(self) -> Result:
        """The result. Reads the rest of the output if that has not been done."""
        if self._result is None:
            for _ in self:
                pass
        assert self._result is not None
        return self._result

    def close(self) -> None:
        self._exchange.close()


class Scope(_Opened):
    """Everything that belongs to one agent. `clean_up` is set when it is closed."""

    def __init__(self, host: Host, view: ScopeView) -> None:
        self._host = host
        self.id = view.id
        self.clean_up: Union[None, CleanUp, AcceptedClose] = None

    def __enter__(self) -> "Scope":
        return self

    def add_session(
        self, session: Union[Session, str], *, role: Optional[str] = None, whose: Optional[str] = None
    ) -> ScopeView:
        """Adds a session; `whose="lent"` keeps it when the scope closes."""
        name = session if isinstance(session, str) else session.id
        return self._add(requests.add_session(self.id, name, role, whose))

    def add_program(
        self,
        command: Sequence[str],
        *,
        log: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        role: Optional[str] = None,
    ) -> ScopeView:
        """Starts a program; `log` is a file below the scope's root."""
        return self._add(requests.add_program(self.id, command, log, environment, role))

    def add_process(self, pid: int, *, role: Optional[str] = None, whose: Optional[str] = None) -> ScopeView:
        return self._add(requests.add_process(self.id, pid, role, whose))

    def add_file(self, path: str, end: str) -> ScopeView:
        """Adds a file below the root; `end` is `keep`, `delete` or `archive`."""
        return self._add(requests.add_file(self.id, path, end))

    def add_directory(self, name: str) -> ScopeView:
        return self._add(requests.add_directory(self.id, name))

    def view(self) -> ScopeView:
        return requests.read(ScopeView, self._host._ask(requests.get_scope(self.id)))

    def close(self) -> Union[CleanUp, AcceptedClose]:
        """Ends everything in the scope, and returns one result for each resource; a caller inside
        the scope gets an `AcceptedClose` before it is terminated."""
        if self.clean_up is None:
            document = self._host._ask(requests.close_scope(self.id))
            kind: Type[Any] = AcceptedClose if "ticket" in document else CleanUp
            self.clean_up = requests.read(kind, document)
        assert self.clean_up is not None
        return self.clean_up

    def _add(self, request: Request) -> ScopeView:
        return requests.read(ScopeView, self._host._ask(request))

"""The host's requests as values: what to send, without sending it. Used by both clients."""

import json
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type, TypeVar, Union
from urllib.parse import quote

from .errors import ConnectionFailed, ProblemError
from .values import Problem, decode

T = TypeVar("T")

# Seconds. What the host may take to answer, beyond the time that a command itself may take.
PATIENCE = 60.0
# The host's own limit for a command without `timeout_ms`, in milliseconds.
COMMAND_MS = 60_000
EVENTS = "text/event-stream"


@dataclass(frozen=True)
class Pty:
    """A terminal: both streams are merged."""

    columns: int = 80
    rows: int = 24


@dataclass(frozen=True)
class Repl:
    """Any other interpreter: see `Repl` in the OpenAPI document."""

    command: Sequence[str]
    template: str


@dataclass(frozen=True)
class Limits:
    """Resource limits of a session; None is no limit."""

    memory_bytes: Optional[int] = None
    cpu_seconds: Optional[int] = None
    processes: Optional[int] = None
    descriptors: Optional[int] = None


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Optional[Dict[str, Any]] = None
    accept: str = "application/json"
    # Seconds without a byte from the host after which it is given up; None: wait as long as it
    # takes.
    patience: Optional[float] = PATIENCE

    def headers(self, token: Optional[str]) -> Dict[str, str]:
        headers = {"accept": self.accept, "connection": "close"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if self.body is not None:
            headers["content-type"] = "application/json"
        return headers

    def content(self) -> bytes:
        return b"" if self.body is None else json.dumps(self.body).encode()


def _without_none(**fields: Any) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _of(what: str, name: str, *more: str) -> str:
    return "/".join(["/v1", what, quote(name, safe=""), *more])


def open_session(
    program: Union[str, Repl],
    channel: Union[None, str, Pty],
    folder: Optional[str],
    environment: Optional[Mapping[str, str]],
    limits: Optional[Limits],
    output_cap: Optional[int],
    ready_within_ms: Optional[int],
    client: Optional[str],
) -> Request:
    interpreter: Any = program
    if isinstance(program, Repl):
        interpreter = {"repl": {"command": list(program.command), "template": program.template}}
    streams: Any = channel
    if isinstance(channel, Pty):
        streams = {"pty": {"columns": channel.columns, "rows": channel.rows}}
    bounds = None
    if limits is not None:
        bounds = _without_none(
            memory_bytes=limits.memory_bytes,
            cpu_seconds=limits.cpu_seconds,
            processes=limits.processes,
            descriptors=limits.descriptors,
        )
    body = _without_none(
        program=interpreter,
        channel=streams,
        folder=folder,
        environment=dict(environment) if environment else None,
        limits=bounds,
        output_cap=output_cap,
        ready_within_ms=ready_within_ms,
        client=client,
    )
    return Request("POST", "/v1/sessions", body, patience=PATIENCE + (ready_within_ms or 0) / 1000)


def list_sessions() -> Request:
    return Request("GET", "/v1/sessions")


def get_session(name: str) -> Request:
    return Request("GET", _of("sessions", name))


def run(name: str, code: str, timeout_ms: Optional[int], accept: str = "application/json") -> Request:
    limit = COMMAND_MS if timeout_ms is None else timeout_ms
    body = _without_none(code=code, timeout_ms=timeout_ms)
    return Request("POST", _of("sessions", name, "exec"), body, accept, PATIENCE + limit / 1000)


def interrupt_session(name: str) -> Request:
    return Request("POST", _of("sessions", name, "interrupt"))


def reset_session(name: str) -> Request:
    return Request("POST", _of("sessions", name, "reset"))


def close_session(name: str) -> Request:
    return Request("DELETE", _of("sessions", name))


def open_scope(name: str, root: str, archive_to: Optional[str], client: Optional[str]) -> Request:
    return Request("POST", "/v1/scopes", _without_none(name=name, root=root, archive_to=archive_to, client=client))


def list_scopes() -> Request:
    return Request("GET", "/v1/scopes")


def get_scope(name: str) -> Request:
    return Request("GET", _of("scopes", name))


def close_scope(name: str) -> Request:
    return Request("DELETE", _of("scopes", name), patience=2 * PATIENCE)


def get_ticket(name: str) -> Request:
    return Request("GET", _of("tickets", name))


def add_session(scope: str, session: str, role: Optional[str], whose: Optional[str]) -> Request:
    return _add(scope, "session", _without_none(id=session, role=role, whose=whose))


def add_program(
    scope: str,
    command: Sequence[str],
    log: Optional[str],
    environment: Optional[Mapping[str, str]],
    role: Optional[str],
) -> Request:
    variables = dict(environment) if environment else None
    return _add(scope, "program", _without_none(command=list(command), log=log, environment=variables, role=role))


def add_process(scope: str, pid: int, role: Optional[str], whose: Optional[str]) -> Request:
    return _add(scope, "process", _without_none(pid=pid, role=role, whose=whose))


def add_file(scope: str, path: str, end: str) -> Request:
    return _add(scope, "file", {"path": path, "end": end})


def add_directory(scope: str, name: str) -> Request:
    return _add(scope, "directory", {"name": name})


def _add(scope: str, kind: str, resource: Dict[str, Any]) -> Request:
    return Request("POST", _of("scopes", scope, "resources"), {kind: resource})


def archive(files: Sequence[str], to: str, wait_ms: Optional[int]) -> Request:
    body = _without_none(files=list(files), to=to, wait_ms=wait_ms)
    return Request("POST", "/v1/archive", body, patience=PATIENCE + (wait_ms or 0) / 1000)


def call(
    url: str,
    method: Optional[str],
    headers: Optional[Mapping[str, str]],
    body: Optional[str],
    body_base64: Optional[str],
    timeout_ms: Optional[int],
) -> Request:
    sent = _without_none(
        url=url,
        method=method,
        headers=dict(headers) if headers else None,
        body=body,
        body_base64=body_base64,
        timeout_ms=timeout_ms,
    )
    # Without a limit the call may take as long as it likes, as the caller asked for.
    patience = None if timeout_ms is None else PATIENCE + timeout_ms / 1000
    return Request("POST", "/v1/calls", sent, patience=patience)


def list_calls() -> Request:
    return Request("GET", "/v1/calls")


def abort_call(name: str) -> Request:
    return Request("POST", _of("calls", name, "abort"))


def open_client(name: str, lease_seconds: int) -> Request:
    return Request("POST", "/v1/clients", {"name": name, "lease_seconds": lease_seconds})


def attach_client(name: str) -> Request:
    # A heartbeat comes every 5 seconds.
    return Request("GET", _of("clients", name, "attach"), accept=EVENTS)


def end_client(name: str) -> Request:
    return Request("DELETE", _of("clients", name))


def health() -> Request:
    return Request("GET", "/v1/health")


def metrics() -> Request:
    return Request("GET", "/metrics", accept="text/plain")


def openapi() -> Request:
    return Request("GET", "/v1/openapi.json")


def refusal(status: int, content: bytes) -> Exception:
    """The exception for an answer that is not a success."""
    try:
        return ProblemError(decode(Problem, json.loads(content)))
    except (ValueError, KeyError, TypeError):
        return ConnectionFailed(f"not an answer of an fdguard host: HTTP status {status}")


def read(kind: Type[T], document: Any) -> T:
    """Reads an answer of the host."""
    try:
        return decode(kind, document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConnectionFailed(f"the host sent no valid {kind.__name__}: {error!r}") from error


def parse(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise ConnectionFailed(f"the host sent no valid JSON: {error}") from error


def read_list(kind: Type[T], document: Any, key: str) -> List[T]:
    try:
        return [decode(kind, one) for one in document[key]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ConnectionFailed(f"the host sent no valid list of {key}: {error!r}") from error

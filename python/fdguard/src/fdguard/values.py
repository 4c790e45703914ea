"""The host's answers. Names and units are those of the OpenAPI document: `fdguard host --openapi`.

A test compares the fields of each class with the schema that `SOURCE` names.
"""

import base64
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union
from typing import get_args, get_origin, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """Why the host refused a request."""

    SOURCE: ClassVar[str] = "Refusal"
    type: str
    title: str
    status: int
    code: str
    detail: str
    path: Optional[str]


@dataclass(frozen=True)
class Dropped:
    """Output beyond `output_cap`, cut from the middle."""

    SOURCE: ClassVar[str] = "DroppedOutput"
    bytes: int
    lines: int
    sha256: str


@dataclass(frozen=True)
class Output:
    """What a command wrote to one stream. Invalid UTF-8 is replaced in `text`."""

    SOURCE: ClassVar[str] = "ExecOutput"
    text: str
    bytes: int
    dropped: Optional[Dropped]


@dataclass(frozen=True)
class Outcome:
    """How a command ended: `exited`, `interrupted`, `timed-out`, `program-ended` or `limit-reached`."""

    SOURCE: ClassVar[str] = "ExecOutcome"
    how: str
    status: Optional[int] = None


@dataclass(frozen=True)
class Result:
    """The result of one command. `stderr` is None on a terminal, which merges both streams."""

    SOURCE: ClassVar[str] = "exec"
    number: int
    outcome: Outcome
    stdout: Output
    stderr: Optional[Output]
    earlier: Optional[Output]
    folder: Optional[str]
    ms: float
    was_reset: bool

    @property
    def how(self) -> str:
        return self.outcome.how

    @property
    def status(self) -> Optional[int]:
        """The exit status, as in a shell; None if the command did not exit by itself."""
        return self.outcome.status

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.outcome.how == "exited" and self.outcome.status == 0

    def check(self) -> "Result":
        """Returns this result, or raises `CommandFailed` if the command did not exit with 0."""
        if self.ok:
            return self
        from .errors import CommandFailed

        raise CommandFailed(self)


@dataclass(frozen=True)
class Chunk:
    """A piece of output of a running command: `stream` is `stdout` or `stderr`."""

    stream: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> "Chunk":
        if "base64" in event:
            return cls(event["stream"], base64.b64decode(event["base64"]))
        return cls(event["stream"], event["text"].encode())


@dataclass(frozen=True)
class StepTime:
    SOURCE: ClassVar[str] = "StepTime"
    step: str
    ms: float


@dataclass(frozen=True)
class Overuse:
    """The limit that a session exceeded."""

    SOURCE: ClassVar[str] = "Overuse"
    limit: str
    used: int
    allowed: int


@dataclass(frozen=True)
class Receipt:
    """What is left of a closed session, counted. None: unknown, because the keeper was lost."""

    SOURCE: ClassVar[str] = "Receipt"
    session: str
    reason: str
    clean: bool
    survivors: Optional[int]
    zombies: Optional[int]
    reaped: Optional[int]
    killed: Optional[int]
    descriptors_held: int
    descriptors_left: int
    exit: Optional[str]
    dropped_bytes: int
    steps: List[StepTime]
    total_ms: float
    overuse: Optional[Overuse]
    errors: List[str]


@dataclass(frozen=True)
class LimitKeepers:
    """What enforces each limit: `cgroup`, `rlimit`, `host` or `rlimit-and-host`."""

    SOURCE: ClassVar[str] = "LimitKeepers"
    memory: Optional[str]
    cpu: Optional[str]
    processes: Optional[str]
    descriptors: Optional[str]


@dataclass(frozen=True)
class SessionInfo:
    SOURCE: ClassVar[str] = "SessionInfo"
    id: str
    client: Optional[str]
    program: str
    pid: Optional[int]
    busy_ms: Optional[int]
    idle_ms: int
    started_at: str
    limits_kept_by: Optional[LimitKeepers]


@dataclass(frozen=True)
class ResourceView:
    """A resource of a scope."""

    SOURCE: ClassVar[str] = "ResourceView"
    number: int
    kind: str
    name: str
    role: str
    ownership: str
    pid: Optional[int]
    end: Optional[str]


@dataclass(frozen=True)
class AcceptedClose:
    """The answer to a process that closes its own scope: it will be terminated at `ends_at`."""

    SOURCE: ClassVar[str] = "AcceptedClose"
    scope: str
    ends_at: str
    ticket: str


@dataclass(frozen=True)
class ScopeView:
    SOURCE: ClassVar[str] = "ScopeView"
    id: str
    name: str
    client: Optional[str]
    root: str
    phase: str
    status: str
    reasons: List[str]
    resources: List[ResourceView]
    closes: Optional[AcceptedClose]
    idle_ms: int
    started_at: str


@dataclass(frozen=True)
class Leftover:
    SOURCE: ClassVar[str] = "ScopeLeftover"
    pid: int
    comm: str


@dataclass(frozen=True)
class EnvironmentScan:
    """A search for processes of the scope that nobody keeps."""

    SOURCE: ClassVar[str] = "EnvironmentScan"
    seen: int
    unreadable: int
    leftovers: List[Leftover]


@dataclass(frozen=True)
class ResourceDetails:
    SOURCE: ClassVar[str] = "ResourceDetails"
    survivors: Optional[List[int]]
    killed: Optional[int]
    reaped: Optional[int]
    exit: Optional[str]
    session: Optional[Receipt]
    archive: Any
    tried_twice: bool
    more_errors: List[str]


@dataclass(frozen=True)
class ResourceOutcome:
    SOURCE: ClassVar[str] = "ResourceOutcome"
    number: int
    kind: str
    name: str
    did: str
    ok: bool
    error: Optional[str]
    ms: float
    details: ResourceDetails


@dataclass(frozen=True)
class CleanUp:
    """The result of closing a scope, with one result for each resource."""

    SOURCE: ClassVar[str] = "CleanUp"
    scope: str
    name: str
    reason: str
    success: bool
    success_rule: str
    started_at: str
    ended_at: str
    total_ms: float
    resources: List[ResourceOutcome]
    look: Optional[EnvironmentScan]
    errors: List[str]


@dataclass(frozen=True)
class Ticket:
    """A close that was requested from inside: `state` is `pending` or `done` (with a `result`)."""

    SOURCE: ClassVar[str] = "get_ticket"
    state: str
    scope: Optional[str] = None
    ends_at: Optional[str] = None
    ticket: Optional[str] = None
    result: Optional[CleanUp] = None


@dataclass(frozen=True)
class CallInfo:
    """A running HTTP call."""

    SOURCE: ClassVar[str] = "CallInfo"
    id: str
    url: str
    method: str
    phase: str
    age_ms: int
    idle_ms: int
    bytes_in: int
    bytes_out: int
    stale: bool


@dataclass(frozen=True)
class CallResult:
    """The response to an HTTP call: `text`, or `base64` if it is not text."""

    SOURCE: ClassVar[str] = "call"
    id: str
    status: int
    headers: List[Any]
    text: Optional[str]
    base64: Optional[str]

    @property
    def body(self) -> bytes:
        return base64.b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()


@dataclass(frozen=True)
class AbortedCall:
    SOURCE: ClassVar[str] = "abort_call"
    phase: str
    repeated: bool
    sockets: int


@dataclass(frozen=True)
class SessionCounts:
    SOURCE: ClassVar[str] = "SessionCounts"
    open: int
    busy: int
    cap: int


@dataclass(frozen=True)
class Health:
    """The host's state as counts. `reaper`, `warm` and `registry` are as in the OpenAPI document."""

    SOURCE: ClassVar[str] = "health"
    status: str
    closing: bool
    sessions: SessionCounts
    clients: int
    strays: int
    children: Optional[int]
    zombies: Optional[int]
    thread_count: Optional[int]
    fd_count: Optional[int]
    fd_highest: Optional[int]
    fd_soft_limit: Optional[int]
    fd_hard_limit: Optional[int]
    fd_usage_percent: Optional[float]
    uptime_seconds: float
    reaper: Dict[str, Any]
    warm: Optional[Dict[str, Any]]
    registry: Optional[Dict[str, Any]]


# Every class that is read from an answer.
DOCUMENTS: Tuple[Type[Any], ...] = (
    Problem, Dropped, Output, Outcome, Result, StepTime, Overuse, Receipt, LimitKeepers, SessionInfo, ResourceView,
    AcceptedClose, ScopeView, Leftover, EnvironmentScan, ResourceDetails, ResourceOutcome, CleanUp, Ticket, CallInfo,
    CallResult, AbortedCall, SessionCounts, Health,
)  # fmt: skip


def decode(kind: Type[T], document: Any) -> T:
    """Reads a document. Unknown fields are ignored: a newer host may have more. A missing one is a
    KeyError, a document of another shape a TypeError."""
    found: T = _value(kind, document)
    return found


def _value(hint: Any, value: Any) -> Any:
    if get_origin(hint) is Union:
        inner = [one for one in get_args(hint) if one is not type(None)]
        return None if value is None else _value(inner[0], value)
    if get_origin(hint) is list:
        return [_value(get_args(hint)[0], one) for one in value]
    if not is_dataclass(hint):
        return value
    if not isinstance(value, dict):
        raise TypeError("not an object")
    hints = get_type_hints(hint)
    known = [one.name for one in fields(hint) if one.name in value or not _is_optional(hints[one.name])]
    made: Any = hint
    return made(**{**_absent(hint), **{name: _value(hints[name], value[name]) for name in known}})


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) is Union and type(None) in get_args(hint)


def _absent(kind: Any) -> Dict[str, Any]:
    """None for each optional field."""
    return {name: None for name, hint in get_type_hints(kind).items() if _is_optional(hint)}

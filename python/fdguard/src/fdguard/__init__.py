"""Run agents' commands in an fdguard host: exact results, and a receipt of what is left.

    from fdguard import Host

    with Host() as host, host.session("bash") as shell:
        print(shell.run("cd /tmp && ls").stdout.text)

`Host()` starts a private host that ends with this process. `Host("http://127.0.0.1:7878")` uses a
running one. `AsyncHost` is the same for asyncio.
"""

from .aio import AsyncHost, AsyncScope, AsyncSession, AsyncStream
from .errors import CommandFailed, ConnectionFailed, HostError, ProblemError, StartFailed
from .host import Host, Scope, Session, Stream
from .requests import Limits, Pty, Repl
from .values import (
    AcceptedClose,
    CallInfo,
    CallResult,
    Chunk,
    CleanUp,
    Health,
    Outcome,
    Output,
    Problem,
    Receipt,
    Result,
    ScopeView,
    SessionInfo,
    Ticket,
)

__all__ = [
    "AcceptedClose",
    "AsyncHost",
    "AsyncScope",
    "AsyncSession",
    "AsyncStream",
    "CallInfo",
    "CallResult",
    "Chunk",
    "CleanUp",
    "CommandFailed",
    "ConnectionFailed",
    "Health",
    "Host",
    "HostError",
    "Limits",
    "Outcome",
    "Output",
    "Problem",
    "ProblemError",
    "Pty",
    "Receipt",
    "Repl",
    "Result",
    "Scope",
    "ScopeView",
    "Session",
    "SessionInfo",
    "StartFailed",
    "Stream",
    "Ticket",
]

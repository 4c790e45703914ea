"""What goes wrong, as exceptions. All of them are a `HostError`."""

from .values import Problem, Result


class HostError(Exception):
    """The host did not do what was asked."""


class StartFailed(HostError):
    """A private host did not start."""


class ConnectionFailed(HostError):
    """No connection to the host, or no valid answer in time. The command may have run."""


class ProblemError(HostError):
    """The host refused the request. `problem` is its answer (RFC 9457); `code` is stable."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.problem = problem

    @property
    def code(self) -> str:
        return self.problem.code


class CommandFailed(HostError):
    """A command did not exit with 0: raised only by `Result.check()`. `result` has everything."""

    def __init__(self, result: Result) -> None:
        status = "" if result.status is None else f" {result.status}"
        last = (result.stderr or result.stdout).text.strip().rpartition("\n")[2]
        super().__init__(f"command {result.how}{status}" + (f": {last}" if last else ""))
        self.result = result

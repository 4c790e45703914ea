import type { Problem, Result } from "./types.js";

/** The host did not do what was asked. */
export class HostError extends Error {
  override name = "HostError";
}

/** A private host did not start. */
export class StartFailed extends HostError {
  override name = "StartFailed";
}

/** No connection to the host, or no valid answer in time. The command may have run. */
export class ConnectionFailed extends HostError {
  override name = "ConnectionFailed";
}

/** The host refused the request. `problem` is its answer (RFC 9457); `code` is stable. */
export class ProblemError extends HostError {
  override name = "ProblemError";
  readonly code: string;

  constructor(readonly problem: Problem) {
    super(`${problem.code}: ${problem.detail}`);
    this.code = problem.code;
  }
}

/** A command did not exit with 0: thrown only by `check()`. */
export class CommandFailed extends HostError {
  override name = "CommandFailed";

  constructor(readonly result: Result) {
    const { how, status } = result.outcome;
    const last = (result.stderr ?? result.stdout).text.trim().split("\n").pop();
    super(`command ${how}${status == null ? "" : ` ${status}`}${last ? `: ${last}` : ""}`);
  }
}

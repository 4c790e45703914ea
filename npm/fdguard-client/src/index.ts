// Client for `fdguard host`. The same shape and names as the Python package `fdguard`.
export { CommandFailed, ConnectionFailed, HostError, ProblemError, StartFailed } from "./errors.js";
export { Host, type HostOptions } from "./host.js";
export { Scope } from "./scope.js";
export { Session, Stream, check, isOk } from "./session.js";
export { SessionTool, describe } from "./tools.js";
export type * from "./types.js";

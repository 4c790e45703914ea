// Requests and answers, with the names of the OpenAPI document (`fdguard host --openapi`) in camel
// case. A test compares each interface with the schema that its `@schema` names.

/** Why the host refused a request. @schema Refusal */
export interface Problem {
  type: string;
  title: string;
  status: number;
  code: string;
  detail: string;
  path: string | null;
}

/** Output beyond `outputCap`, cut from the middle. @schema DroppedOutput */
export interface Dropped {
  bytes: number;
  lines: number;
  sha256: string;
}

/** What a command wrote to one stream. Invalid UTF-8 is replaced in `text`. @schema ExecOutput */
export interface Output {
  text: string;
  bytes: number;
  dropped: Dropped | null;
}

/** How a command ended. `status` is set if it is `exited` or `program-ended`. @schema ExecOutcome */
export interface Outcome {
  how: "exited" | "interrupted" | "timed-out" | "program-ended" | "limit-reached";
  status?: number | null;
}

/** The result of one command. `stderr` is null on a terminal. @schema exec */
export interface Result {
  number: number;
  outcome: Outcome;
  stdout: Output;
  stderr: Output | null;
  earlier: Output | null;
  folder: string | null;
  ms: number;
  wasReset: boolean;
}

/** A piece of output of a running command. */
export interface Chunk {
  stream: "stdout" | "stderr";
  data: Buffer;
  text: string;
}

/** @schema StepTime */
export interface StepTime {
  step: string;
  ms: number;
}

/** The limit that a session exceeded. @schema Overuse */
export interface Overuse {
  limit: string;
  used: number;
  allowed: number;
}

/** What is left of a closed session, counted. null: unknown, the keeper was lost. @schema Receipt */
export interface Receipt {
  session: string;
  reason: string;
  clean: boolean;
  survivors: number | null;
  zombies: number | null;
  reaped: number | null;
  killed: number | null;
  descriptorsHeld: number;
  descriptorsLeft: number;
  exit: string | null;
  droppedBytes: number;
  steps: StepTime[];
  totalMs: number;
  overuse: Overuse | null;
  errors: string[];
}

/** What enforces each limit. @schema LimitKeepers */
export interface LimitKeepers {
  memory: string | null;
  cpu: string | null;
  processes: string | null;
  descriptors: string | null;
}

/** @schema SessionInfo */
export interface SessionInfo {
  id: string;
  client: string | null;
  program: string;
  pid: number | null;
  busyMs: number | null;
  idleMs: number;
  startedAt: string;
  limitsKeptBy: LimitKeepers | null;
}

/** A resource of a scope. @schema ResourceView */
export interface ResourceView {
  number: number;
  kind: string;
  name: string;
  role: string;
  ownership: string;
  pid: number | null;
  end: string | null;
}

/** The answer to a process that closes its own scope. @schema AcceptedClose */
export interface AcceptedClose {
  scope: string;
  endsAt: string;
  ticket: string;
}

/** @schema ScopeView */
export interface ScopeView {
  id: string;
  name: string;
  client: string | null;
  root: string;
  phase: string;
  status: string;
  reasons: string[];
  resources: ResourceView[];
  closes: AcceptedClose | null;
  idleMs: number;
  startedAt: string;
}

/** @schema ScopeLeftover */
export interface Leftover {
  pid: number;
  comm: string;
}

/** A search for processes of the scope that nobody keeps. @schema EnvironmentScan */
export interface EnvironmentScan {
  seen: number;
  unreadable: number;
  leftovers: Leftover[];
}

/** @schema ResourceDetails */
export interface ResourceDetails {
  survivors: number[] | null;
  killed: number | null;
  reaped: number | null;
  exit: string | null;
  session: Receipt | null;
  archive: unknown;
  triedTwice: boolean;
  moreErrors: string[];
}

/** @schema ResourceOutcome */
export interface ResourceOutcome {
  number: number;
  kind: string;
  name: string;
  did: string;
  ok: boolean;
  error: string | null;
  ms: number;
  details: ResourceDetails;
}

/** The result of closing a scope, with one result for each resource. @schema CleanUp */
export interface CleanUp {
  scope: string;
  name: string;
  reason: string;
  success: boolean;
  successRule: string;
  startedAt: string;
  endedAt: string;
  totalMs: number;
  resources: ResourceOutcome[];
  look: EnvironmentScan | null;
  errors: string[];
}

/** A close that was requested from inside; `done` has a `result`. @schema get_ticket */
export interface Ticket {
  state: "pending" | "done";
  scope?: string;
  endsAt?: string;
  ticket?: string;
  result?: CleanUp;
}

/** A running HTTP call. @schema CallInfo */
export interface CallInfo {
  id: string;
  url: string;
  method: string;
  phase: string;
  ageMs: number;
  idleMs: number;
  bytesIn: number;
  bytesOut: number;
  stale: boolean;
}

/** The response to an HTTP call: `text`, or `base64` if it is not text. @schema call */
export interface CallResult {
  id: string;
  status: number;
  headers: unknown[];
  text: string | null;
  base64: string | null;
}

/** @schema abort_call */
export interface AbortedCall {
  phase: string;
  repeated: boolean;
  sockets: number;
}

/** @schema SessionCounts */
export interface SessionCounts {
  open: number;
  busy: number;
  cap: number;
}

/** The host's state as counts. @schema health */
export interface Health {
  status: "ok" | "warning" | "critical";
  closing: boolean;
  sessions: SessionCounts;
  clients: number;
  strays: number;
  children: number | null;
  zombies: number | null;
  threadCount: number | null;
  fdCount: number | null;
  fdHighest: number | null;
  fdSoftLimit: number | null;
  fdHardLimit: number | null;
  fdUsagePercent: number | null;
  uptimeSeconds: number;
  reaper: unknown;
  warm: unknown;
  registry: unknown;
}

/** @schema archive */
export interface ArchiveResult {
  files: unknown[];
  success: boolean;
  takenAt: string;
  to: unknown;
  tookMs: number;
}

/** Resource limits of a session. @schema SessionLimits */
export interface Limits {
  memoryBytes?: number;
  cpuSeconds?: number;
  processes?: number;
  descriptors?: number;
}

/** Any other interpreter than bash and Python. @schema Repl */
export interface Repl {
  command: string[];
  template: string;
}

/** `channel: "pipes"` separates stdout and stderr; the default is a terminal. */
export interface SessionOptions {
  channel?: "pipes" | { pty: { columns: number; rows: number } };
  folder?: string;
  environment?: Record<string, string>;
  limits?: Limits;
  outputCap?: number;
  readyWithinMs?: number;
}

/** `timeoutMs` (60000) interrupts the command; so does the signal. */
export interface RunOptions {
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** @schema NewCall */
export interface CallOptions {
  method?: string;
  headers?: Record<string, string>;
  body?: string;
  bodyBase64?: string;
  timeoutMs?: number;
}

export interface ScopeOptions {
  archiveTo?: string;
}

export interface ProgramOptions {
  log?: string;
  environment?: Record<string, string>;
  role?: "main" | "helper";
}

export interface MemberOptions {
  role?: "main" | "helper";
  whose?: "owned" | "lent";
}

import { readFileSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { homedir } from "node:os";
import { join } from "node:path";
import { ConnectionFailed } from "./errors.js";
import { type Address, PATIENCE_MS, type Request, parseAddress, readAll, refusal, send } from "./http.js";
import { toCamel, toSnake } from "./naming.js";
import { PrivateHost } from "./private-host.js";
import { Scope } from "./scope.js";
import { Session } from "./session.js";
import type {
  AbortedCall, ArchiveResult, CallInfo, CallOptions, CallResult, Health, Repl, ScopeOptions, ScopeView, SessionInfo,
  SessionOptions, Ticket,
} from "./types.js";

/** Seconds that a client may be without its connection, between its registration and the attach. */
const LEASE = 60;

/** Without `url`, a private host is started: `program`, `options` (of `fdguard host`) and `log` (a file
 * for its events) are for that. Sessions at a running host end with the `Host` object, or with this
 * process, unless `tied` is false. Without `token`, the default token of `fdguard host` is used. */
export interface HostOptions {
  url?: string;
  token?: string;
  tied?: boolean;
  program?: string;
  options?: readonly string[];
  log?: string;
}

/** A host: a private one that ends with this process, or a running one. */
export class Host implements AsyncDisposable {
  #client: Promise<string> | undefined;
  #tie: IncomingMessage | undefined;

  private constructor(
    readonly address: Address,
    readonly token: string | undefined,
    private readonly isTied: boolean,
    private readonly privateHost: PrivateHost | undefined,
  ) {}

  /** Starts a private host, or uses the one at `url`: `http://HOST:PORT` or `unix:PATH`. */
  static async open(options: HostOptions = {}): Promise<Host> {
    if (options.url !== undefined) {
      return new Host(parseAddress(options.url), options.token ?? defaultToken(), options.tied ?? true, undefined);
    }
    const started = await PrivateHost.start(options.program, options.options ?? [], options.log);
    return new Host(parseAddress(`unix:${started.socketPath}`), started.token, false, started);
  }

  /** The address, for other clients of the same host. */
  get url(): string {
    return this.address.url;
  }

  /** Ends a private host with all its sessions; at a running host, the sessions of this object. */
  async close(): Promise<void> {
    const client = this.#client;
    this.#client = undefined;
    if (client) {
      const path = `/v1/clients/${await client}`;
      await this.ask({ method: "DELETE", path }).catch(() => {});
      this.#tie?.destroy();
    }
    await this.privateHost?.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Starts an interpreter (`bash`, `python` or a `Repl`) and returns when it is ready. */
  async session(program: "bash" | "python" | Repl = "bash", options: SessionOptions = {}): Promise<Session> {
    const { channel, folder, environment, outputCap, readyWithinMs } = options;
    const limits = options.limits && toSnake(options.limits);
    const client = await this.#clientId();
    const interpreter = typeof program === "string" ? program : { repl: program };
    const body = toSnake({ program: interpreter, channel, folder, environment, limits, outputCap, readyWithinMs, client });
    const patienceMs = PATIENCE_MS + (readyWithinMs ?? 0);
    return new Session(this, (await this.ask({ method: "POST", path: "/v1/sessions", body, patienceMs })) as SessionInfo);
  }

  /** Opens a scope: everything that is added to it ends with it. `root` must be below a root of the
   * host (`options: ["--root", DIR]`). */
  async scope(name: string, root: string, options: ScopeOptions = {}): Promise<Scope> {
    const body = toSnake({ name, root, archiveTo: options.archiveTo, client: await this.#clientId() });
    return new Scope(this, (await this.ask({ method: "POST", path: "/v1/scopes", body })) as ScopeView);
  }

  async sessions(): Promise<SessionInfo[]> {
    return ((await this.#get("/v1/sessions")) as { sessions: SessionInfo[] }).sessions;
  }

  async scopes(): Promise<ScopeView[]> {
    return ((await this.#get("/v1/scopes")) as { scopes: ScopeView[] }).scopes;
  }

  /** The state of a close that was requested from inside its scope. */
  ticket(ticket: string): Promise<Ticket> {
    return this.#get(`/v1/tickets/${encodeURIComponent(ticket)}`) as Promise<Ticket>;
  }

  /** Moves log files without losing a line. */
  archive(files: readonly string[], to: string, options: { waitMs?: number } = {}): Promise<ArchiveResult> {
    const body = toSnake({ files, to, waitMs: options.waitMs });
    const patienceMs = PATIENCE_MS + (options.waitMs ?? 0);
    return this.ask({ method: "POST", path: "/v1/archive", body, patienceMs }) as Promise<ArchiveResult>;
  }

  /** Makes an HTTP request that `abortCall` can abort. */
  call(url: string, options: CallOptions = {}): Promise<CallResult> {
    const { method, headers, body, bodyBase64, timeoutMs } = options;
    const sent = toSnake({ url, method, headers, body, bodyBase64, timeoutMs });
    // Without a limit the call may take as long as it likes, as the caller asked for.
    const patienceMs = timeoutMs === undefined ? 0 : PATIENCE_MS + timeoutMs;
    return this.ask({ method: "POST", path: "/v1/calls", body: sent, patienceMs }) as Promise<CallResult>;
  }

  async calls(): Promise<CallInfo[]> {
    return ((await this.#get("/v1/calls")) as { calls: CallInfo[] }).calls;
  }

  abortCall(call: string): Promise<AbortedCall> {
    return this.ask({ method: "POST", path: `/v1/calls/${encodeURIComponent(call)}/abort` }) as Promise<AbortedCall>;
  }

  health(): Promise<Health> {
    return this.#get("/v1/health") as Promise<Health>;
  }

  /** The metrics for Prometheus. */
  metrics(): Promise<string> {
    return this.#content({ method: "GET", path: "/metrics", accept: "text/plain" });
  }

  async openapi(): Promise<unknown> {
    return JSON.parse(await this.#content({ method: "GET", path: "/v1/openapi.json" }));
  }

  /** Sends a request and returns the answer. For methods of this package. @internal */
  async ask(request: Request): Promise<unknown> {
    const content = await this.#content(request);
    try {
      return toCamel(JSON.parse(content));
    } catch (error) {
      throw new ConnectionFailed("the host sent no valid JSON", { cause: error });
    }
  }

  /** Sends a request whose answer is a stream. @internal */
  async open(request: Request): Promise<IncomingMessage> {
    const answer = await send(this.address, this.token, request);
    const status = answer.statusCode ?? 0;
    if (status >= 400) throw refusal(status, await readAll(this.address, answer));
    return answer;
  }

  async #content(request: Request): Promise<string> {
    return readAll(this.address, await this.open(request));
  }

  #get(path: string): Promise<unknown> {
    return this.ask({ method: "GET", path });
  }

  /** The id under which sessions are opened, so that they end with this process. */
  async #clientId(): Promise<string | undefined> {
    if (!this.isTied) return undefined;
    this.#client ??= this.#attach();
    try {
      return await this.#client;
    } catch (error) {
      this.#client = undefined;
      throw error;
    }
  }

  /** Registers a client whose connection stays open: the host ends its sessions when it closes. */
  async #attach(): Promise<string> {
    const name = `node ${process.pid}`;
    const body = { name, lease_seconds: LEASE };
    const { id } = (await this.ask({ method: "POST", path: "/v1/clients", body })) as { id: string };
    const tie = await this.open({ method: "GET", path: `/v1/clients/${id}/attach`, accept: "text/event-stream" });
    // Reads the heartbeats, because a stream that nobody reads would be closed. The program may end.
    tie.on("error", () => {}).on("close", () => {
      if (this.#tie === tie) this.#client = this.#tie = undefined;
    });
    tie.resume();
    tie.socket.unref();
    this.#tie = tie;
    return id;
  }
}

/** The token that `fdguard host` uses by default: from $FDGUARD_HOST_TOKEN, else from its file. */
function defaultToken(): string | undefined {
  const { FDGUARD_HOST_TOKEN, XDG_RUNTIME_DIR, XDG_STATE_HOME } = process.env;
  if (FDGUARD_HOST_TOKEN) return FDGUARD_HOST_TOKEN;
  const dir = XDG_RUNTIME_DIR || XDG_STATE_HOME || join(homedir(), ".local/state");
  try {
    return readFileSync(join(dir, "fdguard/host.token"), "ascii").trim() || undefined;
  } catch {
    return undefined;
  }
}

import type { Host } from "./host.js";
import { PATIENCE_MS } from "./http.js";
import { toSnake } from "./naming.js";
import { type Session, quietly } from "./session.js";
import type { AcceptedClose, CleanUp, MemberOptions, ProgramOptions, ScopeView } from "./types.js";

/** Everything that belongs to one agent. `cleanUp` is set when it is closed. */
export class Scope implements AsyncDisposable {
  readonly id: string;
  cleanUp: CleanUp | AcceptedClose | undefined;

  constructor(private readonly host: Host, view: ScopeView) {
    this.id = view.id;
  }

  /** Adds a session; `whose: "lent"` keeps it when the scope closes. */
  addSession(session: Session | string, options: MemberOptions = {}): Promise<ScopeView> {
    const id = typeof session === "string" ? session : session.id;
    return this.#add("session", { id, role: options.role, whose: options.whose });
  }

  /** Starts a program; `log` is a file below the scope's root. */
  addProgram(command: readonly string[], options: ProgramOptions = {}): Promise<ScopeView> {
    const { log, environment, role } = options;
    return this.#add("program", { command, log, environment, role });
  }

  addProcess(pid: number, options: MemberOptions = {}): Promise<ScopeView> {
    return this.#add("process", { pid, role: options.role, whose: options.whose });
  }

  /** Adds a file below the root. */
  addFile(path: string, end: "keep" | "delete" | "archive"): Promise<ScopeView> {
    return this.#add("file", { path, end });
  }

  addDirectory(name: string): Promise<ScopeView> {
    return this.#add("directory", { name });
  }

  view(): Promise<ScopeView> {
    return this.host.ask({ method: "GET", path: this.#path() }) as Promise<ScopeView>;
  }

  /** Ends everything in the scope, and returns one result for each resource. A caller inside the
   * scope gets an `AcceptedClose` before it is terminated. */
  async close(): Promise<CleanUp | AcceptedClose> {
    const request = { method: "DELETE", path: this.#path(), patienceMs: 2 * PATIENCE_MS };
    this.cleanUp ??= (await this.host.ask(request)) as CleanUp | AcceptedClose;
    return this.cleanUp;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await quietly(this.close());
  }

  #add(kind: string, resource: object): Promise<ScopeView> {
    const body = { [kind]: toSnake(resource) };
    return this.host.ask({ method: "POST", path: `${this.#path()}/resources`, body }) as Promise<ScopeView>;
  }

  #path(): string {
    return `/v1/scopes/${encodeURIComponent(this.id)}`;
  }
}

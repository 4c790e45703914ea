import type { IncomingMessage } from "node:http";
import { CommandFailed, ConnectionFailed, HostError, ProblemError } from "./errors.js";
import type { Host } from "./host.js";
import { type Address, PATIENCE_MS, type Request, readEvents } from "./http.js";
import { toCamel, toSnake } from "./naming.js";
import type { Chunk, Problem, Receipt, Result, RunOptions, SessionInfo } from "./types.js";

/** The host's own limit for a command without `timeoutMs`. */
const COMMAND_MS = 60_000;

/** Whether a command exited with 0. */
export function isOk(result: Result): boolean {
  return result.outcome.how === "exited" && result.outcome.status === 0;
}

/** Returns the result, or throws `CommandFailed` if the command did not exit with 0. */
export function check(result: Result): Result {
  if (!isOk(result)) throw new CommandFailed(result);
  return result;
}

/** An interpreter that keeps its state between commands. `receipt` is set when it is closed. */
export class Session implements AsyncDisposable {
  readonly id: string;
  readonly pid: number | null;
  receipt: Receipt | undefined;

  constructor(private readonly host: Host, info: SessionInfo) {
    this.id = info.id;
    this.pid = info.pid;
  }

  /** Runs code and waits for it. A failure of the code is a result, not an exception. */
  run(code: string, options: RunOptions = {}): Promise<Result> {
    return this.host.ask(this.#exec(code, options)) as Promise<Result>;
  }

  /** The same, with the output while it comes: iterate over the returned stream. */
  async stream(code: string, options: RunOptions = {}): Promise<Stream> {
    const request = { ...this.#exec(code, options), accept: "text/event-stream" };
    return new Stream(this.host.address, await this.host.open(request));
  }

  /** Interrupts the running command: its `run` returns with what it has. False: none was running. */
  async interrupt(): Promise<boolean> {
    const answer = (await this.host.ask(this.#request("POST", "/interrupt"))) as { wasRunning: boolean };
    return answer.wasRunning;
  }

  /** Replaces the interpreter with a new one in the same directory. */
  reset(): Promise<Receipt> {
    return this.host.ask(this.#request("POST", "/reset")) as Promise<Receipt>;
  }

  info(): Promise<SessionInfo> {
    return this.host.ask(this.#request("GET")) as Promise<SessionInfo>;
  }

  /** Ends the interpreter and everything it started, and returns what is left. */
  async close(): Promise<Receipt> {
    this.receipt ??= (await this.host.ask(this.#request("DELETE"))) as Receipt;
    return this.receipt;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await quietly(this.close());
  }

  #exec(code: string, { timeoutMs, signal }: RunOptions): Request {
    const patienceMs = PATIENCE_MS + (timeoutMs ?? COMMAND_MS);
    return { ...this.#request("POST", "/exec"), body: toSnake({ code, timeoutMs }), patienceMs, signal };
  }

  #request(method: string, more = ""): Request {
    return { method, path: `/v1/sessions/${encodeURIComponent(this.id)}${more}` };
  }
}

/** A running command: iterate over its output, then await `result()`. Closing it early interrupts it. */
export class Stream implements AsyncIterable<Chunk>, AsyncDisposable {
  #result: Result | undefined;
  readonly #chunks: AsyncGenerator<Chunk>;

  constructor(address: Address, private readonly answer: IncomingMessage) {
    this.#chunks = this.#read(address);
  }

  [Symbol.asyncIterator](): AsyncIterator<Chunk> {
    // Leaving a loop early does not end the generator: the rest can be read with result().
    return { next: () => this.#chunks.next() };
  }

  /** The result. Reads the rest of the output if that has not been done. */
  async result(): Promise<Result> {
    for await (const _ of this);
    if (!this.#result) throw new HostError("the stream was closed before the command ended");
    return this.#result;
  }

  close(): void {
    this.answer.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async *#read(address: Address): AsyncGenerator<Chunk> {
    for await (const { name, data } of readEvents(address, this.answer)) {
      const document = JSON.parse(data);
      if (name === "output") yield toChunk(document);
      if (name === "problem") throw new ProblemError(toCamel(document) as Problem);
      if (name === "done") {
        this.#result = toCamel(document) as Result;
        return;
      }
    }
    throw new ConnectionFailed("the host ended the stream before the command");
  }
}

function toChunk(event: { stream: Chunk["stream"]; text?: string; base64?: string }): Chunk {
  const data = event.base64 === undefined ? Buffer.from(event.text ?? "") : Buffer.from(event.base64, "base64");
  return { stream: event.stream, data, text: data.toString() };
}

/** Ignores that something had already ended elsewhere. */
export async function quietly(closing: Promise<unknown>): Promise<void> {
  try {
    await closing;
  } catch (error) {
    if (!(error instanceof ProblemError && ["unknown", "ended"].includes(error.code))) throw error;
  }
}

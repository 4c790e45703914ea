// One connection for each request: a session in use holds no descriptor between its commands, and
// closing the connection interrupts the command.
import * as http from "node:http";
import * as https from "node:https";
import { ConnectionFailed, ProblemError } from "./errors.js";
import { toCamel } from "./naming.js";
import type { Problem } from "./types.js";

/** Milliseconds that the host may take to answer, beyond what a command itself may take. */
export const PATIENCE_MS = 60_000;

/** A unix socket, or a host and a port. */
export interface Address {
  socketPath?: string;
  host?: string;
  port?: number;
  isTls?: boolean;
  url: string;
}

export interface Request {
  method: string;
  path: string;
  body?: object;
  accept?: string;
  /** Milliseconds without a byte from the host after which it is given up; 0: never. */
  patienceMs?: number;
  signal?: AbortSignal | undefined;
}

/** Reads `unix:/path` or `http://host:port`, as `fdguard host` prints them. */
export function parseAddress(url: string): Address {
  if (url.startsWith("unix:")) return { socketPath: url.slice("unix:".length), url };
  const parts = URL.canParse?.(url) === false ? null : new URL(url);
  const isTls = parts?.protocol === "https:";
  if (!parts || !(isTls || parts.protocol === "http:") || parts.pathname !== "/") {
    throw new TypeError(`not an address of a host: ${url} (use http://HOST:PORT or unix:PATH)`);
  }
  const host = parts.hostname.replace(/^\[|\]$/g, "");
  return { host, port: Number(parts.port || (isTls ? 443 : 80)), isTls, url: parts.origin };
}

/** Sends a request and returns the answer when its head has come. */
export function send(address: Address, token: string | undefined, request: Request): Promise<http.IncomingMessage> {
  const content = request.body === undefined ? "" : JSON.stringify(request.body);
  const headers: http.OutgoingHttpHeaders = {
    accept: request.accept ?? "application/json",
    host: address.socketPath === undefined ? `${address.host?.includes(":") ? `[${address.host}]` : address.host}:${address.port}` : "localhost",
    connection: "close",
    "content-length": Buffer.byteLength(content),
  };
  if (token) headers["authorization"] = `Bearer ${token}`;
  if (request.body !== undefined) headers["content-type"] = "application/json";
  const { socketPath, host, port } = address;
  const where = socketPath === undefined ? { host, port } : { socketPath };
  const { method, path, signal } = request;
  const patience = request.patienceMs ?? PATIENCE_MS;
  return new Promise((resolve, reject) => {
    const options = { ...where, method, path, headers, agent: false as const, ...(signal ? { signal } : {}) };
    const sent = (address.isTls ? https : http).request(options as http.RequestOptions, resolve);
    sent.setTimeout(patience, () => sent.destroy(new ConnectionFailed(`the host at ${address.url} did not answer in time`)));
    sent.on("error", (error) => reject(translated(address, error)));
    sent.end(content);
  });
}

/** What an error of the connection means. An abort stays what it is. */
function translated(address: Address, error: Error): Error {
  if (error instanceof ConnectionFailed || error.name === "AbortError") return error;
  return new ConnectionFailed(`no answer from the host at ${address.url}: ${error.message}`, { cause: error });
}

/** Reads the whole content of an answer. */
export async function readAll(address: Address, answer: http.IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  try {
    for await (const piece of answer) pieces.push(piece as Buffer);
  } catch (error) {
    throw translated(address, error as Error);
  }
  return Buffer.concat(pieces).toString();
}

/** The exception for an answer that is not a success. */
export function refusal(status: number, content: string): Error {
  try {
    const problem = JSON.parse(content) as Problem;
    if (typeof problem.code === "string") return new ProblemError(toCamel(problem as never) as Problem);
  } catch {
    // Not an answer of the host.
  }
  return new ConnectionFailed(`not an answer of an fdguard host: HTTP status ${status}`);
}

/** The events of a stream: `event:`, `data:`, an empty line. */
export async function* readEvents(
  address: Address,
  answer: http.IncomingMessage,
): AsyncGenerator<{ name: string; data: string }> {
  let rest = "";
  answer.setEncoding("utf8");
  try {
    for await (const piece of answer) {
      const blocks = (rest + (piece as string)).split("\n\n");
      rest = blocks.pop() ?? "";
      for (const block of blocks) yield parseEvent(block);
    }
  } catch (error) {
    throw translated(address, error as Error);
  }
}

function parseEvent(block: string): { name: string; data: string } {
  const event = { name: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice("event: ".length);
    if (line.startsWith("data: ")) event.data += line.slice("data: ".length);
  }
  return event;
}

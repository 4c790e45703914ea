// A host for this process alone, on a unix socket in a private directory. It ends with this process:
// between the two is a shell that waits for the end of a pipe, which the kernel closes when this
// process ends, however it ends. Then the shell stops the host and removes the directory.
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { accessSync, constants, mkdtempSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { StartFailed } from "./errors.js";

/** Milliseconds. The warm interpreter may start slowly on a loaded machine. */
const START_MS = 60_000;
/** Milliseconds for closing all sessions; more than the shell grants. */
const STOP_MS = 60_000;
/** The longest path of a unix socket, without its zero byte. */
const LONGEST_SOCKET = 107;

// $1: the private directory, $2: the event log, then the command. The first line of stdin is the
// token: it must be in no argument and in no environment that sessions can read. The shell closes
// its stdout, so that the end of it means that the host is gone.
const KEEPER = `
dir=$1 log=$2; shift 2
IFS= read -r FDGUARD_HOST_TOKEN || exit 1
export FDGUARD_HOST_TOKEN
"$@" </dev/null 2>>"$log" &
host=$!
unset FDGUARD_HOST_TOKEN
exec >/dev/null 2>&1
read -r end
kill -TERM "$host"
tries=0
while kill -0 "$host" && [ "$tries" -lt 600 ]; do sleep 0.05; tries=$((tries + 1)); done
kill -KILL "$host"
wait "$host"
rm -rf "$dir"
`;

/** The fdguard program: as named, else in PATH. */
export function findProgram(named = "fdguard"): string {
  const places = named.includes("/") ? [named] : (process.env["PATH"] ?? "").split(delimiter).map((dir) => join(dir, named));
  for (const place of places) {
    try {
      accessSync(place, constants.X_OK);
      return place;
    } catch {
      // The next one.
    }
  }
  throw new StartFailed(`${named} is not an executable program: install fdguard, or set the option \`program\``);
}

export class PrivateHost {
  readonly socketPath: string;
  readonly token = randomBytes(32).toString("hex");
  readonly #process: ChildProcess;
  readonly #end: Promise<void>;

  private constructor(program: string, options: readonly string[], dir: string, log: string) {
    this.socketPath = join(dir, "socket");
    const command = [program, "host", "--listen", `unix:${this.socketPath}`, ...options];
    // Ctrl-C in this terminal is for this process: hence a session of its own.
    const settings = { detached: true, stdio: ["pipe", "pipe", "ignore"] as ["pipe", "pipe", "ignore"] };
    this.#process = spawn("/bin/sh", ["-c", KEEPER, "fdguard-keeper", dir, log, ...command], settings);
    this.#end = new Promise((resolve) => {
      this.#process.on("exit", () => resolve());
      this.#process.on("error", () => resolve());
    });
    this.#process.stdin?.on("error", () => {});
    this.#process.stdin?.write(`${this.token}\n`);
  }

  static async start(named: string | undefined, options: readonly string[], log: string | undefined): Promise<PrivateHost> {
    const program = findProgram(named);
    const dir = privateDir();
    const events = log ?? join(dir, "events.log");
    const host = new PrivateHost(program, options, dir, events);
    try {
      await host.#waitUntilReady(events);
    } catch (error) {
      await host.close();
      rmSync(dir, { recursive: true, force: true });
      throw error;
    }
    // This process may end while the host runs: the end of the pipe ends the host.
    host.#process.unref();
    for (const pipe of [host.#process.stdin, host.#process.stdout]) (pipe as unknown as Socket).unref();
    return host;
  }

  #waitUntilReady(events: string): Promise<void> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new StartFailed(`the host was not ready within ${START_MS / 1000} s`)), START_MS);
      let said = "";
      const finish = (reason?: string) => {
        clearTimeout(late);
        reason === undefined ? resolve() : reject(new StartFailed(`the host did not start: ${reason}`));
      };
      this.#process.stdout?.on("data", (piece: Buffer) => {
        said += piece.toString();
        if (said.includes("listens at")) finish();
      });
      this.#process.stdout?.on("end", () => finish(lastLine(events)));
      this.#process.on("error", (error) => finish(error.message));
    });
  }

  /** Ends the host, with all its sessions. */
  async close(): Promise<void> {
    this.#process.ref();
    this.#process.stdin?.end("end\n");
    // Host and shell are in their own process group. The keepers end the sessions.
    const late = setTimeout(() => process.kill(-(this.#process.pid ?? 0), "SIGKILL"), STOP_MS);
    await this.#end;
    clearTimeout(late);
    this.#process.stdout?.destroy();
  }
}

function privateDir(): string {
  const dir = mkdtempSync(join(tmpdir(), "fdguard-host-"));
  if (Buffer.byteLength(join(dir, "socket")) <= LONGEST_SOCKET) return dir;
  rmdirSync(dir);
  return mkdtempSync("/tmp/fdguard-host-");
}

/** The reason that the host gave: its last line that is neither an event nor a hint. */
function lastLine(path: string): string {
  try {
    const lines = readFileSync(path, "utf8").trim().split("\n");
    return lines.filter((line) => !/^(fdguard_event|hint:)/.test(line)).pop() || "it gave no reason";
  } catch (error) {
    return (error as Error).message;
  }
}

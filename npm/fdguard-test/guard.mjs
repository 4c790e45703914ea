// Compares the descriptors before and after a test. A test runner needs two hooks:
//   const guard = new Guard();  beforeEach(() => guard.before());  afterEach(() => guard.after());
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** Milliseconds that sockets and files have to close, which Node does after the call returns. */
const SETTLE_MS = 1000;
/** Milliseconds for the answer of the tracer. */
const PATIENCE_MS = 120_000;
/** What Node opens for its event loops and worker threads when it needs them. */
const RUNTIME = /^anon_inode:\[?(eventpoll|eventfd|io_uring)\]?$/;

export class Guard {
  #before = new Map();

  before() {
    this.#before = descriptors();
  }

  /** Throws if there are descriptors that were not there before the test. */
  async after({ settleMs = SETTLE_MS } = {}) {
    const until = performance.now() + settleMs;
    let left = this.#left();
    while (left.length > 0 && performance.now() < until) {
      await sleep(10);
      left = this.#left();
    }
    const allowed = (process.env.FDGUARD_TEST_ALLOW ?? "").split(",").filter(Boolean);
    const found = describe(left).filter((one) => !allowed.some((glob) => matches(glob, one.what)));
    if (found.length === 0) return;
    const count = found.length === 1 ? "1 descriptor" : `${found.length} descriptors`;
    // The line of this throw would say nothing.
    const error = new Error(`fdguard: ${count} left behind\n${found.map((one) => one.text).join("\n")}`);
    error.stack = error.message;
    throw error;
  }

  #left() {
    const now = [...descriptors()];
    return now.filter(([fd, target]) => this.#before.get(fd) !== target && !RUNTIME.test(target));
  }
}

/** Targets by number, without the descriptor that this listing itself needs. */
function descriptors() {
  const found = new Map();
  for (const name of readdirSync("/proc/self/fd")) {
    try {
      found.set(Number(name), readlinkSync(`/proc/self/fd/${name}`));
    } catch {
      // Closed meanwhile.
    }
  }
  return found;
}

/** What each descriptor is, with its line if this process is traced. */
function describe(left) {
  if (left.length === 0) return [];
  const { sites, why } = report();
  return left.map(([fd, target]) => {
    const site = sites.find((one) => one.fds?.some((other) => other.fd === fd));
    const what = site ? `${site.class} ${site.target ?? target}` : target;
    const line = site ? `opened at ${place(site)}` : `line unknown: ${why}`;
    return { what, text: `  fd ${fd}  ${what}\n    ${line}` };
  });
}

function place({ culprit, how }) {
  if (!culprit?.file) return `${culprit?.function ?? "?"} (${how})`;
  const { file, line } = source(culprit.file.replace(/^file:\/\//, ""), culprit.line);
  return `${relative(process.cwd(), file)}:${line ?? "?"} ${culprit.function ?? ""} (${how})`;
}

/** The line in the source. A runner that translates files has a hook that translates stacks back: it
 * gets a frame that is at the line that the tracer saw. */
function source(file, line) {
  if (!Error.prepareStackTrace || line == null) return { file, line };
  try {
    const stack = String(Error.prepareStackTrace(new Error(), [new Frame(file, line)]));
    const found = /\(?(?:file:\/\/)?(\/[^()]*?):(\d+):\d+\)?\s*$/.exec(stack);
    return found ? { file: found[1], line: found[2] } : { file, line };
  } catch {
    return { file, line };
  }
}

/** A call site of V8, as far as such hooks read it. */
class Frame {
  constructor(file, line) {
    this.file = file;
    this.line = line;
  }
  getFileName() { return this.file; }
  getScriptNameOrSourceURL() { return this.file; }
  getLineNumber() { return this.line; }
  // The tracer knows no column: the last one of the line is in the statement.
  getColumnNumber() { return 1000; }
  getFunctionName() { return "opened"; }
  getTypeName() { return null; }
  getMethodName() { return null; }
  getEvalOrigin() { return undefined; }
  getThis() { return undefined; }
  isNative() { return false; }
  isEval() { return false; }
  isToplevel() { return true; }
  isConstructor() { return false; }
  isAsync() { return false; }
  isPromiseAll() { return false; }
  toString() { return `opened (${this.file}:${this.line}:1)`; }
}

/** What the tracer of this process knows. */
function report() {
  const dir = process.env.FDGUARD_TRACE_DIR;
  if (!dir) return { sites: [], why: "run the tests under `fdguard trace`" };
  const { FDGUARD_TRACE_DIR: _, LD_PRELOAD: preload = "", ...rest } = process.env;
  const others = preload.split(":").filter((one) => one && !one.startsWith(dir));
  const env = others.length > 0 ? { ...rest, LD_PRELOAD: others.join(":") } : rest;
  const folder = mkdtempSync(join(tmpdir(), "fdguard-test-"));
  const path = join(folder, "report.json");
  try {
    const args = ["trace", "--report", String(process.pid), "--json", "-o", path];
    try {
      execFileSync(process.env.FDGUARD ?? "fdguard", args, { env, stdio: ["ignore", "ignore", "pipe"], timeout: PATIENCE_MS });
    } catch (error) {
      // 1: there are findings.
      if (error.status !== 1) throw error;
    }
    const { sites } = JSON.parse(readFileSync(path, "utf8"));
    return { sites: sites.filter((one) => one.pid === process.pid), why: "not opened through the C library" };
  } catch (error) {
    return { sites: [], why: String(error.message).trim().split("\n").pop() };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** `*` matches any text. */
function matches(glob, text) {
  const parts = glob.split("*").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`).test(text);
}

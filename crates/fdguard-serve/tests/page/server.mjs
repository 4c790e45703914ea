// A serving fdguard, programs that leak, and a browser, for the tests of the page.

import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const VIEW = "a-token-for-viewing-0123456789";
export const ACT = "a-token-for-acting-0123456789";
/** Longer than anything takes on a busy machine. */
export const PATIENCE = 120_000;
const CHROMIUM = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find(existsSync);
export const lacks = CHROMIUM ? false : "no chromium: install the Debian package";

/** Its name; its limits and how many files it opens. */
const LEAKER = `
import ctypes, resource, sys, time
soft, hard, most = map(int, sys.argv[2:] or (0, 0, 10 ** 9))
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
if soft:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
held = []
def open_one():
    held.append(open("/dev/null"))
while True:
    if len(held) < most:
        open_one()
    time.sleep(0.02)
`;

/** Many processes, each with a command of its own: N of them are N services. */
const CROWD = `
import ctypes, os, sys
libc = ctypes.CDLL(None)
read, write = os.pipe()
for at in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(write)
        libc.prctl(15, (sys.argv[2] + str(at)).encode(), 0, 0, 0)
        os.read(read, 1)
        os._exit(0)
print("READY", flush=True)
sys.stdin.read()
os.close(write)
try:
    while True: os.wait()
except ChildProcessError:
    pass
`;

const running = new Set();

function start(command, args) {
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"] });
  running.add(child);
  child.once("exit", () => running.delete(child));
  child.log = "";
  child.stderr.on("data", (data) => { child.log += data; });
  return child;
}

export function stop(child) {
  return new Promise((done) => {
    if (child.exitCode != null || child.signalCode) return done();
    child.once("exit", done);
    child.kill("SIGTERM");
  });
}

function firstLine(child) {
  return new Promise((done, fail) => {
    let text = "";
    child.stdout.on("data", (data) => {
      text += data;
      if (text.includes("\n")) done(text.split("\n")[0]);
    });
    child.once("exit", (code) => fail(new Error("ended with " + code + ": " + child.log)));
  });
}

/** With these limits and up to this many files, if they are given. */
export async function leaker(name, { soft, hard = soft, most } = {}) {
  const file = join(mkdtempSync(join(tmpdir(), "fdguard-page-")), "leak.py");
  writeFileSync(file, LEAKER);
  return start("python3", [file, name, ...(soft ? [soft, hard, most].map(String) : [])]);
}

export async function crowd(count, name) {
  const child = start("python3", ["-c", CROWD, String(count), name]);
  await firstLine(child);
  return child;
}

/** `fdguard serve` in a directory of its own. */
export async function serve(options = {}) {
  const dir = options.dir || mkdtempSync(join(tmpdir(), "fdguard-page-"));
  writeFileSync(join(dir, "view"), options.token || VIEW, { mode: 0o600 });
  writeFileSync(join(dir, "act"), ACT, { mode: 0o600 });
  const child = start(process.env.FDGUARD, ["serve", "--listen", options.listen || "127.0.0.1:0",
    "--token-file", join(dir, "view"), "--act-token-file", join(dir, "act"), "--state", dir,
    "--every", "200ms", "--sample-every", "200ms", "--budget", "30%",
    ...(options.hasEvidence ? [] : ["--no-evidence"]), ...(options.args || [])]);
  const line = await firstLine(child);
  const url = /listens at (\S+)/.exec(line)[1];
  return {
    dir, url, child,
    log: () => child.log,
    token: () => readFileSync(join(dir, "view"), "utf8"),
    async stop() { await stop(child); if (!options.dir) rmSync(dir, { recursive: true, force: true }); },
  };
}

/** A server that answers as Prometheus does, with the same numbers for each of these services. */
export function metricEngine(services) {
  const numbers = { fdguard_open_fds: 900, fdguard_fd_limit: 1024, fdguard_fd_usage_ratio: 0.88,
    fdguard_fd_growth_per_second: 0.5, fdguard_verdict: 4, fdguard_processes: 1,
    fdguard_seconds_to_limit: 248 };
  const value = (number) => [Date.now() / 1000, String(number)];
  const answer = (query) => {
    if (query.startsWith("count by")) return services.map(({ instance }) =>
      ({ metric: { instance }, value: value(1) }));
    if (/^(bottomk|topk)/.test(query)) return services.map((metric) => ({ metric, value: value(248) }));
    return services.flatMap((labels) => Object.entries(numbers).map(([name, number]) =>
      ({ metric: { __name__: name, ...labels }, value: value(number) })));
  };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (data) => { body += data; });
    request.on("end", () => {
      const asked = new URLSearchParams(request.method === "POST" ? body : request.url.split("?")[1]);
      const data = { resultType: "vector", result: answer(asked.get("query") || "") };
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ status: "success", data }));
    });
  });
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done({
    url: "http://127.0.0.1:" + server.address().port,
    stop: () => new Promise((ended) => { server.close(ended); server.closeAllConnections(); }),
  })));
}

/** Records in which colours and dashes a page draws on its canvases. Runs in the page. */
function recordStrokes() {
  globalThis.strokes = new Set();
  const { stroke } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.stroke = function (...args) {
    globalThis.strokes.add(this.strokeStyle + " " + this.getLineDash().join(","));
    return stroke.apply(this, args);
  };
}

let browser;
export async function openPage(url, options = {}) {
  browser ||= await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.problems = [];
  page.streams = 0;
  await page.addInitScript(recordStrokes);
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("dialog", (dialog) => { page.problems.push("dialog"); dialog.dismiss(); });
  page.on("request", (request) => {
    const isOwn = request.url().startsWith(url) || request.url().startsWith("data:");
    if (!isOwn) page.problems.push("request to " + request.url());
    page.streams += request.url().endsWith("/api/v1/events") ? 1 : 0;
  });
  await page.goto(url + "/" + (options.hash || ""));
  return page;
}

export async function signIn(page, token = VIEW) {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Open" }).click();
}

export async function closeAll() {
  if (browser) await browser.close();
  await Promise.all([...running].map(stop));
}

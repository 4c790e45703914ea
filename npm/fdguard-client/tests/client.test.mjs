// The client against the real host.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { DynamicStructuredTool } from "@langchain/core/tools";
import { jsonSchema, tool as aiTool } from "ai";
import { CommandFailed, ConnectionFailed, Host, ProblemError, SessionTool, StartFailed, check, isOk } from "fdguard-client";

const program = process.env.FDGUARD;
const descriptors = () => readdirSync("/proc/self/fd").length;
const isRunning = (pid) => existsSync(`/proc/${pid}`) && !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));

/** Waits for the end of a process that need not be a child. */
async function ended(pid) {
  for (let tries = 0; tries < 6000; tries++) {
    try {
      if (!isRunning(pid)) return;
    } catch {
      return;
    }
    await sleep(10);
  }
  throw new Error(`process ${pid} is still running`);
}

describe("sessions", () => {
  let host, root;
  before(async () => {
    root = mkdtempSync(join(tmpdir(), "fdguard-test-"));
    host = await Host.open({ program, options: ["--root", root] });
  });
  after(async () => {
    await host.close();
    rmSync(root, { recursive: true });
  });

  it("give exact results", async () => {
    const shell = await host.session("bash", { channel: "pipes" });
    const result = await shell.run("cd /tmp; echo hi; echo oh >&2; (exit 7)");
    assert.deepEqual(result.outcome, { how: "exited", status: 7 });
    assert.deepEqual([result.stdout.text, result.stderr.text, result.folder], ["hi\n", "oh\n", "/tmp"]);
    assert.equal(isOk(result), false);
    assert.throws(() => check(result), (error) => error instanceof CommandFailed && error.message === "command exited 7: oh");
    assert.equal(check(await shell.run("pwd")).stdout.text, "/tmp\n");
    const slow = await shell.run("echo begun; sleep 1000", { timeoutMs: 1000 });
    assert.deepEqual([slow.outcome.how, slow.stdout.text], ["timed-out", "begun\n"]);
    await shell.run("sleep 1000 &");
    const receipt = await shell.close();
    assert.deepEqual([receipt.clean, receipt.survivors, receipt.reaped, receipt.descriptorsLeft], [true, 0, 1, 0]);
    assert.equal(await shell.close(), receipt);
  });

  it("stream output, and bytes that are not text", async () => {
    const shell = await host.session("bash", { channel: "pipes" });
    const stream = await shell.stream("printf 'a\\xffb'; echo oh >&2");
    const pieces = { stdout: [], stderr: [] };
    for await (const chunk of stream) pieces[chunk.stream].push(chunk.data);
    assert.deepEqual(Buffer.concat(pieces.stdout), Buffer.from([97, 255, 98]));
    assert.equal(Buffer.concat(pieces.stderr).toString(), "oh\n");
    assert.equal((await stream.result()).outcome.status, 0);
    await shell.close();
  });

  it("are interrupted by a call, by a signal and by leaving a stream", async () => {
    const shell = await host.session("bash", { channel: "pipes" });
    const stream = await shell.stream("echo begun; sleep 1000");
    for await (const _ of stream) {
      assert.notEqual((await shell.info()).busyMs, null);
      await assert.rejects(shell.run("true"), (error) => error instanceof ProblemError && error.code === "busy" && error.problem.status === 409);
      assert.equal(await shell.interrupt(), true);
      break;
    }
    assert.equal((await stream.result()).outcome.how, "interrupted");
    assert.equal(await shell.interrupt(), false);
    const until = async (isBusy) => {
      while (((await shell.info()).busyMs !== null) !== isBusy);
    };
    const stop = new AbortController();
    const running = shell.run("sleep 1000", { signal: stop.signal });
    await until(true);
    stop.abort();
    await assert.rejects(running, { name: "AbortError" });
    await until(false);
    const left = await shell.stream("sleep 1000");
    await until(true);
    left.close();
    await until(false);
    assert.equal((await shell.run("echo on")).stdout.text, "on\n");
    assert.equal((await shell.reset()).reason, "reset");
    await shell.close();
  });

  it("take all settings", async () => {
    const options = { channel: { pty: { columns: 100, rows: 50 } }, folder: root, environment: { someWord: "red" }, limits: { descriptors: 64 }, outputCap: 4096, readyWithinMs: 60_000 };
    const shell = await host.session("bash", options);
    const said = await shell.run("echo $someWord; stty size; ulimit -n; pwd");
    assert.deepEqual(said.stdout.text.split(/\s+/).filter(Boolean), ["red", "50", "100", "64", root]);
    assert.equal(said.stderr, null);
    assert.equal((await shell.info()).limitsKeptBy.descriptors, "rlimit");
    const python = await host.session("python");
    await python.run("x = 20");
    assert.equal((await python.run("print(x + 1)")).stdout.text, "21\n");
    assert.equal((await host.sessions()).length, 2);
    await Promise.all([shell.close(), python.close()]);
    const template = 'eval "$(cat {file})"; printf "%s %d\\n" {nonce} $? >&{fd}\n';
    const sh = await host.session({ command: ["sh"], template }, { channel: "pipes" });
    assert.equal((await sh.run("echo from sh")).stdout.text, "from sh\n");
    await sh.close();
  });

  it("answer a refusal with the problem document", async () => {
    await assert.rejects(host.session("cobol"), (error) => {
      assert(error instanceof ProblemError);
      assert.deepEqual([error.problem.status, error.problem.type], [422, "urn:fdguard:problem:bad-request"]);
      return true;
    });
    await assert.rejects((await Host.open({ url: host.url, token: "wrong", tied: false })).sessions(), (error) => error.problem.status === 401);
  });

  it("are tools of models", async () => {
    const shell = await host.session("bash", { channel: "pipes" });
    const tool = new SessionTool(shell, { name: "bash", longest: 100 });
    assert.equal(tool.anthropic().input_schema.required[0], "code");
    const answer = await tool.anthropicResult({ id: "t1", input: { code: "echo hi; false" } });
    assert.deepEqual(answer, { type: "tool_result", tool_use_id: "t1", content: "hi\n[exited 1]", is_error: false });
    assert((await tool.anthropicResult({ id: "t2", input: {} })).is_error);
    const call = { id: "c1", function: { arguments: JSON.stringify({ code: "echo oh >&2; sleep 1000", timeout_ms: 500 }) } };
    assert.deepEqual(await tool.openaiResult(call), { role: "tool", tool_call_id: "c1", content: "stderr:\noh\n[timed-out]" });
    assert.match((await tool.openaiResponseResult({ call_id: "c2", arguments: "{" })).output, /^error: /);
    assert.equal(tool.openaiResponse().parameters.type, "object");
    assert.match(await tool.run("seq 1000"), /^1\n2\n[^]*characters left out[^]*1000\n\[exited 0\]$/);
    await shell.close();
  });

  it("are tools of LangChain and of the AI SDK", async () => {
    const shell = await host.session("bash", { channel: "pipes" });
    const tool = new SessionTool(shell, { name: "bash" });
    const chained = new DynamicStructuredTool(tool.langchain());
    assert.equal(await chained.invoke({ code: "x=3; echo $x" }), "3\n[exited 0]");
    const call = { type: "tool_call", id: "l1", name: "bash", args: { code: "echo $x; false" } };
    const message = await chained.invoke(call);
    assert.deepEqual([message.tool_call_id, message.content], ["l1", "3\n[exited 1]"]);
    const made = aiTool(tool.aiSdk(jsonSchema));
    assert.equal(made.inputSchema.jsonSchema.required[0], "code");
    assert.equal(await made.execute({ code: "echo $x" }, { toolCallId: "a1", messages: [] }), "3\n[exited 0]");
    assert.match(await made.execute({}, { toolCallId: "a2", messages: [] }), /^error: /);
    await shell.close();
  });

  it("belong to scopes, which clean up", async (test) => {
    const dir = join(root, "agent");
    mkdirSync(dir);
    writeFileSync(join(dir, "log.jsonl"), "{}\n");
    const scope = await host.scope("agent 7", dir);
    await scope.addSession(await host.session("bash"));
    await scope.addFile("log.jsonl", "archive");
    await scope.addDirectory("work");
    const own = spawn("sleep", ["1000"]);
    test.after(() => own.kill());
    await scope.addProcess(own.pid, { whose: "lent" });
    const view = await scope.addProgram(["sh", "-c", "echo $WORD; exec sleep 1000"], { log: "out.log", environment: { WORD: "hi" }, role: "main" });
    // The log of the program is a resource, too.
    assert.equal(view.resources.length, 6);
    assert.equal((await scope.view()).status, "running");
    assert.equal((await host.scopes())[0].id, scope.id);
    const done = await scope.close();
    assert(done.success && done.resources.every((one) => one.ok));
    assert.equal(own.exitCode, null);
    await ended(view.resources.find((one) => one.kind === "program").pid);
  });

  it("come with calls, archives, health and metrics", async () => {
    writeFileSync(join(root, "a.log"), "one line\n");
    assert((await host.archive([join(root, "a.log")], join(root, "old"))).success);
    const silent = createServer().listen(0, "127.0.0.1");
    await once(silent, "listening");
    const call = host.call(`http://127.0.0.1:${silent.address().port}/`, { headers: { a: "b" }, body: "x" });
    const [connection] = await once(silent, "connection");
    const [info] = await host.calls();
    assert.equal((await host.abortCall(info.id)).sockets, 1);
    await assert.rejects(call, (error) => error.code === "aborted");
    connection.destroy();
    silent.close();
    assert.equal((await host.health()).status, "ok");
    assert.match(await host.metrics(), /fdguard_host_sessions/);
    assert.equal((await host.openapi()).openapi, "3.1.0");
    await assert.rejects(host.ticket("nothing"), (error) => error.code === "unknown");
  });
});

const CLIENT = `
import { Host } from "fdguard-client";
const host = await Host.open(JSON.parse(process.argv[1]));
const shell = await host.session("bash");
await shell.run("sleep 1000 &");
console.log(JSON.stringify({ url: host.url, pids: [shell.pid, Number((await shell.run("echo $!")).stdout.text)] }));
if (process.argv[2] === "wait") await new Promise((resolve) => process.stdin.on("end", resolve).resume());
`;

/** A client in its own process with an open session. */
async function startClient(options, ...more) {
  const args = ["--input-type=module", "-e", CLIENT, "--", JSON.stringify(options), ...more];
  const client = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "inherit"] });
  const [line] = await once(createInterface(client.stdout), "line");
  return { client, ...JSON.parse(line) };
}

describe("a private host", () => {
  it("ends with its process, however that ends", async () => {
    for (const how of ["SIGKILL", "SIGTERM", "end"]) {
      const { client, url, pids } = await startClient({ program }, how === "end" ? "" : "wait");
      const dir = dirname(url.slice("unix:".length));
      if (how !== "end") client.kill(how);
      await once(client, "close");
      for (const pid of pids) await ended(pid);
      for (let tries = 0; existsSync(dir); tries++) {
        assert(tries < 6000, "the directory is left");
        await sleep(10);
      }
    }
  });

  it("ends with close, and leaves no descriptor", async () => {
    await (await Host.open({ program })).close();
    const before = descriptors();
    const host = await Host.open({ program });
    const { pid } = await host.session();
    await host.close();
    await ended(pid);
    assert.equal(descriptors(), before);
    await assert.rejects(host.health(), ConnectionFailed);
  });

  it("says why it did not start", async () => {
    await assert.rejects(Host.open({ program, options: ["--root", "/nonexistent/root"] }), (error) => error instanceof StartFailed && /nonexistent/.test(error.message));
    await assert.rejects(Host.open({ program: "/nonexistent/fdguard" }), /not an executable program/);
    await assert.rejects(Host.open({ program: "/bin/false" }), /did not start/);
    await assert.rejects(Host.open({ url: "localhost:7878" }), TypeError);
  });

  it("can be used from CommonJS", async () => {
    const require = createRequire(import.meta.url);
    const host = await require("fdguard-client").Host.open({ program });
    const shell = await host.session("bash", { channel: "pipes" });
    assert.equal((await shell.run("echo hi")).stdout.text, "hi\n");
    await host.close();
  });
});

describe("a running host", () => {
  it("ends the sessions of a client that ends", async () => {
    const dir = mkdtempSync(join(tmpdir(), "fdguard-test-"));
    const daemon = spawn(program, ["host", "--listen", "127.0.0.1:0", "--token-file", join(dir, "token")], { stdio: ["ignore", "pipe", "ignore"] });
    const [line] = await once(createInterface(daemon.stdout), "line");
    const url = line.split(" ").at(-1);
    const token = readFileSync(join(dir, "token"), "utf8").trim();
    const { client, pids } = await startClient({ url, token }, "wait");
    client.kill("SIGKILL");
    for (const pid of pids) await ended(pid);
    const before = descriptors();
    const host = await Host.open({ url, token });
    const { pid } = await host.session();
    assert.equal((await host.health()).clients, 1);
    await host.close();
    await ended(pid);
    const other = await Host.open({ url, token, tied: false });
    assert.deepEqual(await other.sessions(), []);
    assert.equal((await other.health()).clients, 0);
    for (let tries = 0; descriptors() !== before; tries++) {
      assert(tries < 6000, "descriptors left");
      await sleep(10);
    }
    daemon.kill();
    assert.deepEqual(await once(daemon, "exit"), [0, null]);
    rmSync(dir, { recursive: true });
  });
});

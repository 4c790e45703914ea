// A test that leaks fails with its line, and a clean one passes.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, it } from "node:test";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const dir = mkdtempSync(join(here, "../example-"));
after(() => rmSync(dir, { recursive: true }));

const BODY = `
import { closeSync, openSync } from "node:fs";
import { createServer } from "node:net";

const read = () => openSync("/etc/hosts");

it("is clean", async () => {
  closeSync(read());
  const server = createServer();
  await new Promise((done) => server.listen(0, done));
  server.close();
});
it("leaks a file", () => {
  read();
});
describe("a suite", () => {
  it("leaks a server", async () => {
    await new Promise((done) => createServer().listen(0, done).unref());
  });
});
`;
// The lines of read() and of createServer() in both files.
const [FILE, SERVER] = [5, 18];

function run(command, { isTraced = true, ...more } = {}) {
  const program = process.env.FDGUARD;
  const tracer = isTraced ? [program, "trace", "--every", "60s", "--error-exitcode", "0", "-o", "/dev/null", "--"] : [];
  const [first, ...rest] = [...tracer, ...command];
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const ended = spawnSync(first, rest, { cwd: dir, encoding: "utf8", env: { ...env, ...more, NO_COLOR: "1" } });
  return { status: ended.status, said: ended.stdout + ended.stderr };
}

const nodeTest = [process.execPath, "--test", "--test-reporter=tap", "--import", "fdguard-test/node", "leak.test.mjs"];
writeFileSync(join(dir, "leak.test.mjs"), `import { describe, it } from "node:test";${BODY}`);

it("fails a leaking test of node:test with its line", () => {
  const { status, said } = run(nodeTest);
  assert.equal(status, 1, said);
  assert.match(said, /\bok 1 - is clean/);
  assert.match(said, /not ok 2 - leaks a file/);
  assert.match(said, /not ok 1 - leaks a server/);
  assert.match(said, new RegExp(`fd \\d+  regular /etc/hosts\\s+opened at leak.test.mjs:${FILE} read \\(open\\)`));
  assert.match(said, new RegExp(`tcp:LISTEN [^\\n]+\\s+opened at leak.test.mjs:${SERVER} `));
});

it("accepts what is allowed, and does without the tracer", () => {
  const { status, said } = run(nodeTest, { FDGUARD_TEST_ALLOW: "regular /etc/*,tcp:LISTEN *" });
  assert.equal(status, 0, said);
  const untraced = run(nodeTest, { isTraced: false });
  assert.equal(untraced.status, 1);
  assert.match(untraced.said, /fd \d+  \/etc\/hosts\s+line unknown: run the tests under `fdguard trace`/);
});

const vitest = join(here, "../../node_modules/vitest");
it("fails a leaking test of Vitest with its line", { skip: !existsSync(vitest) && "vitest is not installed" }, () => {
  writeFileSync(join(dir, "leak.spec.mjs"), `import { describe, it } from "vitest";${BODY}`);
  writeFileSync(join(dir, "vitest.config.mjs"), 'export default { test: { include: ["*.spec.mjs"], setupFiles: ["fdguard-test/vitest"], pool: "forks" } };\n');
  const { status, said } = run([process.execPath, join(vitest, "vitest.mjs"), "run", "--reporter=verbose"]);
  assert.equal(status, 1, said);
  assert.match(said, /✓ leak.spec.mjs > is clean/);
  assert.match(said, /[×✗] leak.spec.mjs > leaks a file/);
  assert.match(said, /[×✗] leak.spec.mjs > a suite > leaks a server/);
  assert.match(said, new RegExp(`fd \\d+  regular /etc/hosts\\s+opened at leak.spec.mjs:${FILE} read`));
  assert.match(said, new RegExp(`tcp:LISTEN [^\\n]+\\s+opened at leak.spec.mjs:${SERVER} `));
});

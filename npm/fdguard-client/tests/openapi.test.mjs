// The client against the OpenAPI document of the program: operations, paths and fields.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { it } from "node:test";
import { fileURLToPath } from "node:url";
import { Host, Scope, Session } from "fdguard-client";

const here = dirname(fileURLToPath(import.meta.url));
const ts = createRequire(import.meta.url)(join(here, "../../node_modules/typescript"));
const document = JSON.parse(execFileSync(process.env.FDGUARD, ["host", "--openapi"], { maxBuffer: 1 << 24 }));
const operations = new Map();
for (const [path, methods] of Object.entries(document.paths)) {
  for (const [method, one] of Object.entries(methods)) operations.set(one.operationId, { method: method.toUpperCase(), path, ...one });
}
// Operations without a method, and why.
const WITHOUT = { renew_client: "the open connection of attach_client renews the lease" };

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const resolve = (schema) => (schema.$ref && !schema.properties ? resolve(document.components.schemas[schema.$ref.split("/").pop()]) : schema);

/** All names of fields that a schema knows. */
function fieldsOf(schema) {
  const found = resolve(schema);
  const own = Object.keys(found.properties ?? {});
  if (found.$ref) own.push(...fieldsOf({ $ref: found.$ref }));
  for (const one of [...(found.oneOf ?? []), ...(found.anyOf ?? [])]) own.push(...fieldsOf(one));
  return [...new Set(own)].filter((name) => name !== "schema");
}

function schemaNamed(name) {
  if (document.components.schemas[name]) return document.components.schemas[name];
  const answers = operations.get(name).responses;
  return (answers["200"] ?? answers["201"]).content["application/json"].schema;
}

it("has the fields of each schema in its types", () => {
  const file = join(here, "../node_modules/fdguard-client/dist/esm/types.d.ts");
  const source = ts.createSourceFile(file, ts.sys.readFile(file), ts.ScriptTarget.ES2022, true);
  let checked = 0;
  for (const node of source.statements.filter(ts.isInterfaceDeclaration)) {
    const tag = ts.getJSDocTags(node).find((one) => one.tagName.text === "schema");
    if (!tag) continue;
    const name = String(tag.comment).trim();
    const own = node.members.map((member) => snake(member.name.text)).sort();
    // The address of a call is an argument.
    const wanted = fieldsOf(schemaNamed(name)).filter((field) => !(name === "NewCall" && field === "url"));
    assert.deepEqual(own, wanted.sort(), `${node.name.text} and ${name}`);
    checked++;
  }
  assert(checked >= 24, `only ${checked} interfaces name their schema`);
});

/** A server that writes down what it is asked, and answers with an empty object. */
async function record(use) {
  const asked = [];
  const server = createServer(async (request, response) => {
    let content = "";
    for await (const piece of request) content += piece;
    asked.push({ method: request.method, path: request.url, accept: request.headers.accept, body: content ? JSON.parse(content) : undefined });
    response.setHeader("content-type", "application/json");
    // This connection stays open until the client closes it.
    if (request.url.endsWith("/attach")) return response.write("event: attached\n\n");
    response.end('{"id": "i", "sessions": [], "scopes": [], "calls": []}');
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  await use(`http://127.0.0.1:${server.address().port}`);
  server.close();
  server.closeAllConnections();
  return asked;
}

it("asks only what the document has, and all of it", async () => {
  const asked = await record(async (url) => {
    const host = await Host.open({ url, token: "t" });
    const session = await host.session({ command: ["x"], template: "y" }, {
      channel: { pty: { columns: 80, rows: 24 } }, folder: "f", environment: { someName: "b" },
      limits: { memoryBytes: 1, cpuSeconds: 2, processes: 3, descriptors: 4 }, outputCap: 5, readyWithinMs: 6,
    });
    await session.run("code", { timeoutMs: 1 });
    await (await session.stream("code", { timeoutMs: 1 })).close();
    await session.interrupt();
    await session.reset();
    await session.info();
    await session.close();
    const scope = await host.scope("n", "r", { archiveTo: "a" });
    await scope.addSession("s", { role: "main", whose: "lent" });
    await scope.addProgram(["c"], { log: "l", environment: { A: "b" }, role: "main" });
    await scope.addProcess(1, { role: "main", whose: "lent" });
    await scope.addFile("p", "keep");
    await scope.addDirectory("n");
    await scope.view();
    await scope.close();
    await host.archive(["f"], "t", { waitMs: 1 });
    await host.call("u", { method: "m", headers: { "X-Name": "b" }, body: "b", bodyBase64: "c", timeoutMs: 1 });
    await host.calls();
    await host.abortCall("i");
    await host.ticket("i");
    await host.sessions();
    await host.scopes();
    await host.health();
    await host.metrics();
    await host.openapi();
    await host.close();
  });
  const used = new Set();
  for (const one of asked) {
    const [name, operation] = [...operations].find(([, { method, path }]) => method === one.method && path.replace("{id}", "i") === one.path) ?? [];
    assert(operation, `${one.method} ${one.path} is not in the document`);
    used.add(name);
    const answers = Object.entries(operation.responses).filter(([code]) => code < "300").flatMap(([, answer]) => Object.keys(answer.content));
    assert(answers.includes(one.accept), `${name} does not answer with ${one.accept}`);
    assert.equal(one.body !== undefined, operation.requestBody !== undefined, name);
    if (one.body) fits(one.body, operation.requestBody.content["application/json"].schema, name);
  }
  assert.deepEqual([...operations.keys()].filter((name) => !used.has(name)), Object.keys(WITHOUT));
});

/** The body has exactly the fields of the schema, or of one of its variants, on all levels. */
function fits(body, schema, where) {
  const found = resolve(schema);
  const variants = [found, ...(found.oneOf ?? []), ...(found.anyOf ?? [])].map(resolve).filter((one) => one.properties);
  if (variants.length === 0 || body === null || typeof body !== "object") return;
  const names = Object.keys(body).sort();
  const fitting = variants.find((one) => JSON.stringify(Object.keys(one.properties).sort()) === JSON.stringify(names));
  assert(fitting, `${where}: ${names} is none of ${variants.map((one) => Object.keys(one.properties))}`);
  for (const [name, value] of Object.entries(body)) fits(value, fitting.properties[name], `${where}.${name}`);
}

it("has the names of the Python client in camel case", () => {
  const methods = (kind) => Object.getOwnPropertyNames(kind.prototype).filter((name) => !["constructor", "ask", "open", "url"].includes(name)).sort();
  assert.deepEqual(methods(Host), ["abortCall", "archive", "call", "calls", "close", "health", "metrics", "openapi", "scope", "scopes", "session", "sessions", "ticket"]);
  assert.deepEqual(methods(Session), ["close", "info", "interrupt", "reset", "run", "stream"]);
  assert.deepEqual(methods(Scope), ["addDirectory", "addFile", "addProcess", "addProgram", "addSession", "close", "view"]);
});

it("has strict types for users of both kinds of modules", () => {
  const root = join(here, "types");
  const tsc = join(here, "../../node_modules/typescript/bin/tsc");
  const roots = join(here, "../../node_modules/@types");
  const flags = ["--strict", "--noEmit", "--module", "node16", "--target", "es2022", "--lib", "es2022,esnext.disposable", "--typeRoots", roots, "--types", "node"];
  execFileSync(process.execPath, [tsc, ...flags, join(root, "use.mts"), join(root, "use.cts")], { stdio: "inherit" });
});

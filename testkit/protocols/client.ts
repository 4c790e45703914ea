// Uses the types that openapi-typescript generated: node client.js ADDRESS TOKEN.
// Opens a session, runs a command in it, closes it. `tsc --strict` is the first half of the test.
import createClient from "openapi-fetch";
import type { components, paths } from "./api";

declare const process: { argv: string[] };
const [address, token] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const client = createClient<paths>({ baseUrl: address, headers });

function must(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

const opened = await client.POST("/v1/sessions", { body: { program: "bash", channel: "pipes" } });
must(opened.data !== undefined, opened.error);
const id: string = opened.data.id;
const path = { id };
const done = await client.POST("/v1/sessions/{id}/exec", { params: { path }, body: { code: "echo hello" } });
// The same route also gives a stream of events, as text, to who asks for one.
must(done.data !== undefined && typeof done.data !== "string", done);
must(done.data.stdout.text === "hello\n", done);
const outcome: components["schemas"]["ExecOutcome"] = done.data.outcome;
must(outcome.how === "exited" && outcome.status === 0, outcome);
const closed = await client.DELETE("/v1/sessions/{id}", { params: { path } });
must(closed.data?.clean === true, closed);
const unknown = await client.GET("/v1/sessions/{id}", { params: { path: { id: "nonsense" } } });
must(unknown.error?.code === "unknown", unknown);
console.log("ok");

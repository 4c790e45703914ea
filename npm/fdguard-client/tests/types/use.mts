import { Host, type Receipt, type Result, SessionTool } from "fdguard-client";

await using host = await Host.open({ program: "fdguard" });
await using shell = await host.session("bash", { channel: "pipes", limits: { descriptors: 64 } });
const result: Result = await shell.run("true", { timeoutMs: 5 });
const status: number | null | undefined = result.outcome.status;
for await (const chunk of await shell.stream("true")) chunk.text satisfies string;
const receipt: Receipt = await shell.close();
receipt.survivors satisfies number | null;
const tool: { name: string } = new SessionTool(shell).anthropic();
// @ts-expect-error There is no such program.
await host.session("cobol");
// @ts-expect-error Seconds are not milliseconds.
await shell.run("true", { timeout: 5 });
export { status, tool };

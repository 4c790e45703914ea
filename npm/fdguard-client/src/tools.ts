// A session as a tool of a language model: the definition that its API takes, and the answer to a
// call. Other frameworks take a function: pass `tool.run`.
import { HostError } from "./errors.js";
import type { Session } from "./session.js";
import type { Output, Result } from "./types.js";

/** Characters of output that a model gets for one call; the middle is cut. */
const LONGEST = 30_000;

export interface ToolOptions {
  name?: string;
  description?: string;
  longest?: number;
}

/** A tool that runs code in one session. The caller owns the session and closes it. */
export class SessionTool {
  readonly name: string;
  readonly description: string;
  readonly #longest: number;

  constructor(readonly session: Session, options: ToolOptions = {}) {
    this.name = options.name ?? "run";
    this.description =
      options.description ??
      "Run code in a persistent session. Directory, variables and background jobs stay between calls. Returns the output and how the code ended.";
    this.#longest = options.longest ?? LONGEST;
  }

  run = async (code: string, timeoutMs?: number): Promise<string> => {
    const options = timeoutMs === undefined ? {} : { timeoutMs };
    return describe(await this.session.run(code, options), this.#longest);
  };

  /** Runs a call of a model; `given` are its arguments, or their JSON. */
  async call(given: unknown): Promise<string> {
    const args = (typeof given === "string" ? JSON.parse(given) : given) as { code?: unknown; timeout_ms?: unknown } | null;
    if (typeof args?.code !== "string") throw new TypeError("the arguments must be an object with a string `code`");
    return this.run(args.code, args.timeout_ms == null ? undefined : Number(args.timeout_ms));
  }

  /** The JSON schema of the arguments. */
  schema() {
    const code = { type: "string", description: "Code to run; may have several lines" };
    const timeout_ms = { type: "integer", minimum: 1, description: "Milliseconds until it is interrupted (60000)" };
    return { type: "object" as const, properties: { code, timeout_ms }, required: ["code"] };
  }

  anthropic() {
    return { name: this.name, description: this.description, input_schema: this.schema() };
  }

  /** Answers a `tool_use` block with a `tool_result` block. */
  async anthropicResult(block: { id: string; input: unknown }) {
    const { content, isError } = await this.#answer(block.input);
    return { type: "tool_result" as const, tool_use_id: block.id, content, is_error: isError };
  }

  openai() {
    const { name, description } = this;
    return { type: "function" as const, function: { name, description, parameters: this.schema() } };
  }

  /** Answers a tool call of Chat Completions with a message. */
  async openaiResult(call: { id: string; function: { arguments: string } }) {
    const { content } = await this.#answer(call.function.arguments);
    return { role: "tool" as const, tool_call_id: call.id, content };
  }

  openaiResponse() {
    return { type: "function" as const, ...this.openai().function };
  }

  /** Answers a `function_call` item of Responses with its output item. */
  async openaiResponseResult(call: { call_id: string; arguments: string }) {
    const { content } = await this.#answer(call.arguments);
    return { type: "function_call_output" as const, call_id: call.call_id, output: content };
  }

  /** The fields of a tool of LangChain: `new DynamicStructuredTool(tool.langchain())`. */
  langchain() {
    const { name, description } = this;
    return { name, description, schema: this.schema(), func: this.#text };
  }

  /** A tool of the Vercel AI SDK, for `tools: { bash: … }`; `jsonSchema` is the function of its package `ai`. */
  aiSdk<S>(jsonSchema: (schema: any) => S) {
    const { description } = this;
    return { description, inputSchema: jsonSchema(this.schema()), execute: this.#text };
  }

  #text = async (given: unknown): Promise<string> => (await this.#answer(given)).content;

  /** A model can react to a result and to an error. */
  async #answer(given: unknown): Promise<{ content: string; isError: boolean }> {
    try {
      return { content: await this.call(given), isError: false };
    } catch (error) {
      if (!(error instanceof HostError || error instanceof TypeError || error instanceof SyntaxError)) throw error;
      return { content: `error: ${error.message}`, isError: true };
    }
  }
}

/** A result as text for a model. */
export function describe(result: Result, longest = LONGEST): string {
  const parts = [cut(result.stdout, longest)];
  if (result.stderr?.text.trim()) parts.push(`stderr:\n${cut(result.stderr, longest)}`);
  if (result.earlier?.text.trim()) parts.push(`output of earlier commands:\n${cut(result.earlier, longest)}`);
  const { how, status } = result.outcome;
  let ended = `[${how}${status == null ? "" : ` ${status}`}]`;
  if (result.wasReset) ended += " [the interpreter was restarted: variables are lost]";
  return [...parts.filter((part) => part).map((part) => part.replace(/\n+$/, "")), ended].join("\n");
}

function cut({ text }: Output, longest: number): string {
  if (text.length <= longest) return text;
  const half = Math.floor(longest / 2);
  return `${text.slice(0, half)}\n[… ${text.length - 2 * half} characters left out …]\n${text.slice(-half)}`;
}

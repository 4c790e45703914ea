// Adds a token to every request of a program that knows none: node --import bearer.mjs PROGRAM.
// MODULES names the directory with the package undici, TOKEN the token. Node's own fetch and the
// package share one dispatcher, so this reaches both.
import { createRequire } from "node:module";

const { Agent, setGlobalDispatcher } = createRequire(process.env.MODULES + "/")("undici");
const header = `Bearer ${process.env.TOKEN}`;

function withToken(headers) {
  if (Array.isArray(headers)) return [...headers, "authorization", header];
  return { ...headers, authorization: header };
}

const addToken = (dispatch) => (options, handler) =>
  dispatch({ ...options, headers: withToken(options.headers) }, handler);
setGlobalDispatcher(new Agent().compose(addToken));

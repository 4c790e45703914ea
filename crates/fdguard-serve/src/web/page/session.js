// Requests with the token, and the stream of events. The token for viewing stays in this tab's
// session; the one for acting only in memory.

let token = sessionStorage.getItem("fdguard-token") || "";
let actToken = "";

export class Refused extends Error {}

export function setToken(text) {
  token = text;
  sessionStorage.setItem("fdguard-token", text);
}

export const setActToken = (text) => { actToken = text; };

async function request(path, options, bearer) {
  const headers = bearer ? { Authorization: "Bearer " + bearer } : {};
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const why = problem.detail || "status " + response.status;
  throw response.status === 401 ? new Refused(why) : new Error(why);
}

export const load = async (path) => (await request(path, {}, token)).json();

/** An action, with the token for acting if one was given. */
export const act = (path, body) =>
  request(path, { method: "POST", body: JSON.stringify(body) }, actToken || token);

/** Calls back for each event until the stream ends. EventSource cannot send a token. */
export async function follow(each) {
  const response = await request("api/v1/events", {}, token);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const name = /^event: (.*)$/m.exec(frame);
      const data = /^data: (.*)$/m.exec(frame);
      if (name && data) each(name[1], JSON.parse(data[1]));
    }
  }
}

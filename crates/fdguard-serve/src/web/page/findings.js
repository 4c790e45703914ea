// The history of findings, and their suppression.

import { askRefresh, el } from "./dom.js";
import { findingBlock } from "./finding.js";
import { load } from "./session.js";

const STATES = ["open", "resolved", "suppressed", "all"];
const choice = { state: "open" };
/** The history is read this often, in milliseconds: what it has beyond the live findings is over. */
const OLDER_PACE = 60000;

export function findingsView() {
  const list = el("div", { id: "finding-list" });
  const state = el("select", { id: "finding-state",
    onchange: () => { choice.state = state.value; askRefresh(); } },
  STATES.map((name) => el("option", { selected: name === choice.state }, name)));
  const element = el("div", {}, el("h2", {}, "Findings"),
    el("div", { class: "tools" }, el("label", {}, "State ", state)), list);

  let older = { state: "", at: 0, findings: [] };

  /** The live findings, and those that only the history has. */
  async function loadFindings(head) {
    const path = "api/v1/findings?state=" + choice.state;
    const isKept = older.state === choice.state && Date.now() - older.at < OLDER_PACE;
    if (choice.state === "open" || isKept) {
      const document = await load(path);
      if (choice.state === "open") return document;
      const known = new Set(head.findings.map((one) => one.id));
      const rest = older.findings.filter((one) => !known.has(one.id));
      const all = [...document.findings, ...rest].sort((a, b) => b.id - a.id);
      return { ...document, findings: all, history_error: older.why };
    }
    const document = await load(path + "&older=true");
    older = { state: choice.state, at: Date.now(), findings: document.findings,
      why: document.history_error };
    return document;
  }

  async function refresh() {
    const head = await load("api/v1/overview?limit=0");
    const document = await loadFindings(head);
    // A form that a person fills in stays as it is.
    const kept = new Map();
    for (const block of list.querySelectorAll("article:has(form)")) kept.set(block.dataset.id, block);
    const blocks = document.findings.map((one) =>
      (one.state === "open" && kept.get(String(one.id))) || findingBlock(one, { isFull: true }));
    const focused = globalThis.document.activeElement;
    const why = document.history_error;
    list.replaceChildren(
      why ? el("p", { class: "failed", role: "alert" }, "The history cannot be read: " + why) : "",
      ...(blocks.length ? blocks : [el("p", { class: "dim" }, "None.")]));
    if (focused && list.contains(focused)) focused.focus();
    return head;
  }
  return { name: "findings", title: "findings", element, refresh };
}

// The history of findings, and their suppression.

import { askRefresh, el } from "./dom.js";
import { findingBlock } from "./finding.js";
import { load } from "./session.js";

const STATES = ["open", "resolved", "suppressed", "all"];
const choice = { state: "open" };

export function findingsView() {
  const list = el("div", { id: "finding-list" });
  const state = el("select", { id: "finding-state",
    onchange: () => { choice.state = state.value; askRefresh(); } },
  STATES.map((name) => el("option", { selected: name === choice.state }, name)));
  const element = el("div", {}, el("h2", {}, "Findings"),
    el("div", { class: "tools" }, el("label", {}, "State ", state)), list);

  async function refresh() {
    const [head, document] = await Promise.all([
      load("api/v1/overview?limit=0"), load("api/v1/findings?state=" + choice.state)]);
    // A form that a person fills in stays as it is.
    const kept = new Map();
    for (const block of list.querySelectorAll("article:has(form)")) kept.set(block.dataset.id, block);
    const blocks = document.findings.map((one) =>
      (one.state === "open" && kept.get(String(one.id))) || findingBlock(one, { isFull: true }));
    const focused = globalThis.document.activeElement;
    list.replaceChildren(...(blocks.length ? blocks : [el("p", { class: "dim" }, "None.")]));
    if (focused && list.contains(focused)) focused.focus();
    return head;
  }
  return { name: "findings", title: "findings", element, refresh };
}

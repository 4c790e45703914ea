// Snapshots of a watched process, taken now, and the difference between two of them.

import { el, moment, words } from "./dom.js";
import { load } from "./session.js";

/** Rows of a table. */
const MOST = 200;

/** Descriptors by class and target. */
export function groups(document) {
  const key = (one) => JSON.stringify([one.class, one.target == null ? "other targets" : words(one.target)]);
  return new Map((document.targets || []).map((one) => [key(one), one.count]));
}

/** What is open, or what differs between two moments. */
export function targetTable(before, after) {
  const keys = new Set([...after.sums.keys(), ...(before ? before.sums.keys() : [])]);
  const rows = [...keys].map((key) => {
    const [name, target] = JSON.parse(key);
    const [x, y] = [before ? before.sums.get(key) || 0 : null, after.sums.get(key) || 0];
    return { name, target, x, y };
  });
  const change = (row) => Math.abs(row.y - (row.x ?? 0));
  const wanted = before ? rows.filter((row) => row.x !== row.y) : rows;
  wanted.sort((a, b) => change(b) - change(a));
  const titles = before ? ["Class", "Target", "Before", "After", "Change"] : ["Class", "Target", "Open"];
  const body = wanted.slice(0, MOST).map((row) => el("tr", {}, el("td", {}, row.name),
    el("td", { class: "name" }, row.target),
    before ? [row.x, row.y, (row.y > row.x ? "+" : "") + (row.y - row.x)].map((value) =>
      el("td", { class: "n" }, String(value))) : el("td", { class: "n" }, String(row.y))));
  return el("div", { class: "scroll" }, el("table", {},
    el("caption", {}, before
      ? "Difference of " + after.name + " between " + moment(before.at) + " and " + moment(after.at)
      : after.name + " at " + moment(after.at)),
    el("thead", {}, el("tr", {}, titles.map((title, at) =>
      el("th", { scope: "col", class: at > 1 ? "n" : null }, title)))), el("tbody", {}, body)),
  wanted.length > MOST ? el("p", { class: "dim" }, wanted.length - MOST + " more rows") : "",
  wanted.length ? "" : el("p", { class: "dim" }, "No difference."));
}

export function snapshotPanel() {
  const kept = new Map();
  const shown = el("div", { id: "snapshot" });
  const buttons = el("div", { class: "tools" });
  const element = el("section", {}, el("h2", {}, "Descriptors now"), buttons, shown);
  let pids = "";

  async function take(pid, isDifference) {
    try {
      const document = await load("api/v1/snapshot?pid=" + pid);
      const now = { name: "pid " + pid, at: document.taken_at || new Date().toISOString(),
        sums: groups(document) };
      shown.replaceChildren(targetTable(isDifference ? kept.get(pid) : null, now));
      if (!isDifference) kept.set(pid, now);
      draw(JSON.parse(pids));
    } catch (error) {
      shown.replaceChildren(el("p", { role: "alert" }, error.message));
    }
  }
  function draw(list) {
    buttons.replaceChildren(...list.flatMap(([pid, comm]) => [
      el("button", { type: "button", onclick: () => take(pid, false) }, "Snapshot of " + comm + " " + pid),
      kept.has(pid) ? el("button", { type: "button", onclick: () => take(pid, true) },
        "Difference since then") : ""]));
  }
  return {
    element,
    set(watched) {
      element.hidden = watched.length === 0 && !shown.hasChildNodes();
      const list = watched.slice(0, 20).map((one) => [one.pid, words(one.comm)]);
      if (JSON.stringify(list) === pids) return;
      pids = JSON.stringify(list);
      draw(list);
    },
  };
}

// All services of the host, all of its processes, or the watched ones, in the order that matters.

import { askRefresh, duration, el, known, percent, perMinute, serviceLink, timeLeft, words } from "./dom.js";
import { findingBlock } from "./finding.js";
import { rowWindow } from "./rows.js";
import { load } from "./session.js";

const ORDERS = ["time-left", "growth", "usage", "verdict", "count", "name"];
/** Open findings at the top; the others are in the view of findings. */
const MOST_FINDINGS = 3;
// Kept while other views are open.
const choice = { q: "", sort: "time-left", what: "services" };

const text = (value, mark) => ({ text: value, mark });
const WHAT = ["services", "processes", "watched processes"];
const SERVICES = [
  ["Service", "", (one) => text(one.name)],
  ["Kind", "dim wide", (one) => text(one.kind)],
  ["Open", "n", (one) => text(known(one.open_fds))],
  ["Used", "n wide", (one) => text(known(one.usage_ratio, percent))],
  ["Growth", "n wide", (one) => text(known(one.growth_per_second, perMinute))],
  ["Verdict", "", (one) => text(one.verdict, one.verdict)],
  ["Time left", "n", (one) => text(duration(timeLeft(one.seconds_to_limit)))],
  ["Restarts", "n wide", (one) => text(String(one.restarts))],
];
const PROCESSES = [
  ["Command", "", (one) => text(words(one.comm))],
  ["Pid", "n", (one) => text(String(one.pid))],
  ["Service", "dim wide", (one) => text(one.service.name)],
  ["Open", "n", (one) => text(known(one.count))],
  ["Growth", "n wide", (one) => text(known(one.growth_per_second, perMinute))],
  ["Limit", "n wide", (one) => text(known(one.limits.soft))],
  ["Verdict", "", (one) => text(one.verdict, one.verdict)],
  ["Time left", "n", (one) => text(duration(timeLeft(one.seconds_to_limit)))],
];

function sortProcesses(list, sort) {
  const least = (one) => timeLeft(one.seconds_to_limit) ?? Infinity;
  const order = ["unknown", "stable", "bounded", "growing", "leaking"];
  const used = (one) => (one.limits.soft ? (one.count ?? 0) / one.limits.soft : 0);
  const by = {
    "growth": (a, b) => (b.growth_per_second ?? 0) - (a.growth_per_second ?? 0),
    "usage": (a, b) => used(b) - used(a),
    "count": (a, b) => (b.count ?? -1) - (a.count ?? -1),
    "verdict": (a, b) => order.indexOf(b.verdict) - order.indexOf(a.verdict),
    "name": (a, b) => words(a.comm).localeCompare(words(b.comm)),
  };
  return list.sort(by[sort] || ((a, b) => least(a) - least(b)));
}

export function overviewView() {
  const services = rowWindow("Services", SERVICES, serviceLink);
  const processes = rowWindow("Processes", PROCESSES, (one) => serviceLink(one.service));
  const findings = el("div", { id: "findings" });
  const note = el("p", { class: "dim", id: "shown" });
  const gaps = el("div", { class: "dim" });
  const search = el("input", { type: "search", id: "q", value: choice.q,
    oninput: () => { choice.q = search.value; askRefresh(); } });
  const option = (name, chosen) => el("option", { selected: name === chosen }, name);
  const sort = el("select", { id: "sort", onchange: () => { choice.sort = sort.value; askRefresh(); } },
    ORDERS.map((name) => option(name, choice.sort)));
  const what = el("select", { id: "what", onchange: () => { choice.what = what.value; askRefresh(); } },
    WHAT.map((name) => option(name, choice.what)));
  const element = el("div", {}, el("h2", {}, "Open findings"), findings,
    el("h2", {}, "Who runs out next"),
    el("div", { class: "tools" }, el("label", {}, "Search ", search),
      el("label", {}, "Order ", sort), el("label", {}, "Show ", what)),
    services.element, processes.element, note, gaps);

  /** The processes that are asked for, and how many match. */
  async function loadProcesses(overview) {
    const wanted = choice.q.toLowerCase();
    if (choice.what === "watched processes") {
      const watched = overview.watched.filter((one) =>
        words(one.comm).toLowerCase().includes(wanted));
      return [sortProcesses(watched, choice.sort), watched.length];
    }
    const query = new URLSearchParams({ sort: choice.sort, q: choice.q });
    const found = await load("api/v1/processes?" + query);
    return [found.processes, found.matched];
  }

  async function refresh() {
    const isServices = choice.what === "services";
    const query = new URLSearchParams({ sort: choice.sort, q: choice.q });
    if (!isServices) query.set("limit", "0");
    const overview = await load("api/v1/overview?" + query);
    const [list, matched] = isServices
      ? [overview.services, overview.services.length] : await loadProcesses(overview);
    services.element.hidden = !isServices;
    processes.element.hidden = isServices;
    (isServices ? services : processes).set(list);
    note.textContent = matched + " " + choice.what + (choice.q ? " match" : "") +
      (list.length < matched ? ", the first " + list.length + " are shown" : "");
    const open = overview.findings.filter((one) => one.state === "open").reverse();
    const blocks = open.slice(0, MOST_FINDINGS).map((one) => findingBlock(one, { isShort: true }));
    const more = open.length - blocks.length;
    findings.replaceChildren(...(blocks.length ? blocks : [el("p", { class: "dim" }, "None.")]),
      more > 0 ? el("p", {}, el("a", { href: "#/findings" }, more + " more")) : "");
    gaps.replaceChildren(...overview.gaps.map((gap) =>
      el("p", {}, "Not seen: " + gap.what + ": " + gap.why + "; " + gap.remedy)));
    return overview;
  }

  return {
    name: "overview", title: "overview", element, refresh,
    key(key) {
      if (key === "/") { search.focus(); return true; }
      return (choice.what === "services" ? services : processes).key(key);
    },
  };
}

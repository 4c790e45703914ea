// All services of the host, or its watched processes, in the order that matters.

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
  ["Limit", "n wide", (one) => text(known(one.limits.soft))],
  ["Verdict", "", (one) => text(one.verdict, one.verdict)],
  ["Time left", "n", (one) => text(duration(timeLeft(one.seconds_to_limit)))],
];

function sortProcesses(list, sort) {
  const least = (one) => timeLeft(one.seconds_to_limit) ?? Infinity;
  const order = ["unknown", "stable", "bounded", "growing", "leaking"];
  const by = {
    "count": (a, b) => (b.count ?? -1) - (a.count ?? -1),
    "verdict": (a, b) => order.indexOf(b.verdict) - order.indexOf(a.verdict),
    "name": (a, b) => words(a.comm).localeCompare(words(b.comm)),
  };
  return list.sort(by[sort] || ((a, b) => least(a) - least(b)));
}

export function overviewView() {
  const services = rowWindow("Services", SERVICES, serviceLink);
  const processes = rowWindow("Watched processes", PROCESSES, (one) => serviceLink(one.service));
  const findings = el("div", { id: "findings" });
  const note = el("p", { class: "dim", id: "shown" });
  const gaps = el("div", { class: "dim" });
  const search = el("input", { type: "search", id: "q", value: choice.q,
    oninput: () => { choice.q = search.value; askRefresh(); } });
  const option = (name, chosen) => el("option", { selected: name === chosen }, name);
  const sort = el("select", { id: "sort", onchange: () => { choice.sort = sort.value; askRefresh(); } },
    ORDERS.map((name) => option(name, choice.sort)));
  const what = el("select", { id: "what", onchange: () => { choice.what = what.value; askRefresh(); } },
    ["services", "watched processes"].map((name) => option(name, choice.what)));
  const element = el("div", {}, el("h2", {}, "Open findings"), findings,
    el("h2", {}, "Who runs out next"),
    el("div", { class: "tools" }, el("label", {}, "Search ", search),
      el("label", {}, "Order ", sort), el("label", {}, "Show ", what)),
    services.element, processes.element, note, gaps);

  async function refresh() {
    const query = new URLSearchParams({ sort: choice.sort, q: choice.q });
    const overview = await load("api/v1/overview?" + query);
    const isServices = choice.what === "services";
    services.element.hidden = !isServices;
    processes.element.hidden = isServices;
    const wanted = choice.q.toLowerCase();
    const watched = overview.watched.filter((one) => words(one.comm).toLowerCase().includes(wanted));
    if (isServices) services.set(overview.services);
    else processes.set(sortProcesses(watched, choice.sort));
    const count = isServices ? overview.services.length : watched.length;
    note.textContent = count + (isServices ? " services" : " watched processes") +
      (choice.q ? " match" : "");
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

// One service: counts and classes over time, findings, moments and their difference, snapshots.

import { askRefresh, duration, el, facts, known, moment, percent, perMinute, timeLeft } from "./dom.js";
import { chart } from "./chart.js";
import { findingBlock } from "./finding.js";
import { flameGraph } from "./flame.js";
import { load } from "./session.js";
import { groups, snapshotPanel, targetTable } from "./snapshot.js";

const RANGES = [["1 hour", 3600], ["6 hours", 21600], ["1 day", 86400], ["7 days", 604800]];
/** Classes with a line of their own. */
const MOST_CLASSES = 8;
const choice = { seconds: 86400, isWhole: false };
const seconds = (time) => Date.parse(time) / 1000;

function classNames(samples) {
  const largest = new Map();
  for (const sample of samples)
    for (const { class: name, count } of sample.classes || [])
      largest.set(name, Math.max(count, largest.get(name) || 0));
  return [...largest].sort((a, b) => b[1] - a[1]).map(([name]) => name);
}

const tally = (sample, name) => {
  if (!sample.classes) return null;
  const found = sample.classes.find((one) => one.class === name);
  return found ? found.count : 0;
};

function eventMarks(events) {
  const style = (one) => {
    if (one.event === "restarted" && one.deploy) return ["deploy", "#a855c8", [4, 3]];
    if (one.event === "restarted") return ["restart", "#7a8594", [4, 3]];
    if (one.event === "opened") return ["finding", "#c43b4d", [1, 2]];
    return null;
  };
  return events.filter(style).map((one) => [seconds(one.at), ...style(one)]);
}

/** The limits as lines. The history keeps the soft one; the others are those of now, where they
 * differ from it. A hard limit far above is not drawn: it would leave nothing of the rest. */
function limitLines(samples, now) {
  const soft = samples.map((one) => one.limit);
  const lines = [{ name: "soft limit", values: soft, limit: "soft" }];
  const line = (name, value, limit) => lines.push({ name, values: soft.map(() => value), limit });
  if (!now) return lines;
  const most = Math.max(now.limit ?? 0, ...samples.map((one) => one.open_fds ?? 0));
  if (now.hard_limit != null && now.hard_limit !== now.limit && now.hard_limit <= 2 * most)
    line("hard limit (now)", now.hard_limit, "hard");
  if (now.select_limit != null && now.select_limit !== now.limit)
    line("select() limit, if it is called", now.select_limit, "select");
  return lines;
}

/** Two sliders over the kept samples, and what differs between them: counts and classes at once,
 * targets on request. */
function momentPanel(kind, name) {
  let samples = [];
  let isTouched = false;
  const slider = () => el("input", { type: "range", min: "0", step: "1",
    oninput: () => { isTouched = true; render(); } });
  const [first, second] = [slider(), slider()];
  const [from, to] = [el("output"), el("output")];
  const table = el("div", { class: "scroll" });
  const targets = el("div", { id: "moment-targets" });
  const ask = (label, isDifference) =>
    el("button", { type: "button", onclick: () => showTargets(isDifference) }, label);
  const element = el("section", { class: "moments" }, el("h2", {}, "Compare two moments"),
    el("label", {}, "Moment A", first, from), el("label", {}, "Moment B", second, to), table,
    el("div", { class: "tools" }, ask("Targets at moment B", false),
      ask("Targets: B compared with A", true)), targets);

  async function read(slider) {
    const at = samples[Number(slider.value)].at;
    const one = await load("api/v1/moment?" + new URLSearchParams({ kind, name, at }));
    if (!one.targets)
      throw new Error("No targets are kept of " + moment(one.at) + ": no process was watched then.");
    return { name, at: one.at, sums: groups(one) };
  }
  async function showTargets(isDifference) {
    try {
      const [a, b] = await Promise.all([isDifference ? read(first) : null, read(second)]);
      targets.replaceChildren(targetTable(a, b));
    } catch (error) {
      targets.replaceChildren(el("p", { role: "alert" }, error.message));
    }
  }

  function render() {
    const [a, b] = [samples[Number(first.value)], samples[Number(second.value)]];
    if (!a || !b) return;
    from.textContent = moment(a.at);
    to.textContent = moment(b.at);
    const row = (name, x, y, of = "td") => el("tr", {}, el("th", { scope: "row" }, name),
      el(of, { class: "n" }, known(x)), el(of, { class: "n" }, known(y)),
      el(of, { class: "n" }, x == null || y == null ? "?" : (y > x ? "+" : "") + (y - x)));
    const names = classNames([a, b]);
    table.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ["", "A", "B", "B − A"].map(
      (title) => el("th", { scope: "col", class: title ? "n" : null }, title || "What")))),
    el("tbody", {}, row("all descriptors", a.open_fds, b.open_fds),
      row("processes", a.processes, b.processes), row("limit", a.limit, b.limit),
      names.map((name) => row(name, tally(a, name), tally(b, name))))),
    names.length ? "" : el("p", { class: "dim" }, "Classes are kept while a process is watched."));
  }
  return {
    element,
    set(list) {
      samples = list;
      element.hidden = list.length < 2;
      first.max = second.max = Math.max(0, list.length - 1);
      if (!isTouched) { first.value = 0; second.value = list.length - 1; }
      render();
    },
    choose(at, isSecond) {
      isTouched = true;
      (isSecond ? second : first).value = at;
      render();
    },
  };
}

function eventTable(events) {
  const rows = events.slice(-50).reverse().map((one) => el("tr", {}, el("td", {}, moment(one.at)),
    el("td", {}, one.event + (one.deploy ? " (deploy)" : "")), el("td", { class: "name" }, one.text)));
  return el("div", { class: "scroll" }, el("table", {}, el("caption", {}, "What happened"),
    el("thead", {}, el("tr", {}, ["When", "What", "Details"].map((title) =>
      el("th", { scope: "col" }, title)))), el("tbody", {}, rows)));
}

export function serviceView(kind, name) {
  const moments = momentPanel(kind, name);
  const counts = chart("Descriptors and limits over time", moments.choose);
  const classes = chart("Descriptors by class over time", moments.choose);
  const [head, onset, findings, events, flames] = [0, 1, 2, 3, 4].map(() => el("div"));
  const snapshots = snapshotPanel();
  const range = el("select", { id: "range",
    onchange: () => { choice.seconds = Number(range.value); askRefresh(); } },
  RANGES.map(([label, value]) => el("option", { value, selected: value === choice.seconds }, label)));
  const whole = el("input", { type: "checkbox", checked: choice.isWhole,
    onchange: () => { choice.isWhole = whole.checked; askRefresh(); } });
  const charts = el("div", { class: "columns" },
    el("section", {}, el("h2", {}, "Descriptors"), counts.element),
    el("section", {}, el("h2", {}, "Classes"), classes.element));
  const legend = el("p", { class: "dim" },
    "Dashed red: limits. Vertical lines: restart (grey), deploy (purple), finding (red dots). ",
    "Click a chart to set moment A, with Shift for moment B.");
  const element = el("div", {}, el("h2", { class: "name", id: "service-name" }, kind + " " + name), head,
    el("div", { class: "tools" }, el("label", {}, "Range ", range),
      el("label", {}, whole, " Scale to the limit")), onset, charts, legend,
    el("h2", {}, "Findings"), findings, flames, snapshots.element, moments.element, events);
  let traced = "";

  async function showTraces(records) {
    const ids = records.filter((one) => one.trace && one.trace.folded).map((one) => one.id);
    if (ids.join() === traced) return;
    traced = ids.join();
    const graphs = await Promise.all(ids.map((id) => load("api/v1/trace?finding=" + id)));
    flames.replaceChildren(...graphs.flatMap((one) =>
      [el("h2", {}, "Open descriptors by call path, finding " + one.finding), flameGraph(one.folded)]));
  }

  function showHistory(history, why, now) {
    const samples = history ? history.samples : [];
    charts.hidden = legend.hidden = samples.length === 0;
    onset.replaceChildren(history && history.onset ? el("p", {}, history.onset.text) : "",
      samples.length ? "" : why
        ? el("p", { class: "failed", role: "alert" }, "The history cannot be read: " + why)
        : el("p", { class: "dim" }, "No history in this range."));
    moments.set(samples);
    if (!samples.length) return;
    const times = samples.map((one) => seconds(one.at));
    const lines = eventMarks(history.events);
    counts.set(times, [{ name: "descriptors", values: samples.map((one) => one.open_fds) },
      ...limitLines(samples, now)], lines, choice.isWhole);
    const names = classNames(samples).slice(0, MOST_CLASSES);
    classes.element.parentElement.hidden = names.length === 0;
    if (names.length) classes.set(times, names.map((name) =>
      ({ name, values: samples.map((one) => tally(one, name)) })), lines);
    events.replaceChildren(eventTable(history.events));
  }

  async function refresh() {
    const query = new URLSearchParams({ kind, name, since_seconds: choice.seconds });
    const [overview, one] = await Promise.all([
      load("api/v1/overview?limit=0"), load("api/v1/service?" + query)]);
    const now = one.now;
    head.replaceChildren(now ? facts([
      ["verdict", now.verdict, now.verdict], ["descriptors", known(now.open_fds)],
      ["soft limit", known(now.limit)], ["hard limit", known(now.hard_limit)], ["used", known(now.usage_ratio, percent)],
      ["growth", known(now.growth_per_second, perMinute)],
      ...now.seconds_to_limit.map((it) => ["to " + it.limit, duration(it.seconds)]),
      ["processes", String(now.processes)], ["restarts", String(now.restarts)],
      ["since", moment(now.since)],
    ]) : el("p", {}, "It has no process now."));
    showHistory(one.history, one.history_error, now);
    findings.replaceChildren(...(one.findings.length
      ? one.findings.slice().reverse().map((record) => findingBlock(record))
      : [el("p", { class: "dim" }, "None.")]));
    snapshots.set(one.watched);
    await showTraces(one.findings);
    return overview;
  }

  return {
    name: "service", title: name, element, refresh,
    restyle() { counts.restyle(); classes.restyle(); },
  };
}

// Series over time with uPlot: lines, limits as dashed lines, restarts and findings as marks.

import { el } from "./dom.js";

const COLOURS = ["#2f7ed8", "#d9730d", "#2e9d57", "#a855c8", "#c43b4d", "#0d9aa3", "#8a8f1f", "#7a6a5a"];
const token = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The dashes of a limit that applies to every program, and of others. */
const DASHES = { soft: [6, 4], hard: [2, 3], select: [10, 5] };

/** "2 restarts, 1 finding": in words what a chart shows to the eye. */
function markWords(marks) {
  const counts = new Map();
  for (const [, name] of marks) counts.set(name, (counts.get(name) || 0) + 1);
  return [...counts].map(([name, count]) => count + " " + name + (count === 1 ? "" : "s")).join(", ");
}

/** Draws a vertical line for each mark: [seconds, name, colour, dash]. */
function marks(find) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const [seconds, , colour, dash] of find()) {
      const x = plot.valToPos(seconds, "x", true);
      ctx.strokeStyle = colour;
      ctx.lineWidth = 2;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };
}

/** `choose(at)` is called with the index of the sample that was clicked. */
export function chart(label, choose) {
  const element = el("div", { class: "chart", role: "img", "aria-label": label });
  let plot = null;
  let names = "";
  let current = { marks: [], series: [] };

  /** A limit belongs to the chart if it is near, or if that was asked for. */
  function top() {
    const largest = (one) => one.values.reduce((most, value) => Math.max(most, value ?? 0), 1);
    const counts = Math.max(1, ...current.series.filter((one) => !one.limit).map(largest));
    const limits = current.series.filter((one) => one.limit).map(largest)
      .filter((limit) => current.isWhole || limit <= 2 * counts);
    return Math.max(counts, ...limits);
  }

  function build(series, data) {
    if (plot) plot.destroy();
    const axis = { stroke: token("--dim"), grid: { stroke: token("--line"), width: 1 },
      ticks: { stroke: token("--line") } };
    plot = new uPlot({
      width: Math.max(280, element.clientWidth || 600), height: 230,
      scales: { y: { range: () => [0, 1.05 * top()] } },
      axes: [axis, { ...axis, size: 60 }],
      series: [{}, ...series.map((one, at) => ({
        label: one.name, stroke: one.limit ? token("--bad") : COLOURS[at % COLOURS.length],
        dash: DASHES[one.limit] || [], width: 2, spanGaps: false,
        points: { show: !one.limit && data[0].length < 60 },
      }))],
      hooks: {
        draw: [marks(() => current.marks)],
        ready: [(self) => self.over.addEventListener("click", (event) => {
          if (self.cursor.idx != null) choose(self.cursor.idx, event.shiftKey);
        })],
      },
    }, data, element);
  }

  new ResizeObserver(() => {
    if (plot && element.clientWidth) plot.setSize({ width: element.clientWidth, height: 230 });
  }).observe(element);

  return {
    element,
    /** `series`: [{name, values, limit}], where `limit` is soft, hard or select, or absent;
     * `lines`: marks. */
    set(times, series, lines, isWhole = false) {
      current = { times, series, marks: lines, isWhole };
      const data = [times, ...series.map((one) => one.values)];
      const wanted = series.map((one) => one.name).join("\n");
      if (plot && wanted === names) plot.setData(data);
      else build(series, data);
      names = wanted;
      const shown = lines.filter(([at]) => at >= times[0] && at <= times[times.length - 1]);
      element.setAttribute("aria-label", [label + ", up to " + top(), markWords(shown)]
        .filter(Boolean).join("; "));
    },
    restyle() {
      if (!plot) return;
      build(current.series, [current.times, ...current.series.map((one) => one.values)]);
    },
  };
}

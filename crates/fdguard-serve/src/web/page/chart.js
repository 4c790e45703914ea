// Series over time with uPlot: lines, limits as dashed lines, restarts and findings as marks.

import { el } from "./dom.js";

const COLOURS = ["#2f7ed8", "#d9730d", "#2e9d57", "#a855c8", "#c43b4d", "#0d9aa3", "#8a8f1f", "#7a6a5a"];
const token = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Draws a vertical line for each mark: [seconds, colour, dash]. */
function marks(find) {
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const [seconds, colour, dash] of find()) {
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

  /** The limit belongs to the chart if it is near, or if that was asked for. */
  function range(low, high) {
    const top = (isLimit) => Math.max(1, ...current.series.filter((one) => one.isLimit === isLimit)
      .flatMap((one) => one.values).filter((value) => value != null));
    const counts = top(undefined);
    const isWhole = current.isWhole || top(true) <= 2 * counts;
    return [Math.min(0, low ?? 0), 1.05 * (isWhole ? Math.max(1, high ?? 1) : counts)];
  }

  function build(series, data) {
    if (plot) plot.destroy();
    const axis = { stroke: token("--dim"), grid: { stroke: token("--line"), width: 1 },
      ticks: { stroke: token("--line") } };
    plot = new uPlot({
      width: Math.max(280, element.clientWidth || 600), height: 230,
      scales: { y: { range: (_, low, high) => range(low, high) } },
      axes: [axis, { ...axis, size: 60 }],
      series: [{}, ...series.map((one, at) => ({
        label: one.name, stroke: one.isLimit ? token("--bad") : COLOURS[at % COLOURS.length],
        dash: one.isLimit ? [6, 4] : [], width: 2, spanGaps: false, points: { show: !one.isLimit && data[0].length < 60 },
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
    /** `series`: [{name, values, isLimit}]; `lines`: marks. */
    set(times, series, lines, isWhole = false) {
      current = { times, series, marks: lines, isWhole };
      const data = [times, ...series.map((one) => one.values)];
      const wanted = series.map((one) => one.name).join("\n");
      if (plot && wanted === names) plot.setData(data);
      else build(series, data);
      names = wanted;
    },
    restyle() {
      if (!plot) return;
      build(current.series, [current.times, ...current.series.map((one) => one.values)]);
    },
  };
}

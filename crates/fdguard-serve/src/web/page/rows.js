// A table that keeps only the visible rows in the document, so that thousands cost nothing.

import { el } from "./dom.js";

const HEIGHT = 34;
/** Rows beyond the visible ones, above and below. */
const MARGIN = 8;

/** `columns`: [title, class, cell(item)]; the first cell links to `href(item)`, if that is one. */
export function rowWindow(label, columns, href) {
  let items = [];
  let selected = -1;
  let shown = "";
  const body = el("tbody");
  const table = el("table", { "aria-label": label },
    el("thead", {}, el("tr", {}, columns.map(([title, style]) =>
      el("th", { scope: "col", class: style }, title)))), body);
  const element = el("div", { class: "window", tabindex: "0", role: "region", "aria-label": label },
    table);

  function row(item, at) {
    const cells = columns.map(([, style, cell], column) => {
      const { text, mark } = cell(item);
      const link = column === 0 ? href(item) : null;
      const inner = link ? el("a", { href: link, tabindex: "-1" }, text) : text;
      return el("td", { class: [style, mark].filter(Boolean).join(" ") || null,
        title: column === 0 ? text : null }, inner);
    });
    return el("tr", { "aria-rowindex": at + 2, "aria-selected": at === selected ? "true" : null },
      cells);
  }

  const space = (count) => {
    const cell = el("td");
    cell.style.height = count * HEIGHT + "px";
    cell.style.padding = cell.style.border = "0";
    return count > 0 ? el("tr", { "aria-hidden": "true" }, cell) : null;
  };

  function render(isForced) {
    const first = Math.max(0, Math.floor(element.scrollTop / HEIGHT) - MARGIN);
    const visible = Math.ceil(element.clientHeight / HEIGHT) + 2 * MARGIN;
    const last = Math.min(items.length, first + visible);
    const range = first + "-" + last + "-" + selected;
    if (!isForced && range === shown) return;
    shown = range;
    const rows = items.slice(first, last).map((item, at) => row(item, first + at));
    body.replaceChildren(...[space(first), ...rows, space(items.length - last)].filter(Boolean));
    table.setAttribute("aria-rowcount", items.length + 1);
  }
  element.addEventListener("scroll", () => requestAnimationFrame(() => render(false)));
  new ResizeObserver(() => render(true)).observe(element);

  function select(at) {
    if (!items.length) return;
    selected = Math.max(0, Math.min(items.length - 1, at));
    const top = selected * HEIGHT;
    const page = element.clientHeight - 2 * HEIGHT;
    if (top < element.scrollTop) element.scrollTop = top;
    if (top > element.scrollTop + page) element.scrollTop = top - page;
    render(true);
  }

  const follow = (link) => { if (link) location.href = link; };

  return {
    element,
    set(list) {
      items = list;
      selected = Math.min(selected, items.length - 1);
      render(true);
    },
    key(key) {
      if (key === "j" || key === "ArrowDown") select(selected + 1);
      else if (key === "k" || key === "ArrowUp") select(selected - 1);
      else if (key === "Enter" && items[selected]) follow(href(items[selected]));
      else return false;
      return true;
    },
  };
}

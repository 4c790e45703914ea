// A flame graph of folded stacks ("outer;inner COUNT"), as buttons that zoom in.

import { el } from "./dom.js";

const HEIGHT = 22;

function parse(folded) {
  const root = { name: "all", count: 0, children: new Map() };
  for (const line of folded.split("\n")) {
    const cut = line.lastIndexOf(" ");
    const count = Number(line.slice(cut + 1));
    if (cut < 0 || !(count > 0)) continue;
    let node = root;
    node.count += count;
    for (const name of line.slice(0, cut).split(";")) {
      if (!node.children.has(name)) node.children.set(name, { name, count: 0, children: new Map() });
      node = node.children.get(name);
      node.count += count;
    }
  }
  return root;
}

export function flameGraph(folded) {
  const root = parse(folded);
  const element = el("div", { class: "flame", role: "group", "aria-label": "Flame graph" });
  const frames = (node, left, width, depth, into) => {
    const share = (100 * width).toFixed(2) + "%";
    const button = el("button", { type: "button", title: node.name + ": " + node.count,
      onclick: () => draw(node === top ? root : node) }, node.name + " " + node.count);
    Object.assign(button.style, { left: 100 * left + "%", width: share, top: depth * HEIGHT + "px" });
    into.buttons.push(button);
    into.depth = Math.max(into.depth, depth);
    let at = left;
    for (const child of node.children.values()) {
      const part = (width * child.count) / node.count;
      if (part > 0.002) frames(child, at, part, depth + 1, into);
      at += part;
    }
  };
  let top = root;
  function draw(node) {
    top = node;
    const into = { buttons: [], depth: 0 };
    frames(node, 0, 1, 0, into);
    element.style.height = (into.depth + 1) * HEIGHT + "px";
    element.replaceChildren(...into.buttons);
  }
  draw(root);
  return root.count ? element : el("p", { class: "dim" }, "The trace saw no open descriptors.");
}

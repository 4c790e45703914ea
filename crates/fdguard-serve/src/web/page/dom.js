// Elements and formats. Names come from processes: they are only ever set as text.

export const byId = (id) => document.getElementById(id);

/** Loads the current view again; the frame shows what fails. */
export const askRefresh = () => document.dispatchEvent(new Event("refresh-view"));

/** An element with attributes, properties that begin with "on", and children. */
export function el(tag, attributes = {}, ...children) {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) one.addEventListener(name.slice(2), value);
    else one.setAttribute(name, value === true ? "" : value);
  }
  one.append(...children.flat().filter((child) => child != null && child !== false));
  return one;
}

/** A text of the kernel; one that is not UTF-8 comes as base64. */
export function words(text) {
  if (text == null) return "";
  if (typeof text === "string") return text;
  const bytes = Uint8Array.from(atob(text.bytes), (char) => char.charCodeAt(0));
  return new TextDecoder().decode(bytes);
}

export function duration(seconds) {
  if (seconds == null) return "";
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]])
    if (seconds >= 2 * size) return (seconds / size).toFixed(1) + " " + unit;
  return seconds.toFixed(0) + " s";
}

/** An unknown value is shown as such, never as 0. */
export const known = (value, form = String) => (value == null ? "?" : form(value));
export const percent = (ratio) => (100 * ratio).toFixed(1) + " %";
export const perMinute = (rate) => (60 * rate).toFixed(1) + "/min";
export const moment = (time) => new Date(time).toLocaleString();

export function timeLeft(limits) {
  const all = limits.map((one) => one.seconds);
  return all.length ? Math.min(...all) : null;
}

export const serviceLink = (key) =>
  "#/service/" + encodeURIComponent(key.kind) + "/" + encodeURIComponent(key.name);

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== "");
  return el("dl", { class: "facts" }, shown.map(([name, value, style]) =>
    el("div", {}, el("dt", {}, name), el("dd", { class: style }, value))));
}

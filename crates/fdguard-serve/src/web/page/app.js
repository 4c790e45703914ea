// The frame of the page: which view is shown, sign-in, live updates, keys and theme.

import { byId } from "./dom.js";
import { Refused, follow, setToken } from "./session.js";
import { overviewView } from "./overview.js";
import { serviceView } from "./service.js";
import { findingsView } from "./findings.js";
import { fleetView } from "./fleet.js";

/** Shortest time between two refreshes. */
const PACE = 900;
let view = null;
let isDue = false;
let isBusy = false;
let isAsked = false;
let hasStream = false;

function route() {
  const [, name, kind, service] = location.hash.split("/");
  if (name === "service" && service)
    return serviceView(decodeURIComponent(kind), decodeURIComponent(service));
  if (name === "findings") return findingsView();
  if (name === "fleet") return fleetView();
  return overviewView();
}

function show() {
  view = route();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = "fdguard: " + view.title;
  byId("content").replaceChildren(view.element);
  refresh();
}

async function refresh() {
  if (isBusy) { isAsked = true; return; }
  isBusy = true;
  isAsked = false;
  const shown = view;
  try {
    const head = await shown.refresh();
    signedIn();
    if (head) showHead(head);
    byId("error").hidden = true;
    if (!hasStream) stream();
  } catch (error) {
    if (error instanceof Refused) signIn(error.message);
    else {
      // What is not there yet may come: the next event asks again.
      signedIn();
      fail(error.message);
      if (!hasStream) stream();
    }
  }
  isBusy = false;
  if (isAsked) refresh();
}

function showHead(head) {
  byId("host").textContent = head.host;
  const open = head.findings.filter((one) => one.state === "open").length;
  byId("open-count").textContent = open || "";
  byId("state").textContent = head.processes + " processes, " + head.watched.length +
    " watched, at " + new Date(head.taken_at).toLocaleTimeString();
  byId("fleet-link").hidden = !head.fleet;
}

function fail(why) {
  byId("error").textContent = why;
  byId("error").hidden = false;
}

function signIn(why) {
  const had = sessionStorage.getItem("fdguard-token");
  byId("login-why").textContent = had ? "The token is not accepted: " + why : "";
  byId("login").hidden = false;
  byId("content").hidden = true;
  byId("error").hidden = true;
  byId("token").focus();
}

function signedIn() {
  if (byId("login").hidden) return;
  byId("login").hidden = true;
  byId("content").hidden = false;
  byId("token").value = "";
  byId("content").focus();
}

async function stream() {
  hasStream = true;
  try {
    await follow((name) => { if (name !== "missed") isDue = true; });
    fail("The connection ended. Trying again.");
  } catch (error) {
    if (error instanceof Refused) signIn(error.message);
    else fail("No connection: " + error.message);
  }
  // The next refresh that works begins another stream.
  setTimeout(() => { hasStream = false; isDue = true; }, 2000);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("fdguard-theme", theme);
  if (view && view.restyle) view.restyle();
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)").matches;
setTheme(localStorage.getItem("fdguard-theme") || (prefersDark ? "dark" : "light"));
const otherTheme = () =>
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");

function toggleHelp() {
  const keys = byId("keys");
  keys.hidden = !keys.hidden;
  byId("help").setAttribute("aria-expanded", String(!keys.hidden));
}

const KEYS = {
  "o": () => { location.hash = "#/"; },
  "f": () => { location.hash = "#/findings"; },
  "t": otherTheme,
  "?": toggleHelp,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (KEYS[event.key]) KEYS[event.key]();
  else if (!view || !view.key || !view.key(event.key)) return;
  event.preventDefault();
});
byId("theme").addEventListener("click", otherTheme);
byId("help").addEventListener("click", toggleHelp);
byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value.trim());
  refresh();
});
addEventListener("hashchange", show);
document.addEventListener("refresh-view", refresh);
setInterval(() => {
  if (!isDue || document.hidden || !byId("login").hidden) return;
  isDue = false;
  refresh();
}, PACE);
show();

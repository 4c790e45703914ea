// The services of all hosts that are nearest to a limit, from a Prometheus-compatible server.

import { duration, el, known, percent, perMinute, serviceLink } from "./dom.js";
import { rowWindow } from "./rows.js";
import { load } from "./session.js";

const text = (value, mark) => ({ text: value, mark });
const COLUMNS = [
  ["Service", "", (one) => text(one.service)],
  ["Host", "host", (one) => text(one.host)],
  ["Open", "n", (one) => text(known(one.open_fds))],
  ["Used", "n wide", (one) => text(known(one.usage_ratio, percent))],
  ["Growth", "n wide", (one) => text(known(one.growth_per_second, perMinute))],
  ["Verdict", "", (one) => text(one.verdict, one.verdict)],
  ["Time left", "n", (one) => text(duration(one.seconds_to_limit))],
];

/** The service on the page of its host, if the host's name is an address. */
function hostLink(one) {
  const isAddress = /^[A-Za-z0-9.-]+:[0-9]+$/.test(one.host);
  return isAddress ? location.protocol + "//" + one.host + "/" + serviceLink({ kind: one.kind, name: one.service }) : null;
}

export function fleetView() {
  const rows = rowWindow("Services of all hosts", COLUMNS, hostLink);
  const note = el("p", { class: "dim" });
  const element = el("div", {}, el("h2", {}, "Fleet"), rows.element, note);
  async function refresh() {
    const [head, fleet] = await Promise.all([
      load("api/v1/overview?limit=0"), load("api/v1/fleet")]);
    rows.set(fleet.rows);
    note.replaceChildren(fleet.hosts + " hosts report", ...fleet.gaps.map((gap) =>
      el("span", {}, ". Not seen: " + gap.what + ": " + gap.why)));
    return head;
  }
  return { name: "fleet", title: "fleet", element, refresh, key: rows.key };
}

// One finding: what, why, what to do now, evidence, lines of code, and its suppression.

import { askRefresh, el, moment, serviceLink } from "./dom.js";
import { Refused, act, setActToken } from "./session.js";

/** The form in which a person accepts a finding. */
function suppressForm(id) {
  const reason = el("input", { required: true, maxlength: "500", size: "32" });
  const token = el("input", { type: "password", autocomplete: "off" });
  const tokenLabel = el("label", { hidden: true }, "Token for acting ", token);
  const why = el("p", { role: "alert" });
  const form = el("form", {
    class: "tools",
    onsubmit: async (event) => {
      event.preventDefault();
      if (token.value) setActToken(token.value.trim());
      try {
        await act("api/v1/findings/" + id + "/suppress", { reason: reason.value });
        askRefresh();
      } catch (error) {
        tokenLabel.hidden = tokenLabel.hidden && !(error instanceof Refused);
        why.textContent = error instanceof Refused
          ? "Suppressing needs the token for acting (--act-token-file)." : error.message;
      }
    },
  }, el("label", {}, "Reason ", reason), tokenLabel, el("button", {}, "Suppress"), why);
  return form;
}

function lines(record) {
  if (!record.trace) return null;
  const shown = record.trace.lines.map((line) =>
    el("li", {}, el("code", {}, line.place), " ", String(line.open) + " open"));
  const gap = record.trace.error;
  return el("div", {}, el("p", {}, gap ? "The trace failed: " + gap : "Opened at:"),
    el("ul", {}, shown));
}

export function findingBlock(record, options = {}) {
  const { finding } = record;
  const about = [" pid " + finding.pid, record.class, record.target].filter(Boolean).join(", ");
  const times = "first seen " + moment(record.opened_at) + ", last " + moment(record.seen_at) +
    (record.flaps ? ", returned " + record.flaps + " times" : "") +
    (record.resolved_at ? ", resolved " + moment(record.resolved_at) : "");
  const block = el("article", { class: "finding is-" + finding.severity, "data-id": record.id },
    el("h3", {}, el("span", { class: finding.severity }, finding.severity + " " + record.rule), " ",
      el("a", { class: "name", href: serviceLink(record.service) }, record.service.name),
      el("span", { class: "dim" }, about)),
    el("p", {}, finding.why),
    finding.next_step && !options.isShort ? el("p", {}, "Next: " + finding.next_step) : null,
    lines(record),
    record.evidence ? el("p", {}, "Evidence: ", el("code", {}, record.evidence)) : null,
    record.reason ? el("p", {}, "Suppressed: " + record.reason) : null);
  if (options.isFull) block.append(el("p", { class: "dim" }, record.state + ", " + times));
  if (options.isFull && record.state === "open") {
    const open = () => {
      const form = suppressForm(record.id);
      button.replaceWith(form);
      form.querySelector("input").focus();
    };
    const button = el("button", { type: "button", onclick: open }, "Suppress…");
    block.append(button);
  }
  return block;
}

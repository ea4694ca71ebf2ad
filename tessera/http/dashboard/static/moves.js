// Steps of a generation's life. Each is confirmed in a dialog that shows what the service says it would do.

import { get, post, told } from "./api.js";
import { announce, byId, el, setText, words } from "./dom.js";
import { number, plural } from "./format.js";

const path = (name, step) => `/api/generations/${encodeURIComponent(name)}/${step}`;

export async function dryRun(name) {
  try {
    return await post(path(name, "cutover"), { dry_run: true });
  } catch (error) {
    if (!error.status) throw error;
    return { checks: [], error: told(error) };
  }
}

export function checkList(checks) {
  const items = checks.map((check) => {
    const [mark, word] = check.waived ? ["~", "waived"] : check.passed ? ["✓", "passes"] : ["✗", "fails"];
    return el("li", { "data-check": word }, el("span", { class: "mark", "aria-hidden": "true" }, mark), el("span", {}, el("strong", {}, check.name.replaceAll("_", " ")), el("span", { class: "unseen" }, ` ${word}`), ": ", ...words(check.detail)));
  });
  return el("ul", { class: "checks" }, ...items);
}

const release = (each) => `${each.release} (generation ${each.generation})`;

function planned(plan) {
  const failing = plan.checks.filter((check) => !check.passed && !check.waived);
  const passing = plan.checks.filter((check) => check.passed || check.waived);
  const parts = [el("p", { class: "from-to" }, el("strong", {}, release(plan.from_release)), " → ", el("strong", {}, release(plan.to_release)))];
  if (failing.length) parts.push(el("h3", {}, `It cannot be done now: ${plural(failing.length, "check")} fail${failing.length === 1 ? "s" : ""}`), checkList(failing));
  if (plan.changes.length) parts.push(el("h3", {}, "What changes"), el("ul", {}, ...plan.changes.map((change) => el("li", {}, change))));
  if (passing.length) parts.push(el("h3", {}, `${plural(passing.length, "check")} pass${passing.length === 1 ? "es" : ""}`), checkList(passing));
  if (plan.note) parts.push(el("p", { class: "hint" }, plan.note));
  return el("div", {}, ...parts);
}

// Ask in a dialog. `look` resolves to {body, allowed}, `act` does it and resolves to what is then announced.
async function ask({ title, label, look, act, after }) {
  const dialog = byId("confirm");
  const button = byId("confirm-do");
  const failed = byId("confirm-failed");
  setText(byId("confirm-title"), title);
  setText(button, label);
  button.disabled = true;
  failed.hidden = true;
  byId("confirm-body").replaceChildren(el("p", { class: "hint", role: "status" }, "Asking what it would do…"));
  const fail = (error) => {
    failed.hidden = false;
    setText(failed, told(error));
  };
  byId("confirm-form").onsubmit = async (event) => {
    event.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    failed.hidden = true;
    setText(button, "Working…");
    try {
      const done = await act();
      dialog.close();
      announce(done);
    } catch (error) {
      fail(error);
      setText(button, label);
      button.disabled = false;
    }
    after();
  };
  dialog.showModal();
  const asked = Symbol(title);
  dialog.asked = asked; // a dialog opened anew meanwhile is not filled with an old answer
  try {
    const { body, allowed } = await look();
    if (dialog.asked !== asked) return;
    byId("confirm-body").replaceChildren(body);
    button.disabled = !allowed;
  } catch (error) {
    if (dialog.asked !== asked) return;
    byId("confirm-body").replaceChildren();
    fail(error);
  }
}

export function confirmCutover(each, status, after) {
  ask({
    title: `Cut over to ${each.generation}?`,
    label: "Cut over",
    look: async () => {
      const plan = await post(path(each.generation, "cutover"), { dry_run: true });
      return { body: planned(plan), allowed: plan.allowed };
    },
    act: async () => {
      const move = await post(path(each.generation, "cutover"), {});
      return `Release ${move.to_release.release} now serves generation ${move.to_release.generation}.`;
    },
    after,
  });
}

export function confirmRollback(each, status, after) {
  const why = el("input", { id: "confirm-why", type: "text", maxlength: "1000", autocomplete: "off" });
  ask({
    title: `Roll back to ${status.previous}?`,
    label: "Roll back",
    look: async () => {
      const plan = await post("/api/generations/rollback", { dry_run: true });
      const body = planned(plan);
      body.append(el("label", { for: "confirm-why" }, "Why, for the record (may stay empty)"), why);
      return { body, allowed: plan.allowed };
    },
    act: async () => {
      const move = await post("/api/generations/rollback", { why: why.value });
      return `Release ${move.to_release.release} serves again.`;
    },
    after,
  });
}

function confirmStep(each, after, step, title, label, sentence, done) {
  ask({
    title,
    label,
    look: async () => {
      const { progress } = await get(`/api/generations/${encodeURIComponent(each.generation)}`);
      const held = progress ? `It holds ${number(progress.documents)} of ${plural(progress.of, "document")} now.` : "";
      return { body: el("div", {}, el("p", {}, sentence), el("p", { class: "hint" }, held)), allowed: true };
    },
    act: async () => {
      await post(path(each.generation, step), {});
      return done;
    },
    after,
  });
}

export const confirmPause = (each, status, after) =>
  confirmStep(each, after, "pause", `Pause the backfill of ${each.generation}?`, "Pause", "No more documents are filled in until it is resumed. Changes that come in go on being written.", `The backfill of ${each.generation} is paused.`);

export const confirmResume = (each, status, after) =>
  confirmStep(each, after, "resume", `Resume the backfill of ${each.generation}?`, "Resume", "Workers go on filling it where they stopped.", `The backfill of ${each.generation} goes on.`);

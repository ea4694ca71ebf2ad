// Generations: how far a migration is, what its proofs say, what keeps it from being served, and what to do.

import { get } from "./api.js";
import { byId, el, keyed, setText } from "./dom.js";
import { duration, moment, number, percent, plural } from "./format.js";
import { checkList, confirmCutover, confirmPause, confirmResume, confirmRollback, dryRun } from "./moves.js";

const LOOK_MS = 10000; // how often proofs and checks are looked at while nothing moves
const WRITTEN = ["building", "ready", "gated", "serving", "retired"];
const CANDIDATE = ["building", "ready", "gated"];
const STATES = {
  building: "being filled",
  ready: "filled, not proven",
  gated: "ready to be served",
  serving: "serving",
  retired: "kept for a rollback",
  contracting: "being removed",
  contracted: "removed",
  abandoned: "given up",
};

export class Generations {
  constructor(model) {
    this.model = model;
    this.details = new Map();
    this.checks = new Map();
    this.looked = new Map();
  }

  draw() {
    const { status } = this.model;
    if (!status) return;
    const all = status.generations;
    const order = (each) => (each.serving ? 0 : CANDIDATE.includes(each.state) ? 1 : 2);
    const live = all.filter((each) => WRITTEN.includes(each.state)).sort((a, b) => order(a) - order(b) || b.created_at_ms - a.created_at_ms);
    const byName = new Map(live.map((each) => [each.generation, each]));
    setText(byId("generations-count"), live.length);
    setText(byId("generations-hint"), this.model.operator ? "" : "Steps need the operator token.");
    byId("generations-empty").hidden = all.length > 0;
    setText(byId("generations-empty"), "No generation yet. The first worker makes one: tessera worker");
    keyed(byId("generation-cards"), [...byName.keys()], (name) => this.card(name), (node, name) => this.fill(node, byName.get(name)));
    this.past(all.filter((each) => !WRITTEN.includes(each.state)));
  }

  past(gone) {
    byId("generations-past").hidden = !gone.length;
    setText(byId("generations-past-count"), gone.length);
    const byName = new Map(gone.map((each) => [each.generation, each]));
    keyed(byId("generations-past-list"), [...byName.keys()], () => el("li"), (node, name) => {
      const each = byName.get(name);
      setText(node, `${name}: ${STATES[each.state] ?? each.state}, ${each.policy}`);
    });
  }

  card(name) {
    const part = (role, tag = "p") => el(tag, { "data-part": role });
    const button = (act, label) => el("button", { type: "button", "data-act": act, hidden: true, "aria-label": `${label} (${name})` }, label);
    const card = el(
      "article",
      { class: "card", "aria-labelledby": `generation-${name}` },
      el("div", { class: "heading" }, el("h3", { id: `generation-${name}` }, name), part("state", "span")),
      part("about"),
      el("div", { "data-part": "progress" },
        el("progress", { max: "1", value: "0", "aria-label": `Documents of ${name}` }), part("filled")),
      part("notes", "ul"),
      el("dl", { class: "facts", "data-part": "facts" }),
      el("div", { "data-part": "blocked" }),
      el("div", { class: "buttons" }, button("pause", "Pause"), button("resume", "Resume"), button("cutover", "Cut over…"), button("rollback", "Roll back…")),
    );
    const acts = { pause: confirmPause, resume: confirmResume, cutover: confirmCutover, rollback: confirmRollback };
    for (const [act, ask] of Object.entries(acts)) {
      card.querySelector(`[data-act="${act}"]`).addEventListener("click", () => ask(this.find(name), this.model.status, () => this.looked.clear()));
    }
    return card;
  }

  find(name) {
    return this.model.status.generations.find((each) => each.generation === name);
  }

  fill(card, each) {
    const at = (role) => card.querySelector(`[data-part="${role}"]`);
    card.dataset.state = each.state;
    const state = at("state");
    state.className = "badge";
    setText(state, each.paused ? "paused" : STATES[each.state]);
    setText(at("about"), [each.policy, each.analyzer.split("/")[0], each.release && `release ${each.release}`, each.embedding ? null : "no embedding contract"].filter(Boolean).join(" · "));
    this.progress(at("progress"), each);
    const notes = Object.entries(each.progress?.notes ?? {});
    keyed(at("notes"), notes.slice(0, 4).map(([shard]) => shard), () => el("li"), (node, shard) => setText(node, `${shard}: ${each.progress.notes[shard]}`));
    at("notes").hidden = !notes.length;
    this.facts(at("facts"), each);
    this.blocked(at("blocked"), each);
    this.buttons(card, each);
    this.look(each);
  }

  progress(node, each) {
    const { progress } = each;
    const moving = progress && CANDIDATE.includes(each.state);
    node.hidden = !moving;
    if (!moving) return;
    const share = progress.of ? Math.min(1, progress.documents / progress.of) : 0;
    node.firstChild.value = share;
    const eta = each.paused ? "paused" : progress.shards_complete === progress.shards ? "complete" : progress.eta_s == null ? "no pace known yet" : `about ${duration(progress.eta_s)} to go`;
    setText(
      node.lastChild,
      `${percent(share)} · ${number(progress.documents)} of ${plural(progress.of, "document")} · ${number(progress.shards_complete)} of ${plural(progress.shards, "shard")} whole · ${eta}${each.rate ? ` · at most ${each.rate} documents/s and shard` : ""}`,
    );
  }

  facts(list, each) {
    const facts = [["Chunks", number(each.chunks)], ["Uncovered ranges", number(each.uncovered)]];
    const detail = this.details.get(each.generation);
    const serving = this.details.get(this.model.status.generation);
    if (!each.serving && detail) {
      facts.push(["Parity with the serving one", parity(detail, serving)], ["Evidence", evidence(detail)]);
      if (detail.waiver) facts.push(["Waiver", `${detail.waiver.check}: ${detail.waiver.why} (${left(detail.waiver.expires_at_ms)})`]);
    }
    if (each.hold) facts.push(["Held", each.hold]);
    if (each.state === "retired") facts.push(["Kept until", moment(each.retain_until_ms)]);
    const values = new Map(facts);
    keyed(list, [...values.keys()], (name) => el("div", {}, el("dt", {}, name), el("dd")), (node, name) => setText(node.lastChild, values.get(name)));
  }

  blocked(node, each) {
    const plan = this.checks.get(each.generation);
    const shown = this.model.operator && CANDIDATE.includes(each.state) && plan;
    node.hidden = !shown;
    if (!shown) return;
    const failing = plan.checks.filter((check) => !check.passed && !check.waived);
    const title = plan.error ? `The checks cannot be made now: ${plan.error}` : failing.length ? `${plural(failing.length, "check")} keep${failing.length === 1 ? "s" : ""} it from being served` : "All checks pass: it may be served";
    const key = JSON.stringify([title, failing]);
    if (node.dataset.key === key) return;
    node.dataset.key = key;
    node.replaceChildren(el("p", { class: "title" }, title), checkList(failing));
  }

  buttons(card, each) {
    const { operator, status } = this.model;
    const filling = each.state === "building" && each.progress?.shards_complete < each.progress?.shards;
    const may = {
      pause: filling && !each.paused,
      resume: filling && each.paused,
      cutover: CANDIDATE.includes(each.state),
      rollback: each.serving && status.previous != null,
    };
    for (const [act, possible] of Object.entries(may)) card.querySelector(`[data-act="${act}"]`).hidden = !(operator && possible);
  }

  // Proofs and checks are not in the status: they are asked for when something moved, and now and then.
  async look(each) {
    const migrating = this.model.status.generations.some((other) => !other.serving && WRITTEN.includes(other.state));
    const key = JSON.stringify([each.state, each.paused, each.progress?.shards_complete, this.model.operator]);
    const last = this.looked.get(each.generation);
    if (!migrating || document.hidden || (last && last.key === key && Date.now() - last.at < LOOK_MS)) return;
    this.looked.set(each.generation, { key, at: Date.now() });
    try {
      this.details.set(each.generation, await get(`/api/generations/${encodeURIComponent(each.generation)}`));
      if (this.model.operator && CANDIDATE.includes(each.state)) this.checks.set(each.generation, await dryRun(each.generation));
    } catch {
      this.checks.delete(each.generation); // the banner says that the service does not answer
    }
  }
}

function parity(detail, serving) {
  if (!serving) return "not known yet";
  const shards = Object.keys(serving.shards);
  const equal = shards.filter((shard) => detail.shards[shard]?.complete && detail.shards[shard].fingerprint === serving.shards[shard].fingerprint);
  return equal.length === shards.length ? `equal in all ${plural(shards.length, "shard")}` : `${equal.length} of ${plural(shards.length, "shard")} equal`;
}

function evidence(detail) {
  const found = detail.evidence;
  if (!found) return "none yet: tessera generation compare";
  const outcome = found.passed ? "passed" : `failed: ${found.failed.join(", ")}`;
  return `${outcome}, against ${found.baseline}, ${left(found.expires_at_ms)}`;
}

const left = (until_ms) => (until_ms > Date.now() ? `expires in ${duration((until_ms - Date.now()) / 1000)}` : "expired");

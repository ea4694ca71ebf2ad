// The table of sources: which of them lose evidence. However many there are, only some rows are in the page.

import { get, told } from "./api.js";
import { byId, el, keyed, setText } from "./dom.js";
import { bytes, number, plural } from "./format.js";

const FIRST = 10;
const STEP = 50;
const LINES = 12; // of one range; the rest is counted

const COLUMNS = [
  ["name", "Source"],
  ["documents", "Documents"],
  ["chunks", "Chunks"],
  ["uncovered", "Uncovered", "ranges that no chunk holds"],
  ["parse_failures", "Unreadable", "ranges of bytes that are not UTF-8"],
  ["text_bytes", "Text"],
  ["tombstones", "Deleted", "documents that are remembered as deleted"],
];

export class Sources {
  constructor(model) {
    this.model = model;
    this.shown = FIRST;
    this.by = "name";
    this.down = false;
    this.head();
    const again = () => {
      this.shown = FIRST;
      this.draw();
    };
    byId("sources-name").addEventListener("input", again);
    byId("sources-losing").addEventListener("change", again);
    byId("sources-filter").addEventListener("submit", (event) => event.preventDefault());
    byId("sources-more").addEventListener("click", () => {
      this.shown += STEP;
      this.draw();
    });
  }

  head() {
    for (const [column, label, title] of COLUMNS) {
      const button = el("button", { type: "button", class: "sort", title }, label);
      button.addEventListener("click", () => {
        this.down = this.by === column ? !this.down : column !== "name"; // of numbers, the greatest first
        this.by = column;
        this.draw();
      });
      byId("sources-head").append(el("th", { scope: "col", class: column === "name" ? null : `number col-${column}`, "data-column": column }, button));
    }
  }

  // Names in the order shown, and how many the filter leaves.
  chosen() {
    const { sources } = this.model.status;
    const part = byId("sources-name").value.trim().toLowerCase();
    const losing = byId("sources-losing").checked;
    const names = Object.keys(sources).filter(
      (name) => name.toLowerCase().includes(part) && (!losing || sources[name].uncovered || sources[name].parse_failures),
    );
    const direction = this.down ? -1 : 1;
    const byName = (a, b) => (a < b ? -1 : 1);
    names.sort(this.by === "name" ? (a, b) => direction * byName(a, b) : (a, b) => direction * (sources[a][this.by] - sources[b][this.by]) || byName(a, b));
    return names;
  }

  draw() {
    if (!this.model.status) return;
    const { sources } = this.model.status;
    const all = Object.keys(sources).length;
    const names = this.chosen();
    const shown = names.slice(0, this.shown);
    for (const cell of byId("sources-head").cells) {
      const sorted = cell.dataset.column === this.by ? (this.down ? "descending" : "ascending") : "none";
      if (cell.getAttribute("aria-sort") !== sorted) cell.setAttribute("aria-sort", sorted);
    }
    keyed(byId("source-rows"), shown, (name) => this.row(name), (row, name) => this.fill(row, sources[name]));
    setText(byId("sources-count"), number(all));
    byId("sources-table").hidden = !shown.length;
    this.empty(all, names.length);
    setText(byId("sources-shown"), shown.length < names.length || names.length < all ? `${shown.length} of ${plural(names.length, "source")}${names.length < all ? ` found among ${number(all)}` : ""}` : "");
    byId("sources-more").hidden = shown.length >= names.length;
    this.suggest(Object.keys(sources));
  }

  empty(all, found) {
    const node = byId("sources-empty");
    node.hidden = found > 0;
    setText(node, all ? "No source matches the filter." : "No source yet. Publish one: tessera ingest FOLDER --source NAME");
  }

  suggest(names) {
    const list = byId("source-names");
    const wanted = names.slice(0, 200);
    if (list.childElementCount !== wanted.length) list.replaceChildren(...wanted.map((name) => el("option", { value: name })));
  }

  row(name) {
    const cells = COLUMNS.slice(1).map(([column]) => {
      const cell = el("td", { class: `number col-${column}` });
      if (column === "uncovered" || column === "parse_failures") {
        const button = el("button", { type: "button", class: "figure" });
        button.addEventListener("click", () => showCoverage(name));
        cell.append(button, el("span"));
      }
      return cell;
    });
    return el("tr", { "data-source": name }, el("th", { scope: "row" }, name), ...cells);
  }

  fill(row, source) {
    COLUMNS.slice(1).forEach(([column, label], index) => {
      const cell = row.cells[index + 1];
      const text = column === "text_bytes" ? bytes(source[column]) : number(source[column]);
      const [button, plain] = cell.children;
      if (!button) {
        setText(cell, text);
        return;
      }
      const any = source[column] > 0;
      button.hidden = !any;
      plain.hidden = any;
      setText(any ? button : plain, text);
      button.setAttribute("aria-label", `${text} ${label.toLowerCase()}, show the lines of ${row.dataset.source}`);
    });
  }
}

async function showCoverage(source) {
  const dialog = byId("coverage");
  const body = byId("coverage-body");
  setText(byId("coverage-title"), `What ${source} loses`);
  body.replaceChildren(el("p", { class: "hint", role: "status" }, "Reading the documents…"));
  dialog.showModal();
  try {
    const found = await get(`/api/coverage?limit=20&source=${encodeURIComponent(source)}`);
    body.replaceChildren(...coverage(found, source));
  } catch (error) {
    body.replaceChildren(el("p", { class: "failed", role: "alert" }, `This cannot be read now: ${told(error)}`));
  }
}

function coverage(found, source) {
  const numbers = found.sources[source];
  const intro = numbers
    ? `${plural(numbers.uncovered, "uncovered range")} and ${plural(numbers.parse_failures, "unreadable range")} in ${plural(numbers.documents, "document")}, as generation ${found.generation} holds them.`
    : "Nothing of it may be seen with this token.";
  const documents = found.documents.map((document) => {
    const parts = [el("h3", {}, document.doc_id)];
    if (document.failure) parts.push(el("p", { class: "hint" }, `${document.failure.count} unreadable: ${document.failure.reason}`), ...document.failure.places.map(stretch));
    parts.push(...document.uncovered.map(stretch));
    if (document.ranges > document.uncovered.length) parts.push(el("p", { class: "hint" }, `and ${plural(document.ranges - document.uncovered.length, "range")} more`));
    return el("article", {}, ...parts);
  });
  const more = found.more ? [el("p", { class: "hint" }, `${plural(found.more, "document")} more: tessera coverage ${source}`)] : [];
  return [el("p", {}, intro), ...documents, ...more];
}

function stretch(range) {
  if (range.missing) return el("p", { class: "hint" }, `lines ${range.start_line}–${range.end_line} have not arrived`);
  return numbered(range.lines.slice(0, LINES), range.start_line, range.lines.length - LINES);
}

// Lines with their numbers. `fill` puts a line's text into its element.
export function numbered(lines, first, left = 0, fill = (node, line) => node.append(line)) {
  const list = el("ol", { class: "lines", start: String(first) });
  lines.forEach((line, index) => {
    const text = el("code");
    fill(text, line.endsWith("\r") ? line.slice(0, -1) : line);
    list.append(el("li", {}, el("span", { class: "at", "aria-hidden": "true" }, String(first + index)), text));
  });
  if (left > 0) list.append(el("li", { class: "left" }, `… ${plural(left, "line")} more`));
  return list;
}

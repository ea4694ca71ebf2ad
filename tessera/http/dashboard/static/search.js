// The search box: hits in their source lines, as they stand there, with the words asked for marked.

import { get, told } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { decimal, plural } from "./format.js";
import { numbered } from "./sources.js";

const LINES = 14;
const WORD = /[\p{L}\p{N}_]+/gu;
const COMMON = new Set("a an the this that is are was be to of in on for and or with what which how who when where does do it as at by from".split(" "));

export class Search {
  constructor(model) {
    this.model = model;
    this.asked = 0;
    byId("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.ask();
    });
  }

  async ask() {
    const query = byId("search-text").value.trim();
    if (!query) {
      byId("search-text").focus();
      return;
    }
    const asked = ++this.asked;
    const source = byId("search-source").value.trim();
    const where = new URLSearchParams({ q: query, k: "10", ...(source && { source }) });
    byId("search-failed").hidden = true;
    setText(byId("search-told"), "Searching…");
    try {
      const answer = await get(`/api/search?${where}`);
      if (asked === this.asked) this.show(query, answer);
    } catch (error) {
      if (asked === this.asked) this.fail(error);
    }
  }

  fail(error) {
    byId("search-hits").replaceChildren();
    setText(byId("search-told"), "");
    byId("search-failed").hidden = false;
    setText(byId("search-failed"), `The search failed: ${told(error)}`);
  }

  show(query, answer) {
    const from = `release ${answer.release}, generation ${answer.generation}`;
    const stale = answer.stale_s ? ` The release could not be looked up for ${decimal(answer.stale_s)} s.` : "";
    setText(
      byId("search-told"),
      answer.hits.length
        ? `${plural(answer.hits.length, "hit")} in ${decimal(answer.took_ms)} ms from ${from}.${stale}`
        : `Nothing found in ${from}: no chunk that you may see holds one of these words.${stale}`,
    );
    const analyzer = this.model.status?.generations.find((each) => each.generation === answer.generation)?.analyzer ?? "";
    const isAsked = matcher(query, analyzer.startsWith("english"));
    byId("search-hits").replaceChildren(...answer.hits.map((hit) => shown(hit, isAsked)));
  }
}

// Whether a word of a text is one of the query's. Where the index holds stems, words with an equal beginning are
// marked: the page has no stemmer, and a mark decides nothing.
function matcher(query, stemmed) {
  const words = [...new Set(query.toLowerCase().match(WORD) ?? [])];
  const telling = words.filter((word) => !COMMON.has(word));
  const asked = new Set((telling.length ? telling : words).map((word) => (stemmed ? stem(word) : word)));
  return (word) => asked.has(stemmed ? stem(word.toLowerCase()) : word.toLowerCase());
}

const stem = (word) => (word.length > 4 ? word.replace(/(ies|y)$/, "i").replace(/(ations?|ings?|ment|ers?|ed|es|s|e)$/, "") : word);

function shown(hit, isAsked) {
  const text = hit.text;
  const lines = text.includes("\n") ? text.split("\n") : text.split("\r");
  const mark = (node, line) => {
    let done = 0;
    for (const found of line.matchAll(WORD)) {
      if (!isAsked(found[0])) continue;
      node.append(line.slice(done, found.index), el("mark", {}, found[0]));
      done = found.index + found[0].length;
    }
    node.append(line.slice(done));
  };
  const range = hit.start_line === hit.end_line ? `line ${hit.start_line}` : `lines ${hit.start_line}–${hit.end_line}`;
  const article = el(
    "article",
    { "aria-label": `${hit.source}/${hit.doc_id}, ${range}` },
    el("h3", {}, `${hit.source}/${hit.doc_id}`, el("span", { class: "where" }, ` ${range}`)),
    hit.headings.length ? el("p", { class: "path" }, hit.headings.join(" › ")) : null,
    numbered(lines.slice(0, LINES), hit.start_line, 0, mark),
  );
  if (lines.length > LINES) article.append(rest(article, lines, hit.start_line, mark));
  article.append(el("p", { class: "about" }, `score ${hit.score.toFixed(2)} · revision ${hit.revision} · ${hit.policy} · ${hit.uid}`));
  return el("li", {}, article);
}

function rest(article, lines, first, mark) {
  const button = el("button", { type: "button", class: "quiet" }, `Show all ${lines.length} lines`);
  button.addEventListener("click", () => {
    article.querySelector(".lines").replaceWith(numbered(lines, first, 0, mark));
    article.setAttribute("tabindex", "-1");
    article.focus();
    button.remove();
  });
  return button;
}

// Elements from values. Text always goes in as text: a document's content is never read as markup.

export const byId = (id) => document.getElementById(id);

// A new element. `attributes`: strings are set, true is set empty, false and null are left out.
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value != null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

// Set the text only where it differs: a live region would read out what did not change.
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

// A sentence of the service: what stands between backticks is a command.
export const words = (text) => text.split("`").map((part, index) => (index % 2 ? el("code", {}, part) : part));

// Make the children of `parent` those of `keys`, in order. What is there is kept, so that focus stays where it is.
export function keyed(parent, keys, make, update) {
  const known = parent.nodesByKey ?? (parent.nodesByKey = new Map());
  const wanted = new Set(keys);
  for (const [key, node] of known) {
    if (!wanted.has(key)) {
      node.remove();
      known.delete(key);
    }
  }
  let place = parent.firstChild;
  for (const key of keys) {
    let node = known.get(key);
    if (!node) {
      node = make(key);
      known.set(key, node);
    }
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
    update(node, key);
  }
}

// A tile of a list of terms: what, its value, and a line that explains it.
export function tile(list, name, label) {
  let found = list.querySelector(`[data-tile="${name}"]`);
  if (!found) {
    found = el("div", { "data-tile": name }, el("dt", {}, label), el("dd", { class: "value" }), el("dd", { class: "note" }));
    list.append(found);
  }
  return (value, note = "", level = "") => {
    setText(found.querySelector(".value"), value);
    setText(found.querySelector(".note"), note);
    if (found.dataset.level !== level) found.dataset.level = level;
  };
}

// Say something to those who listen to the page.
export function announce(text) {
  setText(byId("announcement"), text);
}

// Decisions by key, queued in this tab until the ledger has them. Texts go through textContent.
//
// A key decides about the finding that the strip shows, and the strip shows the next one at once:
// the server may be slower than the person. The queue lies in sessionStorage, so a reload sends it
// again; each entry has an id of its own, by which the server records it once.
const VERBS = { k: "keep", d: "drop", f: "false-positive", u: "undo" };
const AGAIN_MS = 1000;
const page = { pending: [], data: null, send: null, root: null, again: 0 };
let count = Date.now(); // grows over reloads too

const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text) node.textContent = text;
  return node;
};
const place = () => `dataset-preflight queue ${page.data.run}`;
const waits = (line) => page.pending.some((entry) => entry.finding === line.id);
const shown = () => page.data.lines.find((line) => !waits(line));

function draw(said) {
  const { root, pending } = page;
  const line = shown();
  root.replaceChildren();
  if (line && line.image) {
    const image = make("img");
    image.src = line.image;
    image.alt = line.title;
    root.append(image);
  }
  const what = make("div", "what");
  what.append(make("div", "title", line ? line.title : "The next findings are on their way."));
  if (line) what.append(make("div", "", said || "K keeps, D drops, F: false positive, U takes back"));
  const saving = make("div", "saving", pending.length ? `saving ${pending.length}` : "");
  saving.setAttribute("role", "status");
  root.append(what, saving);
  root.dataset.finding = line ? line.id : "";
}

function keep() {
  if (page.pending.length) sessionStorage.setItem(place(), JSON.stringify(page.pending));
  else sessionStorage.removeItem(place());
}

function restore() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(place()) || "[]");
    return Array.isArray(stored) ? stored : [];
  } catch {
    return [];
  }
}

function typing(event) {
  const at = event.composedPath()[0];
  return at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName);
}

function pressed(event) {
  const verb = VERBS[event.key.toLowerCase()];
  if (!verb || !page.root || !page.root.isConnected || page.data.held) return;
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
  // Only where something waits must an undo wait for it: else the button of the sidebar has the key.
  if (verb === "undo" && !page.pending.length) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  // A key held down is one decision.
  const line = shown();
  if (event.repeat || (verb !== "undo" && !line)) return;
  if (verb === "drop" && !line.drops) {
    draw("Nothing here can be dropped whole: of copies one stays, so select those to drop.");
    return;
  }
  const id = crypto.randomUUID ? crypto.randomUUID() : `${Date.now()} ${Math.random()}`;
  const entry = { id, verb, finding: verb === "undo" ? "" : line.id };
  page.pending.push({ ...entry, samples: line && line.id === page.data.open ? page.data.picked : [] });
  keep();
  draw();
  page.send();
}

if (!globalThis.preflightQueue) {
  globalThis.preflightQueue = page;
  addEventListener("keydown", (event) => globalThis.preflightQueue.pressed(event), true);
  addEventListener("beforeunload", (event) => {
    if (globalThis.preflightQueue.pending.length) event.preventDefault();
  });
}
globalThis.preflightQueue = page;
page.pressed = pressed;

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const first = page.data === null || page.data.run !== data.run;
  Object.assign(page, { data, root: parentElement.querySelector(".queue") });
  // Counted, as a state that is sent again unchanged would tell the server nothing.
  page.send = () => setStateValue("queue", { count: ++count, entries: [...page.pending] });
  if (first) page.pending = restore();
  const before = page.pending.length;
  page.pending = page.pending.filter((entry) => !data.answered.includes(entry.id));
  if (first || before !== page.pending.length) keep();
  draw();
  // What the server was sent while it drew the whole page anew, it has thrown away.
  clearInterval(page.again);
  page.again = setInterval(() => page.pending.length && page.send(), AGAIN_MS);
  if (page.pending.length) page.send();
}

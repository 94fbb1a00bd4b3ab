// Decisions by key, queued in this tab until the ledger has them. Texts go through textContent.
//
// A key decides about the finding that the strip shows, and the strip shows the next one at once:
// the server may be slower than the person. The queue lies in sessionStorage, so a reload sends it
// again; each entry has an id of its own, by which the server records it once.
const AGAIN_MS = 1000;
const HELD = 200; // pictures that the server is told of
const IDLE_MS = 1500; // after the last answer, until what stands beside the finding is drawn anew
const page = { pending: [], data: null, send: null, root: null, again: 0, idle: 0, images: new Map() };
let count = Date.now(); // grows over reloads too

const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text) node.textContent = text;
  return node;
};
const place = () => `dataset-preflight queue ${page.data.run}`;
const waits = (line) => page.pending.some((entry) => entry.finding === line.id);

// A group that shares a picture with one that is being saved waits for the ledger: what is left of
// it is not known yet.
function shown() {
  const line = page.data.lines.find((one) => !waits(one));
  const saved = new Set(page.pending.flatMap((entry) => entry.members || []));
  return line?.members.some((name) => saved.has(name)) ? undefined : line;
}

function draw(said) {
  const { root, pending } = page;
  const line = shown();
  root.replaceChildren();
  // The open one is drawn below with its pictures: the strip shows only what is ahead of the page.
  const ahead = line && line.id !== page.data.open;
  for (const [at, name] of ahead ? line.images.entries() : []) {
    const frame = make("figure");
    const image = make("img");
    image.src = page.images.get(name) || "";
    image.alt = line.title;
    frame.append(image);
    if (line.digits) frame.append(make("figcaption", "", `${at + 1}`));
    root.append(frame);
  }
  const what = make("div", "what");
  if (!line) what.append(make("div", "title", "The next ones are on their way."));
  if (ahead) what.append(make("div", "title", line.title));
  if (line) what.append(make("div", "", said || page.data.hint));
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

function refusal(verb, line, digit) {
  if (verb === "drop" && !line.drops) {
    return "Nothing here can be dropped whole: of copies one stays, so select those to drop.";
  }
  if (verb === "keeper" && line.left < 2) return "Nothing is left to choose here: N goes on.";
  if (verb === "keeper" && digit > line.digits) {
    return line.digits ? `This group has the digits 1 to ${line.digits}.` : "This group is not shown whole: use the rule (K).";
  }
  return "";
}

function pressed(event) {
  const digit = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
  const verb = digit && page.data ? page.data.keys.digit : page.data?.keys[event.key.toLowerCase()];
  if (!verb || !page.root || !page.root.isConnected || page.data.held) return;
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  // A key held down is one decision.
  const line = shown();
  if (event.repeat || (verb !== "undo" && !line)) return;
  const refused = refusal(verb, line, digit);
  if (refused) {
    draw(refused);
    return;
  }
  const id = crypto.randomUUID ? crypto.randomUUID() : `${Date.now()} ${Math.random()}`;
  const entry = { id, verb, finding: verb === "undo" ? "" : line.id, samples: [], rule: page.data.rule, members: line?.members };
  if (verb === "keeper") entry.samples = [line.members[digit - 1]];
  else if (verb !== "rule" && line && line.id === page.data.open) entry.samples = page.data.picked;
  page.pending.push(entry);
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
  const { data, parentElement, setStateValue, setTriggerValue } = component;
  const first = page.data === null || page.data.run !== data.run;
  Object.assign(page, { data, root: parentElement.querySelector(".queue") });
  for (const [name, image] of Object.entries(data.images)) page.images.set(name, image);
  const have = [...page.images.keys()].slice(-HELD);
  // Counted, as a state that is sent again unchanged would tell the server nothing.
  page.send = () => setStateValue("queue", { count: ++count, entries: [...page.pending], have });
  if (first) page.pending = restore();
  const before = page.pending.length;
  page.pending = page.pending.filter((entry) => !data.answered.includes(entry.id));
  if (first || before !== page.pending.length) keep();
  draw();
  clearTimeout(page.idle);
  if (!page.pending.length && data.answered.length && data.beside) {
    page.idle = setTimeout(() => page.pending.length || setTriggerValue("idle", ++count), IDLE_MS);
  }
  // What the server was sent while it drew the whole page anew, it has thrown away.
  clearInterval(page.again);
  page.again = setInterval(() => page.pending.length && page.send(), AGAIN_MS);
  if (page.pending.length) page.send();
}

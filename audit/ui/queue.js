// Decisions by key and by button, queued in this tab until the ledger has them. Texts go through
// textContent.
//
// A press is about what is in front: the finding that the strip shows, the picture of the dialogue,
// or the selected cards. The strip shows what comes next at once: the server may be slower than the
// person. The queue lies in sessionStorage, so a reload sends it again; each entry has an id of its
// own, by which the server records it once.
const AGAIN_MS = 1000;
const HELD = 200; // pictures that the server is told of
const IDLE_MS = 1500; // after the last answer, until what stands beside the finding is drawn anew
const FRONTS = ["picture", "findings", "selected"]; // the first of them on the page has the keys
const MOVES = { before: -1, after: 1 };
const KEPT_BY_WIDGETS = '[role="tablist"], [role="grid"], [role="radiogroup"], [role="slider"]';
const queue = { pending: [], run: null, fronts: {}, drawn: 0, again: 0, idle: 0, images: new Map() };
let count = Date.now(); // grows over reloads too

const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text) node.textContent = text;
  return node;
};
const place = () => `dataset-preflight queue ${queue.run}`;
const live = () => FRONTS.map((kind) => queue.fronts[kind]).filter((front) => front?.root.isConnected);

// The page has no keys behind a dialogue, nor while the picture that was asked for is on its way.
function inFront() {
  const top = live()[0];
  if (globalThis.preflightFrame?.box?.open) return undefined; // the list of keys
  if (!top || top.data.kind === "picture") return top;
  const coming = top.data.held && !(queue.fronts.picture?.drawn > top.drawn);
  return coming || document.querySelector('[data-testid="stDialog"]') ? undefined : top;
}

// A group that shares a picture with one that is being saved waits for the ledger: what is left of
// it is not known yet.
function shown({ data, want }) {
  if (data.kind === "selected") return data.picked.length ? { id: data.open } : undefined;
  if (data.kind === "picture") return data.lines.find((line) => line.id === (want || data.open));
  const line = data.lines.find((one) => !queue.pending.some((entry) => entry.finding === one.id));
  const saved = new Set(queue.pending.flatMap((entry) => entry.members || []));
  return line?.members.some((name) => saved.has(name)) ? undefined : line;
}

function draw(front, said) {
  const { root, data } = front;
  const { pending } = queue;
  const line = shown(front);
  root.replaceChildren();
  // The open one is drawn below with its pictures: the strip shows only what is ahead of the page.
  const ahead = line && line.id !== data.open;
  for (const [at, name] of ahead ? line.images.entries() : []) {
    const frame = make("figure");
    const image = make("img");
    image.src = queue.images.get(name) || "";
    image.alt = line.title;
    frame.append(image);
    if (line.digits) frame.append(make("figcaption", "", `${at + 1}`));
    root.append(frame);
  }
  const what = make("div", "what");
  if (!line && data.kind === "findings") what.append(make("div", "title", "The next ones are on their way."));
  if (ahead) what.append(make("div", "title", line.title));
  if (line) what.append(make("div", "", said || data.hint));
  const saving = make("div", "saving", pending.length ? `saving ${pending.length}` : "");
  saving.setAttribute("role", "status");
  root.append(what, saving);
  root.hidden = data.kind !== "findings" && !ahead && !said && !pending.length;
  root.dataset[data.kind === "findings" ? "finding" : data.kind] = line ? line.id : "";
}

function keep() {
  if (queue.pending.length) sessionStorage.setItem(place(), JSON.stringify(queue.pending));
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

// Entries go in the order of the presses, so that an undo is about what was decided before it. What
// is decided of a finding goes with the findings, where they are on the page: it turns to the next.
function send() {
  const here = live();
  const findings = here.find((front) => front.data.kind === "findings");
  const takes = (front, entry) => !entry.finding || !findings || front === findings;
  const [first] = queue.pending;
  const sender = here.find((front) => (first ? takes(front, first) : front.want));
  if (!sender) return;
  const end = queue.pending.findIndex((entry) => !takes(sender, entry));
  const entries = queue.pending.slice(0, end < 0 ? undefined : end);
  const have = [...queue.images.keys()].slice(-HELD);
  // Counted, as a state that is sent again unchanged would tell the server nothing.
  sender.set("queue", { count: ++count, run: queue.run, entries, have, at: sender.want || "" });
}

function typing(event) {
  const at = event.composedPath()[0];
  if (at.tagName === "INPUT") return !["checkbox", "radio", "button"].includes(at.type);
  return at.isContentEditable || ["TEXTAREA", "SELECT"].includes(at.tagName);
}

function refusal(data, line, verb, digit, named) {
  if (data.kind !== "findings" || verb === "undo") return "";
  if (named && line.id !== data.open) {
    return "That button is about the finding that is being saved: press it when the next one is drawn.";
  }
  if (verb === "drop" && line.stays) return line.stays;
  if (verb === "keeper" && line.left < 2) return "Nothing is left to choose here: N goes on.";
  if (verb === "keeper" && digit > line.digits) {
    return line.digits ? `This group has the digits 1 to ${line.digits}.` : "This group is not shown whole: use the rule (K).";
  }
  return "";
}

// The card beside the one that is shown, at once: the server is told where this tab stands.
function move(front, step) {
  const { lines, open } = front.data;
  const next = lines[lines.findIndex((line) => line.id === (front.want || open)) + step];
  if (next) front.want = next.id;
}

function press(front, verb, { digit = 0, value = "", button = false }) {
  const { data } = front;
  const line = shown(front);
  const named = button && verb !== "false-positive" && (value || data.picked.length > 0);
  if (verb in MOVES) {
    move(front, MOVES[verb]);
  } else if (line || verb === "undo") {
    const refused = refusal(data, line, verb, digit, named);
    if (refused) {
      draw(front, refused);
      return;
    }
    const id = crypto.randomUUID ? crypto.randomUUID() : `${Date.now()} ${Math.random()}`;
    const entry = { id, verb, value, finding: "", samples: [], rule: data.rule, members: line?.members };
    if (verb !== "undo" && data.kind === "findings") {
      entry.finding = line.id;
      if (verb === "keeper") entry.samples = [line.members[digit - 1]];
      else if (verb !== "rule" && line.id === data.open) entry.samples = data.picked;
    } else if (verb !== "undo") {
      entry.samples = data.kind === "picture" ? [line.id] : data.picked;
      entry.members = entry.samples;
      if (verb === "label") entry.value = value || data.classes[digit - 1];
      const before = queue.pending.at(-1);
      const again = ["verb", "value", "samples"].every((name) => `${before?.[name]}` === `${entry[name]}`);
      if (again || entry.value === undefined) return; // it is being saved already; a digit of no class
      if (verb === "label") move(front, 1);
    }
    queue.pending.push(entry);
    keep();
  }
  live().forEach((one) => draw(one));
  send();
}

function pressed(event) {
  const front = inFront();
  if (!front || event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
  const digit = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
  const verb = front.data.keys[digit ? "digit" : event.key.toLowerCase()];
  // Arrows turn the tabs and move in the tables of the dialogue too.
  if (!verb || (verb in MOVES && event.composedPath()[0].closest?.(KEPT_BY_WIDGETS))) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  // A key held down is one decision.
  if (!event.repeat || verb in MOVES) press(front, verb, { digit });
}

function clicked(event) {
  const front = inFront();
  const button = event.target.closest?.("button");
  if (!front || !button || button.disabled) return;
  const marked = (key) => button.closest(`.st-key-${key.replace(/[^\w-]/g, "-")}`);
  const key = Object.keys(front.data.buttons).find(marked);
  if (!key) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const [verb, value] = front.data.buttons[key];
  press(front, verb, { value, button: true });
}

if (!globalThis.preflightQueue) {
  addEventListener("keydown", (event) => globalThis.preflightQueue.pressed(event), true);
  addEventListener("click", (event) => globalThis.preflightQueue.clicked(event), true);
  addEventListener("beforeunload", (event) => {
    if (globalThis.preflightQueue.pending.length) event.preventDefault();
  });
}
globalThis.preflightQueue = queue;
Object.assign(queue, { pressed, clicked });

export default function (component) {
  const { data, parentElement, setStateValue, setTriggerValue } = component;
  const first = queue.run !== data.run;
  if (first) {
    queue.run = data.run; // which names the place that is restored
    Object.assign(queue, { pending: restore(), images: new Map() });
  }
  const root = parentElement.querySelector(".queue");
  const last = queue.fronts[data.kind];
  // A dialogue that was closed has let go of where it stood.
  const stands = last?.root.isConnected && last.want !== data.open;
  const want = stands && data.lines.some((line) => line.id === last.want) ? last.want : "";
  queue.fronts[data.kind] = { data, root, want, set: setStateValue, drawn: ++queue.drawn };
  for (const [name, image] of Object.entries(data.images)) queue.images.set(name, image);
  const before = queue.pending.length;
  queue.pending = queue.pending.filter((entry) => !data.answered.includes(entry.id));
  if (first || before !== queue.pending.length) keep();
  live().forEach((front) => draw(front));
  if (data.kind === "findings") {
    clearTimeout(queue.idle);
    if (!queue.pending.length && data.answered.length && data.beside) {
      queue.idle = setTimeout(() => queue.pending.length || setTriggerValue("idle", ++count), IDLE_MS);
    }
  }
  // What the server was sent while it drew the whole page anew, it has thrown away.
  const waits = () => queue.pending.length || live().some((front) => front.want);
  clearInterval(queue.again);
  queue.again = setInterval(() => waits() && send(), AGAIN_MS);
  if (waits()) send();
}

// Decisions by key and by button, queued in this tab until they are stored. Texts go through
// textContent.
// The strip goes on before the server answers, and hides what the server has drawn of another finding.
// The queue lies in sessionStorage, so a reload sends it again; the server records an entry id once.
const TICK_MS = 250;
const AGAIN_MS = 3000; // until a message that nothing answered is sent again
const HELD = 400; // pictures that the server is told of
const REST_MS = 2000; // without the pointer: a click is lost while the server draws something else
const IDLE_MS = 1500; // after the last answer, until what stands beside the finding is drawn anew
const FRONTS = ["picture", "findings", "labels", "selected"]; // the first of them on the page has the keys
const MOVES = { before: -1, after: 1 };
const DRAWN = { findings: "st-key-of-finding", picture: "st-key-of-picture" }; // by the server
const END = "\u0000end"; // where the next one is not known here
const KEPT_BY_WIDGETS = '[role="tablist"], [role="grid"], [role="radiogroup"], [role="slider"]';
const queue = { pending: [], run: null, fronts: {}, drawn: 0, again: 0, idle: 0, sent: null, missed: 0, typed: false, pointedAt: 0, images: new Map() };
let count = Date.now(); // grows over reloads too

const place = () => `dataset-preflight queue ${queue.run}`;
const live = () => FRONTS.map((kind) => queue.fronts[kind]).filter((front) => front?.root.isConnected);
const decides = (line) => queue.pending.some((entry) => entry.finding === line.id);

// The page has no keys behind a dialogue, nor while the picture that was asked for is on its way.
function inFront() {
  const top = live()[0];
  if (globalThis.preflightFrame?.box?.open) return undefined; // the list of keys
  if (!top || top.data.kind === "picture") return top;
  const coming = top.data.held && !(queue.fronts.picture?.drawn > top.drawn);
  return coming || document.querySelector('[data-testid="stDialog"]') ? undefined : top;
}

// A group that shares an image with one that is being saved waits for it.
function shown({ data, want }) {
  if (data.kind === "selected") return data.picked.length ? { id: data.open } : undefined;
  if (want === END) return undefined;
  const at = data.lines.findIndex((line) => line.id === (want || data.open));
  if (data.kind !== "findings") return data.lines[at];
  const line = data.lines.slice(Math.max(at, 0)).find((one) => !decides(one));
  const saved = new Set(queue.pending.flatMap((entry) => entry.members || []));
  return line?.members.some((name) => saved.has(name)) ? undefined : line;
}

function hide(kinds) {
  let style = document.getElementById("preflight-ahead");
  if (!style) {
    style = make("style");
    style.id = "preflight-ahead";
    document.head.append(style);
  }
  const rules = kinds.map((kind) => `[class*="${DRAWN[kind]}"] { display: none; }`).join("\n");
  if (style.textContent !== rules) style.textContent = rules;
}

function draw(front, said) {
  const { root, data } = front;
  const { pending, missed } = queue;
  const line = shown(front);
  root.replaceChildren();
  front.ahead = data.kind === "labels" || (data.lines.length > 0 && line?.id !== data.open);
  hide(live().filter((one) => one.ahead && DRAWN[one.data.kind]).map((one) => one.data.kind));
  const what = make("div", "what");
  if (!line && data.lines.length) what.append(make("div", "title", "The next ones are loading."));
  if (front.ahead && line) what.append(make("div", "title", line.title), make("div", "", line.text));
  const asks = line && front.asked === line.id ? "Drop the whole image with all of its bounding boxes? Press D again." : "";
  if (line || said) what.append(make("div", "hint", said || asks || line.hint || data.hint));
  const waits = missed ? `${missed} ${missed === 1 ? "key" : "keys"} not recorded` : "";
  const saving = [pending.length ? `saving ${pending.length}` : "", waits].filter(Boolean).join(", ");
  const state = make("div", "saving", saving);
  state.setAttribute("role", "status");
  root.append(what, state);
  if (front.ahead && line) {
    const pictures = make("div", "pictures");
    for (const [at, [name, caption]] of line.images.entries()) {
      const frame = make("figure", (line.small ? at : line.images.length > 3) ? "small" : "");
      const image = make("img");
      image.src = queue.images.get(name) || "";
      image.alt = caption ? `${line.title}: ${caption}` : line.title;
      frame.append(image);
      const text = line.digits ? `${at + 1}` : caption;
      if (text) frame.append(make("figcaption", "", text));
      pictures.append(frame);
    }
    root.append(pictures);
  }
  root.hidden = (data.kind !== "findings" || !data.lines.length) && !front.ahead && !said && !pending.length && !missed;
  root.dataset[data.kind === "findings" ? "finding" : data.kind] = line ? line.id : "";
}

// A key that nothing could be done with is counted until one is taken, and seen.
function miss(front, why) {
  queue.missed += 1;
  draw(front, why);
  front.root.animate([{ backgroundColor: "#e6a23c88" }, { backgroundColor: "transparent" }], 600);
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

// Fetching ahead waits while the pointer moves or a dialogue is open.
function asksMore(front) {
  const rests = performance.now() - Math.max(queue.pointedAt, front.at) > REST_MS;
  return front.data.more && (queue.typed || rests) && !document.querySelector('[data-testid="stDialog"]');
}

const waits = () => queue.pending.length || live().some((front) => (front.want && front.want !== END) || asksMore(front));

// Entries go in the order of the presses, one message at a time; decisions of a finding go with the
// findings on the page.
function send() {
  if (queue.sent && performance.now() - queue.sent.at < AGAIN_MS) return;
  const here = live();
  const findings = here.find((front) => front.data.kind === "findings");
  const takes = (front, entry) => !entry.finding || !findings || front === findings;
  const [first] = queue.pending;
  const sender = here.find((front) => (first ? takes(front, first) : front.want || asksMore(front)));
  if (!sender) return;
  const end = queue.pending.findIndex((entry) => !takes(sender, entry));
  const entries = queue.pending.slice(0, end < 0 ? undefined : end);
  const have = [...queue.images.keys()].slice(-HELD);
  // Counted, as a state that is sent again unchanged would tell the server nothing.
  queue.sent = { count: ++count, at: performance.now() };
  sender.set("queue", { count, run: queue.run, entries, have, at: sender.want === END ? "" : sender.want || "" });
}

function refusal(data, line, verb, digit, named) {
  if (verb === "label" && !line.suggestion && !digit && data.kind === "labels") return "Nothing is suggested here.";
  if (data.kind !== "findings" || verb === "undo") return "";
  if (named && line.id !== data.open) {
    return "This button still belongs to the finding that is being saved: wait until the next one is drawn.";
  }
  if (verb === "drop" && line.stays) return line.stays;
  if ((verb === "fix" || verb === "remove-box") && !line.box) return "This finding has no bounding box.";
  if (verb === "fix" && !line.fixes) return "This bounding box has no automatic fix: R removes it.";
  if (verb === "keeper" && line.left < 2) return "This group is decided: N opens the next one.";
  if (verb === "keeper" && digit > line.digits) {
    return line.digits ? `This group has the digits 1 to ${line.digits}.` : "This group is not shown whole: use the rule (K).";
  }
  return "";
}

// The one beside what is shown, at once: the server is told where this tab stands.
function move(front, step) {
  const { lines } = front.data;
  let at = lines.indexOf(shown(front));
  if (at < 0) return false;
  do at += step;
  while (lines[at] && decides(lines[at]));
  if (lines[at]) front.want = lines[at].id;
  return Boolean(lines[at]);
}

function press(front, verb, { digit = 0, value = "", button = false }) {
  const { data } = front;
  const line = shown(front);
  const named = button && verb !== "false-positive" && (value || data.picked.length > 0);
  const asked = front.asked;
  front.asked = "";
  if (verb in MOVES) {
    if (!move(front, MOVES[verb]) && data.kind !== "picture") {
      if (verb === "after" && !(line && data.ends)) return miss(front, "The next ones are loading.");
      return draw(front, verb === "after" ? "This is the last one of the list." : "This is the first one of the list.");
    }
  } else if (data.forbids) {
    return miss(front, data.forbids);
  } else if (line || verb === "undo") {
    const refused = refusal(data, line, verb, digit, named);
    if (refused) return draw(front, refused);
    if (verb === "drop" && line?.box) {
      if (asked !== line.id) {
        front.asked = line.id;
        return draw(front);
      }
      verb = "drop-picture";
    }
    const id = crypto.randomUUID ? crypto.randomUUID() : `${Date.now()} ${Math.random()}`;
    const entry = { id, verb, value, finding: "", samples: [], rule: data.rule, members: line?.members };
    const turns = data.kind === "labels" || verb === "label";
    if (verb !== "undo" && data.kind === "findings") {
      entry.finding = line.id;
      if (verb === "keeper") entry.samples = [line.members[digit - 1]];
      else if (verb !== "rule" && line.id === data.open) entry.samples = data.picked;
    } else if (verb !== "undo") {
      entry.samples = data.kind === "selected" ? data.picked : [line.id];
      entry.members = entry.samples;
      if (verb === "label") entry.value = value || (digit ? data.classes[digit - 1] : line.suggestion);
      const before = queue.pending.at(-1);
      const again = ["verb", "value", "samples"].every((name) => `${before?.[name]}` === `${entry[name]}`);
      if (again) return undefined; // it is being saved already
      if (entry.value === undefined) return miss(front, "No class has this digit.");
    }
    if (verb !== "undo" && (turns || data.kind === "findings") && !move(front, 1)) {
      if (data.kind !== "picture") front.want = END;
    }
    queue.missed = 0;
    queue.pending.push(entry);
    keep();
  } else {
    return miss(front, "The next ones are loading.");
  }
  live().forEach((one) => draw(one));
  return send();
}

function pressed(event) {
  const front = inFront();
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event)) return;
  const digit = /^[1-9]$/.test(event.key) ? Number(event.key) : 0;
  const named = ({ data }) => data.keys[digit ? "digit" : event.key.toLowerCase()];
  if (!front) {
    // A picture was opened, which has the keys once it is drawn.
    const behind = live()[0];
    const coming = behind?.data.held && !document.querySelector('[data-testid="stDialog"]');
    if (coming && named(behind) && !event.repeat) miss(behind, "The image is loading.");
    return;
  }
  const verb = named(front);
  // Arrows turn the tabs and move in the tables of the dialogue too.
  if (!verb || (verb in MOVES && event.composedPath()[0].closest?.(KEPT_BY_WIDGETS))) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  // A key held down is one decision.
  queue.typed = true;
  if (!event.repeat || verb in MOVES) press(front, verb, { digit });
}

function clicked(event) {
  const front = inFront();
  const button = event.target.closest?.("button");
  if (!front || !button || button.disabled) return;
  const marked = (key) => button.closest(`.st-key-${key.replace(/[^\w-]/g, "-")}`);
  const key = Object.keys(front.data.buttons).find(marked);
  if (!key) return;
  const [verb, value] = front.data.buttons[key];
  if (key.startsWith("do ") && !value) return; // just chosen: the server's own button knows it
  event.preventDefault();
  event.stopImmediatePropagation();
  press(front, verb, { value, button: true });
}

if (!globalThis.preflightQueue) {
  addEventListener("keydown", (event) => globalThis.preflightQueue.pressed(event), true);
  const point = () => Object.assign(globalThis.preflightQueue, { pointedAt: performance.now(), typed: false });
  addEventListener("pointermove", point, true);
  addEventListener("pointerdown", point, true);
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
    Object.assign(queue, { pending: restore(), images: new Map(), sent: null, missed: 0 });
  }
  const root = parentElement.querySelector(".queue");
  const last = queue.fronts[data.kind];
  if (queue.sent && data.heard === queue.sent.count) queue.sent = null;
  const before = queue.pending.length;
  queue.pending = queue.pending.filter((entry) => !data.answered.includes(entry.id));
  // A dialogue that was closed has let go of where it stood; what was refused or taken back is open.
  const stands = last?.root.isConnected && last.want !== data.open && !data.stays;
  // What follows the last of the lines that were here, the server opens once it has recorded that.
  const want = stands && last.want === END && queue.pending.length ? END : stands && data.lines.some((line) => line.id === last.want) ? last.want : "";
  queue.fronts[data.kind] = { data, root, want, asked: last?.asked, set: setStateValue, drawn: ++queue.drawn, at: performance.now() };
  for (const [name, image] of Object.entries(data.images)) queue.images.set(name, image);
  if (first || before !== queue.pending.length) keep();
  live().forEach((front) => draw(front));
  if (data.kind === "findings") {
    clearTimeout(queue.idle);
    if (!queue.pending.length && data.beside) {
      queue.idle = setTimeout(() => queue.pending.length || setTriggerValue("idle", ++count), IDLE_MS);
    }
  }
  // What the server was sent while it drew the whole page anew, it has thrown away.
  clearInterval(queue.again);
  queue.again = setInterval(() => waits() && send(), TICK_MS);
  if (waits()) send();
}

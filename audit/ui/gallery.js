// A page of cards. Every text that comes from the data goes through textContent.

const SMALL = 96; // px: enlarged, its pixels stay squares
const TAIL = 8; // characters

function picture(card) {
  const frame = make("div", "frame");
  if (card.image) {
    const image = make("img");
    image.src = card.image;
    image.alt = card.title;
    image.draggable = false;
    image.onload = () => image.classList.toggle("small", image.naturalWidth < SMALL && image.naturalHeight < SMALL);
    frame.append(image);
  } else {
    frame.classList.add("none");
    frame.append(make("span", "", card.why || "no image"));
  }
  if (card.mark) frame.append(make("span", "mark " + (card.markKind || ""), card.mark));
  return frame;
}

function caption(card) {
  const box = make("div", "caption");
  // Names of one folder differ at their ends: what is cut is the middle.
  const title = make("div", "title");
  title.append(make("span", "head", card.title.slice(0, -TAIL)), make("span", "tail", card.title.slice(-TAIL)));
  title.title = card.full || card.title;
  box.append(title);
  for (const line of card.lines || []) {
    const row = make("div", "line", line);
    row.title = line;
    box.append(row);
  }
  if (card.note) box.append(make("div", "note", card.note));
  return box;
}

export default function (component) {
  const { data, parentElement, setStateValue, setTriggerValue } = component;
  const root = parentElement.querySelector(".gallery");
  const picked = new Set(data.picked || []);
  let last = -1;
  root.style.setProperty("--card", `${data.width}px`);
  const focused = root.getRootNode().activeElement?.dataset?.id;
  root.replaceChildren();

  const tell = () => setStateValue("picked", data.cards.map((c) => c.id).filter((i) => picked.has(i)));
  const nodes = data.cards.map((card, at) => {
    const node = make("div", "card");
    node.tabIndex = 0;
    node.setAttribute("role", "group"); // it holds a button, which a button may not
    node.setAttribute("aria-label", card.title);
    node.dataset.id = card.id;
    node.append(picture(card), caption(card));
    node.classList.toggle("picked", picked.has(card.id));
    const toggle = (range) => {
      const from = range && last >= 0 ? Math.min(last, at) : at;
      const to = range && last >= 0 ? Math.max(last, at) : at;
      const on = !picked.has(card.id);
      for (let i = from; i <= to; i++) {
        if (on) picked.add(data.cards[i].id);
        else picked.delete(data.cards[i].id);
        nodes[i].classList.toggle("picked", on);
      }
      last = at;
      tell();
    };
    if (data.selectable) {
      const box = makeButton("pick", "", (event) => {
        event.stopPropagation();
        toggle(event.shiftKey);
      });
      box.title = "Select (Space; with Shift a range)";
      box.setAttribute("aria-label", "Select " + card.title);
      node.append(box);
    }
    const open = () => setTriggerValue("opened", card.id);
    node.onclick = (event) => (event.shiftKey && data.selectable ? toggle(true) : open());
    node.onkeydown = (event) => {
      if (event.key === "Enter") open();
      else if (event.key === " " && data.selectable) toggle(event.shiftKey);
      else if (event.key === "ArrowRight" && nodes[at + 1]) nodes[at + 1].focus();
      else if (event.key === "ArrowLeft" && nodes[at - 1]) nodes[at - 1].focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    return node;
  });
  root.append(...nodes);
  nodes.find((node) => focused && node.dataset.id === focused)?.focus({ preventScroll: true });
}

// The picture of the point under the pointer: asked for by the scatter, kept once it came.
export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".peek");
  const kept = (root.kept ||= new Map());
  if (root.of !== data.of) kept.clear();
  root.of = data.of;
  let box = root.querySelector("figure");
  if (!box) { box = make("figure"); box.hidden = true; root.append(box); }
  const show = (one) => {
    const image = make("img");
    image.src = one.image;
    image.alt = one.title;
    const text = make("figcaption", "", one.lines.join(" · "));
    box.replaceChildren(...(one.image ? [image, text] : [text]));
    box.hidden = false;
  };
  globalThis.preflightPeek = {
    ask(place, left, top) {
      root.wanted = place;
      box.style.left = `${Math.min(left + 14, innerWidth - 190)}px`;
      box.style.top = `${Math.min(top + 14, innerHeight - 200)}px`;
      if (kept.has(place)) show(kept.get(place));
      else setTriggerValue("asked", place);
    },
    away() { root.wanted = null; box.hidden = true; },
  };
  if (data.shown) {
    kept.set(data.shown.place, data.shown);
    if (root.wanted === data.shown.place) show(data.shown);
  }
}

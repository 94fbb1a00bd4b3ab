// One picture to zoom and pan, or two in one place: a slider between them, or one after the other.
const MOST = 24; // times
const STEP = 1.2;
const PERIOD_MS = 600; // below three flashes a second

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".viewer");
  clearInterval(root.flicker);
  root.replaceChildren();
  const stage = make("div", "stage");
  stage.style.height = `${data.height}px`;
  stage.tabIndex = 0;
  stage.setAttribute("role", "group");
  stage.setAttribute("aria-label", `${data.images.map((i) => i.name).join(" and ")}: wheel or plus and minus zoom, drag or arrows pan, 0 shows all`);
  const pictures = data.images.map((one) => {
    const image = make("img");
    image.src = one.src;
    image.alt = one.name;
    image.draggable = false;
    stage.append(image);
    return image;
  });
  const bar = make("div", "bar");
  root.append(stage, bar);

  let zoom = 1, x = 0, y = 0;
  const place = () => {
    const { clientWidth: w, clientHeight: h } = stage;
    x = Math.min(0, Math.max(x, w - w * zoom));
    y = Math.min(0, Math.max(y, h - h * zoom));
    for (const image of pictures) image.style.transform = `translate(${x}px, ${y}px) scale(${zoom})`;
    stage.dataset.zoom = zoom.toFixed(2);
    stage.classList.toggle("close", zoom > 3);
  };
  const turn = (by, px = stage.clientWidth / 2, py = stage.clientHeight / 2) => {
    const next = Math.min(MOST, Math.max(1, zoom * by));
    x = px - (px - x) * (next / zoom);
    y = py - (py - y) * (next / zoom);
    zoom = next;
    place();
  };
  const whole = () => { zoom = 1; place(); };
  stage.addEventListener("wheel", (event) => { event.preventDefault(); turn(event.deltaY < 0 ? STEP : 1 / STEP, ...pointIn(stage, event)); }, { passive: false });
  let held = null;
  stage.onpointerdown = (event) => { held = pointIn(stage, event); stage.setPointerCapture(event.pointerId); };
  stage.onpointermove = (event) => {
    if (!held) return;
    const now = pointIn(stage, event);
    x += now[0] - held[0];
    y += now[1] - held[1];
    held = now;
    place();
  };
  stage.onpointerup = () => { held = null; };
  stage.ondblclick = whole;
  const pans = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  stage.onkeydown = (event) => {
    if (event.key === "+" || event.key === "=") turn(STEP);
    else if (event.key === "-") turn(1 / STEP);
    else if (event.key === "0") whole();
    else if (zoom > 1 && pans[event.key]) { x += pans[event.key][0]; y += pans[event.key][1]; place(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  for (const [text, act] of [["Zoom in", () => turn(STEP)], ["Zoom out", () => turn(1 / STEP)], ["Whole", whole]]) {
    bar.append(makeButton("", text, act));
  }
  if (pictures.length > 1) {
    const slider = make("input");
    slider.type = "range";
    slider.value = 50;
    slider.setAttribute("aria-label", `How much of ${data.images[0].name} is covered by ${data.images[1].name}`);
    const cut = () => {
      // of the stage, not of the picture, so that the edge stays under the hand when zoomed
      const edge = (stage.clientWidth * (1 - slider.value / 100) - x) / zoom;
      pictures[1].style.clipPath = `inset(0 0 0 ${Math.max(0, edge)}px)`;
    };
    const still = () => { clearInterval(root.flicker); root.flicker = 0; flick.textContent = "Flicker"; cut(); };
    const flick = makeButton("", "Flicker", () => {
      if (root.flicker) { still(); pictures[1].style.visibility = ""; return; }
      flick.textContent = "Stop";
      pictures[1].style.clipPath = "";
      root.flicker = setInterval(() => {
        const hidden = pictures[1].style.visibility === "hidden";
        pictures[1].style.visibility = hidden ? "" : "hidden";
        told.textContent = data.images[hidden ? 1 : 0].name;
      }, PERIOD_MS);
    });
    slider.oninput = () => { if (root.flicker) still(); pictures[1].style.visibility = ""; told.textContent = ""; cut(); };
    const told = make("span", "told");
    bar.append(flick, slider, told);
    new MutationObserver(() => { if (!root.flicker) cut(); }).observe(stage, { attributes: true, attributeFilter: ["data-zoom"] });
    cut();
  }
  place();
}

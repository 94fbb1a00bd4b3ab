// Points on a canvas with axes, a legend and a lasso. Texts go through textContent or fillText.
const PAD = { left: 62, right: 12, top: 10, bottom: 40 };

const ticks = (low, high, n) => {
  const raw = (high - low) / n || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) out.push(Number(v.toPrecision(8)));
  return out;
};
const short = (v) => (Math.abs(v) >= 1e6 ? `${(v / 1e6).toPrecision(3)}M` : v.toLocaleString("en"));

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".scatter");
  root.replaceChildren();
  const canvas = make("canvas");
  const legend = make("div", "legend");
  canvas.setAttribute("aria-label", `${data.xs.length} points, ${data.xName} by ${data.yName}; drag to select, wheel zooms, Shift and drag pans`);
  canvas.setAttribute("role", "img");
  canvas.tabIndex = 0;
  root.append(canvas, legend);
  const style = getComputedStyle(root);
  const ink = style.color;
  const width = root.clientWidth || 800;
  const height = data.height || 420;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  const range = (values) => {
    let low = Infinity, high = -Infinity;
    for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
    if (!(high > low)) { low -= 0.5; high += 0.5; }
    const gap = (high - low) * 0.03;
    return [low - gap, high + gap];
  };
  const whole = [...range(data.xs), ...range(data.ys)];
  // What is zoomed into stays while the same axes are drawn again.
  const axes = `${data.xName} ${data.yName}`;
  if (root.axes !== axes) { root.axes = axes; root.view = whole; }
  let [x0, x1, y0, y1] = root.view;
  const px = (v) => PAD.left + ((v - x0) / (x1 - x0)) * (width - PAD.left - PAD.right);
  const py = (v) => height - PAD.bottom - ((v - y0) / (y1 - y0)) * (height - PAD.top - PAD.bottom);
  const vx = (p) => x0 + ((p - PAD.left) / (width - PAD.left - PAD.right)) * (x1 - x0);
  const vy = (p) => y0 + ((height - PAD.bottom - p) / (height - PAD.top - PAD.bottom)) * (y1 - y0);
  let hidden = new Set();
  let path = [];

  const draw = () => {
    ctx.clearRect(0, 0, width, height);
    ctx.font = "12px " + (style.getPropertyValue("--st-font") || "sans-serif");
    ctx.fillStyle = ink;
    ctx.strokeStyle = ink;
    ctx.lineWidth = 1;
    ctx.textAlign = "center";
    for (const t of ticks(x0, x1, 8)) {
      ctx.globalAlpha = 0.1; ctx.beginPath(); ctx.moveTo(px(t), PAD.top); ctx.lineTo(px(t), height - PAD.bottom); ctx.stroke();
      ctx.globalAlpha = 0.8; ctx.fillText(short(t), px(t), height - PAD.bottom + 15);
    }
    ctx.textAlign = "right";
    for (const t of ticks(y0, y1, 6)) {
      ctx.globalAlpha = 0.1; ctx.beginPath(); ctx.moveTo(PAD.left, py(t)); ctx.lineTo(width - PAD.right, py(t)); ctx.stroke();
      ctx.globalAlpha = 0.8; ctx.fillText(short(t), PAD.left - 6, py(t) + 4);
    }
    ctx.textAlign = "center";
    ctx.globalAlpha = 0.9;
    ctx.fillText(data.xName, (PAD.left + width) / 2, height - 6);
    ctx.save(); ctx.translate(13, (height - PAD.bottom) / 2); ctx.rotate(-Math.PI / 2); ctx.fillText(data.yName, 0, 0); ctx.restore();
    const radius = data.xs.length > 5000 ? 1.6 : data.xs.length > 800 ? 2.4 : 3.6;
    ctx.globalAlpha = data.xs.length > 5000 ? 0.45 : 0.75;
    ctx.save();
    ctx.beginPath(); ctx.rect(PAD.left, PAD.top, width - PAD.left - PAD.right, height - PAD.top - PAD.bottom); ctx.clip();
    for (let i = 0; i < data.xs.length; i++) {
      if (data.xs[i] < x0 || data.xs[i] > x1 || data.ys[i] < y0 || data.ys[i] > y1) continue;
      const k = data.colours[i];
      if (hidden.has(k)) continue;
      ctx.fillStyle = data.palette[k];
      ctx.beginPath(); ctx.arc(px(data.xs[i]), py(data.ys[i]), radius, 0, 6.2832); ctx.fill();
    }
    ctx.restore();
    ctx.globalAlpha = 1;
    const ring = path.length ? path : (data.lasso || []).map(([a, b]) => [px(a), py(b)]);
    if (ring.length > 1) {
      ctx.strokeStyle = ink; ctx.lineWidth = 1.5; ctx.setLineDash([5, 4]);
      ctx.beginPath(); ring.forEach(([a, b], i) => (i ? ctx.lineTo(a, b) : ctx.moveTo(a, b)));
      ctx.closePath(); ctx.stroke(); ctx.setLineDash([]);
    }
  };
  const at = (event) => pointIn(canvas, event);
  const look = (view) => { [x0, x1, y0, y1] = root.view = view; canvas.dataset.zoom = ((whole[1] - whole[0]) / (x1 - x0)).toFixed(2); draw(); };
  const zoom = (by, a = (x0 + x1) / 2, b = (y0 + y1) / 2) => {
    if ((x1 - x0) * by > whole[1] - whole[0]) look(whole);
    else look([a + (x0 - a) * by, a + (x1 - a) * by, b + (y0 - b) * by, b + (y1 - b) * by]);
  };
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const [a, b] = at(event);
    zoom(event.deltaY < 0 ? 0.8 : 1.25, vx(a), vy(b));
  }, { passive: false });
  const nearest = (a, b) => {
    let best = -1, least = 8 * 8; // px
    for (let i = 0; i < data.xs.length; i++) {
      if (hidden.has(data.colours[i])) continue;
      const gap = (px(data.xs[i]) - a) ** 2 + (py(data.ys[i]) - b) ** 2;
      if (gap < least) { least = gap; best = i; }
    }
    return best;
  };
  let drawing = false, panned = null, resting = 0;
  canvas.onpointerdown = (event) => {
    globalThis.preflightPeek?.away();
    canvas.setPointerCapture(event.pointerId);
    if (event.shiftKey) { panned = at(event); return; }
    drawing = true;
    path = [at(event)];
  };
  canvas.onpointerleave = () => { clearTimeout(resting); globalThis.preflightPeek?.away(); };
  canvas.onpointermove = (event) => {
    if (panned) {
      const now = at(event), dx = vx(panned[0]) - vx(now[0]), dy = vy(panned[1]) - vy(now[1]);
      panned = now;
      look([x0 + dx, x1 + dx, y0 + dy, y1 + dy]);
      return;
    }
    if (!drawing) {
      clearTimeout(resting);
      resting = setTimeout(() => {
        const found = nearest(...at(event));
        if (found >= 0) globalThis.preflightPeek?.ask(found, event.clientX, event.clientY);
        else globalThis.preflightPeek?.away();
      }, 80);
      return;
    }
    const [a, b] = at(event);
    const [c, d] = path[path.length - 1];
    if (Math.hypot(a - c, b - d) > 4) { path.push([a, b]); draw(); }
  };
  canvas.onpointerup = () => {
    if (panned) { panned = null; return; }
    drawing = false;
    if (path.length < 5) { path = []; draw(); return; }
    const every = Math.max(1, Math.ceil(path.length / 32));
    const ring = path.filter((_, i) => i % every === 0).map(([a, b]) => [Number(vx(a).toPrecision(5)), Number(vy(b).toPrecision(5))]);
    setTriggerValue("lasso", ring);
  };
  canvas.ondblclick = () => setTriggerValue("lasso", []);
  canvas.onkeydown = (event) => { if (event.key === "Escape") setTriggerValue("lasso", []); };
  data.names.forEach((name, k) => {
    const dot = make("span", "dot");
    dot.style.background = data.palette[k];
    const item = makeButton("", "", () => { if (hidden.has(k)) hidden.delete(k); else hidden.add(k); item.classList.toggle("off", hidden.has(k)); draw(); });
    item.append(dot, make("span", "", name));
    legend.append(item);
  });
  for (const [text, act] of [["Zoom in", () => zoom(0.8)], ["Zoom out", () => zoom(1.25)], ["Whole", () => look(whole)]]) {
    legend.append(makeButton("zoom", text, act));
  }
  look(root.view);
}

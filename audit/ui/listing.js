// A table whose rows can be clicked. Every text that comes from the data goes through textContent.

// A line chart of numbers from 0 up, the last of which has a dot.
function line(values) {
  const most = Math.max(1e-9, ...values);
  const at = (v, i) => [2 + (76 * i) / (values.length - 1), 16 - (14 * v) / most];
  const shape = (tag, facts) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(facts)) node.setAttribute(name, value);
    return node;
  };
  const svg = shape("svg", { width: 80, height: 18, role: "img", "aria-label": values.join(", ") });
  const [x, y] = at(values[values.length - 1], values.length - 1);
  svg.append(
    shape("polyline", { points: values.map(at).join(" "), fill: "none", stroke: "currentColor" }),
    shape("circle", { cx: x, cy: y, r: 2, fill: "currentColor" }),
  );
  return svg;
}

function cell(column, value) {
  const node = make("td", "k-" + (column.kind || "text"));
  if (column.kind === "dot") {
    const dot = make("span", "dot " + value);
    dot.setAttribute("role", "img");
    dot.setAttribute("aria-label", value);
    node.title = value;
    node.append(dot);
  } else if (column.kind === "severity") {
    node.append(make("span", "dot " + value), make("span", "", value));
  } else if (column.kind === "bar") {
    const bar = make("span", "bar");
    bar.style.width = `${Math.max(0, Math.min(1, value.share)) * 100}%`;
    const track = make("span", "track");
    track.append(bar);
    node.append(make("span", "number", value.text), track);
  } else if (column.kind === "line") {
    if (value.length > 1) node.append(line(value));
  } else if (column.kind === "chip") {
    if (value) node.append(make("span", "chip " + value, value));
  } else {
    node.textContent = value;
    node.title = value;
  }
  return node;
}

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".listing");
  const focused = root.getRootNode().activeElement?.dataset?.id;
  root.replaceChildren();
  const table = make("table");
  const head = make("tr");
  for (const column of data.columns) {
    const th = make("th", "k-" + (column.kind || "text"), column.label);
    if (!column.label) th.setAttribute("aria-label", column.key);
    if (column.width) th.style.width = column.width;
    head.append(th);
  }
  const thead = make("thead");
  thead.append(head);
  const body = make("tbody");
  for (const row of data.rows) {
    const tr = make("tr");
    tr.tabIndex = 0;
    tr.dataset.id = row.id;
    tr.classList.toggle("current", row.id === data.current);
    tr.classList.toggle("settled", Boolean(row.settled));
    tr.append(...data.columns.map((column) => cell(column, row.cells[column.key])));
    const open = () => setTriggerValue("opened", row.id);
    tr.onclick = open;
    tr.onkeydown = (event) => {
      if (event.key === "Enter") open();
      else if (event.key === "ArrowDown" && tr.nextSibling) tr.nextSibling.focus();
      else if (event.key === "ArrowUp" && tr.previousSibling) tr.previousSibling.focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    body.append(tr);
  }
  table.append(thead, body);
  root.append(table);
  if (focused) [...body.children].find((tr) => tr.dataset.id === focused)?.focus({ preventScroll: true });
}

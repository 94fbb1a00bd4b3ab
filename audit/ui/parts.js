// What the scripts of several components share; it stands in front of each.
const make = (tag, cls, text) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  if (text) node.textContent = text;
  return node;
};

const makeButton = (cls, text, act) => {
  const node = make("button", cls, text);
  node.type = "button";
  node.onclick = act;
  return node;
};

const pointIn = (node, event) => {
  const box = node.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

function typing(event) {
  const at = event.composedPath()[0];
  if (at.tagName === "INPUT") return !["checkbox", "radio", "button"].includes(at.type);
  return at.isContentEditable || ["TEXTAREA", "SELECT"].includes(at.tagName);
}

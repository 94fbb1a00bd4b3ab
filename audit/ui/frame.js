// Around every page: the key `?` lists the keys, and a page that is opened is one entry to go back to.
const frame = { box: null };

// Dialogues lie outside of the element that has the theme's scheme of colours.
function follow() {
  const app = document.querySelector(".stApp");
  if (app) document.documentElement.style.colorScheme = getComputedStyle(app).colorScheme;
}

// What Streamlit and Vega leave without a role or a name, for those who do not see it.
function name() {
  for (const brush of document.querySelectorAll('[class*="brush_brush"]:not([aria-hidden])')) brush.setAttribute("aria-hidden", "true");
  document.querySelector('ul[data-testid="stSidebarNavItems"]')?.setAttribute("role", "group"); // of lists
  for (const item of document.querySelectorAll('[data-testid="stSidebarNavItems"] li')) {
    const list = item.parentElement;
    if (!["UL", "OL"].includes(list.tagName)) list.setAttribute("role", "list");
  }
}

if (!globalThis.preflightFrame) {
  let due = 0;
  new MutationObserver(() => { due ||= requestAnimationFrame(() => { due = 0; name(); follow(); }); }).observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ["class"] });
  name();
  follow();
  addEventListener("keydown", (event) => {
    const { box } = globalThis.preflightFrame;
    if (event.key !== "?" || typing(event) || !box || !box.isConnected) return;
    if (box.open) box.close();
    else box.showModal();
  });
  // The page that Back asked for, and how often it may be asked for again.
  let wanted = "", left = 0;
  addEventListener("popstate", (event) => { if (event.isTrusted) [wanted, left] = [location.pathname, 3]; }, true);
  for (const act of ["pointerdown", "keydown"]) addEventListener(act, () => { wanted = ""; }, true);
  const push = history.pushState.bind(history);
  history.pushState = (state, unused, url) => {
    const to = new URL(url ?? location.href, location.href);
    // A late word of the page that was left would lead there again: the wanted one is asked for once more.
    if (wanted && to.pathname !== wanted && left-- > 0) {
      dispatchEvent(new PopStateEvent("popstate"));
      return;
    }
    // A page opens without what its link says of it, and says so a moment later: one entry.
    const opening = to.pathname === location.pathname && !location.search;
    if (opening) history.replaceState(state, unused, url);
    else push(state, unused, url);
  };
}
globalThis.preflightFrame = frame;

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".frame");
  root.replaceChildren();
  const box = make("dialog");
  box.setAttribute("aria-label", `Keys of ${data.title}`);
  box.append(make("div", "title", `Keys of ${data.title}`));
  for (const [key, what] of data.keys) {
    const row = make("div", "row");
    row.append(make("kbd", "", key), make("span", "", what));
    box.append(row);
  }
  box.onclick = () => box.close();
  root.append(box);
  frame.box = box;
}

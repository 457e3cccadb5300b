// Where the page is: path and query are the state, so that a link shows the same to everybody.
import { html, signal } from "./html.js";

const BASE = "/console";
const read = () => ({
  path: location.pathname.slice(BASE.length) || "/",
  query: Object.fromEntries(new URLSearchParams(location.search)),
});

export const route = signal(read());
addEventListener("popstate", () => (route.value = read()));

export function href(path, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const parameters = new URLSearchParams(kept).toString();
  return BASE + path + (parameters ? `?${parameters}` : "");
}

export function go(path, query = {}, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", href(path, query));
  route.value = read();
  if (!replace) scrollTo(0, 0);
}

const isPlain = (event) =>
  event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);

export function Link({ to, query, children, ...rest }) {
  const onClick = (event) => {
    if (!isPlain(event)) return;
    event.preventDefault();
    go(to, query);
  };
  return html`<a href=${href(to, query)} onClick=${onClick} ...${rest}>${children}</a>`;
}

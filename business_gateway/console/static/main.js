// The frame: who is signed in, the navigation, and which page is shown.
import { effect, html, render, signal, useEffect } from "./html.js";
import { loadSession, session, signOut } from "./api.js";
import { Confirmation } from "./actions.js";
import { CreateOrder } from "./create.js";
import { language, speak, t } from "./i18n.js";
import { connect, connection, disconnect } from "./live.js";
import { Order } from "./order.js";
import { Orders } from "./orders.js";
import { Applications, Nodes, Schedules, Workflows } from "./platform.js";
import { Callbacks, Queues } from "./queues.js";
import { Link, route } from "./route.js";
import { SignIn } from "./signin.js";
import { Empty, Messages } from "./ui.js";

const PAGES = [
  ["orders", "/", Orders],
  ["nodes", "/nodes", Nodes],
  ["queues", "/queues", Queues],
  ["callbacks", "/callbacks", Callbacks],
  ["workflows", "/workflows", Workflows],
  ["schedules", "/schedules", Schedules],
  ["applications", "/applications", Applications],
];
const theme = signal(document.documentElement.dataset.theme || "auto");

function setTheme(name) {
  theme.value = name;
  if (name === "auto") {
    delete document.documentElement.dataset.theme;
    localStorage.removeItem("tdp.theme");
  } else {
    document.documentElement.dataset.theme = name;
    localStorage.setItem("tdp.theme", name);
  }
}

const LiveMark = () => html`<span class="live ${connection.value}" role="status">
  <span class="live-dot" aria-hidden="true" /><span class="live-text">${t(`live.${connection.value}`)}</span>
</span>`;

const Choices = () => html`
  <select aria-label=${t("menu.language")} value=${language.value} onChange=${(e) => speak(e.target.value)}>
    <option value="en">English</option>
    <option value="zh">中文</option>
  </select>
  <select aria-label=${t("menu.theme")} value=${theme.value} onChange=${(e) => setTheme(e.target.value)}>
    ${["auto", "light", "dark"].map((name) => html`<option key=${name} value=${name}>${t(`theme.${name}`)}</option>`)}
  </select>`;

const roles = () =>
  ["client", "operator"].filter((one) => session.value[one]).map((one) => t(`role.${one}`)).join(" · ");

const Bar = ({ page }) => html`<header class="bar">
  <div class="bar-in">
    <${Link} to="/" class="brand" aria-label=${t("app.title")}>
      <img src="/console/icon.svg" alt="" width="26" height="26" /><span>TDP</span>
    </${Link}>
    <nav aria-label=${t("app.nav")}>
      ${PAGES.map(([name, path]) => html`<${Link} key=${name} to=${path}
        aria-current=${page === name ? "page" : undefined}>${t(`nav.${name}`)}</${Link}>`)}
    </nav>
    <div class="bar-end">
      <${LiveMark} />
      <${Choices} />
      <span class="roles" title=${t("menu.account")}>${roles()}</span>
      <button type="button" class="button quiet" onClick=${signOut}>${t("menu.signout")}</button>
    </div>
  </div>
</header>`;

function found(path) {
  const order = path.match(/^\/orders\/([0-9a-f-]{36})$/);
  if (order) return ["orders", html`<${Order} key=${order[1]} orderId=${order[1]} />`];
  if (path === "/new") return ["orders", html`<${CreateOrder} />`];
  const page = PAGES.find(([, where]) => where === path);
  if (page) return [page[0], html`<${page[2]} />`];
  return ["", html`<${Empty} title=${t("notfound.title")}><${Link} to="/" class="button">${t("notfound.back")}</${Link}></${Empty}>`];
}

function App() {
  const who = session.value;
  const signedIn = Boolean(who);
  useEffect(() => {
    if (!signedIn) return undefined;
    connect();
    return disconnect;
  }, [signedIn]);
  if (who === undefined) return null;
  if (who === null)
    return html`<div class="signin-top"><${Choices} /></div><main id="content"><${SignIn} /></main><${Messages} />`;
  const [name, page] = found(route.value.path);
  return html`
    <a class="skip" href="#content">${t("app.skip")}</a>
    <${Bar} page=${name} />
    <main id="content" tabindex="-1">${page}</main>
    <${Confirmation} />
    <${Messages} />`;
}

effect(() => {
  const page = PAGES.find(([, where]) => where === route.value.path);
  document.title = `${page ? `${t(`nav.${page[0]}`)} · ` : ""}TDP`;
});
loadSession();
render(html`<${App} />`, document.getElementById("app"));

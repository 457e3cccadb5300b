// All orders, newest first. The filter is in the URL; rows stay where they are while they change.
import { html, useEffect, useRef, useState } from "./html.js";
import { call, get, session } from "./api.js";
import { duration, t, word } from "./i18n.js";
import { useLive } from "./live.js";
import { useResource } from "./resource.js";
import { go, Link, route } from "./route.js";
import { Ago, Badge, Empty, Id, now, Page, Progress, Shown } from "./ui.js";

const STATUSES = ["SUBMITTING", "PROCESSING", "COMPLETED", "NEEDS_ATTENTION", "CANCELING", "CANCELED"];
const UNDER_WAY = new Set(["SUBMITTING", "PROCESSING", "CANCELING"]);
const WAITING_MAX = 50;

export const isUnderWay = (order) => UNDER_WAY.has(order.status);

export function Orders() {
  const status = STATUSES.includes(route.value.query.status) ? route.value.query.status : "";
  return html`
    <${Page} title=${t("orders.title")} tools=${session.value.client &&
      html`<${Link} to="/new" class="button primary">${t("nav.create")}</${Link}>`}>
      <${Filter} status=${status} />
      <${List} key=${status} status=${status} />
    </${Page}>`;
}

const Filter = ({ status }) => html`<nav class="chips" aria-label=${t("orders.filter")}>
  ${["", ...STATUSES].map((one) => html`<${Link} key=${one} to="/" query=${{ status: one }} class="chip"
    aria-current=${one === status ? "true" : undefined}>${one ? word("status", one) : t("orders.all")}</${Link}>`)}
</nav>`;

function List({ status }) {
  const [added, setAdded] = useState([]);
  const pages = useRef(1);
  const load = async () => {
    let [orders, cursor] = [[], ""];
    // As many pages as are shown, so that a reconnection leaves the reader where they were.
    for (let page = 0; page < pages.current; page += 1) {
      const found = await get("/api/v1/orders", { status, cursor });
      orders = orders.concat(found.orders);
      cursor = found.next_cursor;
      if (!cursor) break;
    }
    setAdded([]);
    return { orders, cursor };
  };
  const resource = useResource(load, [status], (event) => event.kind === "hello" || event.kind === "many");
  const { data, change } = resource;

  useLive((event) => {
    if (event.kind !== "order" || !data) return;
    const { order } = event;
    const place = data.orders.findIndex((one) => one.order_id === order.order_id);
    if (place >= 0) {
      if (data.orders[place].version < order.version)
        change((old) => ({ ...old, orders: old.orders.map((one, at) => (at === place ? order : one)) }));
    } else if (!status || order.status === status) {
      const isNew = !data.orders.length || order.order_id > data.orders[0].order_id;
      if (isNew) setAdded((old) => [order, ...old.filter((one) => one.order_id !== order.order_id)]);
    }
  });
  useEffect(() => {
    // Into an empty list, or under a reader at its top, they may come without asking.
    if (!added.length || !data || (data.orders.length && scrollY > 40)) return;
    showAdded();
  }, [added, data]);
  const showAdded = () => {
    change((old) => ({ ...old, orders: [...added, ...old.orders] }));
    setAdded([]);
  };
  const more = async () => {
    const found = await get("/api/v1/orders", { status, cursor: data.cursor });
    pages.current += 1;
    change((old) => ({ orders: old.orders.concat(found.orders), cursor: found.next_cursor }));
  };
  const waiting = useWaiting(data?.orders);

  return html`<${Shown} resource=${resource} rows=${8} isEmpty=${(it) => !it.orders.length}
    empty=${html`<section class="card"><${Empty} title=${t(status ? "orders.empty.filtered" : "orders.empty")}
      lead=${status ? "" : t("orders.empty.lead")}>
      ${!status && session.value.client && html`<${Link} to="/new" class="button primary">${t("nav.create")}</${Link}>`}
    </${Empty}></section>`}>
    ${(it) => html`
      ${added.length > 0 && html`<button type="button" class="button new-orders" onClick=${showAdded}>
        ${t("orders.new", { count: added.length })}</button>`}
      <section class="card flush">
        <table class="orders">
          <thead><tr>
            <th scope="col">${t("orders.name")}</th><th scope="col">${t("orders.status")}</th>
            <th scope="col" class="col-progress">${t("orders.progress")}</th>
            <th scope="col" class="col-when">${t("orders.created")}</th>
            <th scope="col" class="col-took number">${t("orders.took")}</th>
            <th scope="col" class="col-id">${t("orders.id")}</th>
          </tr></thead>
          <tbody>${it.orders.map((order) => html`<${Row} key=${order.order_id} order=${order}
            waiting=${waiting[order.task_id]} />`)}</tbody>
        </table>
      </section>
      ${it.cursor && html`<div class="after"><button type="button" class="button" onClick=${more}>${t("more")}</button></div>`}
    `}
  </${Shown}>`;
}

/** What the executions of orders under way wait for, by task. */
function useWaiting(orders) {
  const asked = (orders || []).filter((one) => one.task_id && isUnderWay(one)).slice(0, WAITING_MAX);
  const ids = asked.map((one) => one.task_id);
  const load = async () => (ids.length ? call("POST", "/console/api/waiting", { body: { task_ids: ids } }) : {});
  const { data } = useResource(load, [ids.join()], (event) => event.kind === "tick" && ids.length > 0);
  return data || {};
}

function Row({ order, waiting }) {
  const path = `/orders/${order.order_id}`;
  const under = isUnderWay(order);
  const ended = order.completed_at ? new Date(order.completed_at) : now.value;
  const sub = under ? waiting?.waiting_for : order.status === "NEEDS_ATTENTION" ? order.diagnosis : "";
  const onClick = (event) => !event.target.closest("a,button") && !getSelection().toString() && go(path);
  return html`<tr onClick=${onClick} class="clickable">
    <td class="col-name"><${Link} to=${path} class="row-link">${order.name}</${Link}>
      <span class="sub">${word("mode", order.processing_mode)}${order.watermark_text && ` · ${order.watermark_text}`}${order.run > 1 && ` · ${t("order.run", { run: order.run })}`}</span></td>
    <td class="col-status"><${Badge} kind="status" name=${order.status} />
      ${sub && html`<span class="sub clip" title=${sub}>${sub}</span>`}</td>
    <td class="col-progress">${under || order.status === "COMPLETED"
      ? html`<${Progress} value=${order.progress_percent} label=${t("orders.progress")} tone=${under ? "run" : "good"} />`
      : null}</td>
    <td class="col-when"><${Ago} at=${order.created_at} /></td>
    <td class="col-took number">${duration(ended - new Date(order.created_at))}</td>
    <td class="col-id"><${Id} value=${order.order_id} label="" /></td>
  </tr>`;
}

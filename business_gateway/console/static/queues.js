// What waits to be told, what was given up, what was heard, and whether the books balance.
import { html, useState } from "./html.js";
import { get, rpc, session } from "./api.js";
import { ask } from "./actions.js";
import { bare } from "./facts.js";
import { ago, count, t } from "./i18n.js";
import { onTick, useResource } from "./resource.js";
import { Link } from "./route.js";
import { Ago, Badge, Card, Empty, Id, now, Page, Shown, shortId, Table } from "./ui.js";

export function Queues() {
  const queues = useResource(() => get("/console/api/queues"), [], onTick);
  return html`<${Page} title=${t("queues.title")}>
    <${Card} id="commands" title=${t("queues.commands")} lead=${t("queues.commands.lead")}>
      <${Shown} resource=${queues} rows=${1} isEmpty=${(data) => !data.commands.length}
        empty=${html`<p class="all-clear">${t("queues.clear")}</p>`}>
        ${(data) => html`<dl class="figures">${data.commands.map((one) => html`<div key=${one.status}>
          <dt><${Badge} kind="outbox" name=${one.status} /></dt><dd>${count(one.command_count)}</dd>
          <dd class="sub">${t("queues.oldest", { ago: ago(new Date(one.oldest_at), now.value) })}</dd></div>`)}</dl>`}
      </${Shown}>
    </${Card}>
    <${Card} id="dead" title=${t("queues.dead")} flush>
      <${Shown} resource=${queues} rows=${1} isEmpty=${(data) => !data.dead.length} empty=${html`<p class="all-clear pad">${t("queues.dead.none")}</p>`}>
        ${(data) => html`<${Table} label=${t("queues.dead")} numbers=${[2]} columns=${["kind", "status", "attempts", "error"].map((one) => t(`queues.${one}`)).concat(t("orders.created"))}>
          ${data.dead.map((one) => html`<tr key=${one.command_id}>
            <td class="nowrap"><${Link} to=${`/orders/${one.order_id}`}>${one.kind} · ${shortId(one.order_id)}</${Link}></td>
            <td><${Badge} kind="outbox" name=${one.status} /></td><td class="number">${one.attempts}</td>
            <td>${one.last_error}</td><td class="nowrap"><${Ago} at=${one.created_at} /></td></tr>`)}
        </${Table}>`}
      </${Shown}>
    </${Card}>
    ${session.value.operator && html`<${Conservation} />`}
  </${Page}>`;
}

function Conservation() {
  const resource = useResource(() => rpc("SystemService/GetConservation"), [], (event) => event.kind === "hello");
  return html`<${Card} id="conservation" title=${t("queues.conservation")} lead=${t("queues.conservation.lead")}
    tools=${html`<button type="button" class="button small" onClick=${resource.reload}>${t("refresh")}</button>`}>
    <${Shown} resource=${resource} rows=${3}>
      ${(data) => html`
        <p class=${data.balanced ? "all-clear" : "problem"}>${t(data.balanced ? "queues.balanced" : "queues.unbalanced")}</p>
        <ul class="balance">${data.lines.map((one) => html`<li key=${one.key || one.name} class=${one.left_count === one.right_count && !one.differing_ids.length ? "" : "off"} title=${one.meaning}>
          <span>${one.name}</span><span class="number">${count(one.left_count)} = ${count(one.right_count)}</span>
          ${one.differing_ids.length > 0 && html`<span class="sub">${one.differing_ids.map(shortId).join(", ")}</span>`}</li>`)}</ul>`}
    </${Shown}>
  </${Card}>`;
}

export const Callbacks = () => html`<${Page} title=${t("callbacks.title")}>
  ${session.value.operator && html`<${Undelivered} />`}
  <${Received} />
</${Page}>`;

/** What the control plane has not delivered, to whichever application. */
function Undelivered() {
  const resource = useResource(() => rpc("TaskService/ListCallbacks", { page_size: 100 }), [], onTick);
  const redeliver = (one) => ask({
    act: "redeliver", reasoned: false, label: t("callbacks.redeliver"), method: "TaskService/RedeliverCallbacks", after: resource.reload,
    body: (_reason, key) => ({ idempotency_key: key, execution_id: one.execution_id }),
  });
  const columns = [t("callbacks.event"), t("callbacks.sequence"), t("queues.status"), t("callbacks.tries"), t("callbacks.answer"), t("callbacks.next"), ""];
  const rowOf = (one) => {
    const status = bare(one.status, "CALLBACK_STATUS_");
    return html`<tr key=${one.callback_id}>
      <td>${one.event_type}<span class="sub"><${Id} label=${t("order.id.execution")} value=${one.execution_id} /></span></td>
      <td class="number">${one.sequence}</td>
      <td><${Badge} kind="delivery" name=${status} /></td>
      <td class="number">${one.attempt_count}</td>
      <td>${one.last_error}</td>
      <td class="nowrap">${one.next_try_time ? html`<${Ago} at=${one.next_try_time} />` : "–"}</td>
      <td class="row-acts">${["DEAD", "QUARANTINED"].includes(status) &&
        html`<button type="button" class="button small" onClick=${() => redeliver(one)}>${t("callbacks.redeliver")}</button>`}</td>
    </tr>`;
  };
  return html`<${Card} id="undelivered" title=${t("callbacks.open")} lead=${t("callbacks.open.lead")} flush>
    <${Shown} resource=${resource} rows=${1} isEmpty=${(data) => !data.callbacks.length} empty=${html`<p class="all-clear pad">${t("callbacks.open.none")}</p>`}>
      ${(data) => html`<${Table} label=${t("callbacks.open")} columns=${columns} numbers=${[1, 3]}>${data.callbacks.map(rowOf)}</${Table}>`}
    </${Shown}>
  </${Card}>`;
}

/** What the gateway accepted. */
function Received() {
  const [older, setOlder] = useState({ rows: [], next: null });
  const resource = useResource(() => get("/console/api/callbacks"), [], (event) => event.kind !== "tick");
  const next = older.next ?? resource.data?.next_before;
  const more = async () => {
    const found = await get("/console/api/callbacks", { before: next });
    setOlder((old) => ({ rows: old.rows.concat(found.callbacks), next: found.next_before }));
  };
  const columns = ["event", "sequence", "effect", "source", "arrivals", "received"].map((one) => t(`callbacks.${one}`));
  const seen = new Set();
  const unique = (row) => !seen.has(row.event_id) && seen.add(row.event_id);
  return html`
    <${Card} id="received" title=${t("callbacks.received.title")} lead=${t("callbacks.lead")} flush>
      <${Shown} resource=${resource} rows=${6} isEmpty=${(data) => !data.callbacks.length} empty=${html`<${Empty} title=${t("callbacks.none")} />`}>
        ${(data) => html`<${Table} label=${t("callbacks.received.title")} columns=${columns} numbers=${[1, 4]}>
          ${data.callbacks.concat(older.rows).filter(unique).map((one) => html`<tr key=${one.event_id}>
            <td><${Link} to=${`/orders/${one.order_id}`}>${one.type}</${Link}><span class="sub"><${Id} value=${one.event_id} /></span></td>
            <td class="number">${one.run}.${one.sequence}</td>
            <td><${Badge} kind="effect" name=${one.effect} /></td>
            <td>${t(`source.${one.source}`)}</td>
            <td class="number">${one.arrivals}</td>
            <td class="nowrap"><${Ago} at=${one.received_at} /></td>
          </tr>`)}
        </${Table}>`}
      </${Shown}>
    </${Card}>
    ${next && html`<div class="after"><button type="button" class="button" onClick=${more}>${t("more")}</button></div>`}`;
}

// One order: where it stands, its journey hop by hop, its graph, events and results.
import { html, useState } from "./html.js";
import { get, session } from "./api.js";
import { ask, curl } from "./actions.js";
import { Banner } from "./banner.js";
import { Events } from "./events.js";
import { Graph } from "./graph.js";
import { t, word } from "./i18n.js";
import { Journey } from "./journey.js";
import { isUnderWay } from "./orders.js";
import { useResource } from "./resource.js";
import { Results } from "./results.js";
import { Link } from "./route.js";
import { Ago, Badge, Card, copyText, Id, Progress, Shown } from "./ui.js";

export function Order({ orderId }) {
  const [step, setStep] = useState("");
  const path = `/api/v1/orders/${orderId}`;
  const load = async () => {
    const [order, ladder, platform] = await Promise.all([
      get(path), get(`${path}/evidence`), get(`/console/api/orders/${orderId}/platform`),
    ]);
    return { order, ladder, platform, loadedAt: Date.now() };
  };
  const concerns = (event) => event.kind !== "order" || event.order.order_id === orderId;
  const isLive = (data) => !data || isUnderWay(data.order) || Date.now() - data.loadedAt > 30_000;
  const resource = useResource(load, [orderId], (event) =>
    concerns(event) && (event.kind !== "tick" || isLive(resource.data)));
  return html`
    <p class="crumb"><${Link} to="/">← ${t("order.back")}</${Link}></p>
    <${Shown} resource=${resource} rows=${6}>
      ${(data) => html`
        <${Head} data=${data} reload=${resource.reload} />
        <${Banner} ...${data} />
        <${Card} id="journey" title=${t("journey.title")} lead=${html`<${Legend} />`}>
          <${Journey} ...${data} />
        </${Card}>
        <${Card} id="graph" title=${t("graph.title")} lead=${data.platform.known ? t("graph.lead") : ""}>
          <${Graph} ...${data} step=${step} choose=${setStep} reload=${resource.reload} />
        </${Card}>
        <${Results} order=${data.order} />
        <${Events} ...${data} step=${step} choose=${setStep} />
      `}
    </${Shown}>`;
}

function Head({ data, reload }) {
  const { order, platform } = data;
  return html`<div class="order-head">
    <div class="order-title">
      <h1>${order.name}</h1>
      <${Badge} kind="status" name=${order.status} />
      ${order.run > 1 && html`<span class="badge calm">${t("order.run", { run: order.run })}</span>`}
      <div class="tools"><${Acts} order=${order} platform=${platform} reload=${reload} /></div>
    </div>
    <p class="order-facts">
      <span>${word("mode", order.processing_mode)}${order.watermark_text && ` · “${order.watermark_text}”`}</span>
      <span>${t("orders.created")} <${Ago} at=${order.created_at} /></span>
      <span class="ids">
        <${Id} label=${t("order.id.order")} value=${order.order_id} />
        <${Id} label=${t("order.id.task")} value=${order.task_id} />
        <${Id} label=${t("order.id.execution")} value=${order.execution_id} />
        <${Id} label=${t("order.id.asset")} value=${order.source_asset_id} />
      </span>
    </p>
    ${isUnderWay(order) && html`<${Progress} value=${order.progress_percent} label=${t("orders.progress")} />`}
  </div>`;
}

function Acts({ order, platform, reload }) {
  const under = isUnderWay(order);
  const path = `/api/v1/orders/${order.order_id}`;
  const { client, operator } = session.value;
  const act = (name, danger) => ask({
    act: name, label: t(`order.${name}`), danger, after: reload,
    rest: { method: "POST", path: `${path}/${name}` }, body: (reason) => ({ reason }),
  });
  const execution = platform.task?.current_execution;
  const steer = (name, method) => ask({
    act: name, name: order.name, label: t(`order.${name}`), method: `TaskService/${method}`, after: reload,
    body: (reason, key) => ({ idempotency_key: key, execution_id: execution.execution_id, reason }),
  });
  return html`
    ${operator && under && execution && (execution.paused
      ? html`<button type="button" class="button" onClick=${() => steer("resume", "ResumeExecution")}>${t("order.resume")}</button>`
      : html`<button type="button" class="button" onClick=${() => steer("pause", "PauseExecution")}>${t("order.pause")}</button>`)}
    ${client && under && order.status !== "CANCELING" &&
      html`<button type="button" class="button" onClick=${() => act("cancel", true)}>${t("order.cancel")}</button>`}
    ${client && !under && order.run > 0 &&
      html`<button type="button" class="button" onClick=${() => act("rerun")}>${t("order.rerun")}</button>`}
    <button type="button" class="button quiet" onClick=${() => copyText(curl("GET", path))}>${t("order.copyCurl")}</button>`;
}

const Legend = () => html`<span class="legend">
  <span><i class="key active" aria-hidden="true" />${t("journey.legend.active")}</span>
  <span><i class="key waiting" aria-hidden="true" />${t("journey.legend.waiting")}</span>
  <span><i class="key commit" aria-hidden="true" />${t("journey.legend.commit")}</span>
</span>`;



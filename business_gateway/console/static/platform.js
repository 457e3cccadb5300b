// What an operator looks after: nodes, workflows, schedules, applications. Asked in their own name.
import { html, useState } from "./html.js";
import { rpc, session } from "./api.js";
import { ask } from "./actions.js";
import { bare } from "./facts.js";
import { count, t, word } from "./i18n.js";
import { onTick, useResource } from "./resource.js";
import { OperatorNeeded } from "./signin.js";
import { Ago, Badge, Empty, Id, Page, Shown, Table } from "./ui.js";

const TICKS_MAX_PAGES = 20;

async function all(method, field, body = {}) {
  let [rows, token] = [[], ""];
  for (let page = 0; page < TICKS_MAX_PAGES; page += 1) {
    const found = await rpc(method, { page_size: 200, page_token: token, ...body });
    rows = rows.concat(found[field]);
    token = found.next_page_token;
    if (!token) break;
  }
  return rows;
}

/** A page that needs an operator's key: a table of all rows of one list. */
function ListPage({ title, empty, columns, numbers, method, field, row, lead }) {
  if (!session.value.operator) return html`<${Page} title=${title}><${OperatorNeeded} /></${Page}>`;
  return html`<${Page} title=${title} lead=${lead}><${Rows} ...${{ title, empty, columns, numbers, method, field, row }} /></${Page}>`;
}

function Rows({ title, empty, columns, numbers, method, field, row }) {
  const resource = useResource(() => all(method, field), [method], onTick);
  return html`<section class="card flush">
    <${Shown} resource=${resource} rows=${4} isEmpty=${(data) => !data.length} empty=${html`<${Empty} title=${empty} />`}>
      ${(data) => html`<${Table} label=${title} columns=${columns} numbers=${numbers}>${data.map((one) => row(one, resource.reload))}</${Table}>`}
    </${Shown}>
  </section>`;
}

export const Nodes = () => html`<${ListPage} title=${t("nodes.title")} empty=${t("nodes.none")}
  method="NodeAdminService/ListNodes" field="nodes" row=${nodeRow}
  numbers=${[5]} columns=${["name", "state", "heard", "slots", "capabilities", "commands", "version"].map((one) => t(`nodes.${one}`)).concat("")} />`;

function nodeRow(node, reload) {
  const management = bare(node.management, "NODE_MANAGEMENT_");
  const runtime = bare(node.runtime, "NODE_RUNTIME_");
  const act = (name, method) => ask({
    act: name, name: node.name, label: t(`nodes.${name}`), danger: name === "drain", method: `NodeAdminService/${method}`, after: reload,
    body: (reason, key) => ({ idempotency_key: key, node_id: node.node_id, reason }),
  });
  return html`<tr key=${node.node_id}>
    <td><strong>${node.name}</strong>${node.group && html`<span class="sub">${node.group}</span>`}<span class="sub"><${Id} value=${node.node_id} /></span></td>
    <td class="nowrap"><${Badge} kind="runtime" name=${runtime} />
      ${management !== "ACTIVE" && html` <${Badge} kind="management" name=${management} />`}
      ${management !== "ACTIVE" && node.management_reason && html`<span class="sub clip">${node.management_reason} · ${node.managed_by}</span>`}</td>
    <td class="nowrap">${node.last_seen_time ? html`<${Ago} at=${node.last_seen_time} />` : t("nodes.never")}</td>
    <td><${Slots} used=${node.running_count} total=${node.slot_count} /></td>
    <td class="capabilities">${node.capabilities.map((one) => html`<span key=${one.name + one.version} class="tag ${one.refusal ? "refused" : ""}"
      title=${one.refusal || ""}>${one.name} <b>${one.version}</b></span>`)}</td>
    <td class="number">${count(node.unacked_command_count)}</td>
    <td class="nowrap"><code>${node.agent_version}</code></td>
    <td class="row-acts nowrap">${management === "ACTIVE"
      ? html`<button type="button" class="button small" onClick=${() => act("cordon", "CordonNode")}>${t("nodes.cordon")}</button>
          <button type="button" class="button small" onClick=${() => act("drain", "DrainNode")}>${t("nodes.drain")}</button>`
      : html`<button type="button" class="button small" onClick=${() => act("uncordon", "UncordonNode")}>${t("nodes.uncordon")}</button>`}</td>
  </tr>`;
}

const Slots = ({ used, total }) => html`<span class="slots" role="img" aria-label=${`${used} / ${total}`}>
  ${total <= 16 && Array.from({ length: total }, (_, slot) => html`<i key=${slot} class=${slot < used ? "used" : ""}></i>`)}
  <b>${`${used} / ${total}`}</b></span>`;

export const Workflows = () => html`<${ListPage} title=${t("workflows.title")} empty=${t("workflows.none")}
  method="WorkflowService/ListWorkflows" field="workflows" row=${(one) => html`<${WorkflowRow} key=${one.digest + one.version} workflow=${one} />`}
  columns=${["name", "version", "published", "digest"].map((one) => t(`workflows.${one}`)).concat("")} />`;

function WorkflowRow({ workflow }) {
  const [definition, setDefinition] = useState("");
  const show = async () => {
    if (definition) return setDefinition("");
    const { name, version } = workflow;
    const found = await rpc("WorkflowService/GetWorkflow", { name, version });
    return setDefinition(JSON.stringify(JSON.parse(found.workflow.definition_json), null, 2));
  };
  return html`<tr>
      <td><strong>${workflow.name}</strong>${workflow.deprecate_time && html` <span class="badge wait">${t("workflows.deprecated")}</span>`}</td>
      <td><code>${workflow.version}</code></td>
      <td class="nowrap"><${Ago} at=${workflow.publish_time} /></td>
      <td><${Id} value=${workflow.digest} /></td>
      <td class="row-acts"><button type="button" class="button small" aria-expanded=${Boolean(definition)} onClick=${show}>${t("workflows.definition")}</button></td>
    </tr>
    ${definition && html`<tr><td colspan="5"><pre class="code" tabindex="0">${definition}</pre></td></tr>`}`;
}

export const Applications = () => html`<${ListPage} title=${t("applications.title")} empty=${t("applications.none")}
  method="ApplicationService/ListApplications" field="applications" row=${applicationRow}
  columns=${["name", "callback", "provider", "created"].map((one) => t(`applications.${one}`))} />`;

const applicationRow = (one) => html`<tr key=${one.application_id}>
  <td><strong>${one.name}</strong>${one.disabled && html` <span class="badge bad">${t("applications.disabled")}</span>`}
    <span class="sub"><${Id} value=${one.application_id} /></span></td>
  <td><code>${one.callback_url || t("none")}</code>${one.callback_disabled && html` <span class="badge bad">${t("applications.callback.disabled")}</span>`}</td>
  <td><code>${one.resource_provider_url || t("none")}</code></td>
  <td class="nowrap"><${Ago} at=${one.create_time} /></td>
</tr>`;

export const Schedules = () => html`<${ListPage} title=${t("schedules.title")} empty=${t("schedules.none")}
  method="ScheduleService/ListSchedules" field="schedules" row=${scheduleRow}
  columns=${["name", "cron", "next", "last", "workflow"].map((one) => t(`schedules.${one}`)).concat("")} />`;

function scheduleRow(one, reload) {
  const act = (name, method, reasoned = false) => ask({
    act: name, name: one.name, label: t(`schedules.${name}`), reasoned, method: `ScheduleService/${method}`, after: reload,
    body: (reason, key) => ({ idempotency_key: key, schedule_id: one.schedule_id, ...(reasoned && { reason }) }),
  });
  const last = one.last_run;
  return html`<tr key=${one.schedule_id}>
    <td><strong>${one.name}</strong>${one.paused && html` <span class="badge wait" title=${one.pause_reason}>${t("schedules.paused")}</span>`}
      <span class="sub"><${Id} value=${one.schedule_id} /></span></td>
    <td><code>${one.spec.cron}</code><span class="sub">${one.spec.time_zone || "UTC"}</span></td>
    <td class="nowrap">${one.next_time ? html`<${Ago} at=${one.next_time} />` : "–"}</td>
    <td class="nowrap">${last ? html`<${Ago} at=${last.due_time} /><span class="sub">${word("run", bare(last.status, "SCHEDULE_RUN_STATUS_"))}</span>` : "–"}</td>
    <td>${one.spec.task.workflow_name} <code>${one.spec.task.workflow_version}</code></td>
    <td class="row-acts nowrap">${one.paused
      ? html`<button type="button" class="button small" onClick=${() => act("resume", "ResumeSchedule")}>${t("schedules.resume")}</button>`
      : html`<button type="button" class="button small" onClick=${() => act("pause", "PauseSchedule", true)}>${t("schedules.pause")}</button>`}
      <button type="button" class="button small" onClick=${() => act("trigger", "TriggerSchedule")}>${t("schedules.trigger")}</button></td>
  </tr>`;
}

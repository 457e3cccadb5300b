// The workflow as a graph: laid out by dagre, drawn by hand. A step is chosen to filter the events.
import { html, useMemo, useState } from "./html.js";
import { Graph as Net, layout } from "dagre";
import { rpc, session } from "./api.js";
import { ask } from "./actions.js";
import { at, stepsByKey } from "./facts.js";
import { duration, t, word } from "./i18n.js";
import { Dialog, now } from "./ui.js";

const WIDTH = 188;
const HEIGHT = 56;

export function Graph({ order, platform, step, choose, reload }) {
  if (!platform.known) return html`<p class="lead">${platform.problem || t("graph.unavailable")}</p>`;
  const steps = stepsByKey(platform);
  const place = useMemo(() => placed(steps), [platform.workflow.digest]);
  const chosen = steps.find((one) => one.key === step);
  return html`
    <div class="graph" role="group" aria-label=${t("graph.title")}>
      <svg width=${place.width} height=${place.height} viewBox=${`0 0 ${place.width} ${place.height}`}>
        <g aria-hidden="true">${place.edges.map((edge) => html`<path key=${edge.id} class="edge" d=${edge.path} />`)}</g>
        ${steps.map((one) => html`<${Node} key=${one.key} step=${one} place=${place.nodes[one.key]}
          chosen=${step === one.key} choose=${choose} />`)}
      </svg>
    </div>
    ${chosen && html`<${StepActs} step=${chosen} order=${order} platform=${platform} reload=${reload} choose=${choose} />`}`;
}

function placed(steps) {
  const net = new Net();
  net.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 46, marginx: 3, marginy: 3 });
  net.setDefaultEdgeLabel(() => ({}));
  for (const step of steps) net.setNode(step.key, { width: WIDTH, height: HEIGHT });
  for (const step of steps) for (const before of step.depends_on || []) net.setEdge(before, step.key);
  layout(net);
  const { width, height } = net.graph();
  return {
    width, height,
    nodes: Object.fromEntries(net.nodes().map((key) => [key, net.node(key)])),
    edges: net.edges().map((edge) => ({ id: `${edge.v} ${edge.w}`, path: curve(net.edge(edge).points) })),
  };
}

/** A line through the points that leaves and arrives level. */
function curve(points) {
  const [first, ...rest] = points;
  let before = first;
  return rest.reduce((path, point) => {
    const middle = (before.x + point.x) / 2;
    const part = `C${middle},${before.y} ${middle},${point.y} ${point.x},${point.y}`;
    before = point;
    return path + part;
  }, `M${first.x},${first.y}`);
}

function Node({ step, place, chosen, choose }) {
  const pick = () => choose(chosen ? "" : step.key);
  const onKeyDown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    pick();
  };
  const started = at(step.own?.start_time);
  const ended = at(step.own?.complete_time) ?? (step.status === "RUNNING" ? now.value : null);
  const took = started && ended ? duration(ended - started) : "";
  const tries = step.attempts.length > 1 ? t("graph.tries", { count: step.attempts.length }) : "";
  const items = step.items.length ? ` ×${step.items.length}` : "";
  const facts = [word("step", step.status), took, tries].filter(Boolean).join(" · ");
  return html`<g class="node ${step.status} ${chosen ? "chosen" : ""}" role="button" tabindex="0" aria-pressed=${chosen}
    aria-label=${`${step.key}${items}: ${facts}`} onClick=${pick} onKeyDown=${onKeyDown}
    transform=${`translate(${place.x - WIDTH / 2},${place.y - HEIGHT / 2})`}>
    <rect width=${WIDTH} height=${HEIGHT} rx="9" />
    <circle class="node-dot" cx="17" cy="20" r="4.5" />
    <text x="30" y="24.5" class="node-name">${clip(step.key + items, 21)}</text>
    <text x="30" y="43" class="node-facts">${clip(facts, 27)}</text>
  </g>`;
}

const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** Why a step is on no node yet, node by node; asked for, since the answer is costly. */
function Explanation({ execution, step }) {
  const [found, setFound] = useState(null);
  const show = async () => {
    const body = { execution_id: execution.execution_id, step_key: step.key, item_index: step.own.item_index };
    try {
      setFound(await rpc("TaskService/ExplainScheduling", body));
    } catch (error) {
      setFound({ summary: error.message, nodes: [] });
    }
  };
  return html`<button type="button" class="button" onClick=${show}>${t("graph.explain")}</button>
    ${found && html`<${Dialog} title=${t("graph.explain.title", { name: step.key })} onClose=${() => setFound(null)}
      footer=${html`<span class="spring" /><button type="button" class="button" onClick=${() => setFound(null)}>${t("close")}</button>`}>
      <p>${found.summary}</p>
      <ul class="balance">${found.nodes.map((one) => html`<li key=${one.node_id}><span>${one.node_name}</span>
        <span class="sub">${one.qualified ? t("graph.explain.fits") : one.reasons.join("; ")}</span></li>`)}</ul>
    </${Dialog}>`}`;
}

function StepActs({ step, order, platform, reload, choose }) {
  const execution = platform.task.current_execution;
  const own = step.own;
  const act = (name, method, more = {}, danger = false) => ask({
    act: name, name: step.key, label: t(`graph.${name}`), danger, after: reload, method: `TaskService/${method}`,
    body: (reason, key) => ({ idempotency_key: key, execution_id: execution.execution_id, step_key: step.key, item_index: -1, reason, ...more }),
  });
  const retry = () => ask({
    act: "retry", name: step.key, label: t("graph.retry"), after: reload, method: "TaskService/RerunTask",
    body: (reason, key) => ({
      idempotency_key: key, task_id: order.task_id, run: execution.run, mode: "RERUN_MODE_FROM_STEP", step_key: step.key, reason,
    }),
  });
  const mayAct = session.value.operator && own;
  const isOver = Boolean(execution.complete_time);
  return html`<div class="step-acts">
    <p><strong>${step.key}</strong> <span class="sub">${step.capability ? `${step.capability} ${step.capability_version || ""}` : step.kind}</span>
      ${own?.waiting_for && html` <span>${own.waiting_for}</span>`}
      ${own?.failure?.message && html` <span class="bad-text">${own.failure.reason}: ${own.failure.message}</span>`}</p>
    <div class="tools">
      ${mayAct && step.status === "WAITING" && html`
        <button type="button" class="button primary" onClick=${() => act("approve", "SignalStep", { approved: true })}>${t("graph.approve")}</button>
        <button type="button" class="button" onClick=${() => act("reject", "SignalStep", { approved: false }, true)}>${t("graph.reject")}</button>`}
      ${mayAct && ["PENDING", "READY", "WAITING"].includes(step.status) && !isOver &&
        html`<button type="button" class="button" onClick=${() => act("skip", "SkipStep", {}, true)}>${t("graph.skip")}</button>`}
      ${mayAct && step.status === "READY" && html`<${Explanation} execution=${execution} step=${step} />`}
      ${mayAct && isOver && html`<button type="button" class="button" onClick=${retry}>${t("graph.retry")}</button>`}
      <button type="button" class="button quiet" onClick=${() => choose("")}>${t("graph.all")}</button>
    </div>
  </div>`;
}

// Everything that happened to an order, from all who keep a record, with where each record is.
import { html, useState } from "./html.js";
import { at, bare } from "./facts.js";
import { clock, duration, fullTime, t, word } from "./i18n.js";
import { Card, shortId, Table } from "./ui.js";

const BAD = /fail|lost|dead|timed_out|refused|quarantin|rejected|attention/i;
const HOPS = [
  [/^attempt\.(dispatched)/, 5], [/^attempt\.(accepted)/, 6], [/^attempt\.(started|running|progress)/, 7],
  [/^attempt\./, 8], [/^result\./, 8], [/^step\./, 4], [/^callback/, 9], [/^execution\.created/, 2],
];

const hopOf = (type) => HOPS.find(([form]) => form.test(type))?.[1] ?? 4;

function recordsOf({ order, ladder, platform }) {
  const records = [];
  for (const one of platform.changes)
    records.push({
      ms: at(one.occurred_at), hop: one.version === 1 ? 1 : one.event_id ? 10 : 1, type: one.kind,
      what: `${one.kind.toLowerCase().replaceAll("_", " ")}: ${word("status", one.status)}${one.progress_percent ? ` ${one.progress_percent} %` : ""}`,
      where: `gateway pg order_changes#${one.version}`, by: "gateway", step: "",
    });
  for (const one of platform.events || [])
    records.push({
      ms: at(one.occur_time), hop: one.sequence === "1" ? 2 : 9, type: one.type,
      what: `${one.type}${one.type.endsWith("progress") ? ` ${one.progress_percent} %` : ""}`,
      where: `control pg execution_events#${one.sequence}`, by: "control plane", step: "",
    });
  for (const one of platform.timeline || [])
    records.push({
      ms: at(one.occur_time), hop: hopOf(one.type), type: one.type, what: `${one.type}${detail(one)}`,
      where: `control pg timeline#${one.entry_id}`, by: actor(one.actor), step: one.step_key,
    });
  for (const one of platform.attempts || []) records.push(...attemptRecords(one));
  for (const rung of ladder.rungs)
    for (const one of rung.disturbances)
      records.push({
        ms: at(one.occurred_at) ?? at(rung.durable_at) ?? at(order.updated_at), hop: rung.hop, type: one.kind, what: `${one.kind}: ${one.description}`,
        where: `${rung.store} ${rung.location}`, by: rung.actor, step: "", bad: one.kind !== "replayed" && one.kind !== "deduplicated",
      });
  return records.filter((one) => one.ms != null).sort((a, b) => a.ms - b.ms || a.hop - b.hop);
}

function attemptRecords(one) {
  const common = { step: one.step_key, by: `node ${shortId(one.node_id)}` };
  const records = [];
  if (one.accept_time)
    records.push({ ...common, ms: at(one.accept_time), hop: 6, type: "attempt.accepted", what: `attempt ${one.number} stored by the node`, where: "node sqlite inbox" });
  if (one.complete_time) {
    const status = bare(one.status, "ATTEMPT_STATUS_").toLowerCase().replaceAll("_", " ");
    const failure = one.failure ? `: ${one.failure.reason} ${one.failure.message}` : "";
    const usage = one.usage?.duration_ms > 0 ? ` in ${duration(Number(one.usage.duration_ms))}` : "";
    records.push({ ...common, ms: at(one.complete_time), hop: 8, type: `attempt.${status}`, what: `attempt ${one.number} ${status}${usage}${failure}`, where: "control pg attempts, attempt_inbox" });
  }
  return records;
}

function detail(entry) {
  try {
    const facts = JSON.parse(entry.detail_json || "{}");
    const known = Object.entries(facts).filter(([, value]) => ["string", "number", "boolean"].includes(typeof value));
    const text = known.map(([name, value]) => `${name} ${/^[0-9a-f-]{36}$/.test(value) ? shortId(value) : value}`).join(", ");
    return text && ` (${text})`;
  } catch {
    return "";
  }
}

const actor = (text) => text.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, (id) => shortId(id));

export function Events({ order, ladder, platform, step, choose }) {
  const [errors, setErrors] = useState(false);
  const records = recordsOf({ order, ladder, platform });
  const first = records[0]?.ms ?? 0;
  const shown = records.filter((one) => (!step || one.step === step) && (!errors || one.bad || BAD.test(one.type)));
  const tools = html`
    ${step && html`<button type="button" class="chip" aria-pressed="true" onClick=${() => choose("")}>${step} ×</button>`}
    <button type="button" class="chip" aria-pressed=${errors} onClick=${() => setErrors(!errors)}>${t("events.errors")}</button>`;
  const columns = ["when", "hop", "what", "where", "by"].map((one) => t(`events.${one}`));
  return html`<${Card} id="events" title=${t("events.title")} lead=${`${shown.length}`} tools=${tools} flush>
    ${shown.length === 0 ? html`<p class="lead pad">${t("events.none")}</p>` : html`<${Table} label=${t("events.title")} columns=${columns}>
      ${shown.map((one, index) => html`<tr key=${index} class=${one.bad || BAD.test(one.type) ? "bad-row" : ""}>
        <td class="nowrap"><code title=${fullTime(new Date(one.ms))}>+${duration(one.ms - first)}</code> <span class="sub">${clock(new Date(one.ms))}</span></td>
        <td class="nowrap"><span class="hop">${one.hop}</span></td>
        <td>${one.step && html`<span class="step-name">${one.step}</span>`}${one.what}</td>
        <td class="nowrap"><code>${one.where}</code></td>
        <td class="nowrap">${one.by}</td>
      </tr>`)}
    </${Table}>`}
  </${Card}>`;
}

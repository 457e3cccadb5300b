// Small parts that every page is made of.
import { html, signal, useEffect, useRef, useState } from "./html.js";
import { ago, clock, fullTime, t, word } from "./i18n.js";

/** Moves once a second, for ages and bars that grow. */
export const now = signal(Date.now());
setInterval(() => !document.hidden && (now.value = Date.now()), 1000);

const TONES = {
  SUBMITTING: "wait", PROCESSING: "run", COMPLETED: "good", NEEDS_ATTENTION: "bad",
  CANCELING: "wait", CANCELED: "calm",
  READY: "good", NOT_READY: "wait", SILENT: "bad",
  ACTIVE: "good", CORDONED: "wait", DRAINING: "wait",
  PENDING: "calm", PUBLISHING: "run", FAILED: "wait", DEAD: "bad", QUARANTINED: "bad",
  DELIVERING: "run", RETRYING: "wait", DELIVERED: "good",
  PROJECTED: "good", NO_CHANGE: "calm", HISTORY: "calm",
};

export const Badge = ({ kind, name }) =>
  html`<span class="badge ${TONES[name] || "calm"}">${word(kind, name)}</span>`;

export function Ago({ at }) {
  if (!at) return null;
  const moment = new Date(at);
  return html`<time datetime=${at} title=${fullTime(moment)}>${ago(moment, now.value)}</time>`;
}

export const Clock = ({ at }) =>
  at ? html`<time datetime=${at} title=${fullTime(new Date(at))}>${clock(new Date(at))}</time>` : null;

export const shortId = (id) => (id ? id.slice(-8) : "");

/** An id that is copied by a click; the end of it, since a UUIDv7 begins with the time. */
export function Id({ value, label = "" }) {
  const [copied, setCopied] = useState(false);
  if (!value) return null;
  const onClick = async () => {
    await copyText(value);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`<button class="id" type="button" onClick=${onClick} title=${value}
    aria-label=${`${label} ${value}: ${t("copy")}`}>
    ${label && html`<span class="id-label">${label}</span>`}<code>${copied ? t("copied") : shortId(value)}</code>
  </button>`;
}

export async function copyText(text) {
  await navigator.clipboard.writeText(text);
  say(t("copied"));
}

export const Loading = ({ rows = 3 }) => html`<div class="loading" role="status">
  <span class="visually-hidden">${t("loading")}</span>
  ${Array.from({ length: rows }, (_, row) => html`<div key=${row} class="shimmer" aria-hidden="true" />`)}
</div>`;

export const Failed = ({ error, reload }) => html`<div class="failed" role="alert">
  <p><strong>${t("failed")}.</strong> ${error.message}</p>
  ${reload && html`<button type="button" class="button" onClick=${reload}>${t("retry")}</button>`}
</div>`;

export const Empty = ({ title, lead, children }) => html`<div class="empty">
  <p class="empty-title">${title}</p>
  ${lead && html`<p>${lead}</p>`}
  ${children}
</div>`;

/** A resource as a page shows it: loading, failed, empty or its content. */
export function Shown({ resource, isEmpty, empty, children, rows }) {
  const { data, error, loading, reload } = resource;
  if (loading) return html`<${Loading} rows=${rows} />`;
  if (data === undefined) return html`<${Failed} error=${error} reload=${reload} />`;
  return html`
    ${error && html`<${Failed} error=${error} reload=${reload} />`}
    ${isEmpty && isEmpty(data) ? empty : children(data)}
  `;
}

export const Card = ({ title, lead, tools, children, id, flush }) => html`
  <section class="card ${flush ? "flush" : ""}" aria-labelledby=${id}>
    ${title && html`<header class="card-head">
      <h2 id=${id}>${title}</h2>
      ${lead && html`<p class="lead">${lead}</p>`}
      ${tools && html`<div class="tools">${tools}</div>`}
    </header>`}
    ${children}
  </section>`;

export const Page = ({ title, lead, tools, children }) => html`
  <div class="page-head">
    <div><h1>${title}</h1>${lead && html`<p class="lead">${lead}</p>`}</div>
    <div class="tools">${tools}</div>
  </div>
  ${children}`;

export const Progress = ({ value, label, tone = "run" }) => html`
  <div class="progress ${tone}" role="progressbar" aria-label=${label} aria-valuemin="0"
    aria-valuemax="100" aria-valuenow=${Math.round(value)}>
    <span style=${{ width: `${Math.max(0, Math.min(100, value))}%` }} />
  </div>`;

/** A table that scrolls inside itself where the screen is narrow; `numbers` are columns aligned right. */
export const Table = ({ label, columns, numbers = [], children }) => html`
  <div class="table-box" role="region" aria-label=${label} tabindex="0">
    <table>
      <thead><tr>${columns.map((column, at) => html`<th key=${at} scope="col"
        class=${numbers.includes(at) ? "number" : ""}>${column}</th>`)}</tr></thead>
      <tbody>${children}</tbody>
    </table>
  </div>`;

const message = signal("");

/** Says something to those who listen to the page, and shows it for a moment. */
export function say(text) {
  message.value = text;
  setTimeout(() => message.value === text && (message.value = ""), 3000);
}

export const Messages = () => html`<div class="toast" role="status" aria-live="polite">
  ${message.value && html`<span>${message.value}</span>`}
</div>`;

/** A dialog of the browser's own kind: focus stays inside, Escape closes. */
export function Dialog({ title, onClose, children, footer }) {
  const box = useRef(null);
  useEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  const onClick = (event) => event.target === box.current && onClose();
  return html`<dialog ref=${box} onCancel=${onCancel} onClick=${onClick} aria-label=${title}>
    <div class="dialog-body"><h2>${title}</h2>${children}</div>
    <footer>${footer}</footer>
  </dialog>`;
}



// Acts that change something: asked for, confirmed with their reason, and copied as a command.
import { html, signal, useState } from "./html.js";
import { call, newKey, rpc } from "./api.js";
import { t } from "./i18n.js";
import { copyText, Dialog, say } from "./ui.js";

const asked = signal(null);

const quote = (text) => `'${String(text).replaceAll("'", "'\\''")}'`;

/** A REST call as a line for a shell; the key is the reader's own. */
export function curl(method, path, body, key) {
  const lines = [`curl -X ${method} ${quote(location.origin + path)}`, `-H "Authorization: Bearer $TDP_KEY"`];
  if (key) lines.push(`-H ${quote(`Idempotency-Key: ${key}`)}`);
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

/** An RPC as a line for a shell; where the control plane is, its operator knows. */
export function grpcurl(method, body) {
  return [
    `grpcurl -plaintext -H "authorization: Bearer $TDP_KEY"`,
    `-d ${quote(JSON.stringify(body))}`,
    `"$TDP_CONTROL" tdp.control.v1.${method}`,
  ].join(" \\\n  ");
}

/**
 * Asks before it acts. `body(reason, key)` makes the request; `rest` is {method, path} of the
 * gateway, else `method` is an RPC; `reasoned` says whether it takes a reason. `name` fills the texts `confirm.<act>.title` and `.text`.
 */
export function ask({ act, name = "", label, danger = false, reasoned = true, rest, method, body, after }) {
  asked.value = { act, name, label, danger, reasoned, rest, method, body, after, key: newKey() };
}

export function Confirmation() {
  const act = asked.value;
  return act && html`<${Asked} key=${act.key} act=${act} onClose=${() => (asked.value = null)} />`;
}

function Asked({ act, onClose }) {
  const [reason, setReason] = useState("");
  const [state, setState] = useState({ busy: false, error: "" });
  const body = act.body(reason, act.key);
  const line = act.rest ? curl(act.rest.method, act.rest.path, body, act.key) : grpcurl(act.method, body);

  const run = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: "" });
    try {
      if (act.rest) await call(act.rest.method, act.rest.path, { body, key: act.key });
      else await rpc(act.method, body);
      onClose();
      say(act.label);
      act.after?.();
    } catch (error) {
      setState({ busy: false, error: error.message });
    }
  };
  const copy = t(act.rest ? "confirm.copy.curl" : "confirm.copy.grpcurl");
  return html`<${Dialog} title=${t(`confirm.${act.act}.title`, { name: act.name })} onClose=${onClose}
    footer=${html`
      <button type="button" class="button quiet" onClick=${() => copyText(line)}>${copy}</button>
      <span class="spring" />
      <button type="button" class="button" onClick=${onClose}>${t("confirm.no")}</button>
      <button type="submit" form="confirmation" class="button ${act.danger ? "danger" : "primary"}"
        disabled=${state.busy}>${t("confirm.do", { action: act.label.toLowerCase() })}</button>`}>
    <p>${t(`confirm.${act.act}.text`)}</p>
    <form id="confirmation" onSubmit=${run}>
      ${act.reasoned && html`<label class="field">${t("confirm.reason")}
        <input type="text" maxlength="500" value=${reason} onInput=${(e) => setReason(e.target.value)} />
      </label>`}
    </form>
    ${state.error && html`<p class="problem" role="alert">${state.error}</p>`}
  </${Dialog}>`;
}

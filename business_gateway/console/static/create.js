// The form that uploads an archive and orders its processing.
import { html, useRef, useState } from "./html.js";
import { call, newKey, session, upload } from "./api.js";
import { bytes, t } from "./i18n.js";
import { go, Link } from "./route.js";
import { OperatorNeeded } from "./signin.js";
import { Page, Progress } from "./ui.js";

const MODES = [["ARCHIVE_CLEAN_THEN_WATERMARK", "watermark"], ["ARCHIVE_CLEAN_ONLY", "clean"]];
const NAME_CHARS_MAX = 200;

export function CreateOrder() {
  const [file, setFile] = useState(null);
  const [name, setName] = useState("");
  const [mode, setMode] = useState(MODES[0][0]);
  const [text, setText] = useState("");
  const [over, setOver] = useState(false);
  const [state, setState] = useState({ phase: "", part: 0, error: "" });
  // One key for one intent: what is sent again after a failure is the same order.
  const intent = useRef({ key: newKey(), facts: "", asset: null });

  const take = (chosen) => {
    if (!chosen) return;
    setFile(chosen);
    intent.current = { key: newKey(), facts: "", asset: null };
    if (!name) setName(chosen.name.replace(/\.zip$/i, "").slice(0, NAME_CHARS_MAX));
    setState({ phase: "", part: 0, error: "" });
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    take(event.dataTransfer.files[0]);
  };
  const submit = async (event) => {
    event.preventDefault();
    if (!file) {
      setState({ phase: "", part: 0, error: t("create.nofile") });
      return;
    }
    try {
      const asset = intent.current.asset || (await uploaded(file, setState));
      if (asset.state !== "READY") {
        const reason = asset.rejection_message || asset.rejection_reason;
        setState({ phase: "", part: 0, error: t("create.refused", { reason }) });
        return;
      }
      intent.current.asset = asset;
      setState({ phase: "ordering", part: 1, error: "" });
      const body = {
        name, processing_mode: mode, source_asset_id: asset.asset_id,
        watermark_text: mode === MODES[0][0] ? text : "",
      };
      const facts = JSON.stringify(body);
      if (intent.current.facts !== facts) Object.assign(intent.current, { facts, key: newKey() });
      const order = await call("POST", "/api/v1/orders", { body, key: intent.current.key });
      go(`/orders/${order.order_id}`);
    } catch (error) {
      const details = (error.errors || []).map((one) => `${one.pointer.slice(1)}: ${one.detail}`).join("; ");
      const reason = details || error.message;
      const isUpload = !intent.current.asset && error.status === 422;
      setState({ phase: "", part: 0, error: isUpload ? t("create.refused", { reason }) : reason });
    }
  };

  if (!session.value.client)
    return html`<${Page} title=${t("create.title")}><p class="lead">${t("client.needed")}</p><${OperatorNeeded} /></${Page}>`;
  const busy = state.phase !== "";
  return html`<${Page} title=${t("create.title")}>
    <form class="card create" onSubmit=${submit}>
      <label class="drop ${over ? "over" : ""} ${file ? "has-file" : ""}" onDragOver=${(event) => { event.preventDefault(); setOver(true); }}
        onDragLeave=${() => setOver(false)} onDrop=${drop}>
        <span class="drop-label">${t("create.file")}</span>
        ${file
          ? html`<span class="drop-file"><strong>${file.name}</strong> <span class="sub">${bytes(file.size)} · ${t("create.again")}</span></span>`
          : html`<span class="drop-file">${t("create.choose")}</span>`}
        <input type="file" name="file" accept=".zip,application/zip" class="visually-hidden"
          onChange=${(event) => take(event.target.files[0])} />
      </label>
      <label class="field">${t("create.name")}
        <input type="text" name="name" required maxlength=${NAME_CHARS_MAX} value=${name} onInput=${(e) => setName(e.target.value)} />
      </label>
      <fieldset>
        <legend>${t("create.mode")}</legend>
        <div class="modes">
          ${MODES.map(([value, key]) => html`<label key=${value} class="mode">
            <input type="radio" name="mode" value=${value} checked=${mode === value} onChange=${() => setMode(value)} />
            <span><strong>${t(`create.mode.${key}`)}</strong><span class="sub">${t(`create.mode.${key}.lead`)}</span></span>
          </label>`)}
        </div>
      </fieldset>
      ${mode === MODES[0][0] && html`<label class="field">${t("create.text")}
        <input type="text" name="text" required value=${text} onInput=${(e) => setText(e.target.value)} />
      </label>`}
      ${state.error && html`<p class="problem" role="alert">${state.error}</p>`}
      ${busy && html`<div class="upload" role="status">
        <span>${t(`create.${state.phase}`)}${state.phase === "uploading" ? ` ${Math.round(state.part * 100)} %` : ""}</span>
        <${Progress} value=${state.part * 100} label=${t("create.uploading")} />
      </div>`}
      <div class="form-end">
        <${Link} to="/" class="button">${t("create.back")}</${Link}>
        <button class="button primary" disabled=${busy}>${t("create.submit")}</button>
      </div>
    </form>
  </${Page}>`;
}

async function uploaded(file, setState) {
  setState({ phase: "uploading", part: 0, error: "" });
  return upload(file, (part) =>
    setState({ phase: part < 1 ? "uploading" : "verifying", part, error: "" }));
}

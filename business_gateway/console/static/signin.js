// Signing in, and adding an operator's key to a session.
import { html, useState } from "./html.js";
import { signIn } from "./api.js";
import { t } from "./i18n.js";

export function KeyForm({ action }) {
  const [key, setKey] = useState("");
  const [state, setState] = useState({ busy: false, error: "" });
  const submit = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: "" });
    try {
      await signIn(key.trim());
    } catch (error) {
      setState({ busy: false, error: error.message });
    }
  };
  return html`<form class="key-form" onSubmit=${submit}>
    <label class="field">${t("signin.key")}
      <input type="password" name="key" autocomplete="off" spellcheck="false" required value=${key}
        placeholder="tdp_key_…" onInput=${(event) => setKey(event.target.value)} />
    </label>
    ${state.error && html`<p class="problem" role="alert">${state.error}</p>`}
    <button class="button primary" disabled=${state.busy}>${action}</button>
  </form>`;
}

export const SignIn = () => html`<div class="signin">
  <div class="signin-box">
    <img src="/console/icon.svg" alt="" width="44" height="44" />
    <h1>${t("app.title")}</h1>
    <p class="lead">${t("signin.lead")}</p>
    <${KeyForm} action=${t("signin.do")} />
    <p class="hint">${t("signin.hint")}</p>
  </div>
</div>`;

export const OperatorNeeded = () => html`<section class="card operator-needed">
  <h2>${t("operator.needed")}</h2>
  <p class="lead">${t("operator.lead")}</p>
  <${KeyForm} action=${t("operator.add")} />
</section>`;

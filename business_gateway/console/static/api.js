// Requests to the gateway: a session in a cookie, a CSRF token with everything that changes something.
import { signal } from "./html.js";

/** undefined while it is asked for, null when nobody is signed in. */
export const session = signal(undefined);

export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `HTTP ${status}`);
    this.status = status;
    this.reason = document.reason || "";
    this.retryable = document.retryable ?? status >= 500;
    this.errors = document.errors || [];
  }
}

export const newKey = () => crypto.randomUUID();

export async function call(method, path, { body, key, query, ...options } = {}) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  if (method !== "GET" && session.value) headers["X-CSRF-Token"] = session.value.csrf_token;
  const parameters = new URLSearchParams(
    Object.entries(query || {}).filter(([, value]) => value !== "" && value !== undefined),
  ).toString();
  let response;
  try {
    response = await fetch(path + (parameters ? `?${parameters}` : ""), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      ...options,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { reason: "UNREACHABLE", detail: String(error.message), retryable: true });
  }
  const text = await response.text();
  const isJson = (response.headers.get("Content-Type") || "").includes("json");
  const document = isJson && text ? JSON.parse(text) : {};
  if (!response.ok) {
    if (response.status === 401 && path !== "/console/api/session") session.value = null;
    throw new Problem(response.status, document);
  }
  return document;
}

export const get = (path, query) => call("GET", path, { query });
export const rpc = (method, body = {}) => call("POST", `/console/api/rpc/${method}`, { body });

export async function loadSession() {
  try {
    const found = await get("/console/api/session");
    session.value = found.client || found.operator ? found : null;
  } catch {
    session.value = null;
  }
}

export async function signIn(key) {
  session.value = await call("POST", "/console/api/session", { body: { key } });
}

export async function signOut() {
  await call("DELETE", "/console/api/session");
  session.value = null;
}

/** Sends a file with progress, which fetch does not tell; `onProgress` gets 0 to 1. */
export function upload(file, onProgress, abort) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `/api/v1/assets/content?name=${encodeURIComponent(file.name)}`);
    request.setRequestHeader("X-CSRF-Token", session.value.csrf_token);
    request.setRequestHeader("Content-Type", "application/zip");
    request.responseType = "text";
    request.upload.onprogress = (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    };
    request.onload = () => {
      let document = {};
      try {
        document = JSON.parse(request.responseText);
      } catch {
        // A proxy in between may answer something else; the status tells then.
      }
      if (request.status >= 200 && request.status < 300) resolve(document);
      else reject(new Problem(request.status, document));
    };
    request.onerror = () => reject(new Problem(0, { reason: "UNREACHABLE", retryable: true }));
    request.onabort = () => reject(new DOMException("aborted", "AbortError"));
    abort?.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

// The one live stream of this tab. What was missed while it was cut off is read anew on `hello`.
import { signal, useEffect, useRef } from "./html.js";
import { loadSession, session } from "./api.js";

/** "connecting", "open" or "cut". */
export const connection = signal("connecting");

const listeners = new Set();
let source = null;

const tell = (event) => listeners.forEach((listener) => listener(event));

export function connect() {
  if (source) return;
  source = new EventSource("/console/api/stream");
  source.addEventListener("hello", () => {
    connection.value = "open";
    tell({ kind: "hello" });
  });
  source.addEventListener("order", (event) => tell({ kind: "order", order: JSON.parse(event.data) }));
  source.addEventListener("many", () => tell({ kind: "many" }));
  source.addEventListener("tick", () => {
    connection.value = "open";
    tell({ kind: "tick" });
  });
  source.onerror = async () => {
    connection.value = "cut";
    // The browser connects again by itself after a break, but not after a refusal.
    if (source?.readyState === EventSource.CLOSED) {
      disconnect();
      await loadSession();
      if (session.value) setTimeout(connect, 2000);
    }
  };
}

export function disconnect() {
  source?.close();
  source = null;
  connection.value = "connecting";
}

/** Calls `listener` with each live event while the component is shown. */
export function useLive(listener) {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const one = (event) => latest.current(event);
    listeners.add(one);
    return () => listeners.delete(one);
  }, []);
}

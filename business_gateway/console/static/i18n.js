// Two languages. A text that is missing in one is a defect that a test finds.
import { signal } from "./html.js";
import { en } from "./texts-en.js";
import { zh } from "./texts-zh.js";

const TEXTS = { en, zh };
const stored = localStorage.getItem("tdp.language");
const first = stored || (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");

export const language = signal(TEXTS[first] ? first : "en");
document.documentElement.lang = language.value;

export function speak(name) {
  localStorage.setItem("tdp.language", name);
  document.documentElement.lang = name;
  language.value = name;
}

/** The text of a key in the chosen language, with {name} filled in; the key itself if there is none. */
export function t(key, values = {}) {
  const text = TEXTS[language.value][key] ?? TEXTS.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** The text of a state or kind that the server named; its own word if we know none. */
export function word(prefix, name) {
  const key = `${prefix}.${name}`;
  return TEXTS[language.value][key] ?? TEXTS.en[key] ?? name.toLowerCase().replaceAll("_", " ");
}

const locale = () => (language.value === "zh" ? "zh-CN" : "en-GB");

export function clock(moment) {
  return new Intl.DateTimeFormat(locale(), { timeStyle: "medium" }).format(moment);
}

export function fullTime(moment) {
  return new Intl.DateTimeFormat(locale(), { dateStyle: "medium", timeStyle: "medium" }).format(moment);
}

export function ago(moment, now) {
  const seconds = Math.round((moment - now) / 1000);
  const form = new Intl.RelativeTimeFormat(locale(), { numeric: "auto", style: "short" });
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]])
    if (Math.abs(seconds) >= size) return form.format(Math.trunc(seconds / size), unit);
  return form.format(seconds, "second");
}

export function duration(ms) {
  if (ms == null || Number.isNaN(ms)) return "";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

export function bytes(count) {
  const size = Number(count);
  if (size < 1000) return `${size} B`;
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (size >= factor) return `${(size / factor).toFixed(size / factor < 10 ? 1 : 0)} ${unit}`;
  return "";
}

export const count = (number) => new Intl.NumberFormat(locale()).format(Number(number));

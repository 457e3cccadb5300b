// The journey: a lane for each durable hop, named with its store.
import { html } from "./html.js";
import { duration, fullTime, t, word } from "./i18n.js";
import { lanesOf } from "./lanes.js";
import { isUnderWay } from "./orders.js";
import { timeScale } from "./scale.js";
import { now } from "./ui.js";

const percent = (part) => `${(part * 100).toFixed(3)}%`;

export function Journey({ order, ladder, platform }) {
  const words = { node: t("journey.waiting.node"), backoff: t("journey.waiting.backoff"), here: t("journey.waiting.here") };
  const nowMs = isUnderWay(order) ? now.value : 0;
  const lanes = lanesOf({ order, ladder, platform, nowMs, words });
  const scale = timeScale(lanes.flatMap((lane) => [...lane.dots, ...lane.bars.flatMap((bar) => [bar.from, bar.to])]));
  return html`<div class="journey">
    <div class="axis" aria-hidden="true">
      <span class="lane-name" />
      <span class="track">${scale.ticks.map((tick) => html`<span key=${tick.ms} class="tick" style=${{ left: percent(tick.x) }}>
        <span>+${duration(tick.ms)}</span></span>`)}
        ${scale.folds.map((fold) => html`<span key=${fold.from} class="fold" style=${{ left: percent(fold.x), width: percent(fold.width) }}
          title=${`${t("journey.legend.fold")}: ${duration(fold.ms)}`} />`)}
      </span>
      <span class="lane-took" />
    </div>
    ${scale.folds.length > 0 && html`<p class="visually-hidden">${t("journey.legend.fold")}</p>`}
    <ol>${lanes.map((lane) => html`<${Lane} key=${lane.rung.hop} lane=${lane} scale=${scale} />`)}</ol>
  </div>`;
}

function Lane({ lane, scale }) {
  const { rung, bars, dots } = lane;
  const what = `${word("rung", rung.state)}${rung.durable_at ? `, ${fullTime(new Date(rung.durable_at))}` : ""}. ${rung.summary}`;
  return html`<li class="lane ${rung.state.toLowerCase()}" title=${rung.summary}>
    <span class="lane-name">
      <span class="lane-title"><span class="hop">${rung.hop}</span>${t(`hop.${rung.hop}`)}</span>
      <span class="sub clip" title=${`${rung.store} · ${rung.location}`}>${rung.store}${rung.location ? ` · ${rung.location}` : ""}</span>
      <span class="visually-hidden">${what} ${rung.disturbances.map((one) => one.description).join("; ")}</span>
    </span>
    <span class="track" aria-hidden="true">
      ${bars.map((bar, index) => html`<${Bar} key=${index} bar=${bar} scale=${scale} />`)}
      ${dots.map((dot, index) => html`<span key=${index} class="dot" style=${{ left: percent(scale.place(dot)) }} title=${fullTime(new Date(dot))} />`)}
    </span>
    <span class="lane-took">${lane.ms != null ? duration(lane.ms) : dots.length ? "" : word("rung", rung.state)}</span>
  </li>`;
}

function Bar({ bar, scale }) {
  const from = scale.place(bar.from);
  const width = Math.max(0, scale.place(bar.to) - from);
  const tone = bar.waiting ? "waiting" : bar.tone;
  // A word that does not fit stands beside its bar, on the side that has room.
  const fits = width * 60 > bar.label.length * 0.62;
  const side = from + width > 0.6 ? "left" : "right";
  const title = `${bar.label} ${duration(bar.to - bar.from)}`.trim();
  return html`<span class="lane-bar ${tone} ${bar.live ? "live-bar" : ""}" style=${{ left: percent(from), width: percent(width) }} title=${title}>
    ${bar.label && html`<span class="bar-label ${fits ? "in" : side}">${bar.label}</span>`}
  </span>`;
}

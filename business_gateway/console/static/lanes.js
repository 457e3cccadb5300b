// What happened at each hop, as bars and dots; pure.
import { at, attemptStatus, isLiveAttempt, stepName } from "./facts.js";

const TONES = { SUCCEEDED: "good", FAILED: "bad", LOST: "bad", TIMED_OUT: "bad", CANCELED: "calm" };
const ENDED = ["COMPLETED", "NEEDS_ATTENTION", "CANCELED"];

/**
 * Returns the lanes of an order, one a rung: `bars` {from, to, tone, label, waiting}, `dots`, and
 * `ms`, the length of the bars. `words` names what a bar waits for.
 */
export function lanesOf({ order, ladder, platform, nowMs, words }) {
  const begin = beginOf(order, platform);
  const isOver = ENDED.includes(order.status);
  const context = { order, platform, nowMs, words, begin, isOver, rungs: Object.fromEntries(ladder.rungs.map((one) => [one.hop, one])) };
  const standing = ladder.rungs.find((one) => one.state === "CURRENT");
  return ladder.rungs.map((rung) => {
    const { bars, dots } = LANES[rung.hop](rung, context);
    const kept = dots.filter((one) => one != null);
    if (rung === standing && !isOver && !bars.some((one) => one.to >= nowMs))
      bars.push({ from: lastOf(kept, bars) ?? frontOf(ladder, begin), to: nowMs, waiting: true, label: words.here });
    const drawn = bars.filter((one) => one.to >= one.from);
    const ms = drawn.length ? drawn.reduce((sum, one) => sum + one.to - one.from, 0) : null;
    return { rung, bars: drawn, dots: kept, ms };
  });
}

function beginOf(order, platform) {
  const rerun = platform.changes.filter((one) => one.kind === "RERUN_REQUESTED").at(-1);
  return at(rerun ? rerun.occurred_at : order.created_at);
}

const lastOf = (dots, bars) => {
  const all = [...dots, ...bars.map((one) => one.to)];
  return all.length ? Math.max(...all) : null;
};

/** The newest durable moment before the place where the order stands. */
function frontOf(ladder, begin) {
  const times = ladder.rungs.filter((one) => one.state === "DURABLE").map((one) => at(one.durable_at));
  return Math.max(begin, ...times.filter((one) => one != null));
}

const plain = (from, to, tone = "good", label = "") => (from != null && to != null ? [{ from, to, tone, label }] : []);

function troubles(rung) {
  return rung.disturbances.filter((one) => one.kind !== "replayed").at(-1)?.description || "";
}

const LANES = {
  1: (rung, { begin }) => ({ bars: [], dots: [begin] }),
  2: (rung, { begin, platform }) => {
    const to = at(platform.task?.current_execution.create_time) ?? at(rung.durable_at);
    return { bars: plain(begin, to), dots: [to] };
  },
  3: (rung, { platform }) => {
    const dots = (platform.events || []).map((one) => at(one.occur_time));
    return { bars: plain(dots[0], at(rung.durable_at), "faint"), dots: [at(rung.durable_at)] };
  },
  4: (rung, { platform }) => {
    const to = at(rung.durable_at);
    return { bars: plain(at(platform.task?.current_execution.create_time), to), dots: [to] };
  },
  5: dispatchLane,
  6: (rung, { platform, nowMs, isOver }) => ({
    bars: attempts(platform).flatMap((one) => {
      const open = isOver ? null : nowMs;
      return plain(at(one.dispatch_time), at(one.accept_time) ?? (isLiveAttempt(one) ? open : null));
    }),
    dots: attempts(platform).map((one) => at(one.accept_time)),
  }),
  7: workLane,
  8: (rung, { platform }) => {
    const ends = attempts(platform).map((one) => at(one.complete_time));
    return { bars: [], dots: ends };
  },
  9: (rung, { platform, nowMs, isOver }) => {
    const events = (platform.events || []).map((one) => at(one.occur_time));
    const end = at(rung.durable_at);
    const trouble = troubles(rung);
    const bars = plain(events[0], end, "faint");
    if (trouble && !isOver) bars.push({ from: end ?? events[0], to: nowMs, waiting: true, label: trouble });
    return { bars, dots: [end] };
  },
  10: (rung, { platform, begin }) => ({
    bars: [],
    dots: platform.changes.filter((one) => one.event_id && at(one.occurred_at) >= begin).map((one) => at(one.occurred_at)),
  }),
};

const attempts = (platform) => platform.attempts || [];

/** Grey from ready (or the end of the try before) until the next try was dispatched. */
function dispatchLane(rung, { platform, nowMs, words, isOver }) {
  const bars = [];
  for (const step of platform.steps || []) {
    const tries = ofStep(platform, step);
    let from = at(step.ready_time);
    if (from == null) continue;
    tries.forEach((one, index) => {
      const label = index ? words.backoff : "";
      bars.push({ from, to: at(one.dispatch_time), waiting: true, label });
      from = at(one.complete_time);
    });
    const waits = step.status === "STEP_STATUS_READY" || step.status === "STEP_STATUS_WAITING";
    if (waits && from != null && !isOver)
      bars.push({ from, to: nowMs, waiting: true, label: step.waiting_for || (tries.length ? words.backoff : words.node) });
  }
  return { bars, dots: attempts(platform).map((one) => at(one.dispatch_time)) };
}

/** A segment an attempt, named by its step and number. */
function workLane(rung, { platform, nowMs }) {
  const bars = [];
  for (const step of platform.steps || []) {
    const tries = ofStep(platform, step);
    tries.forEach((one, index) => {
      const from = at(one.accept_time) ?? at(one.dispatch_time);
      const to = at(one.complete_time) ?? nowMs;
      const status = attemptStatus(one);
      const number = tries.length > 1 ? ` ${one.number}` : "";
      const why = one.failure ? ` · ${one.failure.reason}` : "";
      bars.push({ from, to, tone: TONES[status] || "run", label: `${stepName(step)}${number}${why}`, live: isLiveAttempt(one) });
      const next = tries[index + 1];
      if (next && at(one.complete_time) != null)
        bars.push({ from: at(one.complete_time), to: at(next.accept_time) ?? at(next.dispatch_time), waiting: true, label: "" });
    });
  }
  return { bars, dots: attempts(platform).map((one) => at(one.complete_time)) };
}

const ofStep = (platform, step) =>
  attempts(platform)
    .filter((one) => one.step_key === step.step_key && one.item_index === step.item_index)
    .sort((a, b) => a.number - b.number);

// Always answers: is it stuck, whose move is it, is my data safe.
import { html } from "./html.js";
import { attemptStatus, isLiveAttempt, nodeNames, stepName, stepStatus } from "./facts.js";
import { t } from "./i18n.js";
import { isUnderWay } from "./orders.js";
import { shortId } from "./ui.js";

/** Returns tone, what it is, the details, and whose move it is. */
function judge({ order, ladder, platform }) {
  if (order.status === "COMPLETED")
    return ["good", t("banner.done"), t("banner.done.text"), t("banner.move.nobody")];
  if (order.status === "CANCELED")
    return ["calm", t("banner.canceled"), t("banner.canceled.text"), t("banner.move.nobody")];
  if (order.status === "NEEDS_ATTENTION")
    return ["bad", t("banner.failed"), order.diagnosis, t("banner.move.you")];
  const dead = ladder.rungs.flatMap((rung) => rung.disturbances).find((one) => one.kind === "dead");
  if (dead) return ["bad", t("banner.dead"), dead.description, t("banner.move.operator")];
  if (!ladder.platform_reached || platform.problem)
    return ["wait", t("banner.unknown"), t("banner.unknown.text"), t("banner.move.platform")];
  if (!platform.known)
    return ["wait", t("banner.submitting"), "", t("banner.move.platform")];
  return judgeExecution({ order, ladder, platform });
}

function judgeExecution({ order, ladder, platform }) {
  const execution = platform.task.current_execution;
  if (order.status === "CANCELING") return ["wait", t("banner.canceling"), execution.waiting_for, t("banner.move.platform")];
  if (execution.paused) return ["wait", t("banner.paused"), execution.waiting_for, t("banner.move.operator")];
  if (platform.steps.some((one) => stepStatus(one) === "WAITING"))
    return ["wait", t("banner.approval"), execution.waiting_for, t("banner.move.operator")];
  const running = platform.attempts.find((one) => isLiveAttempt(one) && attemptStatus(one) !== "DISPATCHED");
  if (running) {
    const node = nodeNames(ladder)[running.attempt_id] || shortId(running.node_id);
    const values = { step: stepName(running), node, attempt: running.number };
    return ["run", t("banner.running"), t("banner.running.step", values), t("banner.move.platform")];
  }
  return ["wait", t("banner.waiting"), execution.waiting_for || ladder.verdict, t("banner.move.platform")];
}

/** The last durable rung before the first that is missing: so far nothing can be lost. */
function front(rungs) {
  const missing = rungs.findIndex((rung) => !["DURABLE", "NOT_APPLICABLE"].includes(rung.state));
  const reached = missing < 0 ? rungs : rungs.slice(0, missing);
  return reached.filter((rung) => rung.state === "DURABLE").at(-1);
}

export function Banner(data) {
  const [tone, head, text, move] = judge(data);
  const safe = front(data.ladder.rungs);
  return html`<section class="banner ${tone}" aria-live=${isUnderWay(data.order) ? "polite" : "off"}>
    <p><strong>${head}</strong> ${text} <span class="banner-move">${move}</span></p>
    ${safe && html`<p class="banner-safe">${t("banner.safe", { title: t(`hop.${safe.hop}`), hop: safe.hop, store: safe.store })}</p>`}
  </section>`;
}

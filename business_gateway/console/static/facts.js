// What the platform's documents mean to the page; pure.
export const at = (text) => (text ? Date.parse(text) : null);
export const bare = (name, prefix) => (name || "").replace(prefix, "");
export const stepStatus = (step) => bare(step.status, "STEP_STATUS_");
export const attemptStatus = (attempt) => bare(attempt.status, "ATTEMPT_STATUS_");
export const isLiveAttempt = (attempt) => ["DISPATCHED", "ACCEPTED", "RUNNING"].includes(attemptStatus(attempt));
export const stepName = (one) => (one.item_index >= 0 ? `${one.step_key}[${one.item_index}]` : one.step_key);

/** The steps of the workflow with what became of them: one entry a key, whatever its items. */
export function stepsByKey(platform) {
  const definition = JSON.parse(platform.workflow.definition_json);
  return definition.steps.map((defined) => {
    const instances = platform.steps.filter((one) => one.step_key === defined.key);
    const own = instances.find((one) => one.item_index < 0) || instances[0];
    const attempts = platform.attempts.filter((one) => one.step_key === defined.key);
    const items = instances.filter((one) => one.item_index >= 0);
    return { ...defined, own, items, attempts, status: own ? stepStatus(own) : "PENDING" };
  });
}

/** The node of each attempt, by name where the ladder tells it. */
export function nodeNames(ladder) {
  const names = {};
  for (const rung of ladder.rungs)
    for (const [, attempt, node] of rung.identity.matchAll(/attempt ([0-9a-f-]{36}) on ([^\s,;]+)/g)) names[attempt] = node;
  return names;
}

"""What may be published, and what each mistake is told."""

import json
import re
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from control_plane.adapters.outbound.cel import CelCompiler
from control_plane.core.executions.domain import StepKey
from control_plane.core.workflows.compiling import CompiledWorkflows
from control_plane.core.workflows.domain import OnFailure, StepKind
from control_plane.core.workflows.errors import DefinitionInvalidError
from control_plane.core.workflows.graph import build_graph, find_cycle
from control_plane.core.workflows.publishing import CheckedDefinition, check_definition
from control_plane.core.workflows.violations import Place, PlacedViolation

CEL = CelCompiler()
FULL = """
name: watermark
version: "1.4"
input_schema:
  type: object
  required: [archive]
timeout: 2h30m
failure_step: tell
steps:
  - key: clean
    capability: archive.clean
    capability_version: "1"
    input: {archive: "${input.archive}"}
    at_most_once: true
  - key: approve
    kind: approval
    depends_on: [clean]
    timeouts: {total: 3d}
  - key: mark
    capability: image.watermark
    capability_version: "1"
    depends_on: [clean, approve]
    when: steps.clean.output.count > 0
    for_each: ${steps.clean.output.images}
    max_parallel: 4
    input:
      image: ${item}
      name: image ${index}
    retry:
      max_attempts: 5
      initial_delay: 500ms
      multiplier: 3
      max_delay: 10
      jitter: 0
      non_retryable_reasons: [IMAGE_UNREADABLE]
    timeouts: {queue: 10m, run: 20m, heartbeat: 30s, total: 1h}
    affinity:
      group: media
      required_labels: {zone: a}
      preferred_labels: {disk: ssd}
      minimum_resources: {cpu_millis: 500, memory_bytes: 1073741824, gpu_count: 1}
    on_failure: continue
  - key: tell
    capability: mail.send
    capability_version: "2"
    input: {failed: "${execution.failure}", cleaned: "${steps.clean.status}"}
output: {images: "${steps.mark.output}"}
"""


def _check(text: str) -> CheckedDefinition:
    return check_definition(text, CEL, lambda _name, version: version == "1")


def _step(key: str, *depends_on: str, **fields: Any) -> dict[str, Any]:
    step = {"key": key, "capability": "c", "capability_version": "1", "depends_on": [*depends_on]}
    return step | fields


def _definition(*steps: Any, **fields: Any) -> str:
    return json.dumps({"name": "w", "version": "1", "steps": steps, **fields})


def _complaints(text: str) -> str:
    with pytest.raises(DefinitionInvalidError) as caught:
        _check(text)
    found = [f"{one.field}: {one.description}" for one in caught.value.field_violations]
    return "\n".join(found) or str(caught.value)


def test_a_definition_with_everything_in_it() -> None:
    """Each part of the language arrives in its field."""
    definition = _check(FULL).definition
    clean, approve, mark, tell = definition.steps
    assert (definition.name, definition.version, definition.failure_step) == (
        "watermark",
        "1.4",
        "tell",
    )
    assert definition.timeout.total_seconds() == 9_000
    assert clean.at_most_once
    assert clean.retry.max_attempts == 1
    assert approve.kind is StepKind.APPROVAL
    assert approve.timeouts.total is not None
    assert approve.timeouts.total.days == 3
    assert mark.on_failure is OnFailure.CONTINUE
    assert mark.retry.initial_delay.total_seconds() == 0.5
    assert mark.retry.max_delay.total_seconds() == 10
    assert mark.max_parallel == 4
    assert mark.affinity.minimum_resources.memory_bytes == 2**30
    assert mark.affinity.required_labels == {"zone": "a"}
    assert tell.depends_on == ()


def test_the_failure_step_is_bounded_in_time() -> None:
    """It runs when the execution's own time may be over, so it always has a bound."""
    failure_step = _check(FULL).workflow.failure_step
    assert failure_step is not None
    assert failure_step.definition.timeouts.total is not None


def test_unknown_capabilities_are_a_warning() -> None:
    """Nodes may come later, so publishing succeeds and says so."""
    assert _check(FULL).warnings[1:] == (
        "step tell: no node has declared mail.send 2 yet; tasks will wait for one",
    )


def test_yaml_and_json_of_the_same_content_have_one_digest() -> None:
    """Layout and order of keys do not matter, content does."""
    document = yaml.safe_load(FULL)
    same = json.dumps(dict(reversed(document.items())), indent=3, ensure_ascii=True)
    other = json.dumps(document | {"timeout": "3h"})
    assert _check(same).canonical_json == _check(FULL).canonical_json
    assert _check(same).digest == _check(FULL).digest
    assert _check(other).digest != _check(FULL).digest


def test_canonical_text_publishes_to_itself() -> None:
    """The stored snapshot reads back as the same definition."""
    checked = _check(FULL)
    again = _check(checked.canonical_json)
    assert (again.canonical_json, again.definition) == (checked.canonical_json, checked.definition)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "YAML documents: pass exactly one"),
        ("[]", "expected an object"),
        ("{", "no valid JSON|cannot be read"),
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ('{"a": NaN}', "not JSON"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' occurs twice"),
        ("a: &x 1\nb: *x", "anchors"),
        ("a: !!python/name:os.system 1", "tag"),
        ("<<: {a: 1}", "merge keys"),
        ("a: 1\n---\nb: 2", "2 YAML documents"),
        ("a: [1\nb: 2", "no valid YAML at line 2"),
        ("[" * 2_000, "nest"),
        ("- " * 80 + "a", "line 1, column 129: the definition nests deeper than 64"),
        ('{"a":' * 2_000, "nests deeper"),
        ("x" * (1024 * 1024 + 1), "more than the 1048576 allowed"),
        ("version: 1.10\nname: w\nsteps: [{key: a}]", "version: expected a version.*1.1.*line 1"),
        (_definition(), "steps: expected a list"),
        (_definition(_step("a"), steps=[]), "steps: expected a list"),
        (_definition(*[_step(f"s{n}") for n in range(1_001)]), "1001 steps are more than"),
        (_definition(_step("a"), extra=1), "extra: unknown key"),
        (_definition(_step("a", retries=1)), r"steps\[0\].retries: unknown key"),
        (_definition(_step("")), r"steps\[0\].key: '' is not a key"),
        (_definition(_step("a"), _step("a")), r"steps\[1\].key: 'a' is used twice"),
        (_definition(_step("a", "b")), r"steps\[0\].depends_on\[0\]: there is no step 'b'"),
        (_definition(_step("a", "a")), r"step 'a' depends on itself"),
        (
            _definition(_step("z"), _step("a", "z", "c"), _step("b", "a"), _step("c", "b")),
            "circle: a → c → b → a",
        ),
        (_definition({"key": "a"}), r"steps\[0\].capability: .*missing"),
        (_definition(_step("a", kind="magic")), "'magic' is none of capability, approval"),
        (_definition(_step("a", timeouts={"run": "soon"})), r"timeouts.run: 'soon' is no duration"),
        (_definition(_step("a", timeouts={"run": "0s"})), "longer than zero"),
        (_definition(_step("a", retry={"max_attempts": 0})), "out of range: 1 to 100"),
        (_definition(_step("a", retry={"max_attempts": 1.5})), "expected an integer"),
        (_definition(_step("a", retry={"jitter": True})), "expected a number, not a boolean"),
        (_definition(_step("a", at_most_once=True, retry={"max_attempts": 2})), "must be 1"),
        (_definition(_step("a", affinity={"required_labels": {"a": 1}})), "required_labels.a"),
        (_definition(_step("a", affinity={"minimum_resources": {"ram": 1}})), "ram: unknown key"),
        (_definition(_step("a", max_parallel=3)), "needs for_each"),
        (_definition(_step("a", concurrency_key=3)), "concurrency_key: expected an object"),
        (_definition(_step("a", concurrency_key={"max": 0, "key": "k"})), "max: 0 is out of range"),
        (
            _definition(_step("a", concurrency_key={"max": 2})),
            "concurrency_key.key: expected a key",
        ),
        (_definition(_step("a", concurrency_key={"key": "k", "scope": "all"})), "scope: 'all'"),
        (_definition(_step("a", concurrency_key="${ steps.b.output }")), "there is no step 'b'"),
        (_definition(_step("a", kind="approval", concurrency_key="k")), "takes no slot"),
        (_definition(_step("a"), rate_limit={"per": "1s"}), "rate_limit.max: is missing"),
        (_definition(_step("a"), rate_limit={"max": 1}), "rate_limit.per: expected a duration"),
        (_definition(_step("a"), rate_limit={"max": 1, "per": "25h"}), "rate_limit.per: expected"),
        (_definition(_step("a"), concurrency_key="${ execution.run }"), "reads input only"),
        (_definition(_step("a"), input_schema={"type": "nope"}), "input_schema: .*JSON Schema"),
        (_definition(_step("a"), input_schema={"$ref": "http://x.invalid"}), "input_schema:"),
        (_definition(_step("a"), input_schema={"pattern": "("}), "input_schema:"),
        (_definition(_step("a", when="1 + 'a'")), r"steps\[0\].when: expression `1 \+ 'a'`"),
        (_definition(_step("a", when="'a'")), "expected a bool"),
        (_definition(_step("a", for_each="1")), "expected a list"),
        (_definition(_step("a", input={"x": "${item}"})), r"steps\[0\].input.x: .*undeclared"),
        (_definition(_step("a"), _step("b", when="steps.a.output.x")), "add it to depends_on"),
        (_definition(_step("a", input="${steps.a.output}")), "'a' does not wait for 'a'"),
        (_definition(_step("a", input="${steps.x.output}")), "there is no step 'x'"),
        (_definition(_step("a"), output="${steps.x.output}"), "output: there is no step 'x'"),
        (_definition(_step("a"), output="${input"), "output: expression .* never closed"),
        (_definition(_step("a"), failure_step="b"), "failure_step: there is no step 'b'"),
        (_definition(_step("a"), _step("b", "a"), failure_step="b"), "it has no depends_on"),
        (_definition(_step("a"), _step("b", "a"), failure_step="a"), "nothing can wait for 'a'"),
        (
            _definition(_step("a"), _step("b"), failure_step="b", output="${steps.b.output}"),
            "nothing can read it",
        ),
    ],
)
def test_each_mistake_is_named(text: str, expected: str) -> None:
    """The error names the offending key and says what would be right."""
    complaints = _complaints(text)
    assert re.search(expected, complaints, re.DOTALL), complaints


def test_all_mistakes_are_told_at_once_with_their_lines() -> None:
    """One answer lists every mistake, so that a file is mended in one go."""
    text = FULL.replace("max_attempts: 5", "max_attempts: many").replace("archive.clean", "a b")
    complaints = _complaints(text)
    assert "steps[0].capability: 'a b' is not a capability's name (line 11, column 5)" in complaints
    assert (
        "steps[2].retry.max_attempts: expected a number, not text (line 30, column 7)" in complaints
    )


def test_expressions_are_told_beside_other_mistakes_each_with_its_own_key() -> None:
    """A wrong type, two broken expressions and a stray reference all come in one answer."""
    text = FULL.replace(
        "name: image ${index}", 'name: image ${nothing}\n      other: [1, "${1 +}"]'
    )
    complaints = _complaints(text.replace("gpu_count: 1", "gpu_count: one"))
    assert re.search(r"steps\[2\].input.name: .*undeclared.*\(line 28, column 7\)", complaints)
    assert re.search(r"steps\[2\].input.other\[1\]: .*\(line 29, column 18\)", complaints)
    assert "minimum_resources.gpu_count: expected a number" in complaints

    stray = _complaints(FULL.replace('"${input.archive}"', '"${steps.tell.output}"'))
    assert "steps[0].input.archive: 'tell' runs only on failure" in stray


def test_json_has_places_too() -> None:
    """A definition in JSON names line and column, of a mistake and of broken JSON alike."""
    text = json.dumps(json.loads(_definition(_step("a", when=5))), indent=2)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if '"when"' in one)
    assert f"steps[0].when: expected an expression as text (line {line}, column 7)" in _complaints(
        text
    )
    with pytest.raises(DefinitionInvalidError) as error:
        _check('{\n  "name": ]')
    (violation,) = error.value.field_violations
    assert isinstance(violation, PlacedViolation)
    assert violation.place == Place(2, 11)


def test_times_that_are_never_reached_are_warned_of() -> None:
    """A time-out beyond a wider one is allowed, and said."""
    step = _step("a", timeouts={"run": "2h", "total": "30m"})
    warnings = _check(_definition(step, timeout="1h")).warnings
    assert any("timeouts.run (2:00:00) is longer than the workflow's" in one for one in warnings)
    assert any("longer than timeouts.total (0:30:00)" in one for one in warnings)


def test_yaml_words_mean_what_they_say() -> None:
    """`no` and `on` are text, as in YAML 1.2, and dates stay text."""
    source = yaml.safe_dump(json.loads(_definition(_step("a"))))
    source += "output: {a: no, b: on, c: 2026-01-01, d: 0x10, e: 1e3, f: 12:30, g: ~, h: TRUE}\n"
    assert _check(source).definition.output == {
        "a": "no", "b": "on", "c": "2026-01-01", "d": 16, "e": 1000.0, "f": "12:30",
        "g": None, "h": True,
    }  # fmt: skip


def test_a_chain_of_a_thousand_steps_is_checked_quickly() -> None:
    """Deep graphs meet no recursion limit and no quadratic cost that is felt."""
    chain = [_step("s0")]
    chain += [
        _step(f"s{n}", f"s{n - 1}", input=f"${{steps.s{n - 1}.output}}") for n in range(1, 1_000)
    ]
    started_s = time.perf_counter()
    workflow = _check(_definition(*reversed(chain))).workflow
    assert [step.key for step in workflow.order] == [f"s{n}" for n in range(1_000)]
    assert time.perf_counter() - started_s < 10


def test_ancestors_are_known_through_others() -> None:
    """A step may read what its dependencies waited for, but not what stands beside them."""
    steps = [_step("a"), _step("b", "a"), _step("x"), _step("c", "b")]
    _check(_definition(*steps, _step("d", "c", input="${steps.a.output}")))
    complaints = _complaints(_definition(*steps, _step("d", "c", input="${steps.x.output}")))
    assert "step 'd' does not wait for 'x'" in complaints


def test_a_cycle_of_a_thousand_steps_is_found() -> None:
    """The longest possible cycle is named too."""
    steps = [_step(f"s{n}", f"s{(n + 1) % 1_000}") for n in range(1_000)]
    assert "circle: s0 → s1 → s2" in _complaints(_definition(*steps))


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.lists(
            st.lists(st.integers(0, n - 1), max_size=3, unique=True), min_size=n, max_size=n
        )
    )
)
def test_order_or_cycle(edges: list[list[int]]) -> None:
    """Every graph either gets an order that respects it, or a cycle that is really there."""
    dependencies = {str(n): [str(one) for one in waits_for] for n, waits_for in enumerate(edges)}
    cycle = find_cycle(dependencies)
    if cycle:
        pairs = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        assert all(after in dependencies[before] for before, after in pairs)
        return
    graph = build_graph(dependencies)
    place = {key: at for at, key in enumerate(graph.order)}
    for key, waits_for in dependencies.items():
        assert all(place[one] < place[key] and graph.is_ancestor(one, key) for one in waits_for)
        assert not graph.is_ancestor(key, key)


def test_compiled_snapshots_are_kept_and_dropped_by_use() -> None:
    """The same digest compiles once while it is in use, and memory stays bounded."""
    cache = CompiledWorkflows(CEL, entries_max=2)
    text = _definition(_step("a"))
    first = cache.get(text, "d1")
    cache.get(text, "d2")
    assert cache.get(text, "d1") is first
    cache.get(text, "d3")
    assert cache.get(text, "d1") is first
    assert cache.get(text, "d2").steps[StepKey("a")].place == 0
    assert cache.get(text, "d1") is first

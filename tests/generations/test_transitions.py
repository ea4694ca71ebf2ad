"""The life of generations: random steps against what must hold of every registry."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tessera.assembly.assembly import JOINED, SENTENCES, Assembly
from tessera.errors import CorruptionError, RefusedError
from tessera.generations.bootstrap import first_registry
from tessera.generations.record import Action, ControlRecord
from tessera.generations.registry import Evidence, Generation, Registry, Waiver
from tessera.generations.transitions import apply, next_release, when_retired
from tessera.releases import Contract

IDS = count()
NAMES = st.sampled_from(["g1", "g2", "g3", "g4", "-bad", ""])
TIMES = st.integers(0, 3_000)
ASSEMBLY = st.sampled_from([None, JOINED, SENTENCES])
FINAL = ("contracted", "abandoned")


def contract(number: int) -> Contract:
    return Contract(f"p{number}@0", {"size": number}, "words@1")


def record(registry: Registry, action: Action, name: str, at_ms: int = 0, **values: Any) -> ControlRecord:
    made_for = values.pop("expected", registry.version)
    return ControlRecord(action, name, made_for, "ann", at_ms, f"id{next(IDS)}", **values)


def evidence_for(registry: Registry, name: str, passed: bool = True) -> Evidence | None:
    if name not in registry.generations:
        return None
    serving, candidate = registry.serving, registry.generations[name]
    digests = (serving.contract.digest, candidate.contract.digest)
    failed = () if passed else ("recall",)
    return Evidence(serving.name, *digests, "sha256:0", {}, passed, failed, {}, 0, 10)


class Lives(RuleBasedStateMachine):
    """Any step at any time: it is made or refused, and what must hold of a registry holds."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = first_registry()
        self.releases = {self.registry.release.release}

    def step(self, action: Action, name: str, at_ms: int = 0, **values: Any) -> None:
        before = self.registry
        try:
            self.registry = apply(before, record(before, action, name, at_ms, **values))
        except RefusedError:
            return
        self.check_step(before, action, name, at_ms)

    def check_step(self, before: Registry, action: Action, name: str, at_ms: int) -> None:
        after = self.registry
        assert after.version == before.version + 1
        assert set(before.generations) <= set(after.generations)
        for each, was in before.generations.items():
            now = after.generations[each]
            assert now.contract == was.contract
            assert now.steps[: len(was.steps)] == was.steps
            if was.state in FINAL:
                assert now.state == was.state
        if action == "create":
            assert name not in before.generations
        if after.release != before.release and action != "rollback":
            assert before.generations[name].state == {"cutover": "gated", "assembly": "serving"}[action]
            assert after.release.release not in self.releases
            self.releases.add(after.release.release)
            assert after.previous == before.release
        if action == "rollback":
            assert after.release == before.previous
            same = after.release.generation == before.release.generation
            back = before.generations[after.release.generation].state
            assert back == ("serving" if same else "retired")
            assert after.generations[after.release.generation].state == "serving"
        if action == "assembly":
            states = {each: generation.state for each, generation in before.generations.items()}
            assert {each: generation.state for each, generation in after.generations.items()} == states
        if action == "contract":
            was = before.generations[name]
            assert (was.state, was.hold) == ("retired", "")
            assert at_ms >= was.retain_until_ms

    @rule(name=NAMES, number=st.integers(0, 3), at_ms=TIMES, limit=st.integers(1, 2))
    def create(self, name: str, number: int, at_ms: int, limit: int) -> None:
        self.step("create", name, at_ms, contract=contract(number), limit=limit)

    @rule(name=NAMES, action=st.sampled_from(["pause", "resume", "verified", "release-hold", "contracted"]))
    def plain(self, name: str, action: Action) -> None:
        self.step(action, name)

    @rule(name=NAMES, rate=st.sampled_from([None, 5.0, 0.0, -1.0, float("nan")]))
    def rate(self, name: str, rate: float | None) -> None:
        self.step("rate", name, rate=rate)

    @rule(name=NAMES, passed=st.booleans())
    def compared(self, name: str, passed: bool) -> None:
        self.step("compared", name, evidence=evidence_for(self.registry, name, passed))

    @rule(name=NAMES, check=st.sampled_from(["evidence", "lag"]), why=st.sampled_from(["", "known"]))
    def waive(self, name: str, check: str, why: str) -> None:
        self.step("waive", name, waiver=Waiver(check, why, "ann", 0, 10))

    @rule(name=NAMES, retain=TIMES, assembly=ASSEMBLY)
    def cutover(self, name: str, retain: int, assembly: Assembly | None) -> None:
        release = next_release(self.registry, name, assembly)
        self.step("cutover", name, release=release, retain_until_ms=retain)

    @rule(name=NAMES, assembly=ASSEMBLY)
    def assembly(self, name: str, assembly: Assembly | None) -> None:
        if (assembly or self.registry.release.assembly) == self.registry.release.assembly:
            return  # the command refuses it
        release = next_release(self.registry, name, assembly)
        assert release.assembly == (assembly or self.registry.release.assembly)
        self.step("assembly", name, release=release)

    @rule(name=NAMES)
    def rollback(self, name: str) -> None:
        self.step("rollback", name)

    @rule()
    def rollback_as_the_command_does(self) -> None:
        if self.registry.previous is not None:
            before = self.registry
            self.step("rollback", self.registry.previous.generation)
            assert self.registry.release == before.previous

    @rule(name=NAMES, number=st.integers(0, 3), retain=TIMES, at_ms=TIMES)
    def the_next_step_of_its_life(self, name: str, number: int, retain: int, at_ms: int) -> None:
        """Or no random walk would get far."""
        generation = self.registry.generations.get(name)
        match generation.state if generation else None:
            case None:
                self.step("create", name, contract=contract(number), limit=2)
            case "building":
                self.step("verified", name)
            case "ready":
                self.step("compared", name, evidence=evidence_for(self.registry, name))
            case "gated":
                self.step("cutover", name, release=next_release(self.registry, name), retain_until_ms=retain)
            case "retired":
                self.step("contract", name, at_ms)
            case "contracting":
                self.step("contracted", name)

    @rule(name=NAMES, note=st.sampled_from(["", "audit"]))
    def hold(self, name: str, note: str) -> None:
        self.step("hold", name, note=note)

    @rule(name=NAMES, action=st.sampled_from(["contract", "abandon"]), at_ms=TIMES)
    def remove(self, name: str, action: Action, at_ms: int) -> None:
        self.step(action, name, at_ms)

    @rule(name=NAMES, off=st.sampled_from([-1, 1]))
    def made_for_another_version(self, name: str, off: int) -> None:
        with pytest.raises(RefusedError) as refused:
            apply(self.registry, record(self.registry, "hold", name, expected=self.registry.version + off))
        assert refused.value.reason == "superseded"

    @invariant()
    def exactly_one_serves_and_the_release_names_it(self) -> None:
        serving = [name for name, each in self.registry.generations.items() if each.state == "serving"]
        assert serving == [self.registry.release.generation]

    @invariant()
    def what_can_be_rolled_back_to_is_written(self) -> None:
        previous, served = self.registry.previous, self.registry.release
        if previous is not None:
            same = previous.generation == served.generation
            state = self.registry.generations[previous.generation].state
            assert state == ("serving" if same else "retired")
            assert not same or previous.assembly != served.assembly

    @invariant()
    def no_two_written_generations_have_one_contract(self) -> None:
        digests = [self.registry.generations[name].contract.digest for name in self.registry.written]
        assert len(set(digests)) == len(digests)

    @invariant()
    def it_is_stored_and_read_unchanged(self) -> None:
        assert Registry.from_json(self.registry.to_json()) == self.registry


Lives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLives = Lives.TestCase


def walked(*steps: tuple[Action, str, dict[str, Any]]) -> Registry:
    registry = first_registry()
    for action, name, values in steps:
        if action == "compared":
            values = {"evidence": evidence_for(registry, name)}
        if action == "cutover":
            values = {"release": next_release(registry, name), **values}
        registry = apply(registry, record(registry, action, name, **values))
    return registry


def served(name: str = "g2", number: int = 2) -> list[tuple[Action, str, dict[str, Any]]]:
    return [
        ("create", name, {"contract": contract(number)}),
        ("verified", name, {}),
        ("compared", name, {}),
        ("cutover", name, {"retain_until_ms": 100}),
    ]


def refusal(registry: Registry, action: Action, name: str, at_ms: int = 0, **values: Any) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        apply(registry, record(registry, action, name, at_ms, **values))
    assert str(refused.value).endswith(refused.value.next_step)
    return refused.value


def test_a_release_rolled_back_to_is_the_previous_one_and_a_second_cutover_makes_a_new_one() -> None:
    registry = walked(*served(), ("rollback", "g1", {}))
    assert (registry.release.release, registry.generations["g2"].state) == ("r1", "gated")
    assert refusal(registry, "rollback", "g1").reason == "no_previous"
    again = apply(registry, record(registry, "cutover", "g2", release=next_release(registry, "g2")))
    assert (again.release.release, again.previous) == ("r3", registry.release)


@pytest.mark.parametrize(
    ("action", "name", "values", "reason"),
    [
        ("create", "g1", {"contract": contract(5)}, "name_used"),
        ("create", "../x", {"contract": contract(5)}, "name"),
        ("create", "g3", {"contract": contract(2)}, "same_contract"),
        ("create", "g3", {"contract": contract(3), "rate": 0.0}, "rate"),
        ("create", "g3", {}, "malformed"),
        ("contract", "g2", {}, "served"),
        ("abandon", "g2", {}, "served"),
        ("abandon", "g1", {}, "state"),
        ("contract", "g1", {"at_ms": 99}, "retention"),
        ("contract", "g9", {}, "unknown"),
        ("release-hold", "g1", {}, "already"),
        ("hold", "g1", {}, "hold"),
        ("pause", "g1", {}, "state"),
        ("cutover", "g1", {}, "state"),
        ("rollback", "g2", {}, "previous"),
    ],
)
def test_what_is_not_allowed_is_refused_with_a_reason_and_a_next_step(
    action: Action, name: str, values: dict[str, Any], reason: str
) -> None:
    registry = walked(*served())
    assert refusal(registry, action, name, **values).reason == reason


def test_no_rollback_to_a_generation_that_is_no_longer_written() -> None:
    registry = walked(*served())
    gone = {**registry.generations, "g1": replace(registry.generations["g1"], state="contracted")}
    assert refusal(replace(registry, generations=gone), "rollback", "g1").reason == "state"


def test_a_hold_keeps_a_retired_generation_and_a_candidate() -> None:
    registry = walked(
        *served(),
        ("hold", "g1", {"note": "audit"}),
        ("create", "g3", {"contract": contract(3)}),
        ("hold", "g3", {"note": "still looked at"}),
    )
    assert refusal(registry, "contract", "g1", 1000).reason == "held"
    assert refusal(registry, "abandon", "g3").reason == "held"
    freed = apply(registry, record(registry, "release-hold", "g1"))
    assert apply(freed, record(freed, "contract", "g1", 1000)).previous is None


def test_no_more_generations_build_at_once_than_allowed() -> None:
    registry = walked(("create", "g2", {"contract": contract(2)}))
    assert refusal(registry, "create", "g3", contract=contract(3)).reason == "building"
    assert (
        "g3" in apply(registry, record(registry, "create", "g3", contract=contract(3), limit=2)).generations
    )


def test_evidence_for_another_contract_is_refused_and_failing_evidence_takes_the_gate_back() -> None:
    registry = walked(*served()[:3])
    assert registry.generations["g2"].state == "gated"
    evidence = evidence_for(registry, "g2", passed=False)
    assert evidence is not None
    other = replace(evidence, candidate_contract="sha256:1")
    assert refusal(registry, "compared", "g2", evidence=other).reason == "contract"
    moved = apply(registry, record(registry, "compared", "g2", evidence=evidence))
    assert moved.generations["g2"].state == "ready"


def test_records_are_stored_and_read_unchanged() -> None:
    registry = walked(*served())
    full = record(
        registry,
        "cutover",
        "g2",
        7,
        note="why, é",
        contract=contract(2),
        rate=2.5,
        evidence=evidence_for(registry, "g1"),
        waiver=Waiver("lag", "known", "ann", 0, 10),
        release=registry.release,
        retain_until_ms=9,
    )
    assert ControlRecord.from_json(full.to_json("here")) == ("here", full)


@pytest.mark.parametrize("broken", [b"", b"[]", b"{}", b'{"format": 1}', b'{"format": 1, "version": "x"}'])
def test_what_is_no_registry_and_no_record_is_told_apart_from_a_later_format(broken: bytes) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        Registry.from_json(broken)
    with pytest.raises(ValueError, match=r"not a control record|Expecting value"):
        ControlRecord.from_json(broken)


def test_a_later_format_is_not_guessed_at() -> None:
    registry = first_registry()
    later = registry.to_json().replace(b'"format":1', b'"format":2')
    with pytest.raises(CorruptionError, match="format 2"):
        Registry.from_json(later)
    step = record(registry, "hold", "g1", note="x").to_json("here").replace(b'"format":1', b'"format":2')
    with pytest.raises(CorruptionError, match="format 2"):
        ControlRecord.from_json(step)


def test_a_registry_that_serves_what_it_does_not_hold_or_has_an_unknown_state_is_corrupt() -> None:
    registry = first_registry()
    for broken in (
        registry.to_json().replace(b'"generation":"g1"', b'"generation":"g7"'),
        registry.to_json().replace(b'"state":"serving"', b'"state":"sleeping"'),
    ):
        with pytest.raises(CorruptionError):
            Registry.from_json(broken)


def test_the_first_registry_is_the_same_whoever_makes_it() -> None:
    assert first_registry().to_json() == first_registry().to_json()
    assert isinstance(first_registry().serving, Generation)
    assert first_registry().written == ("g1",)


def test_only_the_generation_of_the_release_before_can_be_rolled_back_to() -> None:
    first = first_registry()
    registry = replace(first, previous=replace(first.release, release="r0", generation="g0"))
    assert "rollback" in when_retired(registry, "g0")
    assert "not served again" in when_retired(registry, "g00")
    assert all("`tessera generation contract" in when_retired(registry, name) for name in ("g0", "g00"))

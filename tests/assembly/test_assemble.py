from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.assembly.assemble import assemble
from tessera.assembly.assembly import ASSEMBLIES, JOINED, SECTIONS, SENTENCES, Assembly, assembly_named
from tessera.assembly.passage import Context, Passage
from tessera.errors import CorruptionError, SettingsError
from tessera.policies import ChunkPolicy, TextPolicy, token_windows

SOURCES = {
    "h/a": "One two three. Four five six. Seven eight nine.\n\nTen eleven twelve. Thirteen fourteen.\n",
    "h/b": "# Alpha\n\nBeta gamma. Delta epsilon.\n\n# Zeta\n\nEta theta iota.\n",
}
SENTENCE_RULE = TextPolicy("sentence", size=6, overlap=3)
POLICIES = {
    "sentence": ChunkPolicy("s", documents=SENTENCE_RULE),
    "paragraph": ChunkPolicy("p"),
    "window": ChunkPolicy("w", documents=TextPolicy("window", size=4, overlap=1)),
}


def words(text: str) -> int:
    return len(re.findall(r"\w+", text))


def hits(policy: ChunkPolicy, scores: list[float]) -> list[Passage]:
    """All chunks of the sources with these scores by turns, the best first."""
    found = []
    for key, text in SOURCES.items():
        for chunk in policy.chunk(text, "d"):
            blank = re.compile(r"[ \t\r\n]*").match(text, chunk.end)
            assert blank is not None
            score = scores[len(found) % len(scores)]
            found.append(
                Passage(key, f"{key}#{chunk.id}", chunk.start, chunk.end, score, chunk.text, blank[0])
            )
    return sorted(found, key=lambda hit: (-hit.score, hit.key, hit.start))


def texts(context: Context) -> list[str]:
    return [piece.text for piece in context.pieces]


def passage(start: int, text: str, score: float, key: str = "h/a", after: str = "") -> Passage:
    return Passage(key, f"{key}:{start}", start, start + len(text), score, text, after)


def test_neighbours_are_joined_and_what_chunks_share_counts_once() -> None:
    first = passage(0, "One two. Three four.", 2.0)
    second = passage(9, "Three four. Five six.", 1.0, after="\n\n")
    third = passage(32, "Seven.", 0.5)
    context = assemble(JOINED, [first, second, third], 100, words)
    assert texts(context) == ["One two. Three four. Five six.\n\nSeven."]
    assert (context.used, context.left_out, context.pieces[0].score) == (7, (), 2.0)
    assert context.pieces[0].uids == ("h/a:0", "h/a:9", "h/a:32")
    assert assemble(JOINED, [first, replace(second, after="")], 6, words).used == 6


def test_hits_that_would_pass_the_budget_are_left_out() -> None:
    parts = ("One two.", "Three four five six.", "Seven.")
    found = [passage(50 * number, text, 3.0 - number) for number, text in enumerate(parts)]
    context = assemble(JOINED, found, 5, words)
    assert (texts(context), context.left_out) == (["One two.", "Seven."], ("h/a:50",))
    assert context.utilization == 3 / 5


def test_pieces_stand_in_the_order_of_the_text_or_of_their_scores() -> None:
    found = [passage(90, "Last.", 3.0), passage(0, "Other.", 2.0, "h/b"), passage(0, "First.", 1.0)]
    assert texts(assemble(JOINED, found, 9, words)) == ["First.", "Last.", "Other."]
    assert texts(assemble(replace(JOINED, order="score"), found, 9, words)) == ["Last.", "Other.", "First."]


def test_a_sentence_is_worth_the_mean_of_all_chunks_that_hold_it() -> None:
    found = [passage(0, "A one. B two.", 4.0), passage(7, "B two. C three.", 3.0)]
    everything = replace(SENTENCES, floor=0.0, ceiling=0.0)
    # A 4.0, B 3.5, C 3.0: the first two fit.
    assert texts(assemble(everything, found, 4, words)) == ["A one. B two."]
    # Another chunk that is no hit holds A as well and halves its worth: B and C come first.
    others = {"h/a": [(0, 6)]}
    assert texts(assemble(everything, found, 4, words, others)) == ["B two. C three."]


def test_what_is_worth_less_than_the_floor_is_left_out() -> None:
    found = [passage(0, "A one.", 4.0), passage(50, "B two.", 1.9), passage(90, "C three.", 2.0)]
    context = assemble(replace(SENTENCES, floor=0.5, ceiling=0.5), found, 100, words)
    assert (texts(context), context.left_out) == (["A one.", "C three."], ("h/a:50",))


def test_the_fuller_the_context_the_more_a_sentence_must_be_worth() -> None:
    found = [passage(50 * number, f"W{number} x.", 4.0 - number) for number in range(4)]
    rising = replace(SENTENCES, floor=0.0, ceiling=1.0)
    # Worth 4, 3, 2, 1 of the best 4, with 0, 2, 4, 6 tokens used.
    assert texts(assemble(rising, found, 8, words)) == ["W0 x.", "W1 x.", "W2 x."]
    assert texts(assemble(rising, found, 6, words)) == ["W0 x.", "W1 x."]
    assert len(texts(assemble(rising, found, 100, words))) == 4


def test_only_so_many_hits_are_looked_at() -> None:
    found = [passage(10 * number, f"W{number}.", 9.0 - number) for number in range(5)]
    assert texts(assemble(replace(JOINED, hits=2), found, 100, words)) == ["W0.", "W1."]


def sections(*leads: Passage, of: list[Passage]) -> dict[str, list[Passage]]:
    return {hit.uid: list(leads) for hit in of}


def test_what_leads_a_section_is_added_where_two_pieces_come_from_it_and_it_fits() -> None:
    inner, outer = passage(10, "# Inner lead", 0.0), passage(0, "# Out", 0.0)
    two = [passage(90, "Last one.", 3.0), passage(60, "First.", 1.0)]
    both = sections(inner, outer, of=two)
    assert texts(assemble(SECTIONS, two, 9, words, leads=both)) == [
        "# Out",
        "# Inner lead",
        "First.",
        "Last one.",
    ]
    # The inner one goes first; the outer one still fits where that does not.
    assert texts(assemble(SECTIONS, two, 5, words, leads=both)) == ["# Inner lead", "First.", "Last one."]
    assert texts(assemble(SECTIONS, two, 4, words, leads=both)) == ["# Out", "First.", "Last one."]
    assert texts(assemble(SECTIONS, two, 3, words, leads=both)) == ["First.", "Last one."]
    assert texts(assemble(SECTIONS, two[:1], 9, words, leads=both)) == ["Last one."]
    assert texts(assemble(JOINED, two, 9, words, leads=both)) == ["First.", "Last one."]
    added = assemble(SECTIONS, two, 9, words, leads=both).pieces[0]
    assert (added.uids, added.score) == (("h/a:0",), 0.0)


def test_chunks_that_join_are_one_piece_of_their_section_and_a_lead_joins_what_it_touches() -> None:
    lead = passage(0, "# Lead", 0.0, after="\n\n")
    near = [passage(8, "One.", 3.0, after=" "), passage(13, "Two.", 2.0)]
    assert texts(assemble(SECTIONS, near, 9, words, leads=sections(lead, of=near))) == ["One. Two."]
    far = [*near, passage(60, "Far.", 1.0)]
    context = assemble(SECTIONS, far, 9, words, leads=sections(lead, of=far))
    assert texts(context) == ["# Lead\n\nOne. Two.", "Far."]
    assert (context.used, context.pieces[0].score, context.left_out) == (4, 3.0, ())


def test_a_lead_that_was_left_out_as_a_hit_may_still_lead() -> None:
    big, lead = passage(200, "a b c d e f g h", 1.5), passage(0, "Lead.", 1.0)
    found = [passage(60, "One.", 3.0), passage(90, "Two.", 2.0), big, lead]
    context = assemble(SECTIONS, found, 5, words, leads=sections(lead, of=found))
    assert texts(context) == ["Lead.", "One.", "Two."]
    assert context.left_out == ("h/a:200",)


@settings(max_examples=200, deadline=None)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    scores=st.lists(st.floats(0, 9), min_size=1, max_size=7),
    budget=st.integers(1, 40),
    assembly=st.sampled_from(
        [
            JOINED,
            SENTENCES,
            replace(SENTENCES, floor=0.0, ceiling=1.0, hits=3),
            replace(JOINED, order="score", hits=4),
        ]
    ),
    measure=st.sampled_from([words, len]),
)
def test_pieces_are_verbatim_disjoint_and_within_the_budget(
    policy: str, scores: list[float], budget: int, assembly: Assembly, measure: Callable[[str], int]
) -> None:
    found = hits(POLICIES[policy], scores)
    context = assemble(assembly, found, budget, measure)
    assert context == assemble(assembly, found, budget, measure)
    assert context.used == sum(measure(piece.text) for piece in context.pieces) <= budget
    for piece in context.pieces:
        assert piece.text == SOURCES[piece.key][piece.start : piece.end]
    for key in SOURCES:
        spans = sorted((piece.start, piece.end) for piece in context.pieces if piece.key == key)
        assert all(end < start for (_, end), (start, _) in pairwise(spans))
    used = {uid for piece in context.pieces for uid in piece.uids}
    assert used | {*context.left_out} == {hit.uid for hit in found[: assembly.hits]}
    assert not used & {*context.left_out}


def slow_joined(found: list[Passage], text: str, budget: int, measure: Callable[[str], int]) -> list[str]:
    """The pieces of one document, each hit taken where all that would then be there is within the budget."""
    taken: set[int] = set()
    pieces: list[str] = []
    for hit in found:
        held = {*taken, *range(hit.start, hit.end)}
        shown = "".join(each if at in held else "\0" for at, each in enumerate(text))
        for gap in re.finditer("\0+", shown):
            blank = text[gap.start() : gap.end()]
            inner = gap.start() > 0 and gap.end() < len(text)
            if inner and not blank.strip():
                shown = shown[: gap.start()] + blank + shown[gap.end() :]
        whole = [piece for piece in re.split("\0+", shown) if piece]
        if sum(map(measure, whole)) <= budget:
            taken, pieces = held, whole
    return pieces


@settings(max_examples=400, deadline=None)
@given(
    text=st.text("ab_é \n.終", min_size=2, max_size=40),
    spans=st.lists(st.tuples(st.integers(0, 39), st.integers(1, 12)), min_size=1, max_size=9),
    budget=st.integers(1, 20),
    measure=st.sampled_from([words, len]),
)
def test_what_fits_is_what_a_slow_model_says_wherever_hits_begin_and_end(
    text: str, spans: list[tuple[int, int]], budget: int, measure: Callable[[str], int]
) -> None:
    places = {
        (start, min(start + size, len(text))) for start, size in spans if text[start : start + size].strip()
    }
    found = [
        passage(start, text[start:end], 1.0, after=text[end : len(text) - len(text[end:].lstrip())])
        for start, end in sorted(places, key=lambda place: hash((place, text)))
    ]
    found = [replace(hit, uid=f"{number}") for number, hit in enumerate(found)]
    context = assemble(JOINED, found, budget, measure)
    assert texts(context) == slow_joined(found, text, budget, measure)
    assert context.used == sum(map(measure, texts(context)))


def test_a_piece_of_many_sentences_is_not_measured_anew_for_each() -> None:
    text = " ".join(f"Sentence number {number}." for number in range(2000))
    measured = 0

    def measure(part: str) -> int:
        nonlocal measured
        measured += len(part)
        return words(part)

    context = assemble(SENTENCES, [passage(0, text, 1.0)], 100_000, measure)
    assert texts(context) == [text]
    assert measured < 3 * len(text)


def test_no_hits_make_an_empty_context_and_a_budget_of_nothing_is_refused() -> None:
    assert assemble(SENTENCES, [], 10, words) == Context((), 0, 10, ())
    with pytest.raises(ValueError, match="a budget is 1 or more, not 0"):
        assemble(JOINED, [], 0, words)


@pytest.mark.parametrize("name", ASSEMBLIES)
def test_an_assembly_keeps_its_values_in_a_release(name: str) -> None:
    assembly = assembly_named(name)
    assert Assembly.from_value(assembly.to_value()) == assembly
    plain, colon, order = name.partition(":")
    assert assembly.id == f"{plain}@1{colon}{order}"
    assert assembly.order == (order or "source")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "other"}, "'other' revision 1 is not known .* joined revision 1, sections revision 1"),
        ({"revision": 2}, "'joined' revision 2 is not known"),
        ({"hits": 0}, "hits=0"),
        ({"floor": 0.5}, "floor=0.5, ceiling=0.0"),
        ({"ceiling": 1.5}, "ceiling=1.5"),
        ({"floor": float("nan")}, "floor=nan"),
        ({"order": "size"}, "no order 'size'"),
        ({"parents": -1}, "parents >= 0"),
    ],
)
def test_an_assembly_this_build_does_not_know_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(CorruptionError, match=message):
        Assembly.from_value({**JOINED.to_value(), **changed})
    with pytest.raises(
        SettingsError, match="there is no assembly 'other'; there are joined, sections, sentences"
    ):
        assembly_named("other")


def test_windows_of_tokens_are_cut_as_this_test_assumes() -> None:
    assert token_windows(7, 4, 1) == [(0, 4), (3, 7)]

"""The report of every audit: its JSON is the one of old, its texts are inert, its page is whole."""

import dataclasses
import html
import html.parser
import json
import math
import pathlib
import re

import numpy as np
import pytest

from dvrenyi_plugin.audits.samplers.sections import (
    Utility,
    certificate_section,
    utility_section,
)
from dvrenyi_plugin.audits.training.sections import observation_sections
from dvrenyi_plugin.flows.certificate import Certificate
from dvrenyi_plugin.reports.claims import ClaimReport, DirectionReport, TestedLevel
from dvrenyi_plugin.reports.files import REPORT_FILES, write_report
from dvrenyi_plugin.reports.model import AuditReport, Section
from dvrenyi_plugin.reports.pictures import DrawnPicture, Gallery
from dvrenyi_plugin.reports.sequential_outcome import EvidencePath, SequentialOutcome
from dvrenyi_plugin.reports.text import Table
from dvrenyi_plugin.testers.base import BoundResult

STORED = pathlib.Path(__file__).parent
HOSTILE = "# <script>alert(1)</script>|`x`\x1b[31m\u202e\n# [a](javascript:b) <img src=//c>"
# As in the stored documents.
PATH = "<b>|`\x1b[31m\u202e"
CANARY_DIRECTIONS = ("with over without canary", "without over with canary")
VERSIONS = {"dvrenyi_plugin": "0", "python": "3"}


def bound(lower, estimate, alpha=2.0, threshold=0.5, failure_probability=0.0125, fewest=None):
    return BoundResult(
        lower_bound=lower,
        point_estimate=estimate,
        claimed_limit=threshold,
        refuted=lower > threshold,
        failure_probability=failure_probability,
        method="made up",
        alpha=alpha,
        num_fit=(4, 5),
        num_certify=(6, 7),
        seed=11,
        fewest_samples=fewest,
        critic_range=(-1.0, math.inf),
        details={"nan": math.nan, "counts": np.arange(2), "rate": np.float64(0.25)},
    )


def dp_sgd(sequential=None):
    first = bound(0.25, 0.75, failure_probability=0.025, fewest=100.0)
    second = bound(0.125, math.nan, failure_probability=0.025)
    without, with_canary = np.linspace(1.0, 2.0, 21), np.linspace(0.5, 1.25, 21) ** 2
    directions = tuple(map(DirectionReport, CANARY_DIRECTIONS, (first, second)))
    return AuditReport(
        title="Privacy audit of DP-SGD",
        claims=(ClaimReport(TestedLevel(2.0, 0.5, 0.7), directions),),
        num_samples=without.size,
        unit="models",
        sections=observation_sections(without, with_canary, noise_free_shift=-0.5, claimed_mu=0.7),
        failure_probability=0.05,
        seed=3,
        seconds={"training": 1.5, "wall": 2.5},
        settings={
            "dataset": "digits",
            "claims": {"delta": 1e-5, "none": None},
            "widths": [1, 2],
            "path": PATH,
        },
        notes=("a weak canary",),
        sequential=sequential,
        versions=VERSIONS,
    )


def sequential():
    paths = tuple(map(EvidencePath, CANARY_DIRECTIONS, ((0.5, 1.5), (0.0, -0.5)), (3.5, 3.5)))
    return dp_sgd(SequentialOutcome("futile", (10, 21), 40, paths, None, 2.0, 0.05))


def sampler():
    claims = tuple(
        ClaimReport(
            TestedLevel(alpha, epsilon),
            (
                DirectionReport("dataset1 over dataset2", bound(lower, 0.3, alpha, epsilon)),
                DirectionReport("dataset2 over dataset1", bound(lower / 2, 0.2, alpha, epsilon)),
            ),
            "a theorem",
            (exact, exact / 2),
        )
        for alpha, epsilon, exact, lower in ((2.0, 0.5, 0.25, 0.125), (4.0, 0.75, 0.5, 0.25))
    )
    return AuditReport(
        title="Privacy audit of a sampler",
        claims=claims,
        failure_probability=0.05,
        num_samples=1000,
        unit="releases",
        seed=5,
        seconds={"wall": 2.5},
        sections=(
            certificate_section(Certificate(1.5, 0.5, 1.0, 2.0), (2.0, 4.0)),
            utility_section(Utility(0.5, 0.25, 1.5)),
        ),
        settings={"mechanism": "shk", "cells": 64},
        versions=VERSIONS,
    )


REPORTS = {"dp_sgd": dp_sgd, "sequential": sequential, "sampler": sampler}


def with_hostile_text(report):
    """The report with hostile text wherever a user's own can come in."""
    claims = tuple(
        dataclasses.replace(
            claim,
            claim_source=HOSTILE,
            directions=tuple(
                DirectionReport(HOSTILE, dataclasses.replace(entry.bound, method=HOSTILE))
                for entry in claim.directions
            ),
        )
        for claim in report.claims
    )
    section = Section(
        HOSTILE,
        paragraphs=(HOSTILE,),
        table=Table((HOSTILE, "b"), [(HOSTILE, 1)]),
        summary=((f"name {HOSTILE}", HOSTILE),),
    )
    return dataclasses.replace(
        report,
        title=HOSTILE,
        claims=claims,
        sections=(*report.sections, section),
        settings={HOSTILE: HOSTILE, "by name": {HOSTILE: [HOSTILE]}},
        notes=(HOSTILE,),
        versions={HOSTILE: HOSTILE},
    )


HOSTILE_GALLERY = Gallery(
    (DrawnPicture("bound.png", HOSTILE, b"not drawn"),), {"losses.png": HOSTILE}
)


class Page(html.parser.HTMLParser):
    """Reads a page, and fails where a tag is not closed or closed twice."""

    VOID = ("meta", "img", "br", "wbr")

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.loaded, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.mark.parametrize("name", REPORTS)
def test_json_is_what_it_was_before_there_was_one_model(name):
    before = json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    document = json.loads(REPORTS[name]().to_json())
    # New for samplers: nothing stops their audits early so far.
    assert document.keys() == before.keys() | {"sequential"}
    for key, value in before.items():
        assert rounded(document[key]) == rounded(value), key


def rounded(value):
    """The value with numbers to ten digits: the last bits are the machine's."""
    if isinstance(value, dict):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.10g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_is_whole_and_loads_nothing(name):
    report = REPORTS[name]()
    gallery = Gallery(
        (DrawnPicture("bound.png", "The bound", b"content"),), {"losses.png": "no ink"}
    )
    page = Page(report.to_html(gallery))
    assert page.loaded == ["data:image/png;base64,Y29udGVudA=="]
    for words in (
        report.title,
        report.verdict(),
        report.claim.describe(),
        f"certified lower bound {report.lower_bound:.4g} (failure probability 0.05)",
        "The bound",
        "losses.png could not be drawn: no ink.",
        *(entry.bound.method for entry in report.directions),
        *(section.title for section in report.sections),
    ):
        assert words in page.text, words
    assert page.tags.count("h1") == page.tags.count("title") == 1


@pytest.mark.parametrize("name", REPORTS)
def test_markdown_and_page_have_the_same_words(name):
    report = REPORTS[name]()
    body = re.sub("(?s)<head>.*</head>", "", report.to_html())
    both = Page(body).text, html.unescape(report.to_markdown())
    words = [re.sub(r"\W|_", "", text) for text in both]
    assert words[0] == words[1] != ""


@pytest.mark.parametrize("name", REPORTS)
def test_hostile_text_is_inert_in_the_page(name):
    page = Page(with_hostile_text(REPORTS[name]()).to_html(HOSTILE_GALLERY))
    assert "script" not in page.tags
    assert page.tags.count("img") == 1 and page.loaded[0].startswith("data:")
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in page.text and "\u202e" not in page.text


@pytest.mark.parametrize("name", REPORTS)
def test_hostile_text_is_inert_in_markdown(name):
    plain = REPORTS[name]().to_markdown()
    text = with_hostile_text(REPORTS[name]()).to_markdown(HOSTILE_GALLERY)
    assert "\x1b" not in text and "\u202e" not in text
    assert not re.search(r"<\w", text)
    assert not re.search(r"(?<!\\)\]\(", text.replace("](bound.png)", ""))
    # One title, and one heading for the section that was added.
    assert len(re.findall("^# ", text, flags=re.MULTILINE)) == 1
    headings = [len(re.findall("^## ", one, flags=re.MULTILINE)) for one in (plain, text)]
    assert headings[1] == headings[0] + 1


@pytest.mark.parametrize("name", REPORTS)
def test_hostile_text_is_inert_on_the_terminal(name):
    report = REPORTS[name]()
    text = with_hostile_text(report).summary()
    assert "\x1b" not in text and "\u202e" not in text
    assert len(text.splitlines()) == len(report.summary().splitlines()) + 1 + (not report.notes)


def test_the_summary_begins_with_claim_estimate_bound_and_verdict():
    names = [line.split("  ")[0] for line in sequential().summary().splitlines()]
    assert names[:5] == [
        *("claim", "point estimate", "certified lower bound", "verdict", "separation")
    ]
    assert names[5:] == ["stopped", "note"]


def test_the_claim_of_which_most_is_certified_decides():
    report = sampler()
    assert report.claim.alpha == 4.0
    assert (report.lower_bound, report.point_estimate, report.exact_divergence) == (0.25, 0.3, 0.5)
    assert not report.refuted
    refuted = dataclasses.replace(
        report.claims[0],
        directions=(DirectionReport("dataset1 over dataset2", bound(0.6, 0.7)),),
        exact_divergences=(0.7,),
    )
    report = dataclasses.replace(report, claims=(refuted, report.claims[1]))
    assert report.refuted and report.claim.alpha == 2.0 and "REFUTED" in report.to_html()


def test_too_few_samples_are_noted_once():
    few = bound(0.0, math.nan, fewest=5000.0)
    claims = (ClaimReport(TestedLevel(None, 0.5), (DirectionReport("one", few),)),)
    report = dataclasses.replace(sampler(), claims=claims)
    again = dataclasses.replace(report, title="another")
    assert report.notes == again.notes
    (note,) = report.notes
    assert note.startswith("1000 releases per dataset are too few") and "at least 5,000" in note
    assert report.exact_divergence is None
    assert "claims" not in report.document()


def test_files_are_written_and_the_page_holds_its_pictures(tmp_path):
    report = sequential()
    observations = {"without_canary": np.zeros((3, 1))}
    write_report(report, observations, [], str(tmp_path))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*REPORT_FILES, "evidence.png"}
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [link[:14] for link in page.loaded] == ["data:image/png"] * 2
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "(bound.png)" in markdown and "(evidence.png)" in markdown
    assert (tmp_path / "report.json").read_text(encoding="utf-8") == report.to_json()
    with np.load(tmp_path / "observations.npz") as arrays:
        assert arrays["without_canary"].shape == (3, 1)

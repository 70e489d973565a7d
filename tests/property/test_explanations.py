"""Properties of explanations among findings: no circles, and each chain ends at an independent cause."""

from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.diagnosis.detectors import DETECTORS
from backend.analysis.diagnosis.diagnose import CONSEQUENCES, rank_causes
from backend.analysis.diagnosis.findings import Finding
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.outcome import Interval


def finding(cause, first, length, tier):
    return Finding(cause, cause, Interval(first, first + length), tier, 0.5, 1.0, ("said",), ("metric",))


CIRCULAR_CAUSES = ("repetition", "broken_format", "length_blowup")


def draw_findings(causes):
    findings = st.builds(
        finding,
        st.sampled_from(causes),
        st.integers(0, 12),
        st.integers(0, 4),
        st.sampled_from(["specific", "consistent"]),
    )
    return st.lists(findings, unique_by=lambda finding: finding.cause)


@given(draw_findings(list(DETECTORS)) | draw_findings([*CIRCULAR_CAUSES, "update_size"]), st.floats(5, 20))
def test_every_explanation_leads_to_an_independent_cause(findings, width):
    explanation_by_cause = {
        cause.finding.cause: cause.explained_by for cause in rank_causes(findings, {}, Log({}), width)
    }
    assert explanation_by_cause.keys() == {given_finding.cause for given_finding in findings}
    for cause in explanation_by_cause:
        chain = [cause]
        while explanation_by_cause[chain[-1]]:
            assert chain[-1] in CONSEQUENCES[explanation_by_cause[chain[-1]]]
            chain.append(explanation_by_cause[chain[-1]])
            assert len(chain) <= len(findings)


def test_a_circle_of_effects_ends_at_its_beginning():
    findings = [
        finding("update_size", 21, 1, "specific"),
        finding("repetition", 22, 3, "specific"),
        finding("broken_format", 22, 2, "specific"),
        finding("length_blowup", 23, 3, "specific"),
    ]
    explanation_by_cause = {
        cause.finding.cause: cause.explained_by for cause in rank_causes(findings, {}, Log({}), 5.0)
    }
    effects = dict.fromkeys(CIRCULAR_CAUSES, "update_size")
    assert explanation_by_cause == {"update_size": "", **effects}
    explanation_by_cause = {
        cause.finding.cause: cause.explained_by for cause in rank_causes(findings[1:], {}, Log({}), 5.0)
    }
    assert [cause for cause, explaining_causes in explanation_by_cause.items() if not explaining_causes] == [
        "broken_format"
    ]

"""All claims by key, in the order in which they are trained: cheap and telling ones first."""

from benchmarks.evidence.claim import Claim
from benchmarks.evidence.first_round import FIRST
from benchmarks.evidence.pilots import PILOTS
from benchmarks.evidence.second_round import SECOND

CLAIMS: dict[str, Claim] = FIRST | PILOTS | SECOND

"""The knobs of the objective: one discriminated union on `type` for each place where methods differ.

A member exists only where `worker/objective` computes it. Every field says its range, unit and
source; this text is also the API's schema and the help beside the browser form.
"""

from backend.config.knobs.advantage import *
from backend.config.knobs.kl import *
from backend.config.knobs.off_policy import *
from backend.config.knobs.ratio import *
from backend.config.knobs.surrogate import *
from backend.config.knobs.terms import *
from backend.config.knobs.tokens import *

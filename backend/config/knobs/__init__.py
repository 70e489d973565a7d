"""The knobs of the objective, each a union with the discriminator `type` of the options that methods use.

All options are implemented in `worker/objective`. The docstrings of fields, with ranges, units and sources,
are also shown in the API's schema and in the browser form.
"""

from backend.config.knobs.advantage import *
from backend.config.knobs.kl import *
from backend.config.knobs.off_policy import *
from backend.config.knobs.ratio import *
from backend.config.knobs.surrogate import *
from backend.config.knobs.terms import *
from backend.config.knobs.tokens import *

"""The rules by which anchors classify texts, and the choice of one by leave-one-out: states in, a rule out."""

from knnprompt_jax.rules.choice import Choice
from knnprompt_jax.rules.choosing import Grid, Sample, choose
from knnprompt_jax.rules.rule import FittedRule, Rule, probe_inputs
from knnprompt_jax.rules.sampling import ranked, sample

__all__ = ["Choice", "FittedRule", "Grid", "Rule", "Sample", "choose", "probe_inputs", "ranked", "sample"]

"""Query language of lists of runs: `preset in (dapo, grpo) and eval/accuracy > .5 and not tag = old`."""

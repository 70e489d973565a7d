"""The query language for runs, such as `preset in (dapo, grpo) and eval/accuracy > .5 and not tag = old`."""

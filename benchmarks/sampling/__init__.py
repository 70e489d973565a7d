"""The trainer's sampler beside transformers' own ways to generate."""

"""The schema of a run's config, shared by the API, the browser form and the trainer."""

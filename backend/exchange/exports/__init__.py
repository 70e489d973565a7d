"""Ways out of the lab for a trained model: export with a model card, the hub, a server."""

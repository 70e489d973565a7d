"""Generate parts of docs/ and the types of the frontend: `python -m backend.service.docs`."""

"""Generated parts of docs/ and of the frontend's types: `python -m backend.service.docs`."""

"""Archives of whole runs, made by another installation."""

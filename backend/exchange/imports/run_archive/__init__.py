"""Import the archives of whole runs from another installation."""

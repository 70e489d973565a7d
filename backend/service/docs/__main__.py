"""Write the generated tables of docs/ and frontend/types/api.d.ts."""

from backend.service.docs import api_types, pages

if __name__ == "__main__":
    pages.main()
    api_types.main()

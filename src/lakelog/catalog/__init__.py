"""Iceberg tables of topics: where they are kept, and how files are added to them."""

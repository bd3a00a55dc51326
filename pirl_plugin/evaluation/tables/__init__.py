"""The paper's tables: its figures and settings, and the finished runs that belong to them."""

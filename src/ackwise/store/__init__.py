"""Stores: the port, the code that both databases share, and the SQLite and PostgreSQL stores."""

"""Rows and verdicts in; figures and documents out. No torch here."""

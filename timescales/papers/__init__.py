"""Printed tables and claims, and what our runs say of them."""

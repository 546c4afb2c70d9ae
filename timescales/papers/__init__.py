"""Printed tables and conclusions, and what our runs say of them."""

"""Run untrusted programs in bounded, isolated processes."""

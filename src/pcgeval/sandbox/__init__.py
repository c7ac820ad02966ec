"""Run untrusted programs in bounded, isolated processes. It knows no competition and no model."""

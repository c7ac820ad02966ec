"""Ask language models: one protocol, the servers that speak it, and the log of calls. It knows no submission."""

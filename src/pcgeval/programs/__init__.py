"""Running submissions: from a program or a prompt to one response a trial."""

"""Where results come from: the audit walks from the ranking back to every input and checks that nothing was altered."""

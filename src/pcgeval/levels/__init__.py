"""From a model's response to a level: the calls in its text, the blocks they drop, the XML. It simulates nothing."""

"""Context assembly: from hits to what a reader is given, within a budget; and quotes checked against it."""

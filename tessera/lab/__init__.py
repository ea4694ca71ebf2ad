"""The policy lab: chunk policies judged by the evidence they keep whole."""

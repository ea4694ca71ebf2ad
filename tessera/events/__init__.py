"""Change events: what a source says happened to one of its documents."""

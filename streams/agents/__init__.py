"""One agent per change topic, so that slow logs never hold documents back."""

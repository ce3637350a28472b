"""The scheduler: admits, plans, places, stripes query tiles, relays and reduces, watches workers and repairs. It computes nothing itself."""

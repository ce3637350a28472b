"""The scheduler: admits, plans, places, stripes query tiles, relays and reduces, watches workers, repairs. It computes no network."""

"""petctl sweep: its words (points.py), its verbs (verbs.py), how it looks (show.py)."""

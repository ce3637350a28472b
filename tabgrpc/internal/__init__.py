"""Generated from proto/; see tools/generate_protos.py."""

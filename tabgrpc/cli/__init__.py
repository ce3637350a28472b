"""The command line, one file a command; `app.main` is what `tabgrpc` runs.
Nothing heavy is imported before a command needs it: `tabgrpc --help` loads no torch, no grpc and no pandas."""

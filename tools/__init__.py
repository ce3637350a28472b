"""Tools of the repository that are not installed: today, the training of the packaged checkpoints.
Run as modules from the root, for example `python -m tools.pretrain.evaluate`."""

"""Training of the packaged `mini` checkpoints: the prior, the network's training forward, the loop and the evaluation.
Not part of the installed package; README.md beside this says how to run it."""

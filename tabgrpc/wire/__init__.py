"""What goes over sockets: arrays as frames (``codec``), channel arguments (``channels``), errors as codes and back (``errors``).

No torch here: the client imports it.
"""

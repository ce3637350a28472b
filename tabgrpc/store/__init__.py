"""Models on disk, format 1: a directory of immutable tile files and one ``manifest.json``, replaced atomically.

``tiles`` is what workers write and read (torch), ``model`` the directory and its manifest (no torch).
"""

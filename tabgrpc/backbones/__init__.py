"""What a backbone must offer to the executor (``protocol``), and TabICL, the first one (``tabicl``).

``tabicl.py`` and ``tabicl_members.py`` are the only files that touch tabicl's private modules.
"""

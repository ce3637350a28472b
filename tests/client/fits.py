"""Counts fits."""

from __future__ import annotations

from typing import Any

import pytest

from tabgrpc.client import Client
from tabgrpc.v1 import models_pb2 as pb


class Fits:
    """Counts the fits of a pool's connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = Client.fit

        def counted(client: Client, *args: Any, **more: Any) -> pb.Model:
            self.count += 1
            return real(client, *args, **more)

        monkeypatch.setattr(Client, "fit", counted)

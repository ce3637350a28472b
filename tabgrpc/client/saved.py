"""A fitted estimator in one file: a plain archive of JSON, an Arrow table and the model's own files. Nothing in it is code."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import warnings
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import json_format

import tabgrpc
from tabgrpc.client.features import Features
from tabgrpc.client.fitted import NAME, FittedModel
from tabgrpc.data.target import dtype_name
from tabgrpc.v1 import models_pb2 as pb
from tabgrpc.wire.errors import NotReady

FORMAT = 1
_HEADER, _TABLE, _MODEL, _WEIGHTS = "estimator.json", "table.arrow", "model/", "checkpoint/"
_MEMBER = re.compile(r"(model|checkpoint)(/[A-Za-z0-9_][A-Za-z0-9._-]*)+")


@dataclass(frozen=True)
class Saved:
    """What a file holds. model: bound to no pool yet. checkpoint: name and SHA-256 of the weights that it was fitted with."""

    path: Path
    parameters: dict[str, Any]
    features: Features
    classes: np.ndarray[Any, Any] | None
    model: FittedModel
    checkpoint: str
    files: tuple[str, ...]

    def serve(self, pool: Any, device: str, store: str | None) -> FittedModel:
        """The model on a pool: from its files where the pool's store can be written, else fitted again. Raises ValueError, NotReady."""
        if any(name.startswith(_MODEL) for name in self.files) and store is not None:
            folder = Path(store) / self.model.name
            unpacked = self._unpack(_MODEL, folder)
            try:
                self.model.load(pool, device)
            except BaseException:
                if unpacked:
                    shutil.rmtree(folder, ignore_errors=True)
                raise
        elif self.model.data is not None:
            self.model.fit(pool, device)
        else:
            raise NotReady(f"{self.path} has no training data, and a model's files can be loaded into a pool of this process only")
        if self.model.served.checkpoint.split()[-1] != self.checkpoint.split()[-1]:
            self.model.release()
            raise ValueError(
                f"{self.path} was fitted with checkpoint {self.checkpoint}, this pool has {self.model.served.checkpoint}; "
                "put the old checkpoint back or fit again"
            )
        return self.model

    def _unpack(self, prefix: str, target: Path) -> bool:
        """Files into a folder that appears whole or, if it is there already, not at all; whether it appeared."""
        if target.exists():
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".loading-") as folder, zipfile.ZipFile(self.path) as archive:
            for name in self.files:
                if name.startswith(prefix):
                    place = Path(folder) / "model" / name.removeprefix(prefix)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with archive.open(name) as source, place.open("xb") as sink:
                        shutil.copyfileobj(source, sink, 1 << 20)
            os.rename(Path(folder) / "model", target)
        return True


def write_saved(
    path: Path,
    estimator: Any,
    features: Features,
    classes: np.ndarray[Any, Any] | None,
    model: FittedModel,
    folder: Path | None,
    with_table: bool,
    with_weights: bool,
) -> None:
    """Writes the archive beside ``path`` and renames it. folder: the model's directory, None to leave it out."""
    header = {
        "format": FORMAT,
        "written_by": f"tabgrpc {tabgrpc.__version__}",
        "class": type(estimator).__name__,
        "parameters": _plain(estimator.get_params(deep=False)),
        "features": asdict(features),
        "classes": None if classes is None else {"dtype": dtype_name(classes), "labels": [_label(each) for each in classes.tolist()]},
        "model": model.name,
        "options": json_format.MessageToDict(model.options),
        "checkpoint": model.served.checkpoint,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(_HEADER, json.dumps(header, indent=1))
                if with_table and model.data is not None:
                    archive.writestr(_TABLE, model.data)
                for each in sorted(folder.rglob("*")) if folder is not None else ():
                    if each.is_file() and not each.is_symlink():
                        archive.write(each, _MODEL + each.relative_to(folder).as_posix())  # type: ignore[arg-type]
                if with_weights:
                    _add_weights(archive, model.options)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _add_weights(archive: zipfile.ZipFile, options: pb.FitOptions) -> None:
    """The checkpoint's files, where they lie on this machine. Those of a name are to be had by it anywhere."""
    if options.checkpoint in ("auto", "mini", "tabicl-v2"):
        return
    found = Path(options.checkpoint)
    if not found.exists():
        raise ValueError(f"save_model_weights=True: {found} is not on this machine")
    for each in [found, *(found.with_suffix(other) for other in (".json", ".safetensors") if found.suffix in (".json", ".safetensors"))]:
        if _WEIGHTS + each.name not in archive.namelist():
            archive.write(each, _WEIGHTS + each.name)


def read_saved(path: Path, wanted: str) -> Saved:
    """Reads and checks the header before anything else. Raises ValueError for another format or class, or a file that isn't whole."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = tuple(archive.namelist())
            header = json.loads(archive.read(_HEADER))
            found = header["format"]
            if found != FORMAT:
                raise ValueError(f"{path} has format {found!r}, this version of tabgrpc ({tabgrpc.__version__}) reads format {FORMAT}")
            if header["class"] != wanted:
                raise ValueError(f"{path} holds a {header['class']}, not a {wanted}")
            if odd := [name for name in names if name not in (_HEADER, _TABLE) and not _MEMBER.fullmatch(name)]:
                raise ValueError(f"{path} is not an estimator of tabgrpc: it holds {odd[0]!r}")
            if not NAME.fullmatch(header["model"]):
                raise ValueError(f"{path} is not an estimator of tabgrpc: {header['model']!r} is not the name of a fit")
            data = archive.read(_TABLE) if _TABLE in names else None
        options = json_format.ParseDict(header["options"], pb.FitOptions())
        features = Features(**{**header["features"], "names": tuple(header["features"]["names"])})
        classes = header["classes"]
        labels = None if classes is None else _labels(classes["labels"], classes["dtype"])
        model = FittedModel(data, options, header["model"])
        saved = Saved(path, header["parameters"], features, labels, model, header["checkpoint"], names)
    except (zipfile.BadZipFile, KeyError, TypeError, json.JSONDecodeError, json_format.ParseError) as error:
        raise ValueError(f"{path} is not an estimator of tabgrpc, or not whole: {error}") from error
    if any(name.startswith(_WEIGHTS) for name in names) and not Path(options.checkpoint).exists():
        _restore_weights(saved)
    return saved


def _restore_weights(saved: Saved) -> None:
    """The weights that came along, beside the file, if those that it was fitted with are gone."""
    folder = saved.path.with_name(f"{saved.path.name}.checkpoint")
    saved._unpack(_WEIGHTS, folder)
    saved.model.options.checkpoint = str(folder.absolute() / Path(saved.model.options.checkpoint).name)
    saved.parameters["model_path"] = saved.model.options.checkpoint


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as JSON; one that has no such form is left at its default, with a warning. The pool is not part of a model."""
    out = {}
    for name, value in parameters.items():
        if name == "pool":
            continue
        value = str(value) if isinstance(value, os.PathLike) or type(value).__name__ == "device" else value
        try:
            out[name] = json.loads(json.dumps(value.item() if isinstance(value, np.generic) else value))
        except TypeError:
            warnings.warn(f"parameter {name} is not saved: {type(value).__name__} has no plain form", UserWarning, stacklevel=4)
    return out


def _label(label: Any) -> Any:
    return {"float": label.hex()} if isinstance(label, float) else label


def _labels(labels: list[Any], dtype: str) -> np.ndarray[Any, Any]:
    plain = [float.fromhex(label["float"]) if isinstance(label, dict) else label for label in labels]
    return np.array(plain, dtype=None if dtype == "str" else dtype)

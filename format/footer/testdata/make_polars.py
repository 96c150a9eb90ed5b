"""Makes polars.parquet, by a writer that is in none of make.py's packages.

    python -m venv venv && venv/bin/pip install polars==1.44.2 && venv/bin/python format/footer/testdata/make_polars.py
"""
import os

import polars as pl

frame = pl.DataFrame({"i": [1, None, 3], "s": ["a", "b", None], "d": [1.5, float("nan"), None], "l": [[1, 2], [], None]})
frame.write_parquet(os.path.join(os.path.dirname(os.path.abspath(__file__)), "polars.parquet"))

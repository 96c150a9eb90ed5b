"""Cuts a Parquet file into several of equal size, so that each engine has a task for each.

usage: split.py FILE TIMES DIRECTORY NUMBER; the file's rows are taken TIMES times.
"""
import os
import sys

import pyarrow as pa
import pyarrow.parquet as pq

table = pq.read_table(sys.argv[1])
column = table.schema.get_field_index("date")
table = table.set_column(column, "date", table["date"].cast(pa.timestamp("us")))
table = pa.concat_tables([table] * int(sys.argv[2]))
number = int(sys.argv[4])
for i in range(number):
    start, end = table.num_rows * i // number, table.num_rows * (i + 1) // number
    pq.write_table(table.slice(start, end - start), os.path.join(sys.argv[3], f"part-{i:02d}.parquet"))

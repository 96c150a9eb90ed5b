"""Compares the partition values of examples/python/firn_writes.py with PyIceberg's, for random values of each type and transform.

usage: texts.py DIRECTORY_OF_THE_MODULE
"""
import base64
import datetime
import decimal
import random
import sys
import uuid

import pyarrow as pa
from pyiceberg.transforms import parse_transform
from pyiceberg.types import BinaryType, DateType, DecimalType, IntegerType, LongType, StringType, TimestampType, TimestamptzType, TimeType, UUIDType

sys.path.insert(0, sys.argv[1])
import firn_writes  # noqa: E402

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1)
R = random.Random(7)


def moment():
    return EPOCH + datetime.timedelta(microseconds=R.randrange(-(10**16), 10**17))


# Of each type: Arrow's, a value, and the value as PyIceberg's transforms take it.
KINDS = {
    IntegerType(): (pa.int32(), lambda: R.randrange(-(2**31), 2**31), lambda v: v),
    LongType(): (pa.int64(), lambda: R.randrange(-(2**63) + 1000, 2**63), lambda v: v),
    StringType(): (pa.string(), lambda: "".join(R.choice("aäß∂𝄞 z") for _ in range(R.randrange(9))), lambda v: v),
    BinaryType(): (pa.binary(), lambda: R.randbytes(R.randrange(9)), lambda v: v),
    DecimalType(9, 2): (pa.decimal128(9, 2), lambda: decimal.Decimal(R.randrange(-(10**9) + 1000, 10**9)).scaleb(-2), lambda v: v),
    DecimalType(38, 10): (pa.decimal128(38, 10), lambda: decimal.Decimal(R.randrange(-(10**37), 10**37)).scaleb(-10, decimal.Context(prec=50)), lambda v: v),
    DateType(): (pa.date32(), lambda: moment().date(), lambda v: (v - EPOCH.date()).days),
    TimeType(): (pa.time64("us"), lambda: moment().time(), lambda v: ((v.hour * 60 + v.minute) * 60 + v.second) * 10**6 + v.microsecond),
    TimestampType(): (pa.timestamp("us"), moment, lambda v: (v - EPOCH) // datetime.timedelta(microseconds=1)),
    TimestamptzType(): (pa.timestamp("us", "UTC"), lambda: moment().replace(tzinfo=UTC), lambda v: (v - EPOCH.replace(tzinfo=UTC)) // datetime.timedelta(microseconds=1)),
    UUIDType(): (pa.uuid(), lambda: uuid.UUID(bytes=R.randbytes(16)), lambda v: v),
}
TRANSFORMS = ["identity", "bucket[16]", "bucket[1000]", "truncate[1]", "truncate[10]", "truncate[7]", "year", "month", "day", "hour", "void"]


def theirs(transform, typ, value):
    result = transform.transform(typ)(value)
    if result is None:
        return None
    if isinstance(result, bytes):
        return base64.b64encode(result).decode()
    if isinstance(result, decimal.Decimal):
        return format(result, "f")
    return transform.to_human_string(typ, result) if not isinstance(result, uuid.UUID) else str(result)


def same_moment(a, b):
    """PyIceberg leaves out a fraction of nothing."""
    return a is not None and b is not None and a.replace(".000000", "") == b.replace(".000000", "")


def main():
    compared = 0
    for typ, (arrow, make, internal) in KINDS.items():
        values = [None] + [make() for _ in range(300)]
        for name in TRANSFORMS:
            transform = parse_transform(name)
            if not transform.can_transform(typ):
                continue
            context = {"partition": [{"name": "p", "source": "v", "transform": name}], "format": "iceberg"}
            # Twice, so that groups have several rows.
            table = pa.table({"v": pa.array(values + values, arrow), "i": range(2 * len(values))})
            seen = {}
            for (text,), rows in firn_writes.partitions(table, context):
                assert text not in seen, f"{typ} {name}: {text} comes twice"
                seen[text] = rows
                for i in rows["i"].to_pylist():
                    v = values[i % len(values)]
                    want = theirs(transform, typ, None if v is None else internal(v))
                    assert text == want or same_moment(text, want), f"{typ} {name} of {v!r}: {text!r}, PyIceberg has {want!r}"
                    compared += 1
            assert sum(r.num_rows for r in seen.values()) == 2 * len(values), f"{typ} {name}: rows are missing"
    print(f"{compared} partition values agree")
    assert compared > 20_000


main()

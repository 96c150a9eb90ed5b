-- Tables that independent readers must read like Firn: every type, every
-- transform, the values on which writers are known to go wrong.
CREATE NAMESPACE lake.suite;

CREATE TABLE lake.suite.all_types (
  id bigint NOT NULL, b boolean, i int, l bigint, f float, d double, dec9 decimal(9,2), dec18 decimal(18,6), dec38 decimal(38,10),
  dt date, tm time, ts timestamp, tstz timestamptz, s string, u uuid, fx fixed(4), bin binary,
  li int[], m map(varchar, bigint), st struct(a int, b varchar), nested struct(x struct(y int, z varchar[]), w map(int, varchar))[]
);
INSERT INTO lake.suite.all_types VALUES
 (1, true, 1, 1, 1.5, 2.5, 1.25, 1.000001, 12345678901234567890.0123456789, '2001-02-03', '12:34:56.789012', '2001-02-03 04:05:06.789012', '2001-02-03 04:05:06.789012+00', 'snow', '123e4567-e89b-12d3-a456-426614174000', '\x01\x02\x03\x04'::blob, '\x00\xFF'::blob, [1,2,3], map{'a': 1, 'b': 2}, {'a': 1, 'b': 'x'}, [{'x': {'y': 1, 'z': ['p','q']}, 'w': map{1: 'one'}}]),
 (2, false, -2147483648, -9223372036854775808, '-infinity'::float, '-infinity'::double, -9999999.99, -999999999999.999999, -9999999999999999999999999999.9999999999, '0001-01-01', '00:00:00', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999+00', '', '00000000-0000-0000-0000-000000000000', '\x00\x00\x00\x00'::blob, ''::blob, [], map{}, {'a': null, 'b': ''}, []),
 (3, true, 2147483647, 9223372036854775807, 'infinity'::float, 'infinity'::double, 9999999.99, 999999999999.999999, 9999999999999999999999999999.9999999999, '9999-12-31', '23:59:59.999999', '9999-12-31 23:59:59.999999', '2262-04-11 23:47:16.854775+00', 'ünïcødé 雪 ❄', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '\xFF\xFF\xFF\xFF'::blob, '\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF'::blob, [null, 5], map{'k': null}, {'a': 7, 'b': null}, [null, {'x': null, 'w': null}]),
 (4, null, null, null, 'nan'::float, 'nan'::double, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null),
 (5, null, 0, 0, 0.0, -0.0, 0, 0, 0, '1970-01-01', '00:00:01', '1970-01-01 00:00:00', '1970-01-01 00:00:00+00', repeat('z', 300), null, null, '\x7F'::blob, [0], null, null, null);

CREATE TABLE lake.suite.by_identity_string (k string, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_string VALUES ('a', 1), ('', 2), (null, 3), ('null', 4), ('a/b', 5), ('a=b', 6), ('50%', 7), ('ü 雪', 8), (' ', 9), ('a+b&c?d#e', 10), ('NULL', 11), ('.', 12), ('..', 13), (repeat('long', 100), 14), ('__HIVE_DEFAULT_PARTITION__', 15), ('new
line', 16), ('''quoted"', 17), ('back\slash', 18), ('a', 19), ('', 20), (null, 21);

CREATE TABLE lake.suite.by_identity_int (k int, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_int VALUES (0, 1), (-1, 2), (null, 3), (2147483647, 4), (-2147483648, 5), (0, 6);
CREATE TABLE lake.suite.by_identity_date (k date, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_date VALUES ('1969-12-31', 1), ('1970-01-01', 2), (null, 3), ('2001-07-01', 4), ('0001-01-01', 5);
CREATE TABLE lake.suite.by_identity_bool (k boolean, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_bool VALUES (true, 1), (false, 2), (null, 3);
CREATE TABLE lake.suite.by_identity_double (k double, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_double VALUES (1.5, 1), ('nan'::double, 2), (null, 3), ('infinity'::double, 4), (-1.5, 5), ('nan'::double, 6);
CREATE TABLE lake.suite.by_identity_decimal (k decimal(10,2), n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_decimal VALUES (1.25, 1), (-0.01, 2), (null, 3), (12345678.90, 4), (0, 5);
CREATE TABLE lake.suite.by_identity_ts (k timestamp, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_ts VALUES ('1969-12-31 23:59:59.999999', 1), ('2001-07-01 00:00:00.5', 2), (null, 3);

CREATE TABLE lake.suite.by_bucket_int (k int, n bigint) PARTITIONED BY (bucket(4, k));
INSERT INTO lake.suite.by_bucket_int SELECT (i - 50)::int, i FROM range(100) t(i);
INSERT INTO lake.suite.by_bucket_int VALUES (null, 1000);
CREATE TABLE lake.suite.by_bucket_string (k string, n bigint) PARTITIONED BY (bucket(8, k));
INSERT INTO lake.suite.by_bucket_string SELECT 'key-' || i, i FROM range(100) t(i);
INSERT INTO lake.suite.by_bucket_string VALUES ('', 1000), (null, 1001), ('雪', 1002);
CREATE TABLE lake.suite.by_bucket_long (k bigint, n bigint) PARTITIONED BY (bucket(16, k));
INSERT INTO lake.suite.by_bucket_long SELECT (i - 50) * 1000000007, i FROM range(100) t(i);
CREATE TABLE lake.suite.by_bucket_date (k date, n bigint) PARTITIONED BY (bucket(4, k));
INSERT INTO lake.suite.by_bucket_date SELECT DATE '1969-12-01' + i::int, i FROM range(60) t(i);
CREATE TABLE lake.suite.by_bucket_ts (k timestamp, n bigint) PARTITIONED BY (bucket(4, k));
INSERT INTO lake.suite.by_bucket_ts SELECT TIMESTAMP '1969-12-31 23:59:59.999990' + to_microseconds(i), i FROM range(60) t(i);
CREATE TABLE lake.suite.by_bucket_decimal (k decimal(12,3), n bigint) PARTITIONED BY (bucket(4, k));
INSERT INTO lake.suite.by_bucket_decimal SELECT ((i - 30) * 1.125)::decimal(12,3), i FROM range(60) t(i);
CREATE TABLE lake.suite.by_bucket_uuid (k uuid, n bigint) PARTITIONED BY (bucket(4, k));
INSERT INTO lake.suite.by_bucket_uuid SELECT md5(i::varchar)::uuid, i FROM range(60) t(i);
INSERT INTO lake.suite.by_bucket_uuid VALUES (null, 1000), ('00000000-0000-0000-0000-000000000000', 1001), ('ffffffff-ffff-ffff-ffff-ffffffffffff', 1002);
CREATE TABLE lake.suite.by_identity_uuid (k uuid, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.by_identity_uuid VALUES ('123e4567-e89b-12d3-a456-426614174000', 1), ('00000000-0000-0000-0000-000000000000', 2), (null, 3), ('ffffffff-ffff-ffff-ffff-ffffffffffff', 4), ('80000000-0000-0000-0000-000000000000', 5), ('123e4567-e89b-12d3-a456-426614174000', 6);
CREATE TABLE lake.suite.nested_uuid (n bigint, s struct(u uuid), l uuid[], m map(varchar, uuid));
INSERT INTO lake.suite.nested_uuid VALUES (1, {'u': '123e4567-e89b-12d3-a456-426614174000'}, ['00000000-0000-0000-0000-000000000000', null], map{'k': 'ffffffff-ffff-ffff-ffff-ffffffffffff'}), (2, null, null, null), (3, {'u': null}, [], map{});

-- Format version 1.
CREATE TABLE lake.suite.version_1 (k string, x double, n bigint) PARTITIONED BY (k) TBLPROPERTIES ('format-version' = '1');
INSERT INTO lake.suite.version_1 VALUES ('a', 1.5, 1), ('', 'nan'::double, 2), (null, null, 3), ('ü 雪/=%', -1.5, 4), ('a', 2.5, 5);
INSERT INTO lake.suite.version_1 VALUES ('a', 0, 6), (null, 1, 7);
CREATE TABLE lake.suite.version_1_month (k timestamp, n bigint) PARTITIONED BY (month(k)) TBLPROPERTIES ('format-version' = '1');
INSERT INTO lake.suite.version_1_month SELECT TIMESTAMP '2001-01-31 23:59:59.999999' + to_days((i * 11)::int), i FROM range(20) t(i);

CREATE TABLE lake.suite.by_truncate_int (k int, n bigint) PARTITIONED BY (truncate(10, k));
INSERT INTO lake.suite.by_truncate_int SELECT (i - 35)::int, i FROM range(70) t(i);
INSERT INTO lake.suite.by_truncate_int VALUES (null, 1000), (-2147483640, 1001), (2147483647, 1002);
CREATE TABLE lake.suite.by_truncate_string (k string, n bigint) PARTITIONED BY (truncate(3, k));
INSERT INTO lake.suite.by_truncate_string VALUES ('abcdef', 1), ('abcxyz', 2), ('ab', 3), ('', 4), (null, 5), ('雪雪雪雪', 6), ('😀😀😀😀', 7), ('a/b/c', 8);
CREATE TABLE lake.suite.by_truncate_decimal (k decimal(9,2), n bigint) PARTITIONED BY (truncate(50, k));
INSERT INTO lake.suite.by_truncate_decimal SELECT ((i - 30) * 0.17)::decimal(9,2), i FROM range(60) t(i);

CREATE TABLE lake.suite.by_year_date (k date, n bigint) PARTITIONED BY (year(k));
INSERT INTO lake.suite.by_year_date SELECT DATE '1968-06-01' + (i * 50)::int, i FROM range(40) t(i);
CREATE TABLE lake.suite.by_month_ts (k timestamp, n bigint) PARTITIONED BY (month(k));
INSERT INTO lake.suite.by_month_ts SELECT TIMESTAMP '1969-10-31 23:59:59.999999' + to_days((i * 11)::int), i FROM range(40) t(i);
INSERT INTO lake.suite.by_month_ts VALUES (null, 1000), ('1969-12-31 23:59:59.999999', 1001), ('1970-01-01 00:00:00', 1002);
CREATE TABLE lake.suite.by_day_ts (k timestamp, n bigint) PARTITIONED BY (day(k));
INSERT INTO lake.suite.by_day_ts VALUES ('1969-12-31 23:59:59.999999', 1), ('1970-01-01 00:00:00', 2), (null, 3), ('2001-07-01 12:00:00', 4), ('1969-12-30 00:00:00', 5);
CREATE TABLE lake.suite.by_day_tstz (k timestamptz, n bigint) PARTITIONED BY (day(k));
INSERT INTO lake.suite.by_day_tstz VALUES ('1969-12-31 23:59:59.999999+00', 1), ('1970-01-01 00:00:00+00', 2), (null, 3), ('2001-07-01 12:00:00+09', 4);
CREATE TABLE lake.suite.by_hour_ts (k timestamp, n bigint) PARTITIONED BY (hour(k));
INSERT INTO lake.suite.by_hour_ts VALUES ('1969-12-31 23:59:59.999999', 1), ('1970-01-01 00:00:00', 2), (null, 3), ('2001-07-01 12:59:59', 4), ('2001-07-01 13:00:00', 5);
CREATE TABLE lake.suite.by_two (a string, b date, n bigint) PARTITIONED BY (a, year(b));
INSERT INTO lake.suite.by_two SELECT CASE WHEN i % 5 = 0 THEN null WHEN i % 5 = 1 THEN '' ELSE 'k' || (i % 5) END, DATE '1969-01-01' + (i * 30)::int, i FROM range(50) t(i);

CREATE TABLE lake.suite.only_null (k string, x double, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.only_null VALUES (null, null, null);
CREATE TABLE lake.suite.only_nan (x double, f float, n bigint);
INSERT INTO lake.suite.only_nan VALUES ('nan'::double, 'nan'::float, 1), ('nan'::double, 'nan'::float, 2);
CREATE TABLE lake.suite.some_nan (x double, f float, n bigint);
INSERT INTO lake.suite.some_nan VALUES ('nan'::double, 1.0, 1), (5.0, 'nan'::float, 2), (-5.0, null, 3);
CREATE TABLE lake.suite.empty (k string, n bigint) PARTITIONED BY (k);
INSERT INTO lake.suite.empty SELECT 'x', 1 WHERE false;

CREATE TABLE lake.suite.metrics_modes (c_full string, c_trunc string, c_counts string, c_none string, n bigint) TBLPROPERTIES (
  'write.metadata.metrics.default' = 'truncate(2)', 'write.metadata.metrics.column.c_full' = 'full',
  'write.metadata.metrics.column.c_counts' = 'counts', 'write.metadata.metrics.column.c_none' = 'none');
INSERT INTO lake.suite.metrics_modes SELECT 'prefix-' || i, 'zz' || i, 'c' || i, 'n' || i, i FROM range(50) t(i);
CREATE TABLE lake.suite.high_bounds (s string, b binary, n bigint);
INSERT INTO lake.suite.high_bounds VALUES (repeat(chr(1114111), 20), '\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF'::blob, 1), ('aaaaaaaaaaaaaaaaaaaaaaaa', '\x00'::blob, 2), (repeat(chr(55295), 20), '\x61'::blob, 3);

CREATE TABLE lake.suite.codec_snappy (k bigint, s string) TBLPROPERTIES ('write.parquet.compression-codec' = 'snappy');
INSERT INTO lake.suite.codec_snappy SELECT i, 'v' || i FROM range(1000) t(i);
CREATE TABLE lake.suite.codec_gzip (k bigint, s string) TBLPROPERTIES ('write.parquet.compression-codec' = 'gzip');
INSERT INTO lake.suite.codec_gzip SELECT i, 'v' || i FROM range(1000) t(i);
CREATE TABLE lake.suite.many_files (k bigint, s string) TBLPROPERTIES ('write.target-file-size-bytes' = '65536', 'write.parquet.row-group-size-bytes' = '16384');
INSERT INTO lake.suite.many_files SELECT i, md5(i::varchar) FROM range(20000) t(i);
CREATE TABLE lake.suite.many_snapshots (k bigint, s string);
INSERT INTO lake.suite.many_snapshots SELECT i, 'a' || i FROM range(10) t(i);
INSERT INTO lake.suite.many_snapshots SELECT i, 'b' || i FROM range(10, 20) t(i);
INSERT INTO lake.suite.many_snapshots (s) VALUES ('no key');
INSERT INTO lake.suite.many_snapshots BY NAME SELECT 'named' AS s, 77 AS k;

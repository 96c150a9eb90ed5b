-- Delta tables that independent readers must read like Firn: every type, the
-- partition values and statistics on which writers are known to go wrong, and the
-- properties that change what is written. Plain DuckDB runs the same statements,
-- less what begins at USING, and its rows are those that all must give.
CREATE NAMESPACE lake.dsuite;

CREATE TABLE lake.dsuite.all_types (
  id bigint NOT NULL, b boolean, ti tinyint, si smallint, i int, l bigint, f float, d double, dec9 decimal(9,2), dec18 decimal(18,6), dec38 decimal(38,10),
  dt date, ts timestamp, tstz timestamptz, s varchar, bin blob,
  li int[], m map(varchar, bigint), st struct(a int, b varchar), nested struct(x struct(y int, z varchar[]), w map(int, varchar))[]
) USING delta;
INSERT INTO lake.dsuite.all_types VALUES
 (1, true, 1, 1, 1, 1, 1.5, 2.5, 1.25, 1.000001, 12345678901234567890.0123456789, '2001-02-03', '2001-02-03 04:05:06.789012', '2001-02-03 04:05:06.789012+00', 'snow', '\x00\xFF'::blob, [1,2,3], map{'a': 1, 'b': 2}, {'a': 1, 'b': 'x'}, [{'x': {'y': 1, 'z': ['p','q']}, 'w': map{1: 'one'}}]),
 (2, false, -128, -32768, -2147483648, -9223372036854775808, '-infinity'::float, '-infinity'::double, -9999999.99, -999999999999.999999, -9999999999999999999999999999.9999999999, '0001-01-01', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999+00', '', ''::blob, [], map{}, {'a': null, 'b': ''}, []),
 (3, true, 127, 32767, 2147483647, 9223372036854775807, 'infinity'::float, 'infinity'::double, 9999999.99, 999999999999.999999, 9999999999999999999999999999.9999999999, '9999-12-31', '2262-04-11 23:47:16.854775', '2262-04-11 23:47:16.854775+00', 'ünïcødé 雪 ❄', '\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF'::blob, [null, 5], map{'k': null}, {'a': 7, 'b': null}, [null, {'x': null, 'w': null}]),
 (4, null, null, null, null, null, 'nan'::float, 'nan'::double, null, null, null, null, null, null, null, null, null, null, null, null),
 (5, null, 0, 0, 0, 0, 0.0, -0.0, 0, 0, 0, '1970-01-01', '1970-01-01 00:00:00', '1970-01-01 00:00:00+00', repeat('z', 300), '\x7F'::blob, [0], null, null, null);

CREATE TABLE lake.dsuite.by_string (k varchar, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_string VALUES ('a', 1), ('', 2), (null, 3), ('null', 4), ('a/b', 5), ('a=b', 6), ('50%', 7), ('ü 雪', 8), (' ', 9), ('a+b&c?d#e', 10), ('NULL', 11), ('.', 12), ('..', 13), (repeat('long', 40), 14), ('new
line', 16), ('''quoted"', 17), ('back\slash', 18), ('a', 19), ('', 20), (null, 21), ('a%2Fb', 22), ('a:b', 23), ('[x]{y}^`|~', 24), ('😀', 25), ('tab	', 26), ('*', 27), ('<a>;,@!$()', 28), ('%', 29), ('a//b', 30), ('\', 31);
CREATE TABLE lake.dsuite.by_tinyint (k tinyint, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_tinyint VALUES (0, 1), (-128, 2), (null, 3), (127, 4);
CREATE TABLE lake.dsuite.by_smallint (k smallint, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_smallint VALUES (0, 1), (-32768, 2), (null, 3), (32767, 4);
CREATE TABLE lake.dsuite.by_int (k int, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_int VALUES (0, 1), (-1, 2), (null, 3), (2147483647, 4), (-2147483648, 5), (0, 6);
CREATE TABLE lake.dsuite.by_long (k bigint, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_long VALUES (0, 1), (-9223372036854775808, 2), (null, 3), (9223372036854775807, 4);
CREATE TABLE lake.dsuite.by_date (k date, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_date VALUES ('1969-12-31', 1), ('1970-01-01', 2), (null, 3), ('2001-07-01', 4), ('0001-01-01', 5), ('9999-12-31', 6);
CREATE TABLE lake.dsuite.by_bool (k boolean, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_bool VALUES (true, 1), (false, 2), (null, 3);
CREATE TABLE lake.dsuite.by_float (k float, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_float VALUES (1.5, 1), (0.1, 2), (null, 3), (-3.4e38, 4);
CREATE TABLE lake.dsuite.by_double (k double, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_double VALUES (1.5, 1), (0.1, 2), (null, 3), (-1.5, 5), (1e300, 6), (1e-300, 7);
CREATE TABLE lake.dsuite.by_decimal (k decimal(10,2), n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_decimal VALUES (1.25, 1), (-0.01, 2), (null, 3), (12345678.90, 4), (0, 5), (42, 6);
CREATE TABLE lake.dsuite.by_decimal_38 (k decimal(38,0), n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_decimal_38 VALUES (99999999999999999999999999999999999999, 1), (-99999999999999999999999999999999999999, 2), (9007199254740993, 3), (null, 4);
CREATE TABLE lake.dsuite.by_ts (k timestamp, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_ts VALUES ('1969-12-31 23:59:59.999999', 1), ('2001-07-01 00:00:00.5', 2), (null, 3), ('2001-07-01 00:00:00', 4);
CREATE TABLE lake.dsuite.by_tstz (k timestamptz, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.by_tstz VALUES ('1969-12-31 23:59:59.999999+00', 1), ('2001-07-01 00:00:00.5+09', 2), (null, 3), ('2001-07-01 00:00:00+00', 4);
CREATE TABLE lake.dsuite.by_three (a varchar, b date, n bigint, c boolean) USING delta PARTITIONED BY (c, a, b);
INSERT INTO lake.dsuite.by_three SELECT CASE WHEN i % 5 = 0 THEN null WHEN i % 5 = 1 THEN '' ELSE 'k/' || (i % 5) END, DATE '1969-01-01' + (i // 10)::int, i, i % 2 = 0 FROM range(50) t(i);

-- Statistics.
CREATE TABLE lake.dsuite.long_text (s varchar, n bigint) USING delta;
INSERT INTO lake.dsuite.long_text VALUES (repeat('a', 32), 1), (repeat('a', 33), 2), (repeat('z', 100), 3), (repeat('雪', 40), 4), (repeat('😀', 40), 5), (repeat('z', 31) || '雪雪', 6);
INSERT INTO lake.dsuite.long_text VALUES (repeat(chr(1114111), 40), 7), (null, 8), ('', 9);
INSERT INTO lake.dsuite.long_text VALUES (repeat(chr(55295), 40), 10), (repeat('b', 31) || chr(1114111) || 'x', 11);
CREATE TABLE lake.dsuite.micros (ts timestamp, tz timestamptz, n bigint) USING delta;
INSERT INTO lake.dsuite.micros VALUES ('2001-07-01 00:00:00.000999', '2001-07-01 00:00:00.000999+00', 1), ('2001-07-01 00:00:00.000001', '2001-07-01 00:00:00.000001+00', 2);
INSERT INTO lake.dsuite.micros VALUES ('1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999+00', 3), ('1969-12-31 23:59:59.000001', '1969-12-31 23:59:59.000001+00', 4);
INSERT INTO lake.dsuite.micros VALUES (null, null, 5);
CREATE TABLE lake.dsuite.decimals (a decimal(38,0), b decimal(38,37), c decimal(5,0), n bigint) USING delta;
INSERT INTO lake.dsuite.decimals VALUES (99999999999999999999999999999999999999, 9.9999999999999999999999999999999999999, 99999, 1), (9007199254740993, 0.1, 1, 2);
INSERT INTO lake.dsuite.decimals VALUES (-99999999999999999999999999999999999999, -9.9999999999999999999999999999999999999, -99999, 3), (1, 0, 0, 4);
CREATE TABLE lake.dsuite.some_nan (x double, f float, n bigint) USING delta;
INSERT INTO lake.dsuite.some_nan VALUES ('nan'::double, 1.0, 1), (5.0, 'nan'::float, 2), (-5.0, null, 3);
INSERT INTO lake.dsuite.some_nan VALUES (0.0, -0.0, 4), (-0.0, 0.0, 5);
INSERT INTO lake.dsuite.some_nan VALUES ('infinity'::double, '-infinity'::float, 6), ('-infinity'::double, 'infinity'::float, 7);
CREATE TABLE lake.dsuite.only_null (k varchar, x double, t timestamp, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.only_null VALUES (null, null, null, null);
CREATE TABLE lake.dsuite.nested_stats (n bigint, a struct(b struct(c int, d varchar), e date), l int[]) USING delta;
INSERT INTO lake.dsuite.nested_stats VALUES (1, {'b': {'c': 1, 'd': 'x'}, 'e': '2001-01-01'}, [1]), (2, null, null), (3, {'b': null, 'e': null}, []);
INSERT INTO lake.dsuite.nested_stats VALUES (4, {'b': {'c': 100, 'd': null}, 'e': '1969-12-31'}, [null]);
CREATE TABLE lake.dsuite.bools (b boolean, n bigint) USING delta;
INSERT INTO lake.dsuite.bools VALUES (true, 1), (true, 2);
INSERT INTO lake.dsuite.bools VALUES (false, 3), (null, 4);
CREATE TABLE lake.dsuite.few_stats (a bigint, b bigint, c bigint, n bigint) USING delta TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '2');
INSERT INTO lake.dsuite.few_stats SELECT i, -i, i * i, i FROM range(20) t(i);
INSERT INTO lake.dsuite.few_stats SELECT i, -i, i * i, i FROM range(20, 40) t(i);
CREATE TABLE lake.dsuite.no_stats (a bigint, n bigint) USING delta TBLPROPERTIES ('delta.dataSkippingNumIndexedCols' = '0');
INSERT INTO lake.dsuite.no_stats SELECT i, i FROM range(20) t(i);
CREATE TABLE lake.dsuite.named_stats (a bigint, b varchar, c struct(d bigint), n bigint) USING delta TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'b,c.d');
INSERT INTO lake.dsuite.named_stats SELECT i, 'b' || i, {'d': i}, i FROM range(20) t(i);

-- Properties and the log.
CREATE TABLE lake.dsuite.checkpointed (k varchar, n bigint) USING delta PARTITIONED BY (k) TBLPROPERTIES ('delta.checkpointInterval' = '2');
INSERT INTO lake.dsuite.checkpointed SELECT 'a/' || (i % 3), i FROM range(10) t(i);
INSERT INTO lake.dsuite.checkpointed SELECT null, i FROM range(10, 20) t(i);
INSERT INTO lake.dsuite.checkpointed SELECT 'c%', i FROM range(20, 30) t(i);
INSERT INTO lake.dsuite.checkpointed SELECT 'd', i FROM range(30, 40) t(i);
INSERT INTO lake.dsuite.checkpointed BY NAME SELECT i AS n, 'e' AS k FROM range(40, 50) t(i);
CREATE TABLE lake.dsuite.timed (n bigint) USING delta TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true', 'delta.checkpointInterval' = '3');
INSERT INTO lake.dsuite.timed VALUES (1);
INSERT INTO lake.dsuite.timed VALUES (2);
INSERT INTO lake.dsuite.timed VALUES (3);
INSERT INTO lake.dsuite.timed VALUES (4);
CREATE TABLE lake.dsuite.vectors (n bigint) USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true');
INSERT INTO lake.dsuite.vectors SELECT i FROM range(10) t(i);
CREATE TABLE lake.dsuite.append_only (n bigint) USING delta TBLPROPERTIES ('delta.appendOnly' = 'true');
INSERT INTO lake.dsuite.append_only SELECT i FROM range(10) t(i);
CREATE TABLE lake.dsuite.change_feed (n bigint, k varchar) USING delta PARTITIONED BY (k) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true');
INSERT INTO lake.dsuite.change_feed SELECT i, 'k' || (i % 2) FROM range(10) t(i);
CREATE TABLE lake.dsuite.empty (k varchar, n bigint) USING delta PARTITIONED BY (k);
CREATE TABLE lake.dsuite.no_rows (k varchar, n bigint) USING delta PARTITIONED BY (k);
INSERT INTO lake.dsuite.no_rows SELECT 'x', 1 WHERE false;
CREATE TABLE lake.dsuite.many_files (k bigint, s varchar) USING delta TBLPROPERTIES ('delta.targetFileSize' = '65536');
INSERT INTO lake.dsuite.many_files SELECT i, md5(i::varchar) FROM range(20000) t(i);
CREATE TABLE lake.dsuite.upper_case ("Key" varchar, "N" bigint) USING delta PARTITIONED BY ("Key");
INSERT INTO lake.dsuite.upper_case VALUES ('A', 1), ('a', 2), (null, 3);

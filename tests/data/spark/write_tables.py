"""Writes the tables of this folder with Spark. Run by hand, once; the tests need neither Spark nor Java.

Needs pyspark 3.5, boto3, one folder with the jars iceberg-spark-runtime-3.5_2.12 and iceberg-aws-bundle 1.10.1 and
sqlite-jdbc, and an S3 endpoint (moto's server will do) with a bucket ``lake``::

    python tests/data/spark/write_tables.py http://127.0.0.1:PORT FOLDER_OF_JARS

Each table becomes one zip file: its current metadata file and every file that one of its snapshots names, under their
keys in the bucket.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any

import boto3
from pyspark.sql import SparkSession

FORMATS = ("parquet", "orc", "avro")
VERSIONS = (1, 2, 3)
BUCKET = "lake"


def main(endpoint: str, jars: str) -> None:
    spark = session(endpoint, jars)
    spark.sql("CREATE NAMESPACE lake.spark")
    names = [plain(spark, version, kind) for version in VERSIONS for kind in FORMATS]
    names += [equality(spark, kind) for kind in FORMATS]
    names += [branches(spark), upgraded(spark), nested(spark)]
    store = boto3.client("s3", endpoint_url=endpoint, **key())
    for name in names:
        pack(spark, store, name)


def key() -> dict[str, str]:
    return {"region_name": "us-east-1", "aws_access_key_id": "nobody", "aws_secret_access_key": "nobody"}


def session(endpoint: str, jars: str) -> SparkSession:
    settings = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": "jdbc:sqlite:file:lake?mode=memory&cache=shared",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "spark.sql.catalog.lake.warehouse": f"s3://{BUCKET}",
        "spark.sql.catalog.lake.s3.endpoint": endpoint,
        "spark.sql.catalog.lake.s3.access-key-id": "nobody",
        "spark.sql.catalog.lake.s3.secret-access-key": "nobody",
        "spark.sql.catalog.lake.client.region": "us-east-1",
        "spark.sql.catalog.lake.s3.path-style-access": "true",
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]").config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def plain(spark: SparkSession, version: int, kind: str) -> str:
    """Two inserts into partitions; from version 2 on one delete that writes a delete file, or a deletion vector."""
    name = create(spark, f"v{version}_{kind}", version, kind)
    insert(spark, name, 0)
    insert(spark, name, 100)
    if version > 1:
        spark.sql(f"DELETE FROM lake.spark.{name} WHERE number IN (3, 104)")
    return name


def equality(spark: SparkSession, kind: str) -> str:
    """Spark writes none, its readers read them: the delete file is written by Iceberg's own Java library."""
    name = create(spark, f"v2_{kind}_equality", 2, kind, partitions="")
    insert(spark, name, 0)
    jvm: Any = spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.spark.{name}")
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = table.schema().findField("name").fieldId()
    columns = spark.sparkContext._gateway.new_array(jvm.java.lang.String, 1)
    columns[0] = "name"
    schema = table.schema().select(columns)
    factory = jvm.org.apache.iceberg.data.GenericAppenderFactory(table.schema(), table.spec(), ids, schema, None)
    where = f"{table.location()}/data/equality-deletes.{kind}"
    output = jvm.org.apache.iceberg.encryption.EncryptedFiles.plainAsEncryptedOutput(table.io().newOutputFile(where))
    writer = factory.newEqDeleteWriter(output, jvm.org.apache.iceberg.FileFormat.fromString(kind), None)
    row = jvm.org.apache.iceberg.data.GenericRecord.create(schema)
    row.setField("name", "name 3")
    writer.write(row)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()
    return name


def branches(spark: SparkSession) -> str:
    """A tag on the first snapshot, and a branch with rows and deletes of its own."""
    name = create(spark, "v2_branches", 2, "parquet")
    insert(spark, name, 0)
    spark.sql(f"ALTER TABLE lake.spark.{name} CREATE TAG start")
    spark.sql(f"ALTER TABLE lake.spark.{name} CREATE BRANCH audit")
    insert(spark, f"{name}.branch_audit", 100)
    spark.sql(f"DELETE FROM lake.spark.{name}.branch_audit WHERE number = 3")
    insert(spark, name, 200)
    return name


def upgraded(spark: SparkSession) -> str:
    """Written as version 2 with a position delete file, then as version 3 with a deletion vector: it names both."""
    name = create(spark, "v3_upgraded", 2, "parquet")
    insert(spark, name, 0)
    spark.sql(f"DELETE FROM lake.spark.{name} WHERE number = 3")
    spark.sql(f"ALTER TABLE lake.spark.{name} SET TBLPROPERTIES ('format-version' = '3')")
    insert(spark, name, 100)
    spark.sql(f"DELETE FROM lake.spark.{name} WHERE number = 104")
    return name


def nested(spark: SparkSession) -> str:
    """Maps, lists and structs; metadata compressed; no total to compare with, for all files were written at once."""
    spark.sql(
        "CREATE TABLE lake.spark.v2_nested (tags map<string, int>, deep struct<a: array<double>, b: timestamp>)"
        " USING iceberg TBLPROPERTIES ('format-version' = '2', 'write.metadata.compression-codec' = 'gzip',"
        " 'write.parquet.compression-codec' = 'zstd')"
    )
    spark.sql("INSERT INTO lake.spark.v2_nested SELECT map('x', 1), struct(array(1.5D), timestamp'2026-01-01')")
    return "v2_nested"


def create(spark: SparkSession, name: str, version: int, kind: str, partitions: str = "PARTITIONED BY (kind)") -> str:
    spark.sql(
        f"CREATE TABLE lake.spark.{name} (number bigint, name string, kind string) USING iceberg {partitions}"
        f" TBLPROPERTIES ('format-version' = '{version}', 'write.format.default' = '{kind}',"
        " 'write.delete.mode' = 'merge-on-read', 'write.metadata.metrics.default' = 'counts')"
    )
    return name


def insert(spark: SparkSession, name: str, first: int) -> None:
    spark.sql(
        f"INSERT INTO lake.spark.{name} SELECT id + {first}, concat('name ', id),"
        " CASE WHEN id < 5 THEN 'red' ELSE 'blue' END FROM range(10)"
    )


def pack(spark: SparkSession, store: Any, name: str) -> None:
    """Everything that the current metadata file leads to, in one zip file beside this script."""
    jvm: Any = spark._jvm
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"lake.spark.{name}")
    current = table.operations().current().metadataFileLocation()
    wanted = {current}
    for snapshot in table.snapshots():
        wanted.add(snapshot.manifestListLocation())
        wanted.update(manifest.path() for manifest in snapshot.allManifests(table.io()))
    wanted.update(row.file_path for row in spark.sql(f"SELECT file_path FROM lake.spark.{name}.all_files").collect())
    with zipfile.ZipFile(Path(__file__).with_name(f"{name}.zip"), "w", zipfile.ZIP_DEFLATED) as packed:
        packed.comment = current.encode()
        for location in sorted(wanted):
            content = store.get_object(Bucket=BUCKET, Key=location.removeprefix(f"s3://{BUCKET}/"))["Body"].read()
            packed.writestr(zipfile.ZipInfo(location.removeprefix("s3://")), content)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What a round's store holds in the end, read by others' readers."""

import collections
import json
import re

import pyarrow.parquet
from deltalake import DeltaTable

from chaos_store import Failure


class Table:
    """A table, entry by entry, and as `deltalake` reads it. `missing` and `twice` are messages."""

    def __init__(self, store, path):
        client, bucket = store.client(), store.bucket

        def get(key):
            return client.get_object(Bucket=bucket, Key=key)["Body"].read()

        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{path}/_delta_log/")
        keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        entries = sorted(key for key in keys if re.fullmatch(r"\d{20}\.json", key.rsplit("/", 1)[1]))
        self.versions = len(entries)
        numbers = [int(key.rsplit("/", 1)[1][:20]) for key in entries]
        if numbers != list(range(len(numbers))):
            raise Failure(f"the log has gaps: {numbers}")
        # Per producer epoch: (version, seq) of each message. Per version: messages of both kinds of key.
        self.streams, self.ends, self.producers = collections.defaultdict(list), {}, {}
        for version, key in enumerate(entries):
            for action in map(json.loads, get(key).splitlines()):
                if "add" in action:
                    self.take(version, action["add"], lambda file: get(f"{path}/{file}"))
                end = action.get("commitInfo", {}).get("s3mq.end")
                if end:
                    self.ends[end["epoch"]] = (version, end["count"])
        rows = DeltaTable(f"s3://{bucket}/{path}", storage_options=store.options()).to_pyarrow_table(columns=["producer", "seq"])
        self.rows = collections.Counter(zip(rows["producer"].to_pylist(), rows["seq"].to_pylist()))

    def take(self, version, add, get):
        rows = pyarrow.parquet.read_table(pyarrow.BufferReader(get(add["path"])), columns=["producer", "seq"])
        epoch = add["tags"]["s3mq.epoch"]
        self.streams[epoch] += ((version, seq) for seq in rows["seq"].to_pylist())
        self.producers[epoch] = rows["producer"][0].as_py()

    def check(self):
        """Each stream's messages are there once, from 0 on without a gap, and `deltalake` reads the same."""
        problems = []
        self.missing = self.twice = 0
        for epoch, messages in self.streams.items():
            times = collections.Counter(seq for _, seq in messages)
            twice = [seq for seq, count in times.items() if count > 1]
            missing = [seq for seq in range(max(times) + 1) if seq not in times]
            self.missing, self.twice = self.missing + len(missing), self.twice + len(twice)
            if twice:
                problems.append(f"the table holds messages twice: {epoch}: {twice[:10]}")
            if missing:
                problems.append(f"the table misses messages: {epoch}: {missing[:10]}")
        expected = collections.Counter(
            (self.producers[epoch], seq) for epoch, messages in self.streams.items() for _, seq in messages
        )
        if self.rows != expected:
            fewer, more = (expected - self.rows).total(), (self.rows - expected).total()
            self.missing, self.twice = self.missing + fewer, self.twice + more
            problems.append(f"deltalake misses {fewer} rows that the log has, and reads {more} that it has not")
        return problems

    def since(self, version):
        """How many messages of each epoch came in this version or later."""
        return {epoch: sum(at >= version for at, _ in messages) for epoch, messages in self.streams.items()}

    def __len__(self):
        return sum(map(len, self.streams.values()))

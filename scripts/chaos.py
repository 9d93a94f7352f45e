#!/usr/bin/env python3
"""Streams messages through a store that misbehaves while processes are killed, and proves that nothing was lost or doubled.

Each round is drawn from its seed: some faults of the store (answers that are lost, refusals, resets, stalls, cut
bodies, entries that stay hidden for a while), and some violence (a role or the store itself is killed and started
again, or frozen for a moment). Half of the rounds are an `s3mq bench`, the others are producers and a consumer of
their own. What is kept of a round and compared afterwards, with the faults gone:

  produced   what each producer said that it had committed; of one that was killed, what its epoch left in the table
  table      the rows that the `deltalake` Python package reads: (producer, epoch, seq), each once, from 0 on
             without a gap, in a `_delta_log` without one
  received   the consumer's ledger, stream by stream; where a consumer was killed, that of the one after it

All three have to be the same set. A round that fails keeps its files and says how to run it again. Needs the Python
packages deltalake, pyarrow and boto3 (`scripts/start-seaweedfs.sh` makes an environment that has them).
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import boto3
    import botocore.config
    import pyarrow.parquet
    from deltalake import DeltaTable
except ImportError as error:
    sys.exit(f"chaos.py needs the Python packages deltalake, pyarrow and boto3 ({error})")

ROOT = Path(__file__).resolve().parent.parent
BUCKET, ACCESS_KEY, SECRET_KEY = "chaos", "chaoskey", "chaossecret"
# Short ones, so that a round that waits for a lost answer is over in seconds.
DEADLINES = ["--request-timeout-seconds=2", "--retry-timeout-seconds=20", "--stall-timeout-seconds=60"]
LOG = "*_delta_log/*.json"
FIRED = re.compile(r"fault rule=.* action=\"?([a-z-]+)")


def draw_faults(rng):
    """Two to five rules; each may fire often, none makes the store useless."""
    few, some = rng.uniform(0.01, 0.05), rng.uniform(0.05, 0.2)
    catalogue = [
        dict(method="PUT", key=LOG, probability=some, action="apply-then-reset"),
        dict(method="PUT", key=LOG, probability=some, action="apply-then-status", status=500),
        dict(method="PUT", key="*.parquet", probability=some, action="apply-then-reset"),
        dict(method="PUT", key=LOG, probability=some, action="reset"),
        dict(method="PUT", key=LOG, probability=some, action="status", status=409),
        dict(method=["PUT", "GET"], probability=some, action="status", status=503),
        dict(method=["PUT", "GET"], probability=few, action="status", status=500),
        dict(method=["PUT", "GET"], probability=few, action="status", status=429),
        dict(probability=few, action="reset"),
        dict(method="GET", key="*.parquet", probability=some, action="truncate", bytes=rng.randrange(1, 2000)),
        dict(method="GET", key=LOG, probability=few, action="truncate", bytes=rng.randrange(1, 200)),
        dict(method="GET", key="*.parquet", probability=few, action="slow-body", bytes_per_second=rng.randrange(2_000, 50_000)),
        dict(method="GET", key=LOG, probability=few, action="hide", reads=rng.randrange(1, 6)),
        dict(method=["PUT", "GET"], probability=few, action="delay", delay_ms=rng.randrange(5, 400)),
        dict(method=["PUT", "GET"], nth=rng.randrange(30, 120), action="stall", seconds=rng.choice([1, 3, 5])),
        dict(key="*.parquet", action="bandwidth", bytes_per_second=rng.randrange(300_000, 3_000_000)),
    ]
    return rng.sample(catalogue, rng.randrange(2, 6))


def toml(seed, rules):
    def value(of):
        return json.dumps(of)

    lines = [f"seed = {seed}"]
    for rule in rules:
        lines += ["", "[[rule]]", *(f"{name} = {value(of)}" for name, of in rule.items())]
    return "\n".join(lines) + "\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Failure(Exception):
    """A round in which something did not hold."""


class Process:
    """A started s3mq, its output in files of the round's directory."""

    def __init__(self, binary, directory, name, arguments, environment):
        self.name, self.arguments = name, arguments
        self.out, self.err = directory / f"{name}.out", directory / f"{name}.err"
        with open(self.out, "ab") as out, open(self.err, "ab") as err:
            self.process = subprocess.Popen(
                [binary, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
            )

    def is_running(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.is_running():
            self.process.send_signal(number)

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} hangs: still there after {seconds:.0f} s") from None

    def end(self):
        """Whatever happens, it is gone after this."""
        if self.is_running():
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def event(self, name):
        """The last event of this name that a role told, or None."""
        events = [json.loads(line) for line in self.out.read_text().splitlines() if line.startswith("{")]
        return next((event for event in reversed(events) if event.get("event") == name), None)


class Store:
    """`s3mq serve` with the round's faults, its objects in files so that it can be killed."""

    def __init__(self, binary, directory, faults):
        self.binary, self.directory, self.faults, self.lives = binary, directory, faults, 0
        self.processes = []
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def start(self, faults):
        self.lives += 1
        arguments = ["serve", f"--listen=127.0.0.1:{self.port}", f"--data-dir={self.directory / 'objects'}", f"--bucket={BUCKET}"]
        arguments += [f"--faults={faults}"] if faults else []
        environment = {**os.environ, "S3MQ_SERVE_ACCESS_KEY": ACCESS_KEY, "S3MQ_SERVE_SECRET_KEY": SECRET_KEY, "RUST_LOG": "s3mq=info"}
        self.process = Process(self.binary, self.directory, f"store-{self.lives}", arguments, environment)
        self.processes.append(self.process)
        deadline = time.monotonic() + 20
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                if time.monotonic() > deadline or not self.process.is_running():
                    raise Failure(f"the store does not start: {last_line(self.process.err)}") from None
                time.sleep(0.02)

    def kill_and_restart(self, pause):
        self.process.end()
        time.sleep(pause)
        self.start(self.faults)

    def without_faults(self):
        self.process.signal(signal.SIGTERM)
        self.process.wait(10)
        self.start(None)

    def fired(self):
        """How often each action fired, from the log lines of all its lives."""
        counts = collections.Counter()
        for log in self.directory.glob("store-*.err"):
            counts.update(FIRED.findall(re.sub(r"\x1b\[[0-9;]*m", "", log.read_text())))
        return counts

    def environment(self):
        return {
            **os.environ,
            "MINIO_S3_ENDPOINT": self.endpoint,
            "MINIO_S3_BUCKET": BUCKET,
            "MINIO_S3_ACCESS_KEY": ACCESS_KEY,
            "MINIO_S3_SECRET_ACCESS_KEY": SECRET_KEY,
        }


class Table:
    """What the store holds in the end, read by others' readers."""

    def __init__(self, store, path):
        options = {
            "AWS_ENDPOINT_URL": store.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }  # fmt: skip
        s3 = boto3.client(
            "s3", endpoint_url=store.endpoint, aws_access_key_id=ACCESS_KEY, aws_secret_access_key=SECRET_KEY,
            region_name="us-east-1", config=botocore.config.Config(s3={"addressing_style": "path"}),
        )  # fmt: skip

        def get(key):
            return s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()

        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{path}/_delta_log/")
        keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        entries = sorted(key for key in keys if re.fullmatch(r"\d{20}\.json", key.rsplit("/", 1)[1]))
        self.versions = len(entries)
        numbers = [int(key.rsplit("/", 1)[1][:20]) for key in entries]
        if numbers != list(range(len(numbers))):
            raise Failure(f"the log has gaps: {numbers}")
        self.streams, self.ends = collections.defaultdict(list), {}
        for key in entries:
            for action in map(json.loads, get(key).splitlines()):
                if "add" in action:
                    self.take(path, action["add"], get)
                end = action.get("commitInfo", {}).get("s3mq.end")
                if end:
                    self.ends[end["epoch"]] = end["count"]
        for stream, numbers in self.streams.items():
            twice = [number for number, times in collections.Counter(numbers).items() if times > 1]
            if twice:
                raise Failure(f"the table holds messages twice: {stream}: {twice[:10]}")
            if sorted(numbers) != list(range(len(numbers))):
                missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
                raise Failure(f"the table misses messages: {stream}: {missing[:10]}")
        rows = DeltaTable(f"s3://{BUCKET}/{path}", storage_options=options).to_pyarrow_table().num_rows
        if rows != len(self):
            raise Failure(f"deltalake reads {rows} rows, the log says {len(self)}")

    def take(self, path, add, get):
        rows = pyarrow.parquet.read_table(pyarrow.BufferReader(get(f"{path}/{add['path']}")), columns=["seq"])
        self.streams[add["tags"]["s3mq.epoch"]] += rows["seq"].to_pylist()

    def __len__(self):
        return sum(map(len, self.streams.values()))


class Round:
    def __init__(self, binary, directory, seed, seconds):
        self.binary, self.directory, self.rng, self.seconds = binary, directory, random.Random(seed), seconds
        self.rules = draw_faults(self.rng)
        self.kind = self.rng.choice(["bench", "roles"])
        self.kills, self.processes = collections.Counter(), []
        self.rate, self.commit_ms = self.rng.choice([200, 2_000, 10_000]), self.rng.choice([20, 50, 100])
        faults = directory / "faults.toml"
        faults.write_text(toml(seed, self.rules))
        self.store = Store(binary, directory, faults)

    def start(self, name, arguments):
        process = Process(self.binary, self.directory, name, arguments, self.store.environment())
        self.processes.append(process)
        return process

    def violence(self, targets):
        """What is done to whom, and when: seconds after the start."""
        events = []
        for _ in range(self.rng.choice([0, 1, 1, 2])):
            target = self.rng.choice(targets)
            what = self.rng.choice(["kill", "freeze"]) if target != "bench" else "freeze"
            events.append((self.rng.uniform(0.5, self.seconds), target, what, self.rng.uniform(0.2, 2.5)))
        return sorted(events)

    def freeze(self, process, pause):
        process.signal(signal.SIGSTOP)
        time.sleep(pause)
        process.signal(signal.SIGCONT)

    def suffer(self, events, begun, of):
        for at, target, what, pause in events:
            time.sleep(max(0.0, begun + at - time.monotonic()))
            self.kills[f"{what} {target}"] += 1
            if what == "freeze":
                self.freeze(self.store.process if target == "store" else of(target), pause)
            elif target == "store":
                self.store.kill_and_restart(pause)
            else:
                self.restart(target)

    def run(self):
        try:
            self.store.start(self.store.faults)
            received, produced = self.of_bench() if self.kind == "bench" else self.of_roles()
            self.store.without_faults()
            table = Table(self.store, self.path)
            self.compare(table, received, produced)
            return {
                "versions": table.versions, "committed": sum(one["committed"] for one in produced), "table": len(table),
                "received": received["received"],
            }  # fmt: skip
        finally:
            for process in [*self.processes, *self.store.processes]:
                process.end()

    def of_bench(self):
        out = self.directory / "results"
        rate = str(self.rate)
        self.path = f"chaos/{rate}"
        bench = self.start("bench", [
            "bench", "--s3-backend=minio", "--prefix=chaos", "--keep-data", f"--output-dir={out}", "--quiet", "--range-start", rate,
            "--range-end", rate, "--range-step", "1", f"--seconds-to-stream={self.seconds}",
            f"--autocommit-duration-ms={self.commit_ms}", "--checkpoint-interval=20", "--drain-timeout-seconds=60", *DEADLINES,
        ])  # fmt: skip
        self.suffer(self.violence(["store"]), time.monotonic(), None)
        code = bench.wait(self.seconds + 180)
        if code != 0:
            raise Failure(f"the bench ends with exit code {code}: {last_line(bench.err)}")
        result = json.loads((out / f"{rate}.json").read_text())["result"]
        return result["consumer"], [result["producer"]]

    def of_roles(self):
        self.path = "chaos/table"
        self.count = self.rng.choice([1, 1, 2, 4])
        # Now and then two producers share one id: their epochs tell them apart.
        shared = self.rng.random() < 0.3
        self.ids = [0 if shared else number for number in range(self.count)]
        self.serial = collections.Counter()
        self.live = {"consumer": self.consumer()}
        self.past = []
        for number in range(self.count):
            self.live[f"producer {number}"] = self.producer(number)
        self.suffer(self.violence([*self.live, "store"]), time.monotonic(), self.live.get)
        for name, process in sorted(self.live.items(), key=lambda item: item[0] == "consumer"):
            code = process.wait(self.seconds + 180)
            if code != 0:
                raise Failure(f"the {name} ends with exit code {code}: {last_line(process.err)}")
        return self.live["consumer"].event("consumed"), [
            process.event("produced") for name, process in self.live.items() if name != "consumer"
        ]

    def name(self, role):
        self.serial[role] += 1
        return f"{role.replace(' ', '-')}-{self.serial[role]}"

    def consumer(self):
        return self.start(self.name("consumer"), [
            "consumer", f"--lake-path={self.path}", f"--producers={self.count}", f"--autocommit-duration-ms={self.commit_ms}",
            "--drain-timeout-seconds=60", *DEADLINES,
        ])  # fmt: skip

    def producer(self, number):
        return self.start(self.name(f"producer {number}"), [
            "producer", f"--lake-path={self.path}", f"--rate={self.rate}", f"--seconds-to-stream={self.seconds}",
            f"--autocommit-duration-ms={self.commit_ms}", f"--producer-id={self.ids[number]}", "--checkpoint-interval=20",
            "--grace-seconds=60", *DEADLINES,
        ])  # fmt: skip

    def restart(self, role):
        """Kills it with -9 and starts its successor, unless it was through."""
        if not self.live[role].is_running():
            return
        self.live[role].end()
        self.live[role] = self.consumer() if role == "consumer" else self.producer(int(role.split()[1]))

    def compare(self, table, consumed, produced):
        told = {one["epoch"]: one["committed"] for one in produced}
        for epoch, committed in told.items():
            held = len(table.streams.get(epoch, ()))
            if committed != held or table.ends.get(epoch) != committed:
                raise Failure(f"{epoch}: {committed} reported as committed, {held} in the table, ends with {table.ends.get(epoch)}")
        # An epoch that nobody reported is one of a producer that was killed: its stream is open.
        if set(table.ends) - set(told):
            raise Failure(f"streams that nobody reported: {set(table.ends) - set(told)}")
        received = {one["stream"]["epoch"]: one for one in consumed["integrity"]["streams"]}
        for epoch, numbers in table.streams.items():
            one = received.pop(epoch, None)
            # Lost are none, so that as many as there are, none twice, are all of them.
            if one is None or (one["received"], one["lost"], one["duplicated"], one["out_of_order"], one["beyond_end"]) != (len(numbers), 0, 0, 0, 0):
                raise Failure(f"{epoch}: {len(numbers)} in the table, received: {one}")
        if any(one["received"] for one in received.values()):
            raise Failure(f"received what the table does not hold: {received}")
        if consumed["received"] != len(table):
            raise Failure(f"{consumed['received']} received, {len(table)} in the table")


def last_line(path):
    lines = path.read_text().strip().splitlines()
    return lines[-1] if lines else "nothing on standard error"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--binary", default=str(target / "release" / "s3mq"))
    parser.add_argument("--rounds", type=int, default=20, help="how many [default: 20]")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the others count on [default: 1]")
    parser.add_argument("--seconds", type=int, default=8, help="that each round streams for [default: 8]")
    parser.add_argument("--output", type=Path, help="write what was found as JSON to this file")
    arguments = parser.parse_args()
    if not os.access(arguments.binary, os.X_OK):
        parser.error(f"{arguments.binary} is no program: build it, or name another with --binary")
    fired, kills, rows, failed = collections.Counter(), collections.Counter(), [], 0
    print("| seed | kind | rate/s | faults fired | killed, frozen | versions | said to be committed | in the table | received | result |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        directory = Path(tempfile.mkdtemp(prefix=f"s3mq-chaos-{seed}-"))
        one = Round(arguments.binary, directory, seed, arguments.seconds)
        found, problem = {}, None
        try:
            found = one.run()
        except Failure as error:
            problem = str(error)
        counts = one.store.fired()
        fired.update(counts)
        kills.update(one.kills)
        row = {
            "seed": seed, "kind": one.kind, "rate": one.rate, "rules": one.rules, "fired": dict(counts), "kills": dict(one.kills),
            **found, "problem": problem,
        }  # fmt: skip
        rows.append(row)
        cells = [seed, one.kind, one.rate, shown(counts), shown(one.kills)]
        cells += [*found.values(), "whole"] if found else ["", "", "", "", f"**{problem}**"]
        print("|", " | ".join(map(str, cells)), "|", flush=True)
        if problem:
            failed += 1
            print(f"round {seed} failed; its files: {directory}; again: scripts/chaos.py --rounds 1 --seed {seed} "
                  f"--seconds {arguments.seconds}", file=sys.stderr)  # fmt: skip
        else:
            shutil.rmtree(directory)
    messages = sum(row.get("received", 0) for row in rows)
    print(
        f"\n{len(rows)} rounds, {failed} failed; {sum(fired.values()):,} faults fired ({shown(fired)}); "
        f"{sum(kills.values())} kills and freezes ({shown(kills)}); {messages:,} messages, "
        f"{'none lost, none doubled' if not failed else 'see above'}"
    )
    if arguments.output:
        arguments.output.write_text(json.dumps({"rounds": rows}, indent=2) + "\n")
    if not sum(fired.values()):
        sys.exit("no fault fired: this proves nothing")
    sys.exit(1 if failed else 0)


def shown(counts):
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    main()

"""What a round of chaos streams into: an embedded store with faults, or a real one behind a proxy with faults."""

import collections
import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

import boto3
import botocore.config

LOG = "*_delta_log/*.json"
FIRED = re.compile(r"fault rule=.* action=\"?([a-z-]+)")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
VARIABLES = ["MINIO_S3_ENDPOINT", "MINIO_S3_BUCKET", "MINIO_S3_ACCESS_KEY", "MINIO_S3_SECRET_ACCESS_KEY"]


class Failure(Exception):
    """A round in which something did not hold."""


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
    lines = [f"seed = {seed}"]
    for rule in rules:
        lines += ["", "[[rule]]", *(f"{name} = {json.dumps(of)}" for name, of in rule.items())]
    return "\n".join(lines) + "\n"


def last_line(path):
    lines = path.read_text().strip().splitlines()
    return lines[-1] if lines else "nothing on standard error"


class Process:
    """A started s3mq, its output in files of the round's directory."""

    def __init__(self, binary, directory, name, arguments, environment):
        self.name, self.arguments, self.started = name, arguments, time.monotonic()
        self.out, self.err = directory / f"{name}.out", directory / f"{name}.err"
        with open(self.out, "ab") as out, open(self.err, "ab") as err:
            self.process = subprocess.Popen(
                [binary, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment
            )

    def is_running(self):
        return self.process.poll() is None

    def age(self):
        return time.monotonic() - self.started

    def signal(self, number):
        if self.is_running():
            self.process.send_signal(number)

    def child(self, command):
        """The process id of a child that runs this command, or None."""
        try:
            for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
                if Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[1:2] == [command.encode()]:
                    return int(child)
        except OSError:
            pass
        return None

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

    def events(self, name):
        """The events of this name that a role told. One that was killed may have left half a line."""
        lines = [line for line in self.out.read_text().splitlines() if line.startswith("{") and line.endswith("}")]
        return [event for event in map(json.loads, lines) if event.get("event") == name]

    def event(self, name):
        """The last of them, or None."""
        return next(reversed(self.events(name)), None)

    def until_ready(self):
        """Waits until a role has begun: one that finds no store at its start ends, as it is meant to."""
        while self.is_running() and self.age() < 30 and not self.events("ready"):
            time.sleep(0.05)

    def log(self):
        return COLOURS.sub("", self.err.read_text())


class Faulty:
    """`s3mq serve` with the round's faults, on a port that it keeps."""

    def __init__(self, binary, directory, faults):
        self.binary, self.directory, self.faults, self.lives = binary, directory, faults, 0
        self.processes = []
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def start(self, faults):
        self.lives += 1
        arguments = ["serve", f"--listen=127.0.0.1:{self.port}", *self.arguments()]
        arguments += [f"--faults={faults}"] if faults else []
        environment = {**os.environ, **self.keys(), "RUST_LOG": "s3mq=info"}
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
        return True

    def fired(self):
        """How often each action fired, from the log lines of all its lives."""
        return collections.Counter(action for process in self.processes for action in FIRED.findall(process.log()))

    def environment(self):
        """What reaches it, faults and all."""
        variables = dict(zip(VARIABLES, [self.endpoint, self.bucket, self.access_key, self.secret_key]))
        return {**os.environ, **variables}

    def client(self):
        """boto3's client of the bare store."""
        return boto3.client(
            "s3", endpoint_url=self.bare_endpoint, aws_access_key_id=self.access_key, aws_secret_access_key=self.secret_key,
            region_name="us-east-1", config=botocore.config.Config(s3={"addressing_style": "path"}),
        )  # fmt: skip

    def options(self):
        """deltalake's options of the bare store."""
        return {
            "AWS_ENDPOINT_URL": self.bare_endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }  # fmt: skip


class Embedded(Faulty):
    """The embedded store, its objects in files so that it can be killed."""

    name, bucket, access_key, secret_key = "embedded", "chaos", "chaoskey", "chaossecret"
    upstream_pid = None
    prefix = "chaos"

    def arguments(self):
        return [f"--data-dir={self.directory / 'objects'}", f"--bucket={self.bucket}"]

    def keys(self):
        return {"S3MQ_SERVE_ACCESS_KEY": self.access_key, "S3MQ_SERVE_SECRET_KEY": self.secret_key}

    def lay_bare(self):
        """From now on without faults."""
        self.process.signal(signal.SIGTERM)
        self.process.wait(10)
        self.start(None)
        self.bare_endpoint = self.endpoint

    def clear(self):
        """Its files go with the round's directory."""


class Proxied(Faulty):
    """The store that the environment names, with `s3mq serve --proxy` before it."""

    name = "proxy"

    def __init__(self, binary, directory, faults):
        super().__init__(binary, directory, faults)
        self.bare_endpoint, self.bucket, self.access_key, self.secret_key = (os.environ[name] for name in VARIABLES)
        self.prefix = f"chaos-{uuid.uuid4()}"

    # Of the SeaweedFS that scripts/start-seaweedfs.sh started; after a restart, of its successor.
    upstream_pid = int(os.environ.get("S3MQ_SEAWEEDFS_PID") or 0) or None

    @classmethod
    def kill_and_restart_behind(cls, pause):
        """Kills it with -9, and starts it as it had been started."""
        process = Path(f"/proc/{cls.upstream_pid}")
        command, environment = ((process / name).read_bytes().split(b"\0")[:-1] for name in ("cmdline", "environ"))
        directory = os.readlink(process / "cwd")
        os.kill(cls.upstream_pid, signal.SIGKILL)
        while process.exists() and b"State:\tZ" not in (process / "status").read_bytes():
            time.sleep(0.01)
        time.sleep(pause)
        cls.upstream_pid = subprocess.Popen(
            command, env=dict(pair.split(b"=", 1) for pair in environment), cwd=directory, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        ).pid  # fmt: skip
        return True

    @staticmethod
    def is_possible():
        return all(name in os.environ for name in VARIABLES)

    def arguments(self):
        return [f"--proxy={self.bare_endpoint}"]

    def keys(self):
        return {}

    def lay_bare(self):
        """The store itself never had faults."""

    def clear(self):
        client = self.client()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/"):
            keys = [{"Key": item["Key"]} for item in page.get("Contents", ())]
            if keys:
                client.delete_objects(Bucket=self.bucket, Delete={"Objects": keys})

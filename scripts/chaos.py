#!/usr/bin/env python3
"""Streams messages through a store that misbehaves while processes are killed, and proves that nothing was lost or doubled.

Each round is drawn from its seed: some faults of the store (answers that are lost, refusals, resets, stalls, cut
bodies, entries that stay hidden for a while), and some violence (a role or the store itself is killed and started
again, or frozen for up to 20 seconds). A third of the rounds are an `s3mq bench`, the others are producers and a consumer
of their own. The store is the embedded one, or the one that the environment names (MINIO_S3_ENDPOINT and its fellows,
as scripts/start-seaweedfs.sh prints them) behind `s3mq serve --proxy`. What is kept of a round and compared
afterwards, with the faults gone:

  produced   what each producer said that it had committed; one that was killed, in its log until then
  table      the rows that the `deltalake` Python package reads: (producer, epoch, seq), each once, from 0 on
             without a gap, in a `_delta_log` without one
  received   the consumer's ledger, stream by stream; where a consumer was killed, that of the one after it, which
             begins at the beginning or at a version

All three have to be the same set. A round that fails keeps its files and says how to run it again. Needs the Python
packages deltalake, pyarrow and boto3 (`scripts/start-seaweedfs.sh` makes an environment that has them).
"""

import argparse
import collections
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

try:
    from chaos_store import Embedded, Failure, Process, Proxied, draw_faults, last_line, toml
    from chaos_table import Table
except ImportError as error:
    sys.exit(f"chaos.py needs the Python packages deltalake, pyarrow and boto3 ({error})")

ROOT = Path(__file__).resolve().parent.parent
# Short ones, so that a round that waits for a lost answer is over in seconds.
DEADLINES = ["--request-timeout-seconds=2", "--retry-timeout-seconds=20", "--stall-timeout-seconds=60"]
COMMITTED = re.compile(r"committed version=(\d+) messages=(\d+) epoch=([0-9a-f-]{36})")


class Round:
    """One round; `lost` and `doubled` are messages, of the table and of the consumer together."""

    def __init__(self, binary, directory, seed, seconds, longest_freeze, kill_behind, store):
        self.binary, self.directory, self.rng = binary, directory, random.Random(seed)
        self.seconds, self.longest_freeze, self.kill_behind = seconds, longest_freeze, kill_behind
        self.rules = draw_faults(self.rng)
        self.kind = self.rng.choice(["bench", "roles", "roles"])
        self.violent, self.processes, self.killed = collections.Counter(), [], []
        self.lost = self.doubled = 0
        self.rate, self.commit_ms = self.rng.choice([200, 2_000, 10_000]), self.rng.choice([20, 50, 100])
        faults = directory / "faults.toml"
        faults.write_text(toml(seed, self.rules))
        self.store = store(binary, directory, faults)

    def start(self, name, arguments):
        environment = {**self.store.environment(), "RUST_LOG": "s3mq=debug"}
        process = Process(self.binary, self.directory, name, arguments, environment)
        self.processes.append(process)
        return process

    def violence(self, roles):
        """What is done to whom, and when: seconds after the start."""
        targets = [*roles, "store"] + (["store behind"] if self.store.upstream_pid else [])
        events = []
        for _ in range(self.rng.choice([0, 1, 2, 3, 4])):
            target = self.rng.choice(targets)
            # A bench whose roles are killed has failed; that is for the tests.
            can_be_killed = (
                target == "store" or (self.kind == "roles" and target in roles) or (target == "store behind" and self.kill_behind)
            )
            what = self.rng.choice(["kill", "freeze"]) if can_be_killed else "freeze"
            # As many short as long ones; the store is away for a moment only.
            freeze = self.longest_freeze ** self.rng.random()
            pause = freeze if what == "freeze" else self.rng.uniform(0.2, 2.5)
            events.append((self.rng.uniform(0.5, self.seconds), target, what, pause))
        return sorted(events)

    def suffer(self, events, pid):
        """Does what is on the list; `pid` finds a role's process, or None."""
        begun = time.monotonic()
        for at, target, what, pause in events:
            time.sleep(max(0.0, begun + at - time.monotonic()))
            own = {"store": self.store.process.process.pid, "store behind": self.store.upstream_pid}
            if what == "freeze":
                done = self.freeze(own[target] if target in own else pid(target), pause)
            else:
                done = self.restart(target, pause)
            if done:
                self.violent[f"{what} {target.rstrip(' 0123456789')}"] += 1

    @staticmethod
    def freeze(pid, pause):
        """Whether there was a process to freeze. It goes on whatever happens to us."""
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(pause)
            finally:
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            return False
        return True

    def run(self):
        try:
            self.store.start(self.store.faults)
            received, produced = self.of_bench() if self.kind == "bench" else self.of_roles()
            self.store.lay_bare()
            table = Table(self.store, self.path)
            problems = table.check() + self.compare(table, received, produced)
            self.lost, self.doubled = self.lost + table.missing, self.doubled + table.twice
            if problems:
                raise Failure("; ".join(problems))
            self.store.clear()
            return {
                "versions": table.versions, "committed": sum(one["committed"] for one in produced), "table": len(table),
                "received": received["received"], "stall": received["store_stalls"]["longest_seconds"],
                "recovery": received["recovery_seconds"] or 0.0,
            }  # fmt: skip
        finally:
            for process in [*self.processes, *self.store.processes]:
                process.end()

    def of_bench(self):
        out = self.directory / "results"
        rate = str(self.rate)
        self.path, self.first_version = f"{self.store.prefix}/{rate}", 0
        bench = self.start("bench", [
            "bench", "--s3-backend=minio", f"--prefix={self.store.prefix}", "--keep-data", f"--output-dir={out}", "--quiet",
            "--range-start", rate, "--range-end", rate, "--range-step", "1", f"--seconds-to-stream={self.seconds}",
            f"--autocommit-duration-ms={self.commit_ms}", "--checkpoint-interval=20", "--drain-timeout-seconds=60", *DEADLINES,
        ])  # fmt: skip
        self.suffer(self.violence(["producer", "consumer"]), bench.child)
        code = bench.wait(self.seconds + 180)
        if code != 0:
            raise Failure(f"the bench ends with exit code {code}: {last_line(bench.err)}")
        result = json.loads((out / f"{rate}.json").read_text())["result"]
        return result["consumer"], [result["producer"]]

    def of_roles(self):
        self.path, self.first_version = f"{self.store.prefix}/table", 0
        self.count = self.rng.choice([1, 1, 2, 4])
        # Now and then two producers share one id: their epochs tell them apart.
        shared = self.rng.random() < 0.3
        self.ids = [0 if shared else number for number in range(self.count)]
        self.serial = collections.Counter()
        self.live = {"consumer": self.consumer()}
        for number in range(self.count):
            self.live[f"producer {number}"] = self.producer(number)
        for process in self.live.values():
            process.until_ready()
        self.suffer(self.violence([*self.live]), lambda role: self.live[role].process.pid if self.live[role].is_running() else None)
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
            f"--start={self.first_version or 'earliest'}", "--drain-timeout-seconds=60", *DEADLINES,
        ])  # fmt: skip

    def producer(self, number):
        return self.start(self.name(f"producer {number}"), [
            "producer", f"--lake-path={self.path}", f"--rate={self.rate}", f"--seconds-to-stream={self.seconds}",
            f"--autocommit-duration-ms={self.commit_ms}", f"--producer-id={self.ids[number]}", "--checkpoint-interval=20",
            "--grace-seconds=60", *DEADLINES,
        ])  # fmt: skip

    def restart(self, role, pause):
        """Kills it with -9 and starts its successor, unless it is through or about to be."""
        if role == "store":
            return self.store.kill_and_restart(pause)
        if role == "store behind":
            return self.store.kill_and_restart_behind(pause)
        process = self.live[role]
        is_through = role != "consumer" and process.age() > self.seconds
        if not process.is_running() or is_through:
            return False
        process.end()
        self.killed.append(process)
        if role == "consumer":
            self.first_version = self.rng.choice([0, self.some_version()])
            self.live[role] = self.consumer()
        else:
            self.live[role] = self.producer(int(role.split()[1]))
        self.live[role].until_ready()
        return True

    def some_version(self):
        """One that is there, so early that no stream has ended before."""
        told = [self.told(process) for process in self.processes if process.name.startswith("producer")]
        last = max((versions[-1][0] for versions in told if versions), default=0)
        # The end of a stream is a commit that brings no messages.
        ends = [after[0] for versions in told for before, after in itertools.pairwise(versions) if before[1] == after[1]]
        return self.rng.randint(0, min([last, *ends]))

    @staticmethod
    def told(process):
        """Each commit that a producer was told of: version, messages until then, epoch."""
        return [(int(version), int(messages), epoch) for version, messages, epoch in COMMITTED.findall(process.log())]

    def compare(self, table, consumed, produced):
        """What doesn't hold between the producers' word, the table and the consumer's ledger."""
        problems = []
        for one in produced:
            epoch, committed = one["epoch"], one["committed"]
            held, (_, ends_with) = len(table.streams.get(epoch, ())), table.ends.get(epoch, (None, None))
            if not committed == held == ends_with:
                self.lost += max(0, committed - held)
                problems.append(f"{epoch}: {committed} reported as committed, {held} in the table, ends with {ends_with}")
        # What a producer that was killed had been told is there; what it hadn't may be.
        for process in self.killed:
            for version, messages, epoch in self.told(process):
                until_then = sum(at <= version for at, _ in table.streams.get(epoch, ()))
                if until_then != messages:
                    self.lost += max(0, messages - until_then)
                    problems.append(f"{epoch}: {messages} told until version {version}, {until_then} in the table")
                    break
        if set(table.ends) - {one["epoch"] for one in produced}:
            problems.append(f"streams that nobody reported: {set(table.ends)}")
        received = {one["stream"]["epoch"]: one for one in consumed["integrity"]["streams"]}
        wanted = {epoch: count for epoch, count in table.since(self.first_version).items() if count}
        for epoch, count in wanted.items():
            one = received.pop(epoch, None) or dict(received=0, lost=count, duplicated=0, out_of_order=0, beyond_end=0)
            self.doubled += one["duplicated"]
            self.lost += max(one["lost"], count - (one["received"] - one["duplicated"]))
            # Lost are none, so that as many as there are, none twice, are all of them.
            if (one["received"], one["lost"], one["duplicated"], one["out_of_order"], one["beyond_end"]) != (count, 0, 0, 0, 0):
                problems.append(f"{epoch}: {count} in the table from version {self.first_version} on, received: {one}")
        if any(one["received"] or one["lost"] for one in received.values()):
            problems.append(f"received what the table does not hold: {received}")
        if consumed["received"] != sum(wanted.values()):
            problems.append(f"{consumed['received']} received, {sum(wanted.values())} in the table")
        return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--binary", default=str(target / "release" / "s3mq"))
    parser.add_argument("--rounds", type=int, default=20, help="how many [default: 20]")
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the others count on [default: 1]")
    parser.add_argument("--seconds", type=int, default=8, help="that each round streams for [default: 8]")
    parser.add_argument("--longest-freeze", type=float, default=20, help="in seconds, 1 at least [default: 20]")
    parser.add_argument("--store", choices=["embedded", "proxy", "both"], default="both" if Proxied.is_possible() else "embedded",
                        help="where `both`, every other round [default: both where the environment names a store]")  # fmt: skip
    parser.add_argument("--kill-store-behind", action="store_true",
                        help="kill and restart SeaweedFS too, whose process is another one then")  # fmt: skip
    parser.add_argument("--output", type=Path, help="write what was found as JSON to this file")
    arguments = parser.parse_args()
    if not os.access(arguments.binary, os.X_OK):
        parser.error(f"{arguments.binary} is no program: build it, or name another with --binary")
    if arguments.store != "embedded" and not Proxied.is_possible():
        parser.error("--store proxy needs a store: set MINIO_S3_ENDPOINT and its fellows")
    stores = {"embedded": [Embedded], "proxy": [Proxied], "both": [Embedded, Proxied]}[arguments.store]
    fired, violent, rows, failed = collections.Counter(), collections.Counter(), [], 0
    print("| seed | store | kind | rate/s | faults fired | killed, frozen | versions | said to be committed | in the table | received "
          "| longest stall s | recovery s | result |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        directory = Path(tempfile.mkdtemp(prefix=f"s3mq-chaos-{seed}-"))
        store = stores[seed % len(stores)]
        one = Round(arguments.binary, directory, seed, arguments.seconds, arguments.longest_freeze, arguments.kill_store_behind, store)
        found, problem = {}, None
        try:
            found = one.run()
        except Failure as error:
            problem = str(error)
        counts = one.store.fired()
        fired.update(counts)
        violent.update(one.violent)
        row = {
            "seed": seed, "store": store.name, "kind": one.kind, "rate": one.rate, "rules": one.rules, "fired": dict(counts),
            "violence": dict(one.violent), "lost": one.lost, "doubled": one.doubled, **found, "problem": problem,
        }  # fmt: skip
        rows.append(row)
        cells = [seed, store.name, one.kind, one.rate, shown(counts), shown(one.violent)]
        cells += [*found.values(), "whole"] if found else ["", "", "", "", "", "", f"**{problem}**"]
        print("|", " | ".join(f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells), "|", flush=True)
        if problem:
            failed += 1
            print(f"round {seed} failed; its files: {directory}; again: scripts/chaos.py --rounds 1 --seed {seed} --store {store.name} "
                  f"--seconds {arguments.seconds} --longest-freeze {arguments.longest_freeze:g}", file=sys.stderr)  # fmt: skip
        else:
            shutil.rmtree(directory)

    def total(name):
        return sum(row.get(name, 0) for row in rows)

    def longest(name):
        return max(row.get(name, 0.0) for row in rows)

    print(
        f"\n{len(rows)} rounds, {failed} failed; {sum(fired.values()):,} faults fired ({shown(fired)}); "
        f"{sum(violent.values())} kills and freezes ({shown(violent)}); {total('received'):,} messages, "
        f"{total('lost'):,} lost, {total('doubled'):,} doubled; longest stall {longest('stall'):.1f} s, longest recovery {longest('recovery'):.1f} s"
    )
    if arguments.kill_store_behind and Proxied.upstream_pid:
        print(f"SeaweedFS is process {Proxied.upstream_pid} now")
    if arguments.output:
        arguments.output.write_text(json.dumps({"rounds": rows}, indent=2) + "\n")
    if not sum(fired.values()):
        sys.exit("no fault fired: this proves nothing")
    sys.exit(1 if failed else 0)


def shown(counts):
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


if __name__ == "__main__":
    main()

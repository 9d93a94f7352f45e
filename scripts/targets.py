#!/usr/bin/env python3
"""Measures what s3mq promises of itself, and says which promises hold on this machine.

Each row runs `s3mq bench` and sets figures of one run against each other: a store's own round trips, taken from
the same run, against the latency; an old table against a young one. Rows of SeaweedFS need the store's variables
(MINIO_S3_*) and are skipped without. The rows of the layers and of the code's cost are read from
benches/results/layers.json, which `just layers` and `just bench-code` write. Writes benches/results/targets.json and
the table in docs/targets.md after each row; rows that aren't measured stay as they were, with the version that
they were measured with. It takes about a quarter of an hour on a quiet machine; on a busy one the figures are
worth nothing.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benches" / "results"
BEGIN = "<!-- begin: written by `just targets` from benches/results/targets.json -->"
END = "<!-- end -->"


class Bench:
    """Runs `s3mq bench` at one rate and gives what its JSON says."""

    def __init__(self, binary):
        self.binary = binary

    def run(self, store, rate, commit_ms, seconds, *flags):
        backend = {"embedded": "embedded", "SeaweedFS": "minio"}[store]
        with tempfile.TemporaryDirectory() as directory:
            command = [self.binary, "bench", "--s3-backend", backend, "--quiet", "--output-dir", directory]
            command += ["--range-start", str(rate), "--range-end", str(rate), "--range-step", "1"]
            command += ["--autocommit-duration-ms", str(commit_ms), "--seconds-to-stream", str(seconds), *flags]
            print("$", " ".join(command[1:4] + command[7:]), file=sys.stderr, flush=True)
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
            result = json.loads((Path(directory) / f"{rate}.json").read_text())["result"]
        consumer = result["consumer"]
        lost = consumer["received"] != result["producer"]["planned"]
        if lost and result["verdict"]["outcome"] == "sustained":
            raise SystemExit(f"sustained, and yet not everything came: {result}")
        return result


def p50_us(result):
    return result["consumer"]["latency"]["p50_us"]


def p99_us(result):
    return result["consumer"]["latency"]["p99_us"]


def stage_us(result, name, figure="p50_us"):
    return next(stage[figure] for stage in result["consumer"]["stages"] if stage["stage"] == name)


def commit_us(result, figure="p50_us"):
    return result["producer"]["commit_time"][figure]


def four_round_trips_us(result):
    """Of the run itself, medians: data PUT, commit PUT, and twice the GET of a data file."""
    return stage_us(result, "stored") + commit_us(result) + 2 * stage_us(result, "fetched")


def ms(us):
    return f"{us / 1000:.2f} ms"


def row(what, target, measured, met):
    return {"what": what, "target": target, "measured": measured, "met": met}


def at_the_floor(bench, store, commit_ms, share, with_p99):
    """Half the interval, and the run's own four round trips times `share`."""
    result = bench.run(store, 10_000, commit_ms, 30)
    trips_us = four_round_trips_us(result)
    bound_us = commit_ms * 500 + share * trips_us
    target = f"p50 at most {commit_ms / 2:g} ms + {share} x four round trips ({ms(trips_us)}) = {ms(bound_us)}"
    measured = f"p50 {ms(p50_us(result))}, p99 {ms(p99_us(result))}"
    met = p50_us(result) <= bound_us
    if with_p99:
        target += "; p99 at most twice the p50"
        met = met and p99_us(result) <= 2 * p50_us(result)
    return row(f"10,000 msg/s, {commit_ms} ms commits, {store}", target, measured, met)


def sustained(bench, store, rate, target_rate, *flags):
    result = bench.run(store, rate, 100, 30, *flags)
    verdict = result["verdict"]["outcome"]
    note = f" ({' '.join(flags)})" if flags else ""
    measured = f"{rate:,} msg/s {verdict}, p50 {ms(p50_us(result))}, p99 {ms(p99_us(result))}"
    met = verdict == "sustained" and rate >= target_rate and p99_us(result) < 1_000_000
    return row(
        f"a rate that is sustained, 100 ms commits, 30 s, {store}{note}", f"at least {target_rate:,} msg/s, p99 under 1 s", measured, met
    )


def large_messages(bench):
    rate = 200_000
    result = bench.run("embedded", rate, 100, 20, "--message-size", "1024", "--payload", "random")
    verdict = result["verdict"]["outcome"]
    megabytes = rate * 1024 / 1e6
    measured = f"{megabytes:.0f} MB/s {verdict}, p50 {ms(p50_us(result))}, p99 {ms(p99_us(result))}"
    met = verdict == "sustained" and megabytes >= 200 and p99_us(result) < 1_000_000
    return row("1 KiB random messages, embedded", "at least 200 MB/s sustained, p99 under 1 s", measured, met)


def log_age(bench, store):
    """Old and young tables in turn, so that a drift of the machine falls on both."""
    flags = ("--preload-versions",)
    runs = {100: [], 20_000: []}
    for versions in (100, 20_000, 20_000, 100):
        runs[versions].append(bench.run(store, 1_000, 20, 15, *flags, str(versions)))

    def mean(versions, figure):
        return sum(figure(result) for result in runs[versions]) / len(runs[versions])

    commit = mean(20_000, commit_us) / mean(100, commit_us)
    found = mean(20_000, lambda result: stage_us(result, "discovered")) / mean(
        100, lambda result: stage_us(result, "discovered")
    )
    opened = [mean(versions, lambda result: result["producer"]["cold_open_seconds"]) * 1e3 for versions in (100, 20_000)]
    measured = f"commit {commit:.2f}, discovery {found:.2f}; cold open {opened[0]:.1f} ms and {opened[1]:.1f} ms"
    return row(
        f"commit and discovery from version 20,000 on against from 100 on, {store}", "at most 1.1", measured, max(commit, found) <= 1.1
    )


def memory(bench):
    result = bench.run("embedded", 1_000_000, 100, 20)
    peaks = {role: result[role]["resources"]["peak_rss_bytes"] / 1e6 for role in ("producer", "consumer")}
    verdict = result["verdict"]["outcome"]
    measured = f"{verdict}; " + ", ".join(f"{role} {peak:.0f} MB" for role, peak in peaks.items())
    met = verdict == "sustained" and max(peaks.values()) <= 250
    return row("peak RSS of a role at 1,000,000 msg/s", "at most 250 MB", measured, met)


def growth(bench):
    result = bench.run("embedded", 10_000, 5, 100)
    commits = result["producer"]["commits"]
    grown = result["rss_growth"]
    if None in grown.values():
        raise SystemExit(f"the growth could not be told: {grown}")
    measured = f"{commits:,} commits: " + ", ".join(f"{role} {share:+.1%}" for role, share in grown.items())
    return row(
        "growth of RSS over 20,000 commits", "at most 5 %", measured, commits >= 19_500 and max(grown.values()) <= 0.05
    )


def polling(bench, store):
    adaptive = bench.run(store, 10_000, 100, 20)
    fixed = bench.run(store, 10_000, 100, 20, "--poll", "fixed")

    def gets_a_commit(result):
        attempts = {part["purpose"]: part["attempts"] for part in result["consumer"]["running_requests"]}
        gets = attempts.get("commit_get_hit", 0) + attempts.get("commit_get_miss", 0)
        return gets / result["producer"]["commits"]

    measured = (
        f"{gets_a_commit(adaptive):.2f} at p50 {ms(p50_us(adaptive))}; "
        f"fixed {gets_a_commit(fixed):.2f} at {ms(p50_us(fixed))}"
    )
    met = gets_a_commit(adaptive) <= 3 and p50_us(adaptive) <= p50_us(fixed)
    return row(
        f"GETs a commit of an adaptive poll, 100 ms commits, {store}",
        "at most 3, at a p50 no worse than a fixed poll of a tenth of the interval",
        measured,
        met,
    )


def layers():
    """What `just layers` and `just bench-code` measured last."""
    path = RESULTS / "layers.json"
    if not path.exists():
        return
    document = json.loads(path.read_text())
    version = document["build"]["version"]
    compared = {(c["upper"], c["lower"], c["metric"]): c for c in document["comparisons"]}
    medians = {(m["layer"], m["metric"]): m["median"] for m in document["layers"]}

    def compare(name, upper, lower, metric, what, target, is_met, indistinguishable_is_enough):
        found = compared[(upper, lower, metric)]
        of_medians = medians[(upper, metric)] / medians[(lower, metric)]
        if found["indistinguishable"]:
            text = f"indistinguishable (of the medians: {of_medians:.2f})"
            met = indistinguishable_is_enough or None
        else:
            text, met = f"{found['ratio']:.2f}", is_met(found["ratio"])
        what = f"{what}, {document['store_server'] or document['store']}"
        return name, {**row(what, target, text, met), "version": version}

    yield compare(
        "layers-queue-to-raw", "queue", "raw", "latency_p50_beyond_half_interval_us",
        "queue to raw, p50 beyond half the interval, 10,000 msg/s, 20 ms commits",
        "at most 1.15, or indistinguishable", lambda ratio: ratio <= 1.15, True,
    )  # fmt: skip
    yield compare(
        "layers-service-to-queue", "service", "queue", "messages_per_second",
        "service to queue, throughput at full speed",
        "at least 0.95", lambda ratio: ratio >= 0.95, False,
    )  # fmt: skip
    cost = document.get("code_cost")
    for role, figures in (cost or {}).get("roles", {}).items():
        allocations = figures.get("allocations", {})
        if "per_message" not in allocations or "per_batch" not in allocations:
            continue
        a_batch, a_message = allocations["per_batch"], allocations["per_message"]
        measured = f"{a_batch:,.0f} a batch, {a_message:.4f} a message"
        met = a_batch <= 1_000 and a_message <= 0.001
        target = "at most 1,000 a batch and 0.001 a message"
        yield f"allocations-{role}", {**row(f"allocations, {role}", target, measured, met), "version": version}


ROWS = {
    "floor-100-seaweedfs": lambda bench: at_the_floor(bench, "SeaweedFS", 100, 1.2, False),
    "floor-100-embedded": lambda bench: at_the_floor(bench, "embedded", 100, 1.2, False),
    "floor-5-seaweedfs": lambda bench: at_the_floor(bench, "SeaweedFS", 5, 1.3, True),
    "floor-5-embedded": lambda bench: at_the_floor(bench, "embedded", 5, 1.3, True),
    "rate-embedded": lambda bench: sustained(bench, "embedded", 6_000_000, 5_000_000),
    "rate-embedded-prefix": lambda bench: sustained(bench, "embedded", 8_000_000, 8_000_000, "--data-encoding", "prefix"),
    "rate-seaweedfs": lambda bench: sustained(bench, "SeaweedFS", 4_000_000, 4_000_000),
    "large-messages": large_messages,
    "log-age": lambda bench: log_age(bench, "SeaweedFS"),
    "memory": memory,
    "growth": growth,
    "polling-seaweedfs": lambda bench: polling(bench, "SeaweedFS"),
    "polling-embedded": lambda bench: polling(bench, "embedded"),
}

OF_SEAWEEDFS = {name for name in ROWS if "seaweedfs" in name} | {"log-age"}


def machine():
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} processors ({cpu[1] if cpu else platform.processor()}), Linux {platform.release()}"


def render(document):
    lines = [f"Measured on {document['machine']}.", "", "| what | target | measured | met | s3mq |", "|---|---|---|---|---|"]
    for line in document["rows"].values():
        met = {True: "yes", False: "**no**", None: "not shown"}[line["met"]]
        lines.append(f"| {line['what']} | {line['target']} | {line['measured']} | {met} | {line['version']} |")
    return "\n".join(lines)


def write(machine_name, rows):
    """Files as they stand: what was measured survives a row that fails."""
    order = [*ROWS, *(name for name in rows if name not in ROWS)]
    document = {"machine": machine_name, "rows": {name: rows[name] for name in order if name in rows}}
    (RESULTS / "targets.json").write_text(json.dumps(document, indent=2) + "\n")
    page = ROOT / "docs" / "targets.md"
    head, rest = page.read_text().split(BEGIN, 1)
    page.write_text(f"{head}{BEGIN}\n\n{render(document)}\n\n{END}{rest.split(END, 1)[1]}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--binary", default=str(target / "release" / "s3mq"))
    parser.add_argument(
        "--only", nargs="*", choices=sorted(ROWS), metavar="ROW", help=f"measure these anew: {', '.join(ROWS)}"
    )
    arguments = parser.parse_args()
    if not os.access(arguments.binary, os.X_OK):
        parser.error(f"{arguments.binary} is no program: build it, or name another with --binary")
    path = RESULTS / "targets.json"
    rows = json.loads(path.read_text())["rows"] if path.exists() else {}
    version = subprocess.run([arguments.binary, "--version"], capture_output=True, text=True, check=True).stdout
    version = version.split(maxsplit=1)[1].strip()
    for name, measure in ROWS.items():
        if arguments.only is not None and name not in arguments.only:
            continue
        if name in OF_SEAWEEDFS and "MINIO_S3_ENDPOINT" not in os.environ:
            print(f"{name}: skipped, MINIO_S3_ENDPOINT is not set", file=sys.stderr)
            continue
        rows[name] = {**measure(Bench(arguments.binary)), "version": version}
        print(json.dumps(rows[name]), file=sys.stderr, flush=True)
        write(machine(), rows)
    rows = {name: line for name, line in rows.items() if name in ROWS}
    rows.update(layers())
    write(machine(), rows)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Recomputes the figures of a bench from its raw output, and compares.

usage: oracle.py DIR [RATE ...]

DIR is the --output-dir of `s3mq bench --raw-output`. From nothing but {rate}.raw.csv (when each message
was due and when it was received) and the configuration in {rate}.json, every count, percentile and
interval of {rate}.json, {rate}.csv, {rate}.intervals.csv, {rate}.hlog and summary.csv is computed again
and has to agree: counts, extremes and lags exactly, percentiles within what the histogram promises
(never below the exact value, at most 0.1 % above it, never above the largest).

Prints a line for each file, with how much was compared and the worst disagreement of a percentile.
Exits with 1 where something disagrees. Needs numpy; without the package hdrhistogram, which reads the
log as any tool of that family would, {rate}.hlog is left out and said to be.
"""

import argparse
import csv
import json
import math
import re
import sys
import warnings
from fractions import Fraction
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("oracle.py needs the Python package numpy: pip install numpy hdrhistogram")

try:
    from hdrh.histogram import HdrHistogram
    from hdrh.log import HistogramLogReader
except ImportError:
    HistogramLogReader = None

PERCENTILES = (50, 75, 85, 95, 99)
# Three significant digits: a bucket is at most 1/1024 of its values wide.
MOST_ABOVE = 0.001
SHOWN_VIOLATIONS = 10


class Check:
    """What was compared of one file, and what disagreed."""

    def __init__(self, name):
        self.name, self.compared, self.worst, self.violations = name, 0, 0.0, []

    def holds(self, condition, what):
        self.compared += 1
        if not condition:
            self.violations.append(what)

    def same(self, what, told, exact):
        self.holds(told == exact, f"{what}: told {told}, exactly {exact}")

    def close(self, what, told, exact, rounding=0.0):
        if told is None or exact is None:
            return self.same(what, told, exact)
        self.holds(abs(told - exact) <= rounding + 1e-9 * abs(exact), f"{what}: told {told}, exactly {exact}")

    def percentile(self, what, told, exact, largest):
        """`told` is of a histogram; all in whole microseconds, None where nothing was measured."""
        if told is None or exact is None:
            return self.same(what, told, exact)
        self.holds(
            exact <= told <= min(exact * (1 + MOST_ABOVE), largest), f"{what}: told {told} us, exactly {exact} us"
        )
        if told != exact:
            self.worst = max(self.worst, abs(told - exact) / exact if exact else float("inf"))

    def report(self):
        verdict = f"{len(self.violations)} DISAGREE" if self.violations else "agree"
        print(f"{self.name}: {self.compared} compared, {verdict}, worst percentile off by {100 * self.worst:.4f} %")
        for violation in self.violations[:SHOWN_VIOLATIONS]:
            print(f"  {violation}")
        return not self.violations


class Exact:
    """The exact figures of some latencies; negative ones are in none, as documented."""

    def __init__(self, latencies_us):
        self.values = np.sort(latencies_us[latencies_us >= 0])
        self.count = len(self.values)
        self.negative = len(latencies_us) - self.count
        self.smallest, self.largest, self.mean = None, None, None
        if self.count:
            self.smallest, self.largest = int(self.values[0]), int(self.values[-1])
            self.mean = float(np.mean(self.values))

    def percentile(self, percentile):
        """Nearest rank, in whole numbers: the smallest value that `percentile` % of all don't exceed."""
        rank = max(math.ceil(self.count * Fraction(str(percentile)) / 100), 1)
        return int(self.values[rank - 1]) if self.count else None

    def compare(self, check, what, told, percentiles=PERCENTILES):
        """`told` gives what the file says of a percentile."""
        for percentile in percentiles:
            check.percentile(f"{what} p{percentile}", told(percentile), self.percentile(percentile), self.largest)


class Run:
    """One rate: its raw values and its configuration."""

    def __init__(self, directory, rate):
        self.directory, self.rate = directory, rate
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of a file without values
            values = np.loadtxt(directory / f"{rate}.raw.csv", dtype=np.int64, delimiter=",", skiprows=1).reshape(-1, 2)
        self.due_us, self.received_us = values[:, 0], values[:, 1]
        document = json.loads((directory / f"{rate}.json").read_text())
        self.run, self.result = document["run"], document["result"]
        self.consumer, self.producer = self.result["consumer"], self.result["producer"]
        # Measured is what was due within the window, which is counted from the first message.
        since_first_us = self.due_us - self.due_us[0] if len(values) else self.due_us
        warm_us, measured_us = whole_us(self.run["warmup_seconds"]), whole_us(self.run["measured_seconds"])
        self.warming, self.late = since_first_us < warm_us, since_first_us >= warm_us + measured_us
        self.measured = ~(self.warming | self.late)
        self.latency_us = self.received_us - self.due_us
        self.exact = Exact(self.latency_us[self.measured])
        self.interval_us = max(whole_us(self.run["interval_seconds"]), 1)

    def path(self, kind):
        return self.directory / f"{self.rate}.{kind}"

    def rows(self, kind):
        with open(self.path(kind), newline="") as file:
            return list(csv.DictReader(file))

    def intervals(self):
        """In which interval of the timeline each message was received."""
        return (self.received_us - (self.result["timeline_start_us"] or 0)) // self.interval_us


def whole_us(seconds):
    return round(seconds * 1e9) // 1000


def us(field):
    """A field of seconds with six decimals, in microseconds."""
    return round(float(field) * 1e6) if field else None


def check_json(run):
    check, exact, told = Check(f"{run.rate}.json"), run.exact, run.consumer["latency"]
    # Messages without a stamp have no line in the raw values.
    check.same("unreadable", run.consumer["unreadable"], 0)
    check.same("received", run.consumer["received"], len(run.due_us))
    check.same("warmup", run.consumer["warmup"], int(run.warming.sum()))
    check.same("beyond_window", run.consumer["beyond_window"], int(run.late.sum()))
    check.same("negative_latencies", run.consumer["negative_latencies"], exact.negative)
    check.holds(np.all(np.diff(run.received_us) >= 0), "received times run back")
    told = told or {"count": 0}
    check.same("count", told["count"], exact.count)
    check.same("min", told.get("min_us"), exact.smallest)
    check.same("max", told.get("max_us"), exact.largest)
    check.close("mean", told.get("mean_us"), exact.mean)
    exact.compare(check, "latency", lambda percentile: told.get(f"p{percentile}_us"))
    for row in run.consumer["percentiles"]:
        what, exact_us = f"chosen p{row['percentile']}", exact.percentile(row["percentile"])
        check.percentile(what, row["us"], exact_us, exact.largest)
    # At least ten samples beyond a percentile support it.
    unsupported = [percentile for percentile in PERCENTILES if exact.count * (100 - percentile) < 1000]
    if exact.count:
        check.same("unsupported_percentiles", told["unsupported_percentiles"], unsupported)
    # A message's stages add up to its latency, so the means do.
    stages = run.consumer["stages"]
    if stages and all(stage["count"] == exact.count for stage in stages):
        check.close("sum of the stages' means", sum(stage["mean_us"] for stage in stages), exact.mean)
        # The raw values don't tell when a message was handed over; the first stage does.
        since_us = run.consumer["latency_since_handed_over"]["mean_us"]
        check.close("mean since the hand-over", since_us, exact.mean - stages[0]["mean_us"])
    return check


def compare_chosen(check, what, row, exact):
    """The percentiles of a row that --percentiles chose: the columns name them."""
    chosen = [name[1:] for name in row if re.fullmatch(r"p[0-9.]+", name)]
    check.holds(chosen, f"{what}: no percentiles")
    exact.compare(check, what, lambda percentile: us(row[f"p{percentile}"]), chosen)


def check_summary(run):
    check, exact = Check(f"summary.csv, rate {run.rate}"), run.exact
    with open(run.directory / "summary.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["rate"] == run.rate]
    check.same("rows of this rate", len(rows), 1)
    for row in rows[:1]:
        check.same("received", int(row["received"]), len(run.due_us))
        check.same("measured", int(row["measured"]), exact.count)
        check.same("negative_latencies", int(row["negative_latencies"]), exact.negative)
        check.same("max", us(row["max"]), exact.largest)
        check.close("mean", float(row["mean"]) * 1e6 if row["mean"] else None, exact.mean, rounding=0.5)
        compare_chosen(check, "latency", row, exact)
    return check


def check_rate_csv(run):
    """Cumulative: each row is of all messages so far."""
    check, rows = Check(f"{run.rate}.csv"), run.rows("csv")
    frequency, messages = max(int(run.result["rate"] / 2), 1), len(run.due_us)
    counts = list(range(frequency, messages + 1, frequency))
    if messages % frequency:
        counts.append(messages)
    # There is no row before something was measured.
    counted = np.cumsum(run.measured & (run.latency_us >= 0))
    counts = [count for count in counts if counted[count - 1]]
    check.same("rows", len(rows), len(counts))
    times = [us(row["time_from_start"]) for row in rows]
    check.holds(times == sorted(times), "time runs back")
    for row, count in zip(rows, counts):
        exact = Exact(run.latency_us[:count][run.measured[:count]])
        exact.compare(check, f"after {count} messages", lambda percentile: us(row[f"p{percentile}"]))
    return check


def check_intervals(run):
    """Each row is of what was received in its interval alone."""
    check, rows, intervals = Check(f"{run.rate}.intervals.csv"), run.rows("intervals.csv"), run.intervals()
    check.holds(np.all((intervals >= 0) & (intervals < len(rows))), "messages came outside all intervals")
    sent, received = 0, 0
    for index, row in enumerate(rows):
        inside = intervals == index
        what, end_us = f"row {index + 1}", run.result["timeline_start_us"] + (index + 1) * run.interval_us
        exact = Exact(run.latency_us[inside & run.measured])
        check.same(f"{what} time_from_start", us(row["time_from_start"]), (index + 1) * run.interval_us)
        check.same(f"{what} received", int(row["received"]), int(inside.sum()))
        check.same(f"{what} max", us(row["max"]), exact.largest)
        compare_chosen(check, what, row, exact)
        sent, received = sent + int(row["sent"]), received + int(inside.sum())
        check.same(f"{what} backlog", int(row["backlog"]), max(sent - received, 0))
        # How long ago what came last had been due.
        check.same(f"{what} lag", us(row["lag"]), end_us - int(run.due_us[received - 1]) if received else None)
    # A checkpoint is in the interval in which it began; one that was skipped never did.
    begun = [mark for mark in run.result["marks"] if mark["outcome"] != "skipped"]
    for index, row in enumerate(rows):
        expected = sum((mark["started_us"] - run.result["timeline_start_us"]) // run.interval_us == index for mark in begun)
        check.same(f"row {index + 1} checkpoints", int(row["checkpoints"]), expected)
    for role in ("producer", "consumer"):
        told, exact = run.result["rss_growth"][role], memory_growth(run, rows, role)
        check.close(f"growth of the {role}'s memory", told, exact)
    check.same("sum of sent", sent, run.producer["committed"] + run.result["unsent"])
    if run.producer["send_delay"]:
        latest = max((us(row["send_delay_max"]) or 0 for row in rows), default=0)
        check.same("largest send delay", latest, run.producer["send_delay"]["max_us"])
    return check


def memory_growth(run, rows, role):
    """The most memory in the last tenth of the sending against that in the first tenth after the warm-up."""
    warm_us, column = whole_us(run.run["warmup_seconds"]), f"{role}_rss_bytes"
    warm = [row for row in rows if int(row["sent"]) and us(row["time_from_start"]) - run.interval_us >= warm_us]
    held = [int(row[column]) for row in warm if row[column]]
    tenth = len(held) // 10
    return max(held[-tenth:]) / max(held[:tenth]) - 1 if tenth else None


def check_hlog(run):
    check, intervals = Check(f"{run.rate}.hlog"), run.intervals()
    # The log writes times to the millisecond.
    start_us, seen, stages = run.result["timeline_start_us"], set(), {}
    reader = HistogramLogReader(str(run.path("hlog")), HdrHistogram(1, 2**40, 3))
    for histogram in iter(reader.get_next_interval_histogram, None):
        tag = histogram.get_tag()
        told_us = histogram.get_start_time_stamp() * 1000
        length_us = histogram.get_end_time_stamp() * 1000 - told_us
        index = round((told_us - start_us) / run.interval_us)
        what = f"interval {index + 1}"
        check.close(f"{what} start", told_us, start_us + index * run.interval_us, rounding=501)
        check.close(f"{what} length", length_us, run.interval_us, rounding=501)
        recorded = histogram.get_recorded_iterator()
        counts = [(bucket.value_iterated_to, bucket.count_added_in_this_iter_step) for bucket in recorded]
        if tag != "e2e":
            stages.setdefault(tag, []).extend(counts)
            continue
        check.holds(index not in seen, f"{what} is there twice")
        seen.add(index)
        exact = Exact(run.latency_us[(intervals == index) & run.measured])
        check.same(f"{what} count", histogram.get_total_count(), exact.count)
        for percentile in PERCENTILES:
            compare_with_counts(check, f"{what} p{percentile}", counts, percentile, exact.percentile(percentile))
        compare_with_counts(check, f"{what} max", counts, 100, exact.largest)
    # The reader stops at what it can't read.
    check.same("intervals", sorted(seen), sorted(set(intervals[run.measured & (run.latency_us >= 0)].tolist())))
    for stage in run.consumer["stages"]:
        counts = sorted(stages.get(stage["stage"], []))
        check.same(f"{stage['stage']} count", sum(count for _, count in counts), stage["count"])
        for percentile in (50, 99):
            what, told_us = f"{stage['stage']} p{percentile}", stage[f"p{percentile}_us"]
            compare_with_counts(check, what, counts, percentile, told_us)
    return check


def compare_with_counts(check, what, counts, percentile, exact):
    """Nearest rank over buckets: (highest value, count), ascending."""
    rank = max(-(-sum(count for _, count in counts) * percentile // 100), 1)
    for value, count in counts:
        rank -= count
        if rank <= 0:
            # A bucket's highest value may be above the largest recorded one.
            return check.percentile(what, value, exact, float("inf"))
    return check.same(what, None, exact)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIR", type=Path)
    parser.add_argument("rates", metavar="RATE", nargs="*")
    arguments = parser.parse_args()
    rates = arguments.rates or [path.name.removesuffix(".raw.csv") for path in arguments.directory.glob("*.raw.csv")]
    if not rates:
        sys.exit(f"no raw values in {arguments.directory}; run the bench with --raw-output")
    agree = True
    for rate in sorted(rates, key=float):
        run = Run(arguments.directory, rate)
        for kind in (check_json, check_summary, check_rate_csv, check_intervals, check_hlog):
            if kind is check_hlog and HistogramLogReader is None:
                print(f"{rate}.hlog: not compared, needs the Python package hdrhistogram")
                continue
            agree &= kind(run).report()
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()

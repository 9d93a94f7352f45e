#!/usr/bin/env python3
"""Proves the measuring: adds 200 ms to each commit, and looks for them in the figures.

Runs `s3mq bench` on the embedded store, in turns as it is and with a fault rule that delays commits, and compares.
The end-to-end median and the stage `discovered` (from the commit being sent to its entry being read) have to
move by 200 ms, every other stage by nothing; within 3 ms and the spread of the repeats. Exit code 1 if not.

docs/calibration.md says which stage a delay of another request moves.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

DELAY_MS = 200
RULE = f"""
[[rule]]
method = "PUT"
key = "*/_delta_log/*.json"
action = "delay"
delay_ms = {DELAY_MS}
"""
TOLERANCE_MS = 3
RIGHT_STAGE = "discovered"
RATE = "1000"


def measure(binary, seconds, rule):
    """One run: figures in milliseconds by (name, statistic), in the order of a message's stages."""
    with tempfile.TemporaryDirectory() as directory:
        results = os.path.join(directory, "results")
        command = [binary, "bench", "--s3-backend", "embedded", "--quiet", "--output-dir", results]
        command += ["--range-start", RATE, "--range-end", RATE, "--range-step", RATE]
        command += ["--seconds-to-stream", str(seconds), "--autocommit-duration-ms", "1000"]
        command += ["--poll", "fixed", "--poll-interval-ms", "5"]
        if rule:
            faults = os.path.join(directory, "faults.toml")
            with open(faults, "w", encoding="utf-8") as file:
                file.write(rule)
            command += ["--faults", faults]
        # What the environment says of another run is not for this one.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("S3MQ_")}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        if ended.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
        with open(os.path.join(results, f"{RATE}.json"), encoding="utf-8") as file:
            consumer = json.load(file)["result"]["consumer"]
    figures = {("end to end", "mean"): consumer["latency"]["mean_us"] / 1e3}
    figures["end to end", "p50"] = consumer["latency"]["p50_us"] / 1e3
    for stage in consumer["stages"]:
        for statistic in ("mean", "p50"):
            figures[stage["stage"], statistic] = stage[f"{statistic}_us"] / 1e3
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10, help="length of each run [default: 10]")
    parser.add_argument("--repeats", type=int, default=3, help="runs of either kind [default: 3]")
    parser.add_argument("--binary", default="target/release/s3mq", help="[default: target/release/s3mq]")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")

    baseline, delayed = [], []
    # In turns, so that a machine that gets slower meanwhile does so for both.
    for repeat in range(1, options.repeats + 1):
        for runs, rule in ((baseline, None), (delayed, RULE)):
            print(f"run {repeat} of {options.repeats}, {'commits delayed' if rule else 'no delay'}", file=sys.stderr)
            runs.append(measure(options.binary, options.seconds, rule))

    print(f"{'ms':<17} {'baseline':>9} {'delayed':>9} {'moved':>9} {'expected':>9} {'spread':>7}")
    failed = False
    for figure in baseline[0]:
        before, after = ([run[figure] for run in runs] for runs in (baseline, delayed))
        moved = statistics.median(after) - statistics.median(before)
        expected = DELAY_MS if figure[0] in ("end to end", RIGHT_STAGE) else 0
        spread = max(max(before) - min(before), max(after) - min(after))
        passed = abs(moved - expected) <= TOLERANCE_MS + spread
        failed = failed or not passed
        print(
            f"{' '.join(figure):<17} {statistics.median(before):9.3f} {statistics.median(after):9.3f} "
            f"{moved:+9.3f} {expected:9} {spread:7.3f}  {'pass' if passed else 'FAIL'}"
        )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
